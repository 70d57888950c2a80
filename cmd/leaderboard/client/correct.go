package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// finishFlags are the flags of a result that sets a score, or has no rank.
type finishFlags struct {
	reset  bool
	status string
}

func (x *finishFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&x.reset, "reset", false, "set the user's score to --points, on sum boards; earlier results no longer count")
	f.StringVar(&x.status, "status", "", "`status`, on boards with statuses: ranked, or without a rank dnf, dns, dsq, cut or hors-concours")
}

// values returns nil for flags that are not given.
func (x *finishFlags) values(f *pflag.FlagSet) (reset *bool, status *pb.Result_Finish, err error) {
	if f.Changed("reset") {
		reset = &x.reset
	}
	if x.status != "" {
		var finish pb.Result_Finish
		finish, err = parseEnum[pb.Result_Finish](nil, "status", x.status, pb.Result_Finish_value)
		status = &finish
	}
	return reset, status, err
}

func correctCommand(app *cli.App) *cobra.Command {
	var req pb.CorrectResultRequest
	var score, points, revision int64
	var at, meta string
	var finish finishFlags
	cmd := &cobra.Command{
		Use: "correct USER MATCH", Short: "Change fields of a stored result", Args: cli.Exactly("USER", "MATCH"),
		Long: `Change fields of a stored result. The other fields do not change, for example the time
and the attributes. The command finds the season of the result. In a closed season, the
command needs a key with the admin scope, and a reason.`,
		Example: `  leaderboard correct ada final-2026 --points 1
  leaderboard correct b2014-3416 boston --board marathon --score 11540 --attribute gender=F
  leaderboard correct ada final-2026 --points 1 --dry-run
  leaderboard correct ada final-2026 --points 1 --season 202610 --reason "wrong lane"`,
	}
	AddBoardFlag(cmd, &req.Board)
	addMatchSeasonFlag(cmd, &req.Season)
	f := cmd.Flags()
	scoreFlag(f, &points, "points", "new `points`, on boards that combine results")
	scoreFlag(f, &score, "score", "new `score`, on best, latest and first boards")
	f.Int64Var(&revision, "revision", 0, "expected current `revision`; if another revision is current, the server changes nothing")
	f.StringVar(&at, "achieved-at", "", "new `time` of the event, in the same season, such as 2026-11-20T10:00:00Z")
	f.Int64SliceVar(&req.TieBreakers, "tie-breakers", nil, "new `values` of all tie-breakers in the board's order, such as 1,0")
	f.StringToStringVar(&req.Attributes, "attribute", nil, "attribute to set, as `name=value`; name= removes it")
	f.StringVar(&meta, "metadata", "", "JSON `object` that replaces the stored metadata; {} removes it")
	finish.add(f)
	addReasonFlag(f, &req.Reason)
	addDryRun(f, &req.DryRun)
	addLinkedFlag(f, &req.IncludeLinked)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req.Board, req.UserId, req.MatchId, req.IncludePreviousRank = BoardName(req.GetBoard()), args[0], args[1], true
		for flag, set := range map[string]func(){
			"points": func() { req.Points = &points }, "score": func() { req.Score = &score }, "revision": func() { req.Revision = &revision },
		} {
			if f.Changed(flag) {
				set()
			}
		}
		var err error
		if req.Reset_, req.Status, err = finish.values(f); err != nil {
			return err
		}
		if req.AchievedAt, req.Metadata, err = parseTimeAndMetadata(at, meta); err != nil {
			return err
		}
		res, err := c.Scores.CorrectResult(ctx, &req)
		if err != nil {
			return err
		}
		if req.GetDryRun() {
			return c.printRetractionEffect(ctx, res, res.GetEffect(), fmt.Sprintf("Match %s, season %s, would have revision %d", res.GetMatchId(), res.GetSeason(), res.GetRevision()))
		}
		t, printLinked := c.entryTable(ctx, req.GetBoard()), c.linkedWriter(ctx, res.GetLinked())
		return c.print(res, func() {
			c.Printf("%s: %s%s\n", strings.ToLower(res.GetStatus().String()), scoreLine(res.GetUserId(), res.NewScore, res.Rank, t.Unit), noteBefore(res.PreviousScore, res.PreviousRank, res.GetPersonalBest(), t.Unit))
			c.Printf("match %s · revision %d · season %s · achieved %s UTC\n", res.GetMatchId(), res.GetRevision(), res.GetSeason(), formatTime(res.GetResult().GetAchievedAt()))
			printLinked()
		})
	})
}
