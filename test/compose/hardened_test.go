package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// A container has no capabilities and cannot gain any. Its root file system is read-only, unless
// the image writes to it at each start. Its user is not root.
func TestContainersAreHardened(t *testing.T) {
	p := testProject(t)
	unprivileged := []string{"apache/kafka", "prom/prometheus", "grafana/grafana"} // images whose default user is not root
	writable := append(append(servicesNamed(p, "cassandra-"), servicesNamed(p, "kafka-")...), "credentials")
	for name, s := range p.Services {
		if name == "tests" { // This service installs packages.
			continue
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.Privileged {
			t.Errorf("%s drops the capabilities %v and adds %v, want ALL dropped and none added; privileged: %v", name, s.CapDrop, s.CapAdd, s.Privileged)
		}
		if !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s has the security options %v, want no-new-privileges", name, s.SecurityOpt)
		}
		if s.ReadOnly == slices.Contains(writable, name) {
			t.Errorf("%s: read_only is %v, want %v", name, s.ReadOnly, !s.ReadOnly)
		}
		image, _, _ := strings.Cut(s.Image, ":")
		if s.Build == nil && (s.User == "" || s.User == "root" || s.User == "0") && !slices.Contains(unprivileged, image) {
			t.Errorf("%s runs as %q, want a user other than root", name, s.User)
		}
	}
}

// Docker Compose loads the project only if .env has all passwords.
func TestPasswordsAreRequired(t *testing.T) {
	for _, env := range [][]string{nil, dotEnv[:2], dotEnv[1:], {dotEnv[0], dotEnv[2]}} {
		if _, err := read(t, env, "docker-compose.yml"); err == nil || !strings.Contains(err.Error(), "write .env") {
			t.Errorf("load of docker-compose.yml with the variables %v: error %v, want an error that says to write .env", env, err)
		}
	}
}

// brokerJAAS is the login configuration of each listener. With user_leaderboard, the broker checks
// the password of clients. With username and password, the broker logs in to the other brokers.
const brokerJAAS = `org.apache.kafka.common.security.plain.PlainLoginModule required username="leaderboard" password="` + kafkaPassword + `" user_leaderboard="` + kafkaPassword + `";`

// properties returns the settings of a broker. The image makes them from variables: KAFKA_NODE_ID
// sets node.id.
func properties(s types.ServiceConfig) map[string]string {
	found := map[string]string{}
	for name, value := range s.Environment {
		if key, ok := strings.CutPrefix(name, "KAFKA_"); ok && key != "HEAP_OPTS" {
			found[strings.ReplaceAll(strings.ToLower(key), "_", ".")] = *value
		}
	}
	return found
}

const authenticator = "-Dcassandra.settings.authenticator=PasswordAuthenticator"

// Servers require passwords in docker-compose.yml, and none in docker-compose.tests.yml.
// TestRedisRequiresThePassword tests Redis.
func TestServersRequirePasswords(t *testing.T) {
	p, tests := project(t), testProject(t)
	for _, name := range servicesNamed(p, "cassandra-") {
		if command := p.Services[name].Command; !slices.Contains(command, authenticator) {
			t.Errorf("%s runs %q, want %s", name, command, authenticator)
		}
		if command := tests.Services[name].Command; slices.Contains(command, authenticator) {
			t.Errorf("for tests, %s runs %q, want no passwords", name, command)
		}
	}
	for _, name := range servicesNamed(p, "kafka-") {
		broker := properties(p.Services[name])
		for listener := range strings.SplitSeq(broker["listeners"], ",") {
			listener, _, _ = strings.Cut(listener, "://")
			if jaas := broker["listener.name."+strings.ToLower(listener)+".plain.sasl.jaas.config"]; !slices.Contains(strings.Split(broker["listener.security.protocol.map"], ","), listener+":SASL_PLAINTEXT") || jaas != brokerJAAS {
				t.Errorf("%s: listener %s has the protocols %s and the configuration %q, want SASL_PLAINTEXT and %q", name, listener, broker["listener.security.protocol.map"], jaas, brokerJAAS)
			}
			if protocols := properties(tests.Services[name])["listener.security.protocol.map"]; !slices.Contains(strings.Split(protocols, ","), listener+":PLAINTEXT") {
				t.Errorf("for tests, %s has the protocols %s, want %s:PLAINTEXT", name, protocols, listener)
			}
		}
		for _, key := range []string{"sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol"} {
			if broker[key] != "PLAIN" {
				t.Errorf("%s: %s is %q, want PLAIN", name, key, broker[key])
			}
		}
	}
	if command := tests.Services["redis"].Command; strings.Contains(strings.Join(command, " "), "--requirepass") {
		t.Errorf("for tests, Redis runs %q, want no password", command)
	}
	for _, name := range []string{"schema", "topics", "api", "consumer"} {
		c := settings(t, p, name)
		if c.Cassandra.Username != "leaderboard" || string(c.Cassandra.Password) != cassandraPassword || string(c.Redis.Password) != redisPassword || string(c.Redis.SentinelPassword) != redisPassword ||
			c.Kafka.Username != "leaderboard" || string(c.Kafka.Password) != kafkaPassword || c.Kafka.Mechanism != "PLAIN" {
			t.Errorf("%s does not log in as leaderboard with the passwords of .env and Kafka's mechanism PLAIN", name)
		}
	}
	if _, ok := p.Services["schema"].DependsOn["credentials"]; !ok {
		t.Error("schema does not depend on credentials, which creates the role leaderboard")
	}
}

// The job creates the role leaderboard, and disables Cassandra's default role. A second run cannot
// log in with the default role, and succeeds too.
func TestCredentialsJob(t *testing.T) {
	s := project(t).Services["credentials"]
	dir := t.TempDir()
	// The fake cqlsh logs its arguments. SETUP is the exit status of the statements. NEW and
	// DEFAULT are the exit statuses of later logins with the new role and the default role.
	fake := `#!/bin/sh
printf '%s\n' "$*" >> "$LOG"
case "$*" in *ALTER*) exit "$SETUP";; *"-u leaderboard"*) exit "$NEW";; *"-u cassandra"*) exit "$DEFAULT";; esac
exit 9`
	if err := os.WriteFile(filepath.Join(dir, "cqlsh"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		name, results string
		ok            bool
	}{
		{"first run", "SETUP=0 NEW=0 DEFAULT=1", true},
		{"second run", "SETUP=1 NEW=0 DEFAULT=1", true},
		{"the new role is missing", "SETUP=1 NEW=1 DEFAULT=1", false},
		{"the default role is enabled", "SETUP=1 NEW=0 DEFAULT=0", false},
	} {
		log := filepath.Join(dir, fmt.Sprint("log", i))
		cmd := exec.Command(s.Command[0], s.Command[1:]...)
		cmd.Env = append(environ(&s), "PATH="+dir+":"+os.Getenv("PATH"), "LOG="+log)
		cmd.Env = append(cmd.Env, strings.Fields(tt.results)...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != tt.ok {
			t.Errorf("%s: error of the job = %v, want success = %v; output: %s", tt.name, err, tt.ok, out)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"cassandra-1 -u cassandra -p cassandra -e ",
			"CREATE ROLE IF NOT EXISTS leaderboard WITH PASSWORD = '" + cassandraPassword + "' AND LOGIN = true;",
			"ALTER ROLE cassandra WITH PASSWORD = '" + cassandraPassword + "' AND LOGIN = false;",
			"cassandra-1 -u leaderboard -p " + cassandraPassword + " -e ",
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the job runs cqlsh with\n%s\nwant %s", text, want)
			}
		}
	}
}

// The test runs the commands and health checks of Redis, its replica and Sentinel with other ports. The
// servers require the password. If the master dies, Sentinel makes the replica the master, and
// the former master returns as its replica.
func TestRedisFailsOver(t *testing.T) {
	needs.Programs(t, "redis-server", "redis-cli")
	p := project(t)
	ports := freePorts(t, 3)
	master, replica, sentinel := ports+"1", ports+"2", ports+"3"
	dir := t.TempDir()
	local := func(port, text string) string {
		return strings.NewReplacer("sentinel monitor leaderboard redis 6379", "sentinel monitor leaderboard localhost "+master, "port 26379", "port "+port,
			"redis-cli -p 26379", "redis-cli -p "+port, "redis-cli ping", "redis-cli -p "+port+" ping", "grep -x 6379", "grep -x "+master,
			"redis-sentinel /data/sentinel.conf", "redis-server "+dir+"/sentinel.conf --sentinel", "/data/", dir+"/").Replace(text)
	}
	check := func(name, port string, env ...string) error {
		s := p.Services[name]
		cmd := exec.Command("sh", "-c", local(port, s.HealthCheck.Test[1]))
		cmd.Env = append(env, "PATH="+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	start := func(name, port string) *exec.Cmd {
		t.Helper()
		s := p.Services[name]
		var args []string
		for _, arg := range s.Command {
			switch arg {
			case "redis", "redis-replica":
				arg = "localhost"
			case "6379":
				arg = master
			}
			args = append(args, local(port, arg))
		}
		if name != "redis-sentinel" {
			args = append(args, "--port", port, "--bind", "127.0.0.1", "--dir", dir)
		}
		server := exec.Command(args[0], args[1:]...)
		server.Env = append(environ(&s), "PATH="+os.Getenv("PATH"))
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
		eventually(t, func() error { return check(name, port, environ(&s)...) })
		if err := check(name, port); err == nil {
			t.Errorf("without the password, the health check of %s passes, want a failure", name)
		}
		return server
	}
	cli := func(port string, args ...string) string {
		cmd := exec.Command("redis-cli", append([]string{"-p", port}, args...)...)
		cmd.Env = []string{"REDISCLI_AUTH=" + redisPassword, "PATH=" + os.Getenv("PATH")}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	contains := func(want, port string, args ...string) func() error {
		return func() error {
			if got := cli(port, args...); !strings.Contains(got, want) {
				return fmt.Errorf("%v answers %q, want %q", args, got, want)
			}
			return nil
		}
	}
	killed := start("redis", master)
	start("redis-replica", replica)
	start("redis-sentinel", sentinel)
	if got := cli(master, "config", "get", "maxmemory*"); !strings.Contains(got, "268435456") || !strings.Contains(got, "noeviction") {
		t.Errorf("Redis has the limits %q, want 256 MiB and noeviction", got)
	}
	eventually(t, contains("port="+replica+",state=online", master, "info", "replication"))
	eventually(t, contains("slaves=1", sentinel, "info", "sentinel"))
	_, _ = killed.Process.Kill(), killed.Wait()
	eventually(t, contains(replica, sentinel, "sentinel", "get-master-addr-by-name", "leaderboard"))
	eventually(t, contains("role:master", replica, "info", "replication"))
	start("redis", master)
	eventually(t, contains("master_link_status:up", master, "info", "replication"))
}

// eventually calls f until it returns nil, for a minute at most.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	err := f()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = f() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The command at the top of docker-compose.yml keeps the passwords of an earlier run, even if .env
// does not end with a newline.
func TestPasswordsAreWritten(t *testing.T) {
	needs.Programs(t, "openssl")
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^#   (\(umask .*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("docker-compose.yml has no command that writes passwords")
	}
	dir := t.TempDir()
	dotEnv := filepath.Join(dir, ".env")
	if err := os.WriteFile(dotEnv, []byte("REDIS_PASSWORD=kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run(t, dir, "bash", "-c", string(line[1]))
	}
	got, err := os.ReadFile(dotEnv)
	if err != nil || !regexp.MustCompile(`\AREDIS_PASSWORD=kept\nCASSANDRA_PASSWORD=[0-9a-f]{48}\nKAFKA_PASSWORD=[0-9a-f]{48}\n\z`).Match(got) {
		t.Errorf(".env has %q, error %v; want the kept password and two new passwords", got, err)
	}
}
