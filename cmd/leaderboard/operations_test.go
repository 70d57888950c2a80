package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.yaml.in/yaml/v3"

	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

const operations = "../../docs/operations.md"

// blocks returns the code blocks of a language in a document.
func blocks(t *testing.T, document, kind string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, block := range strings.Split(string(text), "\n```"+kind+"\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		all = append(all, block)
	}
	return all
}

// Every command in docs/operations.md exists, with its flags and arguments.
func TestOperationsCommandsAreKnown(t *testing.T) {
	n := 0
	for _, block := range blocks(t, operations, "sh") {
		for line := range strings.Lines(block) {
			args := strings.Fields(line)
			if args[0] != "leaderboard" {
				continue
			}
			n++
			if r := command(t, "", nil, append(slices.Clone(args[1:]), "--help")...); r.code != exitOK || !strings.Contains(r.stdout, "Usage:") {
				t.Errorf("%s --help: exit code %d, stderr %s; want the usage", strings.TrimSpace(line), r.code, r.stderr)
			}
		}
	}
	if n < 15 {
		t.Errorf("found %d commands in %s, want at least 15", n, operations)
	}
}

// The configuration in docs/operations.md is valid for a distributed server. Every
// environment variable on the page is a setting.
func TestOperationsConfiguration(t *testing.T) {
	yamls := blocks(t, operations, "yaml")
	path := filepath.Join(t.TempDir(), "leaderboard.yaml")
	if err := os.WriteFile(path, []byte(yamls[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t, "", nil, "config", "--config", path, "--json")
	if r.code != exitOK || !strings.Contains(r.stdout, `"value":"cassandra-1,cassandra-2,cassandra-3"`) {
		t.Errorf("config with the file of the page: exit code %d, output %s%s; want 0 and the Cassandra hosts", r.code, r.stdout, r.stderr)
	}
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	known := append([]string{cluster.EnvCassandra, cluster.EnvKafka, cluster.EnvRedis}, config.ClientEnv...)
	defaults := config.Default()
	for _, s := range defaults.Settings() {
		known = append(known, s.Env)
	}
	for _, name := range regexp.MustCompile(`LEADERBOARD_[A-Z_]+`).FindAllString(string(text), -1) {
		if !slices.Contains(known, name) {
			t.Errorf("%s names %s, which is not a setting", operations, name)
		}
	}
}

// The alerts in docs/operations.md use metrics and labels that exist, and the code
// logs the messages that the page names.
func TestOperationsAlerts(t *testing.T) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	registry := prometheus.NewRegistry()
	c, err := consumer.New(consumer.Options{Brokers: kafka.ListenAddrs(), Registerer: registry}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ended); err != nil { // closes the connection to the broker
		t.Fatal(err)
	}
	s, _, _ := startOver(t)
	newBackups(nil, t.TempDir(), registry)
	descriptions := make(chan *prometheus.Desc, 1000)
	registry.Describe(descriptions)
	s.metrics.Describe(descriptions)
	close(descriptions)
	labels := map[string]string{} // by metric
	form := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	for d := range descriptions {
		if m := form.FindStringSubmatch(d.String()); m != nil {
			labels[m[1]] = m[2]
		}
	}
	yamls := blocks(t, operations, "yaml")
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				For         time.Duration
			}
		}
	}
	if err := yaml.Unmarshal([]byte(yamls[len(yamls)-1]), &rules); err != nil {
		t.Fatal(err)
	}
	if n := len(rules.Groups[0].Rules); n < 8 {
		t.Errorf("found %d alerts in %s, want at least 8", n, operations)
	}
	metric := regexp.MustCompile(`(leaderboard_[a-z_]+?)(?:_count|_bucket)?(?:\{([a-z_]+)[!=~])?[\[){} ]`)
	for _, rule := range rules.Groups[0].Rules {
		if !strings.Contains(rule.Expr, "leaderboard_") {
			if !strings.HasPrefix(rule.Expr, "up{") {
				t.Errorf("the alert %s uses no metric of this service: %s", rule.Alert, rule.Expr)
			}
			continue
		}
		var all []string // labels of the rule's metrics
		for _, m := range metric.FindAllStringSubmatch(rule.Expr+" ", -1) {
			have, ok := labels[m[1]]
			if !ok {
				t.Errorf("the alert %s uses %s, which is not a metric", rule.Alert, m[1])
			}
			all = append(all, strings.Split(have, ",")...)
			if m[2] != "" && !slices.Contains(all, m[2]) {
				t.Errorf("the alert %s uses the label %s of %s, but the labels of this metric are %s", rule.Alert, m[2], m[1], have)
			}
		}
		if by := regexp.MustCompile(`by \(([a-z]+)\)`).FindStringSubmatch(rule.Expr); by != nil && by[1] != "le" && !slices.Contains(all, by[1]) {
			t.Errorf("the alert %s groups by %s, but the labels of its metrics are %v", rule.Alert, by[1], all)
		}
	}
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	_, watch, _ := strings.Cut(string(text), "In the log,")
	var messages [][]string // before the colon of each item
	for line := range strings.Lines(watch) {
		if item, _, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(item, "- ") {
			messages = append(messages, regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(item, -1)...)
		}
	}
	if len(messages) < 4 {
		t.Errorf("found %d log messages in %s, want at least 4", len(messages), operations)
	}
	var code strings.Builder
	for _, dir := range []string{"../../internal/ranking", "../../consumer", "../../api/server"} {
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
			t.Errorf("%s names the log message %q, which the code does not log", operations, m[1])
		}
	}
}
