package pebble

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// MarkFinal implements [leaderboard.Store]. If the season is not sealed, MarkFinal waits for a Seal
// in progress. This Seal may have read the entries before the caller changed them.
func (s *Store) MarkFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, users []leaderboard.UserID, reason string) error {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	sealed, err := s.isSealed(ctx, b, season)
	if err == nil && !sealed {
		sealed, err = s.isSealedAfterSeal(ctx, b, season)
	}
	switch {
	case errors.Is(err, leaderboard.ErrBoardNotFound), err == nil && !sealed:
		return errNotSealed(seasonKey)
	case err != nil:
		return fmt.Errorf("marks of season %q of board %q: %w", season, b.ID, err)
	}
	batch := s.db.NewBatch()
	for _, user := range users {
		m := leaderboard.FinalMark{SeasonKey: seasonKey, User: user, ID: rand.Text()}
		if err := batch.Set(markKey(&m), []byte(reason), nil); err != nil {
			return errUnavailable("write", err)
		}
	}
	return s.commit(ctx, batch, func() {})
}

func (s *Store) isSealed(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	bd, err := s.liveBoard(b)
	if err != nil {
		return false, err
	}
	var row sealRow
	found, err := s.getJSON(makeSeasonRowKey(bd.number, season).kind(dataSeal), &row)
	if err == nil {
		err = s.failure() // after a failed write, Pebble may return a row that is not on disk
	}
	return found, err
}

func (s *Store) isSealedAfterSeal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (bool, error) {
	bd, err := s.liveBoard(b)
	if err != nil {
		return false, err
	}
	if err := s.lock(ctx, bd.sealing); err != nil {
		return false, err
	}
	defer bd.sealing.unlock()
	return s.isSealed(ctx, b, season)
}

// FinalMarks implements [leaderboard.Store].
func (s *Store) FinalMarks(ctx context.Context) iter.Seq2[leaderboard.FinalMark, error] {
	return func(yield func(leaderboard.FinalMark, error) bool) {
		prefix := []byte{kindMark}
		if err := s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
			d := decoder{b: key[1:]}
			m := leaderboard.FinalMark{User: leaderboard.UserID(d.string()), Reason: string(value)}
			m.Board, m.Season = leaderboard.BoardID(d.string()), leaderboard.SeasonID(d.string())
			if m.ID = string(d.readRest()); d.bad {
				return false, errFormat("mark of final standings")
			}
			return yield(m, nil), nil
		}); err != nil {
			yield(leaderboard.FinalMark{}, err)
		}
	}
}

// RemoveFinalMarks implements [leaderboard.Store].
func (s *Store) RemoveFinalMarks(ctx context.Context, marks []leaderboard.FinalMark) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	batch := s.db.NewBatch()
	for i := range marks {
		if err := batch.Delete(markKey(&marks[i]), nil); err != nil {
			return errUnavailable("write", err)
		}
	}
	return s.commit(ctx, batch, func() {})
}
