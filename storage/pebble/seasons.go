package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// seasonsUnder returns the seasons with data below the key prefix of a board or a season, ordered by id.
func seasonsUnder(ctx context.Context, r pebble.Reader, prefix []byte) (seasons []leaderboard.SeasonID, err error) {
	end := keyAfter(prefix)
	for start := prefix; start != nil; {
		from := start
		start = nil
		if err := scan(ctx, r, from, end, func(key, _ []byte) (bool, error) {
			number, season, _, ok := parseSeasonKey(key[1:])
			if !ok {
				return false, errFormat("key of a season")
			}
			seasons = append(seasons, season)
			start = keyAfter(makeSeasonRowKey(number, season))
			return false, nil
		}); err != nil {
			return nil, err
		}
		if bytes.Compare(start, end) >= 0 {
			start = nil
		}
	}
	slices.Sort(seasons)
	return seasons, nil
}

// DeleteSeason implements [leaderboard.Store].
func (s *Store) DeleteSeason(ctx context.Context, seasonKey leaderboard.SeasonKey, at time.Time) error {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return s.syncVisible(ctx)
	}
	batch := s.db.NewBatch()
	onVisible, err := s.setDeleted(batch, seasonKey, at)
	if err != nil {
		return errUnavailable("write", err)
	}
	return s.removeData(ctx, batch, bd, makeSeasonRowKey(bd.number, seasonKey.Season), func() { onVisible(); bd.seasons.forget() }, func() {})
}

// FinishDeletions implements [leaderboard.Store]. The rows of a deleted season are removed by one batch, and
// what the engine has of it is removed later.
func (s *Store) FinishDeletions(ctx context.Context) error {
	return errors.Join(s.removeEnded(ctx, []byte{kindIncarnation}), s.removeExpired(ctx))
}

// setDeleted adds nothing to the batch if at is zero or not later than the stored time. The caller
// must call onVisible as soon as readers see the batch.
func (s *Store) setDeleted(batch *pebble.Batch, seasonKey leaderboard.SeasonKey, at time.Time) (onVisible func(), err error) {
	at = leaderboard.Truncate(at)
	if at.UnixMicro() <= 0 || !at.After(s.deletionOf(seasonKey)) {
		return func() {}, nil
	}
	value := binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))
	return func() { s.deleted.Store(seasonKey, at) }, batch.Set(deletedKey(seasonKey), value, nil)
}

func (s *Store) deletionOf(seasonKey leaderboard.SeasonKey) time.Time {
	value, _ := s.deleted.Load(seasonKey)
	at, _ := value.(time.Time)
	return at
}

// DeletedAt implements [leaderboard.Store].
func (s *Store) DeletedAt(ctx context.Context, seasonKey leaderboard.SeasonKey) (time.Time, error) {
	return s.deletedAt(seasonKey), ctx.Err()
}

func (s *Store) deletedAt(seasonKey leaderboard.SeasonKey) time.Time {
	at, board := s.deletionOf(seasonKey), s.deletionOf(leaderboard.SeasonKey{Board: seasonKey.Board})
	if board.After(at) {
		return board
	}
	return at
}

func (s *Store) loadDeletions() error {
	prefix := []byte{kindDeleted}
	return s.scan(context.Background(), prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		d := codec.Decoder{Rest: key[1:]}
		board := leaderboard.BoardID(d.Text())
		season := leaderboard.SeasonID(d.Next(uint64(len(d.Rest))))
		if d.Bad || len(value) != 8 {
			return false, errFormat("deletion")
		}
		at := time.UnixMicro(int64(binary.BigEndian.Uint64(value))).UTC()
		s.deleted.Store(leaderboard.SeasonKey{Board: board, Season: season}, at)
		return true, nil
	})
}
