package auth

import (
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// CreateKey refuses an empty prefix. If damaged data contain a key with an empty prefix,
// the key allows no board.
func TestEmptyPrefixMatchesNoBoard(t *testing.T) {
	if bound := boundOf(&leaderboard.APIKey{BoardPrefixes: []string{""}}); bound.AllBoards() || bound.Allows("cup") {
		t.Error("a key with an empty prefix allows boards, want none")
	}
}
