package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newFolder(t *testing.T) *Folder {
	return &Folder{
		Path:  filepath.Join(t.TempDir(), "backups"),
		Copy:  func(_ context.Context, dir string) error { return writeStore(dir, "whole") },
		Check: func(_ context.Context, dir string) error { return checkStore(dir) },
		Now:   time.Now,
	}
}

func writeStore(dir, text string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "store"), []byte(text), 0o600)
}

func checkStore(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "store"))
	if err == nil && !strings.HasPrefix(string(text), "whole") {
		err = errors.New("damaged")
	}
	return err
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestMakeLeavesCompleteBackupsOnly(t *testing.T) {
	f := newFolder(t)
	if err := f.Make(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if err := f.Make(t.Context(), "first"); !errors.Is(err, ErrExists) {
		t.Errorf("Make of a second backup with the same name: error %v, want ErrExists", err)
	}
	if err := writeStore(filepath.Join(f.Path, "second.partial"), "from a killed process"); err != nil {
		t.Fatal(err)
	}
	if err := f.Make(t.Context(), "second"); err != nil {
		t.Errorf("Make over a partial backup with the same name: error %v, want no error", err)
	}
	f.Copy = func(_ context.Context, dir string) error {
		return errors.Join(writeStore(dir, "part"), io.ErrShortWrite)
	}
	if err := f.Make(t.Context(), "third"); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Make with a failing Copy: error %v, want %v", err, io.ErrShortWrite)
	}
	if got := fileNames(t, f.Path); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("the folder has %v, want first and second", got)
	}
	for _, path := range []string{f.Path, filepath.Join(f.Path, "first")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v (%v), want 0700", path, info.Mode(), err)
		}
	}
}

// runSchedule runs a schedule until timeout, and returns the reported outcomes.
func runSchedule(t *testing.T, f *Folder, interval time.Duration, n int, timeout time.Duration) []Outcome {
	t.Helper()
	var outcomes []Outcome
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	f.Run(ctx, interval, n, func(o Outcome) { outcomes = append(outcomes, o) })
	return outcomes
}

func TestScheduleMakesAndPrunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		if err := f.Make(t.Context(), "by-hand"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for _, o := range runSchedule(t, f, time.Hour, 2, 3*time.Hour+time.Minute) {
			if o.Err != nil || o.PruneErr != nil {
				t.Errorf("outcome %+v, want no errors", o)
			}
		}
		at := func(d time.Duration) string { return start.Add(d).UTC().Format(scheduledLayout) }
		if got, want := fileNames(t, f.Path), []string{at(2 * time.Hour), at(3 * time.Hour), "by-hand"}; !slices.Equal(got, want) {
			t.Errorf("the folder has %v, want %v", got, want)
		}
		if got := runSchedule(t, f, time.Hour, 2, 58*time.Minute); len(got) != 0 {
			t.Errorf("within 58 minutes of the restart, the schedule made the backups %+v, want none", got)
		}
		if got := runSchedule(t, f, time.Hour, 2, 2*time.Minute); len(got) != 1 {
			t.Errorf("within 2 minutes of the next restart, the schedule made the backups %+v, want one", got)
		}
	})
}

func TestPruningKeepsTheLastGoodBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		if got := runSchedule(t, f, time.Hour, 1, time.Minute); len(got) != 1 || got[0].Err != nil {
			t.Fatalf("the outcomes of the first minute are %+v, want one without an error", got)
		}
		good := fileNames(t, f.Path)
		for name, damage := range map[string]func(context.Context, string) error{
			"a damaged copy": func(_ context.Context, dir string) error { return writeStore(dir, "part") },
			"a full disk": func(_ context.Context, dir string) error {
				return errors.Join(writeStore(dir, "who"), io.ErrShortWrite)
			},
		} {
			f.Copy = damage
			failures := runSchedule(t, f, time.Hour, 1, 3*time.Hour)
			if len(failures) < 5 {
				t.Errorf("%s: %d attempts in three hours, want at least 5", name, len(failures))
			}
			for _, o := range failures {
				if o.Err == nil || len(o.Pruned) > 0 {
					t.Errorf("%s: outcome %+v, want an error and nothing deleted", name, o)
				}
			}
			if got := fileNames(t, f.Path); !slices.Equal(got, good) {
				t.Errorf("%s: the folder has %v, want %v", name, got, good)
			}
		}
	})
}

func TestScheduleAfterTheClockMovedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		future := time.Now().Add(1000 * time.Hour).UTC().Format(scheduledLayout)
		if err := writeStore(filepath.Join(f.Path, future), "whole"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"auto-20000101T000000Z.partial", "auto-nonsense", "mine.partial"} {
			if err := writeStore(filepath.Join(f.Path, name), "part"); err != nil {
				t.Fatal(err)
			}
		}
		outcomes := runSchedule(t, f, time.Hour, 1, time.Hour+time.Minute)
		if len(outcomes) != 1 || outcomes[0].Err != nil || !slices.Equal(outcomes[0].Pruned, []string{future}) {
			t.Fatalf("outcomes %+v, want one backup, which deletes %s", outcomes, future)
		}
		if got, want := fileNames(t, f.Path), []string{outcomes[0].Name, "auto-nonsense", "mine.partial"}; !slices.Equal(got, want) {
			t.Errorf("the folder has %v, want %v", got, want)
		}
	})
}

func newRestoration(t *testing.T) *Restoration {
	t.Helper()
	dir := t.TempDir()
	r := &Restoration{
		From: filepath.Join(dir, "backup"), Data: filepath.Join(dir, "data"), Replace: true, Carry: []string{"backups", "none"},
		Check: func(_ context.Context, dir string) error { return checkStore(dir) },
		Lock:  func(string) (io.Closer, error) { return io.NopCloser(nil), nil },
		Now:   func() time.Time { return time.Unix(0, 0) },
	}
	for path, text := range map[string]string{r.From: "whole backup", filepath.Join(r.From, "sub"): "whole sub", r.Data: "whole present", filepath.Join(r.Data, "backups"): "whole other"} {
		if err := writeStore(path, text); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRestoreSwapsTheFolders(t *testing.T) {
	for name, swap := range map[string]func(*Restoration) error{
		"a folder": func(*Restoration) error { return nil },
		"a symbolic link": func(r *Restoration) error {
			link := r.Data + "-link"
			defer func() { r.Data = link }()
			return os.Symlink(r.Data, link)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestoration(t)
			data := r.Data
			if err := swap(r); err != nil {
				t.Fatal(err)
			}
			former, err := r.Restore(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"store": "whole backup", "sub/store": "whole sub", "backups/store": "whole other"}
			if got := readTree(t, data); !maps.Equal(got, want) {
				t.Errorf("the folder has %v, want %v", got, want)
			}
			if got, want := readTree(t, former), map[string]string{"store": "whole present"}; former != data+".replaced-19700101T000000Z" || !maps.Equal(got, want) {
				t.Errorf("%s has %v, want %v", former, got, want)
			}
			if got := readTree(t, r.From); len(got) != 2 {
				t.Errorf("after the restoration the backup has the files %v, want its two files", got)
			}
			if siblings := fileNames(t, filepath.Dir(data)); slices.ContainsFunc(siblings, func(n string) bool { return strings.Contains(n, ".restoring-") }) {
				t.Errorf("the parent folder has %v, want no temporary folder", siblings)
			}
		})
	}
}

func TestSwapByRenamesLosesNoContent(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := errors.Join(writeStore(a, "new"), writeStore(b, "former")); err != nil {
		t.Fatal(err)
	}
	former, err := swapByRenames(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, former); got["store"] != "former" {
		t.Errorf("swapByRenames returned %s, which has %v, want the former content", former, got)
	}
	if _, err := swapByRenames(filepath.Join(dir, "missing"), b); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("swapByRenames with a missing folder: error %v, want ErrNotExist", err)
	}
	if got := readTree(t, b); got["store"] != "new" {
		t.Errorf("after a failed swapByRenames the folder has %v, want its former content", got)
	}
}

func TestRestoreKeepsTheFormerContent(t *testing.T) {
	r := newRestoration(t)
	if err := writeStore(r.Data+".replaced-19700101T000000Z", "in the way"); err != nil {
		t.Fatal(err)
	}
	r.Now = func() time.Time { // called after the swap; makes the next steps fail
		if err := os.Rename(r.Data, r.Data+"-moved"); err != nil {
			t.Error(err)
		}
		return time.Unix(0, 0)
	}
	former, err := r.Restore(t.Context())
	if !errors.Is(err, os.ErrNotExist) || former == "" {
		t.Fatalf("Restore = %q, %v, want the path of the former content and ErrNotExist", former, err)
	}
	if got := readTree(t, former); got["store"] != "whole present" {
		t.Errorf("%s has %v, want the former content", former, got)
	}
}

func TestRestoreToAMissingOrEmptyFolder(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"a missing folder": func(string) error { return nil },
		"an empty folder":  func(dir string) error { return os.Mkdir(dir, 0o700) },
	} {
		r := newRestoration(t)
		r.Data, r.Replace = filepath.Join(t.TempDir(), "new"), false
		if err := prepare(r.Data); err != nil {
			t.Fatal(err)
		}
		former, err := r.Restore(t.Context())
		if got := readTree(t, r.Data); err != nil || former != "" || got["store"] != "whole backup" {
			t.Errorf("%s: Restore = %q, %v and the folder has %v, want no former content and the backup", name, former, err, got)
		}
	}
}

func TestRestoreChecksBeforeItReplaces(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(r *Restoration) error
		want    error
	}{
		{"a data folder with content, without Replace", func(r *Restoration) error { r.Replace = false; return nil }, ErrNotEmpty},
		{"a data folder in use", func(r *Restoration) error {
			r.Lock = func(string) (io.Closer, error) { return nil, errors.New("locked") }
			return nil
		}, ErrInUse},
		{"a damaged backup", func(r *Restoration) error { return writeStore(r.From, "part") }, nil},
		{"no backup", func(r *Restoration) error { return os.RemoveAll(r.From) }, os.ErrNotExist},
		{"a backup with a symbolic link", func(r *Restoration) error { return os.Symlink("/etc/passwd", filepath.Join(r.From, "x")) }, nil},
		{"a file in place of the data folder", func(r *Restoration) error {
			return errors.Join(os.RemoveAll(r.Data), os.WriteFile(r.Data, []byte("x"), 0o600))
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRestoration(t)
			if err := tt.prepare(r); err != nil {
				t.Fatal(err)
			}
			before := fmt.Sprint(readTree(t, filepath.Dir(r.Data)))
			if _, err := r.Restore(t.Context()); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Restore = %v, want the error %v (if nil, any error)", err, tt.want)
			}
			if after := fmt.Sprint(readTree(t, filepath.Dir(r.Data))); after != before {
				t.Errorf("after the failed restoration, the folders have %s, want %s as before", after, before)
			}
		})
	}
}
