package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// reconnectPause is between two tries to go on watching.
const reconnectPause = time.Second

func watchCommand(w *world) *cobra.Command {
	var q query
	var limit int32
	cmd := &cobra.Command{
		Use: "watch", Short: "Show the top of a board as it changes", Args: exactly(),
		Long: `Show the top of a board now and after every change, until it is interrupted.
On a terminal the table is drawn in place, and moves since it was last drawn are
marked: ▲ up, ▼ down, ★ new.`,
		Example: `  leaderboard watch
  leaderboard watch --board cup --season 2026 --limit 20
  leaderboard watch --json | jq .leaderboard[0]`,
	}
	q.addFlags(cmd)
	cmd.Flags().Int32VarP(&limit, "limit", "n", 10, "how many entries, 1 to 1000")
	return w.clientCommand(cmd, func(ctx context.Context, c *client, _ []string) error {
		return c.watch(ctx, &pb.WatchScoresRequest{Board: boardName(q.board), Season: q.season, Division: q.division, Method: q.method, Limit: &limit}, nil)
	})
}

// watch shows what the server sends until ctx is done, and then says so by
// errQuiet. A lost connection is made again, once there was one. caption, if not
// nil, is the first line.
func (c *client) watch(ctx context.Context, req *pb.WatchScoresRequest, caption func() string) error {
	l := c.ladderOf(ctx, req.GetBoard())
	s := &screen{world: c.world}
	for seen := false; ; {
		err := c.follow(ctx, req, func(d *pb.Leaderboard) error {
			seen = true
			return c.print(d, func() { s.draw(l.frame(d, s, caption)); l.before = ranksOf(d) })
		})
		switch {
		case ctx.Err() != nil:
			return errQuiet
		case !seen || status.Code(err) != codes.Unavailable && err != io.EOF:
			return err
		}
		fmt.Fprintln(c.stderr, "connection lost, trying again")
		s.lines = 0
		select {
		case <-time.After(reconnectPause):
		case <-ctx.Done():
			return errQuiet
		}
	}
}

// follow calls each for everything of one stream but heartbeats.
func (c *client) follow(ctx context.Context, req *pb.WatchScoresRequest, each func(*pb.Leaderboard) error) error {
	stream, err := c.scores.WatchScores(ctx, req)
	if err != nil {
		return err
	}
	for {
		res, err := stream.Recv()
		if err != nil {
			return err
		}
		if res.GetData() == nil {
			continue
		}
		if err := each(res.GetData()); err != nil {
			return err
		}
	}
}

// frame is one picture of a ranking, cut to the screen.
func (l ladder) frame(d *pb.Leaderboard, s *screen, caption func() string) string {
	columns, rows := s.terminalSize()
	entries := d.GetLeaderboard()
	if room := rows - 4; s.inPlace() && len(entries) > room {
		entries = entries[:max(room, 1)]
	}
	var b strings.Builder
	if caption != nil {
		b.WriteString(caption() + "\n")
	}
	t := l.table(entries)
	if s.inPlace() {
		t.SetAllowedRowLength(columns)
	}
	b.WriteString(t.Render() + "\n" + about(d) + "\n")
	return b.String()
}

func ranksOf(d *pb.Leaderboard) map[string]int64 {
	ranks := make(map[string]int64, len(d.GetLeaderboard()))
	for _, e := range d.GetLeaderboard() {
		ranks[e.GetUserId()] = e.GetRank()
	}
	return ranks
}

// screen draws pictures over one another on a terminal, and below one another
// elsewhere.
type screen struct {
	*world
	lines int // of the picture that is there
}

func (s *screen) inPlace() bool { return isTerminal(s.stdout) }

func (s *screen) draw(picture string) {
	if !s.inPlace() {
		fmt.Fprintln(s.stdout, picture)
		return
	}
	s.clear()
	fmt.Fprint(s.stdout, picture)
	s.lines = strings.Count(picture, "\n")
}

// clear takes the picture away.
func (s *screen) clear() {
	if s.lines > 0 {
		fmt.Fprintf(s.stdout, "\x1b[%dA\x1b[J", s.lines)
		s.lines = 0
	}
}
