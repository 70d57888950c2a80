package ranking

import (
	"context"
	"errors"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Advance records the positions of the index in the log, and returns the seasons that may have
// lost updates: see [leaderboard.Index].Advance.
func (a *Applier) Advance(ctx context.Context, positions []leaderboard.LogPosition, all bool) ([]leaderboard.Doubt, error) {
	return a.index.Advance(ctx, positions, all)
}

// Repeat passes the stored entries of users to the index, also those on linked boards. Unlike
// CatchUp, it never drops the season.
func (a *Applier) Repeat(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error {
	links, err := a.linksOf(ctx, key.Board)
	if err != nil || links.source == nil {
		return err
	}
	return a.refreshIndex(ctx, links, key, users)
}

// Reindex passes the stored entries of users to the index, for a message with index_only. Such a
// message does not concern linked boards: their changes have messages of their own.
func (a *Applier) Reindex(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID, changedAt time.Time) error {
	b, err := a.board(ctx, key.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.refreshEntries(ctx, b, key, users, changedAt)
}

// Confirm states that the caller has repeated the updates of a season in doubt: see
// [leaderboard.Doubt]. If the board was deleted, Confirm drops the season.
func (a *Applier) Confirm(ctx context.Context, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) error {
	b, err := a.BoardSince(ctx, d.Board, time.Now())
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return a.dropSeason(ctx, d.SeasonKey)
	}
	if err != nil {
		return err
	}
	if err := a.index.Confirm(ctx, &b, d, positions, session); err != nil {
		return err
	}
	a.hub.notify(d.SeasonKey)
	return nil
}

// Forget drops a season from the index. The next reader or sweep fills it again.
func (a *Applier) Forget(ctx context.Context, key leaderboard.SeasonKey) error {
	return a.dropSeason(ctx, key)
}
