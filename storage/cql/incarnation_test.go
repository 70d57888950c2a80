package cql

import (
	"errors"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// In each round, a process dies before a different statement of DeleteSeason. Afterwards, a
// store that has cached the incarnation must return the same data as a new store.
func TestModelOfACachedIncarnationAfterAnInterruptedDeletion(t *testing.T) {
	ctx := t.Context()
	season := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	for index, more := 0, true; more; index++ {
		m := newModel(nil)
		b := stepsBoard(leaderboard.Sum)
		b.Matches = true
		w := newWriters(t, sharedModel(m), b, "u")
		err := errors.Join(w.apply(ctx, w.third, "m 5", "n 7"), void("m", 1)(ctx, w, w.third))
		if err != nil {
			t.Fatal(err)
		}
		step, die := w.conns[0].walk(func() { _ = w.stores[0].DeleteSeason(ctx, season, time.Time{}) })
		more = step(index)
		die()
		type data struct {
			hasEntry, hasResult, hasUsers bool
			match                         leaderboard.MatchState
		}
		// Each read may drop the cached incarnation, so restoreCache runs before each read.
		read := func(s *testStore, restoreCache func()) (d data) {
			var err error
			restoreCache()
			if _, err = s.Entry(ctx, season, "u"); err == nil {
				d.hasEntry = true
			} else if !errors.Is(err, leaderboard.ErrEntryNotFound) {
				t.Fatal(err)
			}
			restoreCache()
			if _, err = s.Result(ctx, leaderboard.ResultKey{SeasonKey: season, User: "u", Match: "m"}); err == nil {
				d.hasResult = true
			} else if !errors.Is(err, leaderboard.ErrResultNotFound) {
				t.Fatal(err)
			}
			restoreCache()
			if d.hasUsers, err = s.HasUsers(ctx, season); err != nil {
				t.Fatal(err)
			}
			restoreCache()
			if d.match, err = s.Match(ctx, leaderboard.MatchKey{SeasonKey: season, Match: "m"}); err != nil {
				t.Fatal(err)
			}
			return d
		}
		cached := w.third.incarnations.cached[season]
		got := read(w.third, func() { w.third.incarnations.cached[season] = cached })
		want := read(openTest(m, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: -1}), func() {})
		if got != want {
			t.Errorf("the process died before statement %d: a store with a cached incarnation returns %+v, want %+v as a new store", index, got, want)
		}
	}
}
