package main

import (
	"encoding/json"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

func configCommand(w *world) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "config", Short: "Show the settings that serve would run with", Args: exactly(),
		Long: `Show every setting with its value and where it comes from: the default, the file,
the environment or a flag. Takes the flags of leaderboard serve. Secrets are hidden.`,
		Example: `  leaderboard config
  leaderboard config --config leaderboard.yaml --http 0.0.0.0:8080`,
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for scripts")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := w.loadConfig(cmd)
		if err != nil {
			return err
		}
		if asJSON {
			type setting struct {
				Key    string `json:"key"`
				Value  string `json:"value"`
				Source string `json:"source"`
			}
			list := []setting{}
			for _, s := range c.Settings() {
				list = append(list, setting{s.Key, s.String(), c.Source(s.Key)})
			}
			return json.NewEncoder(w.stdout).Encode(list)
		}
		t := newTable(table.Row{"setting", "value", "from"})
		for _, s := range c.Settings() {
			t.AppendRow(table.Row{s.Key, s.String(), c.Source(s.Key)})
		}
		writeTable(w.stdout, t)
		return nil
	}
	return cmd
}

// loadConfig puts the settings together for a command that has their flags.
func (w *world) loadConfig(cmd *cobra.Command) (config.Effective, error) {
	c, err := config.Load(cmd.Flags(), w.environ)
	if err != nil {
		faults := "this fault"
		if strings.Contains(err.Error(), "\n") {
			faults = "these faults"
		}
		return c, usagef("%w\nmend %s; docs/configuration.md and leaderboard serve --help list every setting", err, faults)
	}
	return c, nil
}
