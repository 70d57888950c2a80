package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/pflag"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

const liveEntries = 100

// live shows the top on the whole terminal, until the user quits or ctx is done.
func (c *Client) live(ctx context.Context, f *pflag.FlagSet, req *pb.WatchScoresRequest) error {
	for _, name := range []string{"from", "page-token", "order", "min-score", "max-score", "around-score", "top-percent", "include-metadata"} {
		if f.Changed(name) {
			return cli.Usagef("--live and --%s cannot be combined, because --live shows the top", name)
		}
	}
	if !c.Output.IsTable() {
		return cli.Usagef("--live shows a table only; for other formats, use `leaderboard watch -o json`")
	}
	if !cli.IsTerminal(c.Stdin) || !cli.IsTerminal(c.Stdout) || c.Getenv("TERM") == "dumb" {
		return cli.Usagef("--live needs a terminal; elsewhere, use `leaderboard watch`")
	}
	if !f.Changed("limit") {
		*req.Limit = liveEntries
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	screen := &liveScreen{table: c.entryTable(ctx, req.GetBoard())}
	program := tea.NewProgram(screen, tea.WithContext(ctx), tea.WithInput(c.Stdin), tea.WithOutput(c.Stdout), tea.WithEnvironment(c.Environ), tea.WithoutSignalHandler())
	followed := make(chan error, 1)
	go func() {
		err := c.follow(ctx, req, func(d *pb.Leaderboard) error {
			program.Send(d)
			return nil
		}, func() { program.Send(connectionLost{}) })
		program.Quit()
		followed <- err
	}()
	_, err := program.Run()
	cancel()
	if followErr := <-followed; !errors.Is(followErr, ErrInterrupted) {
		return followErr
	}
	if err != nil && !errors.Is(err, tea.ErrProgramKilled) {
		return err
	}
	return ErrInterrupted
}

type connectionLost struct{}

// liveScreen implements [tea.Model].
type liveScreen struct {
	table         *EntryTable
	rows          *cli.Table // nil before the first answer
	count         int        // of the entries
	footer        string
	lost          bool
	columns, high int // of the terminal
	first         int // first shown entry, from 0
}

// Init implements [tea.Model].
func (*liveScreen) Init() tea.Cmd { return nil }

// Update implements [tea.Model].
func (s *liveScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case *pb.Leaderboard:
		s.rows, s.count, s.footer, s.lost = s.table.table(msg.GetLeaderboard()), len(msg.GetLeaderboard()), describe(msg), false
		s.table.mark(msg)
	case connectionLost:
		s.lost = true
	case tea.WindowSizeMsg:
		s.columns, s.high = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return s, tea.Quit
		case "up", "k":
			s.first--
		case "down", "j":
			s.first++
		case "pgup":
			s.first -= s.room()
		case "pgdown", "space":
			s.first += s.room()
		case "home", "g":
			s.first = 0
		case "end", "G":
			s.first = s.count
		}
	}
	s.first = max(min(s.first, s.count-s.room()), 0)
	return s, nil
}

// room returns the number of entries that fit between the header and the last two lines.
func (s *liveScreen) room() int { return max(s.high-3-strings.Count(s.foot(), "\n"), 1) }

func (s *liveScreen) foot() string {
	return cli.Fold(s.footer, separator, max(s.columns, 1))
}

// View implements [tea.Model].
func (s *liveScreen) View() tea.View {
	view := tea.NewView("connecting")
	view.AltScreen = true
	if s.rows == nil || s.columns == 0 {
		return view
	}
	lines := strings.Split(strings.TrimSuffix(s.rows.Cut(s.columns), "\n"), "\n")
	shown := append([]string{lines[0]}, lines[1+s.first:min(1+s.first+s.room(), len(lines))]...)
	for len(shown) < s.room()+1 {
		shown = append(shown, "")
	}
	keys := "q quit"
	if s.count > s.room() {
		keys += fmt.Sprintf("%s↑↓ scroll, %d to %d of %d shown", separator, s.first+1, min(s.first+s.room(), s.count), s.count)
	}
	if s.lost {
		keys = "connection lost, reconnecting" + separator + keys
	}
	view.Content = strings.Join(append(shown, s.foot(), cli.Cut(keys, s.columns)), "\n")
	return view
}
