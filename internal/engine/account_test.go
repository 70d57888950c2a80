package engine

import (
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func rowsOf(rows []storage.Row) iter.Seq2[storage.Row, error] {
	return func(yield func(storage.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func banRows(t *testing.T, bans ...leaderboard.Ban) (rows []storage.Row) {
	t.Helper()
	for i := range bans {
		row, err := newBanElement(0, &bans[i])
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func mustDecode(t *testing.T, rows []storage.Row) userAccount {
	t.Helper()
	acc, err := decodeAccount(rowsOf(rows))
	if err != nil {
		t.Fatal(err)
	}
	return acc
}

func TestBanElementRoundTrip(t *testing.T) {
	for _, want := range []leaderboard.Ban{
		{User: "ü", Board: "b", Revision: 7, Banned: true, Reason: "\"x\"", Actor: "key:1", At: epoch.Add(1e9), Until: epoch.AddDate(0, 0, 1)},
		{User: "ü", Revision: 1 << 50, Banned: true, At: epoch.Add(1e9)},
		{User: "ü", Board: "c", Revision: 9, At: epoch.Add(1e9)},
	} {
		e, err := newBanElement(1<<19, &want)
		if err != nil {
			t.Fatal(err)
		}
		number, got, err := decodeBanElement(e.Value)
		if d := cmp.Diff(want, got); err != nil || number != 1<<19 || d != "" {
			t.Errorf("the decoded ban has epoch %d and error %v, want %d (-want +got):\n%s", number, err, 1<<19, d)
		}
		for n := range e.Value {
			if _, _, err := decodeBanElement(e.Value[:n]); !errors.Is(err, leaderboard.ErrFormat) {
				t.Errorf("decoding the first %d of %d bytes: error %v, want ErrFormat", n, len(e.Value), err)
			}
		}
	}
}

func FuzzErasure(f *testing.F) {
	valid := erasure{epoch, 1 << 60, erasureStep}
	f.Add(valid.value())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeErasure(b)
		if err != nil {
			if !errors.Is(err, leaderboard.ErrFormat) {
				t.Fatalf("error %v, want ErrFormat", err)
			}
			return
		}
		if again, err := decodeErasure(e.value()); err != nil || e != again {
			t.Fatalf("the value %+v, encoded and decoded again, is %+v, error %v; want equal values", e, again, err)
		}
	})
}

func TestBansRaiseTheVersionWhereTheyCount(t *testing.T) {
	var states []leaderboard.Ban
	for i, step := range []struct {
		board      leaderboard.BoardID
		banned     bool
		onB, other storage.Account
	}{
		{"b", true, storage.Account{Serial: 1, Hidden: true}, storage.Account{}},
		{"b", true, storage.Account{Serial: 1, Hidden: true}, storage.Account{}}, // the same ban again
		{"", true, storage.Account{Serial: 2, Hidden: true}, storage.Account{Serial: 1, Hidden: true}},
		{"b", false, storage.Account{Serial: 3, Hidden: true}, storage.Account{Serial: 1, Hidden: true}},
		{"", false, storage.Account{Serial: 4}, storage.Account{Serial: 2}},
	} {
		states = append(states, leaderboard.Ban{User: "u", Board: step.board, Banned: step.banned, Revision: int64(i + 1)})
		acc := mustDecode(t, banRows(t, states...))
		onB, other := acc.on(&leaderboard.Board{ID: "b"}), acc.on(&leaderboard.Board{ID: "c"})
		if onB != step.onB || other != step.other {
			t.Errorf("after step %+v: the accounts on boards b and c are %+v and %+v, want %+v and %+v", step, onB, other, step.onB, step.other)
		}
	}
}

// An account with more rows (states of bans, and erasures: see account.go) never has a
// smaller version. Its version is greater if Epoch or Hidden differs. The second of two
// concurrent erasures raises Base by at least erasureStep.
func TestTheVersionOfAnAccountGrows(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	for range 2000 {
		states := make([]leaderboard.Ban, rng.IntN(6))
		for i := range states {
			states[i] = leaderboard.Ban{User: "u", Board: []leaderboard.BoardID{"", "b"}[rng.IntN(2)], Revision: int64(rng.IntN(5)), Banned: rng.IntN(2) == 0}
		}
		full := banRows(t, states...)
		partial := slices.Clone(full[:rng.IntN(len(states)+1)])
		if rng.IntN(3) == 0 {
			for i := range 2 {
				e, err := (&userAccount{}).nextErasure(epoch.Add(time.Duration(rng.IntN(100))*time.Second), rng.Uint64N(1<<56))
				if err != nil {
					t.Fatal(err)
				}
				full = append(full, newElement(erasureKind, e.value()))
				if i == 0 {
					partial = append(partial, full[len(full)-1])
				}
			}
		}
		fullAcc, partialAcc := mustDecode(t, full), mustDecode(t, partial)
		b := &leaderboard.Board{ID: "b"}
		x, y := partialAcc.on(b), fullAcc.on(b)
		if same := x.Hidden == y.Hidden && x.Epoch == y.Epoch; y.Version() < x.Version() || !same && y.Version() == x.Version() ||
			x.Epoch < y.Epoch && y.Base < x.Base+erasureStep {
			t.Fatalf("more rows change the account from %+v to %+v, which breaks the rule above this test; the bans are %+v", x, y, states)
		}
	}
}
