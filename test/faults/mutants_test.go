package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// A mutant is a fault of the service that a test must catch.
type mutant struct {
	name  string
	file  string // relative to the module's root, or absolute
	edits []edit
	// pkg and run name the cheapest test that catches the mutant.
	pkg, run string
	servers  bool   // the test starts servers
	part     string // of make slow, if it runs the test and make check does not
}

// edit replaces a text, which the file contains exactly once.
type edit struct{ from, to string }

var mutants = []mutant{
	{
		name: "commit an offset before the results are applied", file: "consumer/session.go",
		edits: []edit{{
			"\t\titems := waits.admit(h.decodeBatch(batch))\n",
			"\t\ts.MarkOffset(claim.Topic(), claim.Partition(), last+1, h.topics[claim.Topic()])\n\t\titems := waits.admit(h.decodeBatch(batch))\n",
		}},
		pkg: "./consumer", run: "TestOffsetsAreCommittedOnlyAfterApply", servers: true,
	},
	{
		name: "commit the offset of a fetch before earlier ones are done", file: "consumer/fetchqueue.go",
		edits: []edit{{"\t\tfor len(o.list) > 0 && o.list[0].done {\n", "\t\tfor len(o.list) > 0 {\n"}},
		pkg:   "./consumer", run: "TestOpenOffsets",
	},
	{
		name: "fetch although the circuit breaker of the board is open", file: "consumer/fetcher.go",
		edits: []edit{{"return c.ConsecutiveFailures >= breakerFailures }", "return false }"}},
		pkg:   "./consumer", run: "TestABoardThatHangsDelaysNoOther",
	},
	{
		name: "move the index's position although the index lacks an update", file: "consumer/position.go",
		edits: []edit{{"\tif synced && s.caughtUp {\n", "\tif s.caughtUp {\n"}},
		pkg:   "./consumer", run: "TestOffsetsDoNotWaitForTheIndex",
	},
	{
		name: "stamp entries by the wall clock", file: "storage/cql/codec.go",
		edits: []edit{{"{ return int64(2*version + 1) }", "{ return time.Now().UnixMicro() }"}},
		pkg:   "./storage/cql", run: "TestModelOfTwoWriters",
	},
	{
		name: "skip the version guard of the index in memory", file: "cache/memory/table.go",
		edits: []edit{{"} else if e.Version <= t.users.version(ref) {", "} else if e.Version == t.users.version(ref) {"}},
		pkg:   "./cache/memory", run: "TestIndex",
	},
	{
		name: "skip the version guard of the index in Redis", file: "cache/redis/lua/update.lua",
		edits: []edit{{"if not is_newer(version, sub(old, 2, n + 1)) then return end", ""}},
		pkg:   "./cache/redis", run: "TestScriptsInProcess",
	},
	{
		name: "lose one update of the index in 10,000", file: "cache/memory/table.go",
		edits: []edit{
			{"// applyChunk applies at most", "var updates int\n\n// applyChunk applies at most"},
			{"\tt.warm(entries)\n\tfor i := range entries {\n", "\tt.warm(entries)\n\tfor i := range entries {\n\t\tif updates++; updates%10_000 == 0 {\n\t\t\tcontinue\n\t\t}\n"},
		},
		pkg: "./cache/memory", run: "TestRebuildIncludesConcurrentUpdates",
	},
	{
		name: "lose one result in 10,000", file: "internal/ranking/apply.go",
		edits: []edit{
			{"// applyTo applies results to one board", "var applied int\n\n// applyTo applies results to one board"},
			{"\treport, err := s.store.Apply(ctx, b, results)\n",
				"\tfor i := range results {\n\t\tif applied++; applied%10_000 == 0 {\n\t\t\tresults[i].Retracted = true\n\t\t}\n\t}\n\treport, err := s.store.Apply(ctx, b, results)\n"},
		},
		pkg: "./test/official", run: "TestFootball", part: "official",
	},
	{
		name: "answer before the disk has the result", file: "storage/pebble/commit.go",
		edits: []edit{
			{"s.db.ApplyNoSyncWait(b, pebble.Sync)", "s.db.Apply(b, pebble.NoSync)"},
			{"if err := b.SyncWait(); err != nil {", "if err := error(nil); err != nil {"},
		},
		pkg: "./storage/pebble", run: "TestCrashKeepsAcknowledgedResults",
	},
	{
		name: "ignore a write that fails", file: "storage/pebble/guard.go",
		edits: []edit{{"\tif err == nil || !inDir || !g.armed.Load() {\n\t\treturn err\n\t}\n", "\tif true {\n\t\treturn nil\n\t}\n"}},
		pkg:   "./test/faults", run: "TestEmbeddedDiskFull", part: "faults",
	},
	{
		name: "do not update the index in the submit if the consumer could not", file: "internal/ranking/submit.go",
		edits: []edit{{"\t\tif len(missing) > 0 {\n", "\t\tif len(missing) < 0 {\n"}},
		pkg:   "./internal/ranking", run: "TestASubmitIsVisibleAlthoughTheConsumerCannotReachTheIndex",
	},
	{
		name: "ask a remote data center", file: "storage/cql/options.go",
		edits: []edit{{"\tif node.DataCenter() == n.dataCenter {\n", "\tif true {\n"}},
		pkg:   "./storage/cql", run: "TestTheDriverNeverLeavesTheDataCenter", servers: true, part: "clusters",
	},
	{
		name: "cache a board for ever", file: "internal/ranking/boards.go",
		edits: []edit{{"&cached[V]{value, c.now().Add(c.ttl), readAt}", "&cached[V]{value, c.now().AddDate(9, 0, 0), readAt}"}},
		pkg:   "./internal/ranking", run: "TestAChangeOfDivisionsReachesEveryRegion",
	},
}

// The test of each mutant passes without the mutant, and fails with it.
func TestMutantsAreCaught(t *testing.T) {
	needs.Slow(t, "mutants")
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			if m.servers {
				needs.Servers(t)
			}
			if out, err := m.test(t, ""); err != nil || !strings.Contains(out, "--- PASS: "+m.run) {
				t.Fatalf("without the mutant, %s failed or did not run, want a pass: %v\n%s", m.run, err, lastLines(out))
			}
			out, err := m.test(t, m.overlay(t))
			if err == nil || !strings.Contains(out, "--- FAIL: "+m.run) {
				t.Fatalf("with the mutant, %s passed or did not run, want a failure: %v\n%s", m.run, err, lastLines(out))
			}
			t.Logf("caught by %s of %s:\n%s", m.run, m.pkg, firstErrors(out))
		})
	}
}

// The code has each text that a mutant replaces.
func TestMutantsFitTheCode(t *testing.T) {
	for _, m := range mutants {
		m.text(t)
	}
}

func (m *mutant) path(t *testing.T) string {
	t.Helper()
	if filepath.IsAbs(m.file) {
		return m.file
	}
	path, err := filepath.Abs(filepath.Join("../..", m.file))
	must(t, err)
	return path
}

func (m *mutant) text(t *testing.T) string {
	t.Helper()
	code, err := os.ReadFile(m.path(t))
	must(t, err)
	text := string(code)
	for _, e := range m.edits {
		if n := strings.Count(text, e.from); n != 1 {
			t.Errorf("mutant %q: %s contains this text %d times, want 1:\n%s", m.name, m.file, n, e.from)
		}
		text = strings.Replace(text, e.from, e.to, 1)
	}
	return text
}

// overlay returns the path of a file for the flag -overlay of go build, which replaces the file by
// the mutated text.
func (m *mutant) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	settings, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path(t): mutated}})
	must(t, err)
	must(t, os.WriteFile(mutated, []byte(m.text(t)), 0o600))
	must(t, os.WriteFile(overlay, settings, 0o600))
	return overlay
}

func (m *mutant) test(t *testing.T, overlay string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-v", "-count=1", "-timeout", "20m", "-run", "^"+m.run+"$", m.pkg)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), needs.Variable+"="+m.part)
	if overlay != "" { // the variable also reaches the programs that the test builds
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func firstErrors(out string) string {
	const lines, length = 3, 200
	var messages []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if message := regexp.MustCompile(`^\w+_test\.go:\d+: `).MatchString(line); message && len(messages) < lines && !strings.Contains(line, ": seed ") {
			messages = append(messages, line[:min(len(line), length)])
		}
	}
	return strings.Join(messages, "\n")
}

func lastLines(out string) string { return out[max(0, len(out)-4000):] }
