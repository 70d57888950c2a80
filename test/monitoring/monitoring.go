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

// A query is a PromQL expression of the dashboard or of a rule. Its text, a legend or a summary, is
// a template with labels of the result.
type query struct{ expr, text string }

func queries(t testing.TB, root string) []query {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Targets []struct {
				Expr         string
				LegendFormat string
			}
		}
	}
	if err := json.Unmarshal(read(t, root, "deploy/grafana/dashboards/leaderboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []query
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, query{target.Expr, target.LegendFormat})
		}
	}
	for _, r := range Rules(t, root) {
		all = append(all, query{r.Expr, r.Annotations["summary"]})
	}
	return all
}

func read(t testing.TB, root, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var (
	sample   = regexp.MustCompile(`(?m)^([a-z][a-z0-9_]*)(?:\{(.*)\})? \S+$`)
	pair     = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	selector = regexp.MustCompile(`\b((?:leaderboard|process|go)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)(=~|!=|!~|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left) ?\(([a-z_, ]*)\)`)
	template = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([a-z_]+) ?\}\}`)
)

// series returns the values of each label of each metric in an answer to /metrics.
func series(body string) map[string]map[string][]string {
	exposed := map[string]map[string][]string{}
	for _, m := range sample.FindAllStringSubmatch(body, -1) {
		labels := exposed[m[1]]
		if labels == nil {
			labels = map[string][]string{"instance": nil, "job": {"leaderboard"}} // Prometheus adds these
			exposed[m[1]] = labels
		}
		for _, p := range pair.FindAllStringSubmatch(m[2], -1) {
			labels[p[1]] = append(labels[p[1]], p[2])
		}
	}
	return exposed
}

// sharedLabels returns the labels that all metrics of q must have.
func (q query) sharedLabels() []string {
	var labels []string
	for _, m := range grouping.FindAllStringSubmatch(q.expr, -1) {
		labels = append(labels, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, m := range template.FindAllStringSubmatch(q.text, -1) {
		labels = append(labels, m[1])
	}
	return labels
}

// missingLabels returns the labels that q uses but the metric lacks. braces is the text between the
// braces after the metric's name. If q names a value of a label, the metric must have this value
// before the first event: Prometheus sees no increase if a series begins at 1.
func (q query) missingLabels(braces string, labels map[string][]string) []string {
	var missing []string
	for _, l := range q.sharedLabels() {
		if _, ok := labels[l]; !ok {
			missing = append(missing, l)
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(braces, -1) {
		values, ok := labels[m[1]]
		if !ok || m[2] == "=" && !slices.Contains(values, m[3]) {
			missing = append(missing, m[0])
		}
	}
	return missing
}

// Unexposed returns the metrics that the dashboard and rules use, but body lacks. body is a
// process's answer to /metrics. If only a label is missing, Unexposed returns metric{label}.
// Unexposed ignores metrics that begin with one of otherPrefixes: they belong to the other engine.
func Unexposed(t testing.TB, root, body string, otherPrefixes ...string) []string {
	t.Helper()
	exposed := series(body)
	used := 0
	var missing []string
	for _, q := range queries(t, root) {
		for _, m := range selector.FindAllStringSubmatch(q.expr, -1) {
			used++
			name, labels := m[1], exposed[m[1]]
			if labels == nil {
				if !slices.ContainsFunc(otherPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
					missing = append(missing, name)
				}
				continue
			}
			for _, l := range q.missingLabels(m[2], labels) {
				missing = append(missing, name+"{"+l+"}")
			}
		}
	}
	if used < 100 {
		t.Errorf("the dashboard and rules use metrics %d times, want at least 100", used)
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
