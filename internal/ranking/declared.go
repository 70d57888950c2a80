package ranking

import (
	"context"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// declaringBoards returns a version of b and the boards linked to b.
// [leaderboard.Board.CheckSubmit] compares the attributes of results with the attributes that these
// boards declare. If b itself declares all attributes, declaringBoards omits the linked boards.
// Another process may have changed the boards. So if their cached versions do not declare an
// attribute of the results, declaringBoards reads the boards from the store.
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
