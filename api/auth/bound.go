package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// maxBoards is the maximum number of a key's boards and prefixes together.
const maxBoards = 100

// Bound is the set of boards that a caller may call for. The zero Bound has all boards.
type Bound struct {
	boards   []leaderboard.BoardID
	prefixes []string
}

// BoundOf returns the bound of a key.
func BoundOf(k *leaderboard.APIKey) Bound { return Bound{k.Boards, k.BoardPrefixes} }

// AllBoards reports whether b has all boards.
func (b Bound) AllBoards() bool { return len(b.boards) == 0 && len(b.prefixes) == 0 }

// Allows reports whether b has the board id. Upper and lower case differ.
func (b Bound) Allows(id leaderboard.BoardID) bool {
	return b.AllBoards() || slices.Contains(b.boards, id) ||
		slices.ContainsFunc(b.prefixes, func(prefix string) bool {
			return prefix != "" && strings.HasPrefix(string(id), prefix)
		})
}

// BoardError means that a caller may not call for Board. If Board is empty, the caller
// may not make calls that concern all boards.
type BoardError struct{ Board leaderboard.BoardID }

func (e *BoardError) Error() string {
	if e.Board == "" {
		return "this call concerns all boards, but the key is for some boards only: name a board if the call has such a field, or use a key for all boards"
	}
	return fmt.Sprintf("the key is not for board %q", string(e.Board))
}

// CheckBoards returns an error unless a key may have these boards and prefixes. The
// error joins a [leaderboard.FieldError] for each fault.
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

// checkBoard checks the i-th id or prefix of a field. twice means that an earlier value
// of the field is equal. A prefix must be a valid id, because a board's id may be equal
// to its prefix.
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
