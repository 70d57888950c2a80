package ranking_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func TestLatestIsTheNewestSeasonWithEntries(t *testing.T) {
	f := open(t)
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	var windows []leaderboard.Season
	for _, id := range []string{"1990", "1991", "1992"} {
		y := 1990 + len(windows)
		windows = append(windows, leaderboard.Season{ID: leaderboard.SeasonID(id), Start: year(y), End: year(y + 1)})
	}
	f.create(leaderboard.Board{ID: "cup", Policy: leaderboard.Sum, Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Windows: windows, Grace: 100 * 365 * 24 * time.Hour,
	}})
	latest := ranking.Query{Board: "cup", Season: leaderboard.SeasonLatest}
	want := func(season leaderboard.SeasonID) {
		t.Helper()
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: latest, Limit: 1})
		if err != nil || page.Season.ID != season {
			t.Errorf("season=latest is %q, %v; want %q", page.Season.ID, err, season)
		}
	}
	want("1992") // no window has entries: the last window that has begun
	for i, season := range []leaderboard.SeasonID{"1990", "1991"} {
		r := points("ada", "m", 3)
		r.AchievedAt = year(1990+i).AddDate(0, 1, 0)
		f.submit("cup", r)
		want(season)
	}
	// A season whose results are all retracted has no entries.
	if _, err := f.Retract(t.Context(), f.board("cup"), leaderboard.ResultKey{
		SeasonKey: leaderboard.SeasonKey{Season: leaderboard.SeasonLatest}, User: "ada", Match: "m",
	}, nil); err != nil {
		t.Fatal(err)
	}
	want("1990")

	f.create(leaderboard.Board{ID: "monthly", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly}})
	latest.Board = "monthly"
	want("202611") // no season has entries: the current season
	f.create(leaderboard.Board{ID: "always", Policy: leaderboard.Sum})
	latest.Board = "always"
	want(leaderboard.SeasonAll)
}

func TestSeasonErrorsNameTheNearestSeasons(t *testing.T) {
	f := open(t)
	day := func(d int) time.Time { return start.AddDate(0, 0, d) }
	f.create(leaderboard.Board{ID: "cup", Policy: leaderboard.Sum, Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Windows: []leaderboard.Season{
			{ID: "2024", Start: day(-30), End: day(-20)}, {ID: "2025", Start: day(-10), End: day(-5)}, {ID: "2027", Start: day(5), End: day(10)},
		},
	}})
	for season, want := range map[leaderboard.SeasonID][]string{
		"":     {`board "cup" has no current season`, "latest, the newest season with entries", `the last season was "2025"`, `the next season is "2027"`},
		"2026": {`no season "2026"`, `"2025" and "2027"`},
		"1":    {`"2024" and "2025"`},
		"3000": {`"2025" and "2027"`},
	} {
		_, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "cup", Season: season}, Limit: 1})
		if !errors.Is(err, leaderboard.ErrSeasonNotFound) {
			t.Fatalf("season %q: %v, want ErrSeasonNotFound", season, err)
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("season %q: the error %q does not contain %q", season, err, part)
			}
		}
	}
}
