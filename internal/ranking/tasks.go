package ranking

import (
	"context"
	"sync"
)

// tasks tracks the work that may continue after its callers have stopped waiting.
type tasks struct {
	running sync.WaitGroup
	ctx     context.Context // the context of all background work except writes; close cancels it
	cancel  context.CancelFunc
}

func newTasks() *tasks {
	t := &tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// close cancels ctx, and waits for all work, writes included.
func (t *tasks) close() {
	t.cancel()
	t.running.Wait()
}

// runToEnd calls write and returns its result. If ctx is done before write returns, runToEnd
// returns the error of ctx, but write continues in the background. If write stopped when ctx is
// done, it could stop between its update of the store and its update of the ranks. The ranks would
// then stay stale until the user's next result.
func runToEnd[T any](ctx context.Context, t *tasks, write func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value    T
		err      error
		panicked any
	}
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	done := make(chan answer, 1)
	t.running.Go(func() {
		var a answer
		defer func() {
			a.panicked = recover() // runToEnd panics in the caller's goroutine, where the caller can recover
			done <- a
		}()
		a.value, a.err = write(context.WithoutCancel(ctx))
	})
	select {
	case a := <-done:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.value, a.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}
