package ranking

import (
	"context"
	"sync"
)

type tasks struct {
	running sync.WaitGroup
	ctx     context.Context // for all background work except writes; close cancels it
	cancel  context.CancelFunc
}

func newTasks() *tasks {
	t := &tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func (t *tasks) close() {
	t.cancel()
	t.running.Wait()
}

// When ctx is done, runToEnd returns the error of ctx, but write continues: a write that
// stopped after its change of the store would leave stale ranks.
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
			a.panicked = recover() // runToEnd panics again where the caller can recover
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
