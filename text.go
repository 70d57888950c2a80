package leaderboard

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

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

const maxSeasonIDBytes = 64

func (id SeasonID) validate(field string) error {
	if id == "" || len(id) > maxSeasonIDBytes {
		return fieldErrorf(field, "is %d bytes long, 1 to %d are allowed", len(id), maxSeasonIDBytes)
	}
	return checkPrintable(field, string(id))
}

func checkNewID(field, s string) error {
	if err := checkID(field, s); err != nil {
		return err
	}
	return checkNewText(field, s)
}

func checkNewText(field, s string) error {
	if s == "." || s == ".." {
		return fieldErrorf(field, "must not be %q, which clients remove from URLs", s)
	}
	return checkVisible(field, s)
}

func checkVisible(field, s string) error {
	if s != "" && !strings.ContainsFunc(s, visible) {
		return fieldErrorf(field, "has no visible character")
	}
	return nil
}

// visible reports whether r alone is text: combining marks need a letter, and replacement
// characters stand for text that was lost.
func visible(r rune) bool {
	const brailleBlank, objectReplacement = '\u2800', '\ufffc'
	return r != ' ' && r != brailleBlank && r != objectReplacement && r != utf8.RuneError &&
		!unicode.In(r, unicode.M, unicode.Cf, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point)
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
		if err := checkUTF8(field, s, i, r); err != nil {
			return err
		}
		switch {
		case unicode.IsPrint(r), inSequence(s, i, r):
		case unicode.Is(unicode.Zs, r):
			return fieldErrorf(field, "has %s at byte %d; the only space that is allowed is U+0020", spaceName(r), i)
		case r == zeroWidthJoiner:
			return fieldErrorf(field, "has a zero-width joiner (U+200D) at byte %d, which is allowed after a virama and between emoji only", i)
		case r == zeroWidthNonJoiner:
			return fieldErrorf(field, "has a zero-width non-joiner (U+200C) at byte %d, which is allowed after a virama and between joining letters only", i)
		default:
			return fieldErrorf(field, "has an unprintable character (%U) at byte %d", r, i)
		}
	}
	return nil
}

func checkUTF8(field, s string, i int, r rune) error {
	if r == utf8.RuneError {
		if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
			return fieldErrorf(field, "is not valid UTF-8 at byte %d", i)
		}
	}
	return nil
}

func spaceName(r rune) string {
	switch r {
	case '\u00a0':
		return "a no-break space (U+00A0)"
	case '\u202f':
		return "a narrow no-break space (U+202F)"
	case '\u3000':
		return "an ideographic space (U+3000)"
	}
	return fmt.Sprintf("a space of Unicode (%U)", r)
}

const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
	variationEmoji     = '\ufe0f' // selects the emoji form of the character before it
	blackFlag          = '\U0001f3f4'
	firstTag           = '\U000e0020'
	cancelTag          = '\U000e007f'
)

// inSequence reports whether r, at byte i of s, is a part of a longer sequence that needs it,
// although r alone is not printable.
func inSequence(s string, i int, r rune) bool {
	before, after := s[:i], s[i+utf8.RuneLen(r):]
	switch {
	case r == zeroWidthJoiner:
		return endsInVirama(before) || joinsEmoji(before, after)
	case r == zeroWidthNonJoiner:
		return endsInVirama(before) || splitsLigature(before, after)
	case r >= firstTag && r <= cancelTag:
		return inFlag(before, s[i:])
	}
	return false
}

func endsInVirama(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return unicode.Is(virama, r)
}

// joinsEmoji reports whether an emoji ends before a joiner, and another one starts after it.
func joinsEmoji(before, after string) bool {
	last, size := utf8.DecodeLastRuneInString(before)
	if last == variationEmoji || last >= '\U0001f3fb' && last <= '\U0001f3ff' { // the five skin tones
		last, _ = utf8.DecodeLastRuneInString(before[:len(before)-size])
	}
	next, _ := utf8.DecodeRuneInString(after)
	return unicode.Is(pictographic, last) && unicode.Is(pictographic, next)
}

// splitsLigature reports whether the letters around a non-joiner would be joined without it.
func splitsLigature(before, after string) bool {
	last, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(before, transparent))
	next, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(after, transparent))
	return unicode.Is(joinsNext, last) && unicode.Is(joinsPrevious, next)
}

// transparent reports whether a printable character has the Joining_Type T.
func transparent(r rune) bool {
	const adlamNasalization = '\U0001e94b' // the only one that is not a mark
	return unicode.In(r, unicode.Mn, unicode.Me) || r == adlamNasalization
}

// inFlag reports whether the tags around a place are those of England, Scotland or Wales, after
// a black flag. Unicode recommends no other emoji with tags.
func inFlag(before, after string) bool {
	isTag := func(r rune) bool { return r >= firstTag && r <= cancelTag }
	flag, tagsAfter := strings.TrimRightFunc(before, isTag), len(after)-len(strings.TrimLeftFunc(after, isTag))
	if r, _ := utf8.DecodeLastRuneInString(flag); r != blackFlag {
		return false
	}
	region := strings.Map(func(r rune) rune { return r - firstTag + ' ' }, before[len(flag):]+after[:tagsAfter])
	return slices.Contains([]string{"gbeng\x7f", "gbsct\x7f", "gbwls\x7f"}, region)
}

// CheckText returns a [FieldError] if s, a text that only people read, is longer than maxBytes
// or is not UTF-8, or if it has control characters or changes the direction of other text.
func CheckText(field, s string, maxBytes int) error {
	if len(s) > maxBytes {
		return fieldErrorf(field, "is %d bytes long, at most %d are allowed", len(s), maxBytes)
	}
	for i, r := range s {
		if err := checkUTF8(field, s, i, r); err != nil {
			return err
		}
		marksDirection := r == '\u200e' || r == '\u200f' || r == '\u061c' // without an effect on later text
		if !unicode.IsGraphic(r) && (!unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r) && !marksDirection) {
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
