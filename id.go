package leaderboard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxIDBytes is the largest length of a board, user or match id and of a division value.
const MaxIDBytes = 128

type (
	// BoardID identifies a board. Board, user and match ids have 1 to [MaxIDBytes] bytes of
	// printable UTF-8, and compare byte by byte.
	BoardID string
	// UserID identifies a user. A user has the same id on all boards.
	UserID string
	// MatchID identifies a match result within its board, season and user.
	MatchID string
)

// DefaultBoard is the board that the service creates when it first starts.
const DefaultBoard BoardID = "default"

// SeasonKey identifies one season of one board.
type SeasonKey struct {
	Board  BoardID
	Season SeasonID
}

// Ladder identifies one ranking: a season of a board, overall or in one division.
type Ladder struct {
	SeasonKey
	Division Division
}

// Validate returns a [FieldError] if id is not valid: see [BoardID].
func (id BoardID) Validate() error { return checkID("board_id", string(id)) }

// Validate returns a [FieldError] if id is not valid: see [BoardID].
func (id UserID) Validate() error { return checkID("user_id", string(id)) }

// Validate returns a [FieldError] if id is not valid: see [BoardID].
func (id MatchID) Validate() error { return checkID("match_id", string(id)) }

// ValidateNew returns a [FieldError] if new results must not have this user id. Stored
// results may have this id.
func (id UserID) ValidateNew() error { return checkNewID("user_id", string(id)) }

// ValidateNew returns a [FieldError] if new results must not have this match id. Stored
// results may have this id.
func (id MatchID) ValidateNew() error { return checkNewID("match_id", string(id)) }

func checkNewID(field, s string) error {
	if err := checkID(field, s); err != nil {
		return err
	}
	return checkNewText(field, s)
}

func checkNewText(field, s string) error {
	switch {
	case s == "." || s == "..":
		return fieldErrorf(field, "must not be %q, which clients remove from URLs", s)
	case !strings.ContainsFunc(s, visible):
		return fieldErrorf(field, "has no visible character")
	}
	return nil
}

func visible(r rune) bool {
	const brailleBlank = '\u2800'
	return r != ' ' && r != brailleBlank && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func checkID(field, s string) error {
	switch {
	case s == "":
		return fieldErrorf(field, "is required; it must be 1 to %d bytes of printable UTF-8", MaxIDBytes)
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

func checkName(field, s string) error {
	ok := s != "" && len(s) <= maxNameBytes && s[0] >= 'a' && s[0] <= 'z'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
	}
	if !ok {
		return fieldErrorf(field, "%.128q is not a name; use a lower-case letter, then lower-case letters, digits or underscores, at most %d bytes", s, maxNameBytes)
	}
	return nil
}
