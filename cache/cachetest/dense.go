package cachetest

import (
	"cmp"
	"context"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// lacksDense reports whether the season has no dense ranks: see [Limits].NoDense.
func (f *fixture) lacksDense() bool {
	return f.limits.NoDense != "" && cmp.Or(f.board.Shards, f.limits.Shards, 1) > 1
}

// A test that names no methods reads all ranks that the season has.
func (f *fixture) known(methods []leaderboard.Method) []leaderboard.Method {
	if len(methods) == 0 && f.lacksDense() {
		return []leaderboard.Method{leaderboard.Competition, leaderboard.Ordinal}
	}
	return methods
}

func (f *fixture) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return f.Index.Standings(ctx, l, users, f.known(methods)...)
}

func (f *fixture) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return f.Index.Page(ctx, l, position, n, f.known(methods)...)
}

func (f *fixture) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return f.Index.PageAfter(ctx, l, after, n, f.known(methods)...)
}

func (f *fixture) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	return f.Index.Around(ctx, l, user, above, below, f.known(methods)...)
}

func (f *fixture) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	return f.Index.Count(ctx, l, keys, f.known(methods)...)
}

func (f *fixture) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	return f.Index.Survey(ctx, l, q, f.known(methods)...)
}

// withoutDense returns an answer without what the methods Competition and Ordinal do not read.
func withoutDense(answer any) any {
	switch v := answer.(type) {
	case []leaderboard.Standing:
		v = slices.Clone(v)
		for i := range v {
			v[i].Ranks.Dense = 0
		}
		return v
	case []leaderboard.Ranks:
		v = slices.Clone(v)
		for i := range v {
			v[i].Dense = 0
		}
		return v
	case []leaderboard.Counts:
		v = slices.Clone(v)
		for i := range v {
			v[i].Distinct = 0
		}
		return v
	case leaderboard.Survey:
		v.Counts = withoutDense(v.Counts).([]leaderboard.Counts)
		return v
	}
	return answer
}

// assignDense sets the dense ranks of consecutive standings, so that checkConsistent can check the other ranks.
func assignDense(all []leaderboard.Standing) {
	for i := range all {
		switch {
		case i == 0:
			all[i].Ranks.Dense = 1
		case all[i].Key == all[i-1].Key:
			all[i].Ranks.Dense = all[i-1].Ranks.Dense
		default:
			all[i].Ranks.Dense = all[i-1].Ranks.Dense + 1
		}
	}
}

// checkNoDense checks that reads of dense ranks return ErrMethodUnavailable.
func (f *fixture) checkNoDense(l leaderboard.Ladder) {
	f.Helper()
	for _, methods := range [][]leaderboard.Method{nil, {leaderboard.Dense}, {leaderboard.Competition, leaderboard.Dense}} {
		errs := map[string]error{}
		_, _, errs["Standings"] = f.Index.Standings(f.ctx, l, []leaderboard.UserID{"ann"}, methods...)
		_, _, errs["Page"] = f.Index.Page(f.ctx, l, 1, 10, methods...)
		_, _, errs["PageAfter"] = f.Index.PageAfter(f.ctx, l, "", 10, methods...)
		_, _, errs["Around"] = f.Index.Around(f.ctx, l, "ann", 1, 1, methods...)
		_, _, errs["Survey"] = f.Index.Survey(f.ctx, l, leaderboard.SurveyQuery{Keys: []leaderboard.RankKey{"\x00"}}, methods...)
		_, _, errs["Count"] = f.Index.Count(f.ctx, l, []leaderboard.RankKey{"\x00"}, methods...)
		for method, err := range errs {
			f.wantErr(method+" of dense ranks", err, leaderboard.ErrMethodUnavailable)
		}
	}
}
