package auth

import (
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// CreateKey refuses an empty prefix. If damaged data contain one, it matches no board.
func TestEmptyPrefixMatchesNoBoard(t *testing.T) {
	if damaged := boundOf(&leaderboard.APIKey{BoardPrefixes: []string{""}}); damaged.AllBoards() || damaged.Allows("cup") {
		t.Error("a key with an empty prefix allows boards, want none")
	}
}
