package ranking

import (
	"context"
	"errors"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// declaring returns a version of b, and boards linked to it, by which
// [leaderboard.Board.CheckSubmit] decides about results. If the cached versions do not
// declare an attribute of the results, declaring reads them again: another process may have
// changed them. Most submits need neither linked boards nor a read.
func (s *Submitter) declaring(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (*leaderboard.Board, []*leaderboard.Board, error) {
	declare := func(linked []*leaderboard.Board) bool {
		for i := range results {
			if b.CheckAttributes(results[i].Attributes, linked) != nil {
				return false
			}
		}
		return true
	}
	if declare(nil) {
		return b, nil, nil
	}
	var linked []*leaderboard.Board
	for _, id := range b.Links {
		l, err := s.board(ctx, id)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if l.Source != nil && l.Source.Board == b.ID {
			linked = append(linked, l)
		}
	}
	if declare(linked) {
		return b, linked, nil
	}
	l, err := s.linksSince(ctx, b.ID, time.Now())
	if err != nil || l.source == nil { // the board was deleted meanwhile
		return b, linked, err
	}
	return l.source, l.boards, nil
}
