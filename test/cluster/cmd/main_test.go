package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("the servers are processes of their own")

// If envCommand is set, the test binary runs main. The process that upDetached starts inherits
// the variable.
const envCommand = "CLUSTER_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(envCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, stderr = exec.CommandContext(t.Context(), self, args...), new(bytes.Buffer)
	cmd.Env, cmd.Stderr = append(os.Environ(), envCommand+"=1"), stderr
	return cmd, stderr
}

func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	cmd, stderr := command(t, args...)
	out, err := cmd.Output()
	t.Logf("%v: %v\n%s", args, err, stderr)
	return string(out), err
}

func redisAt(t *testing.T, exports string) *redis.Client {
	t.Helper()
	addr, ok := strings.CutPrefix(strings.TrimSpace(exports), "export "+cluster.EnvRedis+"=")
	if !ok {
		t.Fatalf("up printed %q, want one export of %s", exports, cluster.EnvRedis)
	}
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

func redisOnly(t *testing.T) []string {
	return []string{"-cassandra=0", "-kafka=0", "-redis-cluster=false", "-state", filepath.Join(t.TempDir(), "state.json")}
}

func TestUpInTheBackgroundRunsUntilDown(t *testing.T) {
	needs.Servers(t)
	flags := redisOnly(t)
	up := append([]string{"up", "-d"}, flags...)
	down := append([]string{"down"}, flags...)

	first, err := run(t, up...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // The test may fail before it calls down.
		if err := dispatch(context.Background(), down, nil, io.Discard); err != nil {
			t.Error(err)
		}
	})
	server := redisAt(t, first)
	if err := server.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	second, err := run(t, up...)
	if err != nil || second != first {
		t.Errorf("output of a second up = %q, %v, want the output of the first, %q", second, err, first)
	}
	if _, err := run(t, down...); err != nil {
		t.Error(err)
	}
	if err := server.Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("ping after down = %v, want ECONNREFUSED", err)
	}
	if _, err := run(t, down...); err != nil {
		t.Errorf("down without servers = %v, want nil", err)
	}
}

func TestUpInTheForegroundStopsOnInterrupt(t *testing.T) {
	needs.Servers(t)
	cmd, stderr := command(t, append([]string{"up"}, redisOnly(t)...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("up printed no line: %v, %v\n%s", err, cmd.Wait(), stderr)
	}
	server := redisAt(t, line)
	if err := server.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("up after an interrupt = %v, want nil\n%s", err, stderr)
	}
	if err := server.Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("ping after the interrupt = %v, want ECONNREFUSED", err)
	}
}

func TestRunExitsWithTheStatusOfItsCommand(t *testing.T) {
	needs.Servers(t)
	script := `test "$` + cluster.EnvRedis + `" && redis-cli -p "${` + cluster.EnvRedis + `##*:}" ping; exit 7`
	out, err := run(t, append(append([]string{"run"}, redisOnly(t)...), "--", "sh", "-c", script)...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || out != "PONG\n" {
		t.Errorf("run = %q, %v, want PONG and exit status 7", out, err)
	}
}

func TestUpReportsTheErrorOfTheBackgroundProcess(t *testing.T) {
	var stderr bytes.Buffer
	t.Setenv(envCommand, "1")
	args := append(append([]string{"up", "-d"}, redisOnly(t)...), "-redis=false")
	err := dispatch(t.Context(), args, nil, &stderr)
	if err == nil || !strings.Contains(err.Error(), "no servers to start") {
		t.Errorf("up of no servers = %v, want an error with \"no servers to start\"", err)
	}
}

// A failed command under "run" prints its own error. If a tool fails while servers start, main must
// print the error.
func TestRunReportsTheErrorOfATool(t *testing.T) {
	bin := t.TempDir()
	for name, script := range map[string]string{
		"java": `echo 'openjdk version "17.0.1"'`,
		"mvn":  `echo could not transfer artifact; exit 3`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd, stderr := command(t, "run", "-cassandra=0", "-redis=false", "-redis-cluster=false", "--", "true")
	cmd.Env = append(cmd.Env, "PATH="+bin, "JAVA_HOME=", "LEADERBOARD_TEST_CACHE="+t.TempDir())
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr.String(), "could not transfer artifact") {
		t.Errorf("run with a failing mvn = %v, want exit status 1 and the output of mvn\n%s", err, stderr)
	}
}

func TestUnknownOrIncompleteCommandsFail(t *testing.T) {
	for _, args := range [][]string{{}, {"fly"}, {"up", "-nodes", "3"}, {"run"}, {"run", "--"}} {
		var stderr bytes.Buffer
		if err := dispatch(context.Background(), args, nil, &stderr); err == nil {
			t.Errorf("cluster %v = nil, want an error", args)
		}
	}
}

func TestFailedSecretsAreRemoved(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	full := errors.New("disk full")
	_, _, err := servers{secure: true}.secrets(func(dir string) (*cluster.Secrets, error) {
		return nil, errors.Join(full, os.WriteFile(filepath.Join(dir, "ca.key"), nil, 0o600))
	})
	if !errors.Is(err, full) {
		t.Errorf("secrets returns %v, want the error of create", err)
	}
	files, err := os.ReadDir(temporary)
	if err != nil || len(files) > 0 {
		t.Errorf("the folder of temporary files has %v, error %v; want an empty folder", files, err)
	}
}
