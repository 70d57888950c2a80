package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A file that another user has prepared must not direct what a command writes.
func TestPrivateFilesNeverFollowLinks(t *testing.T) {
	for name, open := range map[string]func(string) (*os.File, error){"CreatePrivate": CreatePrivate, "AppendPrivate": AppendPrivate} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
			if err := os.WriteFile(target, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
			if file, err := open(link); err == nil {
				if _, err := file.WriteString("new"); err != nil {
					t.Error(err)
				}
				file.Close()
			}
			if got, err := os.ReadFile(target); err != nil || string(got) != "kept" {
				t.Errorf("after a write through a link, its target has %q, %v; want kept", got, err)
			}
			if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
				t.Fatal(err)
			}
			if file, err := open(filepath.Join(dir, "folder")); err == nil {
				file.Close()
				t.Error("a folder is opened, want an error")
			}
			path := filepath.Join(dir, "file")
			for _, text := range []string{"one", "two"} {
				file, err := open(path)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := file.WriteString(text); err != nil {
					t.Error(err)
				}
				file.Close()
			}
			got, err := os.ReadFile(path)
			if want := map[string]string{"CreatePrivate": "two", "AppendPrivate": "onetwo"}[name]; err != nil || string(got) != want {
				t.Errorf("after two writes, the file has %q, %v; want %s", got, err, want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.FileMode(0) {
				t.Errorf("the file has the mode %v, %v; want a regular file", info.Mode(), err)
			}
		})
	}
}

func TestDefuse(t *testing.T) {
	for field, want := range map[string]string{
		`=HYPERLINK("http://x")`: `'=HYPERLINK("http://x")`,
		"+cmd|' /C calc'!A0":     "'+cmd|' /C calc'!A0",
		"-2+3":                   "'-2+3",
		"@SUM(A1)":               "'@SUM(A1)",
		"\t=1":                   "'\t=1",
		"\r\n =1":                "'\r\n =1",
		"＝1":                     "'＝1",
		"-12":                    "-12",
		"-Inf":                   "'-Inf",
		"ada":                    "ada",
		"a=b":                    "a=b",
		"":                       "",
	} {
		if got := Defuse(field); got != want {
			t.Errorf("Defuse(%q) = %q, want %q", field, got, want)
		}
	}
}
