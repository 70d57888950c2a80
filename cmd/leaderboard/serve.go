package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func serveCommand(w *world) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server", Args: exactly(),
		Long: `Run the server on its embedded store, which keeps everything in one folder.
The first start makes an admin key and prints it once; with --insecure nobody
needs a key, which is for trying things out on one machine.

With --cassandra-hosts, --redis-addresses and --kafka-brokers it is a node of a
distributed service instead, in the --roles named, and keeps nothing itself;
leaderboard schema apply and leaderboard topics come first.

Every flag is a setting, which the environment (--http is LEADERBOARD_HTTP) and a
file can give too; secrets have no flag. docs/configuration.md says more of each.`,
		Example: `  leaderboard serve
  leaderboard serve --insecure --data /tmp/try
  leaderboard serve --config /etc/leaderboard.yaml --http 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem
  leaderboard serve --config /etc/leaderboard.yaml --roles consumer`,
	}
	config.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := w.loadConfig(cmd)
		if err != nil {
			return err
		}
		return w.serve(cmd.Context(), &c.Config)
	}
	return cmd
}

func (w *world) serve(ctx context.Context, c *config.Config) error {
	log := w.newLog(c.Log)
	n, err := w.open(ctx, c, log)
	if err != nil {
		return err
	}
	w.welcome(n)
	show, end := w.loadProgress(log)
	err = n.serve(ctx, show, end)
	if closeErr := n.close(); err == nil {
		err = closeErr
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// newLog returns the log, on stderr.
func (w *world) newLog(l config.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.SlogLevel()}
	if l.Format == "text" || l.Format == "auto" && isTerminal(w.stderr) {
		return slog.New(slog.NewTextHandler(w.stderr, options))
	}
	return slog.New(slog.NewJSONHandler(w.stderr, options))
}

// welcome says where to look: to a person on a terminal, or to the log. A new
// admin key goes to stdout, never to the log.
func (w *world) welcome(n *node) {
	url, grpc, keeps, where := n.url(), "", "data", n.config.Data
	if n.grpc != nil {
		grpc = n.grpc.Addr().String()
	}
	if n.config.Distributed() {
		keeps, where = "keyspace", n.config.Cassandra.Keyspace
	} else if data, err := filepath.Abs(where); err == nil {
		where = data
	}
	if isTerminal(w.stdout) {
		fmt.Fprintf(w.stdout, "\n  leaderboard %s\n\n", version())
		if n.grpc != nil {
			fmt.Fprintf(w.stdout, "  web page   %s/\n  REST       %s/v1/scores   (all of it: %s/openapi.json)\n  gRPC       %s\n", url, url, url, grpc)
		}
		fmt.Fprintf(w.stdout, "  metrics    %s/metrics\n  %-10s %s\n\n", url, keeps, where)
		if n.config.Insecure {
			fmt.Fprint(w.stdout, "  No key is asked for: everyone on this machine may do everything.\n\n")
		}
	}
	if n.newKey != "" {
		fmt.Fprintf(w.stdout, "  Your admin key, shown this once (leaderboard key makes others):\n\n  export LEADERBOARD_KEY=%s\n\n", string(n.newKey))
	}
	n.log.Info("listening", "http", n.rest.Addr().String(), "grpc", grpc, "tls", n.config.TLS.Cert != "",
		"insecure", n.config.Insecure, keeps, where, "version", version())
	if n.server != nil && n.config.TLS.Cert == "" && api.CheckLoopback(n.config.HTTP, n.config.GRPC) != nil {
		n.log.Warn(plainWarning, "http", n.config.HTTP, "grpc", n.config.GRPC)
	}
}

const plainWarning = "keys travel in the open, as other machines may call and there is no TLS: " +
	"set tls.cert and tls.key, listen on a loopback address, or let a proxy with TLS be the only caller"

// url is where the server is reached over HTTP from this machine.
func (n *node) url() string {
	scheme := "http"
	if n.config.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + reachable(n.rest.Addr().String())
}

// reachable is where a listener's address is reached from this machine: one of
// all addresses, at the machine's name for itself.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// loadProgress shows how the index is filled: in place on a terminal, until end,
// and elsewhere in the log, every few seconds.
func (w *world) loadProgress(log *slog.Logger) (show ranking.Progress, end func()) {
	if !isTerminal(w.stderr) {
		const every = 5 * time.Second
		last := time.Now()
		return func(s leaderboard.Scope, done int64) {
			if time.Since(last) >= every {
				last = time.Now()
				log.Info("filling the rank index", "board", s.Board, "season", s.Season, "entries", done)
			}
		}, func() {}
	}
	p := w.newProgress("filling the rank index:")
	return func(s leaderboard.Scope, done int64) {
		p.show(&pb.Progress{Board: string(s.Board), Season: string(s.Season), Done: done})
	}, p.end
}
