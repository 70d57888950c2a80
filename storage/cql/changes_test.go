package cql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func changesOf(t *testing.T, s *testStore) (changes []leaderboard.RankChange) {
	t.Helper()
	for c, err := range s.RankChanges(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
	}
	return changes
}

func storesIn(m *model, connect func(conn) conn) (stores [2]*testStore) {
	for i, dc := range []string{"dc1", "dc2"} {
		stores[i] = openTest(connect(m), Options{DataCenter: dc, Buckets: 2, CacheUsers: 10})
		stores[i].dataCenters = func(context.Context) ([]string, error) { return []string{"dc1", "dc2"}, nil }
	}
	return stores
}

type announcements struct {
	conn
	n atomic.Int64
}

func (a *announcements) write(ctx context.Context, ops ...op) error {
	for _, o := range ops {
		if o.stmt == insertTransientRow && strings.HasPrefix(o.args[0].(string), storage.Transient+"rank changes/") {
			a.n.Add(1)
		}
	}
	return a.conn.write(ctx, ops...)
}

// The row of a ban lacks a season of the user. The index is down, so no process can finish
// the change. In its first attempt only, each process writes a row with the season for the
// other data center.
func TestAChangeThatWaitsIsAnnouncedOnce(t *testing.T) {
	needs.Race(t)
	m := newModel(nil)
	counted := &announcements{}
	stores := storesIn(m, func(c conn) conn { counted.conn = c; return counted })
	w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Sum), "u")
	if err := ban(t.Context(), w, stores[0]); err != nil { // the user has no season yet
		t.Fatal(err)
	}
	if err := w.apply(t.Context(), w.third, "m 5 red"); err != nil {
		t.Fatal(err)
	}
	counted.n.Store(0)
	restarted := storesIn(m, func(conn) conn { return counted })[0]
	errDown := errors.New("the index is down")
	for i := range 5 {
		s := []*testStore{stores[0], restarted}[i/3]
		changes := changesOf(t, s)
		if len(changes) != 1 {
			t.Fatalf("before attempt %[2]d, there are %[1]d changes, want 1: the ban", len(changes), i)
		}
		if err := s.FinishRankChange(t.Context(), changes[0], func([]leaderboard.Entry) error { return errDown }); !errors.Is(err, errDown) {
			t.Fatalf("FinishRankChange: %v, want %v", err, errDown)
		}
	}
	if n := counted.n.Load(); n != 2 {
		t.Errorf("two processes wrote %d rows in 5 attempts, want one each", n)
	}
	if changes := changesOf(t, stores[1]); len(changes) != 2 {
		t.Errorf("the other data center has %d changes, want 2: the ban without the season, and with it", len(changes))
	}
}

// If dc2 has finished a change, and dc1 writes the change again, dc2 must not find it.
func TestAFinishedChangeIsNotAnnouncedAgain(t *testing.T) {
	m := newModel(nil)
	stores := storesIn(m, func(c conn) conn { return c })
	for i := range 2 {
		if _, err := stores[0].Erase(t.Context(), "u", stepsEpoch.AddDate(0, 0, i)); err != nil {
			t.Fatal(err)
		}
	}
	finish := func() (n int) {
		t.Helper()
		for _, c := range changesOf(t, stores[1]) {
			n++
			if err := stores[1].FinishRankChange(t.Context(), c, func([]leaderboard.Entry) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	finish()
	for _, want := range []int{1, 0} {
		if err := stores[0].engine.AnnounceErasure(t.Context(), leaderboard.SeasonKey{Board: "b", Season: "s"}, "u"); err != nil {
			t.Fatal(err)
		}
		if n := finish(); n != want {
			t.Errorf("after an announcement, dc2 finds %d changes, want %d", n, want)
		}
		stores[0] = storesIn(m, func(c conn) conn { return c })[0] // another process
	}
}

// A ban is set before an earlier erasure is finished. The ban must stay.
func TestAnEarlierErasureLeavesALaterBan(t *testing.T) {
	m := newModel(nil)
	stores := storesIn(m, func(c conn) conn { return c })
	w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Sum), "u")
	if err := errors.Join(w.apply(t.Context(), w.third, "m 5 red"), ban(t.Context(), w, stores[0]), erase(t.Context(), w, stores[0])); err != nil {
		t.Fatal(err)
	}
	later := leaderboard.Ban{User: "u", Banned: true, Reason: "later", At: stepsEpoch.Add(time.Hour)}
	if _, err := stores[0].SetBan(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	for _, s := range stores {
		if err := finishChanges(t.Context(), w, s); err != nil {
			t.Fatal(err)
		}
		bans, err := s.UserBans(t.Context(), "u")
		if err != nil || len(bans) != 1 || bans[0].Reason != later.Reason || !bans[0].Banned {
			t.Errorf("bans after data center %s has finished its changes: %+v, error %v; want the later ban", s.dc, bans, err)
		}
	}
}

// A ban and an erasure run concurrently. A stored ban contains the user's id, so no ban
// from before the erasure may remain.
func TestAnErasureBesideABanLeavesNoID(t *testing.T) {
	for k := range 40 {
		for first := range 2 {
			w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Best), "u")
			ctx := t.Context()
			if err := w.apply(ctx, w.third, "m 5 red"); err != nil {
				t.Fatal(err)
			}
			calls := [2]func() error{
				func() error { return ban(ctx, w, w.stores[0]) },
				func() error { return errors.Join(erase(ctx, w, w.stores[1]), finishChanges(ctx, w, w.stores[1])) },
			}
			if err := w.race(calls, first, schedule{k, 1000}); err != nil {
				t.Fatal(err)
			}
			acc, err := w.third.readAccount(ctx, "u", w.board)
			rows := 0
			for range w.third.Rows(ctx, accountList("u"), nil) {
				rows++
			}
			if err != nil || acc.Epoch != 1 || rows != 1+int(acc.Serial) {
				t.Errorf("calls[%d] runs %d statements before the other call: the account is %+v with %d rows, error %v; want one erasure and no ban from before it", first, k, acc, rows, err)
			}
		}
	}
}

// changeBuckets is that of the engine.
const changeBuckets = 8

// writeChange writes a change for the store's data center.
func writeChange(t *testing.T, s *testStore, bucket int, body string) {
	t.Helper()
	row := storage.Row{Key: []byte("0 " + body), Value: []byte(body)}
	if err := s.WriteRows(t.Context(), storage.RowWrite{List: fmt.Sprintf("%srank changes/%d/%s", storage.Transient, bucket, s.dc), Row: row, Version: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestAnUnreadableChangeDoesNotHideOthers(t *testing.T) {
	s := openTest(newModel(nil), Options{DataCenter: "dc1", Buckets: 1})
	for bucket := range changeBuckets {
		writeChange(t, s, bucket, "{")
	}
	users := map[leaderboard.UserID]bool{}
	for _, user := range []leaderboard.UserID{"u", "v", "w", "x"} {
		if _, err := s.SetBan(t.Context(), leaderboard.Ban{User: user, Banned: true, At: stepsEpoch}); err != nil {
			t.Fatal(err)
		}
		users[user] = true
	}
	damaged := 0
	for c, err := range s.RankChanges(t.Context()) {
		if errors.Is(err, leaderboard.ErrFormat) {
			damaged++
		} else if err != nil {
			t.Fatal(err)
		}
		delete(users, c.User)
	}
	if damaged != changeBuckets || len(users) > 0 {
		t.Errorf("RankChanges yields %d damaged changes, and no change of the users %v; want %d damaged changes, and a change of each user", damaged, users, changeBuckets)
	}
}

// Until the changed board arrives in a data center, FinishRankChange returns ErrUnavailable
// there. If the board was deleted, FinishRankChange only removes the change.
func TestAChangeOfDivisionsWaitsForTheBoard(t *testing.T) {
	ctx := t.Context()
	m := newModel(nil)
	s := storesIn(m, func(c conn) conn { return c })[1]
	w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Sum), "u")
	if err := w.apply(ctx, w.third, "m 5 red"); err != nil {
		t.Fatal(err)
	}
	announce := func(rules int) {
		t.Helper()
		writeChange(t, s, bucketOf("", changeBuckets), fmt.Sprintf(`{"board":%q,"made":%d,"rules":%d}`, w.board.ID, w.board.CreatedAt.UnixMicro(), rules))
	}
	finish := func(want error) {
		t.Helper()
		changes := changesOf(t, s)
		if len(changes) != 1 || changes[0].Board != w.board.ID {
			t.Fatalf("RankChanges yields %+v, want one change of board %q", changes, w.board.ID)
		}
		updated := false
		err := s.FinishRankChange(ctx, changes[0], func([]leaderboard.Entry) error { updated = true; return nil })
		if !errors.Is(err, want) || updated != (want == nil) {
			t.Errorf("FinishRankChange returns the error %v, and has called update: %v; want the error %v, and a call of update only without an error", err, updated, want)
		}
	}
	announce(1)
	finish(leaderboard.ErrUnavailable)
	if _, err := w.third.AmendBoard(ctx, w.board.ID, func(b *leaderboard.Board) error { b.Divisions = []string{"club"}; return nil }); err != nil {
		t.Fatal(err)
	}
	finish(nil)
	record, err := s.Season(ctx, leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll})
	if err != nil || record.Rules != 1 {
		t.Errorf("the season is %+v, error %v; want Rules 1", record, err)
	}
	announce(2)
	finish(leaderboard.ErrUnavailable)
	if err := w.third.DeleteBoard(ctx, w.board.ID, stepsEpoch.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, c := range changesOf(t, s) {
		if c.Board == "" { // the deletion of the season
			continue
		}
		if err := s.FinishRankChange(ctx, c, func([]leaderboard.Entry) error { return nil }); err != nil {
			t.Errorf("FinishRankChange after the deletion of the board: %v, want nil", err)
		}
	}
	for _, c := range changesOf(t, s) {
		if c.Board != "" {
			t.Errorf("after the deletion of the board, FinishRankChange has not removed the change %+v", c)
		}
	}
}
