package client

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func matchCommand(app *cli.App) *cobra.Command {
	return cli.Parent("match", "Void and restore matches", `  leaderboard match void final-2026 --board cup --reason "wrong map" --dry-run
  leaderboard match restore final-2026 --board cup --reason "the map was right"`,
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
		Long: short + `. The board must have been created with --matches. The command finds the
season of the match. It needs a key with the admin scope.`,
		Example: "  leaderboard match " + use[:len(use)-len("MATCH")] + `final-2026 --board cup --reason "wrong map"`,
	}
	AddBoardFlag(cmd, &req.Board)
	addMatchSeasonFlag(cmd, &req.Season)
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`reason`, for operators (required)")
	addDryRun(cmd.Flags(), &req.DryRun)
	return jsonCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
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
