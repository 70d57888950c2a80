package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/backup"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

func doctorCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check a server's settings and what it depends on", Args: cli.Exactly(),
		Long: `Check the settings, the server on this machine and what it depends on: the data folder of
the embedded engine, or the tables in Cassandra, the topics in Kafka and the policy of
Redis, and the clocks. Each problem comes with its cure. The command changes nothing. The
exit code is 1 if there is an error, and 0 if there are warnings only. The command needs
the settings of the server, and also has the other flags of "leaderboard serve".

With --capacity, the command checks nothing. It prints which machines a load needs, with
each engine, and what this plan assumes.`,
		Example: `  leaderboard doctor
  leaderboard doctor --config leaderboard.yaml -o json
  leaderboard doctor --capacity --users 25e6 --results-per-second 2500`,
	}
	addSettings(cmd, "config", "data", "http", "admin")
	output, plan := app.AddOutput(cmd), addCapacity(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := output.Check(cmd); err != nil {
			return err
		}
		if err := plan.check(); err != nil {
			return err
		}
		if plan.on {
			return plan.print(app, output)
		}
		d := &doctor{findings: []finding{}}
		c, err := config.Load(cmd.Flags(), app.Environ)
		if err != nil {
			d.failed("settings", err, "correct the settings; docs/configuration.md and `leaderboard serve --help` list all of them")
		} else {
			d.examine(cmd.Context(), &c)
		}
		if err := output.PrintValue(d.findings, func() { d.write(app) }); err != nil {
			return err
		}
		if n := d.count(levelError); n > 0 {
			return fmt.Errorf("the doctor found %s", cli.Plural(int64(n), "error", "errors"))
		}
		return nil
	}
	return cmd
}

const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelError   = "error"
)

type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warning or error
	Detail string `json:"detail"`
	Cure   string `json:"cure"` // empty if the level is ok
}

// doctor collects findings. It never changes anything.
type doctor struct{ findings []finding }

func (d *doctor) ok(check, detail string) { d.add(finding{check, levelOK, detail, ""}) }

func (d *doctor) warn(check, detail, cure string) { d.add(finding{check, levelWarning, detail, cure}) }

func (d *doctor) failed(check string, err error, cure string) {
	d.add(finding{check, levelError, err.Error(), cure})
}

func (d *doctor) add(f finding) { d.findings = append(d.findings, f) }

func (d *doctor) count(level string) (n int) {
	for _, f := range d.findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (d *doctor) write(app *cli.App) {
	t := cli.NewTable(cli.Row{"", "check", "detail"})
	symbols := map[string]string{levelOK: "✓", levelWarning: "!", levelError: "✗"}
	for _, f := range d.findings {
		t.AppendRow(cli.Row{symbols[f.Level], f.Check, f.Detail})
		if f.Cure != "" {
			t.AppendRow(cli.Row{"", "", "→ " + f.Cure})
		}
	}
	cli.WriteTable(app.Stdout, t)
	app.Printf("%s, %s\n", cli.Plural(int64(d.count(levelError)), "error", "errors"), cli.Plural(int64(d.count(levelWarning)), "warning", "warnings"))
}

func (d *doctor) examine(ctx context.Context, c *config.Effective) {
	d.settings(c)
	d.server(ctx, &c.Config)
	d.openFiles(&c.Config)
	if !c.Distributed() {
		d.dataFolder(&c.Config)
		d.backups(&c.Config)
		return
	}
	d.cassandra(ctx, &c.Config)
	d.kafka(&c.Config)
	d.redis(ctx, &c.Config)
	d.canonical(ctx, &c.Config.Canonical)
}

func (d *doctor) settings(c *config.Effective) {
	engine := "embedded engine"
	if c.Distributed() {
		engine = "distributed engine, roles " + strings.Join(c.Roles, ", ")
	}
	source := "no file"
	if c.File != "" {
		source = c.File
	}
	d.ok("settings", fmt.Sprintf("valid: %s, %s", source, engine))
	if mode, open := cli.ReadableByAll(c.File); open && len(c.FileSecrets) > 0 {
		d.warn("settings", fmt.Sprintf("every user of this machine may read %s (%s), which contains %s", c.File, mode, strings.Join(c.FileSecrets, ", ")), "run chmod 600 "+c.File)
	}
	if c.Insecure {
		d.warn("settings", "insecure: every caller on this machine may do everything", "remove the setting insecure, and create keys with `leaderboard key create`")
	} else if c.TLS.Cert == "" && c.ServesAPI() && !onLoopback([]string{c.HTTP, c.GRPC}) {
		d.warn("settings", "callers on other machines send keys unencrypted to http and grpc", "set tls.cert and tls.key, or let only a proxy with TLS reach these addresses")
	}
	for _, group := range unencryptedPasswords(&c.Config) {
		d.warn("settings", "a password for "+group+" crosses the network unencrypted", "set "+group+".tls.enabled")
	}
}

// maxClockDifference is less than the smallest error that a player could notice.
const maxClockDifference = time.Second

func (d *doctor) clock(check string, before, at, after time.Time, precision time.Duration) {
	var difference time.Duration
	switch {
	case at.Before(before.Add(-precision)):
		difference = before.Sub(at)
	case at.After(after.Add(precision)):
		difference = at.Sub(after)
	}
	if difference > maxClockDifference {
		d.warn(check, fmt.Sprintf("its clock differs from the clock of this machine by %s", cli.ShortDuration(difference)), "synchronize the clocks of all machines with NTP, for example with chrony")
		return
	}
	d.ok(check, "its clock agrees with the clock of this machine")
}

func (d *doctor) server(ctx context.Context, c *config.Config) {
	if _, err := probe(ctx, c, "/healthz"); err != nil {
		problem, _, _ := strings.Cut(err.Error(), "; ")
		d.failed("server", errors.New(problem), "start it with `leaderboard serve` and the same settings, or correct http and admin")
		return
	}
	before := time.Now()
	answer, err := probe(ctx, c, "/readyz")
	if err != nil {
		d.warn("server", err.Error(), "wait, and see the log of the server for the cause")
	} else {
		d.ok("server", "ready: "+answer)
	}
	if at, err := serverTime(ctx, c); err == nil {
		d.clock("server", before, at, time.Now(), time.Second) // the header Date has seconds
	}
}

func serverTime(ctx context.Context, c *config.Config) (time.Time, error) {
	res, err := callProbe(ctx, c, "/healthz")
	if err != nil {
		return time.Time{}, err
	}
	defer res.Body.Close()
	return http.ParseTime(res.Header.Get("Date"))
}

// storeFiles is the number of files that the embedded store may open, besides connections.
const storeFiles = 1_000

func (d *doctor) openFiles(c *config.Config) {
	limit, ok := openFileLimit()
	if !ok {
		return
	}
	need := uint64(2*c.Limits.Connections + storeFiles) // http and grpc have the limit each
	if limit < need {
		d.warn("open files", fmt.Sprintf("this process may open %d files, fewer than the %d that limits.connections needs", limit, need), "raise the limit (ulimit -n, or LimitNOFILE in systemd), or lower limits.connections")
		return
	}
	d.ok("open files", fmt.Sprintf("this process may open %d files", limit))
}

func (d *doctor) dataFolder(c *config.Config) {
	info, err := os.Stat(c.Data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.warn("data", fmt.Sprintf("the folder %s does not exist yet", c.Data), "if a server ran before, name its folder with --data; otherwise the first start creates the folder")
		return
	case err != nil:
		d.failed("data", err, "let the user of the server read and write the folder")
		return
	}
	mode, open := cli.OpenToOthers(c.Data)
	switch {
	case !info.IsDir():
		d.failed("data", fmt.Errorf("%s is not a folder", c.Data), "name a folder with --data")
		return
	case open:
		d.warn("data", fmt.Sprintf("other users of this machine may read %s (%s)", c.Data, mode), "run chmod 700 "+c.Data)
	default:
		d.ok("data", fmt.Sprintf("the folder %s is private", c.Data))
	}
	free, total, ok := diskSpace(c.Data)
	switch {
	case !ok || total == 0:
	case free < total/10:
		d.warn("disk", fmt.Sprintf("%s of %s are free at %s", config.Bytes(free), config.Bytes(total), c.Data), "free some space, or move data to a larger disk: a server with a full disk refuses results")
	default:
		d.ok("disk", fmt.Sprintf("%s of %s are free at %s", config.Bytes(free), config.Bytes(total), c.Data))
	}
}

func (d *doctor) backups(c *config.Config) {
	folder := &backup.Folder{Path: c.BackupFolder()}
	times, err := folder.Scheduled()
	switch {
	case c.BackupEvery == 0:
		d.warn("backups", "the server makes no scheduled backups", "set backup_every, for example to 24h, and copy the backups to another machine")
	case err != nil && !errors.Is(err, os.ErrNotExist):
		d.failed("backups", err, "let the user of the server read and write "+folder.Path)
	case len(times) == 0:
		d.warn("backups", "there is no backup in "+folder.Path+" yet", "run `leaderboard backup`, and see the log for failures")
	default:
		last := slices.MaxFunc(times, time.Time.Compare)
		age := time.Since(last).Round(time.Minute)
		if age > 2*c.BackupEvery {
			d.warn("backups", fmt.Sprintf("the last backup is %v old, but backup_every is %v", age, c.BackupEvery), "see the log of the server for `backup failed`")
			return
		}
		d.ok("backups", fmt.Sprintf("the last one is %v old", age))
	}
}
