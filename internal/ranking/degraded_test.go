package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/faults"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

// shaky is a service whose servers may be down.
type shaky struct {
	*fixture
	store *faults.Store
	index *faults.Index
}

// openShaky returns a service with board b, on which ann has 5 points, bob and
// cyd 7 and dan 1; bob and dan are of the red team.
func openShaky(t *testing.T) shaky {
	t.Helper()
	store, err := pebble.Open("data", pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	f := shaky{store: &faults.Store{Store: store}, index: &faults.Index{Index: memory.New()}}
	f.fixture = over(t, f.store, f.index)
	t.Cleanup(func() {
		f.Service.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Divisions: []string{"team"}})
	for user, n := range map[string]int64{"ann": 5, "bob": 7, "cyd": 7, "dan": 1} {
		r := points(user, "m", n)
		r.AchievedAt = start.Add(-time.Hour)
		if user == "bob" || user == "dan" {
			r.Attributes = map[string]string{"team": "red"}
		}
		f.submit("b", r)
	}
	return f
}

var (
	boardB = ranking.Query{Board: "b"}
	red    = ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "team", Value: "red"}}
)

// whole checks that every read tells everything.
func (f shaky) whole(lines ...string) {
	f.t.Helper()
	f.wantList(boardB, lines...)
	page, err := f.Page(f.t.Context(), ranking.PageQuery{Query: boardB, Limit: 10})
	if err != nil || page.Degraded || page.AsOf.IsZero() {
		f.t.Errorf("page: %+v, %v", page, err)
	}
	user, err := f.User(f.t.Context(), boardB, "ann", 1, false)
	if err != nil || user.Degraded || user.Rank == 0 || len(user.Neighbors) < 2 {
		f.t.Errorf("user: %+v, %v", user, err)
	}
	stats, err := f.Stats(f.t.Context(), ranking.StatsQuery{Query: boardB, Buckets: 2})
	if err != nil || stats.Total != int64(len(lines)) {
		f.t.Errorf("stats: %+v, %v", stats, err)
	}
}

// unranked checks that every read tells what it can without the index: scores in
// their order, no ranks, no numbers of entrants, and that it does so.
func (f shaky) unranked() {
	f.t.Helper()
	told := func(what string, a ranking.About, lines []ranking.Line, want ...string) {
		f.t.Helper()
		got := make([]string, len(lines))
		for i, l := range lines {
			got[i] = fmt.Sprintf("%s %d", l.User, l.Score)
			if l.Rank != 0 {
				f.t.Errorf("%s: %s has rank %d", what, l.User, l.Rank)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			f.t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if !a.Degraded || a.Total != 0 || !a.AsOf.Equal(f.clock.now()) || a.Season.ID != leaderboard.SeasonAll {
			f.t.Errorf("%s: %+v", what, a)
		}
	}
	ctx := f.t.Context()
	// Pages follow one another as with the index.
	pq := ranking.PageQuery{Query: boardB, Limit: 3}
	first, err := f.Page(ctx, pq)
	if err != nil {
		f.t.Fatal(err)
	}
	told("first page", first.About, first.Lines, "bob 7", "cyd 7", "ann 5")
	pq.Token = first.Next
	second, err := f.Page(ctx, pq)
	if err != nil || second.Next != "" {
		f.t.Fatalf("second page: %+v, %v", second, err)
	}
	told("second page", second.About, second.Lines, "dan 1")
	exact, err := f.Page(ctx, ranking.PageQuery{Query: red, Limit: 2})
	if err != nil || exact.Next != "" {
		f.t.Fatalf("a page that ends with the ladder: %+v, %v", exact, err)
	}
	told("a division", exact.About, exact.Lines, "bob 7", "dan 1")

	user, err := f.User(ctx, red, "dan", 4, false)
	if err != nil || user.Percentile != 0 || user.Neighbors != nil {
		f.t.Errorf("user: %+v, %v", user, err)
	}
	told("user", user.About, []ranking.Line{user.Line}, "dan 1")
	if _, err := f.User(ctx, red, "ann", 4, false); !errors.Is(err, leaderboard.ErrEntryNotFound) {
		f.t.Errorf("a user of no division: %v", err)
	}
	lookup, err := f.Lookup(ctx, boardB, []leaderboard.UserID{"dan", "eve", "cyd", "bob"})
	if err != nil {
		f.t.Fatal(err)
	}
	told("lookup", lookup.About, lookup.Lines, "bob 7", "cyd 7", "dan 1")
	if diff := gocmp.Diff([]int64{1, 1, 3}, lookup.ListRanks); diff != "" {
		f.t.Errorf("ranks in the list: %s", diff)
	}
	if diff := gocmp.Diff([]leaderboard.UserID{"eve"}, lookup.Missing); diff != "" {
		f.t.Error(diff)
	}
	everywhere, err := f.UserScores(ctx, "ann", leaderboard.Competition)
	if err != nil || len(everywhere) != 1 {
		f.t.Fatalf("a user everywhere: %+v, %v", everywhere, err)
	}
	told("a user everywhere", everywhere[0].About, []ranking.Line{everywhere[0].Line}, "ann 5")
	seasons, err := f.Seasons(ctx, "b")
	if err != nil || len(seasons) != 1 || seasons[0].Total != nil {
		f.t.Errorf("seasons: %+v, %v", seasons, err)
	}
	// What cannot be told without ranks is refused.
	if _, err := f.Stats(ctx, ranking.StatsQuery{Query: boardB}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		f.t.Errorf("stats: %v", err)
	}
	if _, err := f.Page(ctx, ranking.PageQuery{Query: boardB, Limit: 1, Start: 2}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		f.t.Errorf("a page from position 2: %v", err)
	}
	if _, err := f.Page(ctx, ranking.PageQuery{Query: red, Limit: 3, Token: first.Next}); !errors.Is(err, leaderboard.ErrInvalid) {
		f.t.Errorf("a token of another ladder: %v", err)
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var watched ranking.Page
	err = f.Watch(watching, ranking.PageQuery{Query: boardB, Limit: 2}, func(p ranking.Page) error {
		watched = p
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		f.t.Error(err)
	}
	told("watch", watched.About, watched.Lines, "bob 7", "cyd 7")
}

func TestWithoutTheIndexReadsDegrade(t *testing.T) {
	for name, mode := range map[string]faults.Mode{"refuses": faults.Refuses, "hangs": faults.Hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openShaky(t)
				f.whole("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
				f.clock.set(start.Add(time.Minute))
				f.index.Set(mode)
				f.unranked()
				// Once it is known that the index does not answer, it holds nobody up.
				begun := time.Now()
				if _, err := f.User(t.Context(), boardB, "ann", 4, false); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took != 0 {
					t.Errorf("a read took %v", took)
				}
				f.index.Set(faults.Fine)
				time.Sleep(time.Minute) // of the bubble's clock
				f.whole("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
			})
		})
	}
}

// slowLadders counts reads of ladders, which take a second.
type slowLadders struct {
	leaderboard.Store
	reads atomic.Int64
}

func (s *slowLadders) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		s.reads.Add(1)
		all, err := collect(s.Store.Entries(ctx, l, after))
		time.Sleep(time.Second)
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(leaderboard.Entry{}, err)
		}
	}
}

func collect(entries iter.Seq2[leaderboard.Entry, error]) (all []leaderboard.Entry, err error) {
	for e, err := range entries {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Without the index all readers ask the store, and for the same page: it is read
// for those who wait together, and who comes after a write does not get what was
// read before it.
func TestWithoutTheIndexReadersShareAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openShaky(t)
		slow := &slowLadders{Store: f.store}
		g := over(t, slow, f.index)
		f.index.Set(faults.Refuses)
		var readers sync.WaitGroup
		for range 100 {
			readers.Go(func() {
				page, err := g.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
				if err != nil || len(page.Lines) != 2 || page.Next == "" {
					t.Errorf("page: %+v, %v", page, err)
				}
			})
		}
		synctest.Wait()
		f.submit("b", points("ann", "later", 90))
		page, err := g.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
		if err != nil || len(page.Lines) != 2 || page.Lines[0].User != "ann" {
			t.Errorf("after a write: %+v, %v", page, err)
		}
		readers.Wait()
		if n := slow.reads.Load(); n < 2 || n > 4 {
			t.Errorf("the store read %d ladders for 101 readers", n)
		}
		g.Service.Close()
	})
}

// Writes go on without the index, and are in it when it is back.
func TestWithoutTheIndexWritesGoOn(t *testing.T) {
	f := openShaky(t)
	f.index.Set(faults.Refuses)
	got := f.submit("b", points("ann", "m2", 9))
	if got.Score != 14 || got.Ranks != (leaderboard.Ranks{}) {
		t.Errorf("submit: %+v", got)
	}
	retracted, err := f.Retract(t.Context(), leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "bob", Match: "m"}, nil)
	if err != nil || retracted.Status != leaderboard.Applied || retracted.HasScore {
		t.Errorf("retract: %+v, %v", retracted, err)
	}
	if _, err := f.SetBan(t.Context(), "cyd", true, "aimbot"); err != nil {
		t.Error(err)
	}
	f.index.Set(faults.Fine)
	f.whole("ann 14 1", "dan 1 2")
}

// A board is not half deleted: its ranks would be found by the next of its id.
func TestWithoutTheIndexNoBoardIsDeleted(t *testing.T) {
	f := openShaky(t)
	f.index.Set(faults.Refuses)
	if err := f.DeleteBoard(t.Context(), "b"); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("delete: %v", err)
	}
	f.index.Set(faults.Fine)
	f.whole("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
	if err := f.DeleteBoard(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	f.create(sumBoard)
	f.wantList(boardB)
}

func TestWithoutTheIndexSeasonsAreSealed(t *testing.T) {
	f := openShaky(t)
	f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily}})
	f.submit("d", points("ann", "m", 5))
	f.index.Set(faults.Refuses)
	f.clock.set(start.Add(72 * time.Hour))
	if err := f.Seal(t.Context(), "d", "20261120"); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "d", Season: "20261120"}, "ann 5 1") // final ranks need no index
}

// Without the store, what the index knows is told, and how old it is; nothing is
// taken that could be lost.
func TestWithoutTheStoreReadsGoOn(t *testing.T) {
	for name, mode := range map[string]faults.Mode{"refuses": faults.Refuses, "hangs": faults.Hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openShaky(t)
				f.store.Set(mode)
				f.clock.set(start.Add(time.Hour)) // the board's settings are old
				f.whole("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
				page, err := f.Page(t.Context(), ranking.PageQuery{Query: red, Limit: 10})
				if err != nil || !page.AsOf.Equal(start) || page.Degraded {
					t.Errorf("page: %+v, %v; want one as of %v", page, err, start)
				}
				begun := time.Now()
				if lookup, err := f.Lookup(t.Context(), boardB, []leaderboard.UserID{"dan", "ann"}); err != nil || len(lookup.Lines) != 2 || !lookup.AsOf.Equal(start) {
					t.Errorf("lookup: %+v, %v", lookup, err)
				}
				if took := time.Since(begun); took != 0 {
					t.Errorf("once it is known that the store does not answer, a read took %v", took)
				}
				within := func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 10*time.Second) }
				for what, try := range map[string]func(context.Context) error{
					"submit": func(ctx context.Context) error {
						_, err := f.Submit(ctx, "b", []leaderboard.MatchResult{points("ann", "m9", 1)})
						return err
					},
					"retract": func(ctx context.Context) error {
						_, err := f.Retract(ctx, leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "ann", Match: "m"}, nil)
						return err
					},
					"ban":  func(ctx context.Context) error { _, err := f.SetBan(ctx, "ann", true, ""); return err },
					"seal": func(ctx context.Context) error { return f.Sweep(ctx) },
					"details": func(ctx context.Context) error {
						_, err := f.User(ctx, boardB, "ann", 0, true)
						return err
					},
					"a board not known": func(ctx context.Context) error { _, err := f.Board(ctx, "other"); return err },
					"a user everywhere": func(ctx context.Context) error {
						_, err := f.UserScores(ctx, "ann", leaderboard.Competition)
						return err
					},
					"what became of it": func(ctx context.Context) error {
						_, err := f.Result(ctx, leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "ann", Match: "m"}, nil)
						return err
					},
					"a list of the boards": func(ctx context.Context) error { _, err := f.Boards(ctx); return err },
				} {
					ctx, cancel := within()
					if err := try(ctx); !errors.Is(err, leaderboard.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", what, err)
					}
					cancel()
				}
				f.store.Set(faults.Fine)
				f.clock.set(start.Add(2 * time.Hour))
				f.submit("b", points("ann", "m2", 9))
				f.whole("ann 14 1", "bob 7 2", "cyd 7 2", "dan 1 4")
			})
		})
	}
}

func TestWithoutBothReadsAreRefused(t *testing.T) {
	f := openShaky(t)
	f.store.Set(faults.Refuses)
	f.index.Set(faults.Refuses)
	if page, err := f.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 10}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("page: %+v, %v", page, err)
	}
	if user, err := f.User(t.Context(), boardB, "ann", 1, false); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("user: %+v, %v", user, err)
	}
	if _, err := f.Lookup(t.Context(), boardB, []leaderboard.UserID{"ann"}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("lookup: %v", err)
	}
}

// slowIndex takes its time to be filled.
type slowIndex struct {
	leaderboard.Index
	filled chan struct{}
}

func (x slowIndex) Rebuild(ctx context.Context, b *leaderboard.Board, s leaderboard.Scope, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	select {
	case <-x.filled:
		return x.Index.Rebuild(ctx, b, s, at, entries)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Who asks for a large season while it is loaded gets scores, soon, and ranks
// once they are there.
func TestReadsDegradeWhileTheIndexIsFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openShaky(t)
		filled := make(chan struct{})
		f.fixture = over(t, f.store, slowIndex{memory.New(), filled})
		t.Cleanup(f.Service.Close)
		ask := func() (bool, time.Duration) {
			begun := time.Now()
			page, err := f.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
			if err != nil || len(page.Lines) != 2 || page.Degraded != (page.Lines[0].Rank == 0) {
				t.Errorf("page: %+v, %v", page, err)
			}
			return page.Degraded, time.Since(begun)
		}
		if degraded, took := ask(); !degraded || took == 0 || took > 6*time.Second {
			t.Errorf("the first reader: degraded %v after %v", degraded, took)
		}
		if degraded, took := ask(); !degraded || took != 0 {
			t.Errorf("a later reader, of the same load: degraded %v after %v", degraded, took)
		}
		before := runtime.NumGoroutine()
		for range 100 {
			ask()
		}
		if n := runtime.NumGoroutine() - before; n > 10 {
			t.Errorf("100 readers who were answered left %d goroutines", n)
		}
		close(filled)
		synctest.Wait()
		if degraded, _ := ask(); degraded {
			t.Error("the index is filled, and not asked")
		}
	})
}

// An index that was lost is filled again though nobody asks for it.
func TestSweepFillsALostIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openShaky(t)
		scope := leaderboard.Scope{Board: "b", Season: leaderboard.SeasonAll}
		f.whole("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
		if err := f.index.Drop(t.Context(), scope); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.SweepEvery(ctx, time.Hour); close(done) }()
		synctest.Wait()
		if loaded, err := f.index.Loaded(t.Context(), scope); err != nil || !loaded {
			t.Errorf("loaded %v, %v", loaded, err)
		}
		cancel()
		<-done
	})
}
