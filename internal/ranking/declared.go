package ranking

import (
	"context"
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
	linked, err := linkedTo(b, func(id leaderboard.BoardID) (*leaderboard.Board, error) { return s.board(ctx, id) })
	if err != nil || declare(linked) {
		return b, linked, err
	}
	l, err := s.linksSince(ctx, b.ID, time.Now())
	if err != nil || l.source == nil { // the board was deleted meanwhile
		return b, linked, err
	}
	return l.source, l.boards, nil
}
