package ranking

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

type silentIndex struct {
	leaderboard.Index
	silent atomic.Bool
	calls  atomic.Int64
}

func (x *silentIndex) wait(ctx context.Context) error {
	x.calls.Add(1)
	if !x.silent.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (x *silentIndex) Standings(ctx context.Context, _ leaderboard.Ladder, _ []leaderboard.UserID, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{}, x.wait(ctx)
}

func (x *silentIndex) Loaded(ctx context.Context, _ leaderboard.SeasonKey) (bool, error) {
	return true, x.wait(ctx)
}

func TestOneReaderTestsASilentIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := &silentIndex{}
		x := newRankIndex(index, nil, newTasks(), time.Now, slog.New(slog.DiscardHandler))
		read := func(ctx context.Context) error {
			_, _, err := x.Standings(ctx, leaderboard.Ladder{}, nil)
			return err
		}
		// readers runs ten concurrent readers, and checks the number of calls of the index.
		readers := func(calls int64) (failed int64, slowest time.Duration) {
			t.Helper()
			before, start := index.calls.Load(), time.Now()
			var wg sync.WaitGroup
			var n atomic.Int64
			for range 10 {
				wg.Go(func() {
					err := read(t.Context())
					if err != nil {
						n.Add(1)
					}
					if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) {
						t.Errorf("read: %v, want ErrRankUnavailable", err)
					}
				})
			}
			wg.Wait()
			if got := index.calls.Load() - before; got != calls {
				t.Errorf("%d calls of the index, want %d", got, calls)
			}
			return n.Load(), time.Since(start)
		}
		expect := func(what string, calls, failed int64, slowest time.Duration) {
			t.Helper()
			if f, d := readers(calls); f != failed || d != slowest {
				t.Errorf("%s: %d readers failed, the slowest after %v; want %d after %v", what, f, d, failed, slowest)
			}
		}
		expect("the index answers", 10, 0, 0)
		index.silent.Store(true)
		expect("the index does not answer the readers and one probe", 11, 10, 2*probeTimeout)
		expect("during the cooldown", 0, 10, 0)
		for range 2 {
			time.Sleep(indexCooldown + time.Millisecond)
			expect("after the cooldown", 1, 10, probeTimeout)
		}

		time.Sleep(indexCooldown + time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), probeTimeout/2)
		defer cancel()
		if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read whose caller stops waiting: %v, want DeadlineExceeded", err)
		}
		expect("after the cooldown, and after a caller of a probe stopped waiting", 1, 10, probeTimeout)

		index.silent.Store(false)
		time.Sleep(indexCooldown + time.Millisecond)
		if err := x.load(t.Context(), &leaderboard.Board{}, leaderboard.SeasonKey{}); err != nil {
			t.Errorf("load: %v, want no error, because the index answers", err)
		}
		expect("the index answers again", 10, 0, 0)
		x.tasks.running.Wait()
	})
}

type longRead struct{ leaderboard.Index }

func (longRead) Standings(context.Context, leaderboard.Ladder, []leaderboard.UserID, ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	time.Sleep(3 * time.Second)
	return nil, leaderboard.View{}, nil
}

func (longRead) Loaded(context.Context, leaderboard.SeasonKey) (bool, error) { return true, nil }

func TestLongReadIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRankIndex(longRead{}, nil, newTasks(), time.Now, slog.New(slog.DiscardHandler))
		var readers sync.WaitGroup
		for range 10 {
			readers.Go(func() {
				if _, _, err := x.Standings(t.Context(), leaderboard.Ladder{}, nil); err != nil {
					t.Errorf("a read of three seconds: %v, want an answer", err)
				}
			})
		}
		readers.Wait()
	})
}
