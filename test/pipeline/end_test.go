package pipeline

import (
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// A season that ended early has only the results before its end, even if a process that has cached
// the board still counts later results.
func testEarlyEnd(t *testing.T, store leaderboard.Store, index leaderboard.Index) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	service := func(ttl time.Duration) *ranking.Service {
		return ranking.New(store, index, ranking.Options{Now: clock, BoardTTL: ttl, LinkTTL: ttl})
	}
	// The service stale caches the board for an hour, so it does not see the early end.
	admin, stale := service(20*time.Millisecond), service(time.Hour)
	defer admin.Close()
	defer stale.Close()
	b, err := admin.CreateBoard(t.Context(), leaderboard.Board{ID: "ends", Policy: leaderboard.Sum,
		Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	end := now.Add(-time.Hour)
	submit := func(s *ranking.Service, match string, at time.Time) {
		t.Helper()
		var results []leaderboard.MatchResult
		for i := range 5 {
			results = append(results, leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{
				SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: "20261120"}, User: leaderboard.UserID(fmt.Sprint("end", i)), Match: leaderboard.MatchID(match),
			}, Score: leaderboard.Score(i), AchievedAt: at, ReceivedAt: now})
		}
		if _, err := s.Apply(t.Context(), &b, results); err != nil {
			t.Fatal(err)
		}
	}
	check := func(step string, points int) {
		t.Helper()
		page, err := admin.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: b.ID, Season: "20261120"}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, l := range page.Lines {
			got = append(got, fmt.Sprintf("%d. %s %d", l.Rank, l.User, l.Score))
		}
		for i := range 5 {
			want = append(want, fmt.Sprintf("%d. end%d %d", i+1, 4-i, (4-i)*points))
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	submit(stale, "early", end.Add(-time.Microsecond))
	submit(stale, "late", end)
	check("before EndSeason", 2)
	ending, err := admin.EndSeason(t.Context(), b.ID, leaderboard.EarlyEnd{ID: "20261120", At: end})
	if err != nil || ending.Results != 5 || ending.Users != 5 {
		t.Fatalf("EndSeason: %+v, %v; want 5 results of 5 users to stop counting", ending, err)
	}
	check("after EndSeason", 1)
	submit(stale, "later", now)
	now = now.Add(2 * time.Hour)
	if err := admin.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := admin.SeasonInfo(t.Context(), &b, "20261120"); err != nil || info.Phase != ranking.Sealed {
		t.Errorf("season after the sweep: %+v, %v; want it sealed", info, err)
	}
	check("after the seal", 1)
	report, err := admin.Verify(t.Context(), ranking.Selection{Board: b.ID}, false, nil, func(d ranking.Difference) error {
		t.Errorf("difference: %+v", d)
		return nil
	})
	if err != nil || report.Users != 5 {
		t.Errorf("Verify: %+v, %v; want 5 users", report, err)
	}
}
