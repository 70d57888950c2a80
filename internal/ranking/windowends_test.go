package ranking_test

import (
	"errors"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func (f *fixture) endWindow(id leaderboard.BoardID, end time.Time) error {
	f.t.Helper()
	_, err := f.AmendBoard(f.t.Context(), id, func(b *leaderboard.Board) error { b.Season.Windows[0].End = end; return nil })
	return err
}

func (f *fixture) wantFault(err error, field string) {
	f.t.Helper()
	var fault *leaderboard.FieldError
	if !errors.As(err, &fault) || fault.Field != field {
		f.t.Errorf("error %v, want one of field %s", err, field)
	}
}

func TestWindowsEndAtAnotherTime(t *testing.T) {
	f := open(t)
	cup := leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: time.Hour, Windows: []leaderboard.Season{
		{ID: "cup", Start: start.Add(-time.Hour), End: start.Add(time.Hour)}, {ID: "next", Start: start.AddDate(0, 1, 0), End: start.AddDate(0, 2, 0)},
	}}
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: cup})
	f.create(leaderboard.Board{ID: "source", Policy: leaderboard.Sum})
	f.create(leaderboard.Board{ID: "linked", Policy: leaderboard.Sum, Season: cup, Source: &leaderboard.Source{Board: "source"}})
	late := points("ann", "late", 5)
	late.AchievedAt = start.Add(90 * time.Minute)
	submit := func() error {
		_, err := f.Complete(t.Context(), f.board("b"), late)
		return err
	}
	fill := func() {
		t.Helper()
		if err := f.FillLinked(t.Context()); err != nil || f.board("linked").Filling() {
			t.Fatalf("fill of the linked board: %v, want it filled", err)
		}
	}
	f.submit("source", late)
	fill()
	f.wantList(ranking.Query{Board: "linked", Season: "cup"})
	if err := submit(); !errors.Is(err, leaderboard.ErrSeasonNotFound) {
		t.Errorf("a result after the window: %v, want ErrSeasonNotFound", err)
	}
	for _, id := range []leaderboard.BoardID{"b", "linked"} {
		f.wantFault(f.endWindow(id, start.AddDate(0, 1, 1)), "season.windows[1].start")
		if err := f.endWindow(id, start.Add(3*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	f.submit("b", late)
	for _, id := range []leaderboard.BoardID{"b", "linked"} {
		f.wantList(ranking.Query{Board: id, Season: "cup"}, "ann 5 1")
		// Results are accepted 24 hours ahead of the clock.
		f.wantFault(f.endWindow(id, start.Add(2*time.Hour)), "season.windows[0].end")
		if err := errors.Join(f.endWindow(id, start.Add(72*time.Hour)), f.endWindow(id, start.Add(48*time.Hour))); err != nil {
			t.Error(err)
		}
	}
	fill()
	f.clock.set(start.Add(50 * time.Hour))
	if err := f.Seal(t.Context(), "b", "cup"); err != nil {
		t.Fatal(err)
	}
	f.wantFault(f.endWindow("b", start.Add(60*time.Hour)), "season")
	f.wantList(ranking.Query{Board: "b", Season: "cup"}, "ann 5 1")
}
