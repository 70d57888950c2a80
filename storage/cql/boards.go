package cql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// kept is a board as it is stored.
type kept struct {
	board   leaderboard.Board
	body    string // as it is in the table; empty while the board is being deleted
	buckets int
}

// readBoard returns a board that exists, or [leaderboard.ErrBoardNotFound]; the
// returned value has buckets if a deletion of it goes on.
func (s *Store) readBoard(ctx context.Context, id leaderboard.BoardID) (kept, error) {
	var k kept
	err := s.conn.read(ctx, op{selectBoard, []any{string(id)}}, []any{&k.body, &k.buckets}, func() bool { return true })
	if err != nil {
		return kept{}, err
	}
	if k.body == "" {
		return k, notFound(id)
	}
	return k, k.decode()
}

func (k *kept) decode() error {
	if err := json.Unmarshal([]byte(k.body), &k.board); err != nil {
		return fmt.Errorf("cql: board: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}

// sameBoard says whether b is k itself, not one of its id that was made earlier
// or later.
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

// CreateBoard keeps a valid new board.
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
				continue // removed meanwhile
			}
			return err
		}
		// A deletion goes on, or was cut short. Once the seasons' editions have
		// ended, nothing of the old board can be seen in the new one.
		if err := s.endEditions(ctx, b.ID); err != nil {
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
	var k kept
	all, err := gather(ctx, s.conn, op{stmt: selectBoards}, []any{&id, &k.body, &k.buckets}, func() (kept, error) {
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
		next := kept{body: k.body}
		if err := errors.Join(next.decode(), change(&next.board)); err != nil {
			return leaderboard.Board{}, err
		}
		next.board.ID = id
		amended, err := k.board.Amend(next.board)
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

// DeleteBoard removes a board and all that is kept under it. Cut short, it is
// gone on with by the next DeleteBoard of the id.
func (s *Store) DeleteBoard(ctx context.Context, id leaderboard.BoardID) error {
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
	// What is opened from here on is not believed: see opened.
	if err := s.endEditions(ctx, id); err != nil {
		return err
	}
	rows, err := s.seasonRows(ctx, id)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := s.sweep(ctx, leaderboard.Scope{Board: id, Season: row.season}, row.edition); err != nil {
			return err
		}
	}
	_, err = s.conn.swap(ctx, op{removeBoard, []any{string(id)}}, map[string]any{})
	return err
}
