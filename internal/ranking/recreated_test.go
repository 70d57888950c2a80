package ranking_test

import (
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// An index may still have a season of a deleted board. Results of a new board with the
// same id are applied nevertheless, although its rank keys have another length. The
// season is filled again.
func TestAnIndexOfADeletedBoardIsFilledAgain(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("old", "m", 1))
	f.wantList(ranking.Query{Board: "b"}, "old 1 1") // loads the index
	// Another process, with an index of its own, deletes the board and creates the
	// next one.
	if err := f.store.DeleteBoard(t.Context(), "b", time.Time{}); err != nil {
		t.Fatal(err)
	}
	next := sumBoard
	next.TieBreakers = []leaderboard.TieBreaker{{Name: "wins"}}
	next.CreatedAt = start.Add(1)
	if err := f.store.CreateBoard(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	again := over(t, f.store, f.index) // a process without the old board in its cache
	again.submit("b", points("new", "m", 2))
	again.wantList(ranking.Query{Board: "b"}, "new 2 1")
}
