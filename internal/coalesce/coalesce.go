// Package coalesce merges concurrent requests.
package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Group merges concurrent requests for the same key into one call. While a call for a key
// is running, new requests for that key wait, at most MaxWait. The next call handles all of them,
// or the first MaxBatch.
//
// Exported fields must be set before the first call of Do. A Group is safe for concurrent
// use.
type Group[K comparable, T any] struct {
	// Call handles a batch of requests for one key. If a batch of several requests fails, the
	// Group retries each request alone, except after [leaderboard.ErrUnavailable]. ctx is
	// never done, and has the values of the first request's context.
	Call func(ctx context.Context, key K, batch []T) error
	// MaxBatch limits the requests in a batch. 0 means no limit.
	MaxBatch int
	// MaxWait is the longest time that requests wait for a running call. The next call then begins
	// while that one is running. 0 means no limit, so calls for one key never overlap.
	MaxWait time.Duration
	// Running counts the goroutines of the Group, unless it is nil. Wait returns once every value
	// of an earlier Do was handled.
	Running *sync.WaitGroup

	mu      sync.Mutex
	waiting map[K][]request[T] // a key is present while the method run handles its requests
}

type request[T any] struct {
	ctx   context.Context
	value T
	done  chan answer
}

type answer struct {
	err      error
	panicked any
}

// Do adds a value to the next call for a key, and returns the error of that call or of
// the retry. If ctx is done first, Do returns the error of ctx, and Call may
// still use value later. So if value is a pointer, the caller must not use its target after
// an error. If Call panics, Do panics, so that its caller can recover.
func (g *Group[K, T]) Do(ctx context.Context, key K, value T) error {
	r := request[T]{ctx, value, make(chan answer, 1)}
	g.mu.Lock()
	if g.waiting == nil {
		g.waiting = map[K][]request[T]{}
	}
	waiting, busy := g.waiting[key]
	if g.waiting[key] = append(waiting, r); !busy {
		g.start(func() { g.run(key) })
	}
	g.mu.Unlock()
	select {
	case a := <-r.done:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("coalesce: %w", ctx.Err())
	}
}

func (g *Group[K, T]) start(f func()) {
	if g.Running == nil {
		go f()
	} else {
		g.Running.Go(f)
	}
}

func (g *Group[K, T]) run(key K) {
	for {
		runtime.Gosched() // on a busy machine, requests that have arrived can join the batch
		g.mu.Lock()
		batch := g.waiting[key]
		if len(batch) == 0 {
			delete(g.waiting, key)
			g.mu.Unlock()
			return
		}
		if g.MaxBatch > 0 {
			batch = batch[:min(g.MaxBatch, len(batch))]
		}
		g.waiting[key] = slices.Clone(g.waiting[key][len(batch):])
		g.mu.Unlock()
		if g.MaxWait == 0 {
			g.call(key, batch)
			continue
		}
		done := make(chan struct{})
		g.start(func() {
			defer close(done)
			g.call(key, batch)
		})
		timer := time.NewTimer(g.MaxWait)
		select {
		case <-done:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (g *Group[K, T]) call(key K, batch []request[T]) {
	values := make([]T, len(batch))
	for i, r := range batch {
		values[i] = r.value
	}
	a := g.answer(batch[0].ctx, key, values)
	for i, r := range batch {
		if len(batch) > 1 && a.failed() && !errors.Is(a.err, leaderboard.ErrUnavailable) {
			r.done <- g.answer(r.ctx, key, values[i:i+1])
		} else {
			r.done <- a
		}
	}
}

func (g *Group[K, T]) answer(ctx context.Context, key K, values []T) (a answer) {
	defer func() { a.panicked = recover() }()
	a.err = g.Call(context.WithoutCancel(ctx), key, values)
	return a
}

func (a answer) failed() bool { return a.err != nil || a.panicked != nil }
