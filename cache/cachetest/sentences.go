package cachetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// five loads five users: a tie of two at the top, then one, then a tie of two.
func (f *fixture) five() {
	f.t.Helper()
	f.rebuild(
		f.entry("ann", 1, 30, 1, "gender:F", "country:KEN"),
		f.entry("bob", 1, 30, 2, "gender:M"),
		f.entry("cid", 1, 20, 0, "gender:M", "country:KEN"),
		f.entry("dan", 1, 10, 5, "gender:M"),
		f.entry("eve", 1, 10, 6, "gender:F"),
	)
}

func sizeIsTheNumberOfStandings(t *testing.T, f *fixture) {
	f.five()
	for ladder, want := range map[string]int64{"": 5, "gender:F": 2, "gender:M": 3, "country:KEN": 2, "country:NOR": 0} {
		_, v, err := f.x.Page(t.Context(), f.ladder(ladder), 1, 1)
		f.must(err)
		if v.Size != want {
			t.Errorf("ladder %q: size %d, want %d", ladder, v.Size, want)
		}
	}
}

func asOfIsTheTimeOfTheLastChange(t *testing.T, f *fixture) {
	asOf := func() time.Time {
		t.Helper()
		_, v, err := f.x.Count(t.Context(), f.ladder(""), nil)
		f.must(err)
		return v.AsOf
	}
	f.must(f.x.Rebuild(t.Context(), f.b, f.s, time.Time{}, sequence()))
	if got := asOf(); !got.IsZero() {
		t.Errorf("as of %v before any change, want the zero time", got)
	}
	first, second := f.tick(), f.tick()
	f.must(f.x.Update(t.Context(), f.s, second, []leaderboard.Entry{f.entry("ann", 1, 1, 0)}))
	if got := asOf(); !got.Equal(second) {
		t.Errorf("as of %v after an update of %v", got, second)
	}
	f.must(f.x.Update(t.Context(), f.s, first, []leaderboard.Entry{f.entry("bob", 1, 1, 0)}))
	if got := asOf(); !got.Equal(second) {
		t.Errorf("as of %v after updates of %v and %v", got, second, first)
	}
	third := f.tick()
	f.must(f.x.Rebuild(t.Context(), f.b, f.s, third, sequence()))
	if got := asOf(); !got.Equal(third) {
		t.Errorf("as of %v after a rebuild of %v", got, third)
	}
}

func emptyLadderIsNoError(t *testing.T, f *fixture) {
	f.rebuild()
	f.agrees()
	f.five()
	f.agreesIn(leaderboard.Division{Attribute: "gender", Value: "X"})
	f.agreesIn(leaderboard.Division{Attribute: "no_such_attribute", Value: "X"})
}

// unavailable checks that no read of f's scope is answered.
func (f *fixture) unavailable() {
	t, ctx, l := f.t, f.t.Context(), f.ladder("")
	t.Helper()
	errs := map[string]error{}
	_, _, errs["Standings"] = f.x.Standings(ctx, l, []leaderboard.UserID{"ann"})
	_, _, errs["Page"] = f.x.Page(ctx, l, 1, 10)
	_, _, errs["PageAfter"] = f.x.PageAfter(ctx, l, "", 10)
	_, _, errs["Around"] = f.x.Around(ctx, l, "ann", 1, 1)
	_, _, errs["Count"] = f.x.Count(ctx, l, []leaderboard.RankKey{"\x00"})
	for method, err := range errs {
		if !errors.Is(err, leaderboard.ErrRankUnavailable) {
			t.Errorf("%s: error %v, want ErrRankUnavailable", method, err)
		}
	}
	if loaded, err := f.x.Loaded(ctx, f.s); loaded || err != nil {
		t.Errorf("loaded %v, error %v", loaded, err)
	}
}

func unavailableWhileNotLoaded(t *testing.T, f *fixture) {
	f.unavailable()
	f.five()
	f.with(f.b, leaderboard.Scope{Board: f.b.ID, Season: "other"}).unavailable()
}

func standingsAreInTheOrderGiven(t *testing.T, f *fixture) {
	f.five()
	all := f.m.standings(leaderboard.Division{})
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 2, 0}, {3}, {1, 1, 0, 1}, {}} {
		var users []leaderboard.UserID
		var want []leaderboard.Standing
		for _, i := range order {
			users, want = append(users, all[i].User), append(want, all[i])
		}
		got, _, err := f.x.Standings(t.Context(), f.ladder(""), users)
		f.must(err)
		diff(t, fmt.Sprint(users), want, got)
	}
}

func standingsOfUsersWhoDoNotStandAreEmpty(t *testing.T, f *fixture) {
	f.five()
	hidden := f.entry("fay", 1, 40, 0, "gender:F")
	hidden.Hidden = true
	f.update(hidden)
	got, _, err := f.x.Standings(t.Context(), f.ladder("gender:F"), []leaderboard.UserID{"bob", "fay", "eve", "nobody"})
	f.must(err)
	diff(t, "standings", []leaderboard.Standing{
		{User: "bob"}, {User: "fay"}, f.m.standings(f.ladder("gender:F").Division)[1], {User: "nobody"},
	}, got)
}

func ranksByEveryMethod(t *testing.T, f *fixture) {
	f.five()
	got, _, err := f.x.Page(t.Context(), f.ladder(""), 1, 5)
	f.must(err)
	want := []leaderboard.Ranks{
		{Competition: 1, Dense: 1, Ordinal: 1}, {Competition: 1, Dense: 1, Ordinal: 2}, {Competition: 3, Dense: 2, Ordinal: 3},
		{Competition: 4, Dense: 3, Ordinal: 4}, {Competition: 4, Dense: 3, Ordinal: 5},
	}
	var ranks []leaderboard.Ranks
	for _, s := range got {
		ranks = append(ranks, s.Ranks)
	}
	diff(t, "ranks", want, ranks)
}

func tiesByTimeThenUser(t *testing.T, f *fixture) {
	micro := func(user leaderboard.UserID, micros int64) leaderboard.Entry {
		return f.entryOf(user, 1, &leaderboard.MatchResult{Score: 7, AchievedAt: time.UnixMicro(micros).UTC()})
	}
	const now = 1_800_000_000_000_000
	first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()
	want := []leaderboard.Entry{
		micro("z", first), micro("y", -1), micro("x", 0), micro("w", 1),
		micro("a", now), micro("aa", now), micro("b", now), micro("A0", now+1), micro("Z", last),
	}
	f.rebuild(want...)
	got, _, err := f.x.Page(t.Context(), f.ladder(""), 1, 20)
	f.must(err)
	var users, gotUsers []leaderboard.UserID
	for _, e := range want {
		users = append(users, e.User)
	}
	for _, s := range got {
		gotUsers = append(gotUsers, s.User)
	}
	diff(t, "order", users, gotUsers)
	f.agrees()
}

func pageFromAPosition(t *testing.T, f *fixture) {
	f.five()
	all := f.m.standings(leaderboard.Division{})
	for _, c := range []struct {
		position int64
		n        int
		want     []leaderboard.Standing
	}{
		{1, 2, all[:2]}, {2, 2, all[1:3]}, {4, 100, all[3:]}, {5, 1, all[4:]}, {6, 1, nil},
		{1, 0, nil}, {3, math.MaxInt32, all[2:]}, {math.MaxInt64, 1, nil},
	} {
		got, _, err := f.x.Page(t.Context(), f.ladder(""), c.position, c.n)
		f.must(err)
		diff(t, fmt.Sprintf("%d from %d", c.n, c.position), c.want, got)
	}
}

func pageAfterASortKey(t *testing.T, f *fixture) {
	f.five()
	all := f.m.standings(leaderboard.Division{})
	after := leaderboard.SortKey("")
	for i := range all {
		got, _, err := f.x.PageAfter(t.Context(), f.ladder(""), after, 1)
		f.must(err)
		diff(t, fmt.Sprintf("page %d", i), all[i:i+1], got)
		after = got[0].SortKey()
	}
	got, _, err := f.x.PageAfter(t.Context(), f.ladder(""), after, 1)
	f.must(err)
	diff(t, "behind the last", []leaderboard.Standing(nil), got)
}

func pageAfterAKeyThatNoStandingHas(t *testing.T, f *fixture) {
	f.five()
	all := f.m.standings(leaderboard.Division{})
	at := func(score leaderboard.Score, second int, user leaderboard.UserID) leaderboard.SortKey {
		e := f.entry(user, 1, score, second)
		return e.SortKey()
	}
	gone := all[2].SortKey()
	f.update(f.none("cid", 2))
	all = f.m.standings(leaderboard.Division{})
	for _, c := range []struct {
		name  string
		after leaderboard.SortKey
		want  []leaderboard.Standing
	}{
		{"of a standing that has gone", gone, all[2:]},
		{"better than all", at(31, 0, "a"), all},
		{"worse than all", at(9, 0, "a"), nil},
		{"between two scores", at(15, 0, "a"), all[2:]},
		{"between two times of a tie", at(30, 1, "zoe"), all[1:]},
		{"between two users of a time", at(30, 1, "an"), all},
		{"behind a user of a time", at(30, 1, "ann "), all[1:]},
	} {
		got, _, err := f.x.PageAfter(t.Context(), f.ladder(""), c.after, 10)
		f.must(err)
		diff(t, c.name, c.want, got)
	}
}

func aroundIsClippedAtTheEnds(t *testing.T, f *fixture) {
	f.five()
	all := f.m.standings(leaderboard.Division{})
	for _, c := range []struct {
		user         leaderboard.UserID
		above, below int
		want         []leaderboard.Standing
	}{
		{"ann", 4, 4, all}, {"ann", 2, 1, all[:2]}, {"cid", 1, 1, all[1:4]}, {"cid", 4, 4, all},
		{"eve", 1, 3, all[3:]}, {"eve", 0, 0, all[4:]}, {"dan", math.MaxInt32, math.MaxInt32, all},
	} {
		got, _, err := f.x.Around(t.Context(), f.ladder(""), c.user, c.above, c.below)
		f.must(err)
		diff(t, fmt.Sprintf("%q, %d above and %d below", c.user, c.above, c.below), c.want, got)
	}
}

func aroundAUserWhoDoesNotStand(t *testing.T, f *fixture) {
	f.five()
	f.update(f.none("eve", 2))
	for ladder, users := range map[string][]leaderboard.UserID{
		"": {"nobody", "eve"}, "gender:F": {"bob", "eve"}, "gender:X": {"ann"}, "country:KEN": {"bob"},
	} {
		for _, user := range users {
			if _, _, err := f.x.Around(t.Context(), f.ladder(ladder), user, 1, 1); !errors.Is(err, leaderboard.ErrEntryNotFound) {
				t.Errorf("%q in %q: error %v, want ErrEntryNotFound", user, ladder, err)
			}
		}
	}
}

func countStrictlyBefore(t *testing.T, f *fixture) {
	f.five()
	var keys []leaderboard.RankKey
	for _, score := range []leaderboard.Score{31, 30, 29, 20, 15, 10, 9} {
		keys = append(keys, f.b.ScorePrefix(score, f.now))
	}
	for ladder, want := range map[string][]leaderboard.Counts{
		"":         {{}, {}, {Standings: 2, Distinct: 1}, {Standings: 2, Distinct: 1}, {Standings: 3, Distinct: 2}, {Standings: 3, Distinct: 2}, {Standings: 5, Distinct: 3}},
		"gender:F": {{}, {}, {Standings: 1, Distinct: 1}, {Standings: 1, Distinct: 1}, {Standings: 1, Distinct: 1}, {Standings: 1, Distinct: 1}, {Standings: 2, Distinct: 2}},
		"gender:X": {{}, {}, {}, {}, {}, {}, {}},
	} {
		got, _, err := f.x.Count(t.Context(), f.ladder(ladder), keys)
		f.must(err)
		diff(t, ladder, want, got)
	}
}

func countTakesTheBeginningOfAKey(t *testing.T, f *fixture) {
	b := &leaderboard.Board{ID: "ties", TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}}}
	f = f.with(b, leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll})
	entry := func(user leaderboard.UserID, score leaderboard.Score, wins int64) leaderboard.Entry {
		return f.entryOf(user, 1, &leaderboard.MatchResult{Score: score, TieBreakers: []int64{wins}, AchievedAt: start})
	}
	f.rebuild(entry("ann", 30, 2), entry("bob", 30, 1), entry("cid", 20, 9), entry("dan", 20, 0))
	keys := []leaderboard.RankKey{b.ScorePrefix(30, f.now), b.ScorePrefix(25, f.now), b.ScorePrefix(20, f.now), b.ScorePrefix(19, f.now), "\x00", "\xff"}
	got, _, err := f.x.Count(t.Context(), f.ladder(""), keys)
	f.must(err)
	diff(t, "counts", []leaderboard.Counts{{}, {Standings: 2, Distinct: 2}, {Standings: 2, Distinct: 2}, {Standings: 4, Distinct: 4}, {}, {Standings: 4, Distinct: 4}}, got)
}

func updateMovesInEveryLadder(t *testing.T, f *fixture) {
	f.five()
	f.update(f.entry("cid", 2, 35, 9, "gender:M", "country:NOR"))
	f.agrees()
	f.update(f.entry("cid", 3, 35, 9, "gender:F"))
	f.agrees()
	f.update(f.entry("cid", 4, 5, 9))
	f.agrees()
	f.update(f.entry("fay", 1, 30, 2, "gender:F", "country:FIN")) // new, between two of a tie
	f.agrees()
}

func updateRemovesWhoIsNotRanked(t *testing.T, f *fixture) {
	f.five()
	hidden := f.entry("ann", 2, 30, 1, "gender:F", "country:KEN")
	hidden.Hidden = true
	f.update(hidden)
	f.agrees()
	f.update(f.none("eve", 2))
	f.agrees()
	f.update(f.none("never seen", 5))
	f.agrees()
	f.update(f.entry("ann", 3, 30, 1, "gender:F", "country:KEN"), f.entry("eve", 3, 50, 1, "gender:F"))
	f.agrees()
	for _, user := range []leaderboard.UserID{"ann", "bob", "cid", "dan", "eve"} {
		f.update(f.none(user, 9))
		f.agrees()
	}
}

func updateOfAVersionNotGreaterChangesNothing(t *testing.T, f *fixture) {
	f.five()
	f.update(f.entry("ann", 5, 15, 0))
	for _, stale := range []leaderboard.Entry{f.entry("ann", 4, 99, 0), f.none("ann", 3), f.entry("ann", 5, 15, 0), f.entry("ann", 1, 30, 1, "gender:F")} {
		f.update(stale)
		f.agrees()
	}
	f.update(f.none("ann", 6)) // retracted, banned or erased: the version stays known
	f.update(f.entry("ann", 5, 15, 0))
	f.agrees()
	f.update(f.none("new", 2))
	f.update(f.entry("new", 1, 99, 0))
	f.agrees()
	f.update(f.entry("ann", 7, 12, 0), f.entry("new", 3, 99, 0))
	f.agrees()
	// Versions are large in practice: they add up revisions, which may be times in milliseconds.
	f.update(f.entry("ann", math.MaxUint64, 13, 0))
	f.update(f.entry("ann", math.MaxUint64-1, 14, 0), f.entry("bob", 1<<53+1, 16, 0))
	f.update(f.entry("bob", 1<<53, 17, 0))
	f.agrees()
}

func updatesMayBeRepeatedAndComeInAnyOrder(t *testing.T, f *fixture) {
	f.five()
	rng := random(t)
	var updates []leaderboard.Entry
	for version := uint64(2); version < 12; version++ {
		for _, user := range []leaderboard.UserID{"ann", "bob", "fay"} {
			e := f.entry(user, version, leaderboard.Score(rng.IntN(40)), int(version), "gender:"+string("FMX"[rng.IntN(3)]))
			updates = append(updates, e, e)
		}
	}
	for _, e := range shuffled(rng, updates) {
		f.update(e)
	}
	f.agrees()
}

func updateWhileNotLoadedIsNothing(t *testing.T, f *fixture) {
	f.must(f.x.Update(t.Context(), f.s, f.tick(), []leaderboard.Entry{f.entry("ann", 9, 1, 0)}))
	f.unavailable()
	f.rebuild(f.entry("bob", 1, 2, 0))
	f.agrees()
}

func updateOfManyEntries(t *testing.T, f *fixture) {
	f.five()
	rng := random(t)
	var many []leaderboard.Entry
	for i := range 150 {
		many = append(many, f.entry(leaderboard.UserID(fmt.Sprint("user ", i)), uint64(1+rng.IntN(3)), leaderboard.Score(rng.IntN(20)), i, fmt.Sprint("gender:", i%3)))
	}
	many = append(many, f.entry("user 3", 9, 100, 0), f.entry("user 3", 7, 50, 0), f.entry("ann", 2, 100, 0))
	f.update(many...)
	f.agrees()
	f.update()
	f.agrees()
}

func scopesAreApart(t *testing.T, f *fixture) {
	scopes := []*fixture{f}
	for _, s := range []leaderboard.Scope{{Board: "board", Season: "al"}, {Board: "board", Season: "all:"}, {Board: "boar", Season: "dall"}, {Board: "board:all", Season: "all"}} {
		b := *f.b
		b.ID = s.Board
		scopes = append(scopes, f.with(&b, s))
	}
	for i, g := range scopes {
		g.rebuild(g.entry("ann", 1, leaderboard.Score(i), 0, "gender:F"), g.entry(leaderboard.UserID(fmt.Sprint("user ", i)), 1, 3, 0))
	}
	for i, g := range scopes {
		g.update(g.entry("ann", uint64(i), leaderboard.Score(10*i), 0, "gender:F"))
	}
	for _, g := range scopes {
		g.agrees()
	}
	f.must(f.x.Drop(t.Context(), scopes[1].s))
	scopes[1].unavailable()
	for i, g := range scopes {
		if i != 1 {
			g.agrees()
		}
	}
}

// many returns entries of n users, of whom some are not ranked.
func (f *fixture) many(rng *rand.Rand, n int) []leaderboard.Entry {
	var entries []leaderboard.Entry
	for i := range n {
		e := f.entry(leaderboard.UserID(fmt.Sprint("user ", i)), uint64(1+rng.IntN(5)), leaderboard.Score(rng.IntN(30)), rng.IntN(5),
			"gender:"+string("FMX"[rng.IntN(3)]), fmt.Sprint("country:", rng.IntN(10)))
		switch rng.IntN(10) {
		case 0:
			e.Hidden = true
		case 1:
			e = f.none(e.User, e.Version)
		}
		entries = append(entries, e)
	}
	return entries
}

func rebuildTakesEntriesInAnyOrder(t *testing.T, f *fixture) {
	rng := random(t)
	entries := f.many(rng, 100)
	bySortKey := func(x, y leaderboard.Entry) int { return strings.Compare(string(x.SortKey()), string(y.SortKey())) }
	f.rebuild(entries...)
	f.agrees()
	slices.SortFunc(entries, bySortKey)
	f.rebuild(entries...)
	f.agrees()
	slices.Reverse(entries)
	f.rebuild(entries...)
	f.agrees()
	// Stale updates of what Rebuild read change nothing, also for the unranked.
	for _, e := range entries {
		if e.Version > 1 {
			f.update(f.entry(e.User, e.Version-1, 99, 0))
		}
	}
	f.agrees()
}

func rebuildFillsAnew(t *testing.T, f *fixture) {
	f.five()
	f.rebuild(f.entry("fay", 1, 5, 0, "gender:F"), f.entry("ann", 1, 4, 0))
	f.agrees()
	f.rebuild()
	f.agrees()
}

func rebuildTakesNoteOfUpdatesBeforeItReads(t *testing.T, f *fixture) {
	for _, loaded := range []bool{false, true} {
		newer := f.entry("ann", 2, 50, 0, "gender:F")
		gone := f.none("bob", 2)
		fresh := f.entry("new", 1, 40, 0)
		at := f.tick()
		err := f.x.Rebuild(t.Context(), f.b, f.s, at, func(yield func(leaderboard.Entry, error) bool) {
			// The store was written before these updates, and read before that.
			f.update(newer)
			if !yield(f.entry("ann", 1, 10, 0, "gender:M"), nil) {
				return
			}
			f.update(gone, fresh)
			yield(f.entry("bob", 1, 20, 0), nil)
		})
		f.must(err)
		f.m = &model{entries: map[leaderboard.UserID]leaderboard.Entry{}}
		f.m.update(f.now, newer, gone, fresh)
		f.agrees()
		f.update(f.entry("bob", 1, 20, 0)) // stale
		f.agrees()
		if !loaded {
			f.five()
		}
	}
}

func readsSeeTheOldUntilRebuildReturns(t *testing.T, f *fixture) {
	before := f.with(f.b, f.s)
	err := f.x.Rebuild(t.Context(), f.b, f.s, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
		before.unavailable()
		yield(f.entry("zoe", 1, 1, 0), nil)
		before.unavailable()
	})
	f.must(err)
	f.five()
	at := f.tick()
	err = f.x.Rebuild(t.Context(), f.b, f.s, at, func(yield func(leaderboard.Entry, error) bool) {
		f.agrees()
		yield(f.entry("fay", 1, 99, 0), nil)
		f.agrees()
		f.update(f.entry("ann", 2, 5, 0))
		f.agrees()
		yield(f.entry("gil", 1, 98, 0), nil)
		f.agrees()
	})
	f.must(err)
	f.m = &model{entries: map[leaderboard.UserID]leaderboard.Entry{}}
	f.m.update(f.now, f.entry("fay", 1, 99, 0), f.entry("gil", 1, 98, 0), f.entry("ann", 2, 5, 0))
	f.agrees()
}

func rebuildThatFailsChangesNothing(t *testing.T, f *fixture) {
	broken := errors.New("the store is gone")
	fails := func(during func()) {
		t.Helper()
		err := f.x.Rebuild(t.Context(), f.b, f.s, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
			if yield(f.entry("fay", 1, 99, 0), nil) {
				during()
				yield(leaderboard.Entry{}, broken)
			}
		})
		if !errors.Is(err, broken) {
			t.Fatalf("error %v, want the iterator's", err)
		}
	}
	fails(func() {})
	f.unavailable()
	f.five()
	fails(func() { f.update(f.entry("ann", 2, 1, 0)) })
	f.agrees()
	f.update(f.entry("ann", 3, 50, 0))
	f.agrees()
	f.rebuild(f.entry("gil", 1, 1, 0))
	f.agrees()
}

func rebuildStopsWhenItsContextIsDone(t *testing.T, f *fixture) {
	f.five()
	ctx, cancel := context.WithCancel(t.Context())
	var yielded int
	err := f.x.Rebuild(ctx, f.b, f.s, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
		for cancel(); yielded < 1_000_000; yielded++ {
			if !yield(f.entry(leaderboard.UserID(fmt.Sprint("user ", yielded)), 1, 1, 0), nil) {
				return
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.Canceled", err)
	}
	if yielded == 1_000_000 {
		t.Error("all entries were read after the context was done")
	}
	f.agrees()
}

func rebuildsFollowOneAnother(t *testing.T, f *fixture) {
	var firstReturned atomic.Bool
	began, second := make(chan struct{}), make(chan error, 1)
	go func() {
		<-began
		second <- f.x.Rebuild(t.Context(), f.b, f.s, f.now, func(yield func(leaderboard.Entry, error) bool) {
			if !firstReturned.Load() {
				yield(leaderboard.Entry{}, errors.New("the second Rebuild reads while the first runs"))
				return
			}
			yield(f.entry("second", 1, 1, 0), nil)
		})
	}()
	other := f.with(f.b, leaderboard.Scope{Board: f.b.ID, Season: "other"})
	err := f.x.Rebuild(t.Context(), f.b, f.s, f.now, func(yield func(leaderboard.Entry, error) bool) {
		close(began)
		// A Rebuild of another scope does not wait for this one. It also gives
		// the second time to begin, if it would.
		for range 20 {
			other.rebuild(other.entry("ann", 1, 1, 0))
		}
		other.agrees()
		yield(f.entry("first", 1, 1, 0), nil)
		firstReturned.Store(true)
	})
	f.must(err)
	f.must(<-second)
	f.m.update(f.now, f.entry("second", 1, 1, 0))
	f.agrees()

	// One that waits stops waiting when its context is done.
	err = f.x.Rebuild(t.Context(), f.b, f.s, f.now, func(yield func(leaderboard.Entry, error) bool) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.x.Rebuild(ctx, f.b, f.s, f.now, sequence()); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v of a Rebuild whose context is done, want context.Canceled", err)
		}
		yield(f.entry("second", 1, 1, 0), nil)
	})
	f.must(err)
	f.agrees()
}

func loadedUntilDropped(t *testing.T, f *fixture) {
	loaded := func() bool {
		t.Helper()
		ok, err := f.x.Loaded(t.Context(), f.s)
		f.must(err)
		return ok
	}
	if loaded() {
		t.Error("loaded before any Rebuild")
	}
	f.rebuild()
	if !loaded() {
		t.Error("not loaded after a Rebuild of no entries")
	}
	f.must(f.x.Drop(t.Context(), f.s))
	if loaded() {
		t.Error("loaded after Drop")
	}
	f.must(f.x.Drop(t.Context(), f.s))
	f.five()
	if !loaded() {
		t.Error("not loaded after a Rebuild")
	}
}

func dropForgets(t *testing.T, f *fixture) {
	f.five()
	f.update(f.entry("ann", 50, 1, 0))
	f.must(f.x.Drop(t.Context(), f.s))
	f.unavailable()
	f.rebuild(f.entry("ann", 1, 30, 1)) // as of a board that was deleted and made again
	f.agrees()
	f.update(f.entry("ann", 2, 31, 1))
	f.agrees()
}

func dropOvertakesARebuild(t *testing.T, f *fixture) {
	f.five()
	err := f.x.Rebuild(t.Context(), f.b, f.s, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
		f.must(f.x.Drop(t.Context(), f.s))
		f.must(f.x.Update(t.Context(), f.s, f.tick(), []leaderboard.Entry{f.entry("gil", 1, 1, 0)}))
		yield(f.entry("fay", 1, 99, 0), nil)
	})
	if !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v, want ErrRankUnavailable", err)
	}
	f.unavailable()
	f.five()
	f.agrees()
}

// hostile returns ids that are easily confused.
func hostile() []leaderboard.UserID {
	ids := []leaderboard.UserID{
		"a", "aa", "aaa", "aab", "a ", "a!", "a:", "a;", "a/", "a0", "a|", "a~", "A", " a", " ",
		"1", "10", "2", "-1", "0", "00", "1e3", "NaN", "nil", "null", "user", "{a}", "{", "}", "{}a", "*", "?", "[a-z]", "\\", "\"", "'", "%", "%00", "%s",
		"a\u00e4", "a\u0301", "\u00e1", "\u07ff", "\u0800", "\uffee", "\ufffd", "\U00010000", "\U0001f600", "\u6f22", "\u5b57",
	}
	long := strings.Repeat("x", leaderboard.MaxIDBytes-1)
	return append(ids, leaderboard.UserID(long), leaderboard.UserID(long+"x"), leaderboard.UserID(long+"y"), leaderboard.UserID(strings.Repeat("\U00010000", leaderboard.MaxIDBytes/4)))
}

func hostileIDs(t *testing.T, f *fixture) {
	ids := hostile()
	for i, id := range ids {
		f.must(id.Validate())
		if slices.Index(ids, id) < i {
			t.Fatalf("%q is given twice", id)
		}
	}
	for _, ties := range []bool{true, false} {
		var entries []leaderboard.Entry
		for i, id := range ids {
			score := leaderboard.Score(7)
			if !ties {
				score = leaderboard.Score(i / 3)
			}
			// The ids serve as divisions too.
			entries = append(entries, f.entry(id, 1, score, 0, "country:"+string(ids[i%7]), "gender:"+string(ids[len(ids)-1-i%5])))
		}
		f.rebuild(entries...)
		f.agrees()
	}
	for i, id := range ids {
		switch i % 3 {
		case 0:
			f.update(f.none(id, 2))
		case 1:
			f.update(f.entry(id, 2, 7, 0, "country:"+string(ids[(i+1)%7])))
		}
	}
	f.agrees()
}
