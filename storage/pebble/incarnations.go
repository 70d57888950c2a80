package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Incarnations
//
// A season for which the engine may have written rows has a row with the number of its incarnation: OpenIncarnation writes
// it, and on boards with Matches Apply does. A deletion raises this number in the batch that removes the data, and then
// removes what the engine has of earlier incarnations. If it is interrupted, FinishDeletions continues.
//
// Rows of a deleted board remain until this is removed. The numbers of boards
// are never reused, so no row is of two boards.
type incarnationRow struct {
	number  uint64
	removed uint64 // what the engine had of smaller incarnations was removed
	opened  bool   // since the last deletion
}

func (r *incarnationRow) decode(b []byte) error {
	d := codec.Decoder{Rest: b}
	r.number, r.removed, r.opened = d.Uvarint(), d.Uvarint(), d.Byte() != 0
	return checkEnd(&d, "incarnation")
}

func (r *incarnationRow) append(dst []byte) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, r.number), r.removed)
	if r.opened {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// data is the key prefix of a season or a board. incarnationKey returns the key of the season's
// row, or the prefix of these keys of the board's seasons.
func incarnationKey(data []byte) []byte { return append([]byte{kindIncarnation}, data[1:]...) }

func incarnationOf(board uint32, key leaderboard.SeasonKey, number uint64) storage.Incarnation {
	return storage.Incarnation{SeasonKey: key, ID: fmt.Sprintf("%d\t%s\t%d", board, key.Season, number), Deletions: int(number)}
}

// parallel is how many calls of the engine's share a sync of the disk.
const parallel = 16

// Environment implements [storage.Backend].
func (s *Store) Environment() storage.Environment {
	return storage.Environment{Parallel: parallel, Now: s.now}
}

// Use implements [storage.Backend].
func (s *Store) Use(e storage.Engine) { s.engine = e }

// Incarnation implements [storage.Incarnations].
func (s *Store) Incarnation(ctx context.Context, key leaderboard.SeasonKey, _ bool) (storage.Incarnation, error) {
	bd := s.board(key.Board)
	if err := ctx.Err(); err != nil || bd == nil {
		return storage.Incarnation{SeasonKey: key}, err
	}
	return s.incarnation(bd, key.Season)
}

func (s *Store) incarnation(bd *board, season leaderboard.SeasonID) (storage.Incarnation, error) {
	var row incarnationRow
	_, err := s.get(incarnationKey(makeSeasonRowKey(bd.number, season)), row.decode)
	i := incarnationOf(bd.number, leaderboard.SeasonKey{Board: bd.ID, Season: season}, row.number)
	i.Open, i.BoardMade, i.Rules = true, bd.CreatedAt, bd.Rules()
	return i, err
}

// Incarnations implements [storage.Incarnations].
func (s *Store) Incarnations(ctx context.Context, id leaderboard.BoardID) ([]storage.Incarnation, error) {
	bd := s.board(id)
	if bd == nil {
		return nil, ctx.Err()
	}
	seasons, err := seasonsUnder(ctx, s.db, boardPrefix(bd.number))
	if err != nil {
		return nil, err
	}
	prefix := incarnationKey(boardPrefix(bd.number))
	if err := s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		_, season, _, ok := parseSeasonKey(key[1:])
		var row incarnationRow
		if err := row.decode(value); err != nil || !ok {
			return false, errFormat("incarnation")
		}
		if row.opened {
			seasons = append(seasons, season)
		}
		return true, nil
	}); err != nil {
		return nil, err
	}
	slices.Sort(seasons)
	var all []storage.Incarnation
	for _, season := range slices.Compact(seasons) {
		i, err := s.incarnation(bd, season)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// OpenIncarnation implements [storage.Incarnations].
func (s *Store) OpenIncarnation(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (storage.Incarnation, error) {
	unlock, err := s.lockLists(ctx, string(season))
	if err != nil {
		return storage.Incarnation{}, err
	}
	bd, err := s.liveBoard(b)
	if err != nil {
		unlock()
		return storage.Incarnation{}, err
	}
	batch := s.db.NewBatch()
	if err = s.markOpened(batch, makeSeasonRowKey(bd.number, season)); err != nil || batch.Empty() {
		unlock()
	} else {
		err = s.commit(ctx, batch, unlock)
	}
	if err != nil {
		return storage.Incarnation{}, err
	}
	return s.incarnation(bd, season)
}

// markOpened requires that the caller holds a stripe, so that the number stays.
func (s *Store) markOpened(batch *pebble.Batch, season seasonRowKey) error {
	key := incarnationKey(season)
	var row incarnationRow
	if _, err := s.get(key, row.decode); err != nil || row.opened {
		return err
	}
	row.opened = true
	return batch.Set(key, row.append(nil), nil)
}

// endIncarnations requires that the caller holds all stripes.
func (s *Store) endIncarnations(ctx context.Context, batch *pebble.Batch, data []byte) error {
	prefix := incarnationKey(data)
	return s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		var row incarnationRow
		if err := row.decode(value); err != nil {
			return false, err
		}
		row.number, row.opened = row.number+1, false
		return true, batch.Set(key, row.append(nil), nil)
	})
}

// removeEnded removes what the engine has of ended incarnations.
func (s *Store) removeEnded(ctx context.Context, prefix []byte) error {
	ended := map[string]incarnationRow{}
	if err := s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		var row incarnationRow
		err := row.decode(value)
		if err == nil && row.removed < row.number {
			ended[string(key)] = row
		}
		return true, err
	}); err != nil {
		return err
	}
	for key, row := range ended {
		board, season, _, ok := parseSeasonKey([]byte(key[1:]))
		if !ok {
			return errFormat("key of an incarnation")
		}
		for number := row.removed; number < row.number; number++ {
			i := incarnationOf(board, leaderboard.SeasonKey{Season: season}, number)
			if err := s.engine.Remove(ctx, &i); err != nil {
				return err
			}
		}
		if err := s.forgetIncarnations(ctx, key, row.number); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) forgetIncarnations(ctx context.Context, key string, removed uint64) error {
	board, season, _, _ := parseSeasonKey([]byte(key[1:]))
	unlock, err := s.lockLists(ctx, string(season))
	if err != nil {
		return err
	}
	var row incarnationRow
	batch := s.db.NewBatch()
	if _, err = s.get([]byte(key), row.decode); err == nil {
		row.removed = max(row.removed, removed)
		if s.boards.Load().byNumber[board] == nil {
			err = batch.Delete([]byte(key), nil)
		} else {
			err = batch.Set([]byte(key), row.append(nil), nil)
		}
	}
	if err != nil {
		unlock()
		return err
	}
	return s.commit(ctx, batch, unlock)
}
