package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/backup"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

type backups struct {
	folder      *backup.Folder
	lastSuccess prometheus.Gauge
	failures    prometheus.Counter
}

func newBackups(store *pebble.Store, folder string, reg prometheus.Registerer) *backups {
	f := promauto.With(reg)
	b := &backups{
		folder: &backup.Folder{Path: folder, Copy: store.Backup, Check: checkStore, Now: time.Now},
		lastSuccess: f.NewGauge(prometheus.GaugeOpts{
			Namespace: "leaderboard", Subsystem: "backup", Name: "last_success_timestamp_seconds",
			Help: "Time of the last successful backup, in Unix seconds. At startup, the time of the last scheduled backup in the folder, or 0 without one.",
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Namespace: "leaderboard", Subsystem: "backup", Name: "failures_total",
			Help: "Backups that failed.",
		}),
	}
	if times, err := b.folder.Scheduled(); err == nil && len(times) > 0 {
		b.lastSuccess.Set(float64(times[len(times)-1].Unix()))
	}
	return b
}

func checkStore(ctx context.Context, dir string) error {
	_, err := pebble.Check(ctx, dir)
	return err
}

// checkName returns an error if makeNamed would refuse a name.
func (b *backups) checkName(name string) error {
	if backup.Reserved(name) {
		return &leaderboard.FieldError{Field: "name", Problem: fmt.Sprintf("%q is reserved for scheduled backups; choose another name", name)}
	}
	return refusedName(name, b.folder.CheckNew(name))
}

func refusedName(name string, err error) error {
	if errors.Is(err, backup.ErrExists) {
		return &leaderboard.FieldError{Field: "name", Problem: fmt.Sprintf("a backup named %q exists already; choose another name", name)}
	}
	return err
}

func (b *backups) makeNamed(ctx context.Context, name string) error {
	if err := b.checkName(name); err != nil {
		return err
	}
	err := b.folder.Make(ctx, name)
	if errors.Is(err, backup.ErrExists) {
		return refusedName(name, err)
	}
	b.count(err)
	return err
}

func (b *backups) count(err error) {
	if err != nil {
		b.failures.Inc()
		return
	}
	b.lastSuccess.SetToCurrentTime()
}

func (b *backups) run(ctx context.Context, c *config.Config, log *slog.Logger) {
	b.folder.Run(ctx, c.BackupEvery, c.BackupKeep, func(o backup.Outcome) {
		b.count(o.Err)
		switch {
		case o.Err != nil:
			log.ErrorContext(ctx, "backup failed", "name", o.Name, "err", o.Err)
		case o.PruneErr != nil:
			log.ErrorContext(ctx, "backup complete, but old backups were not deleted", "name", o.Name, "err", o.PruneErr)
		default:
			log.InfoContext(ctx, "backup complete", "name", o.Name, "deleted", len(o.Pruned))
		}
	})
}

func restoreCommand(app *cli.App) *cobra.Command {
	var replace bool
	cmd := &cobra.Command{
		Use: "restore BACKUP", Short: "Replace the embedded store with a backup", Args: cli.Exactly("BACKUP"),
		Long: `Restore a backup to the folder in the setting "data". No server may use this folder
meanwhile. BACKUP is the name of a backup in backup_dir, or the path of a backup.

The command copies the backup and checks the copy against its checksums. If the copy is
intact, the command puts it in place of the folder. If the folder is not empty, add
--replace: the command then keeps the former content in another folder beside it. The
command also has the other flags of "leaderboard serve".`,
		Example: `  leaderboard restore before-upgrade
  leaderboard restore /mnt/backups/auto-20261120T040000Z --data /var/lib/leaderboard --replace`,
	}
	addSettings(cmd, "config", "data", "backup-dir")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace a folder that is not empty, and keep its former content in a folder beside it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := loadConfig(app, cmd)
		if err != nil {
			return err
		}
		return restore(cmd.Context(), app, &c.Config, args[0], replace)
	}
	return cmd
}

func restore(ctx context.Context, app *cli.App, c *config.Config, name string, replace bool) error {
	if c.Distributed() {
		return cli.Usagef("this command is for the embedded store; restore a snapshot of Cassandra instead, then run `leaderboard verify --repair`")
	}
	path := name
	if !strings.ContainsRune(name, filepath.Separator) {
		path = filepath.Join(c.BackupFolder(), name)
	}
	if _, err := os.Stat(path); err != nil {
		return cli.Usagef("there is no backup %s; give the name of a backup in backup_dir, or the path of a backup", path)
	}
	var rows int64
	r := backup.Restoration{
		From: path, Data: c.Data, Replace: replace, Carry: carriedFiles, Drop: []string{pebble.ChecksumsFile}, Lock: pebble.Lock, Now: time.Now,
		Check: func(ctx context.Context, dir string) (err error) { rows, err = pebble.Check(ctx, dir); return err },
	}
	former, err := r.Restore(ctx)
	switch {
	case errors.Is(err, backup.ErrNotEmpty):
		return cli.Usagef("%s is not empty; add --replace, which keeps its content in a folder beside it, or name another folder with --data", c.Data)
	case errors.Is(err, backup.ErrInUse):
		return fmt.Errorf("a server uses %s; stop it first: %w", c.Data, err)
	case err != nil && former != "":
		return fmt.Errorf("%s has the backup and %s has the former content, but a crash may undo this; check both folders before you start the server: %w", c.Data, former, err)
	case err != nil:
		return fmt.Errorf("nothing was replaced: %w", err)
	}
	app.Printf("restored %s from %s to %s\n", cli.Plural(rows, "row", "rows"), path, c.Data)
	if former != "" {
		app.Printf("the former content is in %s; delete it when it is no longer needed\n", former)
	}
	app.Println("start the server, then run `leaderboard verify`")
	return nil
}
