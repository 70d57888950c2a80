package coalesce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
)

// recorder.call takes a second. If fail is set, recorder.call returns the error of fail.
type recorder struct {
	mu      sync.Mutex
	batches [][]int
	fail    func(batch []int) error
}

func (r *recorder) call(_ context.Context, _ string, batch []int) error {
	time.Sleep(time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, slices.Clone(batch))
	if r.fail == nil {
		return nil
	}
	return r.fail(batch)
}

// run makes requests 1 to 4 while the call for request 0 is running.
func (r *recorder) run(t *testing.T, g *Group[string, int]) []error {
	errs := make([]error, 5)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = g.Do(t.Context(), "key", i) })
		synctest.Wait() // until the group has request i
	}
	wg.Wait()
	return errs
}

func TestRequestsDuringACallShareTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		if err := errors.Join(r.run(t, &Group[string, int]{Call: r.call})...); err != nil {
			t.Error(err)
		}
		if diff := gocmp.Diff([][]int{{0}, {1, 2, 3, 4}}, r.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

func TestBatchesHaveAtMostMaxBatchRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		if err := errors.Join(r.run(t, &Group[string, int]{Call: r.call, MaxBatch: 3})...); err != nil {
			t.Error(err)
		}
		if diff := gocmp.Diff([][]int{{0}, {1, 2, 3}, {4}}, r.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

func TestTheNextCallBeginsAfterMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{} // its calls take a second
		start := time.Now()
		if err := errors.Join(r.run(t, &Group[string, int]{Call: r.call, MaxWait: 300 * time.Millisecond})...); err != nil {
			t.Error(err)
		}
		if diff := gocmp.Diff([][]int{{0}, {1, 2, 3, 4}}, r.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
		if got, want := time.Since(start), 1300*time.Millisecond; got != want {
			t.Errorf("the calls took %v, want %v", got, want)
		}
	})
}

func TestFaultyRequestDoesNotFailTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errFaulty := errors.New("faulty")
		r := &recorder{fail: func(batch []int) error {
			if slices.Contains(batch, 3) {
				return errFaulty
			}
			return nil
		}}
		for i, err := range r.run(t, &Group[string, int]{Call: r.call}) {
			if errors.Is(err, errFaulty) != (i == 3) {
				t.Errorf("request %d: error %v, want the error \"faulty\" for request 3 only", i, err)
			}
		}
	})
}

func TestBatchIsNotRetriedIfTheStoreIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{fail: func([]int) error { return leaderboard.ErrUnavailable }}
		for i, err := range r.run(t, &Group[string, int]{Call: r.call}) {
			if !errors.Is(err, leaderboard.ErrUnavailable) {
				t.Errorf("request %d: %v, want %v", i, err, leaderboard.ErrUnavailable)
			}
		}
		if len(r.batches) != 2 {
			t.Errorf("the batches were %v, want 2 batches, because no request is retried", r.batches)
		}
	})
}

func TestCallHasTheContextOfItsFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type caller struct{}
		var callers []any
		g := &Group[string, int]{Call: func(ctx context.Context, _ string, batch []int) error {
			time.Sleep(time.Second)
			callers = append(callers, ctx.Value(caller{}))
			if len(batch) > 1 {
				return errors.New("faulty")
			}
			return nil
		}}
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { _ = g.Do(context.WithValue(t.Context(), caller{}, i), "key", i) })
			synctest.Wait()
		}
		wg.Wait()
		if diff := gocmp.Diff([]any{0, 1, 1, 2}, callers); diff != "" {
			t.Errorf("first request of each call; the second call fails, so requests 1 and 2 are retried (-want +got):\n%s", diff)
		}
	})
}

func TestCallContinuesAfterItsCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		g := &Group[string, int]{Call: r.call}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := g.Do(ctx, "key", 7); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do = %v, want %v", err, context.DeadlineExceeded)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := gocmp.Diff([][]int{{7}}, r.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

func TestDoPanicsIfTheCallPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{fail: func(batch []int) error {
			if slices.Contains(batch, 3) {
				panic("faulty")
			}
			return nil
		}}
		g := &Group[string, int]{Call: r.call}
		panicked := make([]any, 5)
		var wg sync.WaitGroup
		for i := range panicked {
			wg.Go(func() {
				defer func() { panicked[i] = recover() }()
				if err := g.Do(t.Context(), "key", i); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if diff := gocmp.Diff([]any{nil, nil, nil, "faulty", nil}, panicked); diff != "" {
			t.Errorf("panics of the requests (-want +got):\n%s", diff)
		}
	})
}

func TestRunningCountsValuesWhoseCallersLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		var running sync.WaitGroup
		g := &Group[string, int]{Call: r.call, MaxWait: time.Hour, Running: &running}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for i := range 3 {
			go func() { _ = g.Do(ctx, "key", i) }()
			synctest.Wait()
		}
		<-ctx.Done()
		running.Wait()
		if diff := gocmp.Diff([][]int{{0}, {1, 2}}, r.batches); diff != "" {
			t.Errorf("batches after Wait (-want +got):\n%s", diff)
		}
	})
}
