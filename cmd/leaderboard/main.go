// Command leaderboard is the leaderboard service: its server and its clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func main() {
	ballast := newBallast()
	goredis.SetLogger(discardLogger{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	app := &cli.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}
	code := run(ctx, app, os.Args[1:])
	stop()
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// discardLogger discards the log of the Redis client. The client also returns the logged errors.
type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitDifferences = 3 // verify found differences and did not repair all of them
)

func run(ctx context.Context, app *cli.App, args []string) int {
	root := newRoot(app)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, client.ErrInterrupted) {
		return exitOK
	}
	fmt.Fprintln(app.Stderr, "leaderboard:", strings.ReplaceAll(cli.EscapeLines(client.ErrorText(err)), "\n", "\nleaderboard: "))
	var usage *cli.UsageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, client.ErrDifferences):
		return exitDifferences
	}
	return exitFailure
}
