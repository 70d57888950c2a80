package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// levels returns the levels of the findings of each check.
func levels(t *testing.T, environ []string, args ...string) (byCheck map[string][]string, code int) {
	t.Helper()
	r := command(t, "", environ, append([]string{"doctor", "--jq", ".[] | [.check, .level, (.cure | length > 0)] | @tsv"}, args...)...)
	byCheck = map[string][]string{}
	for line := range strings.Lines(r.stdout) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		byCheck[fields[0]] = append(byCheck[fields[0]], fields[1])
		if cured := fields[2] == "true"; cured == (fields[1] == levelOK) {
			t.Errorf("%q: want a cure exactly if there is a problem", line)
		}
	}
	return byCheck, r.code
}

func TestDoctorOfTheEmbeddedEngine(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	args := []string{"--data", data, "--http", s.http, "--insecure", "--limits-connections", "10"}
	checkHas := func(found map[string][]string, want map[string]string) {
		t.Helper()
		for check, level := range want {
			if !slices.Contains(found[check], level) {
				t.Errorf("the check %q finds %v, want %s; all: %v", check, found[check], level, found)
			}
		}
	}
	found, code := levels(t, nil, args...)
	checkHas(found, map[string]string{"settings": levelWarning, "server": levelOK, "open files": levelOK, "data": levelOK, "backups": levelWarning})
	if code != exitOK {
		t.Errorf("with warnings only, doctor exits with %d, want 0", code)
	}
	s.ok(t, "backup")
	found, _ = levels(t, nil, append(args, "--backup-every", "24h")...)
	checkHas(found, map[string]string{"backups": levelWarning}) // that was not a scheduled backup
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	found, _ = levels(t, nil, append(args, "--limits-connections", "1000000")...)
	checkHas(found, map[string]string{"data": levelWarning, "open files": levelWarning})

	r := command(t, "", nil, append([]string{"doctor"}, args...)...)
	checkContains(t, r.stdout, "✓", "server", "→ run chmod 700 "+data, "0 errors")
	s.stop()
	r = command(t, "", nil, append([]string{"doctor"}, args...)...)
	r.mustFail(t, exitFailure, []string{"the doctor found 1 error"}, nil)
	checkContains(t, r.stdout, "✗", "no server answers", "leaderboard serve")

	found, code = levels(t, []string{"LEADERBOARD_HTPP=x"}, args...)
	checkHas(found, map[string]string{"settings": levelError})
	if code != exitFailure {
		t.Errorf("with wrong settings, doctor exits with %d, want %d", code, exitFailure)
	}
}

func TestDoctorOfTheDistributedEngine(t *testing.T) {
	redis := miniredis.RunT(t)
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, kafka.Topics{}.Results()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	environ := []string{
		"LEADERBOARD_KAFKA_BROKERS=" + strings.Join(fake.ListenAddrs(), ","), "LEADERBOARD_REDIS_ADDRESSES=" + redis.Addr(),
		"LEADERBOARD_CASSANDRA_HOSTS=127.0.0.1:1", "LEADERBOARD_CASSANDRA_DATA_CENTER=dc1", "LEADERBOARD_HTTP=127.0.0.1:1",
	}
	r := command(t, "", environ, "doctor", "-o", "csv")
	r.mustFail(t, exitFailure, []string{"the doctor found"}, nil)
	checkContains(t, r.stdout, "missing: match-results.dlq, leaderboard-updates", "run `leaderboard topics`", "has 1 replica",
		"cassandra,error", "leaderboard schema apply", "server,error")
	redis.SetTime(time.Now().Add(time.Hour))
	r = command(t, "", environ, "doctor", "-o", "csv")
	checkContains(t, r.stdout, "redis,warning,its clock differs from the clock of this machine by 1h", "synchronize the clocks")
	redis.Close()
	fake.Close()
	found, _ := levels(t, environ)
	for _, check := range []string{"cassandra", "kafka", "redis", "server"} {
		if !slices.Contains(found[check], levelError) {
			t.Errorf("without servers, the check %q finds %v, want an error", check, found[check])
		}
	}
}

func TestDoctorOfRedis(t *testing.T) {
	good := map[string]string{"redis_version": "7.2.4", "maxmemory": "1000", "maxmemory_policy": "noeviction", "connected_slaves": "1", "aof_enabled": "1"}
	for _, tt := range []struct{ field, value, level, cure string }{
		{"redis_version", "7.2.4", levelOK, ""},
		{"redis_version", "6.2.1", levelError, "Redis 7"},
		{"maxmemory", "0", levelWarning, "set maxmemory"},
		{"maxmemory_policy", "allkeys-lru", levelError, "noeviction"},
		{"maxmemory_policy", "volatile-ttl", levelOK, ""},
		{"connected_slaves", "0", levelWarning, "replica"},
		{"aof_enabled", "0", levelWarning, "appendonly"},
	} {
		fields := map[string]string{}
		for name, value := range good {
			fields[name] = value
		}
		fields[tt.field] = tt.value
		d := &doctor{}
		d.redisPolicy(fields)
		if last := worst(d.findings); last.Level != tt.level || !strings.Contains(last.Cure, tt.cure) {
			t.Errorf("%s=%s: %+v, want the level %s and a cure with %q", tt.field, tt.value, d.findings, tt.level, tt.cure)
		}
	}
}

func worst(findings []finding) finding {
	order := []string{levelOK, levelWarning, levelError}
	return slices.MaxFunc(findings, func(x, y finding) int { return slices.Index(order, x.Level) - slices.Index(order, y.Level) })
}
