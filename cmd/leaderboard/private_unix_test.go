//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// openUmask sets the umask to 0, so that new files get exactly the requested permissions.
func openUmask(t *testing.T) {
	t.Helper()
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
}

func checkPrivate(t *testing.T, path string) (files int) {
	t.Helper()
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has permissions %04o, want %04o", path, got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestFilesArePrivate(t *testing.T) {
	openUmask(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "new", "data")
	s := startServer(t, data, nil, "--insecure")
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	s.ok(t, "backup", "first")
	if n := checkPrivate(t, data); n < 10 {
		t.Errorf("checked %d files in the data folder, want at least 10", n)
	}
	if log := s.stderr.String(); strings.Contains(log, sharedFolderWarning) {
		t.Errorf("the log has a warning about a new data folder, want none: %s", log)
	}
	out := filepath.Join(dir, "out.csv")
	target := filepath.Join(dir, "target")
	for path, content := range map[string]string{out: "old", target: "keep"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, out+".part"); err != nil { // another user could create such a link to read the export
		t.Fatal(err)
	}
	s.ok(t, "export", "results", "-o", out)
	checkPrivate(t, out)
	if content, err := os.ReadFile(target); string(content) != "keep" {
		t.Errorf("the target of the link contains %q (%v), want it unchanged", content, err)
	}
}

func TestSharedFoldersCauseAWarning(t *testing.T) {
	openUmask(t)
	dir := t.TempDir()
	data, backups := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	for path, mode := range map[string]fs.FileMode{data: 0o750, backups: 0o705} {
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	s := startServer(t, data, nil, "--insecure", "--backup-dir", backups)
	log := s.stderr.String()
	checkContains(t, log, sharedFolderWarning, data, `"0750"`, backups, `"0705"`)
	s.ok(t, "backup", "first")
	checkPrivate(t, filepath.Join(backups, "first"))
}

// A new file of rejected rows replaces one that other users may read.
func TestImportRefusesASharedStateFile(t *testing.T) {
	openUmask(t)
	s := startInsecure(t)
	file := filepath.Join(t.TempDir(), "r.csv")
	state, rejects := file+".import-state.json", file+".rejected.csv"
	for path, content := range map[string]string{file: "user_id,match_id,points\nada,m,3\nbob,m,x\n", rejects: ""} {
		if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(state, []byte("{}"), 0o640); err != nil {
		t.Fatal(err)
	}
	s.fails(t, exitUsage, []string{state, "0640", "chmod 600", "--state"}, "import", file)
	if err := os.Chmod(state, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.do(t, "import", file); strings.Contains(r.stderr, "other users") {
		t.Errorf("import prints a warning about a new file of rejected rows, want none: %s", r.stderr)
	}
	checkPrivate(t, rejects)
}

func TestRestoredFilesArePrivate(t *testing.T) {
	openUmask(t)
	dir := t.TempDir()
	s := startServer(t, filepath.Join(dir, "data"), nil, "--insecure", "--backup-dir", filepath.Join(dir, "backups"))
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	s.ok(t, "backup", "first")
	backup := filepath.Join(dir, "backups", "first")
	err := filepath.WalkDir(backup, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o755)
	})
	if err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(dir, "other", "restored")
	if r := command(t, "", nil, "restore", backup, "--data", restored); r.code != exitOK {
		t.Fatalf("restore: exit code %d, %s; want success", r.code, r.stderr)
	}
	if n := checkPrivate(t, filepath.Dir(restored)); n < 3 {
		t.Errorf("checked %d files in the restored folder, want at least 3", n)
	}
}

func TestImportStateIsPrivate(t *testing.T) {
	openUmask(t)
	s := startInsecure(t)
	var calls atomic.Int64
	p := startProxy(t, s, func(*pb.BatchSubmitScoresRequest) error {
		if calls.Add(1) > 7 {
			return status.Error(codes.PermissionDenied, "the submit scope is required")
		}
		return nil
	}, nil)
	file := writeFile(t, "x.csv", manyRows(10, 2000))
	p.do(t, "import", file, "--batch", "100", "--in-flight", "1").mustFail(t, exitFailure, []string{"run the same command again to continue"}, []string{"import"})
	state := file + ".import-state.json"
	if n := checkPrivate(t, state); n != 1 {
		t.Errorf("checked %d files at %s, want the state file", n, state)
	}
}

func TestConfigFileWithSecretsThatAllMayRead(t *testing.T) {
	const withSecret, without = "admin_key: hunter2hunter2hunter2\n", "log:\n  level: debug\n"
	for _, tt := range []struct {
		content string
		mode    fs.FileMode
		warns   bool
	}{{withSecret, 0o644, true}, {withSecret, 0o604, true}, {withSecret, 0o640, false}, {withSecret, 0o600, false}, {without, 0o644, false}} {
		file := writeFile(t, "leaderboard.yaml", tt.content)
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		r := command(t, "", []string{"LEADERBOARD_ADMIN_KEY=0123456789abcdef"}, "config", "--config", file)
		if r.code != exitOK || strings.Contains(r.stderr, "may read "+file) != tt.warns || strings.Contains(r.stderr, "hunter2") {
			t.Errorf("config with a file of mode %04o exits with %d and writes %q to stderr, want 0 and a warning: %v", tt.mode, r.code, r.stderr, tt.warns)
		}
		if tt.warns && !strings.Contains(r.stderr, "secrets (admin_key)") {
			t.Errorf("the warning %q does not name the secrets of the file", r.stderr)
		}
	}
}

// The folder of the input may belong to another user, who plants links under the names of the
// files that the import writes.
func TestImportFollowsNoLinks(t *testing.T) {
	s := startInsecure(t)
	const rows = "user_id,points,match_id\nada,3,m\n=HYPERLINK(0),x,m\n"
	for _, args := range [][]string{nil, {"--rejects", "out.csv"}} {
		dir := t.TempDir()
		t.Chdir(dir)
		file, victim := filepath.Join(dir, "x.csv"), filepath.Join(dir, "victim")
		for path, text := range map[string]string{file: rows, victim: "kept"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		names := []string{"x.csv.rejected.csv", "x.csv.import-state.json.new", "out.csv"}
		for _, name := range names {
			if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		s.fails(t, exitFailure, []string{"1 row was not applied"}, append([]string{"import", file}, args...)...)
		if text, err := os.ReadFile(victim); err != nil || string(text) != "kept" {
			t.Errorf("import %q has changed the target of a link to %q, %v", args, text, err)
		}
		report, err := os.ReadFile(filepath.Join(dir, append([]string{"x.csv.rejected.csv"}, args...)[len(args)]))
		if err != nil || !strings.Contains(string(report), `,"'=HYPERLINK(0),x,m"`) {
			t.Errorf("the rejected rows are %q, %v; want the formula behind an apostrophe", report, err)
		}
	}
	s.fails(t, exitFailure, []string{"is not a regular file"}, "import", writeFile(t, "x.csv", rows), "--rejects", "/dev/null")
	s.fails(t, exitFailure, []string{"is not a regular file"}, "export", "results", "-o", "/dev/null")
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode().IsRegular() {
		t.Fatalf("/dev/null is replaced: %v, %v", info, err)
	}
}
