package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func serveCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server", Args: cli.Exactly(),
		Long: `Run the server with its embedded store, which keeps all data in one folder. If no
admin key exists, the server creates one. If standard output is a terminal, the server
prints the key once. Otherwise it writes the key to the file admin-key in the data folder,
or to the file in the setting first_key_file. With --insecure, no call needs a key; use this flag
only to try the server on one machine.

With --cassandra-hosts, --redis-addresses and --kafka-brokers, the server is part of a
distributed service. It then stores nothing itself, and has the roles in --roles. First
run "leaderboard schema apply" and "leaderboard topics".

Every flag is a setting, and can also be set in the environment or in a file: --http is
LEADERBOARD_HTTP in the environment and http in the file. Secrets have no flag.
docs/configuration.md describes every setting.

SIGTERM stops the server: /readyz answers 503, and after drain_time the server tells
watching clients to reconnect, closes its listeners and finishes running calls. At
SIGHUP, the server reads the log level and the certificates again.`,
		Example: `  leaderboard serve
  leaderboard serve --insecure --data /tmp/try
  leaderboard serve --config /etc/leaderboard.yaml --http 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem
  leaderboard serve --config /etc/leaderboard.yaml --roles consumer`,
	}
	addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := loadConfig(app, cmd)
		if err != nil {
			return err
		}
		return runServer(cmd.Context(), app, &c.Config, func() (config.Effective, error) { return config.Load(cmd.Flags(), app.Environ) })
	}
	return cmd
}

// runServer runs a server until ctx is done. At SIGHUP, it reads the settings again with load.
func runServer(ctx context.Context, app *cli.App, c *config.Config, load func() (config.Effective, error)) error {
	level := &slog.LevelVar{}
	level.Set(c.Log.SlogLevel())
	log := newLog(app.Stderr, c.Log, level)
	s, err := openServer(ctx, c, log, cli.IsTerminal(app.Stdout))
	if err != nil && ctx.Err() != nil {
		log.Info("stopped before the end of the start", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	welcome(app, s)
	defer s.reloadOnHangup(load, level)()
	show, end := loadProgress(app, log)
	err = s.serve(ctx, show, end)
	if closeErr := s.close(); err == nil {
		err = closeErr
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

func newLog(w io.Writer, l config.Log, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "text" || l.Format == "auto" && cli.IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// welcome logs the server's addresses, and prints them on a terminal. If the admin key is new,
// welcome prints the key on a terminal, and otherwise the path of the key's file.
func welcome(app *cli.App, s *server) {
	label, location := "data", s.config.Data // where the store keeps its data
	if s.config.Distributed() {
		label, location = "keyspace", s.config.Cassandra.Keyspace
	} else if data, err := filepath.Abs(location); err == nil {
		location = data
	}
	if cli.IsTerminal(app.Stdout) {
		fmt.Fprintf(app.Stdout, "\n  leaderboard %s\n\n", cli.ReadVersion().Version)
		if s.grpc != nil {
			url := s.url()
			fmt.Fprintf(app.Stdout, "  web page   %s/\n  REST       %s/v1/scores   (described in %s/openapi.json)\n  gRPC       %s\n", url, url, url, s.grpc.Addr())
		}
		fmt.Fprintf(app.Stdout, "  metrics    %s/metrics\n  %-10s %s\n\n", s.probesURL(), label, location)
		if s.config.Insecure {
			fmt.Fprint(app.Stdout, "  Calls need no key: every user of this machine has full access.\n\n")
		}
	}
	if s.newKeyFile != "" {
		app.Printf("the first admin key is in %s; store it safely, then delete the file\n", s.newKeyFile)
	} else if s.newKey != "" {
		fmt.Fprintf(app.Stdout, "  Your admin key, shown only this once (`leaderboard key create` makes more):\n\n  export LEADERBOARD_KEY=%s\n\n", string(s.newKey))
	}
	s.log.Info("listening", "http", addressOf(s.rest), "grpc", addressOf(s.grpc), "admin", addressOf(s.admin), "tls", s.config.TLS.Cert != "",
		"insecure", s.config.Insecure, label, location, "version", cli.ReadVersion().Version)
	if s.api != nil && s.config.TLS.Cert == "" && auth.CheckLoopback(s.config.HTTP, s.config.GRPC) != nil {
		s.log.Warn(plainWarning, "http", s.config.HTTP, "grpc", s.config.GRPC)
	}
}

const plainWarning = "API keys cross the network unencrypted, because the server accepts calls from other machines without TLS: " +
	"set tls.cert and tls.key, listen on a loopback address, or let only a TLS proxy call the server"

func addressOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

func (s *server) url() string {
	scheme := "http"
	if s.config.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + reachableAddress(s.rest.Addr().String())
}

// reachableAddress replaces a host that means all addresses, such as 0.0.0.0, by localhost.
func reachableAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// loadProgress returns functions for the progress of the index's fill. On a terminal, show draws
// the progress, and end removes it. Otherwise, show logs the progress every five seconds.
func loadProgress(app *cli.App, log *slog.Logger) (show ranking.Progress, end func()) {
	if !cli.IsTerminal(app.Stderr) {
		const interval = 5 * time.Second
		last := time.Now()
		return func(s leaderboard.SeasonKey, done int64) {
			if time.Since(last) >= interval {
				last = time.Now()
				log.Info("filling the rank index", "board", s.Board, "season", s.Season, "entries", done)
			}
		}, func() {}
	}
	p := app.NewProgress("filling the rank index:")
	return func(s leaderboard.SeasonKey, done int64) {
		p.Show(string(s.Board), string(s.Season), done)
	}, p.End
}
