// Package names compares the names of people without regard to case and accents.
package names

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Fold returns the form in which names are compared: compatibility decomposition (NFKD) without
// accents and invisible characters, then case folding. A text that begins with another one usually
// does so in this form too.
func Fold(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
			return -1
		}
		return r
	}, norm.NFKD.String(s))
	return norm.NFKD.String(cases.Fold().String(s))
}

// MaxIndexBytes is the largest length of a text of [Index].
const MaxIndexBytes = 96

// Index returns [Fold] without spaces around it and without zero bytes, cut to MaxIndexBytes.
func Index(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(Fold(s), "\x00", ""))
	if len(s) > MaxIndexBytes {
		s = strings.ToValidUTF8(s[:MaxIndexBytes], "")
	}
	return s
}

// A DenyList has names that profiles must not have. If it is nil, it denies nothing.
type DenyList struct {
	file    string
	entries atomic.Pointer[[]entry]
}

// An entry denies a folded text as a whole name, as a beginning, as an end, or anywhere.
type entry struct {
	text                 string
	anyBefore, anyBehind bool // the text may be between other texts
}

// ReadDenyList reads a file with one entry per line. An entry denies names that are equal after
// [Fold]. If an entry begins with *, other text may precede it in a name. If it ends with *, other
// text may follow it. Empty lines, and lines that begin with #, are ignored. Without a file,
// ReadDenyList returns nil.
func ReadDenyList(file string) (*DenyList, error) {
	if file == "" {
		return nil, nil
	}
	l := &DenyList{file: file}
	return l, l.Reload()
}

// Reload reads the file again. After an error, the previous entries stay in use.
func (l *DenyList) Reload() error {
	if l == nil {
		return nil
	}
	text, err := os.ReadFile(l.file)
	if err != nil {
		return fmt.Errorf("names: deny list: %w", err)
	}
	var entries []entry
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		e := entry{text: squeeze(strings.Trim(line, "*")), anyBefore: strings.HasPrefix(line, "*"), anyBehind: strings.HasSuffix(line, "*")}
		if e.text == "" {
			return fmt.Errorf("names: deny list %s: the entry %q would deny every name; remove it", l.file, line)
		}
		entries = append(entries, e)
	}
	l.entries.Store(&entries)
	return nil
}

// squeeze folds a text, and removes the spaces around it.
func squeeze(s string) string { return strings.TrimSpace(Fold(s)) }

// Denies reports whether an entry denies a name.
func (l *DenyList) Denies(name string) bool {
	if l == nil || name == "" {
		return false
	}
	name = squeeze(name)
	for _, e := range *l.entries.Load() {
		switch {
		case e.anyBefore && e.anyBehind && strings.Contains(name, e.text),
			e.anyBefore && strings.HasSuffix(name, e.text),
			e.anyBehind && strings.HasPrefix(name, e.text),
			name == e.text:
			return true
		}
	}
	return false
}
