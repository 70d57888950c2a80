package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwt"

	"github.com/open-leaderboard/leaderboard"
)

// maxBoards limits the boards plus the prefixes of a key.
const maxBoards = 100

// Bound is the set of boards that a caller may use. The zero Bound has all boards.
type Bound struct {
	boards   []leaderboard.BoardID
	prefixes []string
}

const (
	boardsClaim   = "boards"
	prefixesClaim = "board_prefixes"
)

func boundOf(k *leaderboard.APIKey) Bound { return Bound{k.Boards, k.BoardPrefixes} }

// AllBoards reports whether b has all boards.
func (b Bound) AllBoards() bool { return len(b.boards) == 0 && len(b.prefixes) == 0 }

// Allows reports whether b has the board id.
func (b Bound) Allows(id leaderboard.BoardID) bool {
	return b.AllBoards() || slices.Contains(b.boards, id) ||
		slices.ContainsFunc(b.prefixes, func(prefix string) bool {
			return prefix != "" && strings.HasPrefix(string(id), prefix)
		})
}

// boundClaims rejects claims that are present but empty, because an empty Bound has all boards.
func boundClaims(t jwt.Token) (Bound, error) {
	if !t.Has(boardsClaim) && !t.Has(prefixesClaim) {
		return Bound{}, nil
	}
	boards, err := textsClaim(t, boardsClaim)
	if err != nil {
		return Bound{}, err
	}
	prefixes, err := textsClaim(t, prefixesClaim)
	if err != nil {
		return Bound{}, err
	}
	b := Bound{prefixes: prefixes}
	for _, id := range boards {
		b.boards = append(b.boards, leaderboard.BoardID(id))
	}
	if b.AllBoards() {
		return Bound{}, errors.New("auth: the claims boards and board_prefixes of the jwt are empty")
	}
	return b, CheckBoards(b.boards, b.prefixes)
}

func textsClaim(t jwt.Token, name string) ([]string, error) {
	if !t.Has(name) {
		return nil, nil
	}
	var list []any
	if err := t.Get(name, &list); err != nil {
		return nil, fmt.Errorf("auth: the claim %s of the jwt is not a list: %w", name, err)
	}
	texts := make([]string, len(list))
	for i, v := range list {
		var ok bool
		if texts[i], ok = v.(string); !ok {
			return nil, fmt.Errorf("auth: value %d of the claim %s of the jwt is not a text", i, name)
		}
	}
	return texts, nil
}

// BoardError means that a caller may not use Board. If Board is empty, the caller may not
// make calls that concern all boards.
type BoardError struct{ Board leaderboard.BoardID }

func (e *BoardError) Error() string {
	if e.Board == "" {
		return "this call concerns all boards, but the key or token is for some boards only: name a board if the method accepts one, or use a key for all boards"
	}
	return fmt.Sprintf("the key or token is not for board %q", string(e.Board))
}

// CheckBoards checks a key's boards and prefixes. Its error joins a
// [leaderboard.FieldError] for each fault.
func CheckBoards(boards []leaderboard.BoardID, prefixes []string) error {
	if n := len(boards) + len(prefixes); n > maxBoards {
		return &leaderboard.FieldError{Field: "boards", Problem: fmt.Sprintf("has %d values together with board_prefixes, at most %d are allowed", n, maxBoards)}
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

// checkBoard checks a board id or a prefix. A prefix must be a valid board id too.
func checkBoard(field string, i int, id leaderboard.BoardID, repeated bool) error {
	field = fmt.Sprintf("%s[%d]", field, i)
	var invalid *leaderboard.FieldError
	switch {
	case errors.As(id.Validate(), &invalid):
		return &leaderboard.FieldError{Field: field, Problem: invalid.Problem}
	case repeated:
		return &leaderboard.FieldError{Field: field, Problem: fmt.Sprintf("%q is given twice", string(id))}
	}
	return nil
}
