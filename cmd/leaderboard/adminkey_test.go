package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func (s *testServer) runWithKey(t *testing.T, key string, args ...string) commandResult {
	t.Helper()
	return command(t, "", []string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_KEY=" + key}, args...)
}

func (s *testServer) firstKey(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(s.stdout.String(), "admin key is in ")
	path, _, ok := strings.Cut(rest, "; ")
	if !ok {
		t.Fatalf("the server printed %q at startup, want the path of the key file", s.stdout)
	}
	return keyIn(t, s, path)
}

func putKeys(t *testing.T, data string, keys ...leaderboard.APIKey) {
	t.Helper()
	backend, err := pebble.Open(data, pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := engine.New(backend)
	for _, k := range keys {
		if err := store.PutAPIKey(t.Context(), k); err != nil {
			t.Error(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// The key in admin_key replaces the keys of earlier values and keys with the same secret.
func TestAdminKeyIsReplaced(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	const first, second, third = "the-first-admin-key-of-mine", "the-second-admin-key-of-mine", "the-third-admin-key-of-mine"
	old := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	putKeys(t, data, auth.KeyFrom(first, "made by hand", []string{"admin"}, old))
	var s *testServer
	for i, key := range []string{first, second, second, third} {
		s = startServer(t, data, []string{"LEADERBOARD_ADMIN_KEY=" + key})
		list := s.runWithKey(t, key, "key", "list")
		if list.code != exitOK || strings.Count(list.stdout, "admin") < 1 || len(strings.Split(strings.TrimSpace(list.stdout), "\n")) != 2 {
			t.Errorf("key list after start %d: %+v, want only the configured key", i+1, list)
		}
		for _, other := range []string{first, second, third} {
			if other != key {
				s.runWithKey(t, other, "top").mustFail(t, exitFailure, []string{"valid key"}, []string{"top", "with", other, "instead", "of", key})
			}
		}
		s.stop()
	}

	// Without the setting, the stored key remains valid. The log has the command to revoke it.
	s = startServer(t, data, nil)
	checkContains(t, s.stderr.String(), "leaderboard key revoke admin-key")
	s.runWithKey(t, third, "key", "revoke", "admin-key").mustFail(t, exitFailure, []string{"last admin key", "--force"}, []string{"key", "revoke"})
	made := s.runWithKey(t, third, "key", "create", "--name", "next", "--scope", "admin")
	next := strings.TrimSpace(made.stdout)
	if r := s.runWithKey(t, third, "key", "revoke", "admin-key"); r.code != exitOK {
		t.Errorf("revoke the configured key, with another admin key in the store: %s, want success", r.stderr)
	}
	s.runWithKey(t, third, "top").mustFail(t, exitFailure, []string{"valid key"}, []string{"top"})
	s.stop()
	s = startServer(t, data, nil)
	if s.stdout.String() != "" || strings.Contains(s.stderr.String(), "admin-key") {
		t.Errorf("a start with an admin key in the store: output %s, log %s; want no new key and no warning", s.stdout, s.stderr)
	}
	if r := s.runWithKey(t, next, "key", "list"); r.code != exitOK {
		t.Errorf("key list with the key named \"next\": %s, want success", r.stderr)
	}
	s.runWithKey(t, next, "ban", "ada", "--yes")
	checkContains(t, s.runWithKey(t, next, "audit").stdout, " (next)", "ban")
}

// An expired key or a key for one board is not an admin key.
func TestAStartWithoutAnAdminKeyCreatesOne(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	_, expired := auth.NewKey("expired", []string{"admin"}, time.Now())
	expired.ExpiresAt = time.Now()
	putKeys(t, data, expired)
	s := startServer(t, data, nil)
	admin := s.firstKey(t)
	for _, args := range [][]string{
		{"--name", "site", "--scope", "read"},
		{"--name", "one board", "--scope", "admin", "--board", "cup"},
	} {
		if r := s.runWithKey(t, admin, append([]string{"key", "create"}, args...)...); r.code != exitOK {
			t.Fatal(r.stderr)
		}
	}
	var id string
	for line := range strings.Lines(s.runWithKey(t, admin, "key", "list").stdout) {
		if strings.Contains(line, "admin key created because none was valid") {
			id = strings.Fields(line)[0]
		}
	}
	s.runWithKey(t, admin, "key", "revoke", id).mustFail(t, exitFailure, []string{"last admin key", "--force"}, []string{"key", "revoke"})
	if r := s.runWithKey(t, admin, "key", "revoke", id, "--force"); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	s.runWithKey(t, admin, "top").mustFail(t, exitFailure, []string{"valid key"}, []string{"top"})
	s.stop()
	s = startServer(t, data, nil)
	if r := s.runWithKey(t, s.firstKey(t), "key", "list"); r.code != exitOK {
		t.Errorf("key list with the new admin key: %s, want success", r.stderr)
	}
}

func TestKeysOfAnInsecureServerAreRefused(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	made := s.do(t, "key", "create", "--name", "backdoor", "--scope", "admin")
	key := strings.TrimSpace(made.stdout)
	checkContains(t, made.stderr, "servers that require keys refuse the new key")
	checkContains(t, s.ok(t, "key", "list"), "refused")
	if r := s.runWithKey(t, key, "top"); r.code != exitOK {
		t.Errorf("call of the insecure server with the key that it created: %s, want success", r.stderr)
	}
	s.stop()
	s = startServer(t, data, nil)
	checkContains(t, s.stderr.String(), "this server refuses the keys that an insecure server created", `"backdoor"`)
	s.runWithKey(t, key, "top").mustFail(t, exitFailure, []string{"valid key"}, []string{"top"})
	if r := s.runWithKey(t, s.firstKey(t), "key", "list"); r.code != exitOK {
		t.Errorf("key list with the key that the server created when it first required keys: %s, want success", r.stderr)
	}
}

func TestPrivateBoardsAndTheirKeys(t *testing.T) {
	s := startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--public-read")
	admin := s.firstKey(t)
	ok := func(key string, args ...string) commandResult {
		t.Helper()
		r := s.runWithKey(t, key, args...)
		if r.code != exitOK {
			t.Fatalf("%v: %s", args, r.stderr)
		}
		return r
	}
	checkContains(t, ok(admin, "board", "create", "finals", "--policy", "sum", "--private").stdout, "private")
	ok(admin, "board", "create", "eu-cup", "--policy", "sum")
	made := ok(admin, "key", "create", "--name", "referee", "--scope", "submit", "--board", "finals", "--board-prefix", "eu-")
	checkContains(t, made.stderr, "finals, eu-…")
	checkContains(t, ok(admin, "key", "list").stdout, "finals, eu-…", "all boards")
	referee := strings.TrimSpace(made.stdout)
	ok(referee, "submit", "ada", "--points", "3", "--board", "finals")
	s.runWithKey(t, referee, "submit", "ada", "--points", "3").mustFail(t, exitFailure, []string{`the key or token is not for board "default"`}, []string{"submit"})
	s.runWithKey(t, referee, "top", "--board", "nowhere").mustFail(t, exitFailure, []string{`the key or token is not for board "nowhere"`}, []string{"top"})
	if list := ok(referee, "board", "list").stdout; strings.Contains(list, "default") || !strings.Contains(list, "eu-cup") {
		t.Errorf("board list with a key for board finals and boards eu-… prints this, want board eu-cup and not board default:\n%s", list)
	}

	s.runWithKey(t, "", "top", "--board", "finals").mustFail(t, exitFailure, []string{"board not found"}, []string{"top"})
	if list := ok("", "board", "list").stdout; strings.Contains(list, "finals") || !strings.Contains(list, "eu-cup") {
		t.Errorf("board list without a key prints this, want board eu-cup and not the private board finals:\n%s", list)
	}
	shown := parseObject(t, ok(admin, "board", "show", "finals", "--json").stdout)
	shown["board_id"] = "copy"
	delete(shown, "created_at")
	text, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	copied := command(t, string(text), []string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_KEY=" + admin}, "board", "create", "-f", "-")
	if copied.code != exitOK {
		t.Fatal(copied.stderr)
	}
	s.runWithKey(t, "", "top", "--board", "copy").mustFail(t, exitFailure, []string{"board not found"}, []string{"top"})
	ok(admin, "board", "update", "copy", "--private=false")
	ok("", "top", "--board", "copy")
	ok(admin, "board", "update", "copy", "--title", "Copy")
	if got := parseObject(t, ok(admin, "board", "show", "finals", "--json").stdout)["private"]; got != true {
		t.Errorf("board finals has private = %v, want true", got)
	}
}

func TestNodesReplaceTheAdminKeyConcurrently(t *testing.T) {
	store := embedded.Store(t)
	c := &config.Config{AdminKey: "the-same-admin-key-of-both"}
	earlier := auth.KeyFrom(c.AdminKey, "made by hand", []string{"admin"}, time.Now())
	if err := store.PutAPIKey(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	seen, err := store.APIKeys(t.Context()) // each node reads the keys before either node writes
	if err != nil {
		t.Fatal(err)
	}
	for node := range 2 {
		s := &server{config: c, store: store, log: slog.New(slog.DiscardHandler)}
		if err := s.replaceConfiguredKey(t.Context(), seen); err != nil {
			t.Errorf("replaceConfiguredKey of node %d: %v, want nil", node+1, err)
		}
	}
	keys, err := store.APIKeys(t.Context())
	if err != nil || len(keys) != 1 || keys[0].ID != auth.ConfiguredKeyID {
		t.Errorf("stored keys: %v, error %v; want one key with the id %s", keys, err, auth.ConfiguredKeyID)
	}
}

func TestSecretsOfKeysAreNotStored(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil)
	file := filepath.Join(data, "admin-key")
	first := keyIn(t, s, file)
	r := s.runWithKey(t, first, "key", "create", "--name", "site", "--scope", "read")
	made := strings.TrimSpace(r.stdout)
	if r.code != exitOK || len(made) < 20 {
		t.Fatalf("key create: %q, %s; want a key", made, r.stderr)
	}
	if code := s.stop(); code != exitOK {
		t.Fatalf("the server exited with %d", code)
	}
	var stored []byte
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == file {
			return err
		}
		text, err := os.ReadFile(path)
		stored = append(stored, text...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(stored, []byte("site")) {
		t.Error("the data folder does not contain the name of the key, so the test may search in the wrong place")
	}
	for _, key := range []string{first, made} {
		if bytes.Contains(stored, []byte(key)) || bytes.Contains(stored, []byte(strings.TrimPrefix(key, "lbk_"))) {
			t.Error("the data folder contains the secret of a key")
		}
	}
}
