package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// A board is an immutable copy of a stored board.
type board struct {
	leaderboard.Board
	number uint32
	// everyDivision has the result of Board.EveryDivision. Keys and rows contain indexes of this
	// slice. All copies share it, because a reader with an old copy may read newer rows.
	everyDivision *atomic.Pointer[[]string]
	seasons       *knownSeasons // shared by all copies
}

func newBoard(b leaderboard.Board, number uint32) *board {
	bd := &board{Board: b, number: number, everyDivision: &atomic.Pointer[[]string]{}, seasons: &knownSeasons{}}
	bd.setEveryDivision()
	return bd
}

func (bd *board) setEveryDivision() {
	all := bd.EveryDivision()
	bd.everyDivision.Store(&all)
}

func (bd *board) division(index int) (string, bool) {
	all := *bd.everyDivision.Load()
	if index >= len(all) {
		return "", false
	}
	return all[index], true
}

// indexOf returns -1 for an unknown division.
func (bd *board) indexOf(division string) int {
	return slices.Index(*bd.everyDivision.Load(), division)
}

// A catalog holds all stored boards. It is immutable.
type catalog struct {
	byID     map[leaderboard.BoardID]*board
	byNumber map[uint32]*board
	last     uint32 // the number of the newest board
}

func (c *catalog) with(bd *board) *catalog {
	out := &catalog{maps.Clone(c.byID), maps.Clone(c.byNumber), max(c.last, bd.number)}
	out.byID[bd.ID], out.byNumber[bd.number] = bd, bd
	return out
}

func (c *catalog) without(bd *board) *catalog {
	out := &catalog{maps.Clone(c.byID), maps.Clone(c.byNumber), c.last}
	delete(out.byID, bd.ID)
	delete(out.byNumber, bd.number)
	return out
}

func (s *Store) loadBoards() error {
	c := &catalog{byID: map[leaderboard.BoardID]*board{}, byNumber: map[uint32]*board{}}
	if _, err := s.get(keyBoards, func(b []byte) error {
		last, err := decodeUvarint(b)
		c.last = uint32(last)
		return err
	}); err != nil {
		return err
	}
	prefix := []byte{kindBoard}
	err := s.scan(context.Background(), prefix, keyAfter(prefix), func(_, value []byte) (bool, error) {
		d := codec.Decoder{Rest: value}
		number := d.Uint32()
		var b leaderboard.Board
		if err := decodeJSON(d.Next(uint64(len(d.Rest))), &b); err != nil {
			return false, err
		}
		bd := newBoard(b, number)
		c.byID[bd.ID], c.byNumber[bd.number] = bd, bd
		return true, nil
	})
	s.boards.Store(c)
	return err
}

func (s *Store) board(id leaderboard.BoardID) *board { return s.boards.Load().byID[id] }

// liveBoard returns the stored board with b's id and time of creation. No other
// caller can delete it while this caller holds a stripe (see commit.go).
func (s *Store) liveBoard(b *leaderboard.Board) (*board, error) {
	bd := s.board(b.ID)
	if bd == nil || !bd.CreatedAt.Equal(leaderboard.Truncate(b.CreatedAt)) {
		return nil, fmt.Errorf("pebble: board %q: %w", b.ID, leaderboard.ErrBoardNotFound)
	}
	return bd, nil
}

func setBoard(b *pebble.Batch, bd *board) error {
	value := binary.BigEndian.AppendUint32(nil, bd.number)
	text, err := json.Marshal(&bd.Board)
	if err != nil {
		return fmt.Errorf("pebble: encode board %q: %w", bd.ID, err)
	}
	return b.Set(boardKey(bd.ID), append(value, text...), nil)
}

// CreateBoard implements [leaderboard.Store].
func (s *Store) CreateBoard(ctx context.Context, b leaderboard.Board) error {
	unlock, err := s.lockAdmin(ctx)
	if err != nil {
		return err
	}
	boards := s.boards.Load()
	if stored := boards.byID[b.ID]; stored != nil {
		unlock()
		if !stored.SameAs(&b) {
			return fmt.Errorf("pebble: board %q: %w", b.ID, leaderboard.ErrBoardExists)
		}
		return s.syncVisible(ctx)
	}
	b.CreatedAt = leaderboard.Truncate(b.CreatedAt)
	bd := newBoard(b.Clone(), boards.last+1)
	batch := s.db.NewBatch()
	if err := errors.Join(setBoard(batch, bd),
		batch.Set(keyBoards, binary.AppendUvarint(nil, uint64(bd.number)), nil)); err != nil {
		unlock()
		return err
	}
	return s.commit(ctx, batch, func() {
		s.boards.Store(boards.with(bd))
		unlock()
	})
}

// Board implements [leaderboard.Store].
func (s *Store) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Board{}, err
	}
	bd := s.board(id)
	if bd == nil {
		return leaderboard.Board{}, fmt.Errorf("pebble: board %q: %w", id, leaderboard.ErrBoardNotFound)
	}
	return bd.Clone(), nil
}

// Boards implements [leaderboard.Store].
func (s *Store) Boards(ctx context.Context) ([]leaderboard.Board, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []leaderboard.Board
	for _, bd := range s.boards.Load().byID {
		out = append(out, bd.Clone())
	}
	slices.SortFunc(out, func(x, y leaderboard.Board) int { return cmp.Compare(x.ID, y.ID) })
	return out, nil
}

// AmendBoard implements [leaderboard.Store]. A change of divisions holds all stripes, so later
// changes of users use the new divisions.
func (s *Store) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (leaderboard.Board, error) {
	unlock, err := s.lockAdmin(ctx)
	if err != nil {
		return leaderboard.Board{}, err
	}
	boards := s.boards.Load()
	bd := boards.byID[id]
	if bd == nil {
		unlock()
		return leaderboard.Board{}, fmt.Errorf("pebble: board %q: %w", id, leaderboard.ErrBoardNotFound)
	}
	amended := &board{number: bd.number, everyDivision: bd.everyDivision, seasons: bd.seasons}
	batch := s.db.NewBatch()
	if amended.Board, err = bd.Revise(change); err == nil {
		amended.Board = amended.Clone()
		err = setBoard(batch, amended)
	}
	unlockUsers := func() {}
	if err == nil && amended.Rules() != bd.Rules() {
		unlockUsers, err = s.lockAllUsers(ctx)
	}
	if err != nil {
		unlock()
		return leaderboard.Board{}, err
	}
	err = s.commit(ctx, batch, func() {
		amended.setEveryDivision()
		s.boards.Store(boards.with(amended))
		unlockUsers()
		unlock()
	})
	if err != nil {
		return leaderboard.Board{}, err
	}
	return amended.Clone(), nil
}

// DeleteBoard implements [leaderboard.Store].
func (s *Store) DeleteBoard(ctx context.Context, id leaderboard.BoardID, at time.Time) error {
	bd := s.board(id)
	if bd == nil {
		return fmt.Errorf("pebble: board %q: %w", id, leaderboard.ErrBoardNotFound)
	}
	unlock, err := s.lockAdmin(ctx)
	if err != nil {
		return err
	}
	boards := s.boards.Load()
	if boards.byNumber[bd.number] == nil {
		unlock()
		return fmt.Errorf("pebble: board %q: %w", id, leaderboard.ErrBoardNotFound)
	}
	batch := s.db.NewBatch()
	onVisible, err := s.setDeleted(batch, leaderboard.SeasonKey{Board: id}, at)
	if err == nil {
		err = batch.Delete(boardKey(id), nil)
	}
	if err != nil {
		unlock()
		return errUnavailable("write", err)
	}
	return s.removeData(ctx, batch, bd, boardPrefix(bd.number), onVisible, func() {
		s.boards.Store(boards.without(bd))
		unlock()
	})
}

// removeData adds the removal of all data under the prefix to the batch, and commits the batch. It
// holds all stripes until readers see the removal, so no concurrent Apply leaves rows behind.
//
// As soon as readers see the removal, removeData calls onVisible and then onDone. If it fails
// before the commit starts, it calls only onDone.
func (s *Store) removeData(ctx context.Context, batch *pebble.Batch, bd *board, prefix []byte, onVisible, onDone func()) error {
	unlock, err := s.lockAllUsers(ctx)
	if err != nil {
		onDone()
		return err
	}
	snapshot := s.db.NewSnapshot()
	defer snapshot.Close()
	changes := changeKey(prefix)
	if err := errors.Join(deletePrefix(batch, prefix), deletePrefix(batch, changes), s.endIncarnations(ctx, batch, prefix)); err != nil {
		unlock()
		onDone()
		return errUnavailable("write", err)
	}
	err = s.commit(ctx, batch, func() {
		s.orphanMu.Lock()
		clear(s.orphans)
		s.orphanMu.Unlock()
		s.forgetChanges(prefix)
		onVisible()
		onDone()
		unlock()
	})
	if err != nil {
		return err
	}
	// Readers ignore season notes (see keys.go) without a user row. SetBan and Erase delete such
	// notes. So an error of removeNotes is harmless.
	_ = s.removeNotes(ctx, snapshot, bd, prefix)
	return s.removeEnded(ctx, incarnationKey(prefix))
}

// removeNotes removes the season notes of the snapshot's users, except users with a new user row,
// and what the ended incarnation has of the users in final standings.
func (s *Store) removeNotes(ctx context.Context, snapshot pebble.Reader, bd *board, prefix []byte) error {
	seasons, err := seasonsUnder(ctx, snapshot, prefix)
	if err != nil {
		return err
	}
	const chunk = 512
	for _, season := range seasons {
		rowKey := makeSeasonRowKey(bd.number, season)
		var row incarnationRow
		if _, err := get(snapshot, incarnationKey(rowKey), row.decode); err != nil {
			return err
		}
		ended := incarnationOf(bd.number, leaderboard.SeasonKey{Board: bd.ID, Season: season}, row.number)
		var users []leaderboard.UserID
		flush := func() error {
			if row.opened { // it may have final standings
				if err := s.engine.RemoveUsers(ctx, &ended, users); err != nil {
					return err
				}
			}
			numbers := make([]int, len(users))
			for i, user := range users {
				numbers[i] = stripeOf(user)
			}
			unlock, err := s.lockStripes(ctx, numbers)
			if err != nil {
				return err
			}
			batch := s.db.NewBatch()
			for _, user := range users {
				found, err := s.has(rowKey.user(user))
				if err == nil && !found {
					err = batch.Delete(seasonsKey(user, bd.number, season), nil)
				}
				if err != nil {
					unlock()
					return err
				}
			}
			users = users[:0]
			return s.commit(ctx, batch, unlock)
		}
		rows := rowKey.kind(dataUser)
		err = scan(ctx, snapshot, rows, keyAfter(rows), func(key, _ []byte) (bool, error) {
			users = append(users, leaderboard.UserID(key[len(rows):]))
			if len(users) < chunk {
				return true, nil
			}
			return true, flush()
		})
		if err == nil && len(users) > 0 {
			err = flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
