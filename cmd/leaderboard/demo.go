package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/demo"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

func demoCommand(app *cli.App) *cobra.Command {
	c := config.Default()
	c.Data = ""
	var speed float64
	cmd := &cobra.Command{
		Use: "demo", Short: "Run a server and play thirty years of real football into its boards", Args: cli.Exactly(),
		Long: `Run a server on this machine, without keys, and play real results of men's
international football from 1990 to 2019 into its boards:

  football           3 points for a win, 1 for a draw; goal difference and goals
                     break ties

These boards are linked to the board football, so one submit counts on all:

  football-yearly    one season per year
  football-monthly   one season per month
  football-wins      wins only; one season per year

The demo deletes the boards when it ends, unless --data names a folder.`,
		Example: `  leaderboard demo
  leaderboard demo --speed 400
  leaderboard demo --data ./demo-data --http 127.0.0.1:9000`,
	}
	f := cmd.Flags()
	f.Float64Var(&speed, "speed", 40, "matches per second; 0 is unlimited")
	f.StringVar(&c.Data, "data", "", "`folder` of the boards (default: a temporary folder, which is deleted at the end)")
	f.StringVar(&c.HTTP, "http", c.HTTP, "`host:port` of the web page and REST; if the default is in use, a free port")
	f.StringVar(&c.GRPC, "grpc", c.GRPC, "`host:port` of gRPC; if the default is in use, a free port")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if speed < 0 || math.IsNaN(speed) || speed > 1e6 {
			return cli.Usagef("--speed %v is not between 0 and 1000000 matches per second", speed)
		}
		c.HTTP, c.GRPC = freeAddress(f.Changed("http"), c.HTTP), freeAddress(f.Changed("grpc"), c.GRPC)
		matches, err := demo.Matches()
		if err != nil {
			return err
		}
		return runDemo(cmd.Context(), app, &c, matches, speed)
	}
	return cmd
}

// freeAddress returns address. If address is in use and is the default, freeAddress returns its host
// with port 0.
func freeAddress(chosen bool, address string) string {
	l, err := net.Listen("tcp", address)
	if err == nil {
		l.Close()
		return address
	}
	if host, _, splitErr := net.SplitHostPort(address); !chosen && splitErr == nil {
		return net.JoinHostPort(host, "0")
	}
	return address
}

// runDemo runs a server and submits matches to it, until ctx is done, the server fails or a submit
// fails. speed is in matches per second; 0 is unlimited.
func runDemo(ctx context.Context, app *cli.App, c *config.Config, matches []demo.Match, speed float64) (err error) {
	c.Insecure, c.Log.Level = true, "warn"
	if c.Data == "" {
		if c.Data, err = os.MkdirTemp("", "leaderboard-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.Data)) }()
	}
	if err := c.Validate(); err != nil {
		return &cli.UsageError{Err: err}
	}
	log := slog.New(slog.NewTextHandler(app.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := openServer(ctx, c, log, cli.IsTerminal(app.Stdout))
	if err != nil {
		return err
	}
	url := s.url()
	conn, closeConn, err := client.Dial(ctx, app, client.Connection{Server: reachableAddress(s.grpc.Addr().String()), Timeout: time.Minute})
	if err != nil {
		return errors.Join(err, s.close())
	}
	defer closeConn()

	ctx, cancel := context.WithCancelCause(ctx)
	playEnded := make(chan struct{})
	go func() {
		defer close(playEnded)
		err := demo.Play(ctx, conn, url, matches, speed)
		if err == nil {
			<-ctx.Done()
		}
		cancel(err)
	}()
	err = s.serve(ctx, nil, func() {})
	cancel(err)
	<-playEnded
	if err == nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		err = context.Cause(ctx)
	}
	return errors.Join(err, s.close())
}
