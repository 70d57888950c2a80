package ranking_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// A placed is a user's entry by brute force, on a SUM board with minResults.
type placed struct {
	user   string
	score  int64
	place  int // 0 with a rank, otherwise the order among those without
	status leaderboard.Finish
	at     time.Time
}

var placedStatuses = []leaderboard.Finish{leaderboard.Cut, leaderboard.DNF}

const minResults = 2

// place counts the results of each user in the order of their times.
func place(results []leaderboard.MatchResult, team string) (ranked, others []placed) {
	byUser := map[string]*placed{}
	counts := map[string]int{}
	teams := map[string]string{}
	ordered := slices.SortedFunc(slices.Values(results), func(x, y leaderboard.MatchResult) int { return x.AchievedAt.Compare(y.AchievedAt) })
	for _, r := range ordered {
		user := string(r.User)
		p := byUser[user]
		if p == nil {
			p = &placed{user: user}
			byUser[user] = p
		}
		if counts[user]++; r.Reset {
			p.score = 0
		}
		p.score += int64(r.Score)
		if counts[user] == 1 || r.Reset || r.Score != 0 {
			p.at = r.AchievedAt
		}
		p.status, teams[user] = r.Finish, r.Attributes["team"]
	}
	for user, p := range byUser {
		if team != "" && teams[user] != team {
			continue
		}
		switch p.place = 2 + slices.Index(placedStatuses, p.status); {
		case p.status != leaderboard.Ranked:
			others = append(others, *p)
		case counts[user] < minResults:
			p.place, p.status = 1, leaderboard.TooFew
			others = append(others, *p)
		default:
			p.place = 0
			ranked = append(ranked, *p)
		}
	}
	order := func(x, y placed) int {
		return cmp.Or(cmp.Compare(x.place, y.place), cmp.Compare(y.score, x.score), x.at.Compare(y.at), cmp.Compare(x.user, y.user))
	}
	slices.SortFunc(ranked, order)
	slices.SortFunc(others, order)
	return ranked, others
}

func placedLines(ranked, others []placed, m leaderboard.Method) []string {
	lines := []string{}
	for i, p := range ranked {
		rank := 1
		for j, q := range ranked {
			switch {
			case m == leaderboard.Ordinal && j < i, m == leaderboard.Competition && q.score > p.score,
				m == leaderboard.Dense && q.score > p.score && (j == 0 || ranked[j-1].score != q.score):
				rank++
			}
		}
		lines = append(lines, fmt.Sprintf("%s %d %d RANKED", p.user, p.score, rank))
	}
	for _, p := range others {
		lines = append(lines, fmt.Sprintf("%s %d 0 %v", p.user, p.score, p.status))
	}
	return lines
}

func statusLines(list []ranking.Line) []string {
	lines := []string{}
	for i, line := range linesOf(list) {
		lines = append(lines, fmt.Sprint(line, " ", list[i].Finish))
	}
	return lines
}

// allLines reads all pages.
func (f *fixture) allLines(pq ranking.PageQuery) (all []string, about ranking.About) {
	f.t.Helper()
	all = []string{}
	for {
		page, err := f.Page(f.t.Context(), pq)
		if err != nil {
			f.t.Fatal(err)
		}
		all, about = append(all, statusLines(page.Lines)...), page.About
		if pq.Token = page.Next; pq.Token == "" {
			return all, about
		}
	}
}

func TestEntriesWithoutARank(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, MinResults: minResults, Statuses: placedStatuses, Divisions: []string{"team"},
		Season: leaderboard.Schedule{Kind: leaderboard.Monthly, Grace: time.Hour}})
	var results []leaderboard.MatchResult
	check := func() {
		t.Helper()
		for _, team := range []string{"", "red"} {
			q := ranking.Query{Board: "b", Season: "202611"}
			if team != "" {
				q.Division = leaderboard.Division{Attribute: "team", Value: team}
			}
			ranked, others := place(results, team)
			checkPlaced(f, rng, q, ranked, others)
		}
	}
	for i := range 90 {
		r := points(fmt.Sprintf("u%02d", rng.IntN(25)), fmt.Sprint("m", i), int64(rng.IntN(9)-3))
		r.AchievedAt = start.Add(-time.Duration(i*37%91) * time.Hour) // all different, in no order
		r.Attributes = map[string]string{"team": []string{"red", "blue"}[rng.IntN(2)]}
		r.Reset = rng.IntN(6) == 0
		if rng.IntN(5) == 0 {
			r.Finish = placedStatuses[rng.IntN(2)]
		}
		receipt := f.submit("b", r)
		results = append(results, r)
		ranked, others := place(results, "")
		want := placedLines(ranked, others, leaderboard.Competition)
		if got := fmt.Sprintf("%s %d %d %v", r.User, receipt.Score, receipt.Rank, receipt.Finish); !slices.Contains(want, got) {
			t.Fatalf("the receipt of result %d is %q, want one of %q", i, got, want)
		}
		if i%30 == 0 {
			check()
		}
	}
	check()
	f.wantNoDifferences()
	f.clock.set(start.AddDate(0, 1, 0))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
	for _, i := range []int{3, 20, 50} { // amendments of the sealed season
		key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Season: "202611"}, User: results[i].User, Match: results[i].Match}
		if _, err := f.Retract(t.Context(), f.board("b"), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{50, 20, 3} {
		results = slices.Delete(results, i, i+1)
	}
	check()
}

func checkPlaced(f *fixture, rng *rand.Rand, q ranking.Query, ranked, others []placed) {
	f.t.Helper()
	for _, m := range []leaderboard.Method{leaderboard.Competition, leaderboard.Dense, leaderboard.Ordinal} {
		q.Method = m
		want := placedLines(ranked, others, m)
		got, about := f.allLines(ranking.PageQuery{Query: q, Limit: 1 + rng.IntN(9)})
		if diff := gocmp.Diff(want, got); diff != "" {
			f.t.Fatalf("%+v (-want +got):\n%s", q, diff)
		}
		if about.Total != int64(len(ranked)) || about.Unranked != int64(len(others)) {
			f.t.Fatalf("%+v: %d ranked and %d others, want %d and %d", q, about.Total, about.Unranked, len(ranked), len(others))
		}
		worst := slices.Clone(want[:len(ranked)])
		slices.Reverse(worst)
		if got, _ := f.allLines(ranking.PageQuery{Query: q, Limit: 1 + rng.IntN(9), Worst: true}); !slices.Equal(got, worst) {
			f.t.Fatalf("%+v, the worst first: %q, want %q", q, got, worst)
		}
		low := leaderboard.Score(rng.IntN(6) - 2)
		inRange := []string{}
		for i, p := range ranked {
			if p.score <= int64(low) {
				inRange = append(inRange, want[i])
			}
		}
		if got, _ := f.allLines(ranking.PageQuery{Query: q, Limit: 3, Scores: ranking.ScoreRange{Max: &low}}); !slices.Equal(got, inRange) {
			f.t.Fatalf("%+v, scores up to %d: %q, want %q", q, low, got, inRange)
		}
		checkPlacedUsers(f, rng, q, want, ranked, others)
		checkPlacedWindows(f, rng, q, want, ranked)
	}
	checkPlacedStats(f, q, ranked)
}

// checkPlacedWindows checks windows, in which entries without a rank follow the others, and percentages, which have none.
func checkPlacedWindows(f *fixture, rng *rand.Rand, q ranking.Query, want []string, ranked []placed) {
	f.t.Helper()
	score, better, notWorse, distinct := leaderboard.Score(rng.IntN(6)-2), 0, 0, map[int64]bool{}
	for _, p := range ranked {
		if p.score > int64(score) {
			better++
		}
		if p.score >= 0 {
			notWorse++
		}
		if p.score > 0 {
			distinct[p.score] = true
		}
	}
	page, err := f.Page(f.t.Context(), ranking.PageQuery{Query: q, Limit: 6, Around: &score})
	if err != nil {
		f.t.Fatal(err)
	}
	first, end := slide(better, 3, 6, len(want))
	if got := statusLines(page.Lines); !slices.Equal(got, want[first:end]) || q.Method == leaderboard.Competition && page.RankOfScore != int64(better+1) {
		f.t.Fatalf("%+v around %d: rank %d, %q; want rank %d, %q", q, score, page.RankOfScore, got, better+1, want[first:end])
	}
	user, err := f.UserToRank(f.t.Context(), ranking.UserQuery{Query: q, Neighbors: 2, AllowMissing: true}, "zz")
	if err != nil {
		f.t.Fatal(err)
	}
	rank := map[leaderboard.Method]int{leaderboard.Dense: len(distinct) + 1, leaderboard.Ordinal: notWorse + 1}[q.Method]
	for _, p := range ranked {
		if q.Method == leaderboard.Competition && p.score > 0 {
			rank++
		}
	}
	if q.Method == leaderboard.Competition {
		rank++
	}
	if got := statusLines(user.Neighbors); !slices.Equal(got, want[max(notWorse-2, 0):min(notWorse+2, len(want))]) || user.WouldRank != int64(rank) {
		f.t.Fatalf("%+v: a user without an entry would have rank %d among %q; want rank %d after %d of %q", q, user.WouldRank, got, rank, notWorse, want)
	}
	if got, _ := f.allLines(ranking.PageQuery{Query: q, Limit: 4, TopPercent: 100}); !slices.Equal(got, want[:len(ranked)]) {
		f.t.Fatalf("%+v: the top 100%% are %q, want %q", q, got, want[:len(ranked)])
	}
}

func checkPlacedUsers(f *fixture, rng *rand.Rand, q ranking.Query, want []string, ranked, others []placed) {
	f.t.Helper()
	all := slices.Concat(ranked, others)
	var users []leaderboard.UserID
	for i, p := range all {
		users = append(users, leaderboard.UserID(p.user))
		if rng.IntN(3) > 0 && i != len(ranked) {
			continue
		}
		page, err := f.User(f.t.Context(), q, leaderboard.UserID(p.user), 2, false)
		if err != nil {
			f.t.Fatal(err)
		}
		worse := 0
		for _, o := range ranked {
			if p.place == 0 && o.score < p.score {
				worse++
			}
		}
		percentile := float64(worse) * 100 / float64(max(len(ranked), 1))
		if got := statusLines(page.Neighbors); !slices.Equal(got, want[max(i-2, 0):min(i+3, len(want))]) || page.Percentile != percentile {
			f.t.Fatalf("%+v: neighbors of %q are %q with percentile %v, want %v and those of %q", q, want[i], got, page.Percentile, percentile, want)
		}
	}
	if len(users) == 0 {
		return
	}
	lookup, err := f.Lookup(f.t.Context(), q, users)
	if err != nil {
		f.t.Fatal(err)
	}
	if got := statusLines(lookup.Lines); !slices.Equal(got, want) {
		f.t.Fatalf("%+v: the lookup of all is %q, want %q", q, got, want)
	}
	for i, rank := range lookup.ListRanks {
		if rank != lookup.Lines[i].Rank {
			f.t.Fatalf("%+v: %q has the rank %d among all, want %d", q, want[i], rank, lookup.Lines[i].Rank)
		}
	}
}

func checkPlacedStats(f *fixture, q ranking.Query, ranked []placed) {
	f.t.Helper()
	q.Method = leaderboard.Competition
	rank := int64(len(ranked) + 1)
	s, err := f.Stats(f.t.Context(), ranking.StatsQuery{Query: q, Buckets: 4, Rank: rank})
	if err != nil {
		f.t.Fatal(err)
	}
	if s.ScoreAtRank != nil {
		f.t.Fatalf("the score at rank %d of %d is %d, want none", rank, len(ranked), *s.ScoreAtRank)
	}
	if len(ranked) == 0 {
		if s.Best != nil || s.Worst != nil || len(s.Histogram) > 0 {
			f.t.Fatalf("statistics of no ranked entry: %+v", s)
		}
		return
	}
	n := int64(0)
	for _, b := range s.Histogram {
		n += b.Count
		for _, p := range ranked {
			if p.score >= int64(b.From) && p.score <= int64(b.To) {
				n--
			}
		}
		if n != 0 {
			f.t.Fatalf("the histogram %+v differs from %+v", s.Histogram, ranked)
		}
	}
	if int64(*s.Best) != ranked[0].score || int64(*s.Worst) != ranked[len(ranked)-1].score {
		f.t.Fatalf("best %d and worst %d, want those of %+v", *s.Best, *s.Worst, ranked)
	}
	page, err := f.UserToRank(f.t.Context(), ranking.UserQuery{Query: q, ToRank: rank}, "nobody")
	if err != nil || page.Target.Score != nil {
		f.t.Fatalf("the target of rank %d of %d is %+v, error %v; want no score", rank, len(ranked), page.Target, err)
	}
}

func TestSharedRanksHaveNoOrder(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Ties: leaderboard.Shared})
	for i, user := range []string{"cyd", "bob", "ada"} {
		r := points(user, "m", 7)
		r.AchievedAt = start.Add(-time.Duration(i) * time.Hour)
		f.submit("b", r)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := linesOf(page.Lines), []string{"ada 7 1", "bob 7 1", "cyd 7 1"}; !slices.Equal(got, want) || !page.Lines[0].AchievedAt.IsZero() {
		t.Errorf("equal users: %q, achieved at %v; want %q without a time", got, page.Lines[0].AchievedAt, want)
	}
	var fault *leaderboard.FieldError
	if _, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b", Method: leaderboard.Ordinal}, Limit: 9}); !errors.As(err, &fault) || fault.Field != "method" {
		t.Errorf("ordinal ranks of users who share their ranks: %v, want a FieldError for method", err)
	}
}

func TestLatestFirst(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Ties: leaderboard.LatestFirst})
	for i, user := range []string{"ada", "bob", "cyd"} {
		r := points(user, "m", 7)
		r.AchievedAt = start.Add(-time.Duration(i) * time.Hour)
		f.submit("b", r)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b", Method: leaderboard.Ordinal}, Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := linesOf(page.Lines), []string{"ada 7 1", "bob 7 2", "cyd 7 3"}; !slices.Equal(got, want) || !page.Lines[2].AchievedAt.Equal(start.Add(-2*time.Hour)) {
		t.Errorf("the latest first: %q, the last at %v; want %q and the time of the result", got, page.Lines[2].AchievedAt, want)
	}
}

// Dry runs and linked boards know resets and statuses.
func TestResetsAndStatusesElsewhere(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Statuses: []leaderboard.Finish{leaderboard.DSQ}, AcceptedAttributes: []string{"mode"}})
	f.create(leaderboard.Board{ID: "all", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}, Statuses: []leaderboard.Finish{leaderboard.DSQ}})
	f.create(leaderboard.Board{ID: "hard", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b", Match: map[string]string{"mode": "hard"}}})
	f.create(leaderboard.Board{ID: "count", Policy: leaderboard.Count, Source: &leaderboard.Source{Board: "b"}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, r := range []leaderboard.MatchResult{points("ada", "1", 10), points("ada", "2", 3), points("ada", "3", 4), points("bob", "1", 9)} {
		r.AchievedAt = start.Add(time.Duration(i-9) * time.Minute)
		r.Attributes = map[string]string{"mode": []string{"hard", "easy", "hard", "hard"}[i]}
		r.Reset = i == 1
		f.submit("b", r)
	}
	for id, want := range map[leaderboard.BoardID][]string{"b": {"bob 9 1", "ada 7 2"}, "all": {"bob 9 1", "ada 7 2"}, "hard": {"ada 14 1", "bob 9 2"}, "count": {"ada 3 1", "bob 1 2"}} {
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: id}, Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		if got := linesOf(page.Lines); !slices.Equal(got, want) {
			t.Errorf("board %s: %q, want %q", id, got, want)
		}
	}
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "ada", Match: "2"}
	reset, dsq := false, leaderboard.DSQ
	_, preview, err := f.PreviewCorrection(t.Context(), f.board("b"), key, ranking.Correction{Reset: &reset})
	if err != nil || len(preview.Entries) == 0 || *preview.Entries[0].ScoreAfter != 17 || preview.Entries[0].RankAfter != 1 {
		t.Errorf("without the reset: %+v, error %v; want the score 17 and the rank 1", preview.Entries, err)
	}
	key.Match = "3"
	if _, receipt, err := f.Correct(t.Context(), f.board("b"), key, ranking.Correction{Finish: &dsq}); err != nil || receipt.Rank != 0 || receipt.Finish != leaderboard.DSQ || receipt.Score != 7 {
		t.Errorf("a disqualification: %+v, error %v; want the score 7 with DSQ and no rank", receipt, err)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "hard"}, Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := linesOf(page.Lines), []string{"ada 10 1", "bob 9 2"}; !slices.Equal(got, want) {
		t.Errorf("a linked board without statuses: %q, want %q, without the disqualified result", got, want)
	}
	f.wantNoDifferences()
}
