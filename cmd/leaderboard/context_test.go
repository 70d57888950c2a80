package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// user is a person with a home folder, and therefore with contexts.
type user struct {
	home    string
	environ []string
}

func newUser(t *testing.T) *user {
	t.Helper()
	home := t.TempDir()
	return &user{home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}}
}

func (u *user) do(t *testing.T, args ...string) commandResult {
	t.Helper()
	return command(t, "", u.environ, args...)
}

func (u *user) ok(t *testing.T, args ...string) commandResult {
	t.Helper()
	r := u.do(t, args...)
	if r.code != exitOK {
		t.Fatalf("%v exited with %d, want 0: %s", args, r.code, r.stderr)
	}
	return r
}

func (u *user) file(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(u.home, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const contextKey = "an-admin-key-of-a-context"

func TestContexts(t *testing.T) {
	s := startServer(t, filepath.Join(t.TempDir(), "data"), []string{"LEADERBOARD_ADMIN_KEY=" + contextKey})
	u := newUser(t)
	checkContains(t, u.ok(t, "context", "list").stdout, "no contexts", "context add")
	keyFile := u.file(t, "key", contextKey+"\n", 0o600)
	checkContains(t, u.ok(t, "context", "add", "prod", "--server", s.grpc, "--key-file", keyFile).stdout, "added the context prod, which is the current one")
	path := filepath.Join(u.home, ".config", "leaderboard", "contexts.yaml")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of contexts has the mode %v, %v; want 0600", info.Mode(), err)
	}
	u.ok(t, "submit", "ada", "--points", "3", "--match", "m")
	checkContains(t, u.ok(t, "top").stdout, "ada")

	command := "printf '%s\\n' \"$SECRET\""
	u.environ = append(u.environ, "SECRET="+contextKey)
	checkContains(t, u.ok(t, "context", "add", "manager", "--server", s.grpc, "--key-command", command).stdout, "context use manager")
	checkContains(t, u.ok(t, "top", "--context", "manager").stdout, "ada")
	u.ok(t, "context", "use", "manager")
	checkContains(t, u.ok(t, "top").stdout, "ada")
	list := u.ok(t, "context", "list")
	checkContains(t, list.stdout, "▶  manager", "from a command", keyFile, s.grpc)
	if got := u.ok(t, "context", "list", "--jq", ".[] | select(.current) | .name").stdout; got != "manager\n" {
		t.Errorf("the current context is %q, want manager", got)
	}
	checkContains(t, u.ok(t, "__complete", "top", "--context", "").stdout, "manager\t", "prod\t")
	checkContains(t, u.ok(t, "__complete", "context", "use", "p").stdout, "prod\t")
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text)+list.stdout+list.stderr, contextKey) {
		t.Errorf("the key is in the file of contexts or in their list (%v):\n%s\n%s", err, text, list.stdout)
	}

	checkContains(t, u.ok(t, "context", "remove", "manager").stdout, "no context is current now")
	u.do(t, "top", "--server", s.grpc).mustFail(t, exitFailure, []string{"valid key", "context"}, []string{"top"})
	u.ok(t, "context", "use", "prod")
	u.ok(t, "context", "add", "prod", "--server", s.grpc, "--key-file", keyFile, "--replace")
}

// A server that is named otherwise does not get the key of the current context.
func TestFlagsAndEnvironmentPrevailOverTheContext(t *testing.T) {
	s := startServer(t, filepath.Join(t.TempDir(), "data"), []string{"LEADERBOARD_ADMIN_KEY=" + contextKey})
	u := newUser(t)
	u.ok(t, "context", "add", "closed", "--server", "127.0.0.1:1", "--key-file", u.file(t, "key", contextKey, 0o600))
	u.ok(t, "context", "add", "wrong", "--server", s.grpc, "--key-file", u.file(t, "wrong", "lbk_wrong", 0o600))
	unauthenticated := []string{"valid key"}
	u.do(t, "top").mustFail(t, exitFailure, []string{"127.0.0.1:1"}, nil)
	u.do(t, "top", "--server", s.grpc).mustFail(t, exitFailure, unauthenticated, nil)
	u.do(t, "top", "--context", "wrong").mustFail(t, exitFailure, unauthenticated, nil)
	u.ok(t, "top", "--context", "closed", "--server", s.grpc)
	u.ok(t, "top", "--context", "wrong", "--key", contextKey)
	base := u.environ
	for _, tt := range []struct {
		environ []string
		want    int
	}{
		{[]string{"LEADERBOARD_SERVER=" + s.grpc}, exitFailure},
		{[]string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_CONTEXT=closed"}, exitOK},
		{[]string{"LEADERBOARD_CONTEXT=wrong", "LEADERBOARD_KEY=" + contextKey}, exitOK},
		{[]string{"LEADERBOARD_CONTEXT=nope"}, exitUsage},
	} {
		u.environ = append(append([]string{}, base...), tt.environ...)
		if r := u.do(t, "top"); r.code != tt.want {
			t.Errorf("with %q, top exits with %d, want %d: %s", tt.environ, r.code, tt.want, r.stderr)
		}
	}
}

func TestBadContexts(t *testing.T) {
	u := newUser(t)
	key := u.file(t, "key", contextKey, 0o600)
	u.ok(t, "context", "add", "a", "--server", "127.0.0.1:1", "--key-file", key)
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"context", []string{"needs a command: add, list, remove, use"}},
		{"context add b", []string{"--server is missing"}},
		{"context add", []string{"NAME is missing"}},
		{"context add b --server http://x", []string{"host:port"}},
		{"context add b --server x:1 --key-file k --key-command c", []string{"cannot be combined"}},
		{"context add b --server x:1 --key-file /no/such", []string{"/no/such"}},
		{"context add b --server x:1 --ca /no/such", []string{"--ca: open /no/such"}},
		{"context add b --server x:1 --tls --plaintext", []string{"--plaintext cannot be combined"}},
		{"context add a --server x:1", []string{"exists", "--replace"}},
		{"context use nope", []string{`no context "nope"`, "the contexts are a"}},
		{"context remove nope", []string{`no context "nope"`}},
		{"top --context nope", []string{`no context "nope"`, "the contexts are a"}},
		{"top --context=", []string{"--context is empty"}},
	} {
		args := strings.Fields(tt.args)
		u.do(t, args...).mustFail(t, exitUsage, tt.want, args)
	}
	newUser(t).do(t, "top", "--context", "x").mustFail(t, exitUsage, []string{"leaderboard context add x"}, nil)
	command(t, "", nil, "context", "add", "x", "--server", "x:1").mustFail(t, exitFailure, []string{"HOME"}, nil)

	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	u.do(t, "top").mustFail(t, exitFailure, []string{"warning: other users of this machine may read " + key + " (0644)", "chmod 600", "127.0.0.1:1"}, nil)

	path := filepath.Join(u.home, ".config", "leaderboard", "contexts.yaml")
	for content, want := range map[string]string{
		"contexts: {a: {sever: x}}":                "field sever not found",
		"contexts: [":                              "contexts.yaml",
		"contexts: {a: }\ncurrent: a":              `context "a" has no server`,
		"current: b\ncontexts: {a: {server: x:1}}": `no context "b"`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		u.do(t, "top").mustFail(t, exitUsage, []string{want}, []string{"top with", content})
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{"exit 3": "exit status 3", "true": "not a single line", "echo a; echo b": "not a single line"} {
		u.ok(t, "context", "add", "bad", "--server", "127.0.0.1:1", "--key-command", line, "--replace")
		u.do(t, "top", "--context", "bad").mustFail(t, exitFailure, []string{"context bad", want}, []string{line})
	}
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	u.do(t, "top", "--context", "bad").mustFail(t, exitUsage, []string{path + " (0660)", "chmod 600"}, nil)
}
