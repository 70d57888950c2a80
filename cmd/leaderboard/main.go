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
	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/importer"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func main() {
	ballast := newBallast()
	goredis.SetLogger(discardLogger{})
	app := &cli.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}
	code := run(untilSignal(), app, os.Args[1:])
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// untilSignal returns a context that is done after the first signal to stop. A second signal ends the
// process immediately: the process no longer handles signals when the context is done.
func untilSignal() context.Context {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}

// discardLogger discards the log of the Redis client. The client also returns the logged errors.
type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitBoards      = 2 // board diff or compare found differences; wrong usage of them is exitFailure
	exitDifferences = 3 // verify found differences and did not repair all of them
)

func run(ctx context.Context, app *cli.App, args []string) int {
	root := newRoot(app)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		cli.CompleteEnums(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil || errors.Is(err, client.ErrInterrupted) {
		return exitOK
	}
	fmt.Fprintln(app.Stderr, "leaderboard:", strings.ReplaceAll(cli.EscapeLines(client.ErrorText(err)), "\n", "\nleaderboard: "))
	var usage *cli.UsageError
	_, usageIsFailure := cmd.Annotations[client.UsageIsFailure]
	switch {
	case errors.Is(err, client.ErrBoardsDiffer), errors.Is(err, importer.ErrBoardDiffers):
		return exitBoards
	case errors.As(err, &usage) && !usageIsFailure:
		return exitUsage
	case errors.Is(err, client.ErrDifferences):
		return exitDifferences
	}
	return exitFailure
}
