package restjson

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON values (RFC 8259) from data.
type scanner struct {
	data []byte
	pos  int
}

// kind is the first byte of a value, or '0' for every number. The zero kind means that no
// value begins here.
type kind byte

func (s *scanner) peek() kind {
	s.skipSpace()
	if s.pos == len(s.data) {
		return 0
	}
	switch c := s.data[s.pos]; {
	case c == '{' || c == '[' || c == '"':
		return kind(c)
	case c == '-' || '0' <= c && c <= '9':
		return '0'
	case s.has("true") || s.has("false") || s.has("null"):
		return kind(c)
	}
	return 0
}

func (s *scanner) has(word string) bool {
	return len(s.data)-s.pos >= len(word) && string(s.data[s.pos:s.pos+len(word)]) == word
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// skip skips white space, then c, and reports whether it found c.
func (s *scanner) skip(c byte) bool {
	s.skipSpace()
	if s.pos == len(s.data) || s.data[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) readNumber() (text string, ok bool) {
	n := numberLen(s.data[s.pos:])
	text = string(s.data[s.pos : s.pos+n])
	s.pos += n
	return text, n > 0
}

// numberLen returns 0 if b does not begin with a JSON number.
func numberLen[T string | []byte](b T) int {
	i := 0
	digits := func() bool {
		start := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}

type textFault int8

const (
	noFault textFault = iota
	badSyntax
	badUTF8
	badSurrogate // a single half of an escaped surrogate pair
)

// If readText returns badSurrogate, the text has U+FFFD for each single half.
func (s *scanner) readText() (string, textFault) {
	s.pos++ // the quotation mark
	start, ascii := s.pos, true
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			raw := s.data[start:s.pos]
			s.pos++
			if !ascii && !utf8.Valid(raw) {
				return "", badUTF8
			}
			return string(raw), noFault
		case c == '\\':
			return s.readEscapedText(start)
		case c < ' ':
			return "", badSyntax
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", badSyntax
}

func (s *scanner) readEscapedText(start int) (string, textFault) {
	text := append([]byte(nil), s.data[start:s.pos]...)
	fault := noFault
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		s.pos++
		switch {
		case c == '"':
			if !utf8.Valid(text) {
				return "", badUTF8
			}
			return string(text), fault
		case c < ' ':
			return "", badSyntax
		case c != '\\':
			text = append(text, c)
		default:
			r, ok := s.readEscape()
			if !ok {
				return "", badSyntax
			}
			if utf16.IsSurrogate(r) {
				r, fault = utf8.RuneError, badSurrogate
			}
			text = utf8.AppendRune(text, r)
		}
	}
	return "", badSyntax
}

// readEscape joins the two halves of a surrogate pair, and returns a single half unchanged.
func (s *scanner) readEscape() (rune, bool) {
	if s.pos == len(s.data) {
		return 0, false
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'u':
		r, ok := s.readHex()
		if !ok || !utf16.IsSurrogate(r) || !s.has(`\u`) {
			return r, ok
		}
		end := s.pos
		s.pos += len(`\u`)
		low, ok := s.readHex()
		if !ok {
			return 0, false
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, true
		}
		s.pos = end // the two escapes are not a pair
		return r, true
	}
	return 0, false
}

func (s *scanner) readHex() (rune, bool) {
	if len(s.data)-s.pos < 4 {
		return 0, false
	}
	digits := string(s.data[s.pos : s.pos+4])
	n, err := strconv.ParseUint(digits, 16, 16)
	if err != nil {
		return 0, false
	}
	s.pos += 4
	return rune(n), true
}
