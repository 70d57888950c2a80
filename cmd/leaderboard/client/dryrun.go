package client

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func addDryRun(f *pflag.FlagSet, dryRun *bool) {
	f.BoolVar(dryRun, "dry-run", false, "change nothing, and show what would change")
}

func (c *Client) printBanEffect(res proto.Message, e *pb.BanEffect) error {
	return c.print(res, func() {
		if len(e.GetEntries()) > 0 {
			t := cli.NewTable(cli.Row{"board", "season", "score", "rank now", "rank after"}, "score", "rank now", "rank after")
			for _, x := range e.GetEntries() {
				t.AppendRow(cli.Row{x.GetBoard(), x.GetSeason(), x.GetScore(), formatRank(x.RankBefore), formatRank(x.RankAfter)})
			}
			cli.WriteTable(c.Stdout, t)
		}
		if e.GetDegraded() {
			c.Println("ranks are unavailable at the moment")
		}
		c.Printf("dry run: nothing changed. Entries that would appear or disappear: %d, on %s%s\n",
			e.GetSeasonCount(), cli.Plural(e.GetBoardCount(), "board", "boards"), truncationNote(e.GetTruncated(), len(e.GetEntries())))
	})
}

func (c *Client) printRetractionEffect(ctx context.Context, res proto.Message, e *pb.RetractionEffect, summary string) error {
	t := cli.NewTable(cli.Row{"user", "board", "season", "score now", "score after", "rank now", "rank after"}, "score now", "score after", "rank now", "rank after")
	units := map[string]cli.Unit{}
	for _, x := range e.GetEntries() {
		if _, ok := units[x.GetBoard()]; !ok {
			units[x.GetBoard()] = c.entryTable(ctx, x.GetBoard()).Unit
		}
		score := func(n *int64) string {
			if n == nil {
				return "-"
			}
			return units[x.GetBoard()].FormatWithUnit(*n)
		}
		t.AppendRow(cli.Row{x.GetUserId(), x.GetBoard(), x.GetSeason(), score(x.ScoreBefore), score(x.ScoreAfter), formatRank(x.RankBefore), formatRank(x.RankAfter)})
	}
	return c.print(res, func() {
		if len(e.GetEntries()) > 0 {
			cli.WriteTable(c.Stdout, t)
		}
		if e.GetDegraded() {
			c.Println("ranks are unavailable at the moment")
		}
		c.Printf("dry run: nothing changed. %s. Entries that would change: %d%s\n", summary, e.GetChangedCount(), truncationNote(e.GetTruncated(), len(e.GetEntries())))
	})
}

func (c *Client) printBoardEffect(b *pb.Board) error {
	e := b.GetEffect()
	return c.print(b, func() {
		writeBoard(c.Stdout, b)
		if len(e.GetSeasons()) > 0 {
			c.Println("")
			t := cli.NewTable(cli.Row{"season", "entries", "closes (UTC)", "would close", "deleted from (UTC)", "would be deleted from", "next sweep"}, "entries")
			for _, s := range e.GetSeasons() {
				sweep := "keeps it"
				switch {
				case s.GetAdded():
					sweep = "new season"
				case s.GetRemovedNext():
					sweep = "deletes it"
				}
				t.AppendRow(cli.Row{
					s.GetId(), formatRank(s.Entrants), formatTimeOrNever(s.GetClosesBefore()), formatTimeOrNever(s.GetClosesAfter()),
					formatTimeOrNever(s.GetRemovedBefore()), formatTimeOrNever(s.GetRemovedAfter()), sweep,
				})
			}
			cli.WriteTable(c.Stdout, t)
		}
		if e.GetLosesDense() {
			c.Println("\nwith several shards, a distributed server has no dense ranks of seasons that are not sealed: --method dense would fail")
		}
		c.Printf("dry run: nothing changed. Seasons that would change: %d; the next sweep would delete %d%s\n",
			e.GetChangedCount(), e.GetRemovedCount(), truncationNote(e.GetTruncated(), len(e.GetSeasons())))
	})
}

func formatTimeOrNever(t *timestamppb.Timestamp) string {
	if t == nil {
		return "never"
	}
	return formatTime(t)
}

func truncationNote(truncated bool, n int) string {
	if !truncated {
		return ""
	}
	return fmt.Sprintf("; only the first %d are shown", n)
}
