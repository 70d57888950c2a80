package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
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

// runWatchers runs n watchers of one page until stop is called. sent counts their pages.
func runWatchers(tb testing.TB, f *fixture, n int, sent *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			err := f.Watch(ctx, watchedPage, func(ranking.Page) error { sent.Add(1); return nil })
			if !errors.Is(err, context.Canceled) {
				tb.Errorf("Watch = %v, want %v", err, context.Canceled)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// One read follows each change, and one read happens each second.
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
		const seconds = 10
		time.Sleep(seconds * time.Second)
		if got := reads.Load() - before; sent.Load() != n || got > seconds+1 {
			t.Errorf("on an idle board, %d watchers got %d more pages from %d reads in %d s, want 0 pages from %d reads", n, sent.Load()-n, got, seconds, seconds)
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
		err := f.Watch(t.Context(), watchedPage, func(p ranking.Page) error {
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

// BenchmarkWatchers measures a second of watching: processor time, reads of the index and
// pages sent.
func BenchmarkWatchers(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		for _, busy := range []bool{false, true} {
			b.Run(fmt.Sprintf("watchers=%d/busy=%v", n, busy), func(b *testing.B) { benchmarkWatchers(b, n, busy) })
		}
	}
}

func benchmarkWatchers(b *testing.B, n int, busy bool) {
	store, index := embedded.Open(b)
	reads := &pageReads{Index: index}
	s := ranking.New(store, reads, ranking.Options{})
	f := &fixture{Service: s}
	defer f.Close()
	board, err := f.CreateBoard(b.Context(), sumBoard)
	if err != nil {
		b.Fatal(err)
	}
	submitted := 0
	submit := func() {
		submitted++
		_, err := f.Submit(b.Context(), &board, []leaderboard.MatchResult{points(fmt.Sprint("u", submitted%100), fmt.Sprint(submitted), 1)})
		if err != nil {
			b.Error(err)
		}
	}
	for range 100 {
		submit()
	}
	var sent atomic.Int64
	defer runWatchers(b, f, n, &sent)()
	for sent.Load() < int64(n) {
		time.Sleep(10 * time.Millisecond)
	}
	read, pages, cpu := reads.Load(), sent.Load(), processorTime(b)
	for b.Loop() {
		for second := time.After(time.Second); ; {
			select {
			case <-second:
			case <-time.After(10 * time.Millisecond):
				if busy {
					submit()
				}
				continue
			}
			break
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric((processorTime(b)-cpu).Seconds()*1000/float64(b.N), "cpu-ms/s")
	b.ReportMetric(float64(reads.Load()-read)/float64(b.N), "reads/s")
	b.ReportMetric(float64(sent.Load()-pages)/float64(b.N), "pages/s")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
