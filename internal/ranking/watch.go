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
	watchPoll      = time.Second            // the longest time until Watch notices a change by another process
	watchHeartbeat = 15 * time.Second       // the longest time between two pages
)

// hub wakes the watchers of a season.
type hub struct {
	mu      sync.Mutex
	waiters map[leaderboard.SeasonKey]chan struct{}
}

func newHub() *hub { return &hub{waiters: map[leaderboard.SeasonKey]chan struct{}{}} }

// changed returns a channel that is closed at the next change of a season.
func (h *hub) changed(key leaderboard.SeasonKey) <-chan struct{} {
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

// Watch sends the page of a query. Whenever the page or the number of users in the
// ladder changes, Watch sends the page again. It sends at most ten pages per second, so
// one page may contain several changes. It sends at least one page every 15 seconds. If
// a client gets no page for longer, the connection is lost.
//
// If a query has no season, Watch changes to the next season when the current season
// ends. Watch returns when ctx is done or send fails.
func (r *Reader) Watch(ctx context.Context, q PageQuery, send func(Page) error) error {
	if err := q.validate(); err != nil {
		return err
	}
	var sent Page
	var sentAt time.Time
	for {
		b, err := r.board(ctx, q.Board)
		if err != nil {
			return err
		}
		v, err := r.view(ctx, b, q.Query)
		if err != nil {
			return err
		}
		// Get the channel before reading the page. Otherwise Watch would miss a change
		// between the read and the call of changed.
		changed := r.hub.changed(v.ladder.SeasonKey)
		page, err := r.page(ctx, b, q)
		if err != nil {
			return err
		}
		now := r.now()
		if sentAt.IsZero() || now.Sub(sentAt) >= watchHeartbeat || !samePage(sent, page) {
			if err := send(page); err != nil {
				return err
			}
			sent, sentAt = page, now
		}
		if err := wait(ctx, nil, watchInterval); err != nil {
			return err
		}
		if err := wait(ctx, changed, watchPoll); err != nil {
			return err
		}
	}
}

func samePage(x, y Page) bool {
	return x.Season == y.Season && x.Total == y.Total && x.Degraded == y.Degraded && x.Sealed == y.Sealed && reflect.DeepEqual(x.Lines, y.Lines)
}

// wait returns nil after d, or earlier if changed is closed. If ctx is done first, it
// returns the error of ctx.
func wait(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
