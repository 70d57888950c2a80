package compose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

func TestPrometheusAcceptsTheRules(t *testing.T) {
	groups, errs := rulefmt.ParseFile(filepath.Join(root, "deploy/prometheus/alerts.yml"), false)
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		return
	}
	names := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if names[r.Alert] {
				t.Errorf("two rules are called %s, want different names", r.Alert)
			}
			names[r.Alert] = true
		}
	}
	if len(names) < 30 {
		t.Errorf("found %d alerts, want at least 30", len(names))
	}
}

// watched has the subjects that the dashboard must show, with parts of their queries.
var watched = map[string][]string{
	"calls per second":       {`sum by (method) (rate(leaderboard_api_call_seconds_count[`},
	"the p95 of each method": {`histogram_quantile(0.95, sum by (le, method) (rate(leaderboard_api_call_seconds_bucket[`},
	"the objective of a p95 below 50 ms": {
		`sum(rate(leaderboard_api_visible_seconds_bucket{method="SubmitScore",le="0.05"}[`, `sum(rate(leaderboard_consumer_visible_seconds_bucket{le="0.05"}[`},
	"the time from submit to visible": {
		`sum by (le, method) (rate(leaderboard_api_visible_seconds_bucket[`, `sum by (le) (rate(leaderboard_consumer_visible_seconds_bucket[`},
	"lag":              {`sum by (topic) (leaderboard_consumer_lag_messages)`},
	"dead letters":     {`increase(leaderboard_consumer_dead_letters_total[`},
	"degraded reads":   {`rate(leaderboard_degraded_reads_total[`},
	"Redis' memory":    {`max(leaderboard_redis_used_memory_bytes)`, `max(leaderboard_redis_max_memory_bytes)`},
	"Redis' keys":      {`max(leaderboard_redis_keys)`},
	"Redis' shards":    {`max by (state) (leaderboard_redis_shards)`, `max(leaderboard_redis_users)`, `max(leaderboard_redis_position_lag_messages)`},
	"Redis' slow log":  {`max(delta(leaderboard_redis_slow_commands[`},
	"replication lag":  {`max(leaderboard_redis_replication_lag_bytes)`},
	"the disk":         {`leaderboard_embedded_disk_used_bytes`, `leaderboard_embedded_disk_free_bytes`},
	"backups":          {`time() - (leaderboard_backup_last_success_timestamp_seconds > 0)`},
	"running versions": {`count by (version) (leaderboard_build_info)`},
}

func TestPrometheusAcceptsTheDashboard(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy/grafana/dashboards/leaderboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID, Title string
		Panels     []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	var all strings.Builder
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 || p.Title == "" {
			t.Errorf("panel %q has %d queries, want a title and at least one query", p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			queries++
			fmt.Fprintln(&all, target.Expr)
			// Grafana replaces $__rate_interval before it sends the query.
			if _, err := parser.ParseExpr(strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")); err != nil {
				t.Errorf("panel %q: %s: %v", p.Title, target.Expr, err)
			}
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(watched)) {
		for _, expr := range watched[subject] {
			if !strings.Contains(all.String(), expr) {
				t.Errorf("no panel shows %s, want a query with %s", subject, expr)
			}
		}
	}
	if queries < 40 || dashboard.UID == "" || dashboard.Title == "" {
		t.Errorf("the dashboard has the title %q, the UID %q and %d queries, want a title, a UID and at least 40 queries", dashboard.Title, dashboard.UID, queries)
	}
}

// prometheusConfig has all fields of prometheus.yml, so a misspelled field is an error. Prometheus'
// own package config would add the clients of three cloud providers to go.mod.
type prometheusConfig struct {
	Global struct {
		ScrapeInterval     model.Duration `yaml:"scrape_interval"`
		EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	}
	RuleFiles     []string `yaml:"rule_files"`
	ScrapeConfigs []struct {
		JobName string `yaml:"job_name"`
		DNS     []struct {
			Names []string
			Type  string
			Port  int
		} `yaml:"dns_sd_configs"`
	} `yaml:"scrape_configs"`
}

// Prometheus has the rules, and reads the metrics of our services. Grafana has the dashboard, and
// reads from Prometheus.
func TestComposeStartsMonitoring(t *testing.T) {
	p := project(t)
	mounts := func(service string) map[string]string {
		found := map[string]string{}
		for _, v := range p.Services[service].Volumes {
			if v.Type != "bind" {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s, read only: %v, error: %v; want a read-only mount of an existing folder", service, v.Source, v.ReadOnly, err)
			}
			found[v.Target] = v.Source
		}
		return found
	}
	checkMount := func(service, target, want string) {
		t.Helper()
		absolute, err := filepath.Abs(filepath.Join(root, want))
		if err != nil {
			t.Fatal(err)
		}
		if got := mounts(service)[target]; got != absolute {
			t.Errorf("%s mounts %q at %s, want %s", service, got, target, absolute)
		}
	}
	checkMount("prometheus", "/etc/prometheus", "deploy/prometheus")
	checkMount("grafana", "/etc/grafana/provisioning", "deploy/grafana/provisioning")
	checkMount("grafana", "/etc/grafana/dashboards", "deploy/grafana/dashboards") // the folder that the provider in provisioning names

	var config prometheusConfig
	load := func(path string, target any) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewDecoder(bytes.NewReader(data))
		_, strict := target.(*prometheusConfig)
		decoder.KnownFields(strict)
		if err := decoder.Decode(target); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	load("deploy/prometheus/prometheus.yml", &config)
	if !slices.Equal(config.RuleFiles, []string{"alerts.yml"}) || len(config.ScrapeConfigs) != 1 || config.ScrapeConfigs[0].JobName != "leaderboard" {
		t.Fatalf("prometheus.yml is %+v, want only the job leaderboard and the rules in alerts.yml", config)
	}
	if dns := config.ScrapeConfigs[0].DNS; len(dns) != 1 || !slices.Equal(dns[0].Names, []string{"api", "consumer"}) || dns[0].Type != "A" || dns[0].Port != 8080 {
		t.Errorf("Prometheus reads %+v, want the services api and consumer at 8080", dns)
	}
	// Alert rules need several samples in their shortest window, 5 minutes.
	for name, interval := range map[string]model.Duration{"scrape_interval": config.Global.ScrapeInterval, "evaluation_interval": config.Global.EvaluationInterval} {
		if interval <= 0 || time.Duration(interval) > time.Minute {
			t.Errorf("%s is %v, want more than 0 and at most 1m", name, interval)
		}
	}
	for _, name := range []string{"api", "consumer"} {
		if c := settings(t, p, name); c.HTTP != "0.0.0.0:8080" || c.Admin != "" {
			t.Errorf("%s has http=%q and admin=%q, want its metrics at http=0.0.0.0:8080 and no admin", name, c.HTTP, c.Admin)
		}
	}
	var sources struct{ Datasources []struct{ URL string } }
	load("deploy/grafana/provisioning/datasources/prometheus.yml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("Grafana's data sources are %+v, want http://prometheus:9090", sources)
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	load("deploy/grafana/provisioning/dashboards/leaderboard.yml", &providers)
	if len(providers.Providers) != 1 || providers.Providers[0].Options.Path != "/etc/grafana/dashboards" {
		t.Errorf("Grafana's dashboard providers are %+v, want the mounted folder /etc/grafana/dashboards", providers)
	}
}
