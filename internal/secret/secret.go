// Package secret contains a type for passwords and keys that logs do not show.
package secret

import (
	"fmt"
	"log/slog"
	"strconv"
)

// Text is a key or a password. If it is printed, marshaled or logged, a placeholder
// appears. Convert it to string to use its value.
type Text string

const hidden = "[hidden]"

// String returns "[hidden]", or "" if t is empty.
func (t Text) String() string {
	if t == "" {
		return ""
	}
	return hidden
}

// GoString returns the placeholder in quotes, for %#v.
func (t Text) GoString() string { return strconv.Quote(t.String()) }

// MarshalText returns the placeholder.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue returns the placeholder for package slog.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Format writes the placeholder, even for %x. Package fmt does not call Format for %p, or for a
// Text in an unexported field of a struct.
func (t Text) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = f.Write([]byte(t.GoString()))
		return
	}
	_, _ = f.Write([]byte(t.String()))
}

// UnmarshalText sets t to text.
func (t *Text) UnmarshalText(text []byte) error {
	*t = Text(text)
	return nil
}
