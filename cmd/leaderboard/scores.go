package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// query is what reads of a ranking have in common.
type query struct{ board, season, division, method string }

func addBoardFlag(cmd *cobra.Command, board *string) {
	cmd.Flags().StringVarP(board, "board", "b", "", "`board`, the default board if absent")
}

func addSeasonFlag(cmd *cobra.Command, season *string) {
	cmd.Flags().StringVarP(season, "season", "s", "", "`season`: 202611, 20261120, 2026W47, all or a window's id; the current one if absent")
}

func (q *query) addFlags(cmd *cobra.Command) {
	addBoardFlag(cmd, &q.board)
	addSeasonFlag(cmd, &q.season)
	cmd.Flags().StringVarP(&q.division, "division", "d", "", "`attribute:value`, such as gender:F; overall if absent")
	cmd.Flags().StringVarP(&q.method, "method", "m", "", "`how` ranks are numbered: competition (1-2-2-4, if absent), dense (1-2-2-3) or ordinal (1-2-3-4)")
}

// scoreFlag adds a flag that is a score or points.
func scoreFlag(f *pflag.FlagSet, dst *int64, name, usage string) {
	f.Func(name, usage, func(text string) (err error) {
		if *dst, err = strconv.ParseInt(text, 10, 64); err != nil {
			return errors.New("scores and points are whole numbers in the board's smallest unit: 1250 for 12.50, on a board with 2 decimals")
		}
		return nil
	})
}

// ladderOf asks for a board's rules, which say how its entries are shown. A
// caller who may not read them sees bare numbers.
func (c *client) ladderOf(ctx context.Context, board string) ladder {
	if c.json {
		return ladder{}
	}
	if board == "" {
		board = "default"
	}
	res, err := c.scores.GetBoard(ctx, &pb.GetBoardRequest{Board: board})
	if err != nil {
		return ladder{}
	}
	l := ladder{unit: unitOf(res.GetBoard())}
	for _, tb := range res.GetBoard().GetTieBreakers() {
		l.tieBreakers = append(l.tieBreakers, tb.GetName())
	}
	return l
}

func submitCommand(w *world) *cobra.Command {
	var board, match, at, meta string
	var score, points, revision int64
	var ties []int64
	var attributes map[string]string
	var noWait bool
	cmd := &cobra.Command{
		Use: "submit USER (--points N | --score N)", Short: "Submit one result", Args: exactly("USER"),
		Long: `Submit one match result. Boards that add up take --points, the others --score;
both are whole numbers in the board's smallest unit. With --match the same result counts
once however often it is sent; without it, the server makes an id and says which.`,
		Example: `  leaderboard submit ada --points 3 --match final-2026
  leaderboard submit b2014-3416 --board marathon --score 11546 --match boston --attribute gender=M
  leaderboard submit ada --points 1 --match final-2026 --revision 1   # a correction
  leaderboard submit ada --points 3 --match final-2027 --no-wait`,
	}
	addBoardFlag(cmd, &board)
	f := cmd.Flags()
	scoreFlag(f, &points, "points", "`points` to add, on sum and decay boards")
	scoreFlag(f, &score, "score", "`score`, on best and latest boards")
	f.StringVar(&match, "match", "", "`id` of the match, which makes repeats harmless")
	f.Int64Var(&revision, "revision", 0, "of one match the highest revision counts")
	f.StringVar(&at, "achieved-at", "", "`time` of the event, as 2026-11-20T10:00:00Z; now if absent")
	f.Int64SliceVar(&ties, "tie-breakers", nil, "further columns in the board's order, as `1,0`")
	f.StringToStringVar(&attributes, "attribute", nil, "`name=value` that places the user in a division")
	f.StringVar(&meta, "metadata", "", "a JSON `object` to keep with the result")
	f.BoolVar(&noWait, "no-wait", false, "be content with the result being safe, if it is applied later")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		r := &pb.Result{UserId: args[0], MatchId: match, Revision: revision, TieBreakers: ties, Attributes: attributes}
		switch given := f.Changed("points"); {
		case given == f.Changed("score"):
			return usagef("give either --points, on boards that add up, or --score")
		case given:
			r.Points = &points
		default:
			r.Score = &score
		}
		if at != "" {
			t, err := parseTime(at)
			if err != nil {
				return usagef("--achieved-at: %w", err)
			}
			r.AchievedAt = timestamppb.New(t)
		}
		if meta != "" {
			r.Metadata = &structpb.Struct{}
			if err := api.DecodeJSON([]byte(meta), r.Metadata); err != nil {
				return usagef("--metadata %.60q is not a JSON object that can be kept: %w", meta, err)
			}
		}
		res, err := c.scores.SubmitScore(ctx, &pb.SubmitScoreRequest{Board: board, Result: r, NoWait: noWait})
		if err != nil {
			return err
		}
		l := c.ladderOf(ctx, board)
		return c.print(res, func() {
			fmt.Fprintf(c.stdout, "%s: %s\n", strings.ToLower(res.GetStatus().String()), standing(res.GetUserId(), res.NewScore, res.Rank, l.unit))
			fmt.Fprintf(c.stdout, "match %s · revision %d · season %s · achieved %s UTC\n", res.GetMatchId(), res.GetRevision(), res.GetSeason(), when(res.GetAchievedAt()))
		})
	})
}

// standing says in words where a user stands.
func standing(user string, score, rank *int64, u unit) string {
	switch {
	case score == nil:
		return user + " has no score told now"
	case rank == nil:
		return fmt.Sprintf("%s has %s, rank not told now", user, u.withUnit(*score))
	}
	return fmt.Sprintf("%s has %s, rank %d", user, u.withUnit(*score), *rank)
}

func topCommand(w *world) *cobra.Command {
	var q query
	var limit int32
	var from int64
	var token string
	var metadata bool
	cmd := &cobra.Command{
		Use: "top", Short: "Show the top of a board, or any page of it", Args: exactly(),
		Example: `  leaderboard top
  leaderboard top --board marathon --division gender:F --limit 25
  leaderboard top --board cup --season 2026 --from 101 --limit 100 --json`,
	}
	q.addFlags(cmd)
	f := cmd.Flags()
	f.Int32VarP(&limit, "limit", "n", 10, "how many entries, 1 to 1000")
	f.Int64Var(&from, "from", 1, "position to begin at")
	f.StringVar(&token, "page-token", "", "`token` that the page before ended with")
	f.BoolVar(&metadata, "include-metadata", false, "with --json: add match, metadata and divisions of each entry")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, _ []string) error {
		req := &pb.ListScoresRequest{
			Board: q.board, Season: q.season, Division: q.division, Method: q.method,
			Limit: &limit, PageToken: token, IncludeMetadata: metadata,
		}
		if f.Changed("from") {
			req.StartRank = &from
		}
		res, err := c.scores.ListScores(ctx, req)
		if err != nil {
			return err
		}
		l := c.ladderOf(ctx, q.board)
		return c.print(res, func() {
			d := res.GetData()
			if len(d.GetLeaderboard()) == 0 {
				fmt.Fprintln(c.stdout, "nobody stands here yet; leaderboard submit adds a result")
			} else {
				writeTable(c.stdout, l.table(d.GetLeaderboard()))
			}
			fmt.Fprintln(c.stdout, about(d))
			if d.GetNextPageToken() != "" {
				fmt.Fprintf(c.stdout, "next page: --page-token %s\n", d.GetNextPageToken())
			}
		})
	})
}

func rankCommand(w *world) *cobra.Command {
	var q query
	var neighbors int32
	var metadata bool
	cmd := &cobra.Command{
		Use: "rank USER", Short: "Show a user's rank and neighbors", Args: exactly("USER"),
		Example: `  leaderboard rank ada
  leaderboard rank b2014-3416 --board marathon --neighbors 2 --method ordinal`,
	}
	q.addFlags(cmd)
	cmd.Flags().Int32Var(&neighbors, "neighbors", 4, "how many entries above and below, 0 to 50")
	cmd.Flags().BoolVar(&metadata, "include-metadata", false, "with --json: add match, metadata and divisions of the user")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		res, err := c.scores.GetUserScore(ctx, &pb.GetUserScoreRequest{
			UserId: args[0], Board: q.board, Season: q.season, Division: q.division, Method: q.method,
			Neighbors: &neighbors, IncludeMetadata: metadata,
		})
		if err != nil {
			return err
		}
		l := c.ladderOf(ctx, q.board)
		return c.print(res, func() {
			d := res.GetData()
			writeTable(c.stdout, l.table(d.GetNeighbors()))
			line := standing(d.GetUserId(), &d.Score, d.Rank, l.unit)
			if d.Total != nil {
				line += " of " + strconv.FormatInt(d.GetTotal(), 10)
			}
			if d.Percentile != nil {
				line += fmt.Sprintf(", ahead of %.1f %%", d.GetPercentile())
			}
			fmt.Fprintln(c.stdout, line)
			fmt.Fprintln(c.stdout, about(&pb.Leaderboard{
				Board: d.GetBoard(), Season: d.GetSeason(), Division: d.GetDivision(), Method: d.GetMethod(),
				AsOf: d.GetAsOf(), Sealed: d.GetSealed(), Degraded: d.GetDegraded(),
			}))
		})
	})
}

func userCommand(w *world) *cobra.Command {
	var method string
	cmd := &cobra.Command{
		Use: "user USER", Short: "Show a user's scores on every board", Args: exactly("USER"),
		Example: "  leaderboard user ada",
	}
	cmd.Flags().StringVarP(&method, "method", "m", "", "`how` ranks are numbered: competition (if absent), dense or ordinal")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		res, err := c.scores.ListUserScores(ctx, &pb.ListUserScoresRequest{UserId: args[0], Method: method})
		if err != nil {
			return err
		}
		units := map[string]unit{}
		for _, s := range res.GetData().GetScores() {
			if _, ok := units[s.GetBoard()]; !ok {
				units[s.GetBoard()] = c.ladderOf(ctx, s.GetBoard()).unit
			}
		}
		return c.print(res, func() {
			d := res.GetData()
			switch {
			case d.GetBanned():
				fmt.Fprintf(c.stdout, "%s is banned, and hidden from every board; leaderboard unban lifts it\n", d.GetUserId())
				return
			case len(d.GetScores()) == 0:
				fmt.Fprintf(c.stdout, "%s has no score on any board\n", d.GetUserId())
				return
			}
			t := newTable(table.Row{"board", "season", "rank", "of", "score", "achieved (UTC)"}, "rank", "of", "score")
			for _, s := range d.GetScores() {
				total := "-"
				if s.Total != nil {
					total = strconv.FormatInt(s.GetTotal(), 10)
				}
				t.AppendRow(table.Row{s.GetBoard(), s.GetSeason(), rankText(s.Rank), total, units[s.GetBoard()].withUnit(s.GetScore()), when(s.GetAchievedAt())})
			}
			writeTable(c.stdout, t)
		})
	})
}

func resultCommand(w *world) *cobra.Command {
	var board, season string
	var revision int64
	cmd := &cobra.Command{
		Use: "result USER MATCH", Short: "Show what became of a result", Args: exactly("USER", "MATCH"),
		Example: `  leaderboard result ada final-2026
  leaderboard result ada final-2026 --board cup --season 2026 --revision 0`,
	}
	addBoardFlag(cmd, &board)
	addSeasonFlag(cmd, &season)
	cmd.Flags().Int64Var(&revision, "revision", 0, "ask about this revision, not the one that stands")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		req := &pb.GetResultRequest{Board: boardName(board), UserId: args[0], MatchId: args[1], Season: season}
		if cmd.Flags().Changed("revision") {
			req.Revision = &revision
		}
		res, err := c.scores.GetResult(ctx, req)
		if err != nil {
			return err
		}
		l := c.ladderOf(ctx, board)
		return c.print(res, func() { writeResult(c, res, l) })
	})
}

func writeResult(c *client, res *pb.GetResultResponse, l ladder) {
	t := newTable(table.Row{"field", "value"})
	row := func(name string, value any) { t.AppendRow(table.Row{name, value}) }
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
			row(name, l.unit.format(*v))
		}
	}
	for i, v := range r.GetTieBreakers() {
		name := fmt.Sprintf("tie-breaker %d", i+1)
		if i < len(l.tieBreakers) {
			name = l.tieBreakers[i]
		}
		row(name, v)
	}
	if r.GetAchievedAt() != nil {
		row("achieved (UTC)", when(r.GetAchievedAt()))
	}
	for _, k := range sortedKeys(r.GetAttributes()) {
		row("attribute "+k, r.GetAttributes()[k])
	}
	if r.GetMetadata() != nil {
		if b, err := encodeJSON(r.GetMetadata()); err == nil {
			row("metadata", string(b))
		}
	}
	writeTable(c.stdout, t)
}

func retractCommand(w *world) *cobra.Command {
	var board, season string
	var revision int64
	cmd := &cobra.Command{
		Use: "retract USER MATCH", Short: "Undo a result", Args: exactly("USER", "MATCH"),
		Long: `Undo a match result: it counts no more, and what the user's other results say
comes back. Submitting the match at a higher revision adds it again.`,
		Example: "  leaderboard retract ada final-2026",
	}
	addBoardFlag(cmd, &board)
	addSeasonFlag(cmd, &season)
	cmd.Flags().Int64Var(&revision, "revision", 0, "revision of the retraction; the next one if absent")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, args []string) error {
		req := &pb.RetractResultRequest{Board: boardName(board), UserId: args[0], MatchId: args[1], Season: season}
		if cmd.Flags().Changed("revision") {
			req.Revision = &revision
		}
		res, err := c.scores.RetractResult(ctx, req)
		if err != nil {
			return err
		}
		l := c.ladderOf(ctx, board)
		return c.print(res, func() {
			line := standing(res.GetUserId(), res.NewScore, res.Rank, l.unit)
			if res.NewScore == nil {
				line = res.GetUserId() + " has no result left"
			}
			fmt.Fprintf(c.stdout, "%s: %s (match %s, revision %d, season %s)\n",
				strings.ToLower(res.GetStatus().String()), line, res.GetMatchId(), res.GetRevision(), res.GetSeason())
		})
	})
}
