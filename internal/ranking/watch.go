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
	watchPoll      = time.Second            // the longest time until Watch reads a change by another process
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
	if c, ok := h.waiters[key]; ok {
		close(c)
		delete(h.waiters, key)
	}
}

type feed struct {
	stop context.CancelFunc
	soon chan struct{} // has a value if a new watcher waits for a read

	mu       sync.Mutex
	watchers int
	begun    int  // the last read that has begun
	done     int  // the last read that is done
	page     Page // of the read done
	version  int  // the last read that changed the page
	err      error
	readDone chan struct{} // closed when the next read is done
	changed  chan struct{} // closed when version changes
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
		f = &feed{stop: stop, soon: make(chan struct{}, 1), readDone: make(chan struct{}), changed: make(chan struct{})}
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
			f.idle(ctx, change, watchPoll)
		}
	}
}

// If a watcher needs a read, idle returns true at once.
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
	change = r.hub.nextChange(v.ladder.SeasonKey)
	page, err = r.page(ctx, b, q)
	return page, change, err
}

func (f *feed) publish(page Page, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.done == 0
	f.done = f.begun
	if first || err != nil || !samePage(f.page, page) {
		f.version = f.done
		close(f.changed)
		f.changed = make(chan struct{})
	}
	f.page, f.err = page, err
	close(f.readDone)
	f.readDone = make(chan struct{})
}

// Watch sends the page of a query, and sends it again whenever the page or the number of users
// changes: at most ten times a second, and at least every 15 seconds.
//
// All watchers of a query share the lines of its pages, so send must not modify them. If a
// query has no season, Watch changes to the next season when the current one ends. Watch
// returns when ctx is done, or when a read or send fails.
func (r *Reader) Watch(ctx context.Context, q PageQuery, send func(Page) error) error {
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

func samePage(x, y Page) bool {
	return x.Season == y.Season && x.Total == y.Total && x.Degraded == y.Degraded && x.Sealed == y.Sealed && reflect.DeepEqual(x.Lines, y.Lines)
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
