package faults

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Index is an index with a simulated server. If the server is down, methods return
// [leaderboard.ErrRankUnavailable], and an Update drops its season from the index.
type Index struct {
	leaderboard.Index
	Switch
}

var _ leaderboard.Index = (*Index)(nil)

// Synced reports whether the server is up. Update drops each season that misses an update, so all
// loaded seasons have all updates.
func (x *Index) Synced(...leaderboard.SeasonKey) bool {
	return x.check(context.Background(), "Synced", leaderboard.ErrRankUnavailable) == nil
}

// Standings implements [leaderboard.Index].
func (x *Index) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) (list []leaderboard.Standing, seen leaderboard.View, err error) {
	if err = x.check(ctx, "Standings", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Standings(ctx, l, users, methods...)
}

// Page implements [leaderboard.Index].
func (x *Index) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) (list []leaderboard.Standing, seen leaderboard.View, err error) {
	if err = x.check(ctx, "Page", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Page(ctx, l, position, n, methods...)
}

// PageAfter implements [leaderboard.Index].
func (x *Index) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) (list []leaderboard.Standing, seen leaderboard.View, err error) {
	if err = x.check(ctx, "PageAfter", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.PageAfter(ctx, l, after, n, methods...)
}

// Around implements [leaderboard.Index].
func (x *Index) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (n leaderboard.Neighborhood, seen leaderboard.View, err error) {
	if err = x.check(ctx, "Around", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Around(ctx, l, user, above, below, methods...)
}

// Count implements [leaderboard.Index].
func (x *Index) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) (counts []leaderboard.Counts, seen leaderboard.View, err error) {
	if err = x.check(ctx, "Count", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Count(ctx, l, keys, methods...)
}

// Survey implements [leaderboard.Index].
func (x *Index) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (s leaderboard.Survey, seen leaderboard.View, err error) {
	if err = x.check(ctx, "Survey", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Survey(ctx, l, q, methods...)
}

// Update drops the season if the server is down, because the index would lack the update.
func (x *Index) Update(ctx context.Context, key leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) error {
	if err := x.check(ctx, "Update", leaderboard.ErrRankUnavailable); err != nil {
		return errors.Join(err, x.Index.Drop(context.WithoutCancel(ctx), key))
	}
	return x.Index.Update(ctx, key, at, entries)
}

// Rebuild implements [leaderboard.Index].
func (x *Index) Rebuild(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	if err := x.check(ctx, "Rebuild", leaderboard.ErrRankUnavailable); err != nil {
		return err
	}
	return x.Index.Rebuild(ctx, b, key, at, entries)
}

// Restore implements [leaderboard.Index].
func (x *Index) Restore(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	if err := x.check(ctx, "Restore", leaderboard.ErrRankUnavailable); err != nil {
		return err
	}
	return x.Index.Restore(ctx, b, key, at, scan)
}

// Loaded implements [leaderboard.Index].
func (x *Index) Loaded(ctx context.Context, key leaderboard.SeasonKey) (ok bool, err error) {
	if err = x.check(ctx, "Loaded", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Loaded(ctx, key)
}

// Drop implements [leaderboard.Index].
func (x *Index) Drop(ctx context.Context, key leaderboard.SeasonKey) error {
	if err := x.check(ctx, "Drop", leaderboard.ErrRankUnavailable); err != nil {
		return err
	}
	return x.Index.Drop(ctx, key)
}
