package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

func TestRestoreReplacesTheStore(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m")
	s.ok(t, "backup", "by-hand")
	s.ok(t, "submit", "bob", "--points", "5", "--match", "m")
	restore := func(args ...string) commandResult {
		return command(t, "", nil, append([]string{"restore", "--data", data}, args...)...)
	}
	s.fails(t, exitFailure, []string{"choose another name"}, "backup", "auto-20260101T000000Z")
	restore("by-hand", "--replace").mustFail(t, exitFailure, []string{"stop it first"}, nil)
	s.stop()
	restore("by-hand").mustFail(t, exitUsage, []string{"--replace"}, nil)
	restore("none", "--replace").mustFail(t, exitUsage, []string{"no backup", "none"}, nil)
	restore("by-hand", "--replace", "--cassandra-hosts", "h", "--cassandra-data-center", "d", "--redis-addresses", "h:1", "--kafka-brokers", "h:1").
		mustFail(t, exitUsage, []string{"snapshot of Cassandra"}, nil)
	if r := restore("by-hand", "--replace"); r.code != exitOK || !strings.Contains(r.stdout, "former content") {
		t.Fatalf("restore --replace: exit code %d\n%s%s\nwant success and the folder of the former content", r.code, r.stdout, r.stderr)
	}
	s = startServer(t, data, nil, "--insecure")
	s.ok(t, "rank", "ada")
	s.fails(t, exitFailure, []string{"entry not found"}, "rank", "bob")
	s.ok(t, "verify")
	s.stop()
	former, err := filepath.Glob(data + ".replaced-*")
	if err != nil || len(former) != 1 {
		t.Fatalf("folders with former content: %v (%v), want one", former, err)
	}
	startServer(t, former[0], nil, "--insecure").ok(t, "rank", "bob")
	if _, err := pebble.Check(t.Context(), filepath.Join(data, "backups", "by-hand")); err != nil {
		t.Errorf("check of the backup after the restore: %v, want it unchanged", err)
	}
}

func TestRestoreRefusesDamagedBackups(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m")
	s.stop()
	s = startServer(t, data, nil, "--insecure") // this start moves the rows from the write-ahead log to a table file
	s.ok(t, "submit", "bob", "--points", "5", "--match", "m")
	s.ok(t, "backup", "good")
	s.stop()
	good := filepath.Join(data, "backups", "good")
	files, err := os.ReadDir(good)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string]func([]byte) []byte{
		"a flipped bit":         func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a missing second half": func(b []byte) []byte { return b[:len(b)/2] },
	}
	tables := 0
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".sst") {
			tables++
		}
		for name, damage := range damages {
			bad := filepath.Join(t.TempDir(), "bad")
			if err := os.CopyFS(bad, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(bad, f.Name())
			content, err := os.ReadFile(path)
			if err != nil || len(content) == 0 {
				continue
			}
			if err := os.WriteFile(path, damage(content), 0o600); err != nil {
				t.Fatal(err)
			}
			target := filepath.Join(t.TempDir(), "target")
			if r := command(t, "", nil, "restore", bad, "--data", target); r.code != exitFailure || !strings.Contains(r.stderr, "nothing was replaced") {
				t.Errorf("restore with %s in %s: exit code %d\n%s%s\nwant a failure that replaces nothing", name, f.Name(), r.code, r.stdout, r.stderr)
			}
			if _, err := os.Stat(target); err == nil {
				t.Errorf("restore with %s in %s created the data folder, want no folder", name, f.Name())
			}
		}
	}
	if tables == 0 {
		t.Error("the backup has no table file, so the test damaged none")
	}
}

func TestScheduledBackups(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	dir := t.TempDir()
	s := startServer(t, data, nil, "--insecure", "--backup-every", "1h", "--backup-dir", dir)
	metricsAfterBackup := func(s *testServer) string {
		eventually(t, "a backup is logged", func() bool {
			_, complete := findLogEntry(s.stderr.String(), "backup complete")
			_, failed := findLogEntry(s.stderr.String(), "backup failed")
			return complete || failed
		})
		_, body := get(t, http.DefaultClient, "http://"+s.http+"/metrics")
		return body
	}
	last := regexp.MustCompile(`(?m)^leaderboard_backup_last_success_timestamp_seconds [1-9]`)
	if body := metricsAfterBackup(s); !last.MatchString(body) || !strings.Contains(body, "leaderboard_backup_failures_total 0") {
		t.Errorf("the metrics lack the time of the backup, or count a failure; log:\n%s", s.stderr)
	}
	s.stop()
	made, err := filepath.Glob(filepath.Join(dir, "auto-*"))
	if err != nil || len(made) != 1 {
		t.Fatalf("the backup folder has %v (%v), want one scheduled backup", made, err)
	}
	if r := command(t, "", nil, "restore", made[0], "--data", filepath.Join(t.TempDir(), "new")); r.code != exitOK {
		t.Errorf("restore of the scheduled backup: %s, want success", r.stderr)
	}
	broken := filepath.Join(dir, "broken")
	if err := os.Symlink(filepath.Join(dir, "missing", "folder"), broken); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, data, nil, "--insecure", "--backup-every", "1h", "--backup-dir", broken)
	if body := metricsAfterBackup(s); !strings.Contains(body, "leaderboard_backup_failures_total 1") || last.MatchString(body) {
		t.Errorf("the metrics do not count 1 failure, or have the time of a successful backup; log:\n%s", s.stderr)
	}
	if _, failed := findLogEntry(s.stderr.String(), "backup failed"); !failed {
		t.Errorf("the log has no line \"backup failed\":\n%s", s.stderr)
	}
}
