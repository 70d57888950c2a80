// Long: each test starts a server, and runs commands as a user does.

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

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("most tests run commands one after another")

// childEnv is an environment variable. If it is set, the test binary runs the command leaderboard.
const childEnv = "LEADERBOARD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		go func() { // stdin ends when the parent process ends
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(exitFailure)
		}()
		main()
	}
	os.Exit(m.Run())
}

const waitLimit = 2 * time.Minute

func eventually(t *testing.T, description string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitLimit); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for the condition: %s", waitLimit, description)
		}
	}
}

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

func findLogEntry(log, message string) (map[string]any, bool) {
	for line := range strings.Lines(log) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			return entry, true
		}
	}
	return nil, false
}

// testServer is a server that runs in this process on free ports.
type testServer struct {
	http, grpc     string
	stdout, stderr *output
	stop           func() int // stops the server and returns the exit code
}

func startServer(t *testing.T, data string, environ []string, args ...string) *testServer {
	t.Helper()
	s := &testServer{stdout: &output{}, stderr: &output{}}
	ctx, cancel := context.WithCancel(context.Background())
	exited := make(chan int, 1)
	args = append([]string{"serve", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)
	go func() {
		exited <- run(ctx, &cli.App{Stdin: strings.NewReader(""), Stdout: s.stdout, Stderr: s.stderr, Environ: environ}, args)
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
		_, ready := findLogEntry(s.stderr.String(), "ready")
		return ready
	})
	entry, _ := findLogEntry(s.stderr.String(), "listening")
	s.http, s.grpc = entry["http"].(string), entry["grpc"].(string)
	return s
}

func startInsecure(t *testing.T) *testServer {
	t.Helper()
	return startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--insecure")
}

type commandResult struct {
	stdout, stderr string
	code           int
}

func (s *testServer) do(t *testing.T, args ...string) commandResult {
	t.Helper()
	return command(t, "", []string{"LEADERBOARD_SERVER=" + s.grpc}, args...)
}

func (s *testServer) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := s.do(t, args...)
	if r.code != exitOK {
		t.Fatalf("%v exited with %d, want 0: %s", args, r.code, r.stderr)
	}
	return r.stdout
}

// fails runs a command. The command must exit with code, and write each text in want to stderr.
func (s *testServer) fails(t *testing.T, code int, want []string, args ...string) {
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
		t.Errorf("%v writes the last line %q to stderr, want it to begin with \"leaderboard: \" and not to contain \"rpc error\"", args, last)
	}
	for _, w := range want {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("%v writes %q to stderr, want it to contain %q", args, r.stderr, w)
		}
	}
}

func command(t *testing.T, stdin string, environ []string, args ...string) commandResult {
	t.Helper()
	var stdout, stderr output
	code := run(t.Context(), &cli.App{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Environ: environ}, args)
	return commandResult{stdout.String(), stderr.String(), code}
}

func commands(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		visit(c)
		commands(c, visit)
	}
}

func testApp() *cli.App {
	return &cli.App{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}
}

func TestHelpNamesCompletion(t *testing.T) {
	if r := command(t, "", nil, "--help"); r.code != exitOK || !strings.Contains(r.stdout, "\n  completion ") {
		t.Errorf("--help exited with %d and prints:\n%s\nwant 0 and the command completion", r.code, r.stdout)
	}
	r := command(t, "", nil, "completion", "--help")
	for _, shell := range []string{"bash", "fish", "powershell", "zsh"} {
		if !strings.Contains(r.stdout, "\n  "+shell+" ") {
			t.Errorf("completion --help does not name %s:\n%s", shell, r.stdout)
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	n := 0
	commands(newRoot(testApp()), func(c *cobra.Command) {
		n++
		path := strings.Fields(c.CommandPath())[1:]
		r := command(t, "", nil, append(slices.Clone(path), "--help")...)
		if r.code != exitOK || !strings.Contains(r.stdout, "Examples:\n  leaderboard") || !strings.Contains(r.stdout, "Usage:") {
			t.Errorf("%s --help exited with %d and prints:\n%s\nwant 0, an example and the usage", c.CommandPath(), r.code, r.stdout)
		}
		if strings.Contains(r.stdout, "(default )") {
			t.Errorf("%s --help shows an empty default, want none:\n%s", c.CommandPath(), r.stdout)
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s has the short help %q, want a text without a period at its end", c.CommandPath(), c.Short)
		}
		for line := range strings.Lines(c.Example) {
			if args := strings.Fields(line); args[0] == "leaderboard" {
				if found, _, err := c.Root().Find(args[1:]); err != nil || found == c.Root() {
					t.Errorf("%s has the example %q, which is not a command", c.CommandPath(), line)
				}
			}
		}
		code := exitUsage
		if c.Annotations != nil {
			code = exitFailure
		}
		command(t, "", nil, append(slices.Clone(path), "--no-such-flag")...).
			mustFail(t, code, []string{"no-such-flag", "--help"}, append(slices.Clone(path), "--no-such-flag"))
	})
	if n < 25 {
		t.Errorf("found %d commands, want at least 25", n)
	}
}

// Only the help of serve lists all settings.
func TestHelpListsTheSettingsOfTheCommand(t *testing.T) {
	for name, want := range map[string]string{
		"config": "--config", "health": "--http", "restore": "--data", "schema apply": "--cassandra-hosts", "schema status": "--cassandra-hosts", "topics": "--kafka-brokers",
	} {
		help := command(t, "", nil, append(strings.Fields(name), "--help")...).stdout
		if n := strings.Count(help, "\n"); n > 70 || !strings.Contains(help, want+" ") || strings.Contains(help, "--jwt-algorithm") || !strings.Contains(strings.Join(strings.Fields(help), " "), `other flags of "leaderboard serve"`) {
			t.Errorf("%s --help has %d lines, want at most 70, with %s, without --jwt-algorithm, and with a note on the other flags:\n%s", name, n, want, help)
		}
	}
	if r := command(t, "", nil, "config", "--jwt-algorithm", "none"); r.code != exitUsage || !strings.Contains(r.stderr, "jwt.algorithm") {
		t.Errorf("config does not accept a setting that its help omits: %d, %s", r.code, r.stderr)
	}
}

func TestWrongUsageExitsWith2(t *testing.T) {
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"tpo"}, []string{`no command "tpo"`, "did you mean top?"}},
		{[]string{"board"}, []string{"needs a command: apply, clone, create, delete, diff, list, show, update"}},
		{[]string{"board", "lits"}, []string{"did you mean list?"}},
		{[]string{"rank"}, []string{"USER is missing"}},
		{[]string{"rank", ""}, []string{"USER is empty"}},
		{[]string{"board", "delete", ""}, []string{"BOARD is empty"}},
		{[]string{"ban", "u", "--board", ""}, []string{"--board is empty"}},
		{[]string{"submit", "u", "--points", "1", "-b", ""}, []string{"--board is empty"}},
		{[]string{"submit", "u", "--points", "1", "--match="}, []string{"--match is empty"}},
		{[]string{"retract", "u", "m", "--season", ""}, []string{"--season is empty"}},
		{[]string{"import", "results.csv", "--board", ""}, []string{"--board is empty"}},
		{[]string{"top", "--sesaon", "x"}, []string{"unknown flag: --sesaon", "did you mean --season?"}},
		{[]string{"serve", "--htpp=x"}, []string{"did you mean", "--http?"}},
		{[]string{"rank", "a", "b"}, []string{`unexpected argument "b"`}},
		{[]string{"top", "--limit", "many"}, []string{"invalid argument", "leaderboard top --help"}},
		{[]string{"top", "--server", "nowhere"}, []string{`"nowhere" is not of the form host:port`}},
		{[]string{"top", "--server", "http://localhost:8080"}, []string{"host:port"}},
		{[]string{"top", "--plaintext", "--tls"}, []string{"--plaintext cannot be combined with"}},
		{[]string{"top", "--cert", "x"}, []string{"--cert and --cert-key must be given together"}},
		{[]string{"top", "--ca", "/no/such"}, []string{"--ca: open /no/such"}},
		{[]string{"top", "--timeout", "-1s"}, []string{"--timeout -1s is not positive"}},
		{[]string{"submit", "ada"}, []string{"give either --points", "or --score"}},
		{[]string{"submit", "ada", "--points", "1", "--score", "1"}, []string{"give either --points"}},
		{[]string{"submit", "ada", "--points", "1", "--achieved-at", "now"}, []string{"--achieved-at", "is not a time"}},
		{[]string{"submit", "ada", "--points", "1", "--metadata", "[]"}, []string{"is not a JSON object"}},
		{[]string{"submit", "ada", "--points", "1", "--metadata", `{"a":[9007199254740993]}`}, []string{"a[0]", "cannot be stored exactly"}},
		{[]string{"submit", "ada", "--score", "12.5"}, []string{"--score", "whole numbers in the board's smallest unit"}},
		{[]string{"submit", "ada", "--points", "many"}, []string{"--points", "whole numbers in the board's smallest unit"}},
		{[]string{"board", "create", "b", "--min", "0.5"}, []string{"--min", "whole numbers in the board's smallest unit"}},
		{[]string{"board", "create"}, []string{"BOARD is missing"}},
		{[]string{"board", "create", "b", "--policy", "median"}, []string{`"median" is not one of best, sum, latest, decay, count, first, average, best-k`}},
		{[]string{"board", "create", "b", "--order", "asc"}, []string{`"asc" is not one of higher-first, lower-first`}},
		{[]string{"board", "create", "b", "--window", "2026"}, []string{"is not of the form id=start/end"}},
		{[]string{"board", "create", "-f", "x", "--title", "y"}, []string{"--file and --title cannot be combined"}},
		{[]string{"board", "update", "b"}, []string{"no setting to change"}},
		{[]string{"board", "delete", "b"}, []string{"--yes"}},
		{[]string{"erase", "ada"}, []string{"--yes"}},
		{[]string{"key", "create"}, []string{"--name is missing"}},
		{[]string{"key", "create", "--name", "x"}, []string{"--scope is missing"}},
		{[]string{"key", "create", "--name", "x", "--scope", "read", "--expires-in", "-1h"}, []string{"in the past"}},
		{[]string{"export", "everything"}, []string{"neither entries nor results"}},
		{[]string{"export", "results", "--division", "a:b"}, []string{"no --division"}},
		{[]string{"export", "entries", "--format", "xml"}, []string{"not one of csv, ndjson"}},
		{[]string{"demo", "--speed", "-1"}, []string{"--speed -1"}},
		{[]string{"serve", "--insecure", "--http", "0.0.0.0:0"}, []string{"loopback", "--insecure"}},
		{[]string{"serve", "--log-level", "loud", "--http", "x"}, []string{"log.level (--log-level)", "http (--http)", "correct these settings"}},
	}
	for _, tt := range tests {
		command(t, "", nil, tt.args...).mustFail(t, exitUsage, tt.want, tt.args)
	}
	command(t, "", []string{"LEADERBOARD_CA=/no/such"}, "top").mustFail(t, exitUsage, []string{"LEADERBOARD_CA: open /no/such"}, []string{"top"})
}

func TestConfigShowsSourcesAndHidesSecrets(t *testing.T) {
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
				t.Errorf("%v does not show %q:\n%s", args, want, r.stdout)
			}
		}
		if strings.Contains(r.stdout+r.stderr, secret) {
			t.Errorf("%v prints the secret admin key, want it hidden", args)
		}
	}
	command(t, "", []string{"LEADERBOARD_HTPP=x"}, "config").
		mustFail(t, exitUsage, []string{"LEADERBOARD_HTPP", "did you mean LEADERBOARD_HTTP?", "docs/configuration.md"}, nil)
}

func TestVersion(t *testing.T) {
	if r := command(t, "", nil, "version"); r.code != exitOK || !strings.HasPrefix(r.stdout, "leaderboard ") {
		t.Errorf("version: %+v, want success and a line that begins with leaderboard", r)
	}
	var v struct{ Version, Go string }
	if err := json.Unmarshal([]byte(command(t, "", nil, "version", "--json").stdout), &v); err != nil || v.Version == "" || v.Go == "" {
		t.Errorf("version --json: %+v, %v; want the versions of the program and of Go", v, err)
	}
}

func TestMissingServerErrorSaysHowToStartOne(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := command(t, "", []string{"LEADERBOARD_SERVER=" + l.Addr().String()}, "top")
	r.mustFail(t, exitFailure, []string{"start it with leaderboard serve"}, []string{"top"})
}

func TestVersionIsAFlagToo(t *testing.T) {
	want := command(t, "", nil, "version").stdout
	if got := command(t, "", nil, "--version"); got.code != exitOK || got.stdout != want || want == "" {
		t.Errorf("--version exited with %d and wrote %q, want %q", got.code, got.stdout, want)
	}
}
