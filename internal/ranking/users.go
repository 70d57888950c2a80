package ranking

import (
	"context"

	"github.com/open-leaderboard/leaderboard"
)

// Erase removes all data of a user permanently.
//
// Erase first bans the user, which removes the user from all ranks. The store's Erase then
// deletes the list of the user's seasons. Without this list, a retry could not find the ranks
// to correct.
func (a *Admin) Erase(ctx context.Context, user leaderboard.UserID) error {
	if err := user.Validate(); err != nil {
		return err
	}
	_, err := runToEnd(ctx, a.tasks, func(ctx context.Context) (struct{}, error) {
		const reason = "erase a user"
		hidden := leaderboard.Ban{User: user, Banned: true, Reason: reason, At: leaderboard.Truncate(a.now())}
		if err := a.setBan(ctx, hidden, reason); err != nil {
			return struct{}{}, err
		}
		changes, err := a.store.Erase(ctx, user, leaderboard.Truncate(a.now()))
		if err != nil {
			return struct{}{}, err
		}
		// The final standings already lack the user, so pass the entries as repeats (see
		// rankWriter.update). Updates would cause a FinalMark, which has the user's id.
		err = a.ranks.update(fromLog(ctx), nil, entriesAfter(changes), reason)
		for i := range changes {
			if err == nil {
				err = a.index.dropEmpty(ctx, changes[i].After.SeasonKey, a.index.tryDrop)
			}
		}
		return struct{}{}, err
	})
	return err
}
