package pebble

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// openTest opens an empty store in memory with the test board in it.
func openTest(t testing.TB) *Store {
	t.Helper()
	s := mustOpen(t, "data", Options{FS: vfs.NewMem()})
	t.Cleanup(func() { mustClose(t, s) })
	if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustApply(t testing.TB, s *Store, results ...leaderboard.MatchResult) {
	t.Helper()
	if _, err := s.Apply(t.Context(), testBoard(), results); err != nil {
		t.Fatal(err)
	}
}

func mustEntry(t testing.TB, s *Store, user leaderboard.UserID) leaderboard.Entry {
	t.Helper()
	e, err := s.Entry(t.Context(), testScope, user)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Strays yields the rows that are no entry's, and Recount removes them.
func TestStraysOfDamage(t *testing.T) {
	s := openTest(t)
	r := testResult("u", "m", 0, 5)
	r.Attributes = map[string]string{"gender": "F"}
	mustApply(t, s, r)
	ghost := mustEntry(t, s, "u")
	ghost.AchievedAt = ghost.AchievedAt.Add(time.Second)
	ghost.Divisions[0].Value = "X"
	want := map[leaderboard.Stray]bool{}
	for _, p := range s.board("b").placements(makeScopeKey(1, "all"), &ghost) {
		if err := s.db.Set(p.key, p.value, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "X"}} {
		want[leaderboard.Stray{Division: d, User: "u", Key: ghost.SortKey()}] = true
	}
	strays := func() map[leaderboard.Stray]bool {
		found := map[leaderboard.Stray]bool{}
		for stray, err := range s.Strays(t.Context(), testScope) {
			if err != nil {
				t.Fatal(err)
			}
			found[stray] = true
		}
		return found
	}
	if d := cmp.Diff(want, strays()); d != "" {
		t.Errorf("strays (-want +got):\n%s", d)
	}
	if _, err := s.Recount(t.Context(), testBoard(), "all", "u"); err != nil {
		t.Fatal(err)
	}
	if found := strays(); len(found) > 0 {
		t.Errorf("strays after Recount: %v", found)
	}
}

// Unlisted yields the users whose results are there and whose rows are not, and
// Recount makes the rows.
func TestUnlisted(t *testing.T) {
	s := openTest(t)
	mustApply(t, s, testResult("t", "1", 0, 5), testResult("u", "1", 0, 5), testResult("u", "2", 0, 5), testResult("v", "1", 0, 5))
	unlisted := func() (users []leaderboard.UserID) {
		for k, err := range s.Unlisted(t.Context()) {
			if err != nil || k.Scope != testScope {
				t.Fatal(k, err)
			}
			users = append(users, k.User)
		}
		return users
	}
	if got := unlisted(); got != nil {
		t.Errorf("Unlisted without damage: %q", got)
	}
	for _, user := range []leaderboard.UserID{"u", "v"} {
		if err := s.db.Delete(makeScopeKey(1, "all").user(user), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]leaderboard.UserID{"u", "v"}, unlisted()); d != "" {
		t.Errorf("Unlisted (-want +got):\n%s", d)
	}
	for _, user := range unlisted() {
		if _, err := s.Recount(t.Context(), testBoard(), "all", user); err != nil {
			t.Fatal(err)
		}
	}
	if got := unlisted(); got != nil || mustEntry(t, s, "u").Results != 2 {
		t.Errorf("after Recount: Unlisted %q, entry %+v", got, mustEntry(t, s, "u"))
	}
	wholeLadders(t, s, 3)
}

// Recount puts right whatever is wrong, wherever it is.
func TestRecountRepairs(t *testing.T) {
	set := func(t *testing.T, s *Store, key, value []byte) {
		t.Helper()
		if err := s.db.Set(key, value, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	del := func(t *testing.T, s *Store, key []byte) {
		t.Helper()
		if err := s.db.Delete(key, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, s *Store, scope scopeKey, rows []placement)
	}{
		{"a row of the overall ladder is missing", func(t *testing.T, s *Store, _ scopeKey, rows []placement) { del(t, s, rows[0].key) }},
		{"a row of a division is missing", func(t *testing.T, s *Store, _ scopeKey, rows []placement) { del(t, s, rows[1].key) }},
		{"a row says something else", func(t *testing.T, s *Store, _ scopeKey, rows []placement) {
			other := mustEntry(t, s, "u")
			other.Match = "other"
			set(t, s, rows[0].key, s.board("b").placements(makeScopeKey(1, "all"), &other)[0].value)
		}},
		{"a ghost stands at another score, and in another division", func(t *testing.T, s *Store, scope scopeKey, rows []placement) {
			ghost := mustEntry(t, s, "u")
			ghost.AchievedAt = ghost.AchievedAt.Add(time.Second)
			ghost.Divisions[0].Value = "X"
			for _, p := range s.board("b").placements(scope, &ghost) {
				set(t, s, p.key, p.value)
			}
		}},
		{"a ghost stands among the hidden", func(t *testing.T, s *Store, scope scopeKey, rows []placement) {
			ghost := mustEntry(t, s, "u")
			ghost.Hidden = true
			for _, p := range s.board("b").placements(scope, &ghost) {
				set(t, s, p.key, p.value)
			}
		}},
		{"the user's row is garbage", func(t *testing.T, s *Store, scope scopeKey, _ []placement) {
			set(t, s, scope.user("u"), []byte("garbage"))
		}},
		{"the user's row is missing", func(t *testing.T, s *Store, scope scopeKey, _ []placement) { del(t, s, scope.user("u")) }},
		{"the tally is wrong", func(t *testing.T, s *Store, scope scopeKey, _ []placement) {
			row := userRow{version: 2}
			r := testResult("u", "m", 0, 1234)
			row.tally = testBoard().Add(row.tally, &r)
			value, err := row.append(nil)
			if err != nil {
				t.Fatal(err)
			}
			set(t, s, scope.user("u"), value)
		}},
		{"the user is hidden without a ban", func(t *testing.T, s *Store, scope scopeKey, rows []placement) {
			st, err := s.loadUser(s.board("b"), "all", "u")
			if err != nil {
				t.Fatal(err)
			}
			st.row.hidden = true
			value, err := st.row.append(nil)
			if err != nil {
				t.Fatal(err)
			}
			set(t, s, scope.user("u"), value)
		}},
		{"the note of the scope is missing", func(t *testing.T, s *Store, _ scopeKey, _ []placement) { del(t, s, scopesKey("u", 1, "all")) }},
		{"the record is missing", func(t *testing.T, s *Store, scope scopeKey, _ []placement) {
			del(t, s, scope.record("u", "1"))
			del(t, s, scope.record("u", "2"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openTest(t)
			mustApply(t, s, testResult("u", "1", 0, 5), testResult("u", "2", 0, 7), testResult("v", "1", 0, 6))
			want := mustEntry(t, s, "u")
			scope := makeScopeKey(1, "all")
			tt.damage(t, s, scope, s.board("b").placements(scope, &want))

			c, err := s.Recount(t.Context(), testBoard(), "all", "u")
			if err != nil {
				t.Fatal(err)
			}
			if c.After.Version <= want.Version {
				t.Errorf("version went from %d to %d", want.Version, c.After.Version)
			}
			want.Version = c.After.Version
			users, rows := []leaderboard.UserID{"u", "v"}, 2
			if tt.name == "the record is missing" {
				want = leaderboard.Entry{Scope: testScope, User: "u", Version: c.After.Version}
				users, rows = users[1:], 1
				if _, err := s.Entry(t.Context(), testScope, "u"); !errors.Is(err, leaderboard.ErrEntryNotFound) {
					t.Errorf("Entry: %v", err)
				}
			} else if d := cmp.Diff(want, mustEntry(t, s, "u")); d != "" {
				t.Errorf("entry (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want, c.After); d != "" {
				t.Errorf("After (-want +got):\n%s", d)
			}
			wholeLadders(t, s, rows)
			var got []leaderboard.UserID
			for user, err := range s.Users(t.Context(), testScope) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, user)
			}
			if d := cmp.Diff(users, got); d != "" {
				t.Errorf("Users (-want +got):\n%s", d)
			}
			if scopes, err := s.UserScopes(t.Context(), "u"); err != nil || len(scopes) != rows-1 {
				t.Errorf("UserScopes: %v, %v", scopes, err)
			}
			again, err := s.Recount(t.Context(), testBoard(), "all", "u")
			if err != nil || again.Before.Version != again.After.Version {
				t.Errorf("Recount of what was put right: %+v, %v", again, err)
			}
		})
	}
}

// A user that cannot be read does not keep others from being applied.
func TestApplyTellsOfOneUserAlone(t *testing.T) {
	s := openTest(t)
	mustApply(t, s, testResult("u", "1", 0, 5), testResult("v", "1", 0, 5))
	if err := s.db.Set(makeScopeKey(1, "all").user("u"), []byte{9}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	report, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{testResult("u", "2", 0, 5), testResult("v", "2", 0, 5)})
	if err != nil {
		t.Fatal(err)
	}
	if o := report.Outcomes[0]; !errors.Is(o.Err, leaderboard.ErrFormat) || o.Entry.Key != "" {
		t.Errorf("outcome of who cannot be read: %+v", o)
	}
	if o := report.Outcomes[1]; o.Err != nil || o.Entry.Results != 2 || len(report.Changes) != 1 {
		t.Errorf("outcome of the other: %+v, changes %+v", o, report.Changes)
	}
	if _, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{testResult("u", "2", 0, 5)}); !errors.Is(err, leaderboard.ErrFormat) {
		t.Errorf("Apply of which nothing was applied: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Run("what was kept is there again", func(t *testing.T) {
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
		// Numbers of boards are never used again.
		if err := s.DeleteBoard(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		s = mustOpen(t, dir, Options{})
		if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
			t.Fatal(err)
		}
		if n := s.board("b").number; n != 2 {
			t.Errorf("number %d", n)
		}
		mustClose(t, s)
	})
	t.Run("a directory in use is refused", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, dir, Options{})
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "another process uses it") {
			t.Errorf("Open: %v", err)
		}
		mustClose(t, s)
		mustClose(t, mustOpen(t, dir, Options{}))
	})
	t.Run("a newer storage format is refused", func(t *testing.T) {
		fs := vfs.NewMem()
		s := mustOpen(t, "data", Options{FS: fs})
		if err := s.db.Set(keyFormat, []byte{formatVersion + 1}, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		for range 2 { // refusing it leaves it closed
			if _, err := Open("data", Options{FS: fs}); !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "start a newer version") {
				t.Errorf("Open: %v", err)
			}
		}
	})
	t.Run("a newer format of the engine is refused", func(t *testing.T) {
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
			t.Errorf("Open: %v", err)
		}
	})
	t.Run("another database is refused", func(t *testing.T) {
		fs := vfs.NewMem()
		db, err := pebble.Open("data", &pebble.Options{FS: fs, Logger: quiet{func(err error) error { return err }}})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Set([]byte("k"), nil, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open("data", Options{FS: fs}); !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "not of this program") {
			t.Errorf("Open: %v", err)
		}
	})
	t.Run("a directory that cannot be made is an error", func(t *testing.T) {
		file := t.TempDir() + "/file"
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(file, Options{}); err == nil {
			t.Error("Open of a file: no error")
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
		t.Errorf("Backup to a directory that is there: %v", err)
	}
	mustClose(t, s)
	s = mustOpen(t, "backup", Options{FS: fs})
	if d := cmp.Diff(want, mustEntry(t, s, "u")); d != "" {
		t.Errorf("entry (-want +got):\n%s", d)
	}
	mustApply(t, s, testResult("u", "3", 0, 5))
	mustClose(t, s)
}

// Nothing that could be read back remains of an erased user.
func TestEraseLeavesNoID(t *testing.T) {
	const user = "somebody@example.org"
	s := openTest(t)
	refused := testResult(user, "2", 0, 1<<60)
	mustApply(t, s, testResult(user, "1", 0, 5), refused, testResult("v", "1", 0, 5))
	seal := func() {
		t.Helper()
		if _, err := s.Seal(t.Context(), testBoard(), "all", leaderboard.Amendment{At: testEpoch, Reason: "over"}); err != nil {
			t.Fatal(err)
		}
	}
	seal()
	seal()
	// What a crash might leave of a seal.
	orphan := makeScopeKey(1, "all").finalUser(9, user)
	if err := s.db.Set(append(orphan, slotOverall), []byte{1}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetBan(t.Context(), leaderboard.Ban{User: user, Banned: true, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Erase(t.Context(), user, testEpoch.AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	// A season deleted with users in it leaves none either.
	if err := s.DeleteSeason(t.Context(), testScope); err != nil {
		t.Fatal(err)
	}
	if err := s.scan(t.Context(), nil, nil, func(key, value []byte) (bool, error) {
		if strings.Contains(string(key)+string(value), user) || key[0] == kindScopes || key[0] == kindData {
			t.Errorf("%q: %q", key, value)
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A consumer that stops, or panics, leaves no state of the store pinned.
func TestSequencesLetGo(t *testing.T) {
	s := openTest(t)
	mustApply(t, s, testResult("u", "1", 0, 5), testResult("v", "1", 0, 6), testResult("w", "1", 0, 7))
	for range s.Scan(t.Context(), testScope) {
		break
	}
	func() {
		defer func() { _ = recover() }()
		for range s.Results(t.Context(), testScope, "u") {
			panic("consumer")
		}
	}()
	for range s.Entries(t.Context(), leaderboard.Ladder{Scope: testScope}, "") {
		if n := s.db.Metrics().TableIters; n != 0 {
			t.Errorf("%d iterators are open while the consumer is at work", n)
		}
	}
	// Close in openTest's cleanup fails if an iterator is still open.
}
