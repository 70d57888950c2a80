package cql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

type seasonIncarnation struct {
	season leaderboard.SeasonID
	incarnation
}

// seasonRows returns the seasons of a board, including deleted ones, ordered by id.
func (s *Store) seasonRows(ctx context.Context, id leaderboard.BoardID) ([]seasonIncarnation, error) {
	var season string
	var r seasonRow
	return gather(ctx, s.conn, op{selectSeasons, []any{string(id)}}, append([]any{&season}, r.dest()...), func() (seasonIncarnation, error) {
		return seasonIncarnation{leaderboard.SeasonID(season), r.incarnation()}, nil
	})
}

// ChangedAt returns the latest time of NoteChange. Apply does not write this time: a caller that applies
// many batches at once notes them together.
func (s *Store) ChangedAt(ctx context.Context, seasonKey leaderboard.SeasonKey) (time.Time, error) {
	var number *int
	var cell []byte
	q := op{selectChange, []any{string(seasonKey.Board), string(seasonKey.Season)}}
	if err := s.conn.read(ctx, q, []any{&number, &cell}, func() bool { return true }); err != nil {
		return time.Time{}, fmt.Errorf("cql: last change of season %q of board %q: %w", seasonKey.Season, seasonKey.Board, err)
	}
	if cell == nil {
		return time.Time{}, nil
	}
	if len(cell) != changeCellBytes {
		return time.Time{}, errFormat("time of a change")
	}
	if int(binary.BigEndian.Uint32(cell)) != orZero(number) {
		return time.Time{}, nil // of an earlier incarnation
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(cell[4:]))).UTC(), nil
}

// changeCellBytes is the length of a cell of the column `changed`: the number of the incarnation, and the time in
// Unix microseconds. The time is also the cell's timestamp, so the latest time remains.
const changeCellBytes = 12

// NoteChange writes the time into the season's row.
func (s *Store) NoteChange(ctx context.Context, seasonKey leaderboard.SeasonKey, at time.Time) error {
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey)
	if err != nil || !inc.open {
		return err
	}
	cell := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(inc.number)), uint64(at.UnixMicro()))
	return s.conn.write(ctx, op{noteChange, []any{at.UnixMicro(), cell, string(seasonKey.Board), string(seasonKey.Season)}})
}

// DeletedAt returns the time of the last deletion of a season or of its board.
func (s *Store) DeletedAt(ctx context.Context, seasonKey leaderboard.SeasonKey) (time.Time, error) {
	return s.deletedAt(ctx, seasonKey)
}

// hasUser reports whether a season has a registered user. It reads the first bucket. If
// this bucket is empty, hasUser reads the others by one statement.
func (s *Store) hasUser(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) (bool, error) {
	others := make([]int, 0, inc.buckets)
	for bucket := 1; bucket < inc.buckets; bucket++ {
		others = append(others, bucket)
	}
	exists := false
	var user string
	for _, buckets := range [][]int{{0}, others} {
		if exists || len(buckets) == 0 {
			break
		}
		q := op{selectAnyUser, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, buckets}}
		if err := s.conn.read(ctx, q, []any{&user}, func() bool { exists = true; return false }); err != nil {
			return false, err
		}
	}
	return exists, nil
}

// DeleteSeason removes all data of a season. FinishDeletions completes an interrupted call.
func (s *Store) DeleteSeason(ctx context.Context, seasonKey leaderboard.SeasonKey, at time.Time) error {
	if _, err := s.readBoard(ctx, seasonKey.Board); err == nil {
		if err := s.setDeleted(ctx, seasonKey, at); err != nil {
			return err
		}
	} else if !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	inc, err := s.incarnations.readAgain(ctx, seasonKey)
	if err != nil {
		return err
	}
	if inc, err = s.endIncarnation(ctx, seasonKey, inc); err != nil {
		return err
	}
	s.full.Delete(seasonKey.Board)
	return s.sweep(ctx, seasonKey, inc)
}

// deletionTimeout is the age at which an unfinished deletion counts as interrupted. The
// deletion of a large season takes minutes.
const deletionTimeout = time.Hour

// FinishDeletions completes interrupted calls of DeleteBoard and DeleteSeason.
func (s *Store) FinishDeletions(ctx context.Context) error {
	type stored struct {
		id     leaderboard.BoardID
		closed bool
	}
	var id, body string
	var buckets int
	boards, err := gather(ctx, s.conn, op{stmt: selectBoards}, []any{&id, &body, &buckets}, func() (stored, error) {
		return stored{leaderboard.BoardID(id), body == ""}, nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range boards {
		if b.closed {
			errs = append(errs, s.finishBoard(ctx, b.id))
		} else {
			errs = append(errs, s.sweepBoard(ctx, b.id, s.interrupted))
		}
	}
	return errors.Join(errs...)
}

// finishBoard completes the interrupted deletion of a board, unless a new board has the id.
func (s *Store) finishBoard(ctx context.Context, id leaderboard.BoardID) error {
	key := leaderboard.SeasonKey{Board: id}
	now := s.now() // before readBoard, so that a board created after readBoard is newer
	stored, err := s.readBoard(ctx, id)
	if stored.body != "" || stored.buckets == 0 {
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			err = nil
		}
		return err
	}
	at, err := s.deletedAt(ctx, key)
	if err != nil {
		return err
	}
	if at.IsZero() { // a later call completes the deletion
		return s.setDeleted(ctx, key, now)
	}
	if now.Sub(at) < deletionTimeout {
		return nil
	}
	return s.removeData(ctx, id)
}

func (s *Store) interrupted(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	at, err := s.deletedAt(ctx, key)
	return err == nil && s.now().Sub(at) >= deletionTimeout, err
}

func (s *Store) sweepBoard(ctx context.Context, id leaderboard.BoardID, shouldSweep func(context.Context, leaderboard.SeasonKey) (bool, error)) error {
	rows, err := s.seasonRows(ctx, id)
	if err != nil {
		return err
	}
	for _, row := range rows {
		key := leaderboard.SeasonKey{Board: id, Season: row.season}
		if row.swept >= row.number {
			continue
		}
		ok, err := shouldSweep(ctx, key)
		if err == nil && ok {
			err = s.sweep(ctx, key, row.incarnation)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) endIncarnation(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) (incarnation, error) {
	if !inc.open {
		return inc, nil
	}
	next := inc.number + 1
	err := s.conn.write(ctx, op{endIncarnation, []any{int64(next), next, string(seasonKey.Board), string(seasonKey.Season)}})
	if err != nil {
		return inc, err
	}
	return s.incarnations.readAgain(ctx, seasonKey)
}

func (s *Store) endIncarnations(ctx context.Context, id leaderboard.BoardID) error {
	rows, err := s.seasonRows(ctx, id)
	if err != nil {
		return err
	}
	// a new board may have the id: its incarnations must stay open
	if stored, err := s.readBoard(ctx, id); stored.body != "" || err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	return s.forEach(ctx, len(rows), func(ctx context.Context, i int) error {
		_, err := s.endIncarnation(ctx, leaderboard.SeasonKey{Board: id, Season: rows[i].season}, rows[i].incarnation)
		return err
	})
}

// sweep removes the data of ended incarnations, which no call reads. A running call may
// still write to an ended incarnation, but finds the end before it returns. A Seal that
// finds the end removes its rows. The rows of an Apply stay unused, or are hidden by sweep's
// deletions (see sweepTime) if sweep has found the user.
//
// An ended incarnation may have had more buckets than the present incarnation.
func (s *Store) sweep(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) error {
	buckets, err := s.mostBuckets(ctx, seasonKey)
	if err != nil {
		return err
	}
	for number := inc.swept; number < inc.number; number++ {
		old := inc
		old.number, old.buckets = number, buckets
		if err := s.sweepIncarnation(ctx, seasonKey, old); err != nil {
			return err
		}
		err := s.conn.write(ctx, op{sweptSeason, []any{int64(number) + 1, number + 1, string(seasonKey.Board), string(seasonKey.Season)}})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sweepIncarnation(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) error {
	known := inc.known(seasonKey)
	if err := s.engine.Remove(ctx, &known); err != nil {
		return err
	}
	for bucket := range inc.buckets {
		if err := s.sweepUsers(ctx, seasonKey, inc, bucket); err != nil {
			return err
		}
	}
	for bucket := range inc.buckets {
		if err := s.conn.write(ctx, deleteRowsOf(seasonKey, inc, "", bucket)); err != nil {
			return err
		}
		if err := s.conn.write(ctx, op{deleteEntries, []any{sweepTime, string(seasonKey.Board), string(seasonKey.Season), inc.number, bucket}}); err != nil {
			return err
		}
	}
	return nil
}

func deleteRowsOf(seasonKey leaderboard.SeasonKey, inc incarnation, division string, bucket int) op {
	return op{deleteRows, []any{sweepTime, string(seasonKey.Board), string(seasonKey.Season), inc.number, division, bucket}}
}

func (s *Store) sweepUsers(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, bucket int) error {
	users, err := s.usersIn(ctx, seasonKey, inc, bucket)
	if err != nil {
		return err
	}
	divisions, err := s.divisionsOfUsers(ctx, seasonKey, inc, users)
	if err != nil {
		return err
	}
	// A repeated sweep finds the names of divisions in the users' partitions only. So
	// delete these partitions last.
	names := slices.Sorted(maps.Keys(divisions))
	err = s.forEach(ctx, len(names), func(ctx context.Context, i int) error {
		return s.conn.write(ctx, deleteRowsOf(seasonKey, inc, names[i], bucket))
	})
	if err != nil {
		return err
	}
	return s.forEach(ctx, len(users), func(ctx context.Context, i int) error {
		key := userKey{seasonKey, inc.number, users[i]}
		if err := s.conn.write(ctx, op{deleteUser, key.args(sweepTime)}); err != nil {
			return err
		}
		known := inc.known(seasonKey)
		if err := s.engine.RemoveUsers(ctx, &known, users[i:i+1]); err != nil {
			return err
		}
		return s.conn.write(ctx, op{deleteUserSeason, []any{sweepTime, userHash(users[i]), string(seasonKey.Board), string(seasonKey.Season), inc.number}})
	})
}
