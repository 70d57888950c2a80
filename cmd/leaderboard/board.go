package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func boardCommand(w *world) *cobra.Command {
	return parent("board", "Create, show, change and delete boards", `  leaderboard board list
  leaderboard board create marathon --policy best --order lower-first --unit s --division gender`,
		boardListCommand(w), boardShowCommand(w), boardCreateCommand(w), boardUpdateCommand(w), boardDeleteCommand(w))
}

func boardListCommand(w *world) *cobra.Command {
	return w.clientCommand(&cobra.Command{
		Use: "list", Short: "List boards", Args: exactly(),
		Example: "  leaderboard board list",
	}, func(ctx context.Context, c *client, _ []string) error {
		res, err := c.scores.ListBoards(ctx, &pb.ListBoardsRequest{})
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := newTable(table.Row{"board", "title", "policy", "order", "season", "divisions"})
			for _, b := range res.GetBoards() {
				t.AppendRow(table.Row{b.GetBoardId(), b.GetTitle(), b.GetPolicy().String(), b.GetOrder().String(), b.GetSeason().GetSchedule().String(), strings.Join(b.GetDivisions(), ",")})
			}
			writeTable(c.stdout, t)
		})
	})
}

func boardShowCommand(w *world) *cobra.Command {
	return w.clientCommand(&cobra.Command{
		Use: "show BOARD", Short: "Show a board's rules", Args: exactly("BOARD"),
		Example: `  leaderboard board show marathon
  leaderboard board show marathon --json > marathon.json`,
	}, func(ctx context.Context, c *client, args []string) error {
		res, err := c.scores.GetBoard(ctx, &pb.GetBoardRequest{Board: args[0]})
		if err != nil {
			return err
		}
		return c.print(res.GetBoard(), func() { writeBoard(c.stdout, res.GetBoard()) })
	})
}

func writeBoard(w io.Writer, b *pb.Board) {
	t := newTable(table.Row{"rule", "value"})
	row := func(name string, value any) { t.AppendRow(table.Row{name, value}) }
	row("board", b.GetBoardId())
	row("title", b.GetTitle())
	row("policy", b.GetPolicy())
	if b.GetHalfLife() != nil {
		row("half-life", b.GetHalfLife().AsDuration())
	}
	row("order", b.GetOrder())
	for _, tb := range b.GetTieBreakers() {
		row("tie-breaker", fmt.Sprintf("%s %s", tb.GetName(), tb.GetOrder()))
	}
	row("unit", b.GetUnit())
	row("decimals", b.GetDecimals())
	row("season", b.GetSeason().GetSchedule())
	row("time zone", b.GetSeason().GetTimeZone())
	row("grace", b.GetSeason().GetGrace().AsDuration())
	for _, win := range b.GetSeason().GetWindows() {
		row("window", fmt.Sprintf("%s  %s to %s", win.GetId(), when(win.GetStart()), when(win.GetEnd())))
	}
	row("divisions", strings.Join(b.GetDivisions(), ", "))
	for name, v := range map[string]*int64{"min": b.MinScore, "max": b.MaxScore, "floor": b.Floor} {
		if v != nil {
			row(name, *v)
		}
	}
	if b.GetRetention() != nil {
		row("retention", b.GetRetention().AsDuration())
	}
	row("created", when(b.GetCreatedAt()))
	writeTable(w, t)
}

// boardFlags are the flags that describe a board, or a file that does.
type boardFlags struct {
	file                                         string
	title, order, policy, unit, season, timeZone string
	tieBreakers, divisions, windows              []string
	decimals                                     int32
	halfLife, grace, retention                   time.Duration
	min, max, floor                              int64
}

// addFixed adds the flags of rules that never change.
func (f *boardFlags) addFixed(fs *pflag.FlagSet) {
	fs.StringVar(&f.policy, "policy", "best", "`how` a user's results make the score: best, sum, latest or decay")
	fs.StringVar(&f.order, "order", "higher-first", "`which` score stands better: higher-first or lower-first")
	fs.DurationVar(&f.halfLife, "half-life", 0, "of decay boards: after how long points are worth half")
	fs.StringArrayVar(&f.tieBreakers, "tie-breaker", nil, "a further column, as `name` or name:lower-first; the first decides first")
	fs.StringArrayVar(&f.divisions, "division", nil, "an `attribute` of results whose values slice the board")
	fs.StringVar(&f.season, "season", "none", "`cut` of time: none, daily, weekly, monthly or explicit (with --window)")
	fs.StringVar(&f.timeZone, "time-zone", "UTC", "IANA time `zone` in which seasons begin")
	scoreFlag(fs, &f.floor, "floor", "of sum boards: refuse what takes a sum below this `score`")
}

// addSettings adds the flags of what may be changed.
func (f *boardFlags) addSettings(fs *pflag.FlagSet) {
	fs.StringVarP(&f.file, "file", "f", "", "`file` with the board as JSON or YAML, - for standard input, in place of flags")
	fs.StringVar(&f.title, "title", "", "`title` for display")
	fs.StringVar(&f.unit, "unit", "", "`unit` for display: points, s")
	fs.Int32Var(&f.decimals, "decimals", 0, "`decimals` for display: with 2, a score of 1234 is shown as 12.34")
	fs.DurationVar(&f.grace, "grace", 24*time.Hour, "how long after its end a season takes late results")
	fs.StringArrayVar(&f.windows, "window", nil, "an explicit season as `id=start/end`: 2026=2026-01-01/2027-01-01")
	scoreFlag(fs, &f.min, "min", "least `score` or points of one result")
	scoreFlag(fs, &f.max, "max", "greatest `score` or points of one result")
	fs.DurationVar(&f.retention, "retention", 0, "how long a season is kept after it is sealed")
}

// board makes a board of the flags that were given, and the paths of its fields
// for an update.
func (f *boardFlags) board(w *world, id string, fs *pflag.FlagSet) (*pb.Board, []string, error) {
	if f.file != "" {
		return f.fromFile(w, id, fs)
	}
	b := &pb.Board{BoardId: id, Season: &pb.Board_Schedule{}}
	var paths []string
	var err error
	set := func(flag, path string, take func()) {
		if fl := fs.Lookup(flag); fl != nil && fl.Changed {
			take()
			paths = append(paths, path)
		}
	}
	set("title", "title", func() { b.Title = f.title })
	set("unit", "unit", func() { b.Unit = f.unit })
	set("decimals", "decimals", func() { b.Decimals = f.decimals })
	set("min", "min_score", func() { b.MinScore = &f.min })
	set("max", "max_score", func() { b.MaxScore = &f.max })
	set("floor", "floor", func() { b.Floor = &f.floor })
	set("grace", "season.grace", func() { b.Season.Grace = durationpb.New(f.grace) })
	set("retention", "retention", func() { b.Retention = durationpb.New(f.retention) })
	set("half-life", "half_life", func() { b.HalfLife = durationpb.New(f.halfLife) })
	set("time-zone", "season.time_zone", func() { b.Season.TimeZone = f.timeZone })
	set("division", "divisions", func() { b.Divisions = f.divisions })
	set("policy", "policy", func() { b.Policy, err = enum[pb.Board_Policy](err, "policy", f.policy, pb.Board_Policy_value) })
	set("order", "order", func() { b.Order, err = enum[pb.Board_Order](err, "order", f.order, pb.Board_Order_value) })
	set("season", "season.schedule", func() {
		b.Season.Schedule, err = enum[pb.Board_Schedule_Kind](err, "season", f.season, pb.Board_Schedule_Kind_value)
	})
	set("tie-breaker", "tie_breakers", func() {
		for _, tb := range f.tieBreakers {
			name, order, _ := strings.Cut(tb, ":")
			column := &pb.Board_TieBreaker{Name: name, Order: pb.Board_HIGHER_FIRST}
			if order != "" {
				column.Order, err = enum[pb.Board_Order](err, "tie-breaker", order, pb.Board_Order_value)
			}
			b.TieBreakers = append(b.TieBreakers, column)
		}
	})
	set("window", "season.windows", func() {
		for _, text := range f.windows {
			window, werr := parseWindow(text)
			if err == nil {
				err = werr
			}
			b.Season.Windows = append(b.Season.Windows, window)
		}
	})
	return b, paths, err
}

// enum reads a name as people write it, lower-first, unless there was an error before.
func enum[E ~int32](before error, flag, name string, values map[string]int32) (E, error) {
	v, ok := values[strings.ToUpper(strings.ReplaceAll(name, "-", "_"))]
	if before == nil && (!ok || v == 0) {
		var known []string
		for value := int32(1); len(known) < len(values)-1; value++ {
			for n, v := range values {
				if v == value {
					known = append(known, strings.ToLower(strings.ReplaceAll(n, "_", "-")))
				}
			}
		}
		before = usagef("--%s %q is none of %s", flag, name, strings.Join(known, ", "))
	}
	return E(v), before
}

func parseWindow(text string) (*pb.Board_Schedule_Window, error) {
	id, span, ok := strings.Cut(text, "=")
	from, to, ok2 := strings.Cut(span, "/")
	start, err1 := parseTime(from)
	end, err2 := parseTime(to)
	if !ok || !ok2 || err1 != nil || err2 != nil {
		return nil, usagef("--window %q is not of the form id=start/end, as 2026=2026-01-01/2027-01-01", text)
	}
	return &pb.Board_Schedule_Window{Id: id, Start: timestamppb.New(start), End: timestamppb.New(end)}, nil
}

// parseTime reads a day, which begins at midnight UTC, or an instant.
func parseTime(s string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		err = fmt.Errorf("%q is not a time as 2026-11-20T10:00:00Z or a day as 2026-11-20", s)
	}
	return t, err
}

func (f *boardFlags) fromFile(w *world, id string, fs *pflag.FlagSet) (*pb.Board, []string, error) {
	var other string
	fs.Visit(func(fl *pflag.Flag) {
		if boardFlag(fl.Name) {
			other = fl.Name
		}
	})
	if other != "" {
		return nil, nil, usagef("--file and --%s do not go together; write it into the file", other)
	}
	data, err := readAll(w, f.file)
	if err != nil {
		return nil, nil, err
	}
	b, paths, err := decodeBoard(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.file, err)
	}
	if b.GetBoardId() == "" {
		b.BoardId = id
	}
	if id != "" && b.GetBoardId() != id {
		return nil, nil, usagef("%s is of board %q, not %q", f.file, b.GetBoardId(), id)
	}
	return b, paths, nil
}

func boardFlag(name string) bool {
	var f boardFlags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.addFixed(fs)
	f.addSettings(fs)
	return name != "file" && fs.Lookup(name) != nil
}

// readAll reads a small file, or standard input for "-".
func readAll(w *world, path string) ([]byte, error) {
	var from io.Reader = w.stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	const limit = 1 << 20
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if len(data) > limit {
		err = fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return data, err
}

// decodeBoard reads a board as JSON or YAML, and the paths of the fields given.
func decodeBoard(data []byte) (*pb.Board, []string, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil { // JSON is YAML
		return nil, nil, err
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	b := &pb.Board{}
	if err := api.DecodeJSON(body, b); err != nil {
		return nil, nil, err
	}
	var paths []string
	for name, value := range fields {
		if season, ok := value.(map[string]any); ok && name == "season" {
			for part := range season {
				paths = append(paths, "season."+part)
			}
			continue
		}
		paths = append(paths, name)
	}
	return b, paths, nil
}

func boardCreateCommand(w *world) *cobra.Command {
	var f boardFlags
	cmd := &cobra.Command{
		Use: "create [BOARD]", Short: "Create a board", Args: between(0, "BOARD"),
		Long: `Create a board, from flags or from a file with the board as the API takes it.
Creating a board that exists with the same rules changes nothing.`,
		Example: `  leaderboard board create arena --policy sum --unit points --season monthly
  leaderboard board create marathon --policy best --order lower-first --unit s --division gender --division country
  leaderboard board create cup --policy sum --tie-breaker wins --season explicit --window 2026=2026-01-01/2027-01-01
  leaderboard board create -f board.yaml`,
	}
	f.addFixed(cmd.Flags())
	f.addSettings(cmd.Flags())
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		id := ""
		if len(args) > 0 {
			id = args[0]
		}
		b, _, err := f.board(w, id, cmd.Flags())
		if err != nil {
			return err
		}
		if b.GetBoardId() == "" {
			return usagef("BOARD is missing; see leaderboard board create --help")
		}
		res, err := c.scores.CreateBoard(ctx, &pb.CreateBoardRequest{Board: b})
		if err != nil {
			return err
		}
		return c.print(res.GetBoard(), func() { writeBoard(c.stdout, res.GetBoard()) })
	})
}

// mutable are the fields of a board that may be changed.
var mutable = map[string]bool{
	"title": true, "unit": true, "decimals": true, "min_score": true, "max_score": true,
	"season.grace": true, "season.windows": true, "retention": true,
}

func boardUpdateCommand(w *world) *cobra.Command {
	var f boardFlags
	cmd := &cobra.Command{
		Use: "update BOARD", Short: "Change a board's settings", Args: exactly("BOARD"),
		Long: `Change the settings given by flags, or all that may change from a file.
Order, policy, tie-breakers, divisions, floor and the cut of seasons are fixed;
a board with others is a new board.`,
		Example: `  leaderboard board update marathon --title "City marathon" --grace 72h
  leaderboard board update cup --window 2026=2026-01-01/2027-01-01 --window 2027=2027-01-01/2028-01-01`,
	}
	f.addSettings(cmd.Flags())
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		b, paths, err := f.board(w, args[0], cmd.Flags())
		if err != nil {
			return err
		}
		var changed []string
		for _, p := range paths {
			if mutable[p] {
				changed = append(changed, p)
			}
		}
		if len(changed) == 0 {
			return usagef("nothing to change; see leaderboard board update --help")
		}
		res, err := c.scores.UpdateBoard(ctx, &pb.UpdateBoardRequest{Board: b, UpdateMask: &fieldmaskpb.FieldMask{Paths: changed}})
		if err != nil {
			return err
		}
		return c.print(res.GetBoard(), func() { writeBoard(c.stdout, res.GetBoard()) })
	})
}

func boardDeleteCommand(w *world) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete BOARD", Short: "Delete a board with all its results", Args: exactly("BOARD"),
		Example: "  leaderboard board delete marathon",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		if err := w.confirm(yes, fmt.Sprintf("Delete board %s with all its results, for good?", args[0]), args[0]); err != nil {
			return err
		}
		res, err := c.scores.DeleteBoard(ctx, &pb.DeleteBoardRequest{Board: args[0]})
		if err != nil {
			return err
		}
		return c.print(res, func() { fmt.Fprintf(c.stdout, "board %s is deleted\n", args[0]) })
	})
}

// confirm asks for something that cannot be undone: the answer is the word.
func (w *world) confirm(yes bool, question, word string) error {
	if yes {
		return nil
	}
	if !isTerminal(w.stdin) {
		return usagef("this cannot be undone; say --yes")
	}
	fmt.Fprintf(w.stderr, "%s\nType %s to go on: ", question, word)
	var line bytes.Buffer
	for buf := make([]byte, 1); ; {
		if n, err := w.stdin.Read(buf); n == 0 || err != nil || buf[0] == '\n' {
			break
		}
		line.WriteByte(buf[0])
	}
	if strings.TrimSpace(line.String()) != word {
		return fmt.Errorf("nothing was done: the answer was not %s", word)
	}
	return nil
}
