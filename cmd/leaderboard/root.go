package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/archive"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/importer"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func newRoot(app *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "leaderboard",
		Short: "Exact leaderboards: submit results, read ranks",
		Long: `leaderboard stores match results durably and answers with exact ranks.

"leaderboard demo" shows a server with real results. "leaderboard serve" runs a server
for your own boards. Most other commands call a running server.`,
		Example: `  leaderboard demo
  leaderboard serve
  leaderboard submit ada --points 3
  leaderboard top`,
	}
	app.SetUp(root)
	root.Version = versionLine(cli.ReadVersion())
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommandGroupID("server")
	root.SetCompletionCommandGroupID("server")
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"server", "Server:", []*cobra.Command{demoCommand(app), serveCommand(app), configCommand(app), healthCommand(app), doctorCommand(app), client.ContextCommand(app), versionCommand(app)}},
		{"scores", "Results and ranks:", append(client.ScoreCommands(app), importer.Command(app), importer.CompareCommand(app))},
		{"boards", "Boards and seasons:", client.BoardCommands(app)},
		{"admin", "Administration:", slices.Concat(client.AdminCommands(app), []*cobra.Command{archive.Command(app), restoreCommand(app), schemaCommand(app), topicsCommand(app), dlqCommand(app)})},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	return root
}
