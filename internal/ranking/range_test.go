package ranking_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
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

func (f *fixture) inRange(q ranking.Query, scores ranking.ScoreRange, n int) []string {
	f.t.Helper()
	lines := []string{}
	pq := ranking.PageQuery{Query: q, Limit: n, Scores: scores}
	for {
		page, err := f.Page(f.t.Context(), pq)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, l := range page.Lines {
			lines = append(lines, fmt.Sprintf("%s %s %d", l.User, cmp.Or(l.Exact, fmt.Sprint(l.Score)), l.Rank))
		}
		if page.Next != "" {
			pq.Token = page.Next
			continue
		}
		if page.Degraded != (page.InRange == nil) {
			f.t.Errorf("Degraded is %v, and InRange == nil is %v; want InRange nil on a degraded page only", page.Degraded, page.InRange == nil)
		}
		if page.InRange != nil && *page.InRange != int64(len(lines)) {
			f.t.Errorf("the last page has InRange %d, want %d, the number of lines of all pages", *page.InRange, len(lines))
		}
		return lines
	}
}

func rangeBoards() []leaderboard.Board {
	ties := []leaderboard.TieBreaker{{Name: "wins"}, {Name: "falls", Order: leaderboard.LowerFirst}}
	monthly := leaderboard.Schedule{Kind: leaderboard.Monthly, Grace: time.Hour}
	return []leaderboard.Board{
		{ID: "best", TieBreakers: ties, Divisions: []string{"team"}, Season: monthly},
		{ID: "race", Order: leaderboard.LowerFirst, Divisions: []string{"team"}, TieBreakers: ties, Season: monthly},
		{ID: "sum", Policy: leaderboard.Sum, Divisions: []string{"team"}, Season: monthly},
		{ID: "mean", Policy: leaderboard.Average, Divisions: []string{"team"}, Season: monthly},
		{ID: "pace", Policy: leaderboard.Average, Order: leaderboard.LowerFirst, Divisions: []string{"team"}, TieBreakers: ties, Season: monthly},
		{ID: "trend", Policy: leaderboard.Decay, HalfLife: 36 * time.Hour, Divisions: []string{"team"}, Season: monthly},
		{ID: "cool", Policy: leaderboard.Decay, HalfLife: 36 * time.Hour, Order: leaderboard.LowerFirst, TieBreakers: ties, Divisions: []string{"team"}, Season: monthly},
	}
}

func TestRangesOfScores(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	for _, b := range rangeBoards() {
		t.Run(string(b.ID), func(t *testing.T) {
			f := open(t)
			f.create(b)
			for i := range 30 {
				r := points(fmt.Sprintf("u%02d", i), "m", int64(rng.IntN(15)-5))
				r.TieBreakers = []int64{int64(rng.IntN(2)), int64(rng.IntN(2))}[:len(b.TieBreakers)]
				r.AchievedAt = start.Add(-time.Duration(rng.IntN(3)) * 24 * time.Hour)
				if rng.IntN(2) == 0 {
					r.Attributes = map[string]string{"team": "red"}
				}
				f.submit(b.ID, r)
				if i%2 == 0 {
					r.Match, r.Score = "n", leaderboard.Score(rng.IntN(5))
					f.submit(b.ID, r)
				}
			}
			check := func(state string, f *fixture) {
				for _, q := range []ranking.Query{
					{Board: b.ID, Season: "202611"}, {Board: b.ID, Season: "202611", Method: leaderboard.Dense, Division: leaderboard.Division{Attribute: "team", Value: "red"}},
				} {
					all := f.inRange(q, ranking.ScoreRange{Min: new(-leaderboard.MaxScore)}, 1000)
					if q.Division.Overall() && len(all) != 30 {
						t.Fatalf("%s: the widest range has %d entries, want 30", state, len(all))
					}
					for range 12 {
						s := randomRange(rng)
						want := []string{}
						for _, line := range all {
							score, ok := new(big.Rat).SetString(strings.Fields(line)[1])
							if !ok {
								t.Fatalf("%q has no score", line)
							}
							if (s.Min == nil || score.Cmp(big.NewRat(int64(*s.Min), 1)) >= 0) && (s.Max == nil || score.Cmp(big.NewRat(int64(*s.Max), 1)) <= 0) {
								want = append(want, line)
							}
						}
						if diff := gocmp.Diff(want, f.inRange(q, s, 1+rng.IntN(4))); diff != "" {
							t.Fatalf("%s: range %s of %+v (-want +got):\n%s", state, rangeText(s), q, diff)
						}
					}
				}
			}
			check("open season", f)
			down := &faults.Index{Index: f.index}
			down.Set(faults.Refuse)
			check("open season without ranks", serviceOver(t, f.store, down))
			f.clock.set(start.AddDate(0, 1, 0))
			if err := f.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			check("sealed season", f)
		})
	}
}

func randomRange(rng *rand.Rand) (s ranking.ScoreRange) {
	if rng.IntN(4) > 0 {
		s.Min = new(leaderboard.Score(rng.IntN(18) - 7))
	}
	if s.Min == nil || rng.IntN(4) > 0 {
		s.Max = new(leaderboard.Score(rng.IntN(18) - 7))
	}
	if s.Min != nil && s.Max != nil && *s.Min > *s.Max {
		s.Min, s.Max = s.Max, s.Min
	}
	return s
}

func rangeText(s ranking.ScoreRange) string {
	text := func(p *leaderboard.Score) string {
		if p == nil {
			return "none"
		}
		return fmt.Sprint(*p)
	}
	return text(s.Min) + " to " + text(s.Max)
}

// The token of a page without a range is valid for a page with a range. The range still limits
// that page.
func TestRangesWithTokensOfOtherPages(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i := range int64(9) {
		f.submit("b", points(fmt.Sprint("u", i), "m", i))
	}
	first, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 5, Token: first.Next, Scores: ranking.ScoreRange{Min: new(leaderboard.Score(3)), Max: new(leaderboard.Score(4))}})
	if err != nil || len(page.Lines) != 2 || page.Lines[0].User != "u4" || page.Lines[0].Rank != 5 || page.Next != "" {
		t.Errorf("the page with a range: %+v, error %v; want u4 at rank 5, u3, and no next page", page, err)
	}
}

func TestBadRanges(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	score := func(n leaderboard.Score) *leaderboard.Score { return &n }
	for field, q := range map[string]ranking.PageQuery{
		"min_score":  {Scores: ranking.ScoreRange{Min: score(2), Max: score(1)}},
		"max_score":  {Scores: ranking.ScoreRange{Max: score(leaderboard.MaxScore + 1)}},
		"start_rank": {Scores: ranking.ScoreRange{Min: score(2)}, Start: 1},
	} {
		q.Board, q.Limit = "b", 1
		var fault *leaderboard.FieldError
		if _, err := f.Page(t.Context(), q); !errors.As(err, &fault) || fault.Field != field {
			t.Errorf("a page with a bad %s: %v, want a FieldError for this field", field, err)
		}
	}
	for _, s := range []ranking.ScoreRange{{Min: score(-leaderboard.MaxScore), Max: score(leaderboard.MaxScore)}, {Min: score(7), Max: score(7)}} {
		if got := f.inRange(ranking.Query{Board: "b"}, s, 1); len(got) != 0 {
			t.Errorf("the range %s of an empty board has %q, want nothing", rangeText(s), got)
		}
	}
}
