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

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

const healthTimeout = 5 * time.Second

func healthCommand(app *cli.App) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use: "health", Short: "Check the server on this machine", Args: cli.Exactly(),
		Long: `Check whether the server on this machine runs. If it runs, the exit code is 0, so a
container can use the command as its health check. The command needs the same settings
as the server: it calls the address in the setting "admin" or, if that is empty, in
"http". It needs no key. It also has the other flags of "leaderboard serve".`,
		Example: `  leaderboard health
  leaderboard health --ready --http 127.0.0.1:9000`,
	}
	addSettings(cmd, "config", "http", "admin", "tls-")
	cmd.Flags().BoolVar(&ready, "ready", false, "also check that the rank index is filled and that a consumer has joined its consumer group")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := loadConfig(app, cmd)
		if err != nil {
			return err
		}
		path := "/healthz"
		if ready {
			path = "/readyz"
		}
		answer, err := probe(cmd.Context(), &c.Config, path)
		if err == nil {
			app.Println(answer)
		}
		return err
	}
	return cmd
}

func probe(ctx context.Context, c *config.Config, path string) (string, error) {
	res, err := callProbe(ctx, c, path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return "", err
	}
	answer := strings.TrimSpace(string(body))
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %s", res.Request.URL, res.Status, answer)
	}
	return answer, nil
}

// callProbe returns an answer whose body the caller must close.
func callProbe(ctx context.Context, c *config.Config, path string) (*http.Response, error) {
	scheme, transport := "http", &http.Transport{}
	address, setting := c.HTTP, "http"
	if c.Admin != "" {
		address, setting = c.Admin, "admin"
	}
	if c.TLS.Cert != "" && c.ServesAPI() && c.Admin == "" {
		// The certificate is for the server's public name, not for this address. The request
		// contains no secret, so the certificate need not be verified.
		scheme, transport.TLSClientConfig = "https", &tls.Config{InsecureSkipVerify: true}
		if c.TLS.ClientCA != "" {
			pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
			if err != nil {
				return nil, err
			}
			transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
		}
	}
	transport.DisableKeepAlives = true
	url := scheme + "://" + reachableAddress(address) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := (&http.Client{Transport: transport, Timeout: healthTimeout}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("no server answers at %s (%w); start it with `leaderboard serve`, or name its address with --%s", url, err, setting)
	}
	return res, nil
}
