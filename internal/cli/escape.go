package cli

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text from servers and files may contain control characters that a terminal executes.
// Commands must print such text with the functions of this file.

// harmless accepts graphic characters, the two joiners that emoji and some languages need, and
// the tags in flags such as England's.
func harmless(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner, firstTag, cancelTag = '\u200c', '\u200d', '\U000e0020', '\U000e007f'
	return unicode.IsGraphic(r) || r == zeroWidthNonJoiner || r == zeroWidthJoiner || r >= firstTag && r <= cancelTag
}

// Escape replaces each character that is not [harmless], and each byte that is not UTF-8,
// with its Go escape sequence, such as \x1b, \n or \u202e.
func Escape(text string) string { return escape(text, "", goEscape) }

// EscapeLines is like [Escape], but it keeps line breaks.
func EscapeLines(text string) string { return escape(text, "\n", goEscape) }

// EscapeJSON replaces each character that is not [harmless] with its \u sequence, but keeps
// line breaks. The JSON text still encodes the same value.
func EscapeJSON(text []byte) []byte {
	return []byte(escape(string(text), "\n", func(r rune, _ string) string {
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	}))
}

func escape(text, exceptions string, replace func(r rune, original string) string) string {
	var b strings.Builder
	done := 0 // b has the escaped form of text[:done]
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if harmless(r) && (r != utf8.RuneError || size > 1) || strings.ContainsRune(exceptions, r) {
			continue
		}
		b.WriteString(text[done:i])
		b.WriteString(replace(r, text[i:i+size]))
		done = i + size
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

func goEscape(_ rune, original string) string {
	q := strconv.QuoteToASCII(original)
	return q[1 : len(q)-1]
}

// Printf writes to stdout like [fmt.Printf]. It escapes every argument.
func (a *App) Printf(format string, args ...any) { fprintf(a.Stdout, format, args) }

// Notef writes to stderr like [fmt.Printf]. It escapes every argument.
func (a *App) Notef(format string, args ...any) { fprintf(a.Stderr, format, args) }

// Println escapes a line and writes it to stdout.
func (a *App) Println(line string) { a.Printf("%s\n", line) }

// WriteJSON escapes a JSON text and writes it to stdout as a line.
func (a *App) WriteJSON(text []byte) error {
	_, err := fmt.Fprintf(a.Stdout, "%s\n", EscapeJSON(text))
	return err
}

func fprintf(w io.Writer, format string, args []any) {
	escaped := make([]any, len(args))
	for i, arg := range args {
		escaped[i] = escapeValue(arg)
	}
	fmt.Fprintf(w, format, escaped...)
}

func escapeValue(v any) any {
	switch v := v.(type) {
	case nil:
		return v
	case styled:
		return string(v)
	case error:
		return Escape(v.Error())
	case fmt.Stringer:
		return Escape(v.String())
	case encoding.TextMarshaler:
		return Escape(fmt.Sprint(v))
	}
	switch reflect.TypeOf(v).Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return v
	}
	return Escape(fmt.Sprint(v))
}

type styled string

// Styled exempts a text, such as a color code, from escaping. The text must not come from a
// server or a file.
func Styled(text string) any { return styled(text) }
