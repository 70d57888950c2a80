package cql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func (w *writers) checkFinal(ctx context.Context) error {
	seasonKey := leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}
	for _, team := range []string{"", "red", "blue"} {
		l := leaderboard.Ladder{SeasonKey: seasonKey}
		if team != "" {
			l.Division = leaderboard.Division{Attribute: "team", Value: team}
		}
		var want []leaderboard.Standing
		for st, err := range leaderboard.AssignRanks(w.third.Entries(ctx, l, "")) {
			if err != nil {
				return err
			}
			want = append(want, st)
		}
		got, _, err := w.third.FinalStandings(ctx, l, 1, 100)
		if err != nil {
			return err
		}
		if d := cmp.Diff(want, got); d != "" {
			return fmt.Errorf("the final standings of %q differ from the entries (-want +got):\n%s", team, d)
		}
	}
	return nil
}

func (w *writers) seal(ctx context.Context, s *testStore) error {
	_, err := s.Seal(ctx, w.board, leaderboard.SeasonAll, stepsEpoch)
	return err
}

// amendSeason calls Amend as the service does after a change of entries. It ignores
// ErrNotSealed.
func (w *writers) amendSeason(ctx context.Context, s *testStore, users ...leaderboard.UserID) error {
	_, err := s.Amend(ctx, w.board, leaderboard.SeasonAll, leaderboard.Amendment{At: stepsEpoch.AddDate(0, 0, 1), Reason: "late"}, users)
	if errors.Is(err, leaderboard.ErrNotSealed) {
		return nil
	}
	return err
}

var lateChanges = map[string]func(context.Context, *writers, *testStore) error{
	"a result": applies("late 50 blue"),
	"a ban":    ban,
	"a retraction": func(ctx context.Context, w *writers, s *testStore) error {
		return w.apply(ctx, s, "m r1 retracted")
	},
	"a user's first result": func(ctx context.Context, w *writers, s *testStore) error {
		w.user = "new"
		return w.apply(ctx, s, "m 50 red")
	},
	"an erasure": erase,
}

// newSeason returns writers whose season has three users in two teams.
func newSeason(t *testing.T) *writers {
	w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Best), "")
	for i, r := range []string{"m 5 red", "m 7 blue", "m 6 red"} {
		w.user = leaderboard.UserID(fmt.Sprint("u", i))
		if err := w.apply(t.Context(), w.third, r); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func TestModelOfAChangeBesideASeal(t *testing.T) {
	const longest = 40 // approximately the number of statements of one call
	all := insideOrders(t, longest, needs.More(t, longest/8))
	for name, change := range lateChanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, order := range all {
				for first := range 2 {
					for _, sealed := range []bool{false, true} {
						w := newSeason(t)
						ctx := t.Context()
						if sealed {
							if err := w.seal(ctx, w.third); err != nil {
								t.Fatal(err)
							}
						}
						var errs [2]error
						var turns [2]func(int) bool
						turns[0], _ = w.conns[0].walk(func() { errs[0] = w.seal(ctx, w.stores[0]) })
						turns[1], _ = w.conns[1].walk(func() {
							var users []leaderboard.UserID
							errs[1] = change(ctx, w, w.stores[1])
							// An erasure leaves a gap in the ranks. Amend without users
							// closes the gap; Amend of the erased user does not.
							if first == 1 && name != "an erasure" {
								users = append(users, w.user)
							}
							if errs[1] == nil {
								errs[1] = w.amendSeason(ctx, w.stores[1], users...)
							}
						})
						order.run(turns[first], turns[1-first])
						if err := errors.Join(errs[0], errs[1], w.checkFinal(ctx)); err != nil {
							t.Fatalf("the season was sealed before: %v; %s begins; the calls take turns of %v statements: %v", sealed, []string{"Seal", "the change"}[first], order, err)
						}
					}
				}
			}
		})
	}
}

// In each round, a process dies before a different statement of Seal, and a user is banned.
// The next Seal must include the ban.
func TestModelOfAChangeAfterAnInterruptedSeal(t *testing.T) {
	for index, more := 0, true; more; index++ {
		w := newSeason(t)
		ctx := t.Context()
		step, die := w.conns[0].walk(func() { _ = w.seal(ctx, w.stores[0]) })
		more = step(index)
		die()
		err := ban(ctx, w, w.stores[1])
		if err == nil {
			err = w.amendSeason(ctx, w.stores[1])
		}
		if err == nil {
			err = w.seal(ctx, w.third)
		}
		if err == nil {
			err = w.checkFinal(ctx)
		}
		if err != nil {
			t.Fatalf("the process died before statement %d: %v", index, err)
		}
	}
}

// A user is banned during a Seal. Another data center is down, so MarkFinal cannot make the
// Seal start again, and writes a mark. The Seal, or an amendment for the mark, must include
// the ban.
func TestModelOfAChangeBesideASealWhileADataCenterIsLost(t *testing.T) {
	for index, more := 0, true; more; index++ {
		w := newSeason(t)
		w.user = "u0"
		ctx := t.Context()
		var sealErr error
		step, _ := w.conns[0].walk(func() { sealErr = w.seal(ctx, w.stores[0]) })
		more = step(index)
		cut := openTest(cutConn{w.third.conn}, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: 10})
		err := ban(ctx, w, cut)
		if err == nil {
			err = cut.MarkFinal(ctx, w.board, leaderboard.SeasonAll, []leaderboard.UserID{"u0"}, "ban")
		}
		if errors.Is(err, leaderboard.ErrNotSealed) {
			err = nil
		}
		step(1000)
		for m, markErr := range w.third.FinalMarks(ctx) {
			err = errors.Join(err, markErr, w.amendSeason(ctx, w.third, m.User))
		}
		if err = errors.Join(err, sealErr, w.seal(ctx, w.third), w.checkFinal(ctx)); err != nil {
			t.Fatalf("the data center was lost before statement %d of the Seal: %v", index, err)
		}
	}
}

// Two processes amend the season concurrently, each for one changed user. The final
// standings must include both changes, and no replaced row may remain.
func TestModelOfTwoAmendments(t *testing.T) {
	const longest = 45
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	for _, order := range insideOrders(t, longest, needs.More(t, longest/8)) {
		w := newSeason(t)
		ctx := t.Context()
		if err := w.seal(ctx, w.third); err != nil {
			t.Fatal(err)
		}
		for i, user := range []leaderboard.UserID{"u0", "u1"} {
			w.user = user
			if err := w.apply(ctx, w.third, fmt.Sprintf("late %d blue", 50+i)); err != nil {
				t.Fatal(err)
			}
		}
		var errs [2]error
		var turns [2]func(int) bool
		for i := range turns {
			user := leaderboard.UserID(fmt.Sprint("u", i))
			turns[i], _ = w.conns[i].walk(func() { errs[i] = w.amendSeason(ctx, w.stores[i], user) })
		}
		order.run(turns[0], turns[1])
		if err := errors.Join(errs[0], errs[1], w.checkFinal(ctx), checkGarbage(ctx, w.third, w.third.conn.(*model), key)); err != nil {
			t.Fatalf("the calls take turns of %v statements: %v", order, err)
		}
	}
}

// A process amends the season after a result. Meanwhile the result is retracted, and a
// second process amends the season. If the first amendment is not valid yet, the second one
// finds nothing to change. The final standings must lack the result.
func TestModelOfAnAmendmentOfAnUndoneChange(t *testing.T) {
	const longest = 45
	for before := range longest {
		for _, steps := range []int{1000, 1, 2, 3, 5, 8} { // statements of the second call before the first continues
			w := newSeason(t)
			ctx := t.Context()
			if err := w.seal(ctx, w.third); err != nil {
				t.Fatal(err)
			}
			w.user = "u0"
			if err := w.apply(ctx, w.third, "late 50 red"); err != nil {
				t.Fatal(err)
			}
			var errs [3]error
			first, _ := w.conns[0].walk(func() { errs[0] = w.amendSeason(ctx, w.stores[0], "u0") })
			first(before)
			errs[2] = w.apply(ctx, w.third, "late r1 retracted")
			second, _ := w.conns[1].walk(func() { errs[1] = w.amendSeason(ctx, w.stores[1], "u0") })
			second(steps)
			first(1000)
			second(1000)
			if err := errors.Join(errs[0], errs[1], errs[2], w.checkFinal(ctx)); err != nil {
				t.Fatalf("the result is retracted before statement %d of the first amendment; the first amendment continues after %d statements of the second: %v", before, steps, err)
			}
		}
	}
}

// In each round, a process dies before a different statement of an amendment. After
// a day, an amendment must remove the rows of the dead process.
func TestModelOfAnInterruptedAmendment(t *testing.T) {
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	for index, more := 0, true; more; index++ {
		w := newSeason(t)
		ctx := t.Context()
		if err := w.seal(ctx, w.third); err != nil {
			t.Fatal(err)
		}
		change := func(user leaderboard.UserID, result string) {
			t.Helper()
			if w.user = user; w.apply(ctx, w.third, result) != nil {
				t.Fatal("Apply failed")
			}
		}
		change("u0", "late 50 blue")
		step, die := w.conns[0].walk(func() { _ = w.amendSeason(ctx, w.stores[0], "u0") })
		more = step(index)
		die()
		change("u1", "late 60 red")
		err := w.amendSeason(ctx, w.third, "u0", "u1")
		if err == nil {
			err = w.checkFinal(ctx)
		}
		w.third.now = func() time.Time { return time.Now().Add(pendingTimeout) }
		change("u2", "late 70 red")
		if err == nil {
			err = w.amendSeason(ctx, w.third, "u2")
		}
		if err = errors.Join(err, w.checkFinal(ctx), checkGarbage(ctx, w.third, w.third.conn.(*model), key)); err != nil {
			t.Fatalf("the process died before statement %d: %v", index, err)
		}
	}
}
