package ranking_test

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// The means are -3/2, -1/2, 2/5, 1/2 and 5/2. They are shown as -2, -1, 0, 1 and 3.
func averageBoard(t *testing.T, order leaderboard.Order) *fixture {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Average, Order: order})
	for user, results := range map[string][]int64{"a": {-1, -2}, "b": {-1, 0}, "c": {1, 0, 0, 1, 0}, "d": {1, 0}, "e": {2, 3}} {
		for i, n := range results {
			f.submit("b", points(user, fmt.Sprint(i), n))
		}
	}
	return f
}

func TestHistogramOfRoundedAverages(t *testing.T) {
	for _, order := range []leaderboard.Order{leaderboard.HigherFirst, leaderboard.LowerFirst} {
		f := averageBoard(t, order)
		s, err := f.Stats(t.Context(), ranking.StatsQuery{Query: ranking.Query{Board: "b"}, Buckets: 6})
		if err != nil {
			t.Fatal(err)
		}
		want := []ranking.Bucket{{From: -2, To: -2, Count: 1}, {From: -1, To: -1, Count: 1}, {From: 0, To: 0, Count: 1}, {From: 1, To: 1, Count: 1}, {From: 2, To: 2}, {From: 3, To: 3, Count: 1}}
		if diff := gocmp.Diff(want, s.Histogram); diff != "" {
			t.Errorf("%v: histogram (-want +got):\n%s", order, diff)
		}
	}
}

func TestDistanceToAnAverage(t *testing.T) {
	for order, want := range map[leaderboard.Order][]string{
		leaderboard.HigherFirst: {"2.5 4", "2.5 3", "2.5 0", "2.5 3"},
		leaderboard.LowerFirst:  {"-1.5 0", "-1.5 2", "-1.5 4", "-1.5 none"},
	} {
		f := averageBoard(t, order)
		for i, user := range []leaderboard.UserID{"a", "c", "e", "nobody"} {
			page, err := f.UserToRank(t.Context(), ranking.UserQuery{Query: ranking.Query{Board: "b"}, ToRank: 1}, user)
			if err != nil {
				t.Fatal(err)
			}
			gap := "none"
			if page.Target.Gap != nil {
				gap = fmt.Sprint(*page.Target.Gap)
			}
			if got := page.Target.Exact + " " + gap; got != want[i] {
				t.Errorf("%v: from %s to rank 1: mean and gap %s, want %s", order, user, got, want[i])
			}
		}
	}
}
