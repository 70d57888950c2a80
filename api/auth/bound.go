package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// maxBoards is the largest number of boards and prefixes of a key.
const maxBoards = 100

// Bound limits a caller to boards. The zero Bound is no limit.
type Bound struct {
	boards   []leaderboard.BoardID
	prefixes []string
}

// BoundOf returns the bound of a key.
func BoundOf(k *leaderboard.APIKey) Bound { return Bound{k.Boards, k.BoardPrefixes} }

// AllBoards reports whether b is no limit.
func (b Bound) AllBoards() bool { return len(b.boards) == 0 && len(b.prefixes) == 0 }

// Allows reports whether a caller with the bound b may call for a board. Ids and
// prefixes compare byte by byte.
func (b Bound) Allows(id leaderboard.BoardID) bool {
	return b.AllBoards() || slices.Contains(b.boards, id) ||
		slices.ContainsFunc(b.prefixes, func(prefix string) bool {
			return prefix != "" && strings.HasPrefix(string(id), prefix)
		})
}

// BoardError means that a caller may not call for a board, or for all boards if Board
// is empty.
type BoardError struct{ Board leaderboard.BoardID }

func (e *BoardError) Error() string {
	if e.Board == "" {
		return "this call concerns all boards, and the key is for some boards only; name a board if the call can, or use a key for all boards"
	}
	return fmt.Sprintf("the key is not for board %q", string(e.Board))
}

// CheckBoards returns nil if a key may have these boards and prefixes, and otherwise
// all faults, joined, each a [leaderboard.FieldError].
func CheckBoards(boards []leaderboard.BoardID, prefixes []string) error {
	if n := len(boards) + len(prefixes); n > maxBoards {
		return &leaderboard.FieldError{Field: "boards", Problem: fmt.Sprintf("and board_prefixes have %d values, at most %d are allowed", n, maxBoards)}
	}
	var errs []error
	for i, id := range boards {
		errs = append(errs, checkBoard("boards", i, id, slices.Index(boards, id) < i))
	}
	for i, prefix := range prefixes {
		errs = append(errs, checkBoard("board_prefixes", i, leaderboard.BoardID(prefix), slices.Index(prefixes, prefix) < i))
	}
	return errors.Join(errs...)
}

// checkBoard checks the id or the prefix at an index of a field. A prefix has the bounds
// of an id, because some id is equal to it.
func checkBoard(field string, i int, id leaderboard.BoardID, twice bool) error {
	field = fmt.Sprintf("%s[%d]", field, i)
	var invalid *leaderboard.FieldError
	switch {
	case errors.As(id.Validate(), &invalid):
		return &leaderboard.FieldError{Field: field, Problem: invalid.Problem}
	case twice:
		return &leaderboard.FieldError{Field: field, Problem: fmt.Sprintf("%q is given twice", string(id))}
	}
	return nil
}
