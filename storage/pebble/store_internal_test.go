package pebble

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

func TestOpen(t *testing.T) {
	t.Run("a reopened store has the stored data and does not reuse board numbers", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, dir, Options{})
		if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
			t.Fatal(err)
		}
		mustApply(t, s, testResult("u", "1", 0, 5))
		want := mustEntry(t, s, "u")
		mustClose(t, s)
		s = mustOpen(t, dir, Options{})
		if d := cmp.Diff(want, mustEntry(t, s, "u")); d != "" {
			t.Errorf("entry (-want +got):\n%s", d)
		}
		if err := s.DeleteBoard(t.Context(), "b", time.Time{}); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		s = mustOpen(t, dir, Options{})
		if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
			t.Fatal(err)
		}
		if n := s.board("b").number; n != 2 {
			t.Errorf("the new board has number %d, want 2", n)
		}
		mustClose(t, s)
	})
	t.Run("a directory in use is rejected", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, dir, Options{})
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "another process uses the directory") {
			t.Errorf("Open of a directory in use: error %v, want an error about another process", err)
		}
		mustClose(t, s)
		mustClose(t, mustOpen(t, dir, Options{}))
	})
	t.Run("a newer storage format is rejected", func(t *testing.T) {
		fs := vfs.NewMem()
		s := mustOpen(t, "data", Options{FS: fs})
		if err := s.db.Set(keyFormat, []byte{formatVersion + 1}, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		for range 2 { // the first Open fails, and must release the directory
			if _, err := Open("data", Options{FS: fs}); !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "start a newer version") {
				t.Errorf("Open of a newer storage format: error %v, want ErrFormat with advice to start a newer version", err)
			}
		}
	})
	t.Run("the storage format of a build from before version 0.1.0 is rejected", func(t *testing.T) {
		fs := vfs.NewMem()
		s := mustOpen(t, "data", Options{FS: fs})
		if err := s.db.Set(keyFormat, []byte{formatVersion - 1}, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		for _, readOnly := range []bool{false, true} {
			if _, err := Open("data", Options{FS: fs, readOnly: readOnly}); !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "export the results with that build, and import them with this one") {
				t.Errorf("Open of an older storage format: error %v, want ErrFormat with the advice to export and import", err)
			}
		}
	})
	t.Run("a newer format of Pebble is rejected", func(t *testing.T) {
		fs := vfs.NewMem()
		mustClose(t, mustOpen(t, "data", Options{FS: fs}))
		f, err := fs.Create("data/marker.format-version.000999.999", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open("data", Options{FS: fs}); !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("Open of a newer format of Pebble: error %v, want ErrFormat with advice to start a newer version", err)
		}
	})
	t.Run("another program's database is rejected", func(t *testing.T) {
		fs := vfs.NewMem()
		db, err := pebble.Open("data", &pebble.Options{FS: fs, Logger: quietLogger{func(err error) error { return err }}})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Set([]byte("k"), nil, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open("data", Options{FS: fs}); !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "a database of another program") {
			t.Errorf("Open of another program's database: error %v, want ErrFormat that names a database of another program", err)
		}
	})
	t.Run("a directory that cannot be created is an error", func(t *testing.T) {
		file := t.TempDir() + "/file"
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(file, Options{}); err == nil {
			t.Error("Open of a path that is a file returned no error, want an error")
		}
	})
}

func TestBackup(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, "data", Options{FS: fs})
	if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, testResult("u", "1", 0, 5))
	want := mustEntry(t, s, "u")
	if err := s.Backup(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, testResult("u", "2", 0, 5))
	if err := s.Backup(t.Context(), "backup"); !errors.Is(err, os.ErrExist) {
		t.Errorf("Backup to an existing directory: error %v, want ErrExist", err)
	}
	mustClose(t, s)
	s = mustOpen(t, "backup", Options{FS: fs})
	if d := cmp.Diff(want, mustEntry(t, s, "u")); d != "" {
		t.Errorf("entry (-want +got):\n%s", d)
	}
	mustApply(t, s, testResult("u", "3", 0, 5))
	mustClose(t, s)
}

// After Erase, no row contains the user's id. After DeleteSeason, the season has no rows.
func TestEraseLeavesNoID(t *testing.T) {
	const user = "somebody@example.org"
	s := openTest(t)
	refused := testResult(user, "2", 0, 1<<60)
	mustApply(t, s, testResult(user, "1", 0, 5), refused, testResult("v", "1", 0, 5))
	seal := func() {
		t.Helper()
		if _, err := s.Seal(t.Context(), testBoard(), "all", testEpoch); err != nil {
			t.Fatal(err)
		}
	}
	seal()
	seal()
	if _, err := s.SetBan(t.Context(), leaderboard.Ban{User: user, Banned: true, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	act := leaderboard.Act{ID: "1", At: testEpoch, Action: "ban", ActDetail: leaderboard.ActDetail{User: user}}
	if err := s.AppendAct(t.Context(), act); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{user, "another name"} {
		if _, err := s.PutProfiles(t.Context(), []leaderboard.Profile{{User: user, DisplayName: name, UpdatedAt: testEpoch}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Erase(t.Context(), user, testEpoch.AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	check := func(after string, gone ...byte) {
		t.Helper()
		if err := s.scan(t.Context(), nil, nil, func(key, value []byte) (bool, error) {
			text := string(key) + string(value)
			if strings.Contains(text, user) || strings.Contains(text, "another name") || slices.Contains(gone, key[0]) {
				t.Errorf("after %s, the row with key %q and value %q remains, want it removed", after, key, value)
			}
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	check("Erase")
	if err := s.DeleteSeason(t.Context(), testSeason, time.Time{}); err != nil {
		t.Fatal(err)
	}
	check("DeleteSeason", kindSeasons, kindData)
}

// While the write of a register is visible but not durable, Register does not return its value.
func TestRegisterReturnsDurableValues(t *testing.T) {
	var toggle errorfs.Toggle
	release := make(chan struct{})
	toggle.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			<-release
		}
		return nil
	})
	s := mustOpen(t, "data", Options{FS: errorfs.Wrap(vfs.NewMem(), &toggle)})
	defer mustClose(t, s)
	toggle.On()
	swapped := make(chan error, 1)
	go func() {
		_, err := s.Swap(t.Context(), "l", nil, storage.Register{Key: "k", Value: []byte("v")})
		swapped <- err
	}()
	for r := (storage.Register{}); r.Value == nil; {
		var err error
		if r, err = s.register("l", "k"); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if got, err := s.Register(ctx, "l", "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the value is durable, Register returned %q, error %v; want it to wait", got, err)
	}
	close(release)
	if err := <-swapped; err != nil {
		t.Error(err)
	}
	if got, err := s.Register(t.Context(), "l", "k"); string(got) != "v" || err != nil {
		t.Errorf("Register returned %q, error %v; want the value", got, err)
	}
}

// A sequence closes its iterator even if the consumer of the sequence stops early or panics. Entries
// has no open iterator while the consumer works.
func TestSequencesReleaseIterators(t *testing.T) {
	s := openTest(t)
	mustApply(t, s, testResult("u", "1", 0, 5), testResult("v", "1", 0, 6), testResult("w", "1", 0, 7))
	// TableIters counts only iterators of sstables, so Flush writes the rows to an sstable.
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	check := func(moment string, want int64) {
		t.Helper()
		if n := s.db.Metrics().TableIters; n != want {
			t.Errorf("%s %d iterators are open, want %d", moment, n, want)
		}
	}
	for range s.Scan(t.Context(), testSeason, leaderboard.Part{}) {
		check("during Scan", 1)
		break
	}
	check("after Scan stopped early", 0)
	func() {
		defer func() { _ = recover() }()
		for range s.Results(t.Context(), testSeason, "u") {
			panic("consumer")
		}
	}()
	check("after the consumer of Results panicked", 0)
	for range s.Entries(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, "") {
		check("while the consumer of Entries works", 0)
	}
}
