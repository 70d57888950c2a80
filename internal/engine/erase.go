package engine

import (
	"context"
	"errors"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Erase removes all data of a user. If it is interrupted, FinishRankChange or the next Erase completes
// it. An erasure begins a new epoch: see account.go.
func (s *Store) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) ([]leaderboard.Change, error) {
	at = leaderboard.Truncate(at)
	highest, err := s.HighestVersion(ctx, user)
	if err != nil {
		return nil, err
	}
	acc, err := s.account(ctx, hashOf(user))
	if err != nil {
		return nil, err
	}
	e, err := acc.nextErasure(at, highest)
	if err != nil {
		return nil, err
	}
	value := e.value()
	c := accountChange{Store: s, storedChange: storedChange{User: user, Erasures: [][]byte{value}}, at: at, erases: true}
	c.add(newElement(erasureKind, value))
	if err := s.announceAccount(ctx, &c.storedChange); err != nil {
		return nil, err
	}
	changes, err := c.run(ctx)
	if err == nil {
		err = errors.Join(s.EraseMarks(ctx, user), s.eraseActs(ctx, user), s.eraseProfile(ctx, user, at))
	}
	return withNewVersion(changes), err
}
