package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

const maxReasonBytes = 256

// SetBan bans a user or lifts the ban. A banned user is hidden on every board, in
// past and sealed seasons too. Results of the user are still stored, and count when
// the ban is lifted.
func (a *Admin) SetBan(ctx context.Context, user leaderboard.UserID, banned bool, reason string) (leaderboard.Ban, error) {
	if err := user.Validate(); err != nil {
		return leaderboard.Ban{}, err
	}
	if len(reason) > maxReasonBytes {
		return leaderboard.Ban{}, &leaderboard.FieldError{Field: "reason", Problem: fmt.Sprintf("must be at most %d bytes, not %d", maxReasonBytes, len(reason))}
	}
	ban := leaderboard.Ban{User: user, Banned: banned, Reason: reason, At: leaderboard.Truncate(a.now())}
	why := "unban a user"
	if banned {
		why = "ban a user"
	}
	return runToEnd(ctx, a.tasks, func(ctx context.Context) (leaderboard.Ban, error) {
		return ban, a.setBan(ctx, ban, why)
	})
}

// setBan stores a ban and updates the ranks of all the user's entries. It also updates
// the ranks of entries that the ban does not change: an earlier process may have
// changed them and died before it updated the ranks.
func (a *Admin) setBan(ctx context.Context, ban leaderboard.Ban, why string) error {
	changes, err := a.store.SetBan(ctx, ban)
	if err != nil {
		return err
	}
	keys, err := a.store.UserSeasons(ctx, ban.User)
	if err != nil {
		return err
	}
	changed := entriesAfter(changes)
	var others []leaderboard.Entry
	for _, key := range keys {
		if slices.ContainsFunc(changed, func(e leaderboard.Entry) bool { return e.SeasonKey == key }) {
			continue
		}
		e, err := a.store.Entry(ctx, key, ban.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		others = append(others, e)
	}
	return a.ranks.update(ctx, changed, others, why)
}

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
