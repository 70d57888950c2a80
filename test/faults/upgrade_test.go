package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// oldCommit is the oldest commit that can run beside the current one. CHANGELOG.md must name it.
const oldCommit = "17d66c56a7d7bcb8295a98861ac875170cf76ec8"

// Processes are upgraded under load, in the order of docs/operations/upgrade.md. No call fails, and no
// acknowledged result is lost. An old API node stops at once, so the balancer sends some calls
// again to the other node. A new API node has a drain_time, so the balancer stops using it in time.
func TestRollingUpgrade(t *testing.T) {
	needs.Slow(t, "upgrade")
	cluster.Cassandra(t, 1) // skips the test, before it builds programs, if there are no servers
	program := buildNew(t)
	s := newService(t, deployment.Options{Program: buildOld(t), Fresh: true})
	ledger, b := s.ledger(t, "upgrade"), newBalancer(t, s.apis...)
	u := upgrade{program, b, startLoad(t, s.Deployment, ledger, b.client, b.client)}
	u.step(t, "old processes", func() {})

	s.Program = program
	if status := s.Run(t, "schema", "status", "--config", s.Config); !strings.Contains(status, "not applied") {
		t.Errorf("schema status of the new program on the old schema, want a migration that is not applied:\n%s", status)
	}
	u.step(t, "schema apply", func() { s.Run(t, "schema", "apply", "--config", s.Config) })
	for _, consumer := range []*deployment.Node{s.static, s.dynamic} {
		u.step(t, "consumer upgraded", func() { u.restart(t, consumer) })
		waitForResults(t, consumer)
	}
	for _, api := range s.apis {
		api.Flags = append(api.Flags, "--drain-time=3s") // the old process runs without this flag
		u.step(t, "API node upgraded", func() { u.restart(t, api) })
	}
	for _, api := range s.apis {
		if moved := u.step(t, "new API node restarted", func() { u.restart(t, api) }); moved > 0 {
			t.Errorf("an API node with drain_time did not answer %d calls when it stopped, want 0", moved)
		}
	}

	u.load.stop()
	if f := u.load.figures(); f.errors > 0 {
		t.Errorf("%d of %d calls failed, want 0", f.errors, f.calls)
	}
	check(t, ledger, s.apis...)
}

type upgrade struct {
	program  string
	balancer *balancer
	load     *load
}

// step calls the function do, waits for more acknowledged results, and counts the calls that the
// balancer sent again.
func (u *upgrade) step(t *testing.T, name string, do func()) (moved int64) {
	t.Helper()
	before, movedBefore, begun := u.load.figures(), u.balancer.moved.Load(), time.Now()
	do()
	took := time.Since(begun)
	u.load.waitForMore(t, 150)
	f, moved := u.load.figures(), u.balancer.moved.Load()-movedBefore
	t.Logf("%s: took %v; meanwhile and shortly after, %d calls, %d errors, %d moved to the other node, %d results acknowledged",
		name, took.Round(time.Millisecond), f.calls-before.calls, f.errors-before.errors, moved, f.acknowledged-before.acknowledged)
	return moved
}

func (u *upgrade) restart(t *testing.T, n *deployment.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // as docs/operations/upgrade.md advises
	defer cancel()
	must(t, n.Stop(ctx))
	if code := n.ExitCode(); code != 0 {
		t.Errorf("%s exited with %d after SIGTERM, want 0", n.Addr, code)
	}
	n.Program = u.program
	must(t, n.Start(t.Context()))
}

// buildNew builds the current program with a further migration, which only this test has.
func buildNew(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	must(t, err)
	migrations, err := filepath.Glob(filepath.Join(root, "schema/cql/*.cql"))
	must(t, err)
	added, file := filepath.Join(root, "schema/cql", fmt.Sprintf("%04d_upgrade_test.cql", len(migrations)+1)), filepath.Join(dir, "added.cql")
	must(t, os.WriteFile(file, []byte("ALTER TABLE match_results ADD IF NOT EXISTS upgrade_test text;\n"), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{added: file}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	program := filepath.Join(dir, "leaderboard-new")
	if out, err := exec.Command("go", "-C", root, "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/leaderboard").CombinedOutput(); err != nil {
		t.Fatalf("build the new program: %v\n%s", err, out)
	}
	return program
}

func buildOld(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	must(t, err)
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", oldCommit+"^{commit}").CombinedOutput(); err != nil {
		t.Fatalf("commit %s, from which the test upgrades, is not in this clone (%v); if the clone is shallow, run: git fetch --unshallow\n%s", oldCommit, err, out)
	}
	tree, program := filepath.Join(dir, "tree.tar"), filepath.Join(dir, "leaderboard-old")
	for _, args := range [][]string{
		{"git", "-C", root, "archive", "--output", tree, oldCommit},
		{"tar", "-x", "-f", tree, "-C", dir},
		{"go", "-C", dir, "build", "-o", program, "./cmd/leaderboard"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("build the old program: %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return program
}
