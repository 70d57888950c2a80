package main

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

func configCommand(app *cli.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "config", Short: "Show the settings of the server", Args: cli.Exactly(),
		Long: `Show every setting with its value and its source: the default, the file, the
environment or a flag. The command has the flags of "leaderboard serve". Secrets are hidden.`,
		Example: `  leaderboard config
  leaderboard config --config leaderboard.yaml --http 0.0.0.0:8080`,
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for scripts")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := loadConfig(app, cmd)
		if err != nil {
			return err
		}
		if asJSON {
			type setting struct {
				Key    string `json:"key"`
				Value  string `json:"value"`
				Source string `json:"source"`
			}
			settings := []setting{}
			for _, s := range c.Settings() {
				settings = append(settings, setting{s.Key, s.String(), c.Source(s.Key)})
			}
			return app.PrintJSON(settings)
		}
		t := cli.NewTable(table.Row{"setting", "value", "source"})
		for _, s := range c.Settings() {
			t.AppendRow(table.Row{s.Key, s.String(), c.Source(s.Key)})
		}
		cli.WriteTable(app.Stdout, t)
		return nil
	}
	return cmd
}

func loadConfig(app *cli.App, cmd *cobra.Command) (config.Effective, error) {
	c, err := config.Load(cmd.Flags(), app.Environ)
	if err != nil {
		settings := "this setting"
		if strings.Contains(err.Error(), "\n") {
			settings = "these settings"
		}
		return c, cli.Usagef("%w\ncorrect %s; docs/configuration.md and `leaderboard serve --help` list every setting", err, settings)
	}
	warnOfOpenConfig(app, &c)
	return c, nil
}

// warnOfOpenConfig warns if every user of the machine may read a configuration file with secrets.
// A group may read it: services often get their files through a group.
func warnOfOpenConfig(app *cli.App, c *config.Effective) {
	if len(c.FileSecrets) == 0 {
		return
	}
	if mode, open := cli.ReadableByAll(c.File); open {
		app.Notef("warning: every user of this machine may read %s (%s), which contains secrets (%s); make it private with chmod 600\n", c.File, mode, strings.Join(c.FileSecrets, ", "))
	}
}
