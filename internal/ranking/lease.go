package ranking

import (
	"context"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// actLease is how long one process has the sole right to act on a season. The process
	// renews the lease while it works, and ends it afterwards. If the process dies, another
	// process starts the work again when the lease has ended.
	actLease = time.Minute
	// leaseRetry is the time between two attempts to get a lease.
	leaseRetry = 100 * time.Millisecond
)

// seasonLeases are the leases that a process holds.
type seasonLeases struct {
	mu sync.Mutex
	// held has the number of calls that share the lease of a season, or exclusive.
	held map[leaderboard.SeasonKey]int
}

// exclusive is the value in seasonLeases.held if one call uses a lease alone.
const exclusive = -1

// enter registers a call that uses the lease of a season, and returns true. If sharing is true,
// other sharing calls of this process may use the lease at the same time. If another call
// prevents the use, enter returns false.
func (l *seasonLeases) enter(key leaderboard.SeasonKey, sharing bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.held[key]
	switch {
	case n == 0 && !sharing:
		l.held[key] = exclusive
	case n >= 0 && sharing:
		l.held[key] = n + 1
	default:
		return false
	}
	return true
}

// leave ends the use of a lease by a call. If no other call uses the lease, leave calls end.
// Until end returns, no call can enter.
func (l *seasonLeases) leave(key leaderboard.SeasonKey, end func()) {
	l.mu.Lock()
	last := l.held[key] <= 1
	if last {
		l.held[key] = exclusive
	} else {
		l.held[key]--
	}
	l.mu.Unlock()
	if !last {
		return
	}
	end()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, key)
}

// withLease calls act if neither another process nor another call of this process has the
// lease of a season. Calls of this process with sharing set to true share one lease. withLease
// reports whether it has called act. Two processes may both act, if the clock of one is ahead
// or if one is paused for long. This costs time, but does no harm: see [leaderboard.SeasonStore].
func (s *shared) withLease(ctx context.Context, key leaderboard.SeasonKey, sharing bool, act func(context.Context) error) (bool, error) {
	if !s.leases.enter(key, sharing) {
		return false, nil
	}
	reserve := func(ctx context.Context, lease time.Duration) (bool, error) {
		now := leaderboard.Truncate(s.now())
		return s.store.Reserve(ctx, leaderboard.Reservation{
			Key: leaderboard.ResultKey{SeasonKey: key}, Holder: s.name, At: now, Until: now.Add(lease),
		})
	}
	held, err := reserve(ctx, actLease)
	defer s.leases.leave(key, func() {
		if !held {
			return
		}
		if _, err := reserve(context.WithoutCancel(ctx), 0); err != nil {
			s.log.WarnContext(ctx, "lease of a season not ended; it ends by itself", "board", key.Board, "season", key.Season, "err", err)
		}
	})
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
				if _, err := reserve(renewing, actLease); err != nil && renewing.Err() == nil {
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
