package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

type query struct{ board, season, division, method string }

// AddBoardFlag adds the flag --board. Without it, a command uses the default board.
func AddBoardFlag(cmd *cobra.Command, board *string) {
	cmd.Flags().StringVarP(board, "board", "b", "", "`board` (if omitted, the default board)")
	annotate(cmd.Flags(), "board", boardValues)
}

// AddSeasonFlag adds the flag --season. Without it, a command uses the current season.
func AddSeasonFlag(cmd *cobra.Command, season *string) {
	cmd.Flags().StringVarP(season, "season", "s", "", "`season`: 20261120, 2026W47, 202611, 2026, all, the id of an explicit season, or latest for the newest season with entries (if omitted, the current season)")
	annotate(cmd.Flags(), "season", seasonValues)
}

func (q *query) addFlags(cmd *cobra.Command) {
	AddBoardFlag(cmd, &q.board)
	AddSeasonFlag(cmd, &q.season)
	cmd.Flags().FuncP("division", "d", "division, as `attribute:value`, such as gender:F: the users whose latest result with this attribute has this value; repeat the flag for a crossed division (if omitted, overall)", q.addDivision)
	cmd.Flags().StringVarP(&q.method, "method", "m", "", "`method` of ranking: competition (1-2-2-4), dense (1-2-2-3) or ordinal (1-2-3-4); if omitted, competition")
	annotate(cmd.Flags(), "division", divisionValues)
	annotate(cmd.Flags(), "method", methodValues)
}

// addDivision adds text to the crossed division q.division. The server checks a single division.
func (q *query) addDivision(text string) error {
	if q.division == "" {
		q.division = text
		return nil
	}
	var parts []leaderboard.Division
	for _, t := range []string{q.division, text} {
		d, err := leaderboard.ParseDivision(t)
		if err != nil {
			return err
		}
		parts = append(parts, d.Parts()...)
	}
	q.division = leaderboard.Cross(parts...).String()
	return nil
}

func scoreFlag(f *pflag.FlagSet, dst *int64, name, usage string) {
	f.Func(name, usage, func(text string) (err error) {
		if *dst, err = strconv.ParseInt(text, 10, 64); err != nil {
			return errors.New("scores and points are whole numbers in the board's smallest unit: on a board with 2 decimals, 12.50 is 1250")
		}
		return nil
	})
}

// entryTable returns a table with the board's unit and tie-breakers, or without them if GetBoard fails.
func (c *Client) entryTable(ctx context.Context, board string) *EntryTable {
	if !c.Output.IsTable() {
		return &EntryTable{}
	}
	res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: BoardName(board)})
	if err != nil {
		return &EntryTable{Colors: c.Colors()}
	}
	t := &EntryTable{Unit: UnitOf(res.GetBoard()), Colors: c.Colors()}
	for _, tb := range res.GetBoard().GetTieBreakers() {
		t.TieBreakers = append(t.TieBreakers, tb.GetName())
	}
	return t
}

func submitCommand(app *cli.App) *cobra.Command {
	var board, match, at, meta, season string
	var score, points, revision int64
	var ties []int64
	var attributes map[string]string
	var noWait, linked bool
	var finish finishFlags
	cmd := &cobra.Command{
		Use: "submit USER (--points N | --score N)", Short: "Submit one result", Args: cli.Exactly("USER"),
		Long: `Submit one match result. Best, latest and first boards take --score, other boards take
--points. Both are whole numbers in the board's smallest unit. With --match, a
repeated submit counts once. Without --match, the server generates a match id and
returns it. The exit code is 0 if the result counts as given, or was accepted.`,
		Example: `  leaderboard submit ada --points 3 --match final-2026
  leaderboard submit b2014-3416 --board marathon --score 11546 --match boston --attribute gender=M
  leaderboard submit ada --points 3 --match final-2027 --no-wait`,
	}
	AddBoardFlag(cmd, &board)
	f := cmd.Flags()
	scoreFlag(f, &points, "points", "`points`, on boards that combine results")
	scoreFlag(f, &score, "score", "`score`, on best, latest and first boards")
	f.StringVar(&match, "match", "", "`id` of the match; a repeated submit with the same id counts once")
	f.Int64Var(&revision, "revision", 0, "`revision`; the highest revision of a match counts")
	f.StringVar(&at, "achieved-at", "", "`time` of the event, such as 2026-11-20T10:00:00Z (if omitted, now)")
	f.StringVarP(&season, "season", "s", "", "`season` to which the result must belong; without --achieved-at, the match must already have a result in this season, and keeps the time of that result")
	annotate(f, "season", seasonValues)
	f.Int64SliceVar(&ties, "tie-breakers", nil, "`values` of the tie-breakers in the board's order, such as 1,0")
	f.StringToStringVar(&attributes, "attribute", nil, "attribute, as `name=value`; the user's latest attribute places the user, with all results, in a division")
	f.StringVar(&meta, "metadata", "", "JSON `object` to store with the result")
	finish.add(f)
	f.BoolVar(&noWait, "no-wait", false, "return when the result is stored durably, without waiting until it is applied")
	addLinkedFlag(f, &linked)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		r := &pb.Result{UserId: args[0], MatchId: match, Revision: revision, TieBreakers: ties, Attributes: attributes}
		if season != "" {
			r.Season = &season
		}
		var err error
		if r.Reset_, r.Status, err = finish.values(f); err != nil {
			return err
		}
		if err := setScore(f, r, &points, &score); err != nil {
			return err
		}
		if r.AchievedAt, r.Metadata, err = parseTimeAndMetadata(at, meta); err != nil {
			return err
		}
		res, err := c.Scores.SubmitScore(ctx, &pb.SubmitScoreRequest{Board: board, Result: r, NoWait: noWait, IncludePreviousRank: true, IncludeLinked: linked})
		if err != nil {
			return err
		}
		t := c.entryTable(ctx, board)
		printLinked := c.linkedWriter(ctx, res.GetLinked())
		err = c.print(res, func() {
			writeSubmitted(c, res, t)
			printLinked()
		})
		return cmp.Or(err, errNotAsGiven(res))
	})
}

// setScore sets the points or the score, which only a result with a status may lack.
func setScore(f *pflag.FlagSet, r *pb.Result, points, score *int64) error {
	switch given := f.Changed("points"); {
	case !given && !f.Changed("score") && r.Status != nil:
	case given == f.Changed("score"):
		return cli.Usagef("give either --points or --score (best, latest and first boards)")
	case given:
		r.Points = points
	default:
		r.Score = score
	}
	return nil
}

// errNotAsGiven returns nil if the result counts as given, or was accepted.
func errNotAsGiven(res *pb.SubmitScoreResponse) error {
	if CountsAsGiven(res.GetStatus(), res.GetStands()) {
		return nil
	}
	return errors.New("the result does not count as given: " + cmp.Or(res.GetDetail(), supersededText(res.GetStatus()), strings.ToLower(res.GetStatus().String())))
}

func addLinkedFlag(f *pflag.FlagSet, linked *bool) {
	f.BoolVar(linked, "include-linked", false, "also show the user's scores on linked boards")
}

func addBatchLinkedFlag(f *pflag.FlagSet, linked *bool) {
	f.BoolVar(linked, "include-linked", false, "with -o json: include the users' scores on linked boards")
}

// linkedWriter reads the units of linked boards, and returns a function that prints their standings.
func (c *Client) linkedWriter(ctx context.Context, linked []*pb.Outcome_Linked) func() {
	units := make([]cli.Unit, len(linked))
	for i, l := range linked {
		units[i] = c.entryTable(ctx, l.GetBoardId()).Unit
	}
	return func() {
		for i, l := range linked {
			writeLinked(c, l, units[i])
		}
	}
}

func parseTimeAndMetadata(timeText, meta string) (achievedAt *timestamppb.Timestamp, metadata *structpb.Struct, err error) {
	if timeText != "" {
		t, err := parseTime(timeText)
		if err != nil {
			return nil, nil, cli.Usagef("--achieved-at: %w", err)
		}
		achievedAt = timestamppb.New(t)
	}
	if meta != "" {
		metadata = &structpb.Struct{}
		if err := restjson.Decode([]byte(meta), metadata); err != nil {
			return nil, nil, cli.Usagef("--metadata %.60q is not a JSON object that can be stored: %w", meta, err)
		}
	}
	return achievedAt, metadata, nil
}

func addMatchSeasonFlag(cmd *cobra.Command, season *string) {
	cmd.Flags().StringVarP(season, "season", "s", "", "`season` of the result (if omitted, the season in which the match has a result)")
	annotate(cmd.Flags(), "season", seasonValues)
}

func addReasonFlag(f *pflag.FlagSet, reason *string) {
	f.StringVar(reason, "reason", "", "`reason`, which closed seasons require, besides the admin scope")
}

func writeSubmitted(c *Client, res *pb.SubmitScoreResponse, t *EntryTable) {
	c.Printf("%s: %s%s\n", strings.ToLower(res.GetStatus().String()), scoreLine(res.GetUserId(), res.NewScore, res.Rank, t.Unit), noteBefore(res.PreviousScore, res.PreviousRank, res.GetPersonalBest(), t.Unit))
	if res.GetReason() == reasonBanned {
		c.Printf("%s is banned on this board; the result counts once the ban is lifted\n", res.GetUserId())
	}
	if res.GetDetail() != "" && res.GetStands() {
		c.Println(res.GetDetail())
	}
	c.Printf("match %s · revision %d · season %s · achieved %s UTC\n", res.GetMatchId(), res.GetRevision(), res.GetSeason(), formatTime(res.GetAchievedAt()))
}

func writeLinked(c *Client, l *pb.Outcome_Linked, u cli.Unit) {
	score, rank, note := "no score", "", ""
	if l.NewScore != nil {
		score = u.FormatWithUnit(l.GetNewScore())
	}
	if l.Rank != nil {
		rank = fmt.Sprintf(", rank %d", l.GetRank())
	}
	if l.Skipped != nil {
		note = " (result skipped: " + l.GetSkipped() + ")"
	}
	c.Printf("linked %s · season %s: %s%s%s\n", l.GetBoardId(), l.GetSeason(), score, rank, note)
}

func noteBefore(previousScore, previousRank *int64, personalBest bool, u cli.Unit) string {
	var notes []string
	if previousScore != nil {
		note := "before: " + u.FormatWithUnit(*previousScore)
		if previousRank != nil {
			note += fmt.Sprintf(", rank %d", *previousRank)
		}
		notes = append(notes, note)
	}
	if personalBest {
		notes = append(notes, "a personal best")
	}
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}

func scoreLine(user string, score, rank *int64, u cli.Unit) string {
	switch {
	case score == nil:
		return user + ": the score is unavailable now"
	case rank == nil:
		return fmt.Sprintf("%s has %s, rank unavailable now", user, u.FormatWithUnit(*score))
	}
	return fmt.Sprintf("%s has %s, rank %d", user, u.FormatWithUnit(*score), *rank)
}

func topCommand(app *cli.App) *cobra.Command {
	var q query
	var limit int32
	var from, minScore, maxScore, around int64
	var topPercent float64
	var token, order string
	var metadata, live bool
	cmd := &cobra.Command{
		Use: "top", Short: "Show the top of a board, or another page of it", Args: cli.Exactly(),
		Long: `Show the top of a board, or another page of it. With --live, the command shows the top on
the whole terminal as it changes, and marks the changes: ▲ up, ▼ down, ★ new. The keys
are ↑, ↓, PgUp, PgDn, Home and End to scroll, and q to quit.`,
		Example: `  leaderboard top
  leaderboard top --board cup --live
  leaderboard top --board marathon --division gender:F --limit 25
  leaderboard top --board marathon --division gender:F --division age:30-34
  leaderboard top --board cup --season 2026 --from 101 --limit 100 --json
  leaderboard top --min-score 1000 --max-score 1999
  leaderboard top --order worst --limit 3
  leaderboard top --around-score 1500 --limit 5
  leaderboard top --top-percent 10 --limit 100`,
	}
	q.addFlags(cmd)
	f := cmd.Flags()
	f.Int32VarP(&limit, "limit", "n", 10, "`number` of entries, 1 to 1000")
	f.Int64Var(&from, "from", 1, "first `position` to show")
	f.StringVar(&order, "order", "", "`order` of entries: best or worst first; if omitted, best")
	annotate(f, "order", orderValues)
	f.StringVar(&token, "page-token", "", "`token` that the previous page printed at its end")
	scoreFlag(f, &minScore, "min-score", "show only entries with at least this `score`")
	scoreFlag(f, &maxScore, "max-score", "show only entries with at most this `score`")
	scoreFlag(f, &around, "around-score", "show the entries around this `score`, half of them better")
	f.Float64Var(&topPercent, "top-percent", 0, "show only the best entries: this `percentage` of all, above 0, at most 100")
	f.BoolVar(&metadata, "include-metadata", false, "with -o json: include the match, metadata and divisions of each entry")
	f.BoolVar(&live, "live", false, "show changes on the whole terminal until q is typed; shows 100 entries unless --limit is given")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		if live {
			return c.live(ctx, f, &pb.WatchScoresRequest{Board: BoardName(q.board), Season: q.season, Division: q.division, Method: q.method, Limit: &limit})
		}
		req := &pb.ListScoresRequest{
			Board: q.board, Season: q.season, Division: q.division, Method: q.method,
			Limit: &limit, PageToken: token, IncludeMetadata: metadata, Order: order, StartRank: given(f, "from", from),
			MinScore: given(f, "min-score", minScore), MaxScore: given(f, "max-score", maxScore),
			AroundScore: given(f, "around-score", around), TopPercent: given(f, "top-percent", topPercent),
		}
		res, err := c.Scores.ListScores(ctx, req)
		if err != nil {
			return err
		}
		t := c.entryTable(ctx, q.board)
		return c.print(res, func() { writePage(c, req, res.GetData(), t) })
	})
}

// given returns the value of a flag, or nil if the caller has not set the flag.
func given[T any](f *pflag.FlagSet, flag string, value T) *T {
	if !f.Changed(flag) {
		return nil
	}
	return &value
}

func writePage(c *Client, req *pb.ListScoresRequest, page *pb.Leaderboard, t *EntryTable) {
	switch {
	case len(page.GetLeaderboard()) > 0:
		cli.WriteTable(c.Stdout, t.table(page.GetLeaderboard()))
	case req.MinScore != nil || req.MaxScore != nil:
		c.Println("no entries in this range of scores")
	default:
		c.Println("no entries yet; `leaderboard submit` adds a result")
	}
	c.Println(describe(page))
	if page.InRange != nil {
		c.Printf("%d in this range of scores\n", page.GetInRange())
	}
	if page.RankOfScore != nil {
		c.Printf("this score would have rank %d\n", page.GetRankOfScore())
	}
	if page.GetNextPageToken() != "" {
		c.Printf("next page: --page-token %s\n", page.GetNextPageToken())
	}
}

func rankCommand(app *cli.App) *cobra.Command {
	var q query
	var neighbors int32
	var toRank int64
	var fill, missing, metadata bool
	cmd := &cobra.Command{
		Use: "rank USER", Short: "Show a user's rank and neighbors", Args: cli.Exactly("USER"),
		Example: `  leaderboard rank ada
  leaderboard rank ada --to-rank 100
  leaderboard rank ada --neighbors 5 --fill
  leaderboard rank newcomer --allow-missing
  leaderboard rank b2014-3416 --board marathon --neighbors 2 --method ordinal`,
	}
	q.addFlags(cmd)
	cmd.Flags().Int32Var(&neighbors, "neighbors", 4, "`number` of entries above and below, 0 to 50")
	cmd.Flags().BoolVar(&fill, "fill", false, "if fewer entries are on one side, show more on the other side")
	cmd.Flags().BoolVar(&missing, "allow-missing", false, "if the user has no entry, show where the user would stand")
	cmd.Flags().Int64Var(&toRank, "to-rank", 0, "also show how far the user is from this `rank`, even if the user has no entry")
	cmd.Flags().BoolVar(&metadata, "include-metadata", false, "with -o json: include the match, metadata and divisions of the user")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req := &pb.GetUserScoreRequest{
			UserId: args[0], Board: q.board, Season: q.season, Division: q.division, Method: q.method,
			Neighbors: &neighbors, Fill: fill, AllowMissing: missing, IncludeMetadata: metadata, ToRank: given(cmd.Flags(), "to-rank", toRank),
		}
		res, err := c.Scores.GetUserScore(ctx, req)
		if err != nil {
			return err
		}
		t := c.entryTable(ctx, q.board)
		return c.print(res, func() {
			d := res.GetData()
			if len(d.GetNeighbors()) > 0 {
				cli.WriteTable(c.Stdout, t.table(d.GetNeighbors()))
			}
			line := d.GetUserId() + " has no entry"
			if d.WouldRank != nil {
				line += fmt.Sprintf(", and would have rank %d", d.GetWouldRank())
			}
			if d.Score != nil {
				line = scoreLine(d.GetUserId(), d.Score, d.Rank, t.Unit)
			}
			if d.Score != nil && d.Total != nil {
				line += " of " + strconv.FormatInt(d.GetTotal(), 10)
			}
			if d.Percentile != nil {
				line += fmt.Sprintf(", ahead of %.1f %%", d.GetPercentile())
			}
			c.Println(line)
			if d.ToRank != nil {
				c.Println(gapLine(d.GetToRank(), t.Unit))
			}
			c.Println(describe(&pb.Leaderboard{
				Board: d.GetBoard(), Season: d.GetSeason(), Division: d.GetDivision(), Method: d.GetMethod(),
				AsOf: d.GetAsOf(), Sealed: d.GetSealed(), Degraded: d.GetDegraded(), Filling: d.Filling,
			}))
		})
	})
}

func gapLine(r *pb.GetUserScoreResponse_ToRank, u cli.Unit) string {
	switch {
	case r.Score == nil:
		return fmt.Sprintf("any score has rank %d or better", r.GetRank())
	case r.Gap == nil:
		return fmt.Sprintf("rank %d needs %s", r.GetRank(), u.FormatWithUnit(r.GetScore()))
	}
	return fmt.Sprintf("rank %d needs %s, better by %s", r.GetRank(), u.FormatWithUnit(r.GetScore()), u.FormatWithUnit(r.GetGap()))
}

func userCommand(app *cli.App) *cobra.Command {
	var method string
	var boards []string
	cmd := &cobra.Command{
		Use: "user USER", Short: "Show a user's scores on every board", Args: cli.Exactly("USER"),
		Example: `  leaderboard user ada
  leaderboard user ada --board cup --board marathon`,
	}
	cmd.Flags().StringArrayVarP(&boards, "board", "b", nil, "only this `board`; repeat the flag for several")
	annotate(cmd.Flags(), "board", boardValues)
	cmd.Flags().StringVarP(&method, "method", "m", "", "`method` of ranking: competition, dense or ordinal; if omitted, competition")
	annotate(cmd.Flags(), "method", methodValues)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		res, err := c.Scores.ListUserScores(ctx, &pb.ListUserScoresRequest{UserId: args[0], Method: method, Boards: boards})
		if err != nil {
			return err
		}
		units := map[string]cli.Unit{}
		for _, s := range res.GetData().GetScores() {
			if _, ok := units[s.GetBoard()]; !ok {
				units[s.GetBoard()] = c.entryTable(ctx, s.GetBoard()).Unit
			}
		}
		return c.print(res, func() {
			d := res.GetData()
			switch {
			case d.GetBanned():
				c.Printf("%s is banned and hidden from every board; `leaderboard unban` lifts the ban\n", d.GetUserId())
				return
			case len(d.GetScores()) == 0 && len(d.GetBans()) > 0:
				c.Printf("%s is banned on %s; `leaderboard unban` lifts a ban\n", d.GetUserId(), bannedBoards(d.GetBans()))
				return
			case len(d.GetScores()) == 0:
				c.Printf("%s has no score on any board\n", d.GetUserId())
				return
			}
			t := cli.NewTable(cli.Row{"board", "season", "rank", "of", "score", "achieved (UTC)"}, "rank", "of", "score")
			for _, s := range d.GetScores() {
				total := "-"
				if s.Total != nil {
					total = strconv.FormatInt(s.GetTotal(), 10)
				}
				t.AppendRow(cli.Row{s.GetBoard(), s.GetSeason(), formatRank(s.Rank), total, units[s.GetBoard()].FormatWithUnit(s.GetScore()), formatTime(s.GetAchievedAt())})
			}
			cli.WriteTable(c.Stdout, t)
		})
	})
}

func resultCommand(app *cli.App) *cobra.Command {
	var board, season string
	var revision int64
	var history bool
	cmd := &cobra.Command{
		Use: "result USER MATCH", Short: "Show the status of a result", Args: cli.Exactly("USER", "MATCH"),
		Example: `  leaderboard result ada final-2026
  leaderboard result ada final-2026 --board cup --season 2026 --revision 0
  leaderboard result ada final-2026 --board cup --history`,
	}
	AddBoardFlag(cmd, &board)
	addMatchSeasonFlag(cmd, &season)
	cmd.Flags().Int64Var(&revision, "revision", 0, "`revision` to show (if omitted, the current revision)")
	cmd.Flags().BoolVar(&history, "history", false, "also list the changes of the result in the audit log, the newest first; needs the admin scope")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req := &pb.GetResultRequest{
			Board: BoardName(board), UserId: args[0], MatchId: args[1], Season: season, History: history, Revision: given(cmd.Flags(), "revision", revision),
		}
		res, err := c.Scores.GetResult(ctx, req)
		if err != nil {
			return err
		}
		t := c.entryTable(ctx, board)
		return c.print(res, func() {
			writeResult(c, res, t)
			if history {
				writeHistory(c, res.GetHistory(), t.Unit)
			}
		})
	})
}

func writeHistory(c *Client, acts []*pb.Act, unit cli.Unit) {
	if len(acts) == 0 {
		c.Println("\nno changes on the record")
		return
	}
	c.Println("")
	t := cli.NewTable(cli.Row{"time (UTC)", "by", "action", "result before", "result after", "entry before", "entry after", "reason"})
	for _, a := range acts {
		before, after := a.GetBefore().GetFields(), a.GetAfter().GetFields()
		t.AppendRow(cli.Row{
			formatTime(a.GetAt()), actorName(a), actionText(a), recordedResult(before, unit), recordedResult(after, unit),
			recordedEntry(before, unit), recordedEntry(after, unit), a.GetReason(),
		})
	}
	cli.WriteTable(c.Stdout, t)
}

// recordedResult returns a text about a result in the audit log.
func recordedResult(object map[string]*structpb.Value, unit cli.Unit) string {
	result := object["result"].GetStructValue().GetFields()
	for _, name := range []string{"score", "points"} {
		if v, ok := result[name].GetKind().(*structpb.Value_NumberValue); ok {
			return unit.Format(int64(v.NumberValue))
		}
	}
	return cmp.Or(strings.ToLower(object["status"].GetStringValue()), "-")
}

func recordedEntry(object map[string]*structpb.Value, unit cli.Unit) string {
	entry := object["entry"].GetStructValue().GetFields()
	score, ok := entry["score"].GetKind().(*structpb.Value_NumberValue)
	if !ok {
		return "-"
	}
	text := unit.Format(int64(score.NumberValue))
	if rank := int64(entry["rank"].GetNumberValue()); rank > 0 {
		text += fmt.Sprintf(" (rank %d)", rank)
	}
	return text
}

func resultsCommand(app *cli.App) *cobra.Command {
	var req pb.ListUserResultsRequest
	var limit int32
	cmd := &cobra.Command{
		Use: "results USER", Short: "List a user's results on a board", Args: cli.Exactly("USER"),
		Long: `List a user's results on a board, including retracted and rejected results. The newest
season comes first, and in a season the results are ordered by match id.`,
		Example: `  leaderboard results ada
  leaderboard results ada --board cup --season 2026 --limit 1000 --json`,
	}
	AddBoardFlag(cmd, &req.Board)
	f := cmd.Flags()
	f.StringVarP(&req.Season, "season", "s", "", "`season` of the results (if omitted, every season)")
	annotate(f, "season", seasonValues)
	f.Int32VarP(&limit, "limit", "n", 100, "`number` of results, 1 to 1000")
	f.StringVar(&req.PageToken, "page-token", "", "`token` that the previous page printed at its end")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req.Board, req.UserId, req.Limit = BoardName(req.GetBoard()), args[0], &limit
		res, err := c.Scores.ListUserResults(ctx, &req)
		if err != nil {
			return err
		}
		unit := c.entryTable(ctx, req.GetBoard()).Unit
		return c.print(res, func() {
			if len(res.GetResults()) == 0 {
				c.Printf("%s has no results\n", args[0])
				return
			}
			t := cli.NewTable(cli.Row{"season", "match", "status", "revision", "score", "achieved (UTC)"}, "revision", "score")
			for _, r := range res.GetResults() {
				status := strings.ToLower(r.GetStatus().String())
				if r.GetReason() != "" {
					status += " (" + r.GetReason() + ")"
				}
				t.AppendRow(cli.Row{r.GetSeason(), r.GetMatchId(), status, r.GetRevision(), resultScore(r.GetResult(), unit), formatTime(r.GetResult().GetAchievedAt())})
			}
			cli.WriteTable(c.Stdout, t)
			c.printNextPage(res.GetNextPageToken())
		})
	})
}

func resultScore(r *pb.Result, u cli.Unit) string {
	switch {
	case r == nil || r.Score == nil && r.Points == nil:
		return "-"
	case r.Score != nil:
		return u.Format(r.GetScore())
	}
	return u.Format(r.GetPoints())
}

func writeResult(c *Client, res *pb.GetResultResponse, entries *EntryTable) {
	t := cli.NewTable(cli.Row{"field", "value"})
	row := func(name string, value any) { t.AppendRow(cli.Row{name, value}) }
	r := res.GetResult()
	row("status", strings.ToLower(res.GetStatus().String()))
	if res.GetReason() != "" {
		row("reason", res.GetReason())
	}
	row("board", res.GetBoard())
	row("season", res.GetSeason())
	row("user", res.GetUserId())
	row("match", res.GetMatchId())
	row("revision", res.GetRevision())
	for name, v := range map[string]*int64{"score": r.Score, "points": r.Points} {
		if v != nil {
			row(name, entries.Unit.Format(*v))
		}
	}
	for i, v := range r.GetTieBreakers() {
		name := fmt.Sprintf("tie-breaker %d", i+1)
		if i < len(entries.TieBreakers) {
			name = entries.TieBreakers[i]
		}
		row(name, v)
	}
	if r.GetAchievedAt() != nil {
		row("achieved (UTC)", formatTime(r.GetAchievedAt()))
	}
	for _, k := range sortedKeys(r.GetAttributes()) {
		row("attribute "+k, r.GetAttributes()[k])
	}
	if r.GetMetadata() != nil {
		if b, err := restjson.Append(nil, r.GetMetadata()); err == nil {
			row("metadata", string(b))
		}
	}
	cli.WriteTable(c.Stdout, t)
}

func retractCommand(app *cli.App) *cobra.Command {
	var board, season, reason string
	var revision int64
	var dryRun, linked bool
	cmd := &cobra.Command{
		Use: "retract USER MATCH", Short: "Undo a result", Args: cli.Exactly("USER", "MATCH"),
		Long: `Undo a match result. The user's entry is then computed from the other results. To add
the match again, submit it with a higher revision.`,
		Example: `  leaderboard retract ada final-2026
  leaderboard retract ada final-2026 --dry-run`,
	}
	AddBoardFlag(cmd, &board)
	addMatchSeasonFlag(cmd, &season)
	cmd.Flags().Int64Var(&revision, "revision", 0, "`revision` of the retraction (if omitted, the next revision)")
	addReasonFlag(cmd.Flags(), &reason)
	addDryRun(cmd.Flags(), &dryRun)
	addLinkedFlag(cmd.Flags(), &linked)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req := &pb.RetractResultRequest{
			Board: BoardName(board), UserId: args[0], MatchId: args[1], Season: season, Reason: reason, DryRun: dryRun, IncludePreviousRank: true, IncludeLinked: linked,
		}
		if cmd.Flags().Changed("revision") {
			req.Revision = &revision
		}
		res, err := c.Scores.RetractResult(ctx, req)
		if err != nil {
			return err
		}
		if dryRun {
			return c.printRetractionEffect(ctx, res, res.GetEffect(), "Status of the retraction: "+strings.ToLower(res.GetStatus().String()))
		}
		t, printLinked := c.entryTable(ctx, board), c.linkedWriter(ctx, res.GetLinked())
		return c.print(res, func() {
			line := scoreLine(res.GetUserId(), res.NewScore, res.Rank, t.Unit)
			if res.NewScore == nil {
				line = res.GetUserId() + " has no other results"
			}
			c.Printf("%s: %s%s\n", strings.ToLower(res.GetStatus().String()), line, noteBefore(res.PreviousScore, res.PreviousRank, false, t.Unit))
			c.Printf("match %s · revision %d · season %s\n", res.GetMatchId(), res.GetRevision(), res.GetSeason())
			printLinked()
		})
	})
}
