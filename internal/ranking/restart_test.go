package ranking_test

import (
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func TestAsOfSurvivesARestart(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.create(leaderboard.Board{ID: "unused", Policy: leaderboard.Sum})
	f.submit("b", points("ann", "m", 5))
	f.clock.set(start.Add(time.Minute))
	f.submit("b", points("bob", "m", 6))
	asOf := func(f *fixture, board leaderboard.BoardID) time.Time {
		t.Helper()
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: board}, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return page.AsOf
	}
	before := asOf(f, "b")
	_, index := embedded.Open(t)
	restarted := serviceOver(t, f.store, index)
	restarted.clock.set(start.Add(time.Hour))
	if err := restarted.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := asOf(restarted, "b"); !got.Equal(before) || !got.Equal(start.Add(time.Minute)) {
		t.Errorf("AsOf after the restart is %v; before the restart it was %v; want %v for both", got, before, start.Add(time.Minute))
	}
	restarted.submit("b", points("cat", "m", 1))
	if got := asOf(restarted, "b"); !got.Equal(start.Add(time.Hour)) {
		t.Errorf("AsOf after another change is %v, want %v, the time of that change", got, start.Add(time.Hour))
	}
}
