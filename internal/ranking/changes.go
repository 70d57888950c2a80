package ranking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// changesInterval bounds the time until this region finds a change by another region.
const changesInterval = 10 * time.Second

// FinishRankChanges updates the ranks after changes that the index may lack: see
// [leaderboard.RankChangeStore]. If a change fails, FinishRankChanges continues with the
// others. While the index is not synced, FinishRankChanges does nothing.
func (a *Admin) FinishRankChanges(ctx context.Context) error {
	if !a.index.Synced() {
		return nil
	}
	var errs []error
	for c, err := range a.store.RankChanges(ctx) {
		if c.Board != "" { // a change of divisions, which FillDivisions finishes
			wake(a.newRules)
			continue
		}
		if err == nil {
			_, err = runToEnd(ctx, a.tasks, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, a.store.FinishRankChange(ctx, c, func(entries []leaderboard.Entry) error { return a.updateRanks(ctx, &c, entries) })
			})
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, errNotSynced) { // a later call finds the change again
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var errNotSynced = fmt.Errorf("ranking: the index lacks updates: %w", leaderboard.ErrRankUnavailable)

// updateRanks returns nil only if the index has the change, or every process treats the
// changed seasons as not loaded.
func (a *Admin) updateRanks(ctx context.Context, c *leaderboard.RankChange, entries []leaderboard.Entry) error {
	if c.User == "" { // the seasons were deleted
		for _, key := range c.Seasons {
			if err := a.index.Drop(ctx, key); err != nil {
				return err
			}
			a.forgetSeason(key)
			a.hub.notify(key)
		}
	}
	for i := range entries {
		err := a.ranks.update(ctx, nil, entries[i:i+1], "change the bans of a user")
		if err == nil && entries[i].Key == "" {
			err = a.index.dropEmpty(ctx, entries[i].SeasonKey, a.index.Drop)
		}
		if err != nil {
			return err
		}
		a.hub.notify(entries[i].SeasonKey)
	}
	if !a.index.Synced() {
		return errNotSynced
	}
	return nil
}
