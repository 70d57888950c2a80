//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// openUmask sets the umask to 0 until the test ends, so that new files get exactly the
// permissions that the code requests.
func openUmask(t *testing.T) {
	t.Helper()
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
}

// checkPrivate fails the test if users other than the owner may use path or anything
// below it. It returns the number of files.
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

// The data folder, backups and exports have no permissions for others.
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
	if log := s.stderr.String(); strings.Contains(log, wideWarning) {
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
	if kept, err := os.ReadFile(target); string(kept) != "keep" {
		t.Errorf("the target of the link contains %q (%v), want it unchanged", kept, err)
	}
}

// If other users may enter the data folder or the backup folder, the server logs a
// warning and still uses the folder.
func TestWideFoldersAreWarnedOf(t *testing.T) {
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
	contains(t, log, wideWarning, data, `"0750"`, backups, `"0705"`)
	s.ok(t, "backup", "first")
	checkPrivate(t, filepath.Join(backups, "first"))
}

// The command import refuses a state file to which other users have access. It prints a
// warning if other users may read the file of rejected rows.
func TestWideImportFiles(t *testing.T) {
	openUmask(t)
	s := startInsecure(t)
	file := filepath.Join(t.TempDir(), "r.csv")
	state, rejects := file+".import-state.json", file+".rejected.csv"
	for path, content := range map[string]string{file: "user_id,points\nada,3\nbob,x\n", rejects: ""} {
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
	r := s.do(t, "import", file)
	contains(t, r.stderr, "other users may read "+rejects, "0640")
	if err := os.Remove(rejects); err != nil {
		t.Fatal(err)
	}
	if r := s.do(t, "import", file); strings.Contains(r.stderr, "other users") {
		t.Errorf("import prints a warning about a new file of rejected rows, want none: %s", r.stderr)
	}
	checkPrivate(t, rejects)
}
