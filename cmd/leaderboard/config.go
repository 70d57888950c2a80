package main

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

func configCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Show the settings of the server", Args: cli.Exactly(),
		Long: `Show every setting with its value and its source: the default, the file, the
environment or a flag. Secrets are hidden. The command also has the other flags of
"leaderboard serve".`,
		Example: `  leaderboard config
  leaderboard config --config leaderboard.yaml --http 0.0.0.0:8080`,
	}
	addSettings(cmd, "config")
	output := app.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := output.Check(cmd); err != nil {
			return err
		}
		c, err := loadConfig(app, cmd)
		if err != nil {
			return err
		}
		type setting struct {
			Key    string `json:"key"`
			Value  string `json:"value"`
			Source string `json:"source"`
		}
		settings := []setting{}
		t := cli.NewTable(cli.Row{"setting", "value", "source"})
		for _, s := range c.Settings() {
			settings = append(settings, setting{s.Key, s.String(), c.Source(s.Key)})
			t.AppendRow(cli.Row{s.Key, s.String(), c.Source(s.Key)})
		}
		return output.PrintValue(settings, func() { cli.WriteTable(app.Stdout, t) })
	}
	return cmd
}

// addSettings adds a flag for each setting. If shown names flags, or the beginnings of flags that end in
// "-", the help omits the other flags.
func addSettings(cmd *cobra.Command, shown ...string) {
	config.AddFlags(cmd.Flags())
	for flag, values := range settingValues() {
		cli.Enum(cmd.Flags(), flag, values...)
	}
	if len(shown) == 0 {
		return
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.ContainsFunc(shown, func(name string) bool {
			return f.Name == name || strings.HasSuffix(name, "-") && strings.HasPrefix(f.Name, name)
		})
	})
}

// settingValues returns the values of the flags that have a list of them.
var settingValues = sync.OnceValue(func() map[string][]string {
	lists := map[string][]string{}
	defaults := config.Default()
	for _, s := range defaults.Settings() {
		if values := listedValues(s.Unit); values != nil && s.Flag != "" {
			lists[s.Flag] = values
		}
	}
	return lists
})

var valueForm = regexp.MustCompile("^[A-Za-z0-9-]+$")

// listedValues returns the values in a unit such as "debug, info or warn", or nil.
func listedValues(unit string) []string {
	first, last, ok := strings.Cut(strings.TrimSuffix(unit, ", comma-separated"), " or ")
	values := append(strings.Split(first, ", "), last)
	if !ok || slices.ContainsFunc(values, func(v string) bool { return !valueForm.MatchString(v) }) {
		return nil
	}
	return values
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
