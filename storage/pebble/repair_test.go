package pebble

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
)

func TestRecountRemovesOrphanRows(t *testing.T) {
	s := openTest(t)
	r := testResult("u", "m", 0, 5)
	r.Attributes = map[string]string{"gender": "F"}
	mustApply(t, s, r)
	orphan := mustEntry(t, s, "u")
	orphan.AchievedAt = orphan.AchievedAt.Add(time.Second)
	orphan.Divisions[0].Value = "X"
	want := map[leaderboard.OrphanRow]bool{}
	for _, p := range s.board("b").placements(makeSeasonRowKey(1, "all"), &orphan) {
		if err := s.db.Set(p.key, p.value, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "X"}} {
		want[leaderboard.OrphanRow{Division: d, User: "u", Key: orphan.SortKey()}] = true
	}
	orphans := func() map[leaderboard.OrphanRow]bool {
		rows := map[leaderboard.OrphanRow]bool{}
		for orphan, err := range s.OrphanRows(t.Context(), testSeason) {
			if err != nil {
				t.Fatal(err)
			}
			rows[orphan] = true
		}
		return rows
	}
	if d := cmp.Diff(want, orphans()); d != "" {
		t.Errorf("orphan rows (-want +got):\n%s", d)
	}
	if _, err := s.Recount(t.Context(), testBoard(), "all", "u"); err != nil {
		t.Fatal(err)
	}
	if rows := orphans(); len(rows) > 0 {
		t.Errorf("after Recount the orphan rows %v remain, want none", rows)
	}
}

// OrphanRows must yield every row that it found, even if Recount removes the row meanwhile.
func TestOrphanRowsYieldsRowsThatRecountRemoves(t *testing.T) {
	s := openTest(t)
	const n = 20
	user := func(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprint("u", i)) }
	for i := range n {
		mustApply(t, s, testResult(user(i), "m", 0, 5))
		orphan := mustEntry(t, s, user(i))
		orphan.AchievedAt = orphan.AchievedAt.Add(time.Second)
		for _, p := range s.board("b").placements(makeSeasonRowKey(1, "all"), &orphan) {
			if err := s.db.Set(p.key, p.value, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	rows := 0
	for _, err := range s.OrphanRows(t.Context(), testSeason) {
		if err != nil {
			t.Fatal(err)
		}
		if rows++; rows > 1 {
			continue
		}
		for i := range n {
			if _, err := s.Recount(t.Context(), testBoard(), "all", user(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := 2 * n; rows != want { // one row in the overall ladder and one in a division
		t.Errorf("OrphanRows yields %d rows while Recount removes them, want %d", rows, want)
	}
	checkLadders(t, s, n)
}

func TestRecountRegistersUsers(t *testing.T) {
	s := openTest(t)
	mustApply(t, s, testResult("t", "1", 0, 5), testResult("u", "1", 0, 5), testResult("u", "2", 0, 5), testResult("v", "1", 0, 5))
	unregistered := func() (users []leaderboard.UserID) {
		for k, err := range s.UnregisteredUsers(t.Context()) {
			if err != nil || k.SeasonKey != testSeason {
				t.Fatal(k, err)
			}
			users = append(users, k.User)
		}
		return users
	}
	if got := unregistered(); got != nil {
		t.Errorf("UnregisteredUsers of an undamaged store yields %q, want no users", got)
	}
	for _, user := range []leaderboard.UserID{"u", "v"} {
		if err := s.db.Delete(makeSeasonRowKey(1, "all").user(user), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]leaderboard.UserID{"u", "v"}, unregistered()); d != "" {
		t.Errorf("UnregisteredUsers (-want +got):\n%s", d)
	}
	for _, user := range unregistered() {
		if _, err := s.Recount(t.Context(), testBoard(), "all", user); err != nil {
			t.Fatal(err)
		}
	}
	if got := unregistered(); got != nil || mustEntry(t, s, "u").Results != 2 {
		t.Errorf("after Recount, UnregisteredUsers yields %q and the entry is %+v, want no users and 2 results", got, mustEntry(t, s, "u"))
	}
	checkLadders(t, s, 3)
}

func TestRecountRepairs(t *testing.T) {
	set := func(t *testing.T, s *testStore, key, value []byte) {
		t.Helper()
		if err := s.db.Set(key, value, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	del := func(t *testing.T, s *testStore, key []byte) {
		t.Helper()
		if err := s.db.Delete(key, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, s *testStore, rowKey seasonRowKey, rows []placement)
	}{
		{"a row of the overall ladder is missing", func(t *testing.T, s *testStore, _ seasonRowKey, rows []placement) { del(t, s, rows[0].key) }},
		{"a row of a division is missing", func(t *testing.T, s *testStore, _ seasonRowKey, rows []placement) { del(t, s, rows[1].key) }},
		{"a row of the overall ladder differs from the entry", func(t *testing.T, s *testStore, _ seasonRowKey, rows []placement) {
			other := mustEntry(t, s, "u")
			other.Match = "other"
			set(t, s, rows[0].key, s.board("b").placements(makeSeasonRowKey(1, "all"), &other)[0].value)
		}},
		{"two orphan rows have another time and another division", func(t *testing.T, s *testStore, rowKey seasonRowKey, rows []placement) {
			orphan := mustEntry(t, s, "u")
			orphan.AchievedAt = orphan.AchievedAt.Add(time.Second)
			orphan.Divisions[0].Value = "X"
			for _, p := range s.board("b").placements(rowKey, &orphan) {
				set(t, s, p.key, p.value)
			}
		}},
		{"an orphan row is among the hidden entries", func(t *testing.T, s *testStore, rowKey seasonRowKey, rows []placement) {
			orphan := mustEntry(t, s, "u")
			orphan.Hidden = true
			for _, p := range s.board("b").placements(rowKey, &orphan) {
				set(t, s, p.key, p.value)
			}
		}},
		{"the user's row is garbage", func(t *testing.T, s *testStore, rowKey seasonRowKey, _ []placement) {
			set(t, s, rowKey.user("u"), []byte("garbage"))
		}},
		{"the user's row is missing", func(t *testing.T, s *testStore, rowKey seasonRowKey, _ []placement) { del(t, s, rowKey.user("u")) }},
		{"the tally is wrong", func(t *testing.T, s *testStore, rowKey seasonRowKey, _ []placement) {
			row := userRow{version: 2}
			r := testResult("u", "m", 0, 1234)
			row.tally = testBoard().Add(row.tally, &r)
			value, err := row.append(nil)
			if err != nil {
				t.Fatal(err)
			}
			set(t, s, rowKey.user("u"), value)
		}},
		{"the user is hidden without a ban", func(t *testing.T, s *testStore, rowKey seasonRowKey, rows []placement) {
			st, err := s.loadUser(s.board("b"), "all", "u")
			if err != nil {
				t.Fatal(err)
			}
			st.row.hidden = true
			value, err := st.row.append(nil)
			if err != nil {
				t.Fatal(err)
			}
			set(t, s, rowKey.user("u"), value)
		}},
		{"the user's season note (see keys.go) is missing", func(t *testing.T, s *testStore, _ seasonRowKey, _ []placement) { del(t, s, seasonsKey("u", 1, "all")) }},
		{"the records are missing", func(t *testing.T, s *testStore, rowKey seasonRowKey, _ []placement) {
			del(t, s, rowKey.record("u", "1"))
			del(t, s, rowKey.record("u", "2"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openTest(t)
			mustApply(t, s, testResult("u", "1", 0, 5), testResult("u", "2", 0, 7), testResult("v", "1", 0, 6))
			want := mustEntry(t, s, "u")
			rowKey := makeSeasonRowKey(1, "all")
			tt.damage(t, s, rowKey, s.board("b").placements(rowKey, &want))

			c, err := s.Recount(t.Context(), testBoard(), "all", "u")
			if err != nil {
				t.Fatal(err)
			}
			if c.After.Version <= want.Version {
				t.Errorf("the version is %d before Recount and %d after it, want a higher version after it", want.Version, c.After.Version)
			}
			want.Version = c.After.Version
			users, rows := []leaderboard.UserID{"u", "v"}, 2
			if tt.name == "the records are missing" {
				want = leaderboard.Entry{SeasonKey: testSeason, User: "u", Version: c.After.Version}
				users, rows = users[1:], 1
				if _, err := s.Entry(t.Context(), testSeason, "u"); !errors.Is(err, leaderboard.ErrEntryNotFound) {
					t.Errorf("Entry of a user without records: error %v, want ErrEntryNotFound", err)
				}
			} else if d := cmp.Diff(want, mustEntry(t, s, "u")); d != "" {
				t.Errorf("entry (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want, c.After); d != "" {
				t.Errorf("the entry After of the change (-want +got):\n%s", d)
			}
			checkLadders(t, s, rows)
			var got []leaderboard.UserID
			for user, err := range s.Users(t.Context(), testSeason) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, user)
			}
			if d := cmp.Diff(users, got); d != "" {
				t.Errorf("Users (-want +got):\n%s", d)
			}
			if seasonKeys, err := s.UserSeasons(t.Context(), "u"); err != nil || len(seasonKeys) != rows-1 {
				t.Errorf("UserSeasons = %v, error %v; want %d seasons", seasonKeys, err, rows-1)
			}
			again, err := s.Recount(t.Context(), testBoard(), "all", "u")
			if err != nil || again.Before.Version != again.After.Version {
				t.Errorf("a second Recount returned the change %+v, error %v; want no change", again, err)
			}
		})
	}
}

func TestApplyReportsADamagedUserAlone(t *testing.T) {
	s := openTest(t)
	mustApply(t, s, testResult("u", "1", 0, 5), testResult("v", "1", 0, 5))
	if err := s.db.Set(makeSeasonRowKey(1, "all").user("u"), []byte{9}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	report, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{testResult("u", "2", 0, 5), testResult("v", "2", 0, 5)})
	if err != nil {
		t.Fatal(err)
	}
	if o := report.Outcomes[0]; !errors.Is(o.Err, leaderboard.ErrFormat) || o.Entry.Key != "" {
		t.Errorf("the outcome of the damaged user is %+v, want ErrFormat and no entry", o)
	}
	if o := report.Outcomes[1]; o.Err != nil || o.Entry.Results != 2 || len(report.Changes) != 1 {
		t.Errorf("the outcome of the other user is %+v with changes %+v, want an entry of 2 results and 1 change", o, report.Changes)
	}
	if _, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{testResult("u", "2", 0, 5)}); !errors.Is(err, leaderboard.ErrFormat) {
		t.Errorf("Apply for the damaged user only: error %v, want ErrFormat", err)
	}
}

func TestBansEndingYieldsBansAfterADamagedUser(t *testing.T) {
	s := openTest(t)
	for i, user := range []leaderboard.UserID{"u", "v"} {
		ban := leaderboard.Ban{User: user, Banned: true, At: testEpoch, Until: testEpoch.Add(time.Duration(i+1) * time.Hour)}
		if _, err := s.SetBan(t.Context(), ban); err != nil {
			t.Fatal(err)
		}
	}
	damaged := storage.RowWrite{List: fmt.Sprintf("account/%x", sha256.Sum256([]byte("u"))), Row: storage.Row{Key: []byte("b"), Value: []byte("?")}, Version: 1}
	if err := s.WriteRows(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	got, faults := storagetest.BansEnding(t.Context(), s, testEpoch.AddDate(0, 0, 1))
	if len(faults) != 1 || !errors.Is(faults[0], leaderboard.ErrFormat) || !slices.Equal(got, []leaderboard.UserID{"v"}) {
		t.Errorf("BansEnding yields the bans of %q and the errors %v, want the ban of v and one ErrFormat", got, faults)
	}
}
