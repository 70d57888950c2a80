package ranking_test

import (
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// The index still contains a season of a deleted board. A new board with the same id has rank
// keys of another length.
func TestAnIndexOfADeletedBoardIsFilledAgain(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("old", "m", 1))
	f.wantList(ranking.Query{Board: "b"}, "old 1 1")
	// A process with another index deletes the board and creates the new board.
	if err := f.store.DeleteBoard(t.Context(), "b", time.Time{}); err != nil {
		t.Fatal(err)
	}
	newBoard := sumBoard
	newBoard.TieBreakers = []leaderboard.TieBreaker{{Name: "wins"}}
	newBoard.CreatedAt = start.Add(1)
	if err := f.store.CreateBoard(t.Context(), newBoard); err != nil {
		t.Fatal(err)
	}
	other := serviceOver(t, f.store, f.index) // has not cached the deleted board
	other.submit("b", points("new", "m", 2))
	other.wantList(ranking.Query{Board: "b"}, "new 2 1")
}
