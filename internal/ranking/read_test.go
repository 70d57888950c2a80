package ranking_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestPagesByEachMethod(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b"})
	for user, score := range map[string]int64{"a": 9, "b": 7, "c": 7, "d": 7, "e": 5} {
		r := points(user, "m", score)
		r.AchievedAt = start
		f.submit("b", r)
	}
	q := ranking.Query{Board: "b"}
	f.wantList(q, "a 9 1", "b 7 2", "c 7 2", "d 7 2", "e 5 5")
	q.Method = leaderboard.Dense
	f.wantList(q, "a 9 1", "b 7 2", "c 7 2", "d 7 2", "e 5 3")
	q.Method = leaderboard.Ordinal
	f.wantList(q, "a 9 1", "b 7 2", "c 7 3", "d 7 4", "e 5 5")

	page, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 2, Start: 4})
	if err != nil || len(page.Lines) != 2 || page.Lines[0].User != "d" || page.Next != "" {
		t.Errorf("page from position 4: %+v, error %v; want d and e, and no next page", page, err)
	}
	// An entry rises to the top between two reads. The second page does not repeat entries of the
	// first page.
	first, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	f.submit("b", points("e", "m2", 10))
	second, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 2, Token: first.Next})
	if err != nil || second.Lines[0].User != "c" || second.Lines[0].Rank != 4 || second.Next != "" {
		t.Errorf("second page %+v, %v, want c at rank 4 first, and no next page", second, err)
	}
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Divisions: []string{"gender"}, Season: leaderboard.Schedule{Kind: leaderboard.Monthly}})
	f.create(leaderboard.Board{ID: "c"})
	for i := range 3 {
		f.submit("b", points(fmt.Sprint("u", i), "m", 1))
		f.submit("c", points(fmt.Sprint("u", i), "m", 1))
	}
	other, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "c"}, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := ranking.Query{Board: "b"}
	tests := []struct {
		name string
		q    ranking.PageQuery
		want error
	}{
		{"limit 0", ranking.PageQuery{Query: b}, leaderboard.ErrInvalid},
		{"limit 1001", ranking.PageQuery{Query: b, Limit: 1001}, leaderboard.ErrInvalid},
		{"negative start", ranking.PageQuery{Query: b, Limit: 1, Start: -1}, leaderboard.ErrInvalid},
		{"a start and a token", ranking.PageQuery{Query: b, Limit: 1, Start: 1, Token: "x"}, leaderboard.ErrInvalid},
		{"an invalid token", ranking.PageQuery{Query: b, Limit: 1, Token: "x"}, leaderboard.ErrInvalid},
		{"a token that is not base64", ranking.PageQuery{Query: b, Limit: 1, Token: "***"}, leaderboard.ErrInvalid},
		{"a long token", ranking.PageQuery{Query: b, Limit: 1, Token: strings.Repeat("A", 5000)}, leaderboard.ErrInvalid},
		{"a token of another board", ranking.PageQuery{Query: b, Limit: 1, Token: other.Next}, leaderboard.ErrInvalid},
		{"unknown division", ranking.PageQuery{Query: ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "country", Value: "KEN"}}, Limit: 1}, leaderboard.ErrInvalid},
		{"unknown season", ranking.PageQuery{Query: ranking.Query{Board: "b", Season: "202613"}, Limit: 1}, leaderboard.ErrSeasonNotFound},
		{"unknown board", ranking.PageQuery{Query: ranking.Query{Board: "x"}, Limit: 1}, leaderboard.ErrBoardNotFound},
		{"invalid board", ranking.PageQuery{Query: ranking.Query{Board: "\x00"}, Limit: 1}, leaderboard.ErrInvalid},
		{"no board", ranking.PageQuery{Limit: 1}, leaderboard.ErrInvalid},
	}
	for _, tt := range tests {
		if _, err := f.Page(t.Context(), tt.q); !errors.Is(err, tt.want) {
			t.Errorf("%s: Page returns %v, want %v", tt.name, err, tt.want)
		}
	}
	for _, neighbors := range []int{-1, 51} {
		if _, err := f.User(t.Context(), b, "u1", neighbors, false); !errors.Is(err, leaderboard.ErrInvalid) {
			t.Errorf("%d neighbors: %v, want ErrInvalid", neighbors, err)
		}
	}
	if _, err := f.User(t.Context(), b, "nobody", 4, false); !errors.Is(err, leaderboard.ErrEntryNotFound) {
		t.Errorf("a user without an entry: %v, want ErrEntryNotFound", err)
	}
	if _, err := f.Lookup(t.Context(), b, nil); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("an empty lookup: %v, want ErrInvalid", err)
	}
	if _, err := f.Lookup(t.Context(), b, []leaderboard.UserID{"a", ""}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a lookup of an empty id: %v, want ErrInvalid", err)
	}
	if _, err := f.Submit(t.Context(), f.board("b"), nil); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("an empty batch: %v, want ErrInvalid", err)
	}
	if _, err := f.Submit(t.Context(), f.board("b"), make([]leaderboard.MatchResult, 5001)); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a batch of 5001 results: %v, want ErrInvalid", err)
	}
	f.wantList(ranking.Query{Board: "b", Season: "999912"})
	if loaded, _ := f.index.Loaded(t.Context(), leaderboard.SeasonKey{Board: "b", Season: "999912"}); loaded {
		t.Error("a query loaded a season without users into the index, want no load")
	}
	// Seasons without users are not cached, because readers can query any number of them.
	f.create(leaderboard.Board{ID: "daily", Season: leaderboard.Schedule{Kind: leaderboard.Daily}})
	before := f.CachedSeasons()
	for day := range 28 {
		f.wantList(ranking.Query{Board: "daily", Season: leaderboard.SeasonID(fmt.Sprintf("199902%02d", day+1))})
	}
	if n := f.CachedSeasons() - before; n != 0 {
		t.Errorf("%d seasons without users are cached, want none", n)
	}
}

func TestUserReturnsNeighbors(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b"})
	for i := range 20 {
		f.submit("b", points(fmt.Sprintf("u%02d", i), "m", int64(100-i)))
	}
	for _, tt := range []struct {
		user         string
		first, last  string
		above, below bool
	}{{"u10", "u06", "u14", false, false}, {"u00", "u00", "u04", true, false}, {"u02", "u00", "u06", true, false}, {"u19", "u15", "u19", false, true}} {
		page, err := f.User(t.Context(), ranking.Query{Board: "b"}, leaderboard.UserID(tt.user), 4, true)
		if err != nil {
			t.Fatal(err)
		}
		n := page.Neighbors
		if string(n[0].User) != tt.first || string(n[len(n)-1].User) != tt.last || page.ClippedAbove != tt.above || page.ClippedBelow != tt.below {
			t.Errorf("%s: %+v, want neighbors %s to %s, clipped above %v and below %v", tt.user, page, tt.first, tt.last, tt.above, tt.below)
		}
		for _, line := range n {
			if line.Current != (string(line.User) == tt.user) {
				t.Errorf("%s: Current of %s is %v, want true for the queried user only", tt.user, line.User, line.Current)
			}
		}
		if page.Entry == nil || page.Entry.Match != "m" {
			t.Errorf("%s: the line %+v has no Entry of match m, want one", tt.user, page.Line)
		}
	}
	page, err := f.User(t.Context(), ranking.Query{Board: "b"}, "u05", 0, false)
	if err != nil || page.Percentile != 70 || page.Rank != 6 || len(page.Neighbors) != 1 {
		t.Errorf("u05: %+v, %v, want rank 6, percentile 70 and one line", page, err)
	}
}

func TestLookupRanksUsersAmongThemselves(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b"})
	for user, score := range map[string]int64{"a": 9, "b": 7, "c": 7, "d": 6} {
		f.submit("b", points(user, "m", score))
	}
	got, err := f.Lookup(t.Context(), ranking.Query{Board: "b"}, []leaderboard.UserID{"d", "x", "c", "b", "d"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i, l := range got.Lines {
		lines = append(lines, fmt.Sprintf("%s %d, list %d", l.User, l.Rank, got.ListRanks[i]))
	}
	slices.Sort(lines)
	if diff := gocmp.Diff([]string{"b 2, list 1", "c 2, list 1", "d 4, list 3"}, lines); diff != "" {
		t.Errorf("ranks of the lookup (-want +got):\n%s", diff)
	}
	if !slices.Equal(got.Missing, []leaderboard.UserID{"x"}) {
		t.Errorf("missing users: %v, want x", got.Missing)
	}
}

func TestStatsAgreeWithARecount(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.New(t), 3))
	for _, order := range []leaderboard.Order{leaderboard.HigherFirst, leaderboard.LowerFirst} {
		f := open(t)
		f.create(leaderboard.Board{ID: "b", Order: order})
		var scores []int64
		for i := range 200 {
			score := rng.Int64N(90) - 30
			scores = append(scores, score)
			f.submit("b", points(fmt.Sprint("u", i), "m", score))
		}
		slices.SortFunc(scores, func(x, y int64) int {
			if order == leaderboard.HigherFirst {
				return cmp.Compare(y, x)
			}
			return cmp.Compare(x, y)
		})
		score := leaderboard.Score(rng.Int64N(100) - 35)
		for _, method := range []leaderboard.Method{leaderboard.Competition, leaderboard.Dense} {
			got, err := f.Stats(t.Context(), ranking.StatsQuery{
				Query: ranking.Query{Board: "b", Method: method}, Buckets: 7, Score: &score, Rank: 17,
			})
			if err != nil {
				t.Fatal(err)
			}
			if int64(*got.Best) != scores[0] || int64(*got.Worst) != scores[199] || int64(*got.ScoreAtRank) != scores[16] || got.Total != 200 {
				t.Errorf("stats %+v, want best %d, worst %d, %d at rank 17 and 200 users", got, scores[0], scores[199], scores[16])
			}
			better := map[int64]bool{}
			n := int64(1)
			for _, s := range scores {
				if s > int64(score) == (order == leaderboard.HigherFirst) && s != int64(score) {
					better[s] = true
					n++
				}
			}
			if method == leaderboard.Dense {
				n = int64(len(better)) + 1
			}
			if got.RankOfScore != n {
				t.Errorf("%v: rank of score %d is %d, want %d", order, score, got.RankOfScore, n)
			}
			sum := int64(0)
			for _, bucket := range got.Histogram {
				count := int64(0)
				for _, s := range scores {
					if s >= int64(bucket.From) && s <= int64(bucket.To) {
						count++
					}
				}
				if bucket.Count != count {
					t.Errorf("%v: bucket %+v, want Count %d", order, bucket, count)
				}
				sum += bucket.Count
			}
			if sum != 200 || len(got.Histogram) > 7 {
				t.Errorf("%v: %d users in %d buckets, want 200 in at most 7", order, sum, len(got.Histogram))
			}
		}
	}
}

func TestLoadRestoresTheRanks(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Divisions: []string{"team"}})
	for i := range 100 {
		r := points(fmt.Sprint("u", i%30), fmt.Sprint("m", i), int64(i%5))
		r.Attributes = map[string]string{"team": string(rune('a' + i%3))}
		f.submit("b", r)
	}
	want := f.list(ranking.Query{Board: "b"}, 100)
	loaded := serviceOver(t, f.store, memory.New())
	if loaded.Ready() {
		t.Error("Ready before Load = true, want false")
	}
	entries := int64(0)
	if err := loaded.Load(t.Context(), func(_ leaderboard.SeasonKey, done int64) { entries = done }); err != nil {
		t.Fatal(err)
	}
	if !loaded.Ready() || entries != 30 {
		t.Errorf("after Load: Ready = %v, progress %d entries; want true and 30", loaded.Ready(), entries)
	}
	if diff := gocmp.Diff(want, loaded.list(ranking.Query{Board: "b"}, 100)); diff != "" {
		t.Errorf("the ladder after Load (-want +got):\n%s", diff)
	}
	lazy := serviceOver(t, f.store, memory.New()) // the first read loads the season
	if diff := gocmp.Diff(want, lazy.list(ranking.Query{Board: "b"}, 100)); diff != "" {
		t.Errorf("the ladder without a call of Load (-want +got):\n%s", diff)
	}
}

func TestWatchSendsChanges(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	ctx, cancel := context.WithCancel(t.Context())
	pages := make(chan *ranking.WatchedPage)
	done := make(chan error, 1)
	go func() {
		done <- f.Watch(ctx, ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10}, func(p *ranking.WatchedPage) error {
			select {
			case pages <- p:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	if p := <-pages; len(p.Lines) != 1 {
		t.Errorf("first page: %+v, want one line", p)
	}
	f.submit("b", points("bob", "m", 7))
	if p := <-pages; len(p.Lines) != 2 || p.Lines[0].User != "bob" {
		t.Errorf("second page: %+v, want two lines, bob first", p)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch = %v, want %v", err, context.Canceled)
	}
	if err := f.Watch(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "x"}, Limit: 1}, nil); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("watch of an unknown board: %v, want ErrBoardNotFound", err)
	}
}

// The sums of users a and b exceed MaxScore, so both have the score MaxScore.
func TestHistogramOfSaturatedSums(t *testing.T) {
	for _, order := range []leaderboard.Order{leaderboard.HigherFirst, leaderboard.LowerFirst} {
		f := open(t)
		f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Decay, HalfLife: time.Hour, Order: order})
		for _, u := range []string{"a", "b"} {
			for _, m := range []string{"1", "2"} {
				f.submit("d", points(u, m, int64(leaderboard.MaxScore)))
			}
		}
		f.submit("d", points("c", "1", 5))
		s, err := f.Stats(t.Context(), ranking.StatsQuery{Query: ranking.Query{Board: "d"}, Buckets: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Histogram) != 2 || s.Histogram[0].Count != 1 || s.Histogram[1].Count != 2 {
			t.Errorf("%v: histogram %+v, want the counts 1 and 2", order, s.Histogram)
		}
	}
}

type callCounter struct {
	leaderboard.Index
	calls map[string]int // by method of Index and ranking methods, such as "Page [dense]"
}

func (c *callCounter) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	c.calls[fmt.Sprint("Standings ", methods)]++
	return c.Index.Standings(ctx, l, users, methods...)
}

func (c *callCounter) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	c.calls[fmt.Sprint("Page ", methods)]++
	return c.Index.Page(ctx, l, position, n, methods...)
}

func (c *callCounter) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	c.calls[fmt.Sprint("Around ", methods)]++
	return c.Index.Around(ctx, l, user, above, below, methods...)
}

func (c *callCounter) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	c.calls[fmt.Sprint("Count ", methods)]++
	return c.Index.Count(ctx, l, keys, methods...)
}

func (c *callCounter) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	c.calls[fmt.Sprint("Survey ", methods)]++
	return c.Index.Survey(ctx, l, q, methods...)
}

func TestReadsCallTheIndexRarely(t *testing.T) {
	store, index := embedded.Open(t)
	c := &callCounter{index, map[string]int{}}
	f := serviceOver(t, store, c)
	f.create(leaderboard.Board{ID: "b"})
	for i := range 20 {
		f.submit("b", points(fmt.Sprint("u", i), "m", int64(i/3)))
	}
	q := ranking.Query{Board: "b", Method: leaderboard.Dense}
	score := leaderboard.Score(3)
	for _, tt := range []struct {
		name string
		read func() error
		want map[string]int
	}{
		{"a user with neighbors and percentile", func() error { _, err := f.User(t.Context(), q, "u7", 4, false); return err }, map[string]int{"Around [dense]": 1}},
		{"a page", func() error { _, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 5}); return err }, map[string]int{"Page [dense]": 1}},
		{"a lookup", func() error { _, err := f.Lookup(t.Context(), q, []leaderboard.UserID{"u1", "u2"}); return err }, map[string]int{"Standings [dense]": 1}},
		{"statistics", func() error {
			_, err := f.Stats(t.Context(), ranking.StatsQuery{Query: q, Score: &score, Rank: 7})
			return err
		}, map[string]int{"Survey [dense]": 1}},
		{"statistics with a histogram", func() error {
			_, err := f.Stats(t.Context(), ranking.StatsQuery{Query: q, Buckets: 4})
			return err
		}, map[string]int{"Survey [dense]": 1}},
	} {
		c.calls = map[string]int{}
		if err := tt.read(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if diff := gocmp.Diff(tt.want, c.calls); diff != "" {
			t.Errorf("%s: calls of the index (-want +got):\n%s", tt.name, diff)
		}
	}
}
