package ranking

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	amendTimeout = 5 * time.Second
	maxAmended   = 10_000
	maxLeftOut   = 10
)

// # Amendments of sealed seasons
//
// After a change of an entry in a sealed season, rankWriter.update writes a durable mark of
// the user, before the change is acknowledged. A process that sweeps amends each marked season
// once for all marks of the season, and then removes these marks. If the process dies before
// the removal, another process amends the season again. For the same entries, the second
// amendment changes nothing: see [leaderboard.SeasonStore].Amend.
//
// The consumer does not wait for amendments. Calls of clients and administrators wait: see
// finishAmendments.

// AmendMarked amends the final standings of all marked users: see
// [leaderboard.SeasonStore].MarkFinal. After an error, AmendMarked continues with the next
// season. It returns all errors.
func (s *shared) AmendMarked(ctx context.Context) error {
	keys := map[leaderboard.SeasonKey]bool{}
	for m, err := range s.store.FinalMarks(ctx) {
		if err != nil {
			return err
		}
		keys[m.SeasonKey] = true
	}
	list := slices.Collect(maps.Keys(keys))
	errs := make([]error, len(list))
	err := eachRead(ctx, len(list), func(ctx context.Context, i int) error {
		// If another process or call has the lease, a later AmendMarked amends for the
		// remaining marks.
		_, errs[i] = s.withLease(ctx, list[i], func(ctx context.Context) error { return s.amendSeason(ctx, list[i]) })
		return ctx.Err()
	})
	return cmp.Or(errors.Join(errs...), err)
}

func (s *shared) finishAmendments(ctx context.Context, keys map[leaderboard.SeasonKey]bool) error {
	list := slices.Collect(maps.Keys(keys))
	return eachRead(ctx, len(list), func(ctx context.Context, i int) error {
		b, err := s.boardSince(ctx, list[i].Board, time.Now().Add(-boardAge))
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		season, err := b.Season.ByID(list[i].Season)
		if err != nil {
			return err
		}
		_, sealed, err := s.seasonRecord(ctx, b, season)
		if err == nil && !sealed && s.mayBeSealed(season) { // another process may just have sealed the season
			var record leaderboard.SeasonRecord
			record, err = s.store.Season(ctx, list[i])
			sealed = !record.SealedAt.IsZero()
		}
		if err != nil || !sealed {
			return err
		}
		return s.amendMarked(ctx, list[i])
	})
}

// tryAmendments calls finishAmendments. It logs [leaderboard.ErrUnavailable] and returns nil,
// because the marks are durable and AmendMarked amends the season later.
func (s *shared) tryAmendments(ctx context.Context, keys map[leaderboard.SeasonKey]bool) error {
	err := s.finishAmendments(ctx, keys)
	if errors.Is(err, leaderboard.ErrUnavailable) {
		s.logNotAmended(ctx, err)
		return nil
	}
	return err
}

func (s *shared) logNotAmended(ctx context.Context, err error) {
	s.log.WarnContext(ctx, "sealed seasons not amended yet; a later attempt will amend them", "err", err)
}

func entrySeasons(lists ...[]leaderboard.Entry) map[leaderboard.SeasonKey]bool {
	keys := map[leaderboard.SeasonKey]bool{}
	for _, e := range slices.Concat(lists...) {
		keys[e.SeasonKey] = true
	}
	return keys
}

// Calls of amendMarked during an amendment share the season's next amendment. When ctx is done,
// amendMarked returns, but the amendment continues.
func (s *shared) amendMarked(ctx context.Context, key leaderboard.SeasonKey) error {
	_, err := runToEnd(ctx, s.tasks, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.amends.Do(ctx, key, struct{}{})
	})
	return err
}

// amendShared returns when this process has amended the season, or when the season has no more
// marks.
func (s *shared) amendShared(ctx context.Context, key leaderboard.SeasonKey, _ []struct{}) error {
	for s.tasks.ctx.Err() == nil {
		held, err := s.withLease(ctx, key, func(ctx context.Context) error { return s.amendSeason(ctx, key) })
		if held || err != nil {
			return err
		}
		_ = wait(s.tasks.ctx, leaseRetry)
		marks, err := s.marksOf(ctx, key)
		if err != nil || len(marks) == 0 {
			return err
		}
	}
	return s.tasks.ctx.Err()
}

func (s *shared) marksOf(ctx context.Context, key leaderboard.SeasonKey) (marks []leaderboard.FinalMark, err error) {
	for m, err := range s.store.FinalMarks(ctx) {
		if err != nil {
			return nil, err
		}
		if m.SeasonKey == key {
			marks = append(marks, m)
		}
	}
	return marks, nil
}

// amendSeason keeps the marks of users whose stored data are damaged.
func (s *shared) amendSeason(ctx context.Context, key leaderboard.SeasonKey) error {
	marks, err := s.marksOf(ctx, key)
	if err != nil {
		return err
	}
	b, err := s.store.Board(ctx, key.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return s.store.RemoveFinalMarks(ctx, marks)
	}
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(marks, maxAmended) {
		err := s.amendFor(ctx, &b, key, chunk)
		if damaged(err) {
			err = s.amendEach(ctx, &b, key, chunk)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// After maxLeftOut users with damaged data, amendEach stops: the damage may be in data that
// every amendment reads.
func (s *shared) amendEach(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, marks []leaderboard.FinalMark) error {
	leftOut := 0
	for i := range marks {
		if s.tasks.ctx.Err() != nil {
			return s.tasks.ctx.Err()
		}
		err := s.amendFor(ctx, b, key, marks[i:i+1])
		if damaged(err) && leftOut < maxLeftOut {
			leftOut++
			s.leaveOut(ctx, key, marks[i].User, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// If the season is not sealed, amendFor only removes the marks.
func (s *shared) amendFor(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, marks []leaderboard.FinalMark) error {
	users, reasons := make([]leaderboard.UserID, len(marks)), map[string]bool{}
	for i := range marks {
		users[i], reasons[marks[i].Reason] = marks[i].User, true
	}
	err := s.ranks.amend(ctx, b, key, slices.Sorted(maps.Keys(reasons)), users)
	if err != nil && !errors.Is(err, leaderboard.ErrNotSealed) {
		return err
	}
	return s.store.RemoveFinalMarks(ctx, marks)
}
