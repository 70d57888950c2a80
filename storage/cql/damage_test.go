package cql

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// A damage is a fault that plant writes to the tables. Reads must then show the differences
// in kinds, which is sorted.
type damage struct {
	name  string
	plant func(p *planter)
	kinds []differenceKind
	// removed is the number of orphan rows that RemoveOrphanRows removes.
	removed int64
}

type differenceKind string

const (
	entryWrong differenceKind = "ENTRY_WRONG" // the entry does not follow from the results
	orphanRow  differenceKind = "ORPHAN_ROW"  // OrphanRows yields a row
	rowMissing differenceKind = "ROW_MISSING" // a ladder has no row for an entry that belongs in it
)

type planter struct {
	t     *testing.T
	c     conn
	key   userKey
	inc   incarnation
	entry leaderboard.Entry
}

func (p *planter) write(ops ...op) {
	p.t.Helper()
	if err := p.c.write(p.t.Context(), ops...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *planter) row(division string, score leaderboard.Score, timestamp int64) op {
	b := stepsBoard(leaderboard.Best)
	orphan := p.entry
	orphan.Key = b.ScorePrefix(score, stepsEpoch)
	return op{insertRow, append(p.key.ladderArgs(p.inc, division), standingColumn(&orphan), string(p.key.user), int64(1), timestamp)}
}

func (p *planter) put(e leaderboard.Entry, timestamp int64) op {
	return op{insertEntry, []any{string(p.key.Board), string(p.key.Season), p.key.incarnation, bucketOf(p.key.user, p.inc.buckets), string(p.key.user),
		appendEntry(nil, &e), timestamp}}
}

func (p *planter) deleteUser() op {
	return op{deleteEntry, []any{clock(), string(p.key.Board), string(p.key.Season), p.key.incarnation, bucketOf(p.key.user, p.inc.buckets), string(p.key.user)}}
}

func (p *planter) deleteLadderRow(division string) op {
	return op{deleteRow, append(p.key.ladderArgs(p.inc, division, clock()), standingColumn(&p.entry), string(p.key.user))}
}

// clock returns the timestamp of a statement that an operator runs by hand.
func clock() int64 { return time.Now().UnixMicro() }

var damages = []damage{
	{"a row of a slow writer", func(p *planter) {
		p.write(p.row("", 400, insertTime(1)))
		p.write(p.row("team:red", 400, insertTime(1)))
	}, []differenceKind{orphanRow, orphanRow}, 2},
	{"a row in a division that the user has left", func(p *planter) { p.write(p.row("team:blue", 50, insertTime(1))) },
		[]differenceKind{orphanRow}, 1},
	{"a row that was written for the version of the entry", func(p *planter) { p.write(p.row("", 400, insertTime(p.entry.Version))) },
		[]differenceKind{orphanRow}, 0},
	{"a ladder row written by hand", func(p *planter) { p.write(p.row("", 400, clock())) }, []differenceKind{orphanRow}, 0},
	{"a ladder row deleted by hand", func(p *planter) { p.write(p.deleteLadderRow("")) }, []differenceKind{rowMissing}, 0},
	{"a row of user_entries deleted by hand", func(p *planter) { p.write(p.deleteUser()) },
		[]differenceKind{entryWrong, orphanRow, orphanRow}, 0},
	{"a row of user_entries and all ladder rows deleted by hand", func(p *planter) {
		p.write(p.deleteUser())
		for _, division := range []string{"", "team:red"} {
			p.write(p.deleteLadderRow(division))
		}
	}, []differenceKind{entryWrong}, 0},
	{"an entry deleted by hand, the user still registered", func(p *planter) {
		p.write(p.deleteUser(),
			op{registerUser, []any{string(p.key.Board), string(p.key.Season), p.key.incarnation, bucketOf(p.key.user, p.inc.buckets), string(p.key.user), clock() + 1000}})
	}, []differenceKind{entryWrong, orphanRow, orphanRow}, 0},
	{"a wrong score written by hand", func(p *planter) {
		b := stepsBoard(leaderboard.Best)
		p.entry.Key = b.ScorePrefix(77, stepsEpoch)
		p.write(p.put(p.entry, clock()))
	}, []differenceKind{entryWrong, orphanRow, orphanRow, rowMissing, rowMissing}, 0},
}

type difference struct {
	kind differenceKind
	user leaderboard.UserID
}

func (w *writers) differences(ctx context.Context) ([]difference, error) {
	key := leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}
	registered := map[leaderboard.UserID]bool{}
	users := map[leaderboard.UserID]bool{}
	for user, err := range w.third.Users(ctx, key) {
		if err != nil {
			return nil, err
		}
		registered[user], users[user] = true, true
	}
	for k, err := range w.third.UnregisteredUsers(ctx) {
		if err != nil {
			return nil, err
		}
		if k.SeasonKey == key {
			users[k.User] = true
		}
	}
	var all []difference
	for user := range users {
		stored, err := w.third.Entry(ctx, key, user)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			stored, err = leaderboard.Entry{SeasonKey: key, User: user}, nil
		}
		if err != nil {
			return nil, err
		}
		tally, err := w.board.Count(w.third.Results(ctx, key, user))
		if err != nil {
			return nil, err
		}
		want := w.board.Entry(&tally, key.Season, user)
		if !cmp.Equal(want, stored, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(leaderboard.Entry{}, "Version", "Hidden")) {
			all = append(all, difference{entryWrong, user})
		}
		if !registered[user] || !stored.Ranked() {
			continue
		}
		for _, d := range append([]leaderboard.Division{{}}, stored.Divisions...) {
			exists, err := w.inLadder(ctx, leaderboard.Ladder{SeasonKey: key, Division: d}, &stored)
			if err != nil {
				return nil, err
			}
			if !exists {
				all = append(all, difference{rowMissing, user})
			}
		}
	}
	for row, err := range w.third.OrphanRows(ctx, key) {
		if err != nil {
			return nil, err
		}
		all = append(all, difference{orphanRow, row.User})
	}
	return all, nil
}

func (w *writers) inLadder(ctx context.Context, l leaderboard.Ladder, e *leaderboard.Entry) (bool, error) {
	for row, err := range w.third.Entries(ctx, l, "") {
		if err != nil {
			return false, err
		}
		if row.SortKey() == e.SortKey() {
			return true, nil
		}
	}
	return false, nil
}

// Recount must repair each damage. Later results must lead to correct entries.
func testDamages(t *testing.T, connect func(t *testing.T) conn) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			c := connect(t)
			w := newWriters(t, func() conn { return c }, stepsBoard(leaderboard.Best), "u")
			ctx := t.Context()
			for _, result := range []string{"m 20 blue", "n 30 red", "o 50 red"} {
				if err := w.apply(ctx, w.third, result); err != nil {
					t.Fatal(err)
				}
			}
			w.user = "other"
			if err := w.apply(ctx, w.third, "m 40 red"); err != nil {
				t.Fatal(err)
			}
			w.user = "u"
			key := leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}
			entry, err := w.third.Entry(ctx, key, "u")
			if err != nil {
				t.Fatal(err)
			}
			inc, err := w.third.readIncarnation(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			differences := func() []difference {
				t.Helper()
				list, err := w.differences(ctx)
				if err != nil {
					t.Fatal(err)
				}
				return list
			}
			if list := differences(); len(list) > 0 {
				t.Fatalf("before the damage there are the differences %v, want none", list)
			}
			d.plant(&planter{t, c, userKey{key, inc.number, "u"}, inc, entry})
			var kinds []differenceKind
			damaged := map[leaderboard.UserID]bool{}
			for _, f := range differences() {
				kinds = append(kinds, f.kind)
				damaged[f.user] = true
			}
			slices.Sort(kinds)
			if diff := cmp.Diff(d.kinds, kinds); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			switch n, err := removeOrphans(ctx, w.third); {
			case err != nil:
				t.Fatal(err)
			case n != d.removed:
				t.Errorf("RemoveOrphanRows removed %d rows, want %d", n, d.removed)
			}
			if n := len(differences()); n != len(kinds)-int(d.removed) {
				t.Errorf("after RemoveOrphanRows there are %d differences, want %d", n, len(kinds)-int(d.removed))
			}
			for user := range damaged {
				if _, err := w.third.Recount(ctx, w.board, key.Season, user); err != nil {
					t.Fatal(err)
				}
			}
			if list := differences(); len(list) > 0 {
				t.Errorf("after Recount there are the differences %v, want none", list)
			}
			if err := w.check(ctx); err != nil {
				t.Error(err)
			}
			for _, r := range []string{"later 60 blue", "last 1 red"} {
				if err := w.apply(ctx, w.stores[0], r); err != nil {
					t.Fatal(err)
				}
				if err := w.check(ctx); err != nil {
					t.Errorf("after %q: %v", r, err)
				}
			}
		})
	}
}

// All results are lost, so the version that state.version computes falls to 0. Recount must
// raise it above the version of the stored entry (see registerAbove).
func TestModelOfLostResults(t *testing.T) {
	m := newModel(nil)
	w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Best), "u")
	ctx := t.Context()
	for _, r := range []string{"m 20 blue", "n 30 red r9", "o 50 red"} {
		if err := w.apply(ctx, w.stores[1], r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range m.replicas {
		delete(m.replicas[i], "match_results")
	}
	if err := errors.Join(recount(ctx, w, w.third), w.check(ctx)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{"later 60 blue", "last 70 red"} {
		if err := errors.Join(w.apply(ctx, w.stores[0], r), w.check(ctx), w.checkIndex(ctx)); err != nil {
			t.Errorf("after %q: %v", r, err)
		}
	}
}

func TestModelOfDamage(t *testing.T) {
	testDamages(t, func(*testing.T) conn { return newModel(nil) })
}

func TestRecountRepairsDamage(t *testing.T) {
	needs.Also(t, "clusters")
	t.Parallel()
	k := shared.createOnce(t)
	testDamages(t, func(t *testing.T) conn {
		t.Parallel()
		return k.tenant()
	})
}

// In round n, a writer waits before its statement n until the user is erased. The user's next
// result must remove the ladder rows that the writer leaves.
func TestModelOfTheFirstResultAfterAnErasure(t *testing.T) {
	for index, more := 0, true; more; index++ {
		w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Best), "u")
		ctx := t.Context()
		if err := w.apply(ctx, w.third, "m 20 red", "n 10 blue"); err != nil {
			t.Fatal(err)
		}
		step, _ := w.conns[0].walk(func() { _ = w.apply(ctx, w.stores[0], "o 50 blue") })
		more = step(index)
		if err := erase(ctx, w, w.third); err != nil {
			t.Fatal(err)
		}
		for step(1000) {
		}
		w.clock = stepsEpoch.Add(time.Hour) // the results arrive after the erasure
		if err := w.apply(ctx, w.third, "p 5 red", "q 6 blue"); err != nil {
			t.Fatal(err)
		}
		for row, err := range w.third.OrphanRows(ctx, leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}) {
			t.Errorf("the writer waited before statement %d: after the next result, OrphanRows yields %v, error %v; want no rows", index, row, err)
		}
	}
}

// As in TestModelOfTheFirstResultAfterAnErasure, a writer may leave rows, which
// Recount and RemoveOrphanRows must remove.
func TestModelOfAnOrphanRowOfAnErasedUser(t *testing.T) {
	t.Run("Recount", func(t *testing.T) { testOrphansOfAnErasedUser(t, recount) })
	t.Run("RemoveOrphanRows", func(t *testing.T) { testOrphansOfAnErasedUser(t, removesOrphans) })
}

func testOrphansOfAnErasedUser(t *testing.T, remove func(context.Context, *writers, *testStore) error) {
	rows := 0
	for index, more := 0, true; more; index++ {
		w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Best), "u")
		ctx := t.Context()
		for _, user := range []leaderboard.UserID{"u", "other"} {
			w.user = user
			if err := w.apply(ctx, w.third, "m 20 red", "n 10 blue"); err != nil {
				t.Fatal(err)
			}
		}
		w.user = "u"
		step, _ := w.conns[0].walk(func() { _ = w.apply(ctx, w.stores[0], "o 50 blue") })
		more = step(index)
		if err := erase(ctx, w, w.third); err != nil {
			t.Fatal(err)
		}
		for step(1000) {
		}
		key := leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}
		orphans := func() (n int) {
			for row, err := range w.third.OrphanRows(ctx, key) {
				if err != nil {
					t.Fatal(err)
				}
				if row.User == "u" {
					n++
				}
			}
			return n
		}
		n := orphans()
		rows += n
		if err := remove(ctx, w, w.third); err != nil {
			t.Fatal(err)
		}
		if remaining := orphans(); remaining > 0 {
			t.Errorf("the writer waited before statement %d: the erased user has %d orphan rows before the removal and %d after it, want 0 after it", index, n, remaining)
		}
	}
	if rows == 0 {
		t.Error("no writer left orphan rows, want some")
	}
}

func TestApplyReportsADamagedUserAlone(t *testing.T) {
	m := newModel(nil)
	w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Sum), "u")
	ctx := t.Context()
	var results []leaderboard.MatchResult
	for _, user := range []leaderboard.UserID{"u", "v"} {
		w.user = user
		if err := w.apply(ctx, w.third, "m 5 red"); err != nil {
			t.Fatal(err)
		}
		results = append(results, w.result("n 7 red"))
	}
	key := userKey{leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}, 0, "u"}
	if err := m.write(ctx, op{insertItem, append(key.args(), "m", int8(9), []byte{}, []byte{1}, clock())}); err != nil {
		t.Fatal(err)
	}
	s := openTest(m, Options{DataCenter: "dc1", CacheUsers: -1})
	report, err := s.Apply(ctx, w.board, results)
	if err != nil {
		t.Fatal(err)
	}
	if o := report.Outcomes[0]; !errors.Is(o.Err, leaderboard.ErrFormat) || o.Entry.Key != "" {
		t.Errorf("the outcome of the damaged user is %+v, want ErrFormat and no entry", o)
	}
	if o := report.Outcomes[1]; o.Err != nil || o.Status != leaderboard.Applied || len(report.Changes) != 1 {
		t.Errorf("the outcome of the other user is %+v with changes %+v, want an applied result and one change", o, report.Changes)
	}
}
