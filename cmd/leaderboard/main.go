// Command leaderboard is the leaderboard service: the server, and its clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	w := &world{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	code := run(ctx, w, os.Args[1:])
	stop()
	os.Exit(code)
}

// The codes that the process exits with.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2 // the command line or the configuration is wrong
	exitDifferences = 3 // verify found differences that remain
)

// world is what a command sees of its surroundings.
type world struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
}

// run executes a command line and returns the exit code. A failure is told on
// stderr, in a last line that says what to do.
func run(ctx context.Context, w *world, args []string) int {
	root := newRoot(w)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, errQuiet) {
		return exitOK
	}
	fmt.Fprintln(w.stderr, "leaderboard:", strings.ReplaceAll(explain(err), "\n", "\nleaderboard: "))
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errDifferences):
		return exitDifferences
	}
	return exitFailure
}

// errQuiet ends a command that was interrupted where that is how it ends.
var errQuiet = errors.New("interrupted")

// usageError is a mistake in how a command was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// env returns a variable of the environment, or nothing.
func (w *world) env(name string) string {
	for _, e := range w.environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// isTerminal says whether a person sees what is written to f, or types what is
// read from it.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// terminalSize returns the columns and rows of the terminal that is stdout, or
// a common size.
func (w *world) terminalSize() (columns, rows int) {
	if file, ok := w.stdout.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 && rows > 0 {
			return columns, rows
		}
	}
	return 80, 24
}
