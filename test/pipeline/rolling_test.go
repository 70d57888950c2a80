package pipeline

import (
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

const rollingDays, rollingUsers = 3, 12

// On each day, the windows of today and tomorrow equal a recount. After the last day, this day's
// window is sealed.
func TestRollingWindows(t *testing.T) {
	eachEngine(t, func(t *testing.T, store leaderboard.Store, index leaderboard.Index, cheap bool) {
		if !cheap {
			needs.Slow(t, "pipeline")
		}
		ctx, rng := t.Context(), rand.New(rand.NewPCG(seed.New(t), 0))
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		s := ranking.New(store, index, ranking.Options{Now: func() time.Time { return now }, LinkTTL: 50 * time.Millisecond})
		defer s.Close()
		source, err := s.CreateBoard(ctx, leaderboard.Board{ID: "source", Policy: leaderboard.Sum})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateBoard(ctx, leaderboard.Board{ID: "rolling", Policy: leaderboard.Sum, Retention: 240 * time.Hour, Source: &leaderboard.Source{Board: "source"},
			Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: rollingDays, Grace: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		standingResults := map[leaderboard.ResultKey]leaderboard.MatchResult{}
		for range 4 {
			if err := s.FillLinked(ctx); err != nil {
				t.Fatal(err)
			}
			batch := rollingBatch(rng, now, standingResults)
			if receipts, err := s.Submit(ctx, &source, batch); err != nil || slices.ContainsFunc(receipts, func(r ranking.Receipt) bool { return r.Err != nil }) {
				t.Fatalf("Submit: %v, %+v", err, receipts)
			}
			for _, last := range []time.Time{now, now.AddDate(0, 0, 1)} {
				checkWindow(t, s, last, standingResults)
			}
			now = now.AddDate(0, 0, 1)
			if err := s.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
		}
		seasons, err := store.Seasons(ctx, "rolling")
		if err != nil || len(seasons) < 4 || seasons[len(seasons)-2].SealedAt.IsZero() {
			t.Errorf("seasons %+v, error %v; want at least 4, and yesterday's (the second last) sealed", seasons, err)
		}
		report, err := s.Verify(ctx, ranking.Selection{}, false, nil, func(d ranking.Difference) error { t.Errorf("difference: %+v", d); return nil })
		if err != nil || report.Results == 0 {
			t.Errorf("Verify: report %+v, error %v; want at least one result", report, err)
		}
	})
}

// The event times are in the last rollingDays days.
func rollingBatch(rng *rand.Rand, now time.Time, standingResults map[leaderboard.ResultKey]leaderboard.MatchResult) (batch []leaderboard.MatchResult) {
	for i := range 40 {
		r := leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(fmt.Sprint("u", rng.IntN(rollingUsers))), Match: leaderboard.MatchID(fmt.Sprint(rng.IntN(10)))},
			Score:     leaderboard.Score(rng.IntN(50)), Revision: now.Unix()*100 + int64(i), Retracted: rng.IntN(8) == 0,
			AchievedAt: now.Add(-time.Duration(rng.IntN(rollingDays*24)) * time.Hour),
		}
		standingResults[r.ResultKey] = r
		batch = append(batch, r)
	}
	return batch
}

func checkWindow(t *testing.T, s *ranking.Service, day time.Time, standingResults map[leaderboard.ResultKey]leaderboard.MatchResult) {
	t.Helper()
	q := ranking.Query{Board: "rolling", Season: leaderboard.SeasonID(day.Format("20060102"))}
	page, err := s.Page(t.Context(), ranking.PageQuery{Query: q, Limit: rollingUsers})
	if err != nil || page.Filling {
		t.Fatalf("window %s: filling %v, error %v", q.Season, page.Filling, err)
	}
	got := map[leaderboard.UserID]leaderboard.Score{}
	for _, l := range page.Lines {
		got[l.User] = l.Score
	}
	end := day.Truncate(24 * time.Hour).Add(24 * time.Hour)
	want := map[leaderboard.UserID]leaderboard.Score{}
	for key, r := range standingResults {
		if age := end.Sub(r.AchievedAt); !r.Retracted && age > 0 && age <= rollingDays*24*time.Hour {
			want[key.User] += r.Score
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("window %s (-recount +service):\n%s", q.Season, diff)
	}
}
