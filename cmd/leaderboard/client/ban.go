package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

const reasonBanned = "USER_BANNED"

func addBanBoard(f *pflag.FlagSet, board *string) {
	f.StringVarP(board, "board", "b", "", "`board` of the ban (if omitted, every board)")
	annotate(f, "board", boardValues)
}

func banCommand(app *cli.App) *cobra.Command {
	var board, reason, until string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "ban USER", Short: "Hide a user from a board or from every board", Args: cli.Exactly("USER"),
		Long: `Hide a user from a board, or from every board. The server keeps the user's results
and accepts new results. "leaderboard unban", or the end of the ban, shows the user
again. Without --board, the ban is on every board, and the command asks for confirmation.

To ban a user whose id is "list" or "search", write "--" before the id.`,
		Example: `  leaderboard ban mallory --reason "speed hack, ticket 4711"
  leaderboard ban mallory --board arena --until 72h
  leaderboard ban mallory --until 2027-01-01T00:00:00Z --yes
  leaderboard ban mallory --dry-run
  leaderboard ban list`,
	}
	addBanBoard(cmd.Flags(), &board)
	cmd.Flags().StringVar(&reason, "reason", "", "`reason` for the ban, for operators")
	cmd.Flags().StringVar(&until, "until", "", "`end` of the ban: a time such as 2027-01-01T00:00:00Z, or a duration from now such as 72h (if omitted, never)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation of a ban on every board")
	addDryRun(cmd.Flags(), &dryRun)
	DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		end, err := parseEnd(until, time.Now())
		if err != nil {
			return err
		}
		if err := app.Confirm(yes || dryRun || board != "", fmt.Sprintf("Ban user %s on every board? For a ban on one board, use --board.", args[0]), args[0]); err != nil {
			return err
		}
		res, err := c.Scores.BanUser(ctx, &pb.BanUserRequest{UserId: args[0], Board: board, Reason: reason, Until: end, DryRun: dryRun})
		if err != nil {
			return err
		}
		if dryRun {
			return c.printBanEffect(res, res.GetEffect())
		}
		return c.print(res, func() {
			c.Printf("%s is banned on %s%s\n", res.GetUserId(), bannedBoards([]*pb.Ban{res.GetBan()}), untilText(res.GetBan()))
		})
	})
	cmd.AddCommand(banListCommand(app, "list", "List bans"), banListCommand(app, "search", "Find bans by a part of the user's id"))
	return cmd
}

func parseEnd(text string, now time.Time) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return timestamppb.New(t), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return nil, cli.Usagef("--until %q is neither a time such as 2027-01-01T00:00:00Z nor a duration such as 72h", text)
	}
	return timestamppb.New(now.Add(d)), nil
}

func untilText(b *pb.Ban) string {
	if b.GetUntil() == nil {
		return ""
	}
	return " until " + b.GetUntil().AsTime().Format(time.RFC3339)
}

func bannedBoards(bans []*pb.Ban) string {
	names := make([]string, len(bans))
	for i, b := range bans {
		if names[i] = "board " + b.GetBoard(); b.GetBoard() == "" {
			names[i] = "every board"
		}
	}
	return strings.Join(names, ", ")
}

func unbanCommand(app *cli.App) *cobra.Command {
	var board, reason string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "unban USER", Short: "Lift a ban", Args: cli.Exactly("USER"),
		Long: `Lift the ban on a board, or, without --board, the ban on every board. The other bans of
the user remain, and the command names them.`,
		Example: `  leaderboard unban mallory
  leaderboard unban mallory --board arena --reason "appeal granted"`,
	}
	addBanBoard(cmd.Flags(), &board)
	cmd.Flags().StringVar(&reason, "reason", "", "`reason` for the end of the ban, for operators")
	addDryRun(cmd.Flags(), &dryRun)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		res, err := c.Scores.UnbanUser(ctx, &pb.UnbanUserRequest{UserId: args[0], Board: board, Reason: reason, DryRun: dryRun})
		if err != nil {
			return err
		}
		if dryRun {
			return c.printBanEffect(res, res.GetEffect())
		}
		err = c.print(res, func() {
			c.Printf("the ban of %s on %s is not in force\n", res.GetUserId(), bannedBoards([]*pb.Ban{{Board: board}}))
		})
		c.noteOtherBans(ctx, args[0])
		return err
	})
}

// noteOtherBans names the bans of a user that are in force.
func (c *Client) noteOtherBans(ctx context.Context, user string) {
	res, err := c.Scores.ListUserScores(ctx, &pb.ListUserScoresRequest{UserId: user})
	if err != nil {
		c.Notef("cannot read whether %s has other bans: %s\n", user, ErrorText(c.WrapError(err)))
		return
	}
	for _, b := range res.GetData().GetBans() {
		flag := "omit --board"
		if b.GetBoard() != "" {
			flag = "use --board " + b.GetBoard()
		}
		c.Notef("%s is still banned on %s%s; to lift this ban, %s\n", user, bannedBoards([]*pb.Ban{b}), untilText(b), flag)
	}
}

func banListCommand(app *cli.App, name, short string) *cobra.Command {
	req := &pb.ListBansRequest{}
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cli.Exactly(),
		Example: "  leaderboard ban list --board arena\n  leaderboard ban list --all --json",
	}
	if name == "search" {
		cmd.Use, cmd.Args = "search TEXT", cli.Exactly("TEXT")
		cmd.Example = "  leaderboard ban search mall\n  leaderboard ban search \"\" --reason aimbot"
	}
	f := cmd.Flags()
	f.StringVarP(&req.Board, "board", "b", "", "only bans on this `board` and on every board")
	annotate(f, "board", boardValues)
	f.StringVar(&req.Reason, "reason", "", "only bans with this `text` in the reason")
	f.StringVar(&req.Actor, "actor", "", "only bans with this `text` in the administrator's id")
	f.BoolVar(&req.IncludeLifted, "all", false, "include bans that were lifted or have ended")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		if len(args) > 0 {
			req.User = args[0]
		}
		limit := int32(1000)
		req.Limit = &limit
		all := &pb.ListBansResponse{}
		for {
			res, err := c.Admin.ListBans(ctx, req)
			if err != nil {
				return err
			}
			all.Bans = append(all.Bans, res.GetBans()...)
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		return c.print(all, func() { c.printBans(all.GetBans()) })
	})
}

func (c *Client) printBans(bans []*pb.Ban) {
	t := cli.NewTable(cli.Row{"user", "board", "since (UTC)", "until (UTC)", "by", "reason"})
	for _, b := range bans {
		board, until := b.GetBoard(), "-"
		if board == "" {
			board = "every"
		}
		switch {
		case !b.GetBanned():
			until = "lifted"
		case b.GetUntil() != nil:
			until = formatTime(b.GetUntil())
		}
		t.AppendRow(cli.Row{b.GetUserId(), board, formatTime(b.GetAt()), until, b.GetActor(), b.GetReason()})
	}
	cli.WriteTable(c.Stdout, t)
}
