package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func keyIn(t *testing.T, s *testServer, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; the server printed %q", err, s.stdout)
	}
	return strings.TrimSpace(string(text))
}

func TestFirstKeyGoesToAPrivateFile(t *testing.T) {
	for name, setting := range map[string]string{"in the data folder": "", "at the path of first_key_file": filepath.Join(t.TempDir(), "new", "key")} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			path, args := filepath.Join(data, "admin-key"), []string{}
			if setting != "" {
				path, args = setting, []string{"--first-key-file", setting}
			}
			s := startServer(t, data, nil, args...)
			key := keyIn(t, s, path)
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file has mode %v (%v), want 0600", info.Mode(), err)
			}
			out := s.stdout.String() + s.stderr.String()
			if strings.Contains(out, key) || !strings.Contains(s.stdout.String(), path) {
				t.Errorf("the server printed %q, want the path and not the key", out)
			}
			if r := command(t, "", []string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_KEY=" + key}, "key", "list"); r.code != exitOK {
				t.Errorf("key list with the key in the file: %s, want success", r.stderr)
			}
			s.stop()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			s = startServer(t, data, nil, args...)
			if _, err := os.Stat(path); err == nil || strings.Contains(s.stdout.String(), path) {
				t.Errorf("the second start prints %q, want no key file", s.stdout)
			}
		})
	}
}

func TestFirstKeyIsNotLost(t *testing.T) {
	dir := t.TempDir()
	data, blocked := filepath.Join(dir, "data"), filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "", nil, "serve", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--first-key-file", filepath.Join(blocked, "key")).
		mustFail(t, exitFailure, []string{"--first-key-file", "LEADERBOARD_ADMIN_KEY"}, []string{"serve"})
	s := startServer(t, data, nil)
	if key := keyIn(t, s, filepath.Join(data, "admin-key")); !strings.HasPrefix(key, "lbk_") {
		t.Errorf("the next start writes the key %q, want a key that begins with lbk_", key)
	}
}
