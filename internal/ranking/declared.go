package ranking

import (
	"context"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// declaringBoards returns b and its linked boards, for [leaderboard.Board.CheckSubmit]. It
// omits the linked boards if b declares all attributes of the results. It reads the store if
// the cached boards do not declare an attribute: another process may have changed them.
func (s *Submitter) declaringBoards(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (*leaderboard.Board, []*leaderboard.Board, error) {
	allDeclared := func(linked []*leaderboard.Board) bool {
		for i := range results {
			if b.CheckAttributes(results[i].Attributes, linked) != nil {
				return false
			}
		}
		return true
	}
	if allDeclared(nil) {
		return b, nil, nil
	}
	linked, err := linkedTo(b, func(id leaderboard.BoardID) (*leaderboard.Board, error) { return s.board(ctx, id) })
	if err != nil || allDeclared(linked) {
		return b, linked, err
	}
	l, err := s.linksSince(ctx, b.ID, time.Now())
	if err != nil || l.source == nil { // the board was deleted meanwhile
		return b, linked, err
	}
	return l.source, l.boards, nil
}
