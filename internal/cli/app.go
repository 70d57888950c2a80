// Package cli contains the input, output, help and usage errors of commands.
package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// App contains the standard streams and the environment of a command.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string // as os.Environ returns it
}

// Getenv returns an environment variable, or "".
func (a *App) Getenv(name string) string {
	for _, e := range a.Environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// IsTerminal reports whether stream, an [io.Reader] or [io.Writer], is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Colors reports whether stdout is a terminal that supports colors, and NO_COLOR is not
// set.
func (a *App) Colors() bool {
	return IsTerminal(a.Stdout) && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"
}

// terminalSize returns 80 and 24 if stdout is not a terminal.
func (a *App) terminalSize() (columns, rows int) {
	if file, ok := a.Stdout.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 && rows > 0 {
			return columns, rows
		}
	}
	return 80, 24
}

// Confirm returns nil if yes is true. Otherwise, Confirm asks the user to type the text of
// word. If the answer differs, or stdin is not a terminal, Confirm returns an error.
func (a *App) Confirm(yes bool, question, word string) error {
	if yes {
		return nil
	}
	if !IsTerminal(a.Stdin) {
		return Usagef("%s Confirm it with --yes", question)
	}
	a.Notef("%s\nType %s to continue: ", question, word)
	var line bytes.Buffer
	for buf := make([]byte, 1); ; {
		if n, err := a.Stdin.Read(buf); n == 0 || err != nil || buf[0] == '\n' {
			break
		}
		line.WriteByte(buf[0])
	}
	if strings.TrimSpace(line.String()) != word {
		return fmt.Errorf("nothing was done, because the answer was not %s", word)
	}
	return nil
}
