package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

// healthTimeout is how long a server may take to say how it is.
const healthTimeout = 5 * time.Second

func healthCommand(w *world) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use: "health", Short: "Ask the server on this machine whether it runs", Args: exactly(),
		Long: `Ask the server on this machine whether it runs, as a container's health check does
where there is no curl: the exit code is 0 if it does. Takes the settings that the
server was started with, and asks where they say that HTTP is served. It needs no key.`,
		Example: `  leaderboard health
  leaderboard health --ready --http 127.0.0.1:9000`,
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether the rank index is filled too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := w.loadConfig(cmd)
		if err != nil {
			return err
		}
		path := "/healthz"
		if ready {
			path = "/readyz"
		}
		answer, err := probe(cmd.Context(), &c.Config, path)
		if err == nil {
			fmt.Fprintln(w.stdout, answer)
		}
		return err
	}
	return cmd
}

// probe asks a server on this machine, and returns what it says.
func probe(ctx context.Context, c *config.Config, path string) (string, error) {
	scheme, transport := "http", &http.Transport{}
	if c.TLS.Cert != "" && c.ServesAPI() {
		// The certificate is for the names that others know the server by, and
		// nothing secret is said.
		scheme, transport.TLSClientConfig = "https", &tls.Config{InsecureSkipVerify: true}
		if c.TLS.ClientCA != "" {
			pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
			if err != nil {
				return "", err
			}
			transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
		}
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	url := scheme + "://" + reachable(c.HTTP) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", fmt.Errorf("no server answers at %s (%w); start it with leaderboard serve, or name its address with --http", url, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return "", err
	}
	answer := strings.TrimSpace(string(body))
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %s", url, res.Status, answer)
	}
	return answer, nil
}
