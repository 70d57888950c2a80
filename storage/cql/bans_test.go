package cql

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
)

func bannedRow(t *testing.T, epoch int64, bans ...leaderboard.Ban) *accountRow {
	t.Helper()
	row := &accountRow{bans: map[string][]byte{}, erasures: map[string][]byte{}}
	for i := range bans {
		e, err := newBanElement(epoch, &bans[i])
		if err != nil {
			t.Fatal(err)
		}
		row.bans[e.name] = e.value
	}
	return row
}

func TestBanElementRoundTrip(t *testing.T) {
	for _, want := range []leaderboard.Ban{
		{User: "ü", Board: "b", Revision: 7, Banned: true, Reason: "\"x\"", Actor: "key:1", At: stepsEpoch.Add(1e9), Until: stepsEpoch.AddDate(0, 0, 1)},
		{User: "ü", Revision: 1 << 50, Banned: true, At: stepsEpoch.Add(1e9)},
		{User: "ü", Board: "c", Revision: 9, At: stepsEpoch.Add(1e9)},
	} {
		e, err := newBanElement(1<<19, &want)
		if err != nil {
			t.Fatal(err)
		}
		epoch, got, err := decodeBanElement(e.value)
		if d := cmp.Diff(want, got); err != nil || epoch != 1<<19 || d != "" {
			t.Errorf("the decoded ban has epoch %d and error %v, want %d (-want +got):\n%s", epoch, err, 1<<19, d)
		}
		for n := range e.value {
			if _, _, err := decodeBanElement(e.value[:n]); !errors.Is(err, leaderboard.ErrFormat) {
				t.Errorf("decoding the first %d of %d bytes: error %v, want ErrFormat", n, len(e.value), err)
			}
		}
	}
}

func TestErasureRoundTrip(t *testing.T) {
	want := erasure{stepsEpoch, 1 << 60, erasureStep}
	value := want.element().value
	if got, err := decodeErasure(value); err != nil || got != want {
		t.Errorf("the decoded erasure is %+v, error %v; want %+v", got, err, want)
	}
	for n := range value {
		if _, err := decodeErasure(value[:n]); !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("decoding the first %d of %d bytes: error %v, want ErrFormat", n, len(value), err)
		}
	}
}

func TestBansRaiseTheVersionWhereTheyCount(t *testing.T) {
	var states []leaderboard.Ban
	for i, step := range []struct {
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
		states = append(states, leaderboard.Ban{User: "u", Board: step.board, Banned: step.banned, Revision: int64(i + 1)})
		acc, err := bannedRow(t, 0, states...).decode()
		if err != nil {
			t.Fatal(err)
		}
		if acc.accountOn(&leaderboard.Board{ID: "b"}) != step.onB || acc.accountOn(&leaderboard.Board{ID: "c"}) != step.other {
			t.Errorf("after step %+v: the accounts on boards b and c are %+v and %+v, want %+v and %+v", step, acc.accountOn(&leaderboard.Board{ID: "b"}), acc.accountOn(&leaderboard.Board{ID: "c"}), step.onB, step.other)
		}
	}
}

// An account with more elements (states of bans, and erasures: see account.go) never has a
// smaller version. Its version is greater if Epoch or Hidden differs. The second of two
// concurrent erasures raises Base by at least erasureStep.
func TestTheVersionOfAnAccountGrows(t *testing.T) {
	seed := stepsSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		states := make([]leaderboard.Ban, rng.IntN(6))
		for i := range states {
			states[i] = leaderboard.Ban{User: "u", Board: []leaderboard.BoardID{"", "b"}[rng.IntN(2)], Revision: int64(rng.IntN(5)), Banned: rng.IntN(2) == 0}
		}
		full, partial := bannedRow(t, 0, states...), bannedRow(t, 0, states[:rng.IntN(len(states)+1)]...)
		if rng.IntN(3) == 0 {
			for range 2 {
				acc, err := (&accountRow{}).decode()
				if err != nil {
					t.Fatal(err)
				}
				e, err := acc.nextErasure(stepsEpoch.Add(time.Duration(rng.IntN(100))*time.Second), rng.Uint64N(1<<56))
				if err != nil {
					t.Fatal(err)
				}
				full.erasures[e.element().name] = e.element().value
			}
			for name, value := range full.erasures {
				partial.erasures[name] = value
				break
			}
		}
		fullAcc, fullErr := full.decode()
		partialAcc, partialErr := partial.decode()
		if err := errors.Join(fullErr, partialErr); err != nil {
			t.Fatal(err)
		}
		b := &leaderboard.Board{ID: "b"}
		x, y := partialAcc.accountOn(b), fullAcc.accountOn(b)
		if same := x.Hidden == y.Hidden && x.Epoch == y.Epoch; y.version() < x.version() || !same && y.version() == x.version() ||
			x.Epoch < y.Epoch && y.Base < x.Base+erasureStep {
			t.Fatalf("more elements change the account from %+v to %+v, which breaks the rule above this test; the bans are %+v", x, y, states)
		}
	}
}

// A writer writes a row of table ban_ends, and dies before it writes the ban. BansEnding
// removes the row one hour after the end of the ban.
func TestAnEndWithoutABanIsRemoved(t *testing.T) {
	s := openTest(newModel(nil), Options{DataCenter: "dc1", Buckets: 1})
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
		t.Errorf("ban_ends has %d rows before the end of the ban, want 1", n)
	}
	now = now.Add(3 * time.Hour)
	if n := rows(); n != 0 {
		t.Errorf("ban_ends has %d rows two hours after the end of the ban, want 0", n)
	}
}

func TestBansEndingGoesOnAfterADamagedAccount(t *testing.T) {
	s := openTest(newModel(nil), Options{DataCenter: "dc1", Buckets: 1})
	s.now = func() time.Time { return stepsEpoch }
	for i, user := range []leaderboard.UserID{"u", "v"} {
		ban := leaderboard.Ban{User: user, Banned: true, At: stepsEpoch, Until: stepsEpoch.Add(time.Duration(i+1) * time.Hour)}
		if _, err := s.SetBan(t.Context(), ban); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.conn.write(t.Context(), op{setBan, []any{elementAdded, "damaged", []byte{9}, userHash("u")}}); err != nil {
		t.Fatal(err)
	}
	got, faults := storagetest.BansEnding(t.Context(), s, stepsEpoch.AddDate(0, 0, 1))
	if len(faults) != 1 || !errors.Is(faults[0], leaderboard.ErrFormat) || !slices.Equal(got, []leaderboard.UserID{"v"}) {
		t.Errorf("BansEnding yields the bans of %q and the errors %v, want the ban of v, and one ErrFormat for the damaged account of u", got, faults)
	}
}

// A cutList returns the rows of each read of stmt, and then an error.
type cutList struct {
	conn
	stmt string
}

func (c cutList) read(ctx context.Context, q op, dest []any, row func() bool) error {
	err := c.conn.read(ctx, q, dest, row)
	if err == nil && q.stmt == c.stmt {
		err = wrapError(ctx, "read", errors.New("the second page cannot be read"))
	}
	return err
}

func TestACutListIsAnError(t *testing.T) {
	ctx := t.Context()
	m := newModel(nil)
	s := openTest(m, Options{DataCenter: "dc1", Buckets: 1})
	ban := leaderboard.Ban{User: "u", Banned: true, At: stepsEpoch, Until: stepsEpoch.Add(time.Hour)}
	if _, err := s.SetBan(ctx, ban); err != nil {
		t.Fatal(err)
	}
	if err := s.AppendAct(ctx, leaderboard.Act{ID: "a", At: stepsEpoch}); err != nil {
		t.Fatal(err)
	}
	for stmt, list := range map[string]func(*testStore) error{
		selectBanEnds: func(s *testStore) (err error) {
			for _, e := range s.BansEnding(ctx, stepsEpoch.AddDate(0, 0, 1)) {
				err = e
			}
			return err
		},
		selectListRows: func(s *testStore) (err error) {
			for _, e := range s.Acts(ctx, leaderboard.ActKey{}) {
				err = e
			}
			return err
		},
	} {
		if err := list(s); err != nil {
			t.Errorf("without a fault, the list ends with the error %v, want nil", err)
		}
		if err := list(openTest(cutList{m, stmt}, Options{DataCenter: "dc1", Buckets: 1})); !errors.Is(err, leaderboard.ErrUnavailable) {
			t.Errorf("if a read of %q fails, the list ends with the error %v, want %v", stmt, err, leaderboard.ErrUnavailable)
		}
	}
}
