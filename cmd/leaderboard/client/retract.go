package client

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func retractBatchCommand(app *cli.App) *cobra.Command {
	var req pb.BatchRetractResultsRequest
	cmd := &cobra.Command{
		Use: "retract-batch FILE", Short: "Undo many results in one call", Args: cli.Exactly("FILE"),
		Long: `Undo up to 5,000 results of a board in one call. FILE has one JSON object per line, with
user_id, match_id and, if the match has results in several seasons, season; - is standard
input. If a result cannot be undone, the other results are not affected, and the exit
code is 1.`,
		Example: `  leaderboard retract-batch cheaters.ndjson --board cup --reason "aimbot" --dry-run
  echo '{"user_id":"eve","match_id":"final-2026"}' | leaderboard retract-batch -`,
	}
	AddBoardFlag(cmd, &req.Board)
	addReasonFlag(cmd.Flags(), &req.Reason)
	addDryRun(cmd.Flags(), &req.DryRun)
	addBatchLinkedFlag(cmd.Flags(), &req.IncludeLinked)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		data, err := readAll(app, args[0], maxBatchBytes)
		if err != nil {
			return err
		}
		if req.Results, err = decodeLines[pb.BatchRetractResultsRequest_Key](data); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		req.Board = BoardName(req.GetBoard())
		res, err := c.Scores.BatchRetractResults(ctx, &req)
		if err != nil {
			return err
		}
		if req.GetDryRun() {
			return c.printRetractionEffect(ctx, res, res.GetEffect(), fmt.Sprintf("Results: %d", len(res.GetOutcomes())))
		}
		return c.printOutcomes(res, res.GetOutcomes())
	})
}

func purgeCommand(app *cli.App) *cobra.Command {
	var req pb.PurgeResultsRequest
	var from, to string
	cmd := &cobra.Command{
		Use: "purge USER (--from TIME | --to TIME)", Short: "Undo a user's results between two times", Args: cli.Exactly("USER"),
		Long: `Undo a user's results on a board, if their event time is at --from or later, and before
--to. One of the two flags may be omitted.`,
		Example: `  leaderboard purge eve --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z --dry-run
  leaderboard purge eve --board cup --from 2026-11-20T00:00:00Z --reason "aimbot"`,
	}
	AddBoardFlag(cmd, &req.Board)
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "only results of events at this `time` or later, such as 2026-11-20T10:00:00Z")
	f.StringVar(&to, "to", "", "only results of events before this `time`")
	f.StringVarP(&req.Season, "season", "s", "", "`season` of the results (if omitted, every season)")
	annotate(f, "season", seasonValues)
	addReasonFlag(f, &req.Reason)
	addDryRun(f, &req.DryRun)
	addBatchLinkedFlag(f, &req.IncludeLinked)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req.Board, req.UserId = BoardName(req.GetBoard()), args[0]
		for flag, text := range map[string]string{"from": from, "to": to} {
			if text == "" {
				continue
			}
			t, err := parseTime(text)
			if err != nil {
				return cli.Usagef("--%s: %w", flag, err)
			}
			if flag == "from" {
				req.From = timestamppb.New(t)
			} else {
				req.To = timestamppb.New(t)
			}
		}
		res, err := c.Scores.PurgeResults(ctx, &req)
		if err != nil {
			return err
		}
		if req.GetDryRun() {
			err = c.printRetractionEffect(ctx, res, res.GetEffect(), fmt.Sprintf("Results: %d", len(res.GetOutcomes())))
		} else {
			err = c.printOutcomes(res, res.GetOutcomes())
		}
		if err == nil && res.GetMore() && c.Output.IsTable() {
			c.Println("not all results are undone; repeat the command to undo the others")
		}
		return err
	})
}
