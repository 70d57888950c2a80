package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress shows the progress of an operation if stderr is a terminal.
type Progress struct {
	app   *App
	title string
	bar   *progressbar.ProgressBar // nil while nothing is shown
	label string
}

// NewProgress returns a progress whose bars are labeled with title.
func (a *App) NewProgress(title string) *Progress { return &Progress{app: a, title: title} }

// Show shows the number of completed steps, in a new bar for each season.
func (p *Progress) Show(board, season string, done int64) {
	if !IsTerminal(p.app.Stderr) {
		return
	}
	label := strings.TrimSpace(p.title + " " + board + " " + season)
	if p.bar == nil || p.label != label {
		p.End()
		p.bar, p.label = p.app.NewBar(label, -1, false), label
	}
	_ = p.bar.Set64(done)
}

// End removes the bar.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}

// NewBar starts a progress bar on stderr, if stderr is a terminal. A total of -1 means
// unknown. If bytes is true, the bar counts bytes.
func (a *App) NewBar(label string, total int64, bytes bool) *progressbar.ProgressBar {
	out := io.Discard
	if IsTerminal(a.Stderr) {
		out = a.Stderr
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(Escape(label)), progressbar.OptionShowCount(),
		progressbar.OptionShowBytes(bytes), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(total > 0), progressbar.OptionFullWidth(), progressbar.OptionSpinnerType(14),
		progressbar.OptionClearOnFinish())
}

// Screen shows a text that changes. On a terminal, each text replaces the previous one.
type Screen struct {
	app   *App
	lines int // of the shown text
}

// NewScreen returns a screen on stdout.
func (a *App) NewScreen() *Screen { return &Screen{app: a} }

// InPlace reports whether a text replaces the previous text.
func (s *Screen) InPlace() bool { return IsTerminal(s.app.Stdout) }

// Size returns the columns and rows of the screen.
func (s *Screen) Size() (columns, rows int) { return s.app.terminalSize() }

// Draw shows text, whose lines must end in "\n". The caller must [Escape] the parts that
// come from servers and files.
func (s *Screen) Draw(text string) {
	if !s.InPlace() {
		fmt.Fprintln(s.app.Stdout, text)
		return
	}
	s.Clear()
	fmt.Fprint(s.app.Stdout, text)
	s.lines = strings.Count(text, "\n")
}

// Clear removes the shown text.
func (s *Screen) Clear() {
	if s.lines > 0 {
		fmt.Fprintf(s.app.Stdout, "\x1b[%dA\x1b[J", s.lines)
		s.lines = 0
	}
}

// Keep leaves the shown text above the next text.
func (s *Screen) Keep() { s.lines = 0 }
