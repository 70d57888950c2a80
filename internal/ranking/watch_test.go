package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

type pageReads struct {
	leaderboard.Index
	atomic.Int64
}

func (p *pageReads) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	p.Add(1)
	return p.Index.Page(ctx, l, position, n, methods...)
}

var watchedPage = ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10}

// runWatchers runs n watchers of one page until stop is called. sent counts the pages that
// they get.
func runWatchers(tb testing.TB, f *fixture, n int, sent *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			err := f.Watch(ctx, watchedPage, func(*ranking.WatchedPage) error { sent.Add(1); return nil })
			if !errors.Is(err, context.Canceled) {
				tb.Errorf("Watch = %v, want %v", err, context.Canceled)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// A read follows each change. Without a change, a read happens every 15 seconds.
func TestWatchersShareAReader(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		store, index := embedded.Open(t)
		reads := &pageReads{Index: index}
		f := serviceOver(t, store, reads)
		defer f.Close()
		f.create(sumBoard)
		f.submit("b", points("ann", "m", 5))
		before := reads.Load()
		var sent atomic.Int64
		stop := runWatchers(t, f, n, &sent)
		time.Sleep(50 * time.Millisecond)
		if got := reads.Load() - before; sent.Load() != n || got > 10 {
			t.Errorf("%d watchers got %d pages from %d reads, want %d pages from at most 10", n, sent.Load(), got, n)
		}
		time.Sleep(time.Second)
		before = reads.Load()
		time.Sleep(10 * time.Second)
		if got := reads.Load() - before; sent.Load() != n || got > 0 {
			t.Errorf("on an idle board, %d watchers got %d more pages from %d reads in 10 s, want none", n, sent.Load()-n, got)
		}
		before = reads.Load()
		f.submit("b", points("bob", "m", 7))
		time.Sleep(150 * time.Millisecond)
		if got := reads.Load() - before; sent.Load() != 2*n || got > 3 {
			t.Errorf("after a change, %d watchers got %d pages from %d reads, want %d from at most 3", n, sent.Load()-n, got, n)
		}
		time.Sleep(20 * time.Second)
		if got := sent.Load(); got != 3*n {
			t.Errorf("%d pages in 20 s without a change, want %d: one heartbeat for each watcher", got-2*n, n)
		}
		stop()
		before = reads.Load()
		time.Sleep(time.Minute)
		if got := reads.Load() - before; got > 0 {
			t.Errorf("%d reads without watchers, want 0", got)
		}
	})
}

// The first page includes all results that were submitted before the call of Watch.
func TestAWatcherThatJoinsGetsAFreshPage(t *testing.T) {
	f := open(t)
	defer f.Close()
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 0))
	var sent atomic.Int64
	defer runWatchers(t, f, 1, &sent)()
	for i := range 30 {
		f.submit("b", points("ann", fmt.Sprint(i), 1))
		want := leaderboard.Score(i + 1)
		done := errors.New("done")
		err := f.Watch(t.Context(), watchedPage, func(p *ranking.WatchedPage) error {
			if p.Lines[0].Score != want {
				t.Errorf("the first page has the score %d, want %d", p.Lines[0].Score, want)
			}
			return done
		})
		if !errors.Is(err, done) {
			t.Fatalf("Watch = %v, want %v", err, done)
		}
	}
}

// A watcher without a season changes to the next season when this season begins. A watcher of the
// latest season changes when the next season gets its first result.
func TestWatchersChangeSeasonsWithoutPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, index := embedded.Open(t)
		const fromMidnight = 24*time.Hour - 5*time.Minute // the bubble begins at midnight
		now := func() time.Time { return time.Now().Add(fromMidnight) }
		f := &fixture{Service: ranking.New(store, index, ranking.Options{Now: now}), t: t}
		defer f.Close()
		f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily}})
		f.submit("b", points("ann", "m", 5))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		var current, latest atomic.Value
		for season, seen := range map[leaderboard.SeasonID]*atomic.Value{"": &current, leaderboard.SeasonLatest: &latest} {
			q := ranking.PageQuery{Query: ranking.Query{Board: "b", Season: season}, Limit: 1}
			wg.Go(func() {
				_ = f.Watch(ctx, q, func(p *ranking.WatchedPage) error { seen.Store(p.Season.ID); return nil })
			})
		}
		want := func(wantCurrent, wantLatest leaderboard.SeasonID) {
			t.Helper()
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if current.Load() != wantCurrent || latest.Load() != wantLatest {
				t.Errorf("the watchers see the seasons %v and %v, want %v and %v", current.Load(), latest.Load(), wantCurrent, wantLatest)
			}
		}
		want("20000101", "20000101")
		time.Sleep(time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC).Sub(now()))
		want("20000102", "20000101")
		time.Sleep(5 * time.Second)
		f.submit("b", points("bob", "m", 7))
		want("20000102", "20000102")
	})
}
