package faults

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Index is an index whose server may be down: it then returns
// [leaderboard.ErrRankUnavailable]. A scope that misses an update is lost.
type Index struct {
	leaderboard.Index
	Switch
}

var _ leaderboard.Index = (*Index)(nil)

// Settled says whether the server is up: what it missed it is known to lack.
func (x *Index) Settled() bool {
	return x.check(context.Background(), "Settled", leaderboard.ErrRankUnavailable) == nil
}

func (x *Index) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) (r0 []leaderboard.Standing, r1 leaderboard.View, err error) {
	if err = x.check(ctx, "Standings", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Standings(ctx, l, users)
}

func (x *Index) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int) (r0 []leaderboard.Standing, r1 leaderboard.View, err error) {
	if err = x.check(ctx, "Page", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Page(ctx, l, position, n)
}

func (x *Index) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) (r0 []leaderboard.Standing, r1 leaderboard.View, err error) {
	if err = x.check(ctx, "PageAfter", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.PageAfter(ctx, l, after, n)
}

func (x *Index) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) (r0 []leaderboard.Standing, r1 leaderboard.View, err error) {
	if err = x.check(ctx, "Around", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Around(ctx, l, user, above, below)
}

func (x *Index) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey) (r0 []leaderboard.Counts, r1 leaderboard.View, err error) {
	if err = x.check(ctx, "Count", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Count(ctx, l, keys)
}

func (x *Index) Update(ctx context.Context, sc leaderboard.Scope, at time.Time, entries []leaderboard.Entry) error {
	if err := x.check(ctx, "Update", leaderboard.ErrRankUnavailable); err != nil {
		return errors.Join(err, x.Index.Drop(context.WithoutCancel(ctx), sc))
	}
	return x.Index.Update(ctx, sc, at, entries)
}

func (x *Index) Rebuild(ctx context.Context, b *leaderboard.Board, sc leaderboard.Scope, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	if err := x.check(ctx, "Rebuild", leaderboard.ErrRankUnavailable); err != nil {
		return err
	}
	return x.Index.Rebuild(ctx, b, sc, at, entries)
}

func (x *Index) Loaded(ctx context.Context, sc leaderboard.Scope) (r0 bool, err error) {
	if err = x.check(ctx, "Loaded", leaderboard.ErrRankUnavailable); err != nil {
		return
	}
	return x.Index.Loaded(ctx, sc)
}

func (x *Index) Drop(ctx context.Context, sc leaderboard.Scope) error {
	if err := x.check(ctx, "Drop", leaderboard.ErrRankUnavailable); err != nil {
		return err
	}
	return x.Index.Drop(ctx, sc)
}
