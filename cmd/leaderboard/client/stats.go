package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func friendsCommand(app *cli.App) *cobra.Command {
	var q query
	cmd := &cobra.Command{
		Use: "friends USER...", Short: "Compare some users with each other",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("USER is missing; see %s --help", cmd.CommandPath())
			}
			return nil
		},
		Long: `Show the entries of up to 5000 users in order, each with its rank among these users
and its rank among all users.`,
		Example: `  leaderboard friends ada bob cyd
  leaderboard friends ada bob --board marathon --season latest --json`,
	}
	q.addFlags(cmd)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		res, err := c.Scores.LookupScores(ctx, &pb.LookupScoresRequest{
			Board: BoardName(q.board), Season: q.season, Division: q.division, Method: q.method, UserIds: args,
		})
		if err != nil {
			return err
		}
		t := c.entryTable(ctx, q.board)
		return c.print(res, func() {
			d := res.GetData()
			w := cli.NewTable(cli.Row{"place", "rank", "user", t.Unit.Header(), "achieved (UTC)"}, "place", "rank", t.Unit.Header())
			for _, e := range d.GetLeaderboard() {
				w.AppendRow(cli.Row{formatRank(e.ListRank), formatRank(e.Rank), e.GetUserId(), t.Unit.Format(e.GetScore()), formatTime(e.GetAchievedAt())})
			}
			if len(d.GetLeaderboard()) > 0 {
				cli.WriteTable(c.Stdout, w)
			}
			if len(d.GetMissing()) > 0 {
				c.Printf("without an entry: %s\n", strings.Join(d.GetMissing(), ", "))
			}
			c.Println(describe(d))
		})
	})
}

const barColumns = 40

func statsCommand(app *cli.App) *cobra.Command {
	var q query
	var rank, score int64
	var buckets int32
	cmd := &cobra.Command{
		Use: "stats", Short: "Show the distribution of the scores on a board", Args: cli.Exactly(),
		Example: `  leaderboard stats
  leaderboard stats --board marathon --season latest --buckets 20
  leaderboard stats --rank 100
  leaderboard stats --score 5000`,
	}
	q.addFlags(cmd)
	f := cmd.Flags()
	f.Int32Var(&buckets, "buckets", 10, "maximum `number` of bars in the histogram, 0 to 100")
	f.Int64Var(&rank, "rank", 0, "show the score at this `position`")
	scoreFlag(f, &score, "score", "show the rank that this `score` would have")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		req := &pb.GetStatsRequest{
			Board: q.board, Season: q.season, Division: q.division, Method: q.method, Buckets: &buckets,
			Rank: given(f, "rank", rank), Score: given(f, "score", score),
		}
		res, err := c.Scores.GetStats(ctx, req)
		if err != nil {
			return err
		}
		t := c.entryTable(ctx, q.board)
		return c.print(res, func() { writeStats(c, req, res.GetData(), t.Unit) })
	})
}

func writeStats(c *Client, req *pb.GetStatsRequest, d *pb.GetStatsResponse_Stats, unit cli.Unit) {
	if d.BestScore == nil {
		c.Println("no entries yet; `leaderboard submit` adds a result")
	} else {
		w := cli.NewTable(cli.Row{"", unit.Header()}, unit.Header())
		w.AppendRow(cli.Row{"best", unit.Format(d.GetBestScore())})
		for _, p := range d.GetPercentiles() {
			w.AppendRow(cli.Row{fmt.Sprintf("not worse than %g %%", p.GetPercentile()), unit.Format(p.GetScore())})
		}
		w.AppendRow(cli.Row{"worst", unit.Format(d.GetWorstScore())})
		cli.WriteTable(c.Stdout, w)
	}
	if len(d.GetHistogram()) > 0 {
		maxCount := int64(1)
		for _, b := range d.GetHistogram() {
			maxCount = max(maxCount, b.GetCount())
		}
		w := cli.NewTable(cli.Row{"from", "to", "entries", ""}, "from", "to", "entries")
		for _, b := range d.GetHistogram() {
			w.AppendRow(cli.Row{unit.Format(b.GetLower()), unit.Format(b.GetUpper()), b.GetCount(), strings.Repeat("█", int(b.GetCount()*barColumns/maxCount))})
		}
		c.Println("")
		cli.WriteTable(c.Stdout, w)
		c.Println("")
	}
	switch {
	case req.Rank == nil:
	case d.ScoreAtRank == nil:
		c.Printf("no entry is at position %d\n", req.GetRank())
	default:
		c.Printf("position %d has %s\n", req.GetRank(), unit.FormatWithUnit(d.GetScoreAtRank()))
	}
	if req.Score != nil {
		c.Printf("%s would have rank %s\n", unit.FormatWithUnit(req.GetScore()), formatRank(d.RankOfScore))
	}
	c.Println(describe(&pb.Leaderboard{
		Board: d.GetBoard(), Season: d.GetSeason(), Division: d.GetDivision(), Method: d.GetMethod(), Total: &d.Total, AsOf: d.GetAsOf(), Sealed: d.GetSealed(),
	}))
}
