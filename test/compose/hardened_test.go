package compose

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
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
	if command := tests.Services["redis"].Command; slices.Contains(command, "--requirepass") {
		t.Errorf("for tests, Redis runs %q, want no password", command)
	}
	for _, name := range []string{"schema", "topics", "api", "consumer"} {
		c := settings(t, p, name)
		if c.Cassandra.Username != "leaderboard" || string(c.Cassandra.Password) != cassandraPassword || string(c.Redis.Password) != redisPassword ||
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

// The test runs the command and the health check of the Redis service with another port.
func TestRedisRequiresThePassword(t *testing.T) {
	needPrograms(t, "redis-server", "redis-cli")
	s := project(t).Services["redis"]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	server := exec.Command(s.Command[0], append(s.Command[1:], "--port", port, "--bind", "127.0.0.1")...)
	server.Dir = t.TempDir()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
	check := func(env ...string) (string, error) {
		cmd := exec.Command("sh", "-c", strings.Replace(s.HealthCheck.Test[1], "redis-cli", "redis-cli -p "+port, 1))
		cmd.Env = append(env, "PATH="+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, err := check(environ(&s)...)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("Redis is not healthy after a minute: %v %s", err, out)
		}
	}
	if out, err := check(); err == nil {
		t.Errorf("without the password, the health check passes, want a failure: %s", out)
	}
}

// The command at the top of docker-compose.yml keeps the passwords of an earlier run, even if .env
// does not end with a newline.
func TestPasswordsAreWritten(t *testing.T) {
	needPrograms(t, "openssl")
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
