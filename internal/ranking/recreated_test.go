package ranking_test

import (
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// An index may still contain a season of a deleted board. A new board with the same id
// may have rank keys of another length. Its results are applied nevertheless, and the
// index refills the season.
func TestAnIndexOfADeletedBoardIsFilledAgain(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("old", "m", 1))
	f.wantList(ranking.Query{Board: "b"}, "old 1 1") // this read loads the season into the index
	// Another process, which has its own index, deletes the board and creates a new
	// board with the same id.
	if err := f.store.DeleteBoard(t.Context(), "b", time.Time{}); err != nil {
		t.Fatal(err)
	}
	next := sumBoard
	next.TieBreakers = []leaderboard.TieBreaker{{Name: "wins"}}
	next.CreatedAt = start.Add(1)
	if err := f.store.CreateBoard(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	again := over(t, f.store, f.index) // this process has not cached the old board
	again.submit("b", points("new", "m", 2))
	again.wantList(ranking.Query{Board: "b"}, "new 2 1")
}
