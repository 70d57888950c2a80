package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// changesInterval is the longest time between two reads of the changes that the index of this
// region may lack.
const changesInterval = 10 * time.Second

// FinishRankChanges updates the ranks after the changes that the index may lack: see
// [leaderboard.RankChangeStore]. If it fails for a change, it goes on with the others. While the
// index lacks updates, FinishRankChanges does nothing, because it could not finish any change.
func (a *Admin) FinishRankChanges(ctx context.Context) error {
	if !a.index.Synced() {
		return nil
	}
	var errs []error
	for c, err := range a.store.RankChanges(ctx) {
		if c.Board != "" { // FillDivisions finishes it, which may take long
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

// errNotSynced means that the index may lack a change, so a later call must repeat the change.
var errNotSynced = fmt.Errorf("ranking: the index lacks updates: %w", leaderboard.ErrRankUnavailable)

// updateRanks updates the ranks after a change. It returns nil only if the index has the change,
// or is known to be unavailable to every process.
func (a *Admin) updateRanks(ctx context.Context, c *leaderboard.RankChange, entries []leaderboard.Entry) error {
	if c.User == "" {
		for _, key := range c.Seasons {
			if err := a.index.Drop(ctx, key); err != nil {
				return err
			}
			a.forgetSeason(key)
			a.hub.notify(key)
		}
	}
	for i := range entries {
		err := a.updateRank(ctx, entries[i])
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

// updateRank updates the ranks with an entry. If the season may be sealed, one process at a
// time amends its final standings, and only if they disagree with the entry. Without this
// condition, every process that repeats a change would write all final standings again.
func (a *Admin) updateRank(ctx context.Context, e leaderboard.Entry) error {
	entries := []leaderboard.Entry{e}
	update := func(ctx context.Context) error { return a.ranks.update(ctx, nil, entries, "change the bans of a user") }
	b, err := a.ranks.boards.boardSince(ctx, e.Board, time.Now().Add(-boardAge))
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil // the board and its ranks were deleted
	}
	if err != nil {
		return err
	}
	season, err := b.Season.ByID(e.Season)
	if err != nil {
		return err
	}
	if !a.mayBeSealed(season) {
		return update(ctx)
	}
	agrees, err := a.ranks.inFinalStandings(ctx, b, e.SeasonKey, entries)
	if err != nil || agrees {
		return err
	}
	held, err := a.withLease(ctx, e.SeasonKey, false, update)
	if err == nil && !held {
		err = errNotSynced // the process that holds the lease may be amending the season
	}
	return err
}

// updateBanned updates the ranks after this process has set a ban, as rankWriter.update does.
// Another process may repeat the ban, and amend a sealed season at the same time. Each process
// amends the season under a lease, and only if the final standings disagree with the entries. So
// only one process amends the season.
func (a *Admin) updateBanned(ctx context.Context, updates, repeats []leaderboard.Entry, reason string) error {
	return eachSeason(updates, repeats, func(key leaderboard.SeasonKey, updates, repeats []leaderboard.Entry) error {
		update := func(ctx context.Context) error { return a.ranks.updateSeason(ctx, key, updates, repeats, reason) }
		entries := slices.Concat(updates, repeats)
		for {
			// A process may hold the lease during a long seal. Until the season is sealed, this
			// call updates the index without the lease.
			b, err := a.ranks.boards.boardSince(ctx, key.Board, time.Now().Add(-boardAge))
			if errors.Is(err, leaderboard.ErrBoardNotFound) {
				return nil // the board and its ranks were deleted
			}
			if err != nil {
				return err
			}
			sealed, err := a.isSealed(ctx, b, key)
			if err == nil && !sealed {
				err = update(ctx)
			}
			if err != nil || !sealed {
				return err
			}
			held, err := a.withLease(ctx, key, true, func(ctx context.Context) error {
				agrees, err := a.ranks.inFinalStandings(ctx, b, key, entries)
				if err != nil || agrees {
					return err
				}
				return update(ctx)
			})
			if err == nil && !held {
				err = wait(ctx, leaseRetry)
			}
			if held || err != nil {
				return err
			}
		}
	})
}

// isSealed reports whether a season is sealed.
func (a *Admin) isSealed(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey) (bool, error) {
	season, err := b.Season.ByID(key.Season)
	if err != nil || !a.mayBeSealed(season) {
		return false, err
	}
	record, err := a.store.Season(ctx, key)
	return !record.SealedAt.IsZero(), err
}
