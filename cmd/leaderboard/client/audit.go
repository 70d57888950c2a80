package client

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func auditCommand(app *cli.App) *cobra.Command {
	req := &pb.ListActsRequest{}
	var limit int32
	var since, until string
	cmd := &cobra.Command{
		Use: "audit", Short: "List administrative acts, newest first", Args: cli.Exactly(),
		Long: `List who did what and when: results, boards, bans, erasures, keys, repairs and backups.
With --json, each act has the changed object before and after.`,
		Example: `  leaderboard audit
  leaderboard audit --user mallory --since 720h
  leaderboard audit --since 2026-11-20 --until 2026-11-21T12:00:00Z
  leaderboard audit --action board --board arena --json`,
	}
	f := cmd.Flags()
	f.StringVar(&req.UserId, "user", "", "only acts on this `user`")
	annotate(f, "user", userValues)
	f.StringVar(&req.Actor, "actor", "", "only acts of this `administrator`, such as key:3f0c9a51d2e84b76")
	f.StringVar(&req.Action, "action", "", "only this `action`, such as ban, board or board.update")
	f.StringVarP(&req.Board, "board", "b", "", "only acts on this `board`")
	annotate(f, "board", boardValues)
	f.StringVar(&since, "since", "", "only acts of this `time` or later, such as 2026-11-20, or of the last 24h")
	f.StringVar(&until, "until", "", "only acts before this `time`, such as 2026-11-20T10:00:00Z, or before the last 24h")
	f.Int32Var(&limit, "limit", 100, "maximum `number` of acts, up to 1000")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		req.Limit = &limit
		for _, bound := range []struct {
			flag, text string
			field      *string
		}{{"since", since, &req.Since}, {"until", until, &req.Before}} {
			if bound.text == "" {
				continue
			}
			t, err := ParseTimeOrAge(bound.text, time.Now())
			if err != nil {
				return cli.Usagef("--%s: %w", bound.flag, err)
			}
			*bound.field = t.UTC().Format(time.RFC3339Nano)
		}
		res, err := c.Admin.ListActs(ctx, req)
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := cli.NewTable(cli.Row{"time (UTC)", "by", "action", "board", "user", "match", "reason", "request"})
			last := ""
			for _, a := range res.GetActs() {
				if a.GetId() == last {
					continue // the intent of the act in the previous row
				}
				last = a.GetId()
				user := a.GetUserId()
				if a.GetErased() {
					user = "(erased)"
				}
				t.AppendRow(cli.Row{formatTime(a.GetAt()), actorName(a), actionText(a), a.GetBoard(), user, a.GetMatchId(), a.GetReason(), a.GetRequestId()})
			}
			cli.WriteTable(c.Stdout, t)
		})
	})
}

// systemActor is the actor of the service's own acts, which have no outcome.
const systemActor = "system"

func actorName(a *pb.Act) string {
	if a.GetActorName() == "" {
		return a.GetActor()
	}
	return a.GetActor() + " (" + a.GetActorName() + ")"
}

func actionText(a *pb.Act) string {
	switch {
	case a.GetFailed():
		return a.GetAction() + ", failed"
	case a.GetCompletedAt() == nil && a.GetActor() != systemActor:
		return a.GetAction() + ", outcome unknown"
	}
	return a.GetAction()
}

// ParseTimeOrAge parses a time in RFC 3339, a date in UTC, or a positive duration before now.
func ParseTimeOrAge(text string, now time.Time) (time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return now.Add(-age), nil
	}
	t, err := parseTime(text)
	if err != nil {
		err = fmt.Errorf("%w, or a positive duration such as 24h", err)
	}
	return t, err
}
