package ranking_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func withTime(r leaderboard.MatchResult, achievedAt time.Time) leaderboard.MatchResult {
	r.AchievedAt = achievedAt
	return r
}

func (f *fixture) end(board leaderboard.BoardID, season leaderboard.SeasonID, at time.Time) ranking.SeasonEnding {
	f.t.Helper()
	ending, err := f.EndSeason(f.t.Context(), board, leaderboard.EarlyEnd{ID: season, At: at})
	if err != nil {
		f.t.Fatal(err)
	}
	return ending
}

func TestEndSeasonExcludesLaterResults(t *testing.T) {
	f := open(t)
	grace := 24 * time.Hour
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly, Grace: grace}})
	endAt := start.Add(-time.Hour)
	f.submit("b", withTime(points("ann", "1", 5), endAt.Add(-time.Microsecond)))
	f.submit("b", withTime(points("ann", "2", 7), endAt))
	f.submit("b", withTime(points("bob", "1", 9), endAt.Add(time.Minute)))
	f.submit("b", withTime(points("cat", "1", 1), endAt.Add(-time.Minute)))
	query := ranking.Query{Board: "b", Season: "202611"}
	f.wantList(query, "ann 12 1", "bob 9 2", "cat 1 3")

	preview, err := f.PreviewEnd(t.Context(), "b", leaderboard.EarlyEnd{ID: "202611", At: endAt})
	if err != nil || preview.Results != 2 || preview.Users != 2 || preview.Next == nil || preview.Next.ID != "202612" {
		t.Errorf("preview: %+v, %v; want 2 excluded results of 2 users, and the next season 202612", preview, err)
	}
	f.wantList(query, "ann 12 1", "bob 9 2", "cat 1 3")

	ending := f.end("b", "202611", endAt)
	if ending.Results != 2 || ending.Users != 2 || !ending.Season.End.Equal(endAt) || !ending.Season.EndedAt.Equal(start) ||
		!ending.Season.ClosesAt.Equal(start.Add(grace)) || ending.Season.Phase != ranking.Grace {
		t.Errorf("ending: %+v; want 2 excluded results of 2 users, and a season that ends an hour before the call and closes a grace period after the call", ending)
	}
	f.wantList(query, "ann 5 1", "cat 1 2")
	if got, err := f.Result(t.Context(), f.board("b"), leaderboard.ResultKey{User: "bob", Match: "1"}, nil); err != nil ||
		got.Status != leaderboard.Rejected || got.Reason != leaderboard.ReasonEnded {
		t.Errorf("state of a result after the end: %+v, %v; want REJECTED, SEASON_ENDED", got, err)
	}

	late := f.trySubmit("b", points("dan", "1", 3))
	if late.Status != leaderboard.Rejected || late.Reason != leaderboard.ReasonEnded || late.Season != "202611" {
		t.Errorf("result after the end: %+v, want a rejection as SEASON_ENDED", late)
	}
	f.submit("b", withTime(points("dan", "2", 3), endAt.Add(-time.Second)))
	corrected := withTime(points("bob", "1", 9), endAt.Add(-time.Minute))
	corrected.Revision = 1
	f.submit("b", corrected)
	f.wantList(query, "bob 9 1", "ann 5 2", "dan 3 3", "cat 1 4")

	f.clock.set(start.Add(grace + 2*time.Minute))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if infos := f.seasons("b"); len(infos) != 1 || infos[0].Phase != ranking.Sealed {
		t.Errorf("seasons after the grace: %+v; want one, sealed", infos)
	}
	f.wantList(query, "bob 9 1", "ann 5 2", "dan 3 3", "cat 1 4")
	f.clock.set(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	if got := f.submit("b", points("dan", "3", 3)); got.Season != "202612" {
		t.Errorf("season of a result in December: %q, want 202612", got.Season)
	}
}

func TestEndSeasonCanBeRepeatedAndMovedEarlier(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Best, Season: leaderboard.Schedule{Grace: 24 * time.Hour}}) // one season without end
	f.submit("b", withTime(points("ann", "1", 5), start.Add(-2*time.Hour)))
	f.submit("b", withTime(points("bob", "1", 6), start.Add(-time.Minute)))
	if got := f.end("b", "all", time.Time{}); got.Results != 0 || got.Next != nil || !got.Season.End.Equal(start) {
		t.Errorf("ending now: %+v, want no excluded results, no next season, and the end now", got)
	}
	f.clock.set(start.Add(time.Minute))
	for _, end := range []time.Time{{}, start} {
		if got := f.end("b", "all", end); !got.Season.End.Equal(start) || !got.Season.EndedAt.Equal(start) {
			t.Errorf("ending again at %v: %+v, want no change", end, got)
		}
	}
	if got := f.end("b", "all", start.Add(-time.Hour)); got.Results != 1 || !got.Season.EndedAt.Equal(start.Add(time.Minute)) {
		t.Errorf("ending earlier: %+v, want 1 excluded result, and EndedAt at the time of this call", got)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 5 1")
	f.clock.set(start.Add(48 * time.Hour))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 5 1")
}

func TestEndSeasonRefusesWrongCalls(t *testing.T) {
	f := open(t)
	day := 24 * time.Hour
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Best, Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Grace: time.Hour, Windows: []leaderboard.Season{
			{ID: "old", Start: start.Add(-9 * day), End: start.Add(-8 * day)}, {ID: "now", Start: start.Add(-day), End: start.Add(day)},
			{ID: "next", Start: start.Add(day), End: start.Add(2 * day)},
		},
	}})
	for _, tt := range []struct {
		season leaderboard.SeasonID
		at     time.Time
		field  string
	}{
		{"now", start.Add(time.Second), "at"},
		{"now", start.Add(-day), "at"},
		{"now", start.Add(-2 * day), "at"},
		{"next", time.Time{}, "at"},
		{"nil", time.Time{}, ""},
	} {
		for name, call := range map[string]func() error{
			"EndSeason": func() error {
				_, err := f.EndSeason(t.Context(), "b", leaderboard.EarlyEnd{ID: tt.season, At: tt.at})
				return err
			},
			"PreviewEnd": func() error {
				_, err := f.PreviewEnd(t.Context(), "b", leaderboard.EarlyEnd{ID: tt.season, At: tt.at})
				return err
			},
		} {
			err := call()
			var fault *leaderboard.FieldError
			if tt.field == "" && !errors.Is(err, leaderboard.ErrSeasonNotFound) || tt.field != "" && (!errors.As(err, &fault) || fault.Field != tt.field) {
				t.Errorf("%s of %q at %v: %v, want an error of field %q", name, tt.season, tt.at, err, tt.field)
			}
		}
	}
	f.end("b", "now", start.Add(-time.Hour))
	f.clock.set(start.Add(time.Hour)) // the grace has passed since EndSeason, so the season is closed
	var fault *leaderboard.FieldError
	if _, err := f.EndSeason(t.Context(), "b", leaderboard.EarlyEnd{ID: "now", At: start.Add(-2 * time.Hour)}); !errors.As(err, &fault) || fault.Field != "season" {
		t.Errorf("end of a closed season: %v, want an error of field season", err)
	}
	if _, err := f.EndSeason(t.Context(), "none", leaderboard.EarlyEnd{ID: "all"}); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("end on a board that does not exist: %v, want ErrBoardNotFound", err)
	}
}

// A closed or sealed season stays closed or sealed.
func TestImportOfAnEarlyEnd(t *testing.T) {
	for phase, after := range map[string]string{"open": "grace", "closed": "closed", "sealed": "sealed"} {
		t.Run("the season is "+phase, func(t *testing.T) {
			f := open(t)
			f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}})
			const season = "20261120"
			endAt, decided := start.Add(-time.Hour), start
			f.submit("b", withTime(points("ann", "1", 5), endAt.Add(-time.Minute)))
			f.submit("b", withTime(points("ann", "2", 7), endAt))
			if phase != "open" {
				decided = start.Add(12*time.Hour + 30*time.Minute) // within the grace
				f.clock.set(start.Add(13 * time.Hour))
			}
			if phase == "sealed" {
				f.clock.set(start.Add(15 * time.Hour))
				if err := f.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				end := leaderboard.EarlyEnd{ID: season, At: endAt, DecidedAt: decided}
				got, err := f.EndSeason(t.Context(), "b", end)
				if err != nil || !got.Season.End.Equal(endAt) || string(got.Season.Phase) != after {
					t.Fatalf("the import: %+v, %v; want a season that is %s", got, err, after)
				}
				f.wantList(ranking.Query{Board: "b", Season: season}, "ann 5 1")
			}
			if got := f.trySubmit("b", withTime(points("ann", "3", 9), endAt)); got.Status != leaderboard.Rejected {
				t.Errorf("a result after the imported end: %+v, want it rejected", got)
			}
			for field, end := range map[string]leaderboard.EarlyEnd{
				"at":         {ID: season, DecidedAt: decided},
				"decided_at": {ID: season, At: endAt, DecidedAt: endAt.Add(-time.Second)},
			} {
				var fault *leaderboard.FieldError
				if _, err := f.EndSeason(t.Context(), "b", end); !errors.As(err, &fault) || fault.Field != field {
					t.Errorf("the import of %+v: %v, want an error of field %s", end, err, field)
				}
			}
			future := leaderboard.EarlyEnd{ID: season, At: endAt, DecidedAt: f.clock.now().Add(time.Second)}
			if _, err := f.EndSeason(t.Context(), "b", future); !errors.Is(err, leaderboard.ErrInvalid) {
				t.Errorf("the import of an end that was decided in the future: %v, want an error", err)
			}
		})
	}
}

func TestEndSeasonOfALinkedBoard(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "src", Policy: leaderboard.Sum})
	f.create(leaderboard.Board{ID: "week", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "src"},
		Season: leaderboard.Schedule{Kind: leaderboard.Weekly, Grace: 24 * time.Hour}})
	endAt := start.Add(-time.Hour)
	f.submit("src", withTime(points("ann", "1", 5), endAt.Add(-time.Hour)))
	f.submit("src", withTime(points("ann", "2", 7), endAt.Add(time.Minute)))
	week := ranking.Query{Board: "week", Season: "2026W47"}
	f.wantList(week, "ann 12 1")
	if got := f.end("week", "2026W47", endAt); got.Results != 1 || got.Next.ID != "2026W48" {
		t.Errorf("ending: %+v, want 1 excluded result, and the next week", got)
	}
	f.wantList(week, "ann 5 1")
	f.submit("src", points("bob", "1", 3)) // after the early end of the week, so the week does not count it
	f.submit("src", withTime(points("bob", "2", 4), endAt.Add(-time.Minute)))
	moved := withTime(points("ann", "2", 7), endAt.Add(-time.Minute))
	moved.Revision = 1
	f.submit("src", moved)
	f.wantList(week, "ann 12 1", "bob 4 2")
	f.wantList(ranking.Query{Board: "src"}, "ann 12 1", "bob 7 2")
	moved.AchievedAt, moved.Revision = endAt, 2
	f.submit("src", moved)
	f.wantList(week, "ann 5 1", "bob 4 2")
}

// A process with an older version of the board may have counted results after the end.
func TestSealRecountsASeasonThatEndedEarly(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily}})
	for i := range 3 {
		f.submit("b", withTime(points(fmt.Sprint("u", i), "1", int64(i)), start.Add(time.Duration(i-2)*time.Minute)))
	}
	// End the season in the store only: the results after the end then still count.
	if _, err := f.store.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error {
		return b.Season.EndEarly(leaderboard.EarlyEnd{ID: "20261120", At: start.Add(-time.Minute), DecidedAt: start})
	}); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start.Add(time.Hour))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: b.ID, Season: "20261120"}, "u0 0 1")
}
