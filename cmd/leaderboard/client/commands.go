package client

import (
	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// ScoreCommands returns the commands that submit results and read ranks.
func ScoreCommands(app *cli.App) []*cobra.Command {
	return []*cobra.Command{
		submitCommand(app), submitBatchCommand(app), exportCommand(app), topCommand(app), rankCommand(app), friendsCommand(app), statsCommand(app), userCommand(app), profileCommand(app),
		watchCommand(app), resultCommand(app), resultsCommand(app), correctCommand(app), retractCommand(app), retractBatchCommand(app), purgeCommand(app), matchCommand(app),
	}
}

// BoardCommands returns the commands for boards and seasons.
func BoardCommands(app *cli.App) []*cobra.Command {
	return []*cobra.Command{boardCommand(app), seasonCommand(app)}
}

// AdminCommands returns the commands for operators.
func AdminCommands(app *cli.App) []*cobra.Command {
	return []*cobra.Command{
		banCommand(app), unbanCommand(app), eraseCommand(app), auditCommand(app), keyCommand(app),
		verifyCommand(app), rebuildCommand(app), backupCommand(app),
	}
}
