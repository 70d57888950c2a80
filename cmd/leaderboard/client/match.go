package client

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func matchCommand(app *cli.App) *cobra.Command {
	return cli.Parent("match", "List, void and restore matches", `  leaderboard match list --board cup --prefix final
  leaderboard match show final-2026 --board cup
  leaderboard match void final-2026 --board cup --reason "wrong map" --dry-run
  leaderboard match restore final-2026 --board cup --reason "the map was right"`,
		matchListCommand(app), matchShowCommand(app),
		voidCommand(app, "void MATCH", "Void a match, so that none of its results counts", func(ctx context.Context, c *Client, req *pb.VoidMatchRequest) (voidResponse, error) {
			return c.Scores.VoidMatch(ctx, req)
		}),
		voidCommand(app, "restore MATCH", "End the void of a match", func(ctx context.Context, c *Client, req *pb.VoidMatchRequest) (voidResponse, error) {
			return c.Scores.RestoreMatch(ctx, &pb.RestoreMatchRequest{
				Board: req.GetBoard(), MatchId: req.GetMatchId(), Season: req.GetSeason(), Reason: req.GetReason(), DryRun: req.GetDryRun(),
			})
		}))
}

type voidResponse interface {
	proto.Message
	GetSeason() string
	GetMatchId() string
	GetVoided() bool
	GetEffect() *pb.RetractionEffect
}

func voidCommand(app *cli.App, use, short string, call func(context.Context, *Client, *pb.VoidMatchRequest) (voidResponse, error)) *cobra.Command {
	var req pb.VoidMatchRequest
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cli.Exactly("MATCH"),
		Long: short + `. The board must have --matches. The command finds the season of the
match. It needs a key with the admin scope.`,
		Example: "  leaderboard match " + use[:len(use)-len("MATCH")] + `final-2026 --board cup --reason "wrong map"`,
	}
	AddBoardFlag(cmd, &req.Board)
	addMatchSeasonFlag(cmd, &req.Season)
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`reason`, for operators (required)")
	addDryRun(cmd.Flags(), &req.DryRun)
	if strings.HasPrefix(use, "void") {
		cmd.Flags().BoolVar(&req.AllowUnknown, "allow-unknown", false, "also void a match that no result names, before its results arrive; needs --season on boards with seasons")
	}
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req.Board, req.MatchId = BoardName(req.GetBoard()), args[0]
		res, err := call(ctx, c, &req)
		if err != nil {
			return err
		}
		state := "counts"
		if res.GetVoided() {
			state = "is void"
		}
		if req.GetDryRun() {
			return c.printRetractionEffect(ctx, res, res.GetEffect(), "Match "+res.GetMatchId()+", season "+res.GetSeason())
		}
		return c.print(res, func() { c.Printf("match %s %s (season %s)\n", res.GetMatchId(), state, res.GetSeason()) })
	})
}

func matchListCommand(app *cli.App) *cobra.Command {
	var req pb.ListMatchesRequest
	var limit int32
	cmd := &cobra.Command{
		Use: "list", Short: "List the matches of a season", Args: cli.Exactly(),
		Long: "List the matches of a season with their states, ordered by id. The board must have --matches.",
		Example: `  leaderboard match list --board cup
  leaderboard match list --board cup --season 202610 --prefix final --limit 1000`,
	}
	AddBoardFlag(cmd, &req.Board)
	f := cmd.Flags()
	f.StringVarP(&req.Season, "season", "s", "", "`season` of the matches (if omitted, the current season)")
	annotate(f, "season", seasonValues)
	f.StringVar(&req.Prefix, "prefix", "", "only matches whose ids begin with this `text`")
	f.Int32VarP(&limit, "limit", "n", 100, "`number` of matches, 1 to 1000")
	f.StringVar(&req.PageToken, "page-token", "", "`token` that the previous page printed at its end")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		req.Board, req.Limit = BoardName(req.GetBoard()), &limit
		res, err := c.Scores.ListMatches(ctx, &req)
		if err != nil {
			return err
		}
		return c.print(res, func() {
			if len(res.GetMatches()) == 0 {
				c.Println("no matches")
				return
			}
			t := cli.NewTable(cli.Row{"season", "match", "state", "changed (UTC)", "by", "reason"})
			for _, m := range res.GetMatches() {
				t.AppendRow(cli.Row{m.GetSeason(), m.GetMatchId(), matchState(m), matchChange(m), m.GetActor(), m.GetReason()})
			}
			cli.WriteTable(c.Stdout, t)
			c.printNextPage(res.GetNextPageToken())
		})
	})
}

func (c *Client) printNextPage(token string) {
	if token != "" {
		c.Printf("next page: --page-token %s\n", token)
	}
}

func matchState(m *pb.Match) string {
	if m.GetVoided() {
		return "void"
	}
	return "counts"
}

func matchChange(m *pb.Match) string {
	if m.GetChangedAt() == nil {
		return ""
	}
	return formatTime(m.GetChangedAt())
}

func matchShowCommand(app *cli.App) *cobra.Command {
	var req pb.GetMatchRequest
	var limit int32
	cmd := &cobra.Command{
		Use: "show MATCH", Short: "Show the state and the results of a match", Args: cli.Exactly("MATCH"),
		Long: "Show the state and the results of a match. The board must have --matches.",
		Example: `  leaderboard match show final-2026 --board cup
  leaderboard match show final-2026 --board cup --season 202610 --json`,
	}
	AddBoardFlag(cmd, &req.Board)
	addMatchSeasonFlag(cmd, &req.Season)
	f := cmd.Flags()
	f.Int32VarP(&limit, "limit", "n", 100, "`number` of results, 1 to 1000")
	f.StringVar(&req.PageToken, "page-token", "", "`token` that the previous page printed at its end")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req.Board, req.MatchId, req.Limit = BoardName(req.GetBoard()), args[0], &limit
		res, err := c.Scores.GetMatch(ctx, &req)
		if err != nil {
			return err
		}
		unit := c.entryTable(ctx, req.GetBoard()).Unit
		return c.print(res, func() {
			m := res.GetMatch()
			c.Printf("match %s · season %s · %s\n", m.GetMatchId(), m.GetSeason(), matchState(m))
			if m.GetChangedAt() != nil && m.Reason != nil {
				c.Printf("changed %s UTC by %s: %s\n", formatTime(m.GetChangedAt()), m.GetActor(), m.GetReason())
			}
			t := cli.NewTable(cli.Row{"user", "status", "revision", "score", "achieved (UTC)"}, "revision", "score")
			for _, r := range res.GetResults() {
				t.AppendRow(cli.Row{r.GetUserId(), strings.ToLower(r.GetStatus().String()), r.GetRevision(), resultScore(r.GetResult(), unit), formatTime(r.GetResult().GetAchievedAt())})
			}
			cli.WriteTable(c.Stdout, t)
			c.printNextPage(res.GetNextPageToken())
		})
	})
}
