package pipeline

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// The commands that docs/operations.md has for the distributed engine, one after
// another, on real servers: from the first start to a Redis that is flushed.
func TestOperations(t *testing.T) {
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	d := deployment.New(t, deployment.Options{Redis: redis.Addrs()})
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(doc), "## The embedded form")
	host, port, _ := strings.Cut(redis.Addrs()[0], ":")
	here := strings.NewReplacer("leaderboard.yaml", d.Config, "dc1=3", d.DataCenter+"=1", "--replication-factor 3", "--replication-factor 1",
		"redis-cli -h redis", "redis-cli -h "+host+" -p "+port)
	var api *deployment.Node
	run := d.Command
	commands, flushed := 0, false
	want := map[string]string{"rank": "rank 1 of 1", "verify": " 0 differences", "rebuild": "entries remade", "submit": "ada"}
	for _, block := range strings.Split(text, "\n```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		for line := range strings.Lines(block) {
			args := strings.Fields(here.Replace(line))
			commands++
			switch {
			case args[0] == "redis-cli":
				if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "OK" {
					t.Fatalf("%s: %v: %s", line, err, out)
				}
				flushed = true
				whole(t, api)
			case args[1] == "serve":
				node := d.Serve(t, args[4:]...) // it brings --config of its own
				if api == nil {
					api, run = node, node.Command
				}
			case args[1] == "health":
				args = append(args, "--http", strings.TrimPrefix(api.URL, "http://"))
				fallthrough
			default:
				// A machine that is slow takes its time to apply what was submitted.
				eventually(t, func() (string, bool) {
					out, err := run(t, args[1:]...).CombinedOutput()
					return line + string(out), err == nil && (strings.Contains(string(out), want[args[1]]) || strings.Contains(string(out), `"differences":0`))
				})
				if args[1] == "retract" { // a result that stays, to be looked for later
					if out, err := run(t, "submit", "bob", "--points", "7", "--match", "m").CombinedOutput(); err != nil {
						t.Fatalf("submit: %v: %s", err, out)
					}
					eventually(t, func() (string, bool) {
						out, err := run(t, "rank", "bob").CombinedOutput()
						return string(out), err == nil && strings.Contains(string(out), "rank 1 of 1")
					})
				}
			}
		}
	}
	if commands < 14 || !flushed {
		t.Errorf("only %d commands were found", commands)
	}
}

// eventually waits until a condition holds, and tells what was last seen if it
// does not.
func eventually(t *testing.T, condition func() (seen string, ok bool)) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		seen, ok := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes still: %s", seen)
		}
	}
}

// whole waits until bob has a rank again; meanwhile there is a score without one,
// or no answer, and never another number.
func whole(t *testing.T, api *deployment.Node) {
	t.Helper()
	eventually(t, func() (string, bool) {
		var answer struct {
			Data struct {
				Score    int64  `json:"score"`
				Rank     *int64 `json:"rank"`
				Degraded bool   `json:"degraded"`
			} `json:"data"`
		}
		status, err := api.Call(t.Context(), http.MethodGet, "/v1/scores/bob", nil, &answer)
		if err != nil || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout {
			return show(answer), false
		}
		got := answer.Data
		if status != http.StatusOK || got.Score != 7 || got.Degraded != (got.Rank == nil) || got.Rank != nil && *got.Rank != 1 {
			t.Fatalf("bob: %d: %s", status, show(answer))
		}
		return show(answer), !got.Degraded
	})
}
