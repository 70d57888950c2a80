package pipeline

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// pages are the pages of docs/operations whose commands the test runs in order.
var pages = []string{"distributed", "failures", "repair", "dead-letters"}

func TestOperations(t *testing.T) {
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	runOperations(t, deployment.New(t, deployment.Options{Redis: redis.Addrs()}))
}

// The flags go to redis-cli, after the address.
func runOperations(t *testing.T, d *deployment.Deployment, flags ...string) {
	t.Helper()
	var text strings.Builder
	for _, page := range pages {
		doc, err := os.ReadFile("../../docs/operations/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text.Write(doc)
	}
	host, port, _ := strings.Cut(d.Redis[0], ":")
	replacer := strings.NewReplacer("leaderboard.yaml", d.Config, "dc1=3", d.DataCenter+"=1", "--replication-factor 3", "--replication-factor 1 --force",
		"redis-cli -h redis", strings.Join(append([]string{"redis-cli -h", host, "-p", port}, flags...), " "))
	var api *deployment.Node
	run := d.Command
	commands, flushed := 0, false
	want := map[string]string{"rank": "rank 1 of 1", "verify": " 0 differences", "rebuild": "rebuilt ", "submit": "ada", "doctor": "migrations are applied"}
	for _, block := range strings.Split(text.String(), "\n```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		for line := range strings.Lines(block) {
			args := strings.Fields(replacer.Replace(line))
			commands++
			switch {
			case args[0] == "redis-cli":
				if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "OK" {
					t.Fatalf("%s: error %v, output %q, want OK", line, err, out)
				}
				flushed = true
				waitForRank(t, api)
			case args[1] == "serve":
				node := d.Serve(t, args[4:]...) // Serve adds its own --config
				if api == nil {
					api, run = node, node.Command
				}
			case args[1] == "health", args[1] == "doctor":
				args = append(args, "--http", strings.TrimPrefix(api.URL, "http://"))
				fallthrough
			default:
				// A slow machine may need time to apply the submitted results.
				deployment.Eventually(t, func(context.Context) error {
					out, err := run(t, args[1:]...).CombinedOutput()
					if err != nil || !strings.Contains(string(out), want[args[1]]) && !strings.Contains(string(out), `"differences":0`) {
						return fmt.Errorf("%s: error %v: %s", line, err, out)
					}
					return nil
				})
				if args[1] == "retract" { // add a result that remains for the later commands
					if out, err := run(t, "submit", "bob", "--points", "7", "--match", "m").CombinedOutput(); err != nil {
						t.Fatalf("submit: %v: %s", err, out)
					}
					deployment.Eventually(t, func(context.Context) error {
						out, err := run(t, "rank", "bob").CombinedOutput()
						if err != nil || !strings.Contains(string(out), "rank 1 of 1") {
							return fmt.Errorf("rank of bob: error %v: %s", err, out)
						}
						return nil
					})
				}
			}
		}
	}
	if commands < 14 || !flushed {
		t.Errorf("the pages have %d commands, with a flush of Redis: %t; want at least 14, with the flush", commands, flushed)
	}
}

// Until bob has a rank again, an answer may lack the rank or fail, but it must not have a wrong
// score or rank.
func waitForRank(t *testing.T, api *deployment.Node) {
	t.Helper()
	deployment.Eventually(t, func(context.Context) error {
		var answer struct {
			Data struct {
				Score    int64  `json:"score"`
				Rank     *int64 `json:"rank"`
				Degraded bool   `json:"degraded"`
			} `json:"data"`
		}
		status, err := api.Call(t.Context(), http.MethodGet, "/v1/scores/bob", nil, &answer)
		if err != nil || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout {
			return fmt.Errorf("read bob: status %d, error %v", status, err)
		}
		got := answer.Data
		if status != http.StatusOK || got.Score != 7 || got.Degraded != (got.Rank == nil) || got.Rank != nil && *got.Rank != 1 {
			t.Fatalf("read bob: status %d, want score 7 and, unless degraded, rank 1: %s", status, show(answer))
		}
		if got.Degraded {
			return fmt.Errorf("read bob: the answer has no rank: %s", show(answer))
		}
		return nil
	})
}
