package ranking

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	watchInterval  = 100 * time.Millisecond // the shortest time between two pages
	watchReadGap   = 10 * time.Millisecond  // the shortest time between two reads, even if a new watcher waits
	watchPoll      = time.Second            // the time between two reads of a page that changes without a notification: see readAfter
	watchHeartbeat = 15 * time.Second       // the longest time between two pages
)

type hub struct {
	mu      sync.Mutex
	waiters map[leaderboard.SeasonKey]chan struct{}
}

func newHub() *hub { return &hub{waiters: map[leaderboard.SeasonKey]chan struct{}{}} }

func (h *hub) nextChange(key leaderboard.SeasonKey) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.waiters[key]
	if !ok {
		c = make(chan struct{})
		h.waiters[key] = c
	}
	return c
}

func (h *hub) notify(key leaderboard.SeasonKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range []leaderboard.SeasonKey{key, {Board: key.Board, Season: leaderboard.SeasonLatest}} {
		if c, ok := h.waiters[key]; ok {
			close(c)
			delete(h.waiters, key)
		}
	}
}

// A feed reads the page of one query for all its watchers.
type feed struct {
	stop context.CancelFunc
	soon chan struct{} // has a value if a new watcher waits for a read

	mu       sync.Mutex
	watchers int
	begun    int          // the number of the last read that has begun
	done     int          // the number of the last read that is done
	page     *WatchedPage // the page of the last read that is done
	version  int          // the number of the last read that changed the page
	err      error
	readDone chan struct{} // closed when the next read is done
	changed  chan struct{} // closed when version changes
}

// WatchedPage is a page that all watchers of a query share. They must not modify it.
type WatchedPage struct {
	Page
	once sync.Once
	form any
}

// Form returns the value that encode returned for the page. It calls encode once for all watchers.
// Every caller must pass the same function.
func (p *WatchedPage) Form(encode func(*Page) any) any {
	p.once.Do(func() { p.form = encode(&p.Page) })
	return p.form
}

type feeds struct {
	mu  sync.Mutex
	all map[PageQuery]*feed
}

// firstRead is the number of the first read that begins after join. The caller must call
// leave.
func (r *Reader) join(q PageQuery) (f *feed, firstRead int) {
	r.feeds.mu.Lock()
	defer r.feeds.mu.Unlock()
	f, ok := r.feeds.all[q]
	if !ok {
		ctx, stop := context.WithCancel(r.tasks.ctx)
		f = &feed{stop: stop, soon: make(chan struct{}, 1), page: &WatchedPage{}, readDone: make(chan struct{}), changed: make(chan struct{})}
		r.feeds.all[q] = f
		r.tasks.running.Go(func() { r.feed(ctx, q, f) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers++
	select {
	case f.soon <- struct{}{}:
	default:
	}
	return f, f.begun + 1
}

func (r *Reader) leave(q PageQuery, f *feed) {
	r.feeds.mu.Lock()
	defer r.feeds.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers--; f.watchers == 0 {
		f.stop()
		r.forgetFeed(q, f)
	}
}

// The caller must hold feeds.mu.
func (r *Reader) forgetFeed(q PageQuery, f *feed) {
	if r.feeds.all[q] == f {
		delete(r.feeds.all, q)
	}
}

func (r *Reader) feed(ctx context.Context, q PageQuery, f *feed) {
	for ctx.Err() == nil {
		f.mu.Lock()
		f.begun++
		f.mu.Unlock()
		page, change, err := r.readForFeed(ctx, q)
		if err != nil {
			r.feeds.mu.Lock()
			r.forgetFeed(q, f)
			r.feeds.mu.Unlock()
		}
		if f.publish(page, err); err != nil {
			return
		}
		_ = wait(ctx, watchReadGap)
		if !f.idle(ctx, nil, watchInterval-watchReadGap) {
			f.idle(ctx, change, r.readAfter(&q, &page))
		}
	}
}

// readAfter returns how long the feed waits for a notification before it reads the page again.
// A page without ranks changes when the index is available, decayed scores change with the time, and
// profiles change without a notification. This process gets no notification of other processes' seals and bans. So the feed also
// reads every other page after watchHeartbeat.
func (r *Reader) readAfter(q *PageQuery, page *Page) time.Duration {
	if page.Degraded || page.Filling || page.Board.Fades() || q.Include.Profiles {
		return watchPoll
	}
	if end := page.Season.End; q.Season == "" && !end.IsZero() {
		return min(watchHeartbeat, end.Sub(r.now()))
	}
	return watchHeartbeat
}

// idle returns after d, or earlier if change is closed or ctx is done. If a watcher needs
// a read, it returns true at once.
func (f *feed) idle(ctx context.Context, change <-chan struct{}, d time.Duration) (needed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-f.soon:
		return true
	case <-timer.C:
	case <-change:
	case <-ctx.Done():
	}
	return false
}

// change is closed at the next change after the read began.
func (r *Reader) readForFeed(ctx context.Context, q PageQuery) (page Page, change <-chan struct{}, err error) {
	b, err := r.board(ctx, q.Board)
	if err != nil {
		return Page{}, nil, err
	}
	v, err := r.view(ctx, b, q.Query)
	if err != nil {
		return Page{}, nil, err
	}
	key := v.ladder.SeasonKey
	if q.Season == leaderboard.SeasonLatest {
		key.Season = q.Season
	}
	change = r.hub.nextChange(key)
	page, err = r.page(ctx, b, q)
	return page, change, err
}

func (f *feed) publish(page Page, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.done == 0
	f.done = f.begun
	same := !first && err == nil && samePage(&f.page.Page, &page)
	if !same {
		f.version = f.done
		close(f.changed)
		f.changed = make(chan struct{})
	}
	if !same || !reflect.DeepEqual(&f.page.Page, &page) { // if nothing has changed, keep the old page's encoded form
		f.page = &WatchedPage{Page: page}
	}
	f.err = err
	close(f.readDone)
	f.readDone = make(chan struct{})
}

// Watch sends the page of a query, and sends it again whenever the page or the number of users
// changes: at most ten times a second, and at least every 15 seconds.
//
// All watchers of a query share one reader and its pages. If a query has no season, Watch changes to
// the next season when the current season ends. Watch returns when ctx is done, or when a read or send
// fails.
func (r *Reader) Watch(ctx context.Context, q PageQuery, send func(*WatchedPage) error) error {
	if err := q.validate(); err != nil {
		return err
	}
	q.Resolved = nil // the feed reads the board again before each page
	f, firstRead := r.join(q)
	defer r.leave(q, f)
	heartbeat := time.NewTimer(watchHeartbeat)
	defer heartbeat.Stop()
	for sent, heartbeatDue := 0, false; ; {
		f.mu.Lock()
		page, version, err, change := f.page, f.version, f.err, f.changed
		isNew := f.done >= firstRead // the read of the page began after the call of Watch
		if !isNew {
			change = f.readDone
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if isNew && (heartbeatDue || version > sent) {
			if err := send(page); err != nil {
				return err
			}
			sent = version
			heartbeat.Reset(watchHeartbeat)
			if err := wait(ctx, watchInterval); err != nil {
				return err
			}
		}
		select {
		case <-change:
		case <-heartbeat.C:
			heartbeatDue = true
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		heartbeatDue = false
	}
}

func samePage(x, y *Page) bool {
	return x.Season == y.Season && x.Total == y.Total && x.Unranked == y.Unranked && x.Degraded == y.Degraded && x.Sealed == y.Sealed && reflect.DeepEqual(x.Lines, y.Lines)
}

// wait returns nil after d, or the error of ctx if ctx is done first.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
