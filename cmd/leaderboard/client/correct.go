package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func correctCommand(app *cli.App) *cobra.Command {
	var req pb.CorrectResultRequest
	var score, points, revision int64
	var at, meta, status string
	var reset bool
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
	f.BoolVar(&reset, "reset", false, "whether the result sets the user's score, on sum boards")
	f.StringVar(&status, "status", "", "new `status`: ranked, dnf, dns, dsq, cut or hors-concours")
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
		if f.Changed("reset") {
			req.Reset_ = &reset
		}
		if status != "" {
			finish, err := parseEnum[pb.Result_Finish](nil, "status", status, pb.Result_Finish_value)
			if err != nil {
				return err
			}
			req.Status = &finish
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
