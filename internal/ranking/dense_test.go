package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// denseless is an index that has no dense ranks, as Redis for seasons on several shards.
type denseless struct{ leaderboard.Index }

func refuseDense(methods []leaderboard.Method) error {
	if len(methods) == 0 || slices.Contains(methods, leaderboard.Dense) {
		return leaderboard.ErrMethodUnavailable
	}
	return nil
}

func (x denseless) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	if err := refuseDense(methods); err != nil {
		return nil, leaderboard.View{}, err
	}
	return x.Index.Standings(ctx, l, users, methods...)
}

func (x denseless) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	if err := refuseDense(methods); err != nil {
		return nil, leaderboard.View{}, err
	}
	return x.Index.Page(ctx, l, position, n, methods...)
}

func (x denseless) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	if err := refuseDense(methods); err != nil {
		return nil, leaderboard.View{}, err
	}
	return x.Index.PageAfter(ctx, l, after, n, methods...)
}

func (x denseless) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	if err := refuseDense(methods); err != nil {
		return leaderboard.Neighborhood{}, leaderboard.View{}, err
	}
	return x.Index.Around(ctx, l, user, above, below, methods...)
}

func (x denseless) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	if err := refuseDense(methods); err != nil {
		return nil, leaderboard.View{}, err
	}
	return x.Index.Count(ctx, l, keys, methods...)
}

func (x denseless) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	if err := refuseDense(methods); err != nil {
		return leaderboard.Survey{}, leaderboard.View{}, err
	}
	return x.Index.Survey(ctx, l, q, methods...)
}

// Without dense ranks in the index, only reads by this method fail. A lookup still has dense ranks within its
// list, and final standings have dense ranks.
func TestSeasonsWithoutDenseRanks(t *testing.T) {
	store, index := embedded.Open(t)
	f := serviceOver(t, store, denseless{index})
	window := leaderboard.Season{ID: "cup", Start: start.AddDate(0, 0, -1), End: start.Add(time.Hour)}
	b := f.create(leaderboard.Board{ID: "b", Season: leaderboard.Schedule{Kind: leaderboard.Explicit, Windows: []leaderboard.Season{window}}})
	for user, score := range map[string]int64{"a": 9, "b": 7, "c": 7, "d": 5} {
		r := points(user, "m", score)
		r.AchievedAt = start
		f.submit("b", r)
	}
	score := leaderboard.Score(6)
	read := func(method leaderboard.Method) map[string]error {
		q, errs := ranking.Query{Board: "b", Season: "cup", Method: method}, map[string]error{}
		_, errs["page"] = f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 5})
		_, errs["page from a position"] = f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 5, Start: 2})
		_, errs["user"] = f.User(t.Context(), q, "c", 4, false)
		_, errs["statistics"] = f.Stats(t.Context(), ranking.StatsQuery{Query: q, Score: &score, Rank: 2, Buckets: 3})
		errs["watch"] = f.Watch(t.Context(), ranking.PageQuery{Query: q, Limit: 5}, func(*ranking.WatchedPage) error { return context.Canceled })
		if errors.Is(errs["watch"], context.Canceled) {
			errs["watch"] = nil
		}
		return errs
	}
	lookup := func(wantRanks, wantListRanks []int64) {
		t.Helper()
		page, err := f.Lookup(t.Context(), ranking.Query{Board: "b", Season: "cup", Method: leaderboard.Dense}, []leaderboard.UserID{"d", "c", "b", "x"})
		if err != nil || page.Degraded || !slices.Equal(page.Missing, []leaderboard.UserID{"x"}) {
			t.Fatalf("lookup: %+v, error %v; want d, c and b, and x missing", page, err)
		}
		var ranks []int64
		for _, line := range page.Lines {
			ranks = append(ranks, line.Rank)
		}
		if gocmp.Diff(wantRanks, ranks) != "" || gocmp.Diff(wantListRanks, page.ListRanks) != "" {
			t.Errorf("lookup: ranks %v, ranks in the list %v; want %v, %v", ranks, page.ListRanks, wantRanks, wantListRanks)
		}
	}
	for name, err := range read(leaderboard.Dense) {
		if !errors.Is(err, leaderboard.ErrMethodUnavailable) {
			t.Errorf("%s with dense ranks: error %v, want ErrMethodUnavailable", name, err)
		}
	}
	lookup([]int64{0, 0, 0}, []int64{1, 1, 2})
	for _, method := range []leaderboard.Method{leaderboard.Competition, leaderboard.Ordinal} {
		for name, err := range read(method) {
			if err != nil {
				t.Errorf("%s with %v ranks: %v", name, method, err)
			}
		}
	}
	f.seasons("b")
	f.wantNoDifferences()

	f.clock.set(window.End.Add(b.Season.Grace + time.Minute))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, err := range read(leaderboard.Dense) {
		if err != nil {
			t.Errorf("%s of a sealed season with dense ranks: %v", name, err)
		}
	}
	lookup([]int64{2, 2, 3}, []int64{1, 1, 2})
}

// A dry run states that a board would lose its dense ranks.
func TestPreviewOfShards(t *testing.T) {
	f := open(t)
	for _, tt := range []struct {
		from, to int
		want     bool
	}{{0, 2, true}, {1, 3, true}, {2, 3, false}, {2, 1, false}, {0, 1, false}} {
		id := leaderboard.BoardID(fmt.Sprint("b", tt.from, "-", tt.to))
		f.create(leaderboard.Board{ID: id, Shards: tt.from})
		p, err := f.PreviewAmendment(t.Context(), id, func(b *leaderboard.Board) error { b.Shards = tt.to; return nil })
		if err != nil || p.LosesDense != tt.want {
			t.Errorf("from %d to %d shards: loses dense ranks: %v, error %v; want %v, nil", tt.from, tt.to, p.LosesDense, err, tt.want)
		}
	}
}
