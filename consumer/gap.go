package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/open-leaderboard/leaderboard"
)

// gap is a range of offsets in a partition. Its messages are applied, but the index may lack their
// updates.
type gap struct {
	from, to int64 // offsets; to is not part of the gap
	lost     bool  // the log lacks some of these messages
}

// followIndex brings the index up to date with the messages before the session's first message of p. It
// retries until ctx is done.
func (h handler) followIndex(ctx context.Context, p partition, g gap) {
	if g.lost || g.from < g.to {
		h.o.Log.Info("bringing the rank index up to date with applied messages", "topic", p.topic, "partition", p.id,
			"position", g.from, "offset", g.to, "messages_lost", g.lost)
		intervals := backoff.NewExponentialBackOff()
		intervals.InitialInterval, intervals.MaxInterval = 100*time.Millisecond, 5*time.Second
		if _, err := backoff.Retry(ctx, func() (struct{}, error) {
			return struct{}{}, h.closeGap(ctx, p, &g)
		}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, wait time.Duration) {
			h.o.Log.Warn("rank index not brought up to date with applied messages", "topic", p.topic, "partition", p.id, "err", err, "in", wait)
		})); err != nil {
			return
		}
	}
	h.positions.catchUp(p, g.to)
}

// closeGap brings the index up to date with g. After an error, g is the part that was not read.
func (h handler) closeGap(ctx context.Context, p partition, g *gap) error {
	if !g.lost && g.from < g.to {
		if err := h.readGap(ctx, p, g, h.addUsers); err != nil {
			return err
		}
	}
	if g.lost {
		h.positions.gaps.addAll()
	}
	if err := h.positions.gaps.catchUp(ctx, h.service); err != nil {
		return err
	}
	return h.waitUntilSynced(ctx)
}

// waitUntilSynced waits until the index has all updates of this process. Only this process knows
// that an update is missing.
func (h handler) waitUntilSynced(ctx context.Context) error {
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for !h.service.Synced() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (h handler) addUsers(ctx context.Context, items []*item) error {
	if err := h.resolve(ctx, items); err != nil {
		return err
	}
	for _, i := range items {
		if i.cause == "" && !i.record.GetFetch() {
			h.positions.gaps.add(i.result.SeasonKey, i.result.User)
		}
	}
	return nil
}

// gapUsers are the users in all gaps of a session, by season.
type gapUsers struct {
	max int // bounds n: see shrink

	mu      sync.Mutex
	all     bool                                                      // all users of all seasons
	seasons map[leaderboard.SeasonKey]map[leaderboard.UserID]struct{} // a nil map of users stands for all users
	n       int                                                       // number of seasons and of users in seasons, plus number of dropped seasons
	// dropped are the seasons that the session has dropped from the index. The next fill of a dropped
	// season reads the store, which has the results of all gaps. So add ignores dropped seasons.
	dropped    map[leaderboard.SeasonKey]struct{}
	allDropped bool // the session has dropped all seasons

	catchingUp sync.Mutex
}

// add adds users of a season. A nil list stands for all users.
func (u *gapUsers) add(key leaderboard.SeasonKey, users ...leaderboard.UserID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, dropped := u.dropped[key]; dropped || u.all || u.allDropped {
		return
	}
	if u.seasons == nil {
		u.seasons = map[leaderboard.SeasonKey]map[leaderboard.UserID]struct{}{}
	}
	set, ok := u.seasons[key]
	switch {
	case !ok:
		u.n++
		if users != nil {
			set = make(map[leaderboard.UserID]struct{}, len(users))
		}
		u.seasons[key] = set
	case users == nil:
		u.n -= len(set)
		u.seasons[key] = nil
		return
	case set == nil:
		return
	}
	u.n -= len(set)
	for _, user := range users {
		set[user] = struct{}{}
	}
	if u.n += len(set); u.n > u.max {
		u.shrink()
	}
}

// shrink replaces the users of a season by "all users", the largest season first, until n is at most
// max/2. If there are too many seasons, u stands for all users of all seasons.
func (u *gapUsers) shrink() {
	for _, key := range slices.SortedFunc(maps.Keys(u.seasons), func(a, b leaderboard.SeasonKey) int {
		return len(u.seasons[b]) - len(u.seasons[a])
	}) {
		if u.n <= u.max/2 {
			return
		}
		u.n -= len(u.seasons[key])
		u.seasons[key] = nil
	}
	if u.n > u.max/2 {
		u.all, u.seasons, u.n = true, nil, len(u.dropped)
	}
}

func (u *gapUsers) addAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.allDropped {
		u.all, u.seasons, u.n = true, nil, len(u.dropped)
	}
}

// catchUp brings the index up to date for the users in u, and removes them from u. After an error,
// users that are not up to date stay in u.
func (u *gapUsers) catchUp(ctx context.Context, s service) error {
	u.catchingUp.Lock()
	defer u.catchingUp.Unlock()
	u.mu.Lock()
	all, seasons := u.all, u.seasons
	u.all, u.seasons, u.n = false, nil, len(u.dropped)
	u.mu.Unlock()
	if all {
		if err := s.CatchUpAll(ctx); err != nil {
			u.addAll()
			return err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.allDropped, u.all, u.seasons, u.dropped, u.n = true, false, nil, nil, 0
		return nil
	}
	var errs []error
	for key, set := range seasons {
		var users []leaderboard.UserID
		if set != nil {
			users = slices.Collect(maps.Keys(set))
		}
		rest, dropped, err := s.CatchUp(ctx, key, users)
		if err != nil {
			errs = append(errs, err)
			u.add(key, rest...)
		}
		if dropped {
			u.markDropped(key)
		}
	}
	return errors.Join(errs...)
}

func (u *gapUsers) markDropped(key leaderboard.SeasonKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if set, ok := u.seasons[key]; ok {
		u.n -= 1 + len(set)
		delete(u.seasons, key)
	}
	if u.dropped == nil {
		u.dropped = map[leaderboard.SeasonKey]struct{}{}
	}
	u.dropped[key] = struct{}{}
	u.n++
}
