package main

import (
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard/internal/capacity"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// capacityFlags are the flags of "leaderboard doctor --capacity".
type capacityFlags struct {
	on    bool
	load  capacity.Load
	flags *pflag.FlagSet // of load
}

const readsPerResult = 10

func addCapacity(f *pflag.FlagSet) *capacityFlags {
	c := &capacityFlags{flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	f.BoolVar(&c.on, "capacity", false, "check nothing: print the machines that a load needs, which --users and the flags below describe")
	l, load := &c.load, c.flags
	load.SortFlags = false // check names the first flag that it refuses
	load.Float64Var(&l.Users, "users", 0, "with --capacity: `users` in a season of a board, such as 25e6")
	load.Float64Var(&l.ResultsPerSecond, "results-per-second", 0, "with --capacity: `results` per second at the busiest time")
	load.Float64Var(&l.ReadsPerSecond, "reads-per-second", 0, "with --capacity: `reads` per second at the busiest time (default 10 for each result)")
	load.Float64Var(&l.KeepDays, "keep-days", 90, "with --capacity: `days` for which results and final standings are kept")
	load.Float64Var(&l.SeasonDays, "season-days", 0, "with --capacity: `days` of a season, or 0 if seasons do not end")
	load.Float64Var(&l.Boards, "boards", 1, "with --capacity: `boards` on which each result counts, linked boards included")
	load.Float64Var(&l.Divisions, "divisions", 0, "with --capacity: `divisions` of each board that contain each user")
	f.AddFlagSet(load)
	return c
}

// check returns a [cli.UsageError] if the flags describe no load.
func (c *capacityFlags) check() (err error) {
	if !c.on {
		c.flags.VisitAll(func(f *pflag.Flag) {
			if f.Changed && err == nil {
				err = cli.Usagef("--%s needs --capacity", f.Name)
			}
		})
		return err
	}
	given := func(name string) bool { return c.flags.Lookup(name).Changed }
	if !given("users") || !given("results-per-second") {
		return cli.Usagef("--capacity needs --users and --results-per-second")
	}
	if !given("reads-per-second") {
		c.load.ReadsPerSecond = readsPerResult * c.load.ResultsPerSecond
	}
	if err := c.load.Validate(); err != nil {
		return cli.Usagef("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

func (c *capacityFlags) print(app *cli.App, output *cli.Output) error {
	machines := capacity.Plan(c.load)
	return output.Print(func() (cli.Document, error) {
		text, err := json.Marshal(map[string]any{"load": c.load, "machines": machines, "assumptions": capacity.Assumptions()})
		return cli.Document{JSON: text, Rows: "machines", Columns: []string{"engine", "kind", "count", "cores", "memory_bytes", "disk_bytes", "note"}}, err
	}, func() {
		l := &c.load
		app.Printf("%.0f users in a season, %g results and %g reads per second at the busiest time, kept for %g days;\n", l.Users, l.ResultsPerSecond, l.ReadsPerSecond, l.KeepDays)
		season := "seasons do not end"
		if l.SeasonDays > 0 {
			season = "a season lasts " + cli.Plural(int64(l.SeasonDays), "day", "days")
		}
		app.Printf("each result counts on %s, with %s; %s.\n\n", cli.Plural(int64(l.Boards), "board", "boards"), cli.Plural(int64(l.Divisions), "division", "divisions"), season)
		cli.WriteTable(app.Stdout, capacityTable(machines))
		app.Printf("\nAssumptions:\n")
		for _, a := range capacity.Assumptions() {
			app.Printf("- %s\n", a)
		}
	})
}

func capacityTable(machines []capacity.Machines) *cli.Table {
	t := cli.NewTable(cli.Row{"engine", "kind", "count", "cores each", "memory each", "disk each", "note"}, "count", "cores each", "memory each", "disk each")
	for _, m := range machines {
		disk := capacity.Gigabytes(m.Disk)
		if m.Disk == 0 {
			disk = "-"
		}
		t.AppendRow(cli.Row{m.Engine, m.Kind, m.Count, m.Cores, capacity.Gigabytes(m.Memory), disk, m.Note})
	}
	return t
}
