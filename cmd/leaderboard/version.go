package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func versionCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of this binary", Args: cli.Exactly(),
		Long: `Show the version of this binary. A release build shows its release. Other builds show
what the Go toolchain recorded: a tag, or the time and the hash of a commit, with +dirty
if there were uncommitted changes. In a clone, "go build" and "go install" record the
version; "go run" records it only with -buildvcs=true. If no version was recorded, the
version is devel.`,
		Example: `  leaderboard version
  leaderboard version --json`,
	}
	output := app.AddOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := output.Check(cmd); err != nil {
			return err
		}
		v := cli.ReadVersion()
		return output.PrintValue(v, func() { app.Println(versionLine(v)) })
	}
	return cmd
}

func versionLine(v cli.Version) string {
	return fmt.Sprintf("leaderboard %s (%s, %s)", v.Version, v.Go, v.Platform)
}
