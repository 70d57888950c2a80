package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/monitoring"
)

const runbook = "../../docs/runbook.md"

func operationsPage(name string) string { return filepath.Join("../../docs/operations", name) }

func operationsPages(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(operationsPage("*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d pages of operations, error %v; want at least 10", len(pages), err)
	}
	return pages
}

func blocks(t *testing.T, document, language string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, block := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		all = append(all, block)
	}
	return all
}

func TestOperationsCommandsAreKnown(t *testing.T) {
	n := 0
	for _, page := range append(operationsPages(t), runbook) {
		for _, block := range blocks(t, page, "sh") {
			for line := range strings.Lines(block) {
				line, _, _ = strings.Cut(line, "|") // a filter of the output
				args := strings.Fields(line)
				if len(args) == 0 || args[0] != "leaderboard" {
					continue
				}
				n++
				if r := command(t, "", nil, append(slices.Clone(args[1:]), "--help")...); r.code != exitOK || !strings.Contains(r.stdout, "Usage:") {
					t.Errorf("%s: %s --help: exit code %d, stderr %s; want the usage", page, strings.TrimSpace(line), r.code, r.stderr)
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("found %d commands, want at least 40", n)
	}
}

func TestOperationsConfiguration(t *testing.T) {
	yamls := blocks(t, operationsPage("distributed.md"), "yaml")
	path := filepath.Join(t.TempDir(), "leaderboard.yaml")
	if err := os.WriteFile(path, []byte(yamls[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t, "", nil, "config", "--config", path, "--json")
	if r.code != exitOK || !strings.Contains(r.stdout, `"value":"cassandra-1,cassandra-2,cassandra-3"`) {
		t.Errorf("config with the file of the page: exit code %d, output %s%s; want 0 and the Cassandra hosts", r.code, r.stdout, r.stderr)
	}
	known := []string{cluster.EnvCassandra, cluster.EnvKafka, cluster.EnvRedis, "LEADERBOARD_SERVER", "LEADERBOARD_KEY", "LEADERBOARD_CA", "LEADERBOARD_BENCH_USERS"}
	defaults := config.Default()
	for _, s := range defaults.Settings() {
		known = append(known, s.Env)
	}
	for _, page := range operationsPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`LEADERBOARD_[A-Z_]+`).FindAllString(string(text), -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s names %s, which is not a setting", page, name)
			}
		}
	}
}

// The page's commands work as written, in their order.
func TestOperationsOfAnEmbeddedServer(t *testing.T) {
	page := operationsPage("embedded.md")
	data := filepath.Join(t.TempDir(), "data")
	var s *testServer
	var environ []string
	run := func(line string) string {
		t.Helper()
		r := command(t, "", environ, strings.Fields(line)[1:]...)
		if r.code != exitOK {
			t.Fatalf("%s exited with %d: %s", line, r.code, r.stderr)
		}
		return r.stdout
	}
	start := func() {
		s = startServer(t, data, nil)
		key, err := os.ReadFile(filepath.Join(data, "admin-key"))
		if err != nil {
			t.Fatal(err)
		}
		environ = []string{"LEADERBOARD_DATA=" + data, "LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_KEY=" + strings.TrimSpace(string(key))}
	}
	start()
	run("leaderboard submit ada --points 3 --match m")
	var commands []string
	for _, block := range blocks(t, page, "sh") {
		for line := range strings.Lines(block) {
			name := strings.Fields(line)[1]
			commands = append(commands, name)
			if name == "restore" {
				run("leaderboard submit bob --points 5 --match m")
				s.stop()
			}
			run(line)
		}
	}
	if got := strings.Join(commands, " "); got != "backup restore" {
		t.Fatalf("%s has the commands %s, want backup and restore", page, got)
	}
	start()
	checkContains(t, run("leaderboard verify"), " 0 differences")
	if top := run("leaderboard top"); !strings.Contains(top, "ada") || strings.Contains(top, "bob") {
		t.Errorf("the board after the restoration:\n%s\nwant ada, and not bob, whose result is newer than the backup", top)
	}
}

func TestConfigurationExamples(t *testing.T) {
	const page = "../../docs/configuration.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	example := func(pattern string) string {
		t.Helper()
		match := regexp.MustCompile(pattern).FindSubmatch(text)
		if match == nil {
			t.Fatalf("%s has no example %s", page, pattern)
		}
		return string(match[1])
	}
	file := filepath.Join(t.TempDir(), "leaderboard.yaml")
	if err := os.WriteFile(file, []byte(blocks(t, page, "yaml")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	flags, variable := strings.Fields(example("a flag: `leaderboard serve ([^`]+)`")), example("the environment: `([^`]+)`")
	setting := func(key, value, source string) string {
		return fmt.Sprintf(`{"key":%q,"value":%q,"source":%q}`, key, value, source)
	}
	for _, tt := range []struct {
		name    string
		environ []string
		args    []string
		want    []string
	}{
		{"a file has the values of the example", nil, []string{"--config", file}, []string{
			setting("data", "/var/lib/leaderboard", file), setting("limits.key_rate", "100", file), setting("log.level", "warn", file)}},
		{"the environment can name the file", []string{"LEADERBOARD_CONFIG=" + file}, nil, []string{setting("log.level", "warn", file)}},
		{"a variable overrides the file", []string{variable}, []string{"--config", file}, []string{
			setting("limits.key_rate", "100", "LEADERBOARD_LIMITS_KEY_RATE"), setting("log.level", "warn", file)}},
		{"an empty variable is ignored", []string{"LEADERBOARD_LIMITS_KEY_RATE="}, []string{"--config", file}, []string{setting("limits.key_rate", "100", file)}},
		{"a flag overrides the variable", []string{variable}, append([]string{"--config", file}, flags...), []string{setting("limits.key_rate", "100", "--limits-key-rate")}},
	} {
		r := command(t, "", tt.environ, append([]string{"config", "--json"}, tt.args...)...)
		for _, want := range tt.want {
			if r.code != exitOK || !strings.Contains(r.stdout, want) {
				t.Errorf("%s: exit code %d, want 0 and %s:\n%s%s", tt.name, r.code, want, r.stdout, r.stderr)
			}
		}
	}
}

// TestMonitoringOfProcesses in test/pipeline checks the metrics of Cassandra, Redis and the
// consumer.
func TestMonitoringOfAnEmbeddedServer(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "secret-board", "--policy", "sum")
	s.ok(t, "submit", "secret-user", "--board", "secret-board", "--points", "3", "--match", "secret-match")
	s.ok(t, "top", "--board", "secret-board")
	_, body := get(t, http.DefaultClient, "http://"+s.http+"/metrics")
	for _, name := range monitoring.Unexposed(t, "../..", body, "leaderboard_cassandra_", "leaderboard_redis_", "leaderboard_consumer_") {
		t.Errorf("an embedded server does not expose the metric %s, want it on /metrics", name)
	}
	if v := cli.ReadVersion(); !strings.Contains(body, fmt.Sprintf("leaderboard_build_info{revision=%q,version=%q} 1\n", v.Revision, v.Version)) {
		t.Errorf("the metrics do not have the build info of %+v", v)
	}
	if strings.Contains(body, "secret") {
		t.Errorf("the metrics contain the id of a board, a user or a match, want none:\n%s", body)
	}
}

// Each alert has a section of the runbook with commands, and each metric that these commands name exists.
func TestEveryAlertSaysWhatToDo(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		sections[name], _, _ = strings.Cut(body, "\n## ")
	}
	for _, r := range monitoring.Rules(t, "../..") {
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has the annotations %v, want a summary and a description", r.Alert, r.Annotations)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has the severity %q, want page or ticket", r.Alert, s)
		}
		want := "https://github.com/open-leaderboard/leaderboard/blob/main/docs/runbook.md#" + strings.ToLower(r.Alert)
		if got := r.Annotations["runbook_url"]; got != want {
			t.Errorf("%s has the runbook %s, want %s", r.Alert, got, want)
		}
		if !strings.Contains(sections[r.Alert], "\n```sh\n") {
			t.Errorf("the section %q of %s has no commands, want some: %q", r.Alert, runbook, sections[r.Alert])
		}
		delete(sections, r.Alert)
	}
	for name := range sections {
		t.Errorf("%s has the section %q, which is no alert: remove it", runbook, name)
	}
}

func TestOperationsMessages(t *testing.T) {
	page := operationsPage("watch.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, watch, _ := strings.Cut(string(text), "In the log,")
	var messages [][]string // the quoted texts before the colon of each list item
	for line := range strings.Lines(watch) {
		if item, _, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(item, "- ") {
			messages = append(messages, regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(item, -1)...)
		}
	}
	if len(messages) < 4 {
		t.Errorf("found %d log messages in %s, want at least 4", len(messages), page)
	}
	var code strings.Builder
	for _, dir := range []string{"../../internal/ranking", "../../consumer", "../../api/server", "."} {
		if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(filepath.Join(dir, path))
			code.Write(data)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range messages {
		quoted, err := json.Marshal(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(code.String(), string(quoted)) {
			t.Errorf("%s names the log message %q, which the code does not log", page, m[1])
		}
	}
}
