package client

import (
	"context"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func auditCommand(app *cli.App) *cobra.Command {
	req := &pb.ListActsRequest{}
	var limit int32
	var since time.Duration
	cmd := &cobra.Command{
		Use: "audit", Short: "List administrative acts, newest first", Args: cli.Exactly(),
		Long: `List who did what and when: boards, bans, erasures, keys, repairs and backups. With
--json, each act has the changed object before and after.`,
		Example: `  leaderboard audit
  leaderboard audit --user mallory --since 720h
  leaderboard audit --action board --board arena --json`,
	}
	f := cmd.Flags()
	f.StringVar(&req.UserId, "user", "", "only acts on this `user`")
	f.StringVar(&req.Actor, "actor", "", "only acts of this `administrator`, such as key:3f0c9a51d2e84b76")
	f.StringVar(&req.Action, "action", "", "only this `action`, such as ban, board or board.update")
	f.StringVarP(&req.Board, "board", "b", "", "only acts on this `board`")
	f.DurationVar(&since, "since", 0, "only acts of the last `duration`, such as 24h (if omitted, all)")
	f.Int32Var(&limit, "limit", 100, "maximum `number` of acts, up to 1000")
	return jsonCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		req.Limit = &limit
		if since > 0 {
			req.Since = time.Now().Add(-since).UTC().Format(time.RFC3339)
		}
		res, err := c.Admin.ListActs(ctx, req)
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := cli.NewTable(table.Row{"time (UTC)", "by", "action", "board", "user", "reason", "request"})
			for _, a := range res.GetActs() {
				action, user := a.GetAction(), a.GetUserId()
				if a.GetFailed() {
					action += ", failed"
				}
				if a.GetErased() {
					user = "(erased)"
				}
				t.AppendRow(table.Row{formatTime(a.GetAt()), a.GetActor(), action, a.GetBoard(), user, a.GetReason(), a.GetRequestId()})
			}
			cli.WriteTable(c.Stdout, t)
		})
	})
}
