package cql

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
)

const banEnds = storage.Transient + "ban ends"

// A writer writes the end of a ban, and dies before it writes the ban. BansEnding removes the row one
// hour after the end of the ban.
func TestAnEndWithoutABanIsRemoved(t *testing.T) {
	s := openTest(newModel(nil), Options{DataCenter: "dc1", Buckets: 1})
	now := stepsEpoch
	s.now = func() time.Time { return now }
	key := append(binary.BigEndian.AppendUint64(nil, uint64(now.Add(time.Hour).UnixMicro())^1<<63), userHash("u")...)
	end := storage.RowWrite{List: banEnds, Row: storage.Row{Key: append(key, "b"...), Value: []byte{1}}, Version: 1}
	if err := s.WriteRows(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	rows := func() (n int) {
		t.Helper()
		for b, err := range s.BansEnding(t.Context(), now.AddDate(0, 0, 9)) {
			t.Errorf("BansEnding yields %+v, error %v; want nothing", b, err)
		}
		for _, err := range s.Rows(t.Context(), banEnds, nil) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	if n := rows(); n != 1 {
		t.Errorf("the list has %d rows before the end of the ban, want 1", n)
	}
	now = now.Add(3 * time.Hour)
	if n := rows(); n != 0 {
		t.Errorf("the list has %d rows two hours after the end of the ban, want 0", n)
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
	damaged := storage.RowWrite{List: accountList("u"), Row: storage.Row{Key: []byte("b"), Value: []byte{9}}, Version: 1}
	if err := s.WriteRows(t.Context(), damaged); err != nil {
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
		selectTransientRows: func(s *testStore) (err error) {
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
