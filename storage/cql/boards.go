package cql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// storedBoard is a row of table boards.
type storedBoard struct {
	board   leaderboard.Board
	body    string // the stored JSON; empty while the board is being deleted
	buckets int    // the number of partitions of each ladder
}

// readBoard returns a board, or [leaderboard.ErrBoardNotFound]. If the board is being
// deleted, it returns that error and a value in which only the field buckets is set.
func (s *Store) readBoard(ctx context.Context, id leaderboard.BoardID) (storedBoard, error) {
	var k storedBoard
	err := s.conn.read(ctx, op{selectBoard, []any{string(id)}}, []any{&k.body, &k.buckets}, func() bool { return true })
	if err != nil {
		return storedBoard{}, err
	}
	if k.body == "" {
		return k, notFound(id)
	}
	return k, k.decode()
}

func (k *storedBoard) decode() error {
	if err := json.Unmarshal([]byte(k.body), &k.board); err != nil {
		return fmt.Errorf("cql: board: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}

// sameBoard reports whether k and b are the same board. Two boards may have the same id,
// one after the other; they differ in their time of creation.
func sameBoard(k, b *leaderboard.Board) bool {
	return k.ID == b.ID && k.CreatedAt.Equal(leaderboard.Truncate(b.CreatedAt))
}

func encodeBoard(b *leaderboard.Board) (string, error) {
	b.CreatedAt = leaderboard.Truncate(b.CreatedAt)
	body, err := json.Marshal(b)
	if err != nil {
		return "", fmt.Errorf("cql: board: %w", err)
	}
	return string(body), nil
}

// CreateBoard stores a valid new board.
func (s *Store) CreateBoard(ctx context.Context, b leaderboard.Board) error {
	body, err := encodeBoard(&b)
	if err != nil {
		return err
	}
	for {
		ok, err := s.conn.swap(ctx, op{createBoard, []any{string(b.ID), body, s.buckets}}, map[string]any{})
		if ok || err != nil {
			return err
		}
		k, err := s.readBoard(ctx, b.ID)
		if err == nil {
			if !k.board.SameAs(&b) {
				return fmt.Errorf("cql: board %q: %w", b.ID, leaderboard.ErrBoardExists)
			}
			return nil
		}
		if k.body != "" || k.buckets == 0 {
			if errors.Is(err, leaderboard.ErrBoardNotFound) {
				continue // another call removed the board between the two statements
			}
			return err
		}
		// An old board has the id, and its deletion is running or was interrupted. Before
		// the new board is created, the incarnations of all seasons of the old board must
		// end, so that the new board does not contain the old board's data.
		//
		// The deletion may have been interrupted before it wrote its time. The time of
		// the new board's creation is later than the deletion, so write this time
		// instead.
		if err := s.setDeleted(ctx, leaderboard.SeasonKey{Board: b.ID}, b.CreatedAt); err != nil {
			return err
		}
		if err := s.endIncarnations(ctx, b.ID); err != nil {
			return err
		}
		ok, err = s.conn.swap(ctx, op{reviveBoard, []any{body, s.buckets, string(b.ID), k.buckets}}, map[string]any{})
		if ok || err != nil {
			return err
		}
	}
}

// Board returns a board.
func (s *Store) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	k, err := s.readBoard(ctx, id)
	return k.board, err
}

// Boards returns all boards by id.
func (s *Store) Boards(ctx context.Context) ([]leaderboard.Board, error) {
	var id string
	var k storedBoard
	all, err := gather(ctx, s.conn, op{stmt: selectBoards}, []any{&id, &k.body, &k.buckets}, func() (storedBoard, error) {
		row := k
		if row.body == "" {
			return row, nil
		}
		return row, row.decode()
	})
	var boards []leaderboard.Board
	for _, k := range all {
		if k.body != "" {
			boards = append(boards, k.board)
		}
	}
	return boards, err
}

// AmendBoard changes a board's settings.
func (s *Store) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (leaderboard.Board, error) {
	for {
		k, err := s.readBoard(ctx, id)
		if err != nil {
			return leaderboard.Board{}, err
		}
		amended, err := k.board.Revise(change)
		if err != nil {
			return leaderboard.Board{}, err
		}
		body, err := encodeBoard(&amended)
		if err != nil || body == k.body {
			return amended, err
		}
		ok, err := s.conn.swap(ctx, op{amendBoard, []any{body, string(id), k.body}}, map[string]any{})
		if ok || err != nil {
			return amended, err
		}
	}
}

// DeleteBoard removes a board and all data of its seasons. If it is interrupted,
// FinishDeletions completes it.
func (s *Store) DeleteBoard(ctx context.Context, id leaderboard.BoardID, at time.Time) error {
	for {
		k, err := s.readBoard(ctx, id)
		if err != nil && k.buckets == 0 {
			return err
		}
		if k.body == "" {
			break
		}
		ok, err := s.conn.swap(ctx, op{closeBoard, []any{string(id), k.body}}, map[string]any{})
		if err != nil {
			return err
		}
		if ok {
			break
		}
	}
	if err := s.setDeleted(ctx, leaderboard.SeasonKey{Board: id}, at); err != nil {
		return err
	}
	return s.removeData(ctx, id)
}

// removeData removes the data of a board that is being deleted, and then the board's row.
func (s *Store) removeData(ctx context.Context, id leaderboard.BoardID) error {
	// A concurrent writer may still open an incarnation after this call. No call uses
	// such an incarnation: see openIncarnation.
	if err := s.endIncarnations(ctx, id); err != nil {
		return err
	}
	always := func(context.Context, leaderboard.SeasonKey) (bool, error) { return true, nil }
	if err := s.sweepBoard(ctx, id, always); err != nil {
		return err
	}
	_, err := s.conn.swap(ctx, op{removeBoard, []any{string(id)}}, map[string]any{})
	return err
}
