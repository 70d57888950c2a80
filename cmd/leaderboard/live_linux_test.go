package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func TestLiveTop(t *testing.T) {
	s := startInsecure(t)
	for i := range 40 {
		s.ok(t, "submit", fmt.Sprintf("user%02d", i), "--points", fmt.Sprint(100-i), "--match", "m")
	}
	screen, tty := newTerminal(t)
	resize := func(rows, columns uint16) {
		t.Helper()
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
			t.Fatal(err)
		}
	}
	resize(12, 60)
	shown := &output{}
	go func() { _, _ = io.Copy(shown, screen) }()
	exited := make(chan int, 1)
	app := &cli.App{Stdin: tty, Stdout: tty, Stderr: tty, Environ: []string{"LEADERBOARD_SERVER=" + s.grpc, "TERM=xterm-256color"}}
	go func() { exited <- run(t.Context(), app, []string{"top", "--live"}) }()
	mark := 0
	wait := func(text string) {
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Logf("the terminal shows:\n%q", shown)
			}
		}()
		eventually(t, "the terminal shows "+text, func() bool { return strings.Contains(shown.String()[mark:], text) })
	}
	send := func(keys string) {
		t.Helper()
		mark = len(shown.String())
		if _, err := screen.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	wait("\x1b[?1049h") // the alternate screen
	wait("user00")
	wait("1 to ")
	if strings.Contains(shown.String(), "user20") {
		t.Errorf("an entry that does not fit is shown:\n%q", shown)
	}
	s.ok(t, "submit", "late", "--points", "500", "--match", "m")
	wait("late")
	wait("★")
	send("G")
	wait("user39")
	mark = len(shown.String())
	resize(50, 100)
	wait("user10") // there is room for more
	send("q")
	if code := <-exited; code != exitOK {
		t.Errorf("after q, top --live exits with %d, want 0; the terminal shows:\n%q", code, shown)
	}
	wait("\x1b[?1049l")

	s.fails(t, exitUsage, []string{"needs a terminal", "leaderboard watch"}, "top", "--live")
	s.fails(t, exitUsage, []string{"--live and --from cannot be combined"}, "top", "--live", "--from", "3")
	s.fails(t, exitUsage, []string{"--live and --order cannot be combined"}, "top", "--live", "--order", "worst")
	s.fails(t, exitUsage, []string{"leaderboard watch -o json"}, "top", "--live", "-o", "json")
	missing := &output{}
	app = &cli.App{Stdin: tty, Stdout: tty, Stderr: missing, Environ: app.Environ}
	if code := run(t.Context(), app, []string{"top", "--live", "--board", "nope"}); code != exitFailure || !strings.Contains(missing.String(), "board not found") {
		t.Errorf("of a missing board, top --live exits with %d: %s", code, missing)
	}
}
