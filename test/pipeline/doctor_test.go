package pipeline

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

type finding struct{ Check, Level, Detail, Cure string }

// doctor runs "leaderboard doctor" with the settings of d, and returns its findings and exit code. The
// prefix is a command that runs the doctor, or empty.
func doctor(t *testing.T, d *deployment.Deployment, n *deployment.Node, environ []string, prefix string, flags ...string) (findings []finding, code int) {
	t.Helper()
	args := append([]string{"doctor", "--config", d.Config, "--http", strings.TrimPrefix(n.URL, "http://"), "--limits-connections", "100", "-o", "json"}, flags...)
	cmd := d.Command(t, args...)
	if prefix != "" {
		cmd = exec.CommandContext(t.Context(), "bash", append([]string{"-c", prefix + ` exec "$@"`, "doctor", d.Program}, args...)...)
	}
	cmd.Env = append(os.Environ(), environ...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &findings); err != nil {
		t.Fatalf("doctor %q: %v: %s", flags, err, out)
	}
	for _, f := range findings {
		if (f.Cure == "") != (f.Level == "ok") {
			t.Errorf("%+v: want a cure exactly if there is a problem", f)
		}
	}
	return findings, cmd.ProcessState.ExitCode()
}

// has reports whether a finding of the check and level contains the texts in its detail and cure.
func has(findings []finding, check, level, detail, cure string) bool {
	for _, f := range findings {
		if f.Check == check && f.Level == level && strings.Contains(f.Detail, detail) && strings.Contains(f.Cure, cure) {
			return true
		}
	}
	return false
}

// The doctor finds nothing that stops a healthy deployment. Each thing that breaks then is a finding
// with its cure.
func TestDoctorOfRealServers(t *testing.T) {
	needs.Slow(t, "pipeline")
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	d := deployment.New(t, deployment.Options{Redis: redis.Addrs(), Fresh: true})
	n := d.Serve(t)
	healthy, code := doctor(t, d, n, nil, "")
	for check, detail := range map[string]string{"settings": "valid", "server": "ready", "cassandra": "agrees", "schema": "all", "redis": "agrees", "open files": "may open"} {
		if !has(healthy, check, "ok", detail, "") {
			t.Errorf("the check %s of a healthy deployment finds %+v, want ok with %q", check, healthy, detail)
		}
	}
	if code != 0 {
		t.Errorf("the doctor exits with %d for a healthy deployment, want 0: %+v", code, healthy)
	}
	server := goredis.NewClient(&goredis.Options{Addr: d.Redis[0]})
	t.Cleanup(func() { _ = server.Close() })
	set := func(name, value string) func() {
		return func() {
			if err := server.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func() {}
	for _, tt := range []struct {
		name                       string
		breakIt, mendIt            func()
		environ                    []string
		prefix                     string
		flags                      []string
		check, level, detail, cure string
	}{
		{name: "a misspelled setting", environ: []string{"LEADERBOARD_HTPP=x"}, check: "settings", level: "error", detail: "LEADERBOARD_HTPP", cure: "correct the settings"},
		{name: "Cassandra does not answer", flags: []string{"--cassandra-hosts=127.0.0.1:1"}, check: "cassandra", level: "error", detail: "127.0.0.1", cure: "start Cassandra"},
		{name: "a keyspace without tables", flags: []string{"--cassandra-keyspace=none"}, check: "cassandra", level: "error", detail: "none", cure: "leaderboard schema apply"},
		{name: "a data center without replicas", flags: []string{"--cassandra-data-center=nowhere"}, check: "cassandra", level: "error", detail: "nowhere", cure: "cassandra"},
		{name: "Kafka does not answer", flags: []string{"--kafka-brokers=127.0.0.1:1"}, check: "kafka", level: "error", detail: "127.0.0.1:1", cure: "start Kafka"},
		{name: "missing topics", flags: []string{"--kafka-topic-prefix=none-"}, check: "topics", level: "error", detail: "none-match-results", cure: "leaderboard topics"},
		{name: "Redis does not answer", flags: []string{"--redis-addresses=127.0.0.1:1"}, check: "redis", level: "error", detail: "127.0.0.1:1", cure: "start Redis"},
		{name: "few open files", prefix: "ulimit -n 64;", check: "open files", level: "warning", detail: "64", cure: "ulimit"},
		{name: "a migration is missing", breakIt: func() { migrate(t, d, "DELETE FROM schema_migrations WHERE realm = 0 AND version = 1") }, mendIt: func() { d.Run(t, "schema", "apply", "--config", d.Config) },
			check: "schema", level: "error", detail: "not applied", cure: "schema apply"},
		{name: "a topic keeps results for a minute", breakIt: func() { alterTopic(t, d, "retention.ms", "60000") }, mendIt: func() { alterTopic(t, d, "retention.ms", "1209600000") },
			check: "topics", level: "warning", detail: "match-results", cure: "retention.ms"},
		{name: "Redis evicts", breakIt: func() { set("maxmemory", "100mb")(); set("maxmemory-policy", "allkeys-lru")() }, mendIt: set("maxmemory-policy", "noeviction"),
			check: "redis policy", level: "error", detail: "allkeys-lru", cure: "noeviction"},
		{name: "Redis has no limit", breakIt: set("maxmemory", "0"), mendIt: set("maxmemory", "100mb"), check: "redis policy", level: "warning", detail: "maxmemory is not set", cure: "noeviction"},
		{name: "the process has ended", breakIt: func() { mustSucceed(t, n.Stop(t.Context())) }, mendIt: func() { mustSucceed(t, n.Start(t.Context())) }, check: "server", level: "error", detail: "no server answers", cure: "leaderboard serve"},
	} {
		if tt.breakIt == nil {
			tt.breakIt, tt.mendIt = nothing, nothing
		}
		tt.breakIt()
		found, code := doctor(t, d, n, tt.environ, tt.prefix, tt.flags...)
		if !has(found, tt.check, tt.level, tt.detail, tt.cure) {
			t.Errorf("%s: the doctor finds %+v, want for %s the level %s, %q and the cure %q", tt.name, found, tt.check, tt.level, tt.detail, tt.cure)
		}
		if want := map[string]int{"error": 1, "warning": 0}[tt.level]; code != want {
			t.Errorf("%s: the doctor exits with %d, want %d: %+v", tt.name, code, want, found)
		}
		tt.mendIt()
	}
	if found, code := doctor(t, d, n, nil, ""); code != 0 || !has(found, "redis policy", "ok", "noeviction", "") {
		t.Errorf("after all is mended, the doctor exits with %d, want 0 and a good policy of Redis: %+v", code, found)
	}
}

func migrate(t *testing.T, d *deployment.Deployment, statement string) {
	t.Helper()
	if err := d.Session(t).Query(statement).Exec(); err != nil {
		t.Fatal(err)
	}
}

func alterTopic(t *testing.T, d *deployment.Deployment, setting, value string) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(d.Kafka, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	entries := map[string]sarama.IncrementalAlterConfigsEntry{setting: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, d.TopicPrefix+"match-results", entries, false); err != nil {
		t.Fatal(err)
	}
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
