package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// childEnv makes the test binary behave as the command: tests that kill a
// server start it as a process.
const childEnv = "LEADERBOARD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		go func() { // its parent holds the other end, as long as it lives
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(exitFailure)
		}()
		main()
	}
	os.Exit(m.Run())
}

// waitLimit is how long a test waits for what should happen at once.
const waitLimit = 30 * time.Second

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitLimit); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", waitLimit, what)
		}
	}
}

// output is a buffer that may be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// logged returns the first line of a JSON log with a message.
func logged(log, message string) (map[string]any, bool) {
	for line := range strings.Lines(log) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			return entry, true
		}
	}
	return nil, false
}

// server is the command serve, run in this process on free ports.
type server struct {
	http, grpc     string
	stdout, stderr *output
	stop           func() int // and returns the exit code
	metrics        *prometheus.Registry
}

// startServer serves a folder until the test ends or stop is called.
func startServer(t *testing.T, data string, environ []string, args ...string) *server {
	t.Helper()
	s := &server{stdout: &output{}, stderr: &output{}}
	ctx, cancel := context.WithCancel(context.Background())
	exited := make(chan int, 1)
	args = append([]string{"serve", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)
	go func() {
		exited <- run(ctx, &world{stdin: strings.NewReader(""), stdout: s.stdout, stderr: s.stderr, environ: environ}, args)
	}()
	s.stop = sync.OnceValue(func() int { cancel(); return <-exited })
	t.Cleanup(func() { s.stop() })
	eventually(t, "the server is ready", func() bool {
		select {
		case code := <-exited:
			exited <- code
			t.Fatalf("serve exited with %d: %s", code, s.stderr)
		default:
		}
		_, ready := logged(s.stderr.String(), "ready")
		return ready
	})
	entry, _ := logged(s.stderr.String(), "listening")
	s.http, s.grpc = entry["http"].(string), entry["grpc"].(string)
	return s
}

// startInsecure serves a new folder without keys.
func startInsecure(t *testing.T) *server {
	t.Helper()
	return startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--insecure")
}

// result of a command.
type commandResult struct {
	stdout, stderr string
	code           int
}

// do runs a command against s.
func (s *server) do(t *testing.T, args ...string) commandResult {
	t.Helper()
	return command(t, "", []string{"LEADERBOARD_SERVER=" + s.grpc}, args...)
}

// ok runs a command that must succeed, and returns its output.
func (s *server) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := s.do(t, args...)
	if r.code != exitOK {
		t.Fatalf("%v exited with %d: %s", args, r.code, r.stderr)
	}
	return r.stdout
}

// fails runs a command that must fail with a code, and one line that says each
// of want.
func (s *server) fails(t *testing.T, code int, want []string, args ...string) {
	t.Helper()
	s.do(t, args...).mustFail(t, code, want, args)
}

func (r commandResult) mustFail(t *testing.T, code int, want []string, args []string) {
	t.Helper()
	if r.code != code {
		t.Errorf("%v exited with %d, want %d: %s", args, r.code, code, r.stderr)
	}
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "leaderboard: ") || strings.Contains(last, "rpc error") {
		t.Errorf("%v ends in %q, want a line that begins with leaderboard:", args, last)
	}
	for _, w := range want {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("%v says %q, nothing of %q", args, r.stderr, w)
		}
	}
}

func command(t *testing.T, stdin string, environ []string, args ...string) commandResult {
	t.Helper()
	var stdout, stderr output
	code := run(t.Context(), &world{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, environ: environ}, args)
	return commandResult{stdout.String(), stderr.String(), code}
}

// commands calls each for every command but cobra's own.
func commands(cmd *cobra.Command, each func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		each(c)
		commands(c, each)
	}
}

func testWorld() *world {
	return &world{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	n := 0
	commands(newRoot(testWorld()), func(c *cobra.Command) {
		n++
		path := strings.Fields(c.CommandPath())[1:]
		r := command(t, "", nil, append(slices.Clone(path), "--help")...)
		if r.code != exitOK || !strings.Contains(r.stdout, "Examples:\n  leaderboard") || !strings.Contains(r.stdout, "Usage:") {
			t.Errorf("%s --help exited with %d and shows no example:\n%s", c.CommandPath(), r.code, r.stdout)
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s has the short help %q", c.CommandPath(), c.Short)
		}
		for line := range strings.Lines(c.Example) {
			if args := strings.Fields(line); args[0] == "leaderboard" {
				if found, _, err := c.Root().Find(args[1:]); err != nil || found == c.Root() {
					t.Errorf("%s has the example %q, which is no command", c.CommandPath(), line)
				}
			}
		}
		command(t, "", nil, append(slices.Clone(path), "--no-such-flag")...).
			mustFail(t, exitUsage, []string{"no-such-flag", "--help"}, append(slices.Clone(path), "--no-such-flag"))
	})
	if n < 25 {
		t.Errorf("only %d commands", n)
	}
}

func TestWrongUsageExitsWith2(t *testing.T) {
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"tpo"}, []string{`no command "tpo"`, "did you mean top?"}},
		{[]string{"board"}, []string{"needs a command: create, delete, list, show, update"}},
		{[]string{"board", "lits"}, []string{"did you mean list?"}},
		{[]string{"rank"}, []string{"USER is missing"}},
		{[]string{"rank", "a", "b"}, []string{`"b" is one argument too many`}},
		{[]string{"top", "--limit", "many"}, []string{"invalid argument", "leaderboard top --help"}},
		{[]string{"top", "--server", "nowhere"}, []string{`"nowhere" is not of the form host:port`}},
		{[]string{"top", "--server", "http://localhost:8080"}, []string{"host:port"}},
		{[]string{"top", "--plaintext", "--tls"}, []string{"--plaintext does not go with"}},
		{[]string{"top", "--cert", "x"}, []string{"--cert and --cert-key go together"}},
		{[]string{"top", "--ca", "/no/such"}, []string{"--ca: open /no/such"}},
		{[]string{"top", "--timeout", "-1s"}, []string{"--timeout -1s is not positive"}},
		{[]string{"submit", "ada"}, []string{"give either --points", "or --score"}},
		{[]string{"submit", "ada", "--points", "1", "--score", "1"}, []string{"give either --points"}},
		{[]string{"submit", "ada", "--points", "1", "--achieved-at", "now"}, []string{"--achieved-at", "is not a time"}},
		{[]string{"submit", "ada", "--points", "1", "--metadata", "[]"}, []string{"is not a JSON object"}},
		{[]string{"submit", "ada", "--points", "1", "--metadata", `{"a":[9007199254740993]}`}, []string{"a[0]", "would come back as another"}},
		{[]string{"submit", "ada", "--score", "12.5"}, []string{"--score", "whole numbers in the board's smallest unit"}},
		{[]string{"submit", "ada", "--points", "many"}, []string{"--points", "whole numbers in the board's smallest unit"}},
		{[]string{"board", "create", "b", "--min", "0.5"}, []string{"--min", "whole numbers in the board's smallest unit"}},
		{[]string{"board", "create"}, []string{"BOARD is missing"}},
		{[]string{"board", "create", "b", "--policy", "median"}, []string{`"median" is none of best, sum, latest, decay`}},
		{[]string{"board", "create", "b", "--order", "asc"}, []string{`"asc" is none of higher-first, lower-first`}},
		{[]string{"board", "create", "b", "--window", "2026"}, []string{"is not of the form id=start/end"}},
		{[]string{"board", "create", "-f", "x", "--title", "y"}, []string{"--file and --title do not go together"}},
		{[]string{"board", "update", "b"}, []string{"nothing to change"}},
		{[]string{"board", "delete", "b"}, []string{"--yes"}},
		{[]string{"erase", "ada"}, []string{"--yes"}},
		{[]string{"key", "create"}, []string{"--name is missing"}},
		{[]string{"key", "create", "--name", "x"}, []string{"--scope is missing"}},
		{[]string{"key", "create", "--name", "x", "--scope", "read", "--expires-in", "-1h"}, []string{"in the past"}},
		{[]string{"export", "everything"}, []string{"neither entries nor results"}},
		{[]string{"export", "results", "--division", "a:b"}, []string{"no --division"}},
		{[]string{"export", "entries", "--format", "xml"}, []string{"none of csv, ndjson"}},
		{[]string{"demo", "--speed", "-1"}, []string{"--speed -1"}},
		{[]string{"serve", "--insecure", "--http", "0.0.0.0:0"}, []string{"loopback", "--insecure"}},
		{[]string{"serve", "--log-level", "loud", "--http", "x"}, []string{"log.level (--log-level)", "http (--http)", "mend these faults"}},
	}
	for _, tt := range tests {
		command(t, "", nil, tt.args...).mustFail(t, exitUsage, tt.want, tt.args)
	}
}

func TestConfigShowsValuesAndSourcesAndHidesSecrets(t *testing.T) {
	const secret = "a-very-secret-admin-key"
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("log.level: warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"LEADERBOARD_ADMIN_KEY=" + secret, "LEADERBOARD_CONFIG=" + file}
	for _, args := range [][]string{{"config", "--grpc", "127.0.0.1:7"}, {"config", "--grpc", "127.0.0.1:7", "--json"}} {
		r := command(t, "", environ, args...)
		if r.code != exitOK {
			t.Fatalf("%v: %s", args, r.stderr)
		}
		for _, want := range []string{"[hidden]", "LEADERBOARD_ADMIN_KEY", "127.0.0.1:7", "--grpc", "warn", file, "default"} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("%v shows nothing of %q:\n%s", args, want, r.stdout)
			}
		}
		if strings.Contains(r.stdout+r.stderr, secret) {
			t.Errorf("%v shows the secret", args)
		}
	}
	command(t, "", []string{"LEADERBOARD_HTPP=x"}, "config").
		mustFail(t, exitUsage, []string{"LEADERBOARD_HTPP", "did you mean LEADERBOARD_HTTP?", "docs/configuration.md"}, nil)
}

func TestVersion(t *testing.T) {
	if r := command(t, "", nil, "version"); r.code != exitOK || !strings.HasPrefix(r.stdout, "leaderboard ") {
		t.Errorf("version = %+v", r)
	}
	var v struct{ Version, Go string }
	if err := json.Unmarshal([]byte(command(t, "", nil, "version", "--json").stdout), &v); err != nil || v.Version == "" || v.Go == "" {
		t.Errorf("version --json = %+v, %v", v, err)
	}
}

func TestNoServerSaysHowToStartOne(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := command(t, "", []string{"LEADERBOARD_SERVER=" + l.Addr().String()}, "top")
	r.mustFail(t, exitFailure, []string{"is it running? start it with leaderboard serve"}, []string{"top"})
}
