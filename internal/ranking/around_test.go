package ranking_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/faults"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// slide returns the window of n of total lines that begins above lines before a place, and moves by single steps until
// it fits.
func slide(place, above, n, total int) (first, end int) {
	first, end = place-above, place-above+n
	for first < 0 {
		first, end = first+1, end+1
	}
	for end > total && first > 0 {
		first, end = first-1, end-1
	}
	return first, min(end, total)
}

func randomScore(rng *rand.Rand) leaderboard.Score {
	if rng.IntN(8) == 0 {
		return []leaderboard.Score{-leaderboard.MaxScore, leaderboard.MaxScore}[rng.IntN(2)]
	}
	return leaderboard.Score(rng.IntN(18) - 7)
}

func TestAroundAScore(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	eachNaive(t, func(f *fixture, rng *rand.Rand, q ranking.Query, want *naiveLadder) {
		f.t.Helper()
		lines := want.lines(q.Method)
		for range 12 {
			score, limit := randomScore(rng), 1+rng.IntN(12)
			better := func(r *leaderboard.MatchResult) bool {
				return r.Score != score && (r.Score < score) == want.lowerFirst
			}
			place := 0
			for place < len(want.rows) && better(&want.rows[place]) {
				place++
			}
			first, end := slide(place, limit/2, limit, len(lines))
			page, err := f.Page(f.t.Context(), ranking.PageQuery{Query: q, Limit: limit, Around: &score})
			if err != nil {
				f.t.Fatal(err)
			}
			if diff := gocmp.Diff(lines[first:end], linesOf(page.Lines)); diff != "" {
				f.t.Fatalf("%d lines around %d of %+v (-want +got):\n%s", limit, score, q, diff)
			}
			if rank := want.rank(better, place+1, q.Method); page.RankOfScore != int64(rank) || page.Total != int64(len(lines)) || page.Next != "" {
				f.t.Fatalf("%d lines around %d of %+v: rank %d of %d, next page %q; want rank %d of %d and no next page",
					limit, score, q, page.RankOfScore, page.Total, page.Next, rank, len(lines))
			}
		}
	})
}

// On decay and average boards, the score is compared with exact scores.
func TestAroundAnExactScore(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	for _, b := range rangeBoards()[3:] {
		f := open(t)
		f.create(b)
		for i := range 25 {
			r := points(fmt.Sprintf("u%02d", i), "m", int64(rng.IntN(15)-5))
			r.AchievedAt = start.Add(-time.Duration(rng.IntN(3)) * 24 * time.Hour)
			f.submit(b.ID, r)
			r.Match, r.Score = "n", leaderboard.Score(rng.IntN(5))
			f.submit(b.ID, r)
		}
		q := ranking.Query{Board: b.ID, Season: "202611"}
		all := f.inRange(q, ranking.ScoreRange{Min: new(-leaderboard.MaxScore)}, 1000)
		for score := leaderboard.Score(-7); score < 12; score++ {
			place := 0
			for place < len(all) {
				exact, _ := new(big.Rat).SetString(strings.Fields(all[place])[1])
				if c := exact.Cmp(big.NewRat(int64(score), 1)); c == 0 || (c < 0) != (b.Order == leaderboard.LowerFirst) {
					break
				}
				place++
			}
			first, end := slide(place, 3, 7, len(all))
			page, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 7, Around: &score})
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, l := range page.Lines {
				got = append(got, fmt.Sprintf("%s %s %d", l.User, cmp.Or(l.Exact, fmt.Sprint(l.Score)), l.Rank))
			}
			if !slices.Equal(got, all[first:end]) || page.RankOfScore != int64(place+1) {
				t.Fatalf("board %s around %d: rank %d, %q; want rank %d, %q", b.ID, score, page.RankOfScore, got, place+1, all[first:end])
			}
		}
		// A user without an entry begins at 0, or comes last.
		missing, err := f.UserToRank(t.Context(), ranking.UserQuery{Query: q, AllowMissing: true}, "zz")
		if err != nil {
			t.Fatal(err)
		}
		rank := int64(len(all) + 1)
		if b.Policy == leaderboard.Decay && b.Order == leaderboard.HigherFirst {
			zero := leaderboard.Score(0)
			page, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 1, Around: &zero})
			if rank = page.RankOfScore; err != nil || rank == int64(len(all)+1) {
				t.Fatalf("the score 0 has rank %d of %d, error %v; want negative scores below it", rank, len(all), err)
			}
		}
		if missing.WouldRank != rank {
			t.Errorf("board %s: a user without an entry would have rank %d, want %d", b.ID, missing.WouldRank, rank)
		}
	}
}

func TestUserWithoutAnEntry(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	eachNaive(t, func(f *fixture, rng *rand.Rand, q ranking.Query, want *naiveLadder) {
		f.t.Helper()
		lines := want.lines(q.Method)
		// On the board sum, the user begins at 0, later than all others. On others, the user comes last.
		better := func(r *leaderboard.MatchResult) bool { return q.Board != "sum" || r.Score > 0 }
		place := 0
		for place < len(lines) && (q.Board != "sum" || want.rows[place].Score >= 0) {
			place++
		}
		rank := want.rank(better, place+1, q.Method)
		for _, n := range []int{0, 1, rng.IntN(9), 50} {
			for _, fill := range []bool{false, true} {
				page, err := f.UserToRank(f.t.Context(), ranking.UserQuery{Query: q, Neighbors: n, Fill: fill, AllowMissing: true}, "zz")
				if err != nil {
					f.t.Fatal(err)
				}
				first, end := max(place-n, 0), min(place+n, len(lines))
				if fill {
					first, end = slide(place, n, 2*n, len(lines))
				}
				if diff := gocmp.Diff(lines[first:end], linesOf(page.Neighbors)); diff != "" {
					f.t.Fatalf("%d neighbors of nobody, fill %v, %+v (-want +got):\n%s", n, fill, q, diff)
				}
				if !page.NoEntry || page.WouldRank != int64(rank) || page.Total != int64(len(lines)) || page.Line.User != "zz" || page.Line.Rank != 0 ||
					page.ClippedAbove != (place < n) || page.ClippedBelow != (len(lines)-place < n) {
					f.t.Fatalf("%d neighbors of nobody, fill %v, %+v: %+v; want rank %d, and place %d of %d", n, fill, q, page, rank, place+1, len(lines))
				}
			}
		}
		for _, row := range want.rows[:min(len(want.rows), 2)] { // the parameter does not change other answers
			plain, err := f.UserToRank(f.t.Context(), ranking.UserQuery{Query: q, Neighbors: 2}, row.User)
			page, err2 := f.UserToRank(f.t.Context(), ranking.UserQuery{Query: q, Neighbors: 2, AllowMissing: true}, row.User)
			if err := errors.Join(err, err2); err != nil {
				f.t.Fatal(err)
			}
			if !slices.Equal(linesOf(page.Neighbors), linesOf(plain.Neighbors)) || page.NoEntry || page.WouldRank != 0 {
				f.t.Errorf("%q has the neighbors %q with AllowMissing, want %q", row.User, linesOf(page.Neighbors), linesOf(plain.Neighbors))
			}
		}
	})
}

func TestTopPercent(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	eachNaive(t, func(f *fixture, rng *rand.Rand, q ranking.Query, want *naiveLadder) {
		f.t.Helper()
		lines := want.lines(q.Method)
		for _, thousandths := range []int{1, 100_000, 1 + rng.IntN(100_000), (1 + rng.IntN(20)) * 5000} {
			n := 0
			for i := range want.rows {
				row := &want.rows[i]
				rank := want.rank(func(r *leaderboard.MatchResult) bool { return want.compare(r, row) < 0 }, i+1, leaderboard.Competition)
				if rank <= (len(want.rows)*thousandths+99_999)/100_000 {
					n++
				}
			}
			skip := rng.IntN(6)
			pq := ranking.PageQuery{Query: q, Limit: 1 + rng.IntN(9), TopPercent: float64(thousandths) / 1000, Start: int64(skip)}
			got := []string{}
			for {
				page, err := f.Page(f.t.Context(), pq)
				if err != nil {
					f.t.Fatal(err)
				}
				if got = append(got, linesOf(page.Lines)...); page.Next != "" && len(page.Lines) != pq.Limit {
					f.t.Errorf("a page of %d lines has a next page, want %d lines", len(page.Lines), pq.Limit)
				}
				if pq.Token, pq.Start = page.Next, 0; pq.Token == "" {
					break
				}
			}
			if diff := gocmp.Diff(lines[min(max(skip-1, 0), n):n], got); diff != "" {
				f.t.Fatalf("the top %v%% of %+v, from %d (-want +got):\n%s", pq.TopPercent, q, skip, diff)
			}
		}
	})
}

// A percentage is a decimal number, although a float cannot hold most of them.
func TestTopPercentIsDecimal(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i := range int64(1000) {
		f.submit("b", points(fmt.Sprint("u", i), "m", i))
	}
	for percent, want := range map[float64]int{5e-324: 1, 0.1: 1, 0.10000000000000002: 2, 0.7: 7, 6.9: 69, 55.1: 551, 99.9: 999, 100: 1000} {
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 1000, TopPercent: percent})
		if err != nil || len(page.Lines) != want || page.Next != "" {
			t.Errorf("the top %v%% of 1,000 has %d lines, next page %q, error %v; want %d", percent, len(page.Lines), page.Next, err, want)
		}
	}
}

// While others move, the window is around the score.
func TestAroundAScoreWhileOthersMove(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Latest})
	for i := range 60 {
		f.submit("b", points(fmt.Sprintf("stays%02d", i), "m", int64(10*i)))
	}
	stop := f.keepMoving(t)
	defer stop()
	for limit := 1; limit <= 60; limit++ {
		score := leaderboard.Score(10*limit - 5)
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: limit, Around: &score})
		if err != nil {
			t.Fatal(err)
		}
		better, ordered := 0, true
		for i, line := range page.Lines {
			if line.Score > score {
				better++
			}
			ordered = ordered && (i == 0 || page.Lines[i-1].Score >= line.Score)
		}
		// Of the users who stay, limit are below the score, and 60-limit above it.
		wantBetter := limit / 2
		if len(page.Lines) != limit || !ordered || better > wantBetter || better < min(wantBetter, 60-limit) {
			t.Errorf("%d lines around %d: %q, %d of them better; want %d lines, %d better", limit, score, linesOf(page.Lines), better, limit, wantBetter)
		}
	}
}

func TestAroundAndTopPercentRefuse(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i := range int64(5) {
		f.submit("b", points(fmt.Sprint("u", i), "m", i))
	}
	good := ranking.Query{Board: "b"}
	first, err := f.Page(t.Context(), ranking.PageQuery{Query: good, Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	score, low, high := leaderboard.Score(3), -leaderboard.MaxScore-1, leaderboard.MaxScore+1
	for i, tt := range []struct {
		field string
		q     ranking.PageQuery
	}{
		{"around_score", ranking.PageQuery{Around: &low}}, {"around_score", ranking.PageQuery{Around: &high}},
		{"around_score", ranking.PageQuery{Around: &score, Start: 1}}, {"around_score", ranking.PageQuery{Around: &score, Token: first.Next}},
		{"around_score", ranking.PageQuery{Around: &score, Worst: true}}, {"around_score", ranking.PageQuery{Around: &score, Scores: ranking.ScoreRange{Min: &score}}},
		{"around_score", ranking.PageQuery{Around: &score, TopPercent: 10}},
		{"top_percent", ranking.PageQuery{TopPercent: -1}}, {"top_percent", ranking.PageQuery{TopPercent: 100.001}},
		{"top_percent", ranking.PageQuery{TopPercent: math.NaN()}}, {"top_percent", ranking.PageQuery{TopPercent: math.Inf(1)}},
		{"top_percent", ranking.PageQuery{TopPercent: 10, Worst: true}}, {"top_percent", ranking.PageQuery{TopPercent: 10, Scores: ranking.ScoreRange{Max: &score}}},
	} {
		tt.q.Query, tt.q.Limit = good, 2
		var fault *leaderboard.FieldError
		if _, err := f.Page(t.Context(), tt.q); !errors.As(err, &fault) || fault.Field != tt.field {
			t.Errorf("query %d: %v, want a FieldError for %s", i, err, tt.field)
		}
	}
	down := &faults.Index{Index: f.index}
	down.Set(faults.Refuse)
	degraded := serviceOver(t, f.store, down)
	for name, q := range map[string]ranking.PageQuery{"around a score": {Query: good, Limit: 2, Around: &score}, "the top percent": {Query: good, Limit: 2, TopPercent: 10}} {
		if _, err := degraded.Page(t.Context(), q); !errors.Is(err, leaderboard.ErrRankUnavailable) {
			t.Errorf("%s without an index: %v, want ErrRankUnavailable", name, err)
		}
	}
	uq := ranking.UserQuery{Query: good, Neighbors: 2, AllowMissing: true}
	if _, err := degraded.UserToRank(t.Context(), uq, "nobody"); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("a user without an entry, without an index: %v, want ErrRankUnavailable", err)
	}
	if page, err := degraded.UserToRank(t.Context(), uq, "u3"); err != nil || !page.Degraded || page.NoEntry || page.Score != 3 {
		t.Errorf("a user with an entry, without an index: %+v, error %v; want the score 3 from the store", page, err)
	}
}
