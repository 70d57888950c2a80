package cql

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
)

func TestUserAccountRoundTrip(t *testing.T) {
	acc := userAccount{account: account{Serial: 3, Hidden: true, Epoch: 1, Base: 1 << 54, ErasedAt: stepsEpoch}}
	for _, b := range []leaderboard.Ban{
		{User: "ü", Board: "b", Revision: 7, Banned: true, Reason: "\"x\"", Actor: "key:1", At: stepsEpoch.Add(1e9), Until: stepsEpoch.AddDate(0, 0, 1)},
		{User: "ü", Revision: 1 << 50, Banned: true, At: stepsEpoch.Add(1e9)},
		{User: "ü", Board: "c", Revision: 9, At: stepsEpoch.Add(1e9)},
	} {
		if !acc.setBan(b) {
			t.Fatalf("the ban %+v has no effect, want it to be set", b)
		}
	}
	body, err := acc.append(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeUserAccount(body, "")
	acc.body = body
	if d := cmp.Diff(acc, got, cmp.AllowUnexported(userAccount{}, userBan{})); err != nil || d != "" {
		t.Errorf("the decoded account differs, error %v (-want +got):\n%s", err, d)
	}
	for n := range body {
		if _, err := decodeUserAccount(body[:n], ""); !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("decoding the first %d of %d bytes: error %v, want ErrFormat", n, len(body), err)
		}
	}
	if _, err := decodeUserAccount(append(bytes.Clone(body), 0), ""); !errors.Is(err, leaderboard.ErrFormat) {
		t.Errorf("decoding one byte too many: error %v, want ErrFormat", err)
	}
}

// A row that an older version wrote has the ban on every board in column ban. Lifting
// this ban raises the version of the user's entries.
func TestAPlainBanStaysABanOnEveryBoard(t *testing.T) {
	old := account{Serial: 5, Hidden: true}
	text, err := json.Marshal(map[string]any{"User": "u", "Banned": true, "Reason": "cheated", "At": stepsEpoch})
	if err != nil {
		t.Fatal(err)
	}
	acc, err := decodeUserAccount(old.append(nil), string(text))
	if err != nil {
		t.Fatal(err)
	}
	want := leaderboard.Ban{User: "u", Banned: true, Reason: "cheated", At: stepsEpoch}
	if d := cmp.Diff(want, acc.bans[0].Ban); d != "" || acc.accountOn(&leaderboard.Board{ID: "b"}) != old {
		t.Errorf("account %+v (-want +got):\n%s", acc.accountOn(&leaderboard.Board{ID: "b"}), d)
	}
	if !acc.setBan(leaderboard.Ban{User: "u", At: stepsEpoch}) || acc.accountOn(&leaderboard.Board{ID: "b"}) != (account{Serial: 6}) {
		t.Errorf("after lifting the ban, the account is %+v, want Serial 6 and not hidden", acc.accountOn(&leaderboard.Board{ID: "b"}))
	}
}

// A change of a ban raises the versions of entries only on the boards that the ban
// concerns.
func TestBansRaiseTheVersionWhereTheyCount(t *testing.T) {
	var acc userAccount
	for _, step := range []struct {
		board      leaderboard.BoardID
		banned     bool
		onB, other account
	}{
		{"b", true, account{Serial: 1, Hidden: true}, account{}},
		{"b", true, account{Serial: 1, Hidden: true}, account{}}, // the same ban again
		{"", true, account{Serial: 2, Hidden: true}, account{Serial: 1, Hidden: true}},
		{"b", false, account{Serial: 3, Hidden: true}, account{Serial: 1, Hidden: true}},
		{"", false, account{Serial: 4}, account{Serial: 2}},
	} {
		acc.setBan(leaderboard.Ban{User: "u", Board: step.board, Banned: step.banned, At: stepsEpoch})
		if acc.accountOn(&leaderboard.Board{ID: "b"}) != step.onB || acc.accountOn(&leaderboard.Board{ID: "c"}) != step.other {
			t.Errorf("after step %+v: the accounts on boards b and c are %+v and %+v, want %+v and %+v", step, acc.accountOn(&leaderboard.Board{ID: "b"}), acc.accountOn(&leaderboard.Board{ID: "c"}), step.onB, step.other)
		}
	}
}

// A writer that dies before it writes its ban leaves a row of table ban_ends without a
// ban. The row has no effect. BansEnding removes it one hour after the end in the row.
func TestAnEndWithoutABanIsRemoved(t *testing.T) {
	s := open(newModel(nil), Options{DataCenter: "dc1", Buckets: 1})
	now := stepsEpoch
	s.now = func() time.Time { return now }
	b := leaderboard.Ban{User: "u", Board: "b", Revision: 1, Banned: true, Until: now.Add(time.Hour)}
	if err := s.putBanEnd(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	rows := func() (n int) {
		t.Helper()
		for b, err := range s.BansEnding(t.Context(), now.AddDate(0, 0, 9)) {
			t.Errorf("BansEnding yields %+v, error %v; want nothing", b, err)
		}
		var until int64
		if err := s.conn.read(t.Context(), op{selectBanEnds, []any{now.AddDate(1, 0, 0).UnixMicro()}}, []any{&until, new([]byte), new(string)},
			func() bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := rows(); n != 1 {
		t.Errorf("%d rows before the end, want 1, because the writer may still write the ban", n)
	}
	now = now.Add(3 * time.Hour)
	if n := rows(); n != 0 {
		t.Errorf("%d rows two hours after the end, want 0", n)
	}
}

// The bans of other users end even if the account of one user is damaged.
func TestBansEndingGoesOnAfterADamagedAccount(t *testing.T) {
	s := open(newModel(nil), Options{DataCenter: "dc1", Buckets: 1})
	s.now = func() time.Time { return stepsEpoch }
	for i, user := range []leaderboard.UserID{"u", "v"} {
		ban := leaderboard.Ban{User: user, Banned: true, At: stepsEpoch, Until: stepsEpoch.Add(time.Duration(i+1) * time.Hour)}
		if _, err := s.SetBan(t.Context(), ban); err != nil {
			t.Fatal(err)
		}
	}
	acc, err := s.readAccount(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.conn.swap(t.Context(), op{changeAccount, []any{[]byte{9}, userHash("u"), acc.body}}, map[string]any{}); !ok || err != nil {
		t.Fatalf("swap of the account: %v, %v", ok, err)
	}
	var got []leaderboard.UserID
	var faults []error
	for b, err := range s.BansEnding(t.Context(), stepsEpoch.AddDate(0, 0, 1)) {
		if err != nil {
			faults = append(faults, err)
			continue
		}
		got = append(got, b.User)
	}
	if len(faults) != 1 || !errors.Is(faults[0], leaderboard.ErrFormat) || !slices.Equal(got, []leaderboard.UserID{"v"}) {
		t.Errorf("BansEnding yields the bans of %q and the errors %v, want v and one ErrFormat", got, faults)
	}
}
