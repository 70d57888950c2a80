package ranking

import (
	"context"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	actLease   = time.Minute
	leaseRetry = 100 * time.Millisecond
)

type seasonLeases struct {
	mu   sync.Mutex
	held map[leaderboard.SeasonKey]bool
}

func (l *seasonLeases) enter(key leaderboard.SeasonKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] {
		return false
	}
	l.held[key] = true
	return true
}

func (l *seasonLeases) leave(key leaderboard.SeasonKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, key)
}

// withLease calls act while it holds the lease of a season. If another process or call holds the
// lease, withLease returns false. A key without a season is for the fills of the board: see fillBoard. If clocks differ or a process was suspended, two processes may act at the same
// time. This does no harm: see [leaderboard.SeasonStore].
func (s *shared) withLease(ctx context.Context, key leaderboard.SeasonKey, act func(context.Context) error) (bool, error) {
	if !s.leases.enter(key) {
		return false, nil
	}
	defer s.leases.leave(key)
	reserve := func(ctx context.Context, until time.Time) (bool, error) {
		return s.store.Reserve(ctx, leaderboard.Reservation{
			Key: leaderboard.ResultKey{SeasonKey: key}, Holder: s.name, At: leaderboard.Truncate(s.now()), Until: until,
		})
	}
	expiry := func() time.Time { return leaderboard.Truncate(s.now().Add(actLease)) }
	held, err := reserve(ctx, expiry())
	defer func() {
		if !held {
			return
		}
		ended := time.Time{} // in the past on every clock
		if _, err := reserve(context.WithoutCancel(ctx), ended); err != nil {
			s.log.WarnContext(ctx, "lease of a season not ended; it will expire", "board", key.Board, "season", key.Season, "err", err)
		}
	}()
	if err != nil || !held {
		return false, err
	}
	renewing, cancel := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() {
		ticker := time.NewTicker(actLease / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if _, err := reserve(renewing, expiry()); err != nil && renewing.Err() == nil {
					s.log.WarnContext(ctx, "lease of a season not renewed", "board", key.Board, "season", key.Season, "err", err)
				}
			case <-renewing.Done():
				return
			}
		}
	})
	defer renewals.Wait()
	defer cancel()
	return true, act(ctx)
}
