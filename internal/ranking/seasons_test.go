package ranking_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
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

// A caller that may submit sends a result for each past day. No rejection makes a season, an act or a log line.
func TestRejectedResultsMakeNoSeason(t *testing.T) {
	store, index := embedded.Open(t)
	c, log := &clock{t: start}, &bytes.Buffer{}
	service := ranking.New(store, index, ranking.Options{Now: c.now, Log: slog.New(slog.NewTextHandler(log, nil))})
	t.Cleanup(service.Close)
	f := &fixture{service, t, store, index, c}
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
	ids, err := f.store.SeasonIDs(t.Context(), "b")
	if err != nil || !slices.Equal(ids, []leaderboard.SeasonID{day}) {
		t.Errorf("the store has the seasons %q, error %v; want %q only", ids, err, day)
	}
	var acts []string
	for act, err := range f.store.Acts(t.Context(), leaderboard.ActKey{}) {
		if err != nil {
			t.Fatal(err)
		}
		acts = append(acts, act.Action+" "+string(act.Season))
	}
	if want := []string{"season.seal " + string(day)}; !slices.Equal(acts, want) {
		t.Errorf("the audit log has the acts %q, want %q", acts, want)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("the log has %d lines, want one, of the seal of season %s:\n%s", lines, day, log)
	}
	for _, season := range []leaderboard.SeasonID{"20261119", ""} {
		key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Season: season}, User: "eve", Match: "m0"}
		status, err := f.Result(t.Context(), f.board("b"), key, nil)
		if err != nil || status.Season != "20261119" || status.Status != leaderboard.Rejected || status.Reason != leaderboard.ReasonClosed {
			t.Errorf("the rejected result in season %q is %+v, error %v; want REJECTED with SEASON_CLOSED in 20261119", season, status, err)
		}
	}
	if err := f.Erase(t.Context(), "eve"); err != nil {
		t.Fatal(err)
	}
	status, err := f.Result(t.Context(), f.board("b"), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Season: "20261119"}, User: "eve", Match: "m0"}, nil)
	if !errors.Is(err, leaderboard.ErrResultNotFound) {
		t.Errorf("the rejected result of an erased user is %+v, error %v; want ErrResultNotFound", status, err)
	}
}

// Most old results of a source are too late for the days of a new linked board.
func TestOldResultsOfASourceMakeNoSeasons(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum})
	const days = 300
	for d := range days {
		f.submit("laps", withRevision(points("ann", fmt.Sprint("m", d), 1), 0, start.AddDate(0, 0, -d)))
	}
	f.clock.set(start.AddDate(0, 0, 1).Add(2 * time.Hour)) // past the grace of the day of the first result
	f.create(leaderboard.Board{ID: "day", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "laps"},
		Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}})
	for range 2 { // a repeated fill changes nothing
		if err := f.FillLinked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.submit("laps", withRevision(points("ann", "new", 1), 0, f.clock.now()))
	f.submit("laps", withRevision(points("ann", "old", 1), 0, start.AddDate(0, 0, -days)))
	ids, err := f.store.SeasonIDs(t.Context(), "day")
	if err != nil {
		t.Fatal(err)
	}
	closed := 0
	for _, id := range ids {
		season, err := f.board("day").Season.ByID(id)
		if err != nil {
			t.Fatal(err)
		}
		if f.board("day").Closed(season, start) {
			closed++
		}
	}
	if closed > 0 || len(ids) == 0 {
		t.Errorf("the linked board has the seasons %q, want those that accept the source's results only", ids)
	}
	f.wantList(ranking.Query{Board: "day"}, "ann 1 1")
	f.wantNoDifferences()
}

func TestLatestPassesOverAFewEmptySeasonsOnly(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: 10 * 365 * 24 * time.Hour}})
	f.submit("b", withRevision(points("ann", "m", 1), 0, start.AddDate(0, 0, -500)))
	oldest := leaderboard.SeasonID(start.AddDate(0, 0, -500).Format("20060102"))
	for d := range 101 {
		r := withRevision(points("eve", "m", 0), 0, start.AddDate(0, 0, -1-d))
		r.Season, r.Retracted = leaderboard.SeasonID(r.AchievedAt.Format("20060102")), true
		r.Board, r.ReceivedAt = "b", start
		want := oldest
		if d == 100 {
			want = day
		}
		if _, err := f.store.Apply(t.Context(), f.board("b"), []leaderboard.MatchResult{r}); err != nil {
			t.Fatal(err)
		}
		if d < 99 {
			continue
		}
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b", Season: leaderboard.SeasonLatest}, Limit: 1})
		if err != nil || page.Season.ID != want {
			t.Errorf("with %d newer seasons without entries, season=latest is %q, error %v; want %q", d+1, page.Season.ID, err, want)
		}
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
