package leaderboard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxIDBytes bounds board, user and match ids and division values, in bytes of
// UTF-8.
const MaxIDBytes = 128

type (
	// BoardID names a board. Like every id it is opaque: 1 to [MaxIDBytes]
	// bytes of printable UTF-8, compared byte by byte.
	BoardID string
	// UserID names a user.
	UserID string
	// MatchID names a match result among those of its board, season and user.
	MatchID string
)

// DefaultBoard is the board that exists from the first start on.
const DefaultBoard BoardID = "default"

// Scope is one season of one board: the extent within which a user has one set
// of results and one entry.
type Scope struct {
	Board  BoardID
	Season SeasonID
}

// Division is a slice of a board by the value of one attribute: "gender:F". The
// zero Division is the overall board.
type Division struct {
	Attribute string
	Value     string
}

// ParseDivision reads "attribute:value"; the empty string is overall. The value
// may hold further colons. It returns a [FieldError] for anything else.
func ParseDivision(s string) (Division, error) {
	if s == "" {
		return Division{}, nil
	}
	attribute, value, ok := strings.Cut(s, ":")
	if !ok {
		return Division{}, fieldErrorf("division", "%q is not of the form attribute:value", s)
	}
	if err := checkName("division", attribute); err != nil {
		return Division{}, err
	}
	if err := checkID("division", value); err != nil {
		return Division{}, err
	}
	return Division{attribute, value}, nil
}

// Overall says whether d is the whole board.
func (d Division) Overall() bool { return d == Division{} }

// String is the inverse of [ParseDivision].
func (d Division) String() string {
	if d.Overall() {
		return ""
	}
	return d.Attribute + ":" + d.Value
}

// Ladder is one ranking: a board's season, overall or in one division.
type Ladder struct {
	Scope
	Division Division
}

// Validate returns a [FieldError] if id breaks the limits of ids.
func (id BoardID) Validate() error { return checkID("board_id", string(id)) }

// Validate returns a [FieldError] if id breaks the limits of ids.
func (id UserID) Validate() error { return checkID("user_id", string(id)) }

// Validate returns a [FieldError] if id breaks the limits of ids.
func (id MatchID) Validate() error { return checkID("match_id", string(id)) }

// checkID reports whether s is 1 to MaxIDBytes bytes of printable UTF-8.
// Printable is [unicode.IsPrint]: letters, marks, numbers, punctuation, symbols
// and the ASCII space; no control, format or other white-space characters.
func checkID(field, s string) error {
	switch {
	case s == "":
		return fieldErrorf(field, "is required: 1 to %d bytes of printable UTF-8", MaxIDBytes)
	case len(s) > MaxIDBytes:
		return fieldErrorf(field, "is %d bytes long, at most %d are allowed", len(s), MaxIDBytes)
	}
	return checkPrintable(field, s)
}

func checkPrintable(field, s string) error {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return fieldErrorf(field, "is not valid UTF-8 at byte %d", i)
			}
		}
		if !unicode.IsPrint(r) {
			return fieldErrorf(field, "has an unprintable character (%U) at byte %d", r, i)
		}
	}
	return nil
}

const maxNameBytes = 64

// checkName reports whether s is a name of an attribute or tie-breaker: lower
// case letters, digits and underscores, a letter first.
func checkName(field, s string) error {
	ok := s != "" && len(s) <= maxNameBytes && s[0] >= 'a' && s[0] <= 'z'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
	}
	if !ok {
		return fieldErrorf(field, "%q is not a name: a lower-case letter, then letters, digits or underscores, at most %d bytes", s, maxNameBytes)
	}
	return nil
}
