package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func boardCommand(app *cli.App) *cobra.Command {
	return cli.Parent("board", "Create, show, change and delete boards", `  leaderboard board list
  leaderboard board apply -f boards/
  leaderboard board create marathon --policy best --order lower-first --unit s --division gender`,
		boardListCommand(app), boardShowCommand(app), boardCreateCommand(app), boardUpdateCommand(app), boardDeleteCommand(app),
		boardApplyCommand(app), boardDiffCommand(app), boardCloneCommand(app))
}

func boardListCommand(app *cli.App) *cobra.Command {
	return DataCommand(app, &cobra.Command{
		Use: "list", Short: "List boards", Args: cli.Exactly(),
		Example: "  leaderboard board list",
	}, func(ctx context.Context, c *Client, _ []string) error {
		res, err := c.Scores.ListBoards(ctx, &pb.ListBoardsRequest{})
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := cli.NewTable(cli.Row{"board", "title", "policy", "order", "season", "divisions"})
			for _, b := range res.GetBoards() {
				t.AppendRow(cli.Row{b.GetBoardId(), b.GetTitle(), b.GetPolicy().String(), b.GetOrder().String(), b.GetSeason().GetSchedule().String(), strings.Join(b.GetDivisions(), ",")})
			}
			cli.WriteTable(c.Stdout, t)
		})
	})
}

func boardShowCommand(app *cli.App) *cobra.Command {
	return DataCommand(app, &cobra.Command{
		Use: "show BOARD", Short: "Show a board's rules", Args: cli.Exactly("BOARD"),
		Example: `  leaderboard board show marathon
  leaderboard board show marathon -o yaml > marathon.yaml`,
	}, func(ctx context.Context, c *Client, args []string) error {
		res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: args[0]})
		if err != nil {
			return err
		}
		return c.print(res.GetBoard(), func() { writeBoard(c.Stdout, res.GetBoard()) })
	})
}

func writeBoard(w io.Writer, b *pb.Board) {
	t := cli.NewTable(cli.Row{"rule", "value"})
	row := func(name string, value any) { t.AppendRow(cli.Row{name, value}) }
	number := func(name string, n int32) {
		if n != 0 {
			row(name, n)
		}
	}
	row("board", b.GetBoardId())
	row("title", b.GetTitle())
	row("policy", b.GetPolicy())
	if b.GetHalfLife() != nil {
		row("half-life", b.GetHalfLife().AsDuration())
	}
	number("k", b.GetK())
	number("drop worst", b.GetDropWorst())
	row("order", b.GetOrder())
	writeRanks(b, row)
	row("unit", b.GetUnit())
	row("decimals", b.GetDecimals())
	writeSeason(b.GetSeason(), row)
	row("divisions", strings.Join(b.GetDivisions(), ", "))
	if len(b.GetAttributes()) > 0 {
		row("attributes", strings.Join(b.GetAttributes(), ", "))
	}
	for _, limit := range []struct {
		name  string
		score *int64
	}{{"min", b.MinScore}, {"max", b.MaxScore}, {"floor", b.Floor}} {
		if limit.score != nil {
			row(limit.name, *limit.score)
		}
	}
	writeSource(b.GetSource(), row)
	if names := b.GetFillingDivisions(); len(names) > 0 {
		row("filling", "users may be missing in "+strings.Join(names, ", "))
	} else if b.GetFilling() {
		row("filling", "results from before the board's creation may be missing")
	}
	if len(b.GetLinkedBoards()) > 0 {
		row("linked boards", strings.Join(b.GetLinkedBoards(), ", "))
	}
	if b.GetPrivate() {
		row("private", true)
	}
	number("shards", b.GetShards())
	if b.GetMatches() {
		row("matches", "can be voided")
	}
	if b.GetRetention() != nil {
		row("retention", b.GetRetention().AsDuration())
	}
	row("created", formatTime(b.GetCreatedAt()))
	cli.WriteTable(w, t)
}

// writeRanks writes the rules that decide about equal scores, and about ranks.
func writeRanks(b *pb.Board, row func(name string, value any)) {
	for _, tb := range b.GetTieBreakers() {
		text := fmt.Sprintf("%s %s", tb.GetName(), tb.GetOrder())
		if tb.Combine != nil {
			text += " " + tb.GetCombine().String()
		}
		row("tie-breaker", text)
	}
	if b.Ties != nil {
		row("ties", b.GetTies())
	}
	if b.GetMinResults() != 0 {
		row("min results", b.GetMinResults())
	}
	if len(b.GetStatuses()) > 0 {
		row("statuses", strings.Trim(fmt.Sprint(b.GetStatuses()), "[]"))
	}
}

func writeSeason(s *pb.Board_Schedule, row func(name string, value any)) {
	row("season", s.GetSchedule())
	if s.GetDays() != 0 {
		row("days", s.GetDays())
	}
	for _, start := range [][2]string{{"day start", s.GetDayStart()}, {"year start", s.GetYearStart()}} {
		if start[1] != "" {
			row(start[0], start[1])
		}
	}
	if s.GetWeekStart() != 0 {
		row("week start", s.GetWeekStart())
	}
	if s.GetEvery() != nil {
		row("every", s.GetEvery().AsDuration())
		row("from", formatTime(s.GetFrom()))
	}
	row("time zone", s.GetTimeZone())
	row("grace", s.GetGrace().AsDuration())
	for _, win := range s.GetWindows() {
		row("window", fmt.Sprintf("%s  %s to %s", win.GetId(), formatTime(win.GetStart()), formatTime(win.GetEnd())))
	}
}

func writeSource(source *pb.Board_Source, row func(name string, value any)) {
	if source == nil {
		return
	}
	row("source", source.GetBoardId())
	for _, name := range slices.Sorted(maps.Keys(source.GetMatch())) {
		row("match", name+"="+source.GetMatch()[name])
	}
}

type boardFlags struct {
	file                                         string
	title, order, policy, unit, season, timeZone string
	tieBreakers, divisions, windows, attributes  []string
	decimals, days, shards, k, dropWorst         int32
	ties                                         string
	statuses                                     []string
	minResults                                   int64
	halfLife, grace, retention, every            time.Duration
	dayStart, weekStart, yearStart, from         string
	min, max, floor                              int64
	private, matches                             bool
	source                                       string
	match                                        map[string]string
}

func (f *boardFlags) addFixed(fs *pflag.FlagSet) {
	fs.StringVar(&f.policy, "policy", "best", "`policy` that computes a user's score from the results: best, sum, latest, decay, count, first, average, or best-k with --k")
	fs.StringVar(&f.order, "order", "higher-first", "`order` of scores: higher-first or lower-first")
	cli.Enum(fs, "policy", enumNames(pb.Board_Policy_value)...)
	cli.Enum(fs, "order", enumNames(pb.Board_Order_value)...)
	fs.DurationVar(&f.halfLife, "half-life", 0, "on decay boards: `duration` after which points count half")
	fs.Int32Var(&f.k, "k", 0, "on best-k boards: `number` of results that count, 1 to 100")
	fs.Int32Var(&f.dropWorst, "drop-worst", 0, "on best-k boards without --k: `number` of worst results that do not count, 1 to 100")
	fs.StringArrayVar(&f.tieBreakers, "tie-breaker", nil, "tie-breaker, as `name` or name:lower-first; on boards that combine results, also name:max, name:min, name:last or name:lower-first:min; repeat the flag for more, the most important first")
	fs.StringVar(&f.ties, "ties", "earliest-first", "`order` of users with equal scores: earliest-first, latest-first, user-id, or shared for user-id without ordinal ranks")
	cli.Enum(fs, "ties", enumNames(pb.Board_TieRule_value)...)
	fs.Int64Var(&f.minResults, "min-results", 0, "`number` of results from which a user has a rank")
	fs.StringSliceVar(&f.statuses, "statuses", nil, "`list` of statuses that results may have: dnf, dns, dsq, cut and hors-concours, in the order in which entries without a rank are listed")
	fs.StringVar(&f.season, "season", "none", "`schedule` of seasons: none, hourly, daily, weekly, monthly, quarterly, yearly, every with --every and --from, rolling with --days, or explicit with --window")
	cli.Enum(fs, "season", enumNames(pb.Board_Schedule_Kind_value)...)
	fs.Int32Var(&f.days, "days", 0, "with --season rolling: `number` of days in each season, 2 to 31; needs --source and --retention")
	fs.StringVar(&f.dayStart, "day-start", "00:00", "`time` at which the days of seasons begin, such as 04:00")
	fs.StringVar(&f.weekStart, "week-start", "monday", "with --season weekly: first `day` of a week")
	cli.Enum(fs, "week-start", enumNames(pb.Board_Schedule_Weekday_value)...)
	fs.StringVar(&f.yearStart, "year-start", "01-01", "with --season yearly: first `day` of a year, as month-day, such as 04-01")
	fs.DurationVar(&f.every, "every", 0, "with --season every: length of a season, such as 336h")
	fs.StringVar(&f.from, "from", "", "with --season every: `time` at which the first season begins, such as 2026-11-20T10:00:00Z")
	fs.StringVar(&f.timeZone, "time-zone", "UTC", "IANA time `zone` of the schedule")
	fs.StringVar(&f.source, "source", "", "link the new board to this `board`, whose results then count on both")
	annotate(fs, "source", boardValues)
	fs.StringToStringVar(&f.match, "match", nil, "with --source: count only results with this `attribute=value`, so that the board ranks results, and not users as a division does; repeat the flag for more")
	scoreFlag(fs, &f.floor, "floor", "on sum boards: reject results that lower a sum below this `score`; a retraction may lower it further")
}

func (f *boardFlags) addSettings(fs *pflag.FlagSet) {
	fs.StringVarP(&f.file, "file", "f", "", "`file` with the board as JSON or YAML, instead of flags; - is standard input")
	fs.StringVar(&f.title, "title", "", "`title` to display")
	fs.StringVar(&f.unit, "unit", "", "`unit` to display, such as points or s")
	fs.Int32Var(&f.decimals, "decimals", 0, "number of `decimals` to display: with 2, a score of 1234 is shown as 12.34")
	fs.DurationVar(&f.grace, "grace", 24*time.Hour, "how long after its end a season accepts late results")
	fs.StringArrayVar(&f.divisions, "division", nil, "`attribute` of results whose values are divisions; a division ranks users, not results: each user is in the division that the latest result with the attribute names, with the entry from all results; gender+age crosses two attributes")
	fs.StringArrayVar(&f.windows, "window", nil, "explicit season, as `id=start/end`, such as 2026=2026-01-01/2027-01-01; repeat the flag for more")
	scoreFlag(fs, &f.min, "min", "minimum `score` or points of a result")
	scoreFlag(fs, &f.max, "max", "maximum `score` or points of a result")
	fs.StringArrayVar(&f.attributes, "attribute", nil, "further `attribute` that results may have, besides attributes of divisions; * means any")
	fs.BoolVar(&f.matches, "matches", false, "list matches, and let administrators void and restore them; cannot be switched off")
	fs.BoolVar(&f.private, "private", false, "on a server with public_read: hide the board from callers without a key")
	fs.Int32Var(&f.shards, "shards", 0, "`number` of shards in the rank index of a distributed server (if omitted, the server's setting redis.shards)")
	fs.DurationVar(&f.retention, "retention", 0, "how long to keep a season after it is sealed (if omitted, forever)")
}

func (f *boardFlags) board(app *cli.App, id string, fs *pflag.FlagSet) (*pb.Board, []string, error) {
	if f.file != "" {
		return f.fromFile(app, id, fs)
	}
	b := &pb.Board{BoardId: id, Season: &pb.Board_Schedule{}}
	var paths []string
	var err error
	set := func(flag, path string, assign func()) {
		if fl := fs.Lookup(flag); fl != nil && fl.Changed {
			assign()
			paths = append(paths, path)
		}
	}
	set("title", "title", func() { b.Title = f.title })
	set("unit", "unit", func() { b.Unit = f.unit })
	set("decimals", "decimals", func() { b.Decimals = f.decimals })
	set("min", "min_score", func() { b.MinScore = &f.min })
	set("max", "max_score", func() { b.MaxScore = &f.max })
	set("floor", "floor", func() { b.Floor = &f.floor })
	set("retention", "retention", func() { b.Retention = durationpb.New(f.retention) })
	set("private", "private", func() { b.Private = f.private })
	set("shards", "shards", func() { b.Shards = &f.shards })
	set("matches", "matches", func() { b.Matches = &f.matches })
	set("half-life", "half_life", func() { b.HalfLife = durationpb.New(f.halfLife) })
	set("k", "k", func() { b.K = &f.k })
	set("drop-worst", "drop_worst", func() { b.DropWorst = &f.dropWorst })
	set("min-results", "min_results", func() { b.MinResults = &f.minResults })
	set("division", "divisions", func() {
		b.Divisions = slices.DeleteFunc(f.divisions, func(name string) bool { return name == "" }) // --division "" means none
	})
	set("attribute", "attributes", func() { b.Attributes = f.attributes })
	set("source", "source", func() { b.Source = &pb.Board_Source{BoardId: f.source, Match: f.match} })
	if err == nil && len(f.match) > 0 && f.source == "" {
		err = cli.Usagef("--match needs --source")
	}
	set("policy", "policy", func() { b.Policy, err = parseEnum[pb.Board_Policy](err, "policy", f.policy, pb.Board_Policy_value) })
	set("order", "order", func() { b.Order, err = parseEnum[pb.Board_Order](err, "order", f.order, pb.Board_Order_value) })
	set("tie-breaker", "tie_breakers", func() {
		for _, tb := range f.tieBreakers {
			column, terr := parseTieBreaker(tb)
			err = cmp.Or(err, terr)
			b.TieBreakers = append(b.TieBreakers, column)
		}
	})
	set("ties", "ties", func() {
		var ties pb.Board_TieRule
		ties, err = parseEnum[pb.Board_TieRule](err, "ties", f.ties, pb.Board_TieRule_value)
		b.Ties = &ties
	})
	set("statuses", "statuses", func() {
		for _, text := range f.statuses {
			var status pb.Result_Finish
			status, err = parseEnum[pb.Result_Finish](err, "statuses", text, pb.Result_Finish_value)
			b.Statuses = append(b.Statuses, status)
		}
	})
	return b, paths, errors.Join(err, f.setSeason(b.Season, set))
}

// parseTieBreaker parses a name, followed by an order, a combination or both.
func parseTieBreaker(text string) (*pb.Board_TieBreaker, error) {
	name, rest, more := strings.Cut(text, ":")
	tb := &pb.Board_TieBreaker{Name: name, Order: pb.Board_HIGHER_FIRST}
	for more {
		var word string
		word, rest, more = strings.Cut(rest, ":")
		if combine, err := parseEnum[pb.Board_TieBreaker_Combination](nil, "tie-breaker", word, pb.Board_TieBreaker_Combination_value); err == nil {
			tb.Combine = &combine
			continue
		}
		order, err := parseEnum[pb.Board_Order](nil, "tie-breaker", word, pb.Board_Order_value)
		if err != nil {
			return nil, cli.Usagef("--tie-breaker %q: %q is not one of higher-first, lower-first, sum, max, min, last", text, word)
		}
		tb.Order = order
	}
	return tb, nil
}

func (f *boardFlags) setSeason(season *pb.Board_Schedule, set func(flag, path string, assign func())) (err error) {
	set("grace", "season.grace", func() { season.Grace = durationpb.New(f.grace) })
	set("days", "season.days", func() { season.Days = &f.days })
	set("day-start", "season.day_start", func() { season.DayStart = &f.dayStart })
	set("year-start", "season.year_start", func() { season.YearStart = &f.yearStart })
	set("every", "season.every", func() { season.Every = durationpb.New(f.every) })
	set("time-zone", "season.time_zone", func() { season.TimeZone = f.timeZone })
	set("season", "season.schedule", func() {
		season.Schedule, err = parseEnum[pb.Board_Schedule_Kind](err, "season", f.season, pb.Board_Schedule_Kind_value)
	})
	set("week-start", "season.week_start", func() {
		var day pb.Board_Schedule_Weekday
		day, err = parseEnum[pb.Board_Schedule_Weekday](err, "week-start", f.weekStart, pb.Board_Schedule_Weekday_value)
		season.WeekStart = &day
	})
	set("from", "season.from", func() {
		from, ferr := parseTime(f.from)
		if season.From = timestamppb.New(from); err == nil && ferr != nil {
			err = cli.Usagef("--from: %v", ferr)
		}
	})
	set("window", "season.windows", func() {
		for _, text := range f.windows {
			window, werr := parseWindow(text)
			if err == nil {
				err = werr
			}
			season.Windows = append(season.Windows, window)
		}
	})
	return err
}

// enumNames returns the values of flags for an enum whose value 0 means that none is given.
func enumNames(values map[string]int32) []string {
	names := make([]string, len(values)-1)
	for name, v := range values {
		if v > 0 {
			names[v-1] = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		}
	}
	return names
}

func parseEnum[E ~int32](firstErr error, flag, name string, values map[string]int32) (E, error) {
	v, ok := values[strings.ToUpper(strings.ReplaceAll(name, "-", "_"))]
	if firstErr == nil && (!ok || v == 0) {
		firstErr = cli.Usagef("--%s %q is not one of %s", flag, name, strings.Join(enumNames(values), ", "))
	}
	return E(v), firstErr
}

func parseWindow(text string) (*pb.Board_Schedule_Window, error) {
	id, span, ok := strings.Cut(text, "=")
	from, to, ok2 := strings.Cut(span, "/")
	start, err1 := parseTime(from)
	end, err2 := parseTime(to)
	if !ok || !ok2 || err1 != nil || err2 != nil {
		return nil, cli.Usagef("--window %q is not of the form id=start/end, such as 2026=2026-01-01/2027-01-01", text)
	}
	return &pb.Board_Schedule_Window{Id: id, Start: timestamppb.New(start), End: timestamppb.New(end)}, nil
}

// parseTime parses a time in RFC 3339, or a date, which means midnight in UTC.
func parseTime(s string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		err = fmt.Errorf("%q is not a time such as 2026-11-20T10:00:00Z or a date such as 2026-11-20", s)
	}
	return t, err
}

func (f *boardFlags) fromFile(app *cli.App, id string, fs *pflag.FlagSet) (*pb.Board, []string, error) {
	var other string
	fs.Visit(func(fl *pflag.Flag) {
		if isBoardFlag(fl.Name) {
			other = fl.Name
		}
	})
	if other != "" {
		return nil, nil, cli.Usagef("--file and --%s cannot be combined; set the field in the file", other)
	}
	data, err := readAll(app, f.file, maxBoardBytes)
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
		return nil, nil, cli.Usagef("%s describes board %q, not %q", f.file, b.GetBoardId(), id)
	}
	return b, paths, nil
}

func isBoardFlag(name string) bool {
	var f boardFlags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.addFixed(fs)
	f.addSettings(fs)
	return name != "file" && fs.Lookup(name) != nil
}

func readAll(app *cli.App, path string, limit int64) ([]byte, error) {
	input := app.Stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		input = file
	}
	data, err := io.ReadAll(io.LimitReader(input, limit+1))
	if int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d MiB", path, limit>>20)
	}
	return data, err
}

func decodeBoard(data []byte) (*pb.Board, []string, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil { // YAML includes JSON
		return nil, nil, err
	}
	return boardFrom(fields)
}

// boardFrom returns the board with these fields, and the paths of the fields.
func boardFrom(fields map[string]any) (*pb.Board, []string, error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	b := &pb.Board{}
	if err := restjson.Decode(body, b); err != nil {
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

func boardCreateCommand(app *cli.App) *cobra.Command {
	var f boardFlags
	cmd := &cobra.Command{
		Use: "create [BOARD]", Short: "Create a board", Args: cli.Between(0, "BOARD"),
		Long: `Create a board from flags, or from a file with a Board of the API as JSON or YAML. If
the board exists with the same rules, the command changes nothing and succeeds.`,
		Example: `  leaderboard board create arena --policy sum --unit points --season monthly
  leaderboard board create marathon --policy best --order lower-first --unit s --division gender --division country
  leaderboard board create cup --policy sum --tie-breaker wins --season explicit --window 2026=2026-01-01/2027-01-01
  leaderboard board create -f board.yaml`,
	}
	f.addFixed(cmd.Flags())
	f.addSettings(cmd.Flags())
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		id := ""
		if len(args) > 0 {
			id = args[0]
		}
		b, _, err := f.board(app, id, cmd.Flags())
		if err != nil {
			return err
		}
		if b.GetBoardId() == "" {
			return cli.Usagef("BOARD is missing; see `leaderboard board create --help`")
		}
		res, err := c.Scores.CreateBoard(ctx, &pb.CreateBoardRequest{Board: b})
		if err != nil {
			return err
		}
		return c.print(res.GetBoard(), func() { writeBoard(c.Stdout, res.GetBoard()) })
	})
}

var mutable = map[string]bool{
	"title": true, "unit": true, "decimals": true, "attributes": true, "min_score": true, "max_score": true,
	"season.grace": true, "season.windows": true, "retention": true, "private": true, "shards": true, "divisions": true, "matches": true,
}

func boardUpdateCommand(app *cli.App) *cobra.Command {
	var f boardFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use: "update BOARD", Short: "Change a board's settings", Args: cli.Exactly("BOARD"),
		Long: `Change the settings that the flags or the file contain. The other rules of a board, such
as its policy and its season schedule, cannot change: create a new board instead. In a
file, the command ignores the fields of these rules.

--division replaces all divisions, so also name the divisions to keep; --division ""
removes all. Until a new division has all users, "leaderboard board show" and lists of
the division show that it is filling. Sealed seasons keep their divisions.

After --matches, the server adds the earlier results to the list of matches. Until then,
the board is filling, and its matches cannot be voided. --matches cannot be switched off.

After a change of --shards, the server rebuilds the rank index of the board. Meanwhile it
answers from the old shards. Seasons on several shards have no dense ranks until they are
sealed.`,
		Example: `  leaderboard board update marathon --title "City marathon" --grace 72h
  leaderboard board update arena --private=false
  leaderboard board update arena --shards 3
  leaderboard board update arena --matches
  leaderboard board update marathon --division gender --division gender+age
  leaderboard board update arena --retention 720h --dry-run
  leaderboard board update cup --window 2026=2026-01-01/2027-01-01 --window 2027=2027-01-01/2028-01-01`,
	}
	f.addSettings(cmd.Flags())
	addDryRun(cmd.Flags(), &dryRun)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		b, paths, err := f.board(app, args[0], cmd.Flags())
		if err != nil {
			return err
		}
		var mask []string
		for _, p := range paths {
			if mutable[p] {
				mask = append(mask, p)
			}
		}
		if len(mask) == 0 {
			return cli.Usagef("no setting to change; see `leaderboard board update --help`")
		}
		res, err := c.Scores.UpdateBoard(ctx, &pb.UpdateBoardRequest{Board: b, UpdateMask: &fieldmaskpb.FieldMask{Paths: mask}, DryRun: dryRun})
		if err != nil {
			return err
		}
		if dryRun {
			return c.printBoardEffect(res.GetBoard())
		}
		return c.print(res.GetBoard(), func() { writeBoard(c.Stdout, res.GetBoard()) })
	})
}

func boardDeleteCommand(app *cli.App) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete BOARD", Short: "Delete a board with all its results", Args: cli.Exactly("BOARD"),
		Example: "  leaderboard board delete marathon",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		if err := app.Confirm(yes, fmt.Sprintf("Permanently delete board %s with all its results?", args[0]), args[0]); err != nil {
			return err
		}
		res, err := c.Scores.DeleteBoard(ctx, &pb.DeleteBoardRequest{Board: args[0]})
		if err != nil {
			return err
		}
		return c.print(res, func() { c.Printf("board %s is deleted\n", args[0]) })
	})
}
