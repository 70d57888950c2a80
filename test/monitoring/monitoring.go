// Package monitoring reads the dashboards and the alert rules in deploy, for tests.
package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Rule is an alert rule.
type Rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

// Rules returns all alert rules. root is the folder of the repository.
func Rules(t testing.TB, root string) []Rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []Rule }
	}
	if err := yaml.Unmarshal(read(t, root, "deploy/prometheus/alerts.yml"), &file); err != nil {
		t.Fatal(err)
	}
	var rules []Rule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// Queries returns the queries of all panels of the dashboard.
func Queries(t testing.TB, root string) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, root, "deploy/grafana/dashboards/leaderboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	return queries
}

func read(t testing.TB, root, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Unexposed returns the metrics that rules and queries use, but that a process does not
// expose. body is the process's answer to /metrics. Metrics with one of the given
// prefixes are of the other form of the engine and may be missing.
func Unexposed(t testing.TB, root, body string, other ...string) []string {
	t.Helper()
	exposed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(body, -1) {
		exposed[m[1]] = true
		if m[2] == "histogram" {
			exposed[m[1]+"_bucket"], exposed[m[1]+"_count"] = true, true
		}
	}
	expressions := Queries(t, root)
	for _, r := range Rules(t, root) {
		expressions = append(expressions, r.Expr)
	}
	used, missing := 0, []string{}
	for _, e := range expressions {
		for _, name := range regexp.MustCompile(`\b(?:leaderboard|process|go)_[a-z_]+`).FindAllString(e, -1) {
			used++
			if !exposed[name] && !slices.Contains(missing, name) && !slices.ContainsFunc(other, func(p string) bool { return strings.HasPrefix(name, p) }) {
				missing = append(missing, name)
			}
		}
	}
	if used < 100 {
		t.Errorf("found only %d uses of metrics", used)
	}
	return missing
}
