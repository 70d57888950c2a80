package ranking

import (
	"context"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// declaringBoards returns b and its linked boards, for the check of the results' attributes. A
// board declares the attributes that it uses or accepts. If b declares all attributes of the
// results, declaringBoards returns no linked boards.
//
// If the cached boards do not declare an attribute, declaringBoards reads the boards from the
// store: another process may have changed them.
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
	if err != nil || l.source == nil {
		return b, linked, err
	}
	return l.source, l.boards, nil
}
