package ranking

import (
	"context"

	"github.com/open-leaderboard/leaderboard"
)

// Export sends every selected result that stands or is retracted, season by
// season, a user's one after another. It stops at send's first error.
func (s *Service) Export(ctx context.Context, sel Selection, send func(leaderboard.MatchResult) error) error {
	return s.eachScope(ctx, sel, func(_ *leaderboard.Board, scope leaderboard.Scope) error {
		for user, err := range s.store.Users(ctx, scope) {
			if err != nil {
				return err
			}
			for r, err := range s.store.Results(ctx, scope, user) {
				if err != nil {
					return err
				}
				if err := send(r); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
