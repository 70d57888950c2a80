package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// A terminal gets colors, unless NO_COLOR is set or TERM is dumb.
func TestColorsOfATableOfEntries(t *testing.T) {
	s := startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--insecure")
	server := "LEADERBOARD_SERVER=" + s.grpc
	if r := command(t, "", []string{server}, "submit", "ada", "--points", "3"); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	for _, tt := range []struct {
		environ []string
		colors  bool
	}{{[]string{"TERM=xterm"}, true}, {[]string{"TERM=xterm", "NO_COLOR=1"}, false}, {[]string{"TERM=dumb"}, false}} {
		shown := onTerminal(t, append(tt.environ, server), nil, "rank", "ada")
		if !strings.Contains(shown, "ada") || strings.Contains(shown, "\x1b[") != tt.colors {
			t.Errorf("with %q, the terminal shows %q, want colors: %v", tt.environ, shown, tt.colors)
		}
	}
	if r := command(t, "", []string{server, "TERM=xterm"}, "rank", "ada"); !strings.Contains(r.stdout, "ada") || strings.Contains(r.stdout, "\x1b[") {
		t.Errorf("a pipe gets %q, want no colors", r.stdout)
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")

func TestDemoFitsATerminal(t *testing.T) {
	// The line below each table names the method of its ranks.
	tables := func(shown string) int { return strings.Count(shown, "competition ranks") }
	shown := onTerminal(t, []string{"TERM=xterm"}, func(shown string) bool { return tables(shown) >= 3 },
		"demo", "--data", filepath.Join(t.TempDir(), "data"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	for line := range strings.Lines(shown) {
		line = strings.TrimRight(escapes.ReplaceAllString(line, ""), "\r\n")
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("a line of the demo is %d columns wide, want at most 80: %q", n, line)
		}
	}
}
