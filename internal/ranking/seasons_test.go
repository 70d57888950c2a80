package ranking_test

import (
	"errors"
	"fmt"
	"slices"
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

// A season whose results were all rejected is neither listed nor sealed, and leaves no act.
func TestRejectedResultsMakeNoListedSeason(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	f.submit("b", points("ann", "today", 5))
	f.clock.set(start.AddDate(0, 0, 1).Add(2 * time.Hour)) // past the grace of every season before
	for d := range 40 {
		r := points("eve", fmt.Sprint("m", d), 1)
		r.AchievedAt = start.AddDate(0, 0, -1-d)
		for range 2 {
			if got := f.trySubmit("b", r); got.Status != leaderboard.Rejected || got.Reason != leaderboard.ReasonClosed {
				t.Fatalf("a result of %v: %v %v, want REJECTED with SEASON_CLOSED", r.AchievedAt, got.Status, got.Reason)
			}
		}
	}
	for range 3 {
		f.sweep()
		f.clock.set(f.clock.now().Add(listInterval))
	}
	var listed []leaderboard.SeasonID
	for _, s := range f.seasons("b") {
		listed = append(listed, s.ID)
	}
	if want := []leaderboard.SeasonID{"20261121", day}; !slices.Equal(listed, want) {
		t.Errorf("the listed seasons are %q, want %q: the current one and the one with an entry", listed, want)
	}
	for key, want := range map[leaderboard.SeasonID]bool{day: true, "20261119": false} {
		record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "b", Season: key})
		if err != nil || !record.SealedAt.IsZero() != want {
			t.Errorf("season %s is %+v, error %v; sealed: want %t", key, record, err, want)
		}
	}
	for act, err := range f.store.Acts(t.Context(), leaderboard.ActKey{}) {
		if err != nil {
			t.Fatal(err)
		}
		if act.Action == "season.seal" && act.Season != day {
			t.Errorf("the record has %+v, want no seal of a season without entries", act)
		}
	}
	status, err := f.Result(t.Context(), f.board("b"), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Season: "20261119"}, User: "eve", Match: "m0"}, nil)
	if err != nil || status.Status != leaderboard.Rejected || status.Reason != leaderboard.ReasonClosed {
		t.Errorf("the rejected result is %+v, error %v; want REJECTED with SEASON_CLOSED", status, err)
	}
}

func TestSeasonsHavePages(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: 10 * 365 * 24 * time.Hour}})
	f.create(leaderboard.Board{ID: "other", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly}})
	const days = 57
	var want []leaderboard.SeasonID
	for d := range days {
		r := points("ann", "m", 1)
		r.AchievedAt = start.AddDate(0, 0, -d)
		want = append(want, f.submit("b", r).Season)
	}
	for _, limit := range []int{1, 10, days - 1, days, ranking.MaxSeasons} {
		var got []leaderboard.SeasonID
		q := ranking.SeasonsQuery{Limit: limit}
		for {
			page, err := f.Seasons(t.Context(), f.board("b"), q)
			if err != nil || len(page.Seasons) > limit {
				t.Fatalf("a page of at most %d seasons has %d, error %v", limit, len(page.Seasons), err)
			}
			for _, s := range page.Seasons {
				got = append(got, s.ID)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the pages of %d seasons are %q, want %q", limit, got, want)
		}
	}
	// The last season of a page may be deleted before the next page is read.
	if err := f.store.DeleteSeason(t.Context(), leaderboard.SeasonKey{Board: "b", Season: want[9]}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	page, err := f.Seasons(t.Context(), f.board("b"), ranking.SeasonsQuery{Limit: 1, After: want[9]})
	if err != nil || len(page.Seasons) != 1 || page.Seasons[0].ID != want[10] {
		t.Errorf("the page after a deleted season is %+v, error %v; want season %s", page, err, want[10])
	}
	for _, limit := range []int{-1, 0, ranking.MaxSeasons + 1} {
		var field *leaderboard.FieldError
		if _, err := f.Seasons(t.Context(), f.board("b"), ranking.SeasonsQuery{Limit: limit}); !errors.As(err, &field) || field.Field != "limit" {
			t.Errorf("limit %d: %v, want an error of the field limit", limit, err)
		}
	}
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
