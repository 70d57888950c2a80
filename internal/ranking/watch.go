package ranking

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	watchPause     = 100 * time.Millisecond // the least time between two snapshots
	watchPoll      = time.Second            // how soon a change made by another process is seen
	watchHeartbeat = 15 * time.Second       // the longest time between two snapshots
)

// hub wakes those who watch a scope.
type hub struct {
	mu      sync.Mutex
	waiters map[leaderboard.Scope]chan struct{}
}

func (h *hub) init() { h.waiters = map[leaderboard.Scope]chan struct{}{} }

// changed returns a channel that is closed at the next change of scope.
func (h *hub) changed(scope leaderboard.Scope) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.waiters[scope]
	if !ok {
		c = make(chan struct{})
		h.waiters[scope] = c
	}
	return c
}

func (h *hub) notify(scope leaderboard.Scope) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.waiters[scope]; ok {
		close(c)
		delete(h.waiters, scope)
	}
}

// Watch sends the first page of a ladder, again whenever it or the number of
// entrants changed, at most ten times a second, and at least every 15 seconds so
// that silence means a lost connection. Changes that follow fast are sent as one. It
// returns when ctx is done or send fails. Without a season it follows the
// current one across its end.
func (s *Service) Watch(ctx context.Context, q PageQuery, send func(Page) error) error {
	var sent Page
	var sentAt time.Time
	for {
		v, err := s.view(ctx, q.Query)
		if err != nil {
			return err
		}
		woken := s.hub.changed(v.ladder.Scope) // before reading, so that no change is missed
		page, err := s.Page(ctx, q)
		if err != nil {
			return err
		}
		now := s.now()
		if sentAt.IsZero() || now.Sub(sentAt) >= watchHeartbeat || !samePage(sent, page) {
			if err := send(page); err != nil {
				return err
			}
			sent, sentAt = page, now
		}
		if err := wait(ctx, nil, watchPause); err != nil {
			return err
		}
		if err := wait(ctx, woken, watchPoll); err != nil {
			return err
		}
	}
}

func samePage(x, y Page) bool {
	return x.Season == y.Season && x.Total == y.Total && x.Degraded == y.Degraded && x.Sealed == y.Sealed && reflect.DeepEqual(x.Lines, y.Lines)
}

// wait returns after d, or earlier when woken is closed, or with ctx's error.
func wait(ctx context.Context, woken <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
