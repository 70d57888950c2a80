package ranking

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	listInterval = time.Hour
	// maxCalendarGrace is more than any real grace. With a longer grace, a time could
	// overflow.
	maxCalendarGrace = 100 * 365 * 24 * time.Hour
)

// seasonPlan is what a process knows about the seasons of a board. While a plan holds and is
// not due, Sweep and SweepEvery do not read the seasons again.
type seasonPlan struct {
	board    leaderboard.Board
	listedAt time.Time
	wait     time.Duration // how long the plan holds, from listedAt
	unsealed []leaderboard.SeasonID
	// sealed has the SealedAt of the sealed seasons. It stays valid until the schedule
	// changes: without a change, a deleted season gets no more results.
	sealed map[leaderboard.SeasonID]time.Time
	// due is when a sweep must look at the board, even if the plan still holds. Zero means
	// never.
	due time.Time
}

// p may be nil.
func (p *seasonPlan) holds(b *leaderboard.Board, now time.Time) bool {
	return p != nil && now.Before(p.listedAt.Add(p.wait)) && reflect.DeepEqual(&p.board, b)
}

// forBoard returns p, or an empty plan if p is nil or is of a deleted board with the same id.
func (p *seasonPlan) forBoard(b *leaderboard.Board) *seasonPlan {
	if p == nil || !p.board.CreatedAt.Equal(b.CreatedAt) {
		return &seasonPlan{}
	}
	return p
}

// A plan in the map is never changed: put replaces it.
type seasonPlans struct {
	mu    sync.Mutex
	plans map[leaderboard.BoardID]*seasonPlan
}

func (s *seasonPlans) get(id leaderboard.BoardID) *seasonPlan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plans[id]
}

func (s *seasonPlans) put(p *seasonPlan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[p.board.ID] = p
}

func (s *seasonPlans) keepOnly(boards []leaderboard.Board) {
	ids := map[leaderboard.BoardID]bool{}
	for i := range boards {
		ids[boards[i].ID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.plans, func(id leaderboard.BoardID, _ *seasonPlan) bool { return !ids[id] })
}

func (s *seasonPlans) isDue(b *leaderboard.Board, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[b.ID]
	return !p.holds(b, now) || hasCome(p.due, now)
}

func (s *shared) plan(ctx context.Context, b *leaderboard.Board) (*seasonPlan, error) {
	if p := s.plans.get(b.ID); p.holds(b, s.now()) {
		return p, nil
	}
	return s.newPlan(ctx, b)
}

func (s *shared) newPlan(ctx context.Context, b *leaderboard.Board) (*seasonPlan, error) {
	now := s.now()
	previous := s.plans.get(b.ID).forBoard(b)
	sealed := previous.sealed
	if !reflect.DeepEqual(previous.board.Season, b.Season) {
		sealed = nil
	}
	ids, err := s.store.SeasonIDs(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	p := &seasonPlan{board: b.Clone(), listedAt: now, wait: listInterval, sealed: map[leaderboard.SeasonID]time.Time{}, due: now}
	for _, id := range ids {
		sealedAt, ok := sealed[id]
		if !ok {
			if sealedAt, err = s.sealedAt(ctx, b, id, slices.Contains(previous.unsealed, id)); err != nil {
				return nil, err
			}
		}
		if sealedAt.IsZero() {
			p.unsealed = append(p.unsealed, id)
		} else {
			p.sealed[id] = sealedAt
		}
	}
	// The store lists the current season only once it has a result. Until this result, each
	// plan holds twice as long as the previous plan, from a minute to listInterval.
	if current, err := b.Season.At(now); err == nil && !slices.Contains(ids, current.ID) {
		p.wait = min(max(2*previous.wait, time.Minute), listInterval)
	}
	p.wait = min(p.wait, untilSeal(b, now, p.wait))
	s.plans.put(p)
	return p, nil
}

// untilSeal returns the time until the next season of b may be sealed, at most limit. Seasons
// without results count too: they may get their first result in their grace.
func untilSeal(b *leaderboard.Board, now time.Time, limit time.Duration) time.Duration {
	until := limit
	considerClose := func(closes time.Time) {
		if sealable := closes.Add(sealDelay); sealable.After(now) {
			until = min(until, sealable.Sub(now))
		}
	}
	consider := func(s leaderboard.Season, err error) {
		if err == nil {
			considerClose(b.ClosesAt(s))
		}
	}
	consider(b.Season.At(now))
	if b.Season.Grace < maxCalendarGrace {
		consider(b.Season.At(now.Add(-b.Season.Grace - sealDelay))) // the first season that cannot be sealed yet
		considerClose(b.CreatedAt.Add(b.Season.Grace))              // all seasons that ended before the board was created
	}
	for _, w := range b.Season.Windows {
		consider(w, nil)
	}
	for _, e := range b.Season.Ends {
		consider(b.Season.ByID(e.ID))
	}
	return until
}

// sealedAt drops a recently sealed season from the index, and leaves an older season to
// dropSealed. wasOpen means that the season was unsealed in the previous plan.
func (s *shared) sealedAt(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID, wasOpen bool) (time.Time, error) {
	season, err := b.Season.ByID(id)
	if err != nil || !s.mayBeSealed(season) {
		return time.Time{}, err
	}
	record, err := s.store.Season(ctx, leaderboard.SeasonKey{Board: b.ID, Season: id})
	switch {
	case err != nil || record.SealedAt.IsZero():
	case wasOpen || record.SealedAt.After(s.now().AddDate(0, 0, -1)):
		err = s.ranks.useFinal(ctx, record)
	default:
		s.index.sealed.add(record.SeasonKey, false)
	}
	return record.SealedAt, err
}
