package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// A player chooses the names of divisions. A shell must not run a part of them, neither when it
// completes a line, nor when it runs the line. The names come in pairs, so that a shell inserts
// what they have in common.
func TestShellsDoNotRunCompletions(t *testing.T) {
	needs.Slow(t, "shells")
	payloads := []string{"`touch hit`aa", "$(touch hit)aa", "(touch hit)aa", ";touch hit;aa", "|touch hit;aa", "&touch hit;aa", "'`touch hit`aa", `"$(touch hit)aa`, "\\`touch hit`aa", "<(touch hit)aa"}
	s := startInsecure(t)
	s.ok(t, "board", "create", "safe-one", "--policy", "best")
	for i, p := range payloads {
		board := fmt.Sprintf("b%d", i)
		s.ok(t, "board", "create", board, "--policy", "best", "--division", "clan", "--title", "$(touch hit)`touch hit`")
		for _, n := range []string{"1", "2"} {
			s.ok(t, "submit", "u"+n, "--board", board, "--score", "1", "--attribute", "clan="+p+n)
		}
	}
	for _, shell := range []struct {
		name, setup, done string
		args              []string
	}{
		{"bash", `_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; }
COMP_WORDBREAKS=$' \t\n'; source <(leaderboard completion bash)`, "echo done-$((%d))", []string{"--norc", "--noprofile", "-i"}},
		{"zsh", "autoload -U compinit; compinit -D -u; source <(leaderboard completion zsh)", "echo done-$((%d))", []string{"-f", "-i"}},
		{"fish", "leaderboard completion fish | source", "echo done-(math %d)", []string{"--no-config", "-i"}},
	} {
		t.Run(shell.name, func(t *testing.T) {
			needs.Programs(t, shell.name)
			terminal := startShell(t, s, shell.name, shell.args...)
			lines := 0
			run := func(keys string) {
				t.Helper()
				lines++
				terminal.send(t, keys+"\n"+fmt.Sprintf(shell.done, 1000+lines)+"\n")
				terminal.wait(t, fmt.Sprintf("done-%d", 1000+lines))
			}
			run(shell.setup)
			for i, p := range payloads {
				run(fmt.Sprintf("leaderboard top --board b%d --division clan:\t\t\t", i))
				if _, err := os.Stat(filepath.Join(terminal.dir, "hit")); err == nil {
					t.Fatalf("the shell has run a part of the division %q; the terminal shows:\n%s", p, terminal.shown)
				}
			}
			run("leaderboard top --board b\t\t\t\n") // lists the titles; the first line end takes an entry of the list in fish
			if _, err := os.Stat(filepath.Join(terminal.dir, "hit")); err == nil {
				t.Fatalf("the shell has run a part of a title; the terminal shows:\n%s", terminal.shown)
			}
			terminal.send(t, "leaderboard board show sa\t\n")
			terminal.wait(t, "safe-one") // completed
			terminal.wait(t, "policy")   // and run
		})
	}
}

type shellTerminal struct {
	dir    string // of the shell
	screen *os.File
	shown  *output
}

// startShell starts an interactive shell on a terminal. In its folder, the program leaderboard is
// a command for the server s.
func startShell(t *testing.T, s *testServer, shell string, args ...string) *shellTerminal {
	t.Helper()
	dir := t.TempDir()
	// The test binary ends when its standard input ends: see TestMain. It must not read the
	// shell's.
	stdin := filepath.Join(dir, "stdin")
	if err := unix.Mkfifo(stdin, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(stdin, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open.Close() })
	program := fmt.Sprintf("#!/bin/sh\n%s=1 LEADERBOARD_SERVER=%s exec %s \"$@\" < %s\n", childEnv, s.grpc, os.Args[0], stdin)
	if err := os.WriteFile(filepath.Join(dir, "leaderboard"), []byte(program), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	screen, tty := newTerminal(t)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shell, args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + dir + ":" + os.Getenv("PATH"), "TERM=xterm", "LC_ALL=C.UTF-8"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	terminal := &shellTerminal{dir, screen, &output{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(terminal.shown, screen)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		screen.Close()
		<-ended
	})
	return terminal
}

func (s *shellTerminal) send(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(s.screen, keys); err != nil {
		t.Fatal(err)
	}
}

func (s *shellTerminal) wait(t *testing.T, text string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the terminal shows:\n%s", s.shown)
		}
	}()
	eventually(t, "the terminal shows "+text, func() bool { return strings.Contains(s.shown.String(), text) })
}
