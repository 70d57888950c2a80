package memory

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func TestIndex(t *testing.T) {
	open := func(testing.TB) leaderboard.Index { return New() }
	sizes := cachetest.Sizes{Histories: needs.More(t, 6), Positions: needs.More(t, 3)}
	cachetest.Run(t, open, cachetest.Limits{}, sizes)
	t.Run("RandomHistories", func(t *testing.T) { cachetest.RunHistories(t, open, cachetest.Limits{}, sizes) })
}

var (
	testBoard  = &leaderboard.Board{ID: "board", Divisions: []string{"a"}}
	testSeason = leaderboard.SeasonKey{Board: "board", Season: leaderboard.SeasonAll}
	testLadder = leaderboard.Ladder{SeasonKey: testSeason}
)

func entries(n int) func(func(leaderboard.Entry, error) bool) {
	return func(yield func(leaderboard.Entry, error) bool) {
		for i := range n {
			if !yield(entry(fmt.Sprint("user ", i), uint64(i*7919%n), 0, 1), nil) {
				return
			}
		}
	}
}

// n is more than loadChunk, so load inserts two chunks. updated is more than lastEntries of swap, so
// swap needs two rounds.
func TestRebuildIncludesConcurrentUpdates(t *testing.T) {
	const n, updated = loadChunk + 1000, 3000
	x := New()
	at := time.Unix(1e9, 0)
	err := x.Rebuild(t.Context(), testBoard, testSeason, at, func(yield func(leaderboard.Entry, error) bool) {
		var updates []leaderboard.Entry
		for i := range updated {
			updates = append(updates, entry(fmt.Sprint("user ", i), uint64(1e6+i), 0, uint64(2+i%3)))
			updates = append(updates, entry(fmt.Sprint("user ", i), 5, 0, 1))
		}
		if err := x.Update(t.Context(), testSeason, at.Add(time.Second), updates); err != nil {
			t.Error(err)
		}
		entries(n)(yield)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.season(testSeason).table.check(); err != nil {
		t.Fatal(err)
	}
	last, v, err := x.Page(t.Context(), testLadder, n-updated+1, updated)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range last {
		if s.User != leaderboard.UserID(fmt.Sprint("user ", i)) {
			t.Fatalf("%q stands at position %d, want \"user %d\" there", s.User, s.Ranks.Ordinal, i)
		}
	}
	if v.Size != n || !v.AsOf.Equal(at.Add(time.Second)) {
		t.Errorf("view %+v, want size %d as of %v", v, n, at.Add(time.Second))
	}
}

func TestAnInvalidUpdateDoesNotFailTheRebuild(t *testing.T) {
	x := New()
	invalid := []leaderboard.Entry{{User: "ann", Key: "short", Version: 9}}
	err := x.Rebuild(t.Context(), testBoard, testSeason, time.Unix(1e9, 0), func(yield func(leaderboard.Entry, error) bool) {
		if err := x.Update(t.Context(), testSeason, time.Unix(2e9, 0), invalid); !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("Update during the rebuild: error %v, want ErrFormat", err)
		}
		entries(3)(yield)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Update(t.Context(), testSeason, time.Unix(2e9, 0), invalid); !errors.Is(err, leaderboard.ErrFormat) {
		t.Errorf("Update after the rebuild: error %v, want ErrFormat", err)
	}
	if _, v, err := x.Page(t.Context(), testLadder, 1, 1); err != nil || v.Size != 3 || !v.AsOf.Equal(time.Unix(1e9, 0)) {
		t.Errorf("after the rejected updates the view is %+v, error %v; want size 3 and the time of the rebuild", v, err)
	}
	if _, _, err := x.Count(t.Context(), testLadder, []leaderboard.RankKey{"nine byte"}); !errors.Is(err, leaderboard.ErrFormat) {
		t.Errorf("Count of a key that is too long: error %v, want ErrFormat", err)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDropReleasesMemory(t *testing.T) {
	const n = 200_000
	x := New()
	before := heapInUse()
	if err := x.Rebuild(t.Context(), testBoard, testSeason, time.Now(), entries(n)); err != nil {
		t.Fatal(err)
	}
	if bytes := heapInUse() - before; bytes < 40*n || bytes > 80*n {
		t.Errorf("%d entries take %d bytes, want 40 to 80 per entry", n, bytes)
	}
	if err := x.Drop(t.Context(), testSeason); err != nil {
		t.Fatal(err)
	}
	if bytes := heapInUse() - before; bytes > n {
		t.Errorf("a dropped season still takes %d bytes, want at most %d", bytes, n)
	}
	if got := len(*x.seasons.Load()); got != 0 {
		t.Errorf("the index has %d seasons after Drop, want none", got)
	}
	runtime.KeepAlive(x)
}

func TestChurnDoesNotGrowMemory(t *testing.T) {
	needs.NoRace(t, "one change follows another")
	const n = 20_000
	x := New()
	if err := x.Rebuild(t.Context(), testBoard, testSeason, time.Now(), entries(n)); err != nil {
		t.Fatal(err)
	}
	version := uint64(1)
	rng := random(t)
	round := func() {
		version++
		for i := range n {
			user := fmt.Sprint("user ", rng.IntN(n))
			e := entry(user, rng.Uint64N(n), 0, version)
			e.Divisions = division(fmt.Sprint(rng.IntN(20), ".", version))
			if i%2 == 0 {
				e = unranked(user, version)
			}
			if err := x.Update(t.Context(), testSeason, time.Now(), []leaderboard.Entry{e}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Run rounds until the number of removed users' records no longer grows.
	for range 15 {
		round()
	}
	before := heapInUse()
	for range 15 {
		round()
	}
	if grown := heapInUse() - before; grown > 1<<18 {
		t.Errorf("15 rounds of churn grew the heap by %d bytes, want at most %d", grown, 1<<18)
	}
	if err := x.season(testSeason).table.check(); err != nil {
		t.Fatal(err)
	}
}

func TestManySmallSeasonsStaySmall(t *testing.T) {
	const seasons, users = 300, 10
	x := New()
	before := heapInUse()
	for i := range seasons {
		s := leaderboard.SeasonKey{Board: "board", Season: leaderboard.SeasonID(fmt.Sprint(i))}
		if err := x.Rebuild(t.Context(), testBoard, s, time.Now(), entries(users)); err != nil {
			t.Fatal(err)
		}
	}
	if bytes := (heapInUse() - before) / seasons; bytes > 8<<10 {
		t.Errorf("a season of %d users takes %d bytes, want at most %d", users, bytes, 8<<10)
	}
	runtime.KeepAlive(x)
}

type hookedContext struct {
	context.Context
	hook func()
}

func (c hookedContext) Err() error {
	c.hook()
	return c.Context.Err()
}

func TestUpdatesRunBetweenThePiecesOfALookUp(t *testing.T) {
	const n = 5000
	x := New()
	if err := x.Rebuild(t.Context(), testBoard, testSeason, time.Unix(1e9, 0), entries(n)); err != nil {
		t.Fatal(err)
	}
	var users []leaderboard.UserID
	for i := range n {
		users = append(users, leaderboard.UserID(fmt.Sprint("user ", i)))
	}
	updates := 0
	ctx := hookedContext{t.Context(), func() {
		updates++
		e := entry(string(users[n-1]), 0, 0, uint64(1+updates))
		if err := x.Update(t.Context(), testSeason, time.Unix(2e9, 0), []leaderboard.Entry{e}); err != nil {
			t.Error(err)
		}
	}}
	got, v, err := x.Standings(ctx, testLadder, users)
	if err != nil {
		t.Fatal(err)
	}
	if updates < n/standingsPiece {
		t.Errorf("%d updates ran during one look-up, want at least one for each %d users", updates, standingsPiece)
	}
	if !v.AsOf.Equal(time.Unix(1e9, 0)) {
		t.Errorf("the answer is as of %v, want the time of the rebuild", v.AsOf)
	}
	want, _, err := x.Standings(t.Context(), testLadder, users[n-1:])
	if err != nil || got[n-1] != want[0] {
		t.Errorf("the last user's standing is %+v, error %v; want the updated standing, %+v", got[n-1], err, want[0])
	}
}

func TestASeasonThatIsTooLargeIsUnavailable(t *testing.T) {
	x := New()
	at := time.Unix(1e9, 0)
	if err := x.Rebuild(t.Context(), testBoard, testSeason, at, entries(100)); err != nil {
		t.Fatal(err)
	}
	users := &x.season(testSeason).table.users
	users.max = users.end
	if err := x.Update(t.Context(), testSeason, at, []leaderboard.Entry{entry("user 7", 1, 1, 2)}); err != nil {
		t.Errorf("Update of a user in the index: error %v, want no error", err)
	}
	if err := x.Update(t.Context(), testSeason, at, []leaderboard.Entry{entry("one more", 1, 0, 1)}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Update of a user for whom the index has no space: error %v, want ErrRankUnavailable", err)
	}
	if _, _, err := x.Page(t.Context(), testLadder, 1, 10); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Page of the season: error %v, want ErrRankUnavailable", err)
	}
	if err := x.Rebuild(t.Context(), testBoard, testSeason, at, entries(101)); err != nil {
		t.Fatal(err)
	}
	if _, v, err := x.Page(t.Context(), testLadder, 1, 10); err != nil || v.Size != 101 {
		t.Errorf("Page after a rebuild: size %d, error %v; want 101", v.Size, err)
	}
}
