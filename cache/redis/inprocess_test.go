package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

var (
	testBoard  = &leaderboard.Board{ID: "board", Divisions: []string{"gender"}}
	testSeason = leaderboard.SeasonKey{Board: "board", Season: leaderboard.SeasonAll}
	// epoch is the time of the tests' updates.
	epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
)

// entry returns a user's entry with the given version. If division is not "", the entry is in this
// division.
func entry(user string, version uint64, score int64, division string) leaderboard.Entry {
	e := leaderboard.Entry{
		SeasonKey: testSeason, User: leaderboard.UserID(user), Version: version,
		Key: testBoard.ScorePrefix(leaderboard.Score(score), epoch), AchievedAt: epoch.Add(time.Duration(version) * time.Second),
	}
	if division != "" {
		e.Divisions = []leaderboard.Division{{Attribute: "gender", Value: division}}
	}
	return e
}

func sequence(entries []leaderboard.Entry) func(func(leaderboard.Entry, error) bool) {
	return func(yield func(leaderboard.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// ladder returns the ranked standings of the entries that are in a division.
func ladder(t testing.TB, entries map[leaderboard.UserID]leaderboard.Entry, d leaderboard.Division) []leaderboard.Standing {
	t.Helper()
	var members []leaderboard.Entry
	for _, e := range entries {
		if e.Ranked() && (d.Overall() || slices.Contains(e.Divisions, d)) {
			members = append(members, e)
		}
	}
	slices.SortFunc(members, func(x, y leaderboard.Entry) int { return strings.Compare(string(x.SortKey()), string(y.SortKey())) })
	var out []leaderboard.Standing
	for s, err := range leaderboard.AssignRanks(sequence(members)) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// withoutDense returns the standings without their dense ranks, which seasons of several shards lack.
func withoutDense(all []leaderboard.Standing) []leaderboard.Standing {
	out := slices.Clone(all)
	for i := range out {
		out[i].Ranks.Dense = 0
	}
	return out
}

// checkLadders compares all ladders of the index with the ladders of entries.
func checkLadders(t testing.TB, x *Index, entries map[leaderboard.UserID]leaderboard.Entry) {
	t.Helper()
	divisions := map[leaderboard.Division]bool{{}: true}
	for _, e := range entries {
		for _, d := range e.Divisions {
			divisions[d] = true
		}
	}
	for d := range divisions {
		l := leaderboard.Ladder{SeasonKey: testSeason, Division: d}
		want := ladder(t, entries, d)
		_, _ = x.Loaded(t.Context(), testSeason) // so that x knows the season's number of shards
		methods := []leaderboard.Method{leaderboard.Competition, leaderboard.Ordinal}
		if len(*x.season(testSeason).control.Load()) == 1 {
			methods = nil // all
		} else {
			want = withoutDense(want)
		}
		got, v, err := x.Page(t.Context(), l, 1, len(want)+1, methods...)
		if err != nil {
			t.Fatal(err)
		}
		if methods != nil {
			got = withoutDense(got)
		}
		if diff := cmp.Diff(want, got); diff != "" || v.Size != int64(len(want)) {
			t.Fatalf("ladder %q: size %d, want %d; standings (-want +got)\n%s", d, v.Size, len(want), diff)
		}
		var users []leaderboard.UserID
		for _, s := range want {
			users = append(users, s.User)
		}
		got, _, err = x.Standings(t.Context(), l, users, methods...)
		if err != nil {
			t.Fatal(err)
		}
		if methods != nil {
			got = withoutDense(got)
		}
		if diff := cmp.Diff(want, got); diff != "" && len(want) > 0 {
			t.Fatalf("standings in %q (-want +got)\n%s", d, diff)
		}
	}
}

// The Lua scripts also work in a miniredis (see openLocal). Other tests need a real server, because Open
// refuses a server that does not report its identity, such as a miniredis.
func TestScriptsInProcess(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 0))
	smallTrees(t)
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			x := openLocal(t, shards)
			l := leaderboard.Ladder{SeasonKey: testSeason}
			if _, _, err := x.Page(t.Context(), l, 1, 1, leaderboard.Competition); !errors.Is(err, leaderboard.ErrRankUnavailable) {
				t.Fatalf("Page before a Rebuild: error %v, want ErrRankUnavailable", err)
			}
			entries := map[leaderboard.UserID]leaderboard.Entry{}
			var first []leaderboard.Entry
			for i := range 60 {
				e := entry(fmt.Sprint("user ", i), 1, rng.Int64N(6), string("FM"[rng.IntN(2)]))
				first, entries[e.User] = append(first, e), e
			}
			if err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(first)); err != nil {
				t.Fatal(err)
			}
			checkLadders(t, x, entries)
			for version := uint64(2); version < 12; version++ {
				e := entry(fmt.Sprint("user ", rng.IntN(70)), version, rng.Int64N(6), []string{"", "F", "M"}[rng.IntN(3)])
				e.Hidden = rng.IntN(5) == 0
				entries[e.User] = e
				stale := entry(string(e.User), version-1, 100, "X")
				if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e, stale}); err != nil {
					t.Fatal(err)
				}
			}
			checkLadders(t, x, entries)
			for _, s := range withoutDense(ladder(t, entries, leaderboard.Division{})) {
				around, _, err := x.Around(t.Context(), l, s.User, 0, 0, leaderboard.Competition)
				got := withoutDense(around.Standings)
				if err != nil || len(got) != 1 || got[0] != s {
					t.Fatalf("Around(%q) = %v, %v, want %v", s.User, got, err, s)
				}
			}
			if err := x.Drop(t.Context(), testSeason); err != nil {
				t.Fatal(err)
			}
			if keys, err := names(t.Context(), x); err != nil || len(keys) > 0 {
				t.Errorf("after Drop the keys %q remain, error %v; want none", keys, err)
			}
		})
	}
}

// Index.seasons never shrinks. Reads of seasons that do not exist add nothing to it.
func TestUnknownSeasonsLeaveNoState(t *testing.T) {
	x := openLocal(t, 2)
	for i := range 100 {
		s := leaderboard.SeasonKey{Board: "board", Season: leaderboard.SeasonID(fmt.Sprint(i))}
		if loaded, err := x.Loaded(t.Context(), s); loaded || err != nil {
			t.Fatalf("Loaded = %v, %v, want false, nil", loaded, err)
		}
		if _, _, err := x.Around(t.Context(), leaderboard.Ladder{SeasonKey: s}, "user", 1, 1, leaderboard.Competition); !errors.Is(err, leaderboard.ErrRankUnavailable) {
			t.Fatalf("Around: error %v, want ErrRankUnavailable", err)
		}
	}
	countStates := func() (n int) {
		x.seasons.Range(func(any, any) bool { n++; return true })
		return n
	}
	if n := countStates(); n != 0 {
		t.Errorf("Index.seasons has %d seasons, want none", n)
	}
	if err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(nil)); err != nil {
		t.Fatal(err)
	}
	x.seasons.Clear() // as in a new process
	x.queried.Purge()
	if loaded, err := x.Loaded(t.Context(), testSeason); !loaded || err != nil || countStates() != 1 {
		t.Errorf("Loaded = %v, %v, want true, nil; Index.seasons has %d seasons, want 1", loaded, err, countStates())
	}
}
