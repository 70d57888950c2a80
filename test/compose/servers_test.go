package compose

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// The test runs the script of the Redis Cluster service with other ports.
func TestRedisClusterScriptStartsTheClusterOfTheTests(t *testing.T) {
	needs.Programs(t, "redis-server", "redis-cli", "hostname")
	p := testProject(t)
	s := p.Services["redis-cluster"]
	const scriptPrefix, count = "700", 6 // the script uses the ports 7001 to 7006
	prefix := freePorts(t, count)
	withPrefix := func(text string) string { return strings.ReplaceAll(text, scriptPrefix, prefix) }
	args := make([]string, len(s.Command))
	for i, arg := range s.Command {
		args[i] = withPrefix(arg)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that one signal kills its servers too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	})
	if s.HealthCheck.Test[0] != "CMD-SHELL" {
		t.Fatalf("the health check is %q, want a CMD-SHELL", s.HealthCheck.Test)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", withPrefix(s.HealthCheck.Test[1])).CombinedOutput()
		if err == nil {
			break
		}
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the script exited, want it to run until the test ends: %v; its output: %s", err, text)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the cluster is not healthy after 5 minutes: %s %s", out, text)
		}
	}
	nodes, err := exec.CommandContext(t.Context(), "redis-cli", "-p", prefix+"1", "cluster", "nodes").Output()
	if err != nil {
		t.Fatal(err)
	}
	for address := range strings.SplitSeq(*p.Services["tests"].Environment["LEADERBOARD_TEST_REDIS_CLUSTER"], ",") {
		if _, port, _ := strings.Cut(address, ":"); !strings.Contains(string(nodes), ":"+withPrefix(port)+"@") {
			t.Errorf("the tests use %s, which is not among the nodes\n%s", address, nodes)
		}
	}
}

// freePorts returns a prefix such that the ports prefix+"1", prefix+"2" and so on, count in all, are
// free. The ports that are higher by 10,000, for the bus of Redis Cluster, are free too.
func freePorts(t *testing.T, count int) string {
	t.Helper()
	for range 1000 {
		base := 10000 + 10*rand.IntN(1000)
		free := true
		for i := range count {
			for _, port := range []int{base + 1 + i, base + 10001 + i} {
				l, err := net.Listen("tcp", fmt.Sprint(":", port))
				if free = free && err == nil; err == nil {
					l.Close()
				}
			}
		}
		if free {
			return fmt.Sprint(base / 10)
		}
	}
	t.Fatalf("found no %d free ports in 1000 attempts", 2*count)
	return ""
}

// Cassandra's commit log has the same settings as in tests without Docker. The image's
// cassandra.yaml sets commitlog_sync_period, which docker-compose.yml resets to 0.
func TestCassandraSyncsAsTested(t *testing.T) {
	tested, err := os.ReadFile(filepath.Join(root, "test/cluster/cassandra/cassandra.yaml.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	// The settings of nodes with CassandraConfig.Quick stand before "else".
	_, durable, found := strings.Cut(string(tested), "{{- else -}}\n")
	if !found {
		t.Fatal("the template has no settings for nodes without CassandraConfig.Quick")
	}
	p := project(t)
	for _, name := range servicesNamed(p, "cassandra-") {
		options := strings.Fields(*p.Services[name].Environment["JVM_EXTRA_OPTS"])
		want := []string{"-Dcassandra.config.allow_system_properties=true", "-Dcassandra.settings.commitlog_sync_period=0ms"}
		for line := range strings.Lines(durable) {
			if setting, value, _ := strings.Cut(strings.TrimSpace(line), ": "); strings.HasPrefix(setting, "commitlog_sync") {
				want = append(want, "-Dcassandra.settings."+setting+"="+value)
			}
		}
		slices.Sort(options)
		slices.Sort(want)
		if len(want) < 4 || !slices.Equal(options, want) {
			t.Errorf("%s has the options %q, want %q", name, options, want)
		}
	}
}
