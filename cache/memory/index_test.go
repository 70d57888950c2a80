package memory

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
)

func TestIndex(t *testing.T) {
	cachetest.Run(t, func(tb testing.TB) leaderboard.Index {
		x := New()
		tb.Cleanup(func() {
			if err := x.Close(); err != nil {
				tb.Error(err)
			}
		})
		return x
	}, cachetest.Limits{})
}

var (
	testBoard = &leaderboard.Board{ID: "board", Divisions: []string{"a"}}
	testScope = leaderboard.Scope{Board: "board", Season: leaderboard.SeasonAll}
	testIn    = leaderboard.Ladder{Scope: testScope}
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

// TestRebuildWithManyUpdatesMeanwhile needs more than one chunk of entries, and
// more updates than are applied while readers wait.
func TestRebuildWithManyUpdatesMeanwhile(t *testing.T) {
	const n, changed = loadChunk + 1000, 3000
	x := New()
	at := time.Unix(1e9, 0)
	err := x.Rebuild(t.Context(), testBoard, testScope, at, func(yield func(leaderboard.Entry, error) bool) {
		var updates []leaderboard.Entry
		for i := range changed {
			updates = append(updates, entry(fmt.Sprint("user ", i), uint64(1e6+i), 0, uint64(2+i%3)))
			updates = append(updates, entry(fmt.Sprint("user ", i), 5, 0, 1))
		}
		if err := x.Update(t.Context(), testScope, at.Add(time.Second), updates); err != nil {
			t.Error(err)
		}
		entries(n)(yield)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.scope(testScope).table.check(); err != nil {
		t.Fatal(err)
	}
	last, v, err := x.Page(t.Context(), testIn, n-changed+1, changed)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range last {
		if s.User != leaderboard.UserID(fmt.Sprint("user ", i)) {
			t.Fatalf("%q stands at %d", s.User, s.Ranks.Ordinal)
		}
	}
	if v.Size != n || !v.AsOf.Equal(at.Add(time.Second)) {
		t.Errorf("view %+v", v)
	}
}

func TestAFaultyUpdateFailsTheUpdateAlone(t *testing.T) {
	x := New()
	faulty := []leaderboard.Entry{{User: "ann", Key: "short", Version: 9}}
	err := x.Rebuild(t.Context(), testBoard, testScope, time.Unix(1e9, 0), func(yield func(leaderboard.Entry, error) bool) {
		if err := x.Update(t.Context(), testScope, time.Unix(2e9, 0), faulty); !errors.Is(err, leaderboard.ErrFormat) {
			t.Errorf("error %v, want ErrFormat", err)
		}
		entries(3)(yield)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Update(t.Context(), testScope, time.Unix(2e9, 0), faulty); !errors.Is(err, leaderboard.ErrFormat) {
		t.Errorf("error %v, want ErrFormat", err)
	}
	if _, v, err := x.Page(t.Context(), testIn, 1, 1); err != nil || v.Size != 3 || !v.AsOf.Equal(time.Unix(1e9, 0)) {
		t.Errorf("view %+v, error %v", v, err)
	}
	if _, _, err := x.Count(t.Context(), testIn, []leaderboard.RankKey{"nine byte"}); !errors.Is(err, leaderboard.ErrFormat) {
		t.Errorf("count of a key too long: error %v, want ErrFormat", err)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDropReturnsMemory(t *testing.T) {
	const n = 200_000
	x := New()
	before := heapInUse()
	if err := x.Rebuild(t.Context(), testBoard, testScope, time.Now(), entries(n)); err != nil {
		t.Fatal(err)
	}
	if held := heapInUse() - before; held < 40*n || held > 80*n {
		t.Errorf("%d entries hold %d bytes", n, held)
	}
	if err := x.Drop(t.Context(), testScope); err != nil {
		t.Fatal(err)
	}
	if held := heapInUse() - before; held > n {
		t.Errorf("a dropped scope holds %d bytes", held)
	}
	if got := len(*x.scopes.Load()); got != 0 {
		t.Errorf("%d scopes are known", got)
	}
	runtime.KeepAlive(x)
}

func TestChurnDoesNotGrow(t *testing.T) {
	const n = 20_000
	x := New()
	if err := x.Rebuild(t.Context(), testBoard, testScope, time.Now(), entries(n)); err != nil {
		t.Fatal(err)
	}
	version := uint64(1)
	rng := random(t)
	round := func() {
		version++
		for i := range n {
			user := fmt.Sprint("user ", rng.IntN(n))
			e := entry(user, rng.Uint64N(n), 0, version)
			e.Divisions = division(fmt.Sprint(rng.IntN(20), ".", version)) // never the same again
			if i%2 == 0 {
				e = none(user, version)
			}
			if err := x.Update(t.Context(), testScope, time.Now(), []leaderboard.Entry{e}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 15 { // until as many removals are remembered as ever will
		round()
	}
	before := heapInUse()
	for range 15 {
		round()
	}
	if grown := heapInUse() - before; grown > 1<<18 {
		t.Errorf("15 rounds of churn grew the heap by %d bytes", grown)
	}
	if err := x.scope(testScope).table.check(); err != nil {
		t.Fatal(err)
	}
}

func TestManySmallScopesStaySmall(t *testing.T) {
	const scopes, users = 300, 10
	x := New()
	before := heapInUse()
	for i := range scopes {
		s := leaderboard.Scope{Board: "board", Season: leaderboard.SeasonID(fmt.Sprint(i))}
		if err := x.Rebuild(t.Context(), testBoard, s, time.Now(), entries(users)); err != nil {
			t.Fatal(err)
		}
	}
	if held := (heapInUse() - before) / scopes; held > 8<<10 {
		t.Errorf("a scope of %d users holds %d bytes", users, held)
	}
	runtime.KeepAlive(x)
}
