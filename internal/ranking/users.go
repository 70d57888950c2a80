package ranking

import (
	"context"

	"github.com/open-leaderboard/leaderboard"
)

// Erase removes all data of a user permanently.
//
// Erase first hides the user as a ban does, so that the user leaves the ranks while
// the store still knows the user's seasons. The store deletes the list of these seasons
// when the erasure starts. If the process died at that moment with the user still in
// the ranks, no other process could remove the user.
func (a *Admin) Erase(ctx context.Context, user leaderboard.UserID) error {
	if err := user.Validate(); err != nil {
		return err
	}
	_, err := runToEnd(ctx, a.tasks, func(ctx context.Context) (struct{}, error) {
		const why = "erase a user"
		hidden := leaderboard.Ban{User: user, Banned: true, Reason: why, At: leaderboard.Truncate(a.now())}
		if err := a.setBan(ctx, hidden, why); err != nil {
			return struct{}{}, err
		}
		changes, err := a.store.Erase(ctx, user, leaderboard.Truncate(a.now()))
		if err != nil {
			return struct{}{}, err
		}
		// The entries are passed as unchanged, because the final standings no longer have
		// the user.
		return struct{}{}, a.ranks.update(ctx, nil, entriesAfter(changes), why)
	})
	return err
}
