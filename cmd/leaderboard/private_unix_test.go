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

// openUmask makes the process create files with the permissions that it asks for,
// until the test ends.
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
		t.Errorf("%d files: the folder was not walked", n)
	}
	if log := s.stderr.String(); strings.Contains(log, wideWarning) {
		t.Errorf("a new folder is warned of: %s", log)
	}
	out := filepath.Join(dir, "out.csv")
	target := filepath.Join(dir, "target")
	for path, content := range map[string]string{out: "old", target: "keep"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, out+".part"); err != nil { // as another user might, to receive the export
		t.Fatal(err)
	}
	s.ok(t, "export", "results", "-o", out)
	checkPrivate(t, out)
	if kept, err := os.ReadFile(target); string(kept) != "keep" {
		t.Errorf("the export followed a link: %q, %v", kept, err)
	}
}

// A data folder or backup folder that others may enter is warned of, and used.
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

// An import does not continue from a state file that another user may have changed, and
// says so if others may read its rejected rows.
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
		t.Errorf("a new file of rejected rows is warned of: %s", r.stderr)
	}
	checkPrivate(t, rejects)
}
