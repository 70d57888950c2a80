package cql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

type storedBoard struct {
	board   leaderboard.Board
	body    string // JSON; empty while the board is being deleted
	buckets int    // the number of partitions of each ladder
}

// readBoard returns a board, or [leaderboard.ErrBoardNotFound]. If the board is being
// deleted, readBoard also returns its buckets.
func (s *Store) readBoard(ctx context.Context, id leaderboard.BoardID) (storedBoard, error) {
	var stored storedBoard
	err := s.conn.read(ctx, op{selectBoard, []any{string(id)}}, []any{&stored.body, &stored.buckets}, func() bool { return true })
	if err != nil {
		return storedBoard{}, err
	}
	if stored.body == "" {
		return stored, errBoardNotFound(id)
	}
	return stored, stored.decode()
}

func (stored *storedBoard) decode() error {
	if err := json.Unmarshal([]byte(stored.body), &stored.board); err != nil {
		return fmt.Errorf("cql: board: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}

func sameBoard(stored, b *leaderboard.Board) bool {
	return stored.ID == b.ID && stored.CreatedAt.Equal(leaderboard.Truncate(b.CreatedAt))
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
		stored, err := s.readBoard(ctx, b.ID)
		if err == nil {
			if !stored.board.SameAs(&b) {
				return fmt.Errorf("cql: board %q: %w", b.ID, leaderboard.ErrBoardExists)
			}
			return nil
		}
		if stored.body != "" || stored.buckets == 0 {
			if errors.Is(err, leaderboard.ErrBoardNotFound) {
				continue // another call removed the board between the two statements
			}
			return err
		}
		// The deletion of an older board with this id has not ended. All incarnations of
		// the older board must end first: otherwise the new board would contain their data.
		// An interrupted deletion may not have written its time, so b.CreatedAt becomes
		// the time of the deletion.
		if err := s.setDeleted(ctx, leaderboard.SeasonKey{Board: b.ID}, b.CreatedAt); err != nil {
			return err
		}
		if err := s.endIncarnations(ctx, b.ID); err != nil {
			return err
		}
		ok, err = s.conn.swap(ctx, op{reviveBoard, []any{body, s.buckets, string(b.ID), stored.buckets}}, map[string]any{})
		if ok || err != nil {
			return err
		}
	}
}

// Board returns a board.
func (s *Store) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	stored, err := s.readBoard(ctx, id)
	return stored.board, err
}

// Boards returns all boards, ordered by id.
func (s *Store) Boards(ctx context.Context) ([]leaderboard.Board, error) {
	var id string
	var stored storedBoard
	all, err := gather(ctx, s.conn, op{stmt: selectBoards}, []any{&id, &stored.body, &stored.buckets}, func() (storedBoard, error) {
		row := stored
		if row.body == "" {
			return row, nil
		}
		return row, row.decode()
	})
	var boards []leaderboard.Board
	for _, stored := range all {
		if stored.body != "" {
			boards = append(boards, stored.board)
		}
	}
	return boards, err
}

// AmendBoard changes a board's settings.
func (s *Store) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (leaderboard.Board, error) {
	for {
		stored, err := s.readBoard(ctx, id)
		if err != nil {
			return leaderboard.Board{}, err
		}
		amended, err := stored.board.Revise(change)
		if err != nil {
			return leaderboard.Board{}, err
		}
		body, err := encodeBoard(&amended)
		if err != nil || body == stored.body {
			return amended, err
		}
		ok, err := s.conn.swap(ctx, op{amendBoard, []any{body, string(id), stored.body}}, map[string]any{})
		if ok || err != nil {
			return amended, err
		}
	}
}

// DeleteBoard removes a board and all its data. FinishDeletions completes an interrupted
// DeleteBoard.
func (s *Store) DeleteBoard(ctx context.Context, id leaderboard.BoardID, at time.Time) error {
	for {
		stored, err := s.readBoard(ctx, id)
		if err != nil && stored.buckets == 0 {
			return err
		}
		if stored.body == "" {
			break
		}
		ok, err := s.conn.swap(ctx, op{closeBoard, []any{string(id), stored.body}}, map[string]any{})
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

func (s *Store) removeData(ctx context.Context, id leaderboard.BoardID) error {
	// After endIncarnations, a concurrent writer may open an incarnation. No call uses it:
	// see openIncarnation.
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
