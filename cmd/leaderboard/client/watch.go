package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

const reconnectDelay = time.Second

// ErrInterrupted is the error of a command that ran until the user interrupted it. The exit code is 0.
var ErrInterrupted = errors.New("interrupted")

func watchCommand(app *cli.App) *cobra.Command {
	var q query
	var limit int32
	cmd := &cobra.Command{
		Use: "watch", Short: "Show the top of a board as it changes", Args: cli.Exactly(),
		Long: `Show the top of a board now and after every change, until the command is
interrupted. On a terminal, each table replaces the previous one, and marks show the
changes: ▲ up, ▼ down, ★ new. JSON has a line for each change. In CSV, the rows of one
change have the same number in the column change.`,
		Example: `  leaderboard watch
  leaderboard watch --board cup --season 2026 --limit 20
  leaderboard watch --json | jq .leaderboard[0]`,
	}
	q.addFlags(cmd)
	cmd.Flags().Int32VarP(&limit, "limit", "n", 10, "`number` of entries, 1 to 1000")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		return c.watch(ctx, &pb.WatchScoresRequest{Board: BoardName(q.board), Season: q.season, Division: q.division, Method: q.method, Limit: &limit})
	})
}

// watch shows the top after each change, until ctx is done. It then returns ErrInterrupted.
func (c *Client) watch(ctx context.Context, req *pb.WatchScoresRequest) error {
	t := c.entryTable(ctx, req.GetBoard())
	screen := c.NewScreen()
	return c.follow(ctx, req, func(d *pb.Leaderboard) error {
		return c.Output.Print(func() (cli.Document, error) {
			answer, err := document(d)
			answer.Stream = "as_of"
			return answer, err
		}, func() { t.Draw(screen, d, "") })
	}, func() {
		c.Notef("connection lost, reconnecting\n")
		screen.Keep()
	})
}

// follow calls handle for the top now and after each change. If the connection is lost after the first
// top, follow calls lost and reconnects. When ctx is done, it returns ErrInterrupted.
func (c *Client) follow(ctx context.Context, req *pb.WatchScoresRequest, handle func(*pb.Leaderboard) error, lost func()) error {
	connected := false
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := c.receive(ctx, req, func(d *pb.Leaderboard) error {
			connected = true
			return handle(d)
		})
		if !connected || status.Code(err) != codes.Unavailable && !errors.Is(err, io.EOF) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(reconnectDelay)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(error, time.Duration) { lost() }))
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// receive calls handle for each message of one stream. It always returns an error.
func (c *Client) receive(ctx context.Context, req *pb.WatchScoresRequest, handle func(*pb.Leaderboard) error) error {
	stream, err := c.Scores.WatchScores(ctx, req)
	if err != nil {
		return err
	}
	for {
		res, err := stream.Recv()
		if err != nil {
			return err
		}
		if res.GetData() == nil {
			continue // a heartbeat
		}
		if err := handle(res.GetData()); err != nil {
			return err
		}
	}
}
