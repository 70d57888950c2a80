package ranking_test

import (
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// An index may still contain a season of a deleted board. A new board with the same id
// may have rank keys of another length. The service still applies the results of the new board, and
// fills the season of the index again.
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
	newBoard := sumBoard
	newBoard.TieBreakers = []leaderboard.TieBreaker{{Name: "wins"}}
	newBoard.CreatedAt = start.Add(1)
	if err := f.store.CreateBoard(t.Context(), newBoard); err != nil {
		t.Fatal(err)
	}
	other := serviceOver(t, f.store, f.index) // this process has not cached the old board
	other.submit("b", points("new", "m", 2))
	other.wantList(ranking.Query{Board: "b"}, "new 2 1")
}
