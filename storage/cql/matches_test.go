package cql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func TestAVoidReachesAllUsersOfAMatch(t *testing.T) {
	const lists = 16 // of a match
	needs.Also(t, "sizes")
	users := 1000
	if needs.Running("sizes") {
		users = 50_000
	}
	m := newModel(nil)
	s := openTest(m, Options{DataCenter: "dc1", Buckets: 64, CacheUsers: 10})
	b := stepsBoard(leaderboard.Best)
	b.Matches = true
	ctx := t.Context()
	if err := s.CreateBoard(ctx, b); err != nil {
		t.Fatal(err)
	}
	w := &writers{board: &b, clock: stepsEpoch}
	var batch []leaderboard.MatchResult
	for i := range users {
		w.user = leaderboard.UserID(fmt.Sprintf("user-%d", i))
		batch = append(batch, w.result("race 5 red"))
		if len(batch) == 1000 || i == users-1 {
			if err := w.send(ctx, s, batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
	largest := 0
	for key, p := range m.replicas[0]["rows"] {
		if strings.HasPrefix(listOf(key), "match users/") {
			largest = max(largest, len(p.rows))
		}
	}
	if mean := users / lists; largest > mean+mean/2+20 || largest == 0 {
		t.Errorf("the largest list of users has %d rows, want about %d", largest, mean)
	}
	t.Logf("%d users: the largest list has %d rows", users, largest)

	ladder := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}}
	for voids, want := range []int{users, 0, users} {
		if voids > 0 {
			if err := void("race", int64(voids))(ctx, w, s); err != nil {
				t.Fatal(err)
			}
		}
		ranked := 0
		for _, err := range s.Entries(ctx, ladder, "") {
			if err != nil {
				t.Fatal(err)
			}
			ranked++
		}
		if ranked != want {
			t.Errorf("%d users are ranked after %d voids and restorations, want %d", ranked, voids, want)
		}
	}
}

func TestMatchUsersReadsSomePartitionsAtATime(t *testing.T) {
	needs.Race(t)
	rec := &recorder{conn: newModel(nil)}
	s := openTest(rec, Options{DataCenter: "dc1", Buckets: 100, CacheUsers: 10})
	b := stepsBoard(leaderboard.Best)
	b.Matches = true
	w := &writers{board: &b, clock: stepsEpoch}
	ctx := t.Context()
	if err := s.CreateBoard(ctx, b); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		w.user = leaderboard.UserID(fmt.Sprintf("user-%d", i))
		if err := w.apply(ctx, s, "race 5"); err != nil {
			t.Fatal(err)
		}
	}
	key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, Match: "race"}
	rec.cost = cost{}
	for _, err := range s.MatchUsers(ctx, key) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if got, want := rec.cost.statements, s.parallel+1; got > want {
		t.Errorf("MatchUsers ran %d statements before it yielded the first user, want at most %d", got, want)
	}
	yielded := map[leaderboard.UserID]bool{}
	for user, err := range s.MatchUsers(ctx, key) {
		if err != nil {
			t.Fatal(err)
		}
		if yielded[user] {
			t.Errorf("MatchUsers yields user %q twice", user)
		}
		yielded[user] = true
	}
	if len(yielded) != 500 {
		t.Errorf("MatchUsers yields %d users, want 500", len(yielded))
	}
}

// In each round, the writer of a result stops before a different statement, and the user is
// erased. Unless the writer has died, it continues. Then the result is sent again. No row of package
// storage may mention the user. If the writer continued, other tables may have
// orphan rows of the user.
func TestModelOfAnErasureBesideAResultOfAMatch(t *testing.T) {
	const user = "a-user-to-forget"
	b := stepsBoard(leaderboard.Best)
	b.Matches = true
	for _, hasResults := range []bool{false, true} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("the user has results: %v, the writer dies: %v", hasResults, dies), func(t *testing.T) {
				t.Parallel()
				for index, more := 0, true; more; index++ {
					m := newModel(nil)
					w := newWriters(t, sharedModel(m), b, user)
					ctx := t.Context()
					if hasResults {
						if err := w.apply(ctx, w.stores[0], "m 5 red"); err != nil {
							t.Fatal(err)
						}
					}
					r := []leaderboard.MatchResult{w.result("x 50 blue")}
					var applyErr error
					step, die := w.conns[0].walk(func() { applyErr = w.send(ctx, w.stores[0], r) })
					more = step(index)
					if dies {
						die()
						applyErr = nil
					}
					err := erase(ctx, w, w.stores[1])
					for !dies && step(1000) {
					}
					restarted := openTest(m, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: 10})
					if err := errors.Join(err, applyErr, w.send(ctx, restarted, r)); err != nil {
						t.Fatalf("the writer stopped after %d statements: %v", index, err)
					}
					if tables := m.mentions(user); slices.Contains(tables, "rows") || dies && len(tables) > 0 {
						t.Fatalf("the writer stopped after %d statements: the tables %v mention the erased user", index, tables)
					}
				}
			})
		}
	}
}

// A void without a time and a deletion of the season run concurrently. The deletion also
// deletes the void, so only a later result opens the season.
func TestModelOfAVoidBesideADeletion(t *testing.T) {
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	b := stepsBoard(leaderboard.Sum)
	b.Matches = true
	for _, order := range append(orders(t, 30, needs.More(t, 30)), schedule{100}) {
		for first := range 2 {
			w := newWriters(t, sharedModel(newModel(nil)), b, "u")
			ctx := t.Context()
			if err := w.apply(ctx, w.stores[0], "m 1", "x 5"); err != nil {
				t.Fatal(err)
			}
			calls := [2]func() error{
				func() error { return void("x", 1)(ctx, w, w.stores[0]) },
				func() error { return w.stores[1].DeleteSeason(ctx, key, stepsEpoch.Add(time.Minute)) },
			}
			if err := w.race(calls, first, order); err != nil {
				t.Fatalf("calls[%d] begins, turns of %v statements: %v", first, order, err)
			}
			state, err := w.third.Match(ctx, leaderboard.MatchKey{SeasonKey: key, Match: "x"})
			inc, incErr := w.third.readIncarnation(ctx, key)
			if err := errors.Join(err, incErr); err != nil || state.Voids > 0 || inc.open {
				t.Fatalf("calls[%d] begins, turns of %v statements: the match is %+v and the season open: %v, error %v; want Voids 0 and no open season", first, order, state, inc.open, err)
			}
			w.clock = stepsEpoch.Add(time.Hour)
			if err := errors.Join(w.apply(ctx, w.stores[0], "x 7"), w.check(ctx)); err != nil {
				t.Fatal(err)
			}
			if e, err := w.third.Entry(ctx, key, w.user); err != nil || b.ScoreOf(e.Key, w.clock) != 7 {
				t.Fatalf("calls[%d] begins, turns of %v statements: after a later result, the entry is %+v, error %v; want 7 points", first, order, e, err)
			}
		}
	}
}

// race runs both calls in turns: calls[first] begins.
func (w *writers) race(calls [2]func() error, first int, order schedule) error {
	var errs [2]error
	var turns [2]func(int) bool
	for i := range turns {
		turns[i], _ = w.conns[i].walk(func() { errs[i] = calls[i]() })
	}
	order.run(turns[first], turns[1-first])
	return errors.Join(errs[:]...)
}
