package client

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func seasonCommand(app *cli.App) *cobra.Command {
	return cli.Parent("season", "List and show seasons, and end one before its time", `  leaderboard season list --board cup
  leaderboard season show 2025 --board cup --checksum
  leaderboard season end 202611 --board cup --reason "exploit in patch 7" --dry-run`, seasonListCommand(app), seasonShowCommand(app), seasonEndCommand(app))
}

func seasonListCommand(app *cli.App) *cobra.Command {
	var req pb.ListSeasonsRequest
	var limit int32
	cmd := &cobra.Command{
		Use: "list", Short: "List the seasons of a board, newest first", Args: cli.Exactly(),
		Example: `  leaderboard season list --board cup
  leaderboard season list --board cup --limit 1000 --json`,
	}
	AddBoardFlag(cmd, &req.Board)
	cmd.Flags().Int32VarP(&limit, "limit", "n", 100, "`number` of seasons, 1 to 1000")
	cmd.Flags().StringVar(&req.PageToken, "page-token", "", "`token` that the previous page printed at its end")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		req.Board, req.Limit = BoardName(req.GetBoard()), &limit
		res, err := c.Scores.ListSeasons(ctx, &req)
		if err != nil {
			return err
		}
		return c.print(res, func() {
			t := cli.NewTable(cli.Row{"season", "start (UTC)", "end (UTC)", "status", "entries", "sealed (UTC)", "amended", "deleted from (UTC)"}, "entries", "amended")
			for _, s := range res.GetData().GetSeasons() {
				status := s.GetStatus()
				if s.GetId() == res.GetData().GetCurrent() {
					status += ", current"
				}
				entries := "-"
				if s.Entrants != nil {
					entries = fmt.Sprint(s.GetEntrants())
				}
				t.AppendRow(cli.Row{s.GetId(), formatTime(s.GetStart()), formatTime(s.GetEnd()), status, entries, formatTime(s.GetSealedAt()), len(s.GetAmendments()), formatTime(s.GetRemovedAt())})
			}
			cli.WriteTable(c.Stdout, t)
			if token := res.GetData().GetNextPageToken(); token != "" {
				c.Printf("next page: --page-token %s\n", token)
			}
		})
	})
}

func seasonShowCommand(app *cli.App) *cobra.Command {
	var req pb.GetSeasonRequest
	cmd := &cobra.Command{
		Use: "show SEASON", Short: "Show a season of a board", Args: cli.Exactly("SEASON"),
		Long: `Show a season of a board. With --checksum, also show the SHA-256 of the standings of a
sealed season. Two servers with the same final standings show the same checksum.`,
		Example: "  leaderboard season show 2025 --board cup --checksum",
	}
	AddBoardFlag(cmd, &req.Board)
	cmd.Flags().BoolVar(&req.Checksum, "checksum", false, "show the checksum of a sealed season")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req.Board, req.Season = BoardName(req.GetBoard()), args[0]
		res, err := c.Scores.GetSeason(ctx, &req)
		if err != nil {
			return err
		}
		return c.print(res, func() { c.printSeason(res.GetData()) })
	})
}

func (c *Client) printSeason(s *pb.ListSeasonsResponse_Season) {
	entries := "unknown"
	if s.Entrants != nil {
		entries = fmt.Sprint(s.GetEntrants())
	}
	c.Printf("season %s is %s, entries: %s\n", s.GetId(), s.GetStatus(), entries)
	for _, line := range []struct {
		label string
		time  *timestamppb.Timestamp
	}{
		{"start", s.GetStart()}, {"end", s.GetEnd()}, {"ended by an administrator", s.GetEndedAt()}, {"closes", s.GetClosesAt()},
		{"sealed", s.GetSealedAt()}, {"deleted from", s.GetRemovedAt()},
	} {
		if line.time != nil {
			c.Printf("%s: %s UTC\n", line.label, formatTime(line.time))
		}
	}
	for _, a := range s.GetAmendments() {
		c.Printf("amended: %s UTC, %s\n", formatTime(a.GetAt()), a.GetReason())
	}
	if s.Checksum != nil {
		c.Printf("checksum: %s\n", s.GetChecksum())
	}
}

func (c *Client) noteChecksums(ctx context.Context, board string, seasons []string) error {
	for _, id := range seasons {
		res, err := c.Scores.GetSeason(ctx, &pb.GetSeasonRequest{Board: BoardName(board), Season: id})
		if err == nil && res.GetData().GetStatus() == "sealed" {
			res, err = c.Scores.GetSeason(ctx, &pb.GetSeasonRequest{Board: BoardName(board), Season: id, Checksum: true})
		}
		if err != nil {
			return err
		}
		if res.GetData().Checksum != nil {
			c.Notef("season %s is sealed, checksum %s\n", id, res.GetData().GetChecksum())
		}
	}
	return nil
}

func seasonEndCommand(app *cli.App) *cobra.Command {
	var req pb.EndSeasonRequest
	var at string
	var yes bool
	cmd := &cobra.Command{
		Use: "end SEASON", Short: "End a season before its time", Args: cli.Exactly("SEASON"),
		Long: `End a season before its time. Only results whose time is before the new end count. The
server rejects results from the time between this end and the next season. You can move
the end to an earlier time, but never to a later time.`,
		Example: `  leaderboard season end 202611 --board cup --reason "exploit in patch 7" --dry-run
  leaderboard season end 202611 --board cup --reason "exploit in patch 7" --at 2026-11-20T09:00:00Z`,
	}
	AddBoardFlag(cmd, &req.Board)
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "`time` of the end, not in the future, such as 2026-11-20T10:00:00Z (if omitted, now)")
	f.StringVar(&req.Reason, "reason", "", "`reason`, which the audit log keeps (required)")
	f.BoolVar(&yes, "yes", false, "do not ask for confirmation")
	addDryRun(f, &req.DryRun)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		req.Board, req.Season = BoardName(req.GetBoard()), args[0]
		if req.GetReason() == "" {
			return cli.Usagef("--reason is missing; the audit log keeps the reason")
		}
		if at != "" {
			t, err := parseTime(at)
			if err != nil {
				return cli.Usagef("--at: %v", err)
			}
			req.At = timestamppb.New(t)
		}
		if !req.GetDryRun() {
			if err := app.Confirm(yes, fmt.Sprintf("Permanently end season %s of board %s?", req.GetSeason(), req.GetBoard()), req.GetSeason()); err != nil {
				return err
			}
		}
		res, err := c.Scores.EndSeason(ctx, &req)
		if err != nil {
			return err
		}
		return c.print(res, func() { c.printSeasonEnd(res) })
	})
}

func (c *Client) printSeasonEnd(res *pb.EndSeasonResponse) {
	s, n := res.GetSeason(), res.GetExcludedResults()
	verb := "ended"
	if res.GetDryRun() {
		verb = "would end"
	}
	c.Printf("season %s %s at %s UTC", s.GetId(), verb, formatTime(s.GetEnd()))
	if s.GetClosesAt() != nil {
		c.Printf(", and accepts earlier results until %s UTC", formatTime(s.GetClosesAt()))
	}
	c.Println("")
	if n > 0 {
		c.Printf("excluded: %s of %s\n", cli.Plural(n, "stored result", "stored results"), cli.Plural(res.GetExcludedUsers(), "user", "users"))
	}
	if res.GetNextSeason() == "" {
		c.Println("the board has no later season")
	} else {
		c.Printf("the next season, %s, starts at %s UTC\n", res.GetNextSeason(), formatTime(res.GetNextStart()))
	}
	if res.GetDryRun() {
		c.Println("dry run: nothing changed")
	}
}
