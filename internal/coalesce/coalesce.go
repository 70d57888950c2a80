// Package coalesce merges concurrent requests for the same key into one call.
package coalesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/open-leaderboard/leaderboard"
)

// Group merges concurrent requests for the same key into one call. While a call for a
// key is running, new requests for that key wait. The next call handles all waiting requests, or
// the first MaxBatch of them. So a busy key causes fewer and larger calls, and a request for an
// idle key is never delayed.
//
// Exported fields must be set before the first call of Do. A Group is safe for
// concurrent use.
type Group[K comparable, T any] struct {
	// Call handles a batch of requests for one key. If Call returns an error other than
	// [leaderboard.ErrUnavailable] for several requests, each request of the batch is retried
	// alone. So a faulty request does not fail the other requests. The context of a call is never done.
	// It has the values of the context of the first request in the batch.
	Call func(ctx context.Context, key K, batch []T) error
	// MaxBatch is the largest number of requests in one call. Zero means no limit.
	MaxBatch int

	mu      sync.Mutex
	waiting map[K][]request[T] // a key is present while a call for it is running
}

type request[T any] struct {
	ctx   context.Context // the caller's context
	value T
	done  chan error
}

// Do adds a value to the next call for a key, and waits. It returns the error of that
// call or, if the value is retried alone, the error of the retry. If ctx is done before
// the call ends, Do returns the error of ctx, but the call still handles the value. So if value is
// a pointer, the caller must not use its target after an error.
func (g *Group[K, T]) Do(ctx context.Context, key K, value T) error {
	r := request[T]{ctx, value, make(chan error, 1)}
	g.mu.Lock()
	if g.waiting == nil {
		g.waiting = map[K][]request[T]{}
	}
	waiting, busy := g.waiting[key]
	if g.waiting[key] = append(waiting, r); !busy {
		go g.run(key)
	}
	g.mu.Unlock()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("coalesce: %w", ctx.Err())
	}
}

// run handles the waiting requests for key until none is left.
func (g *Group[K, T]) run(key K) {
	for {
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
		values := make([]T, len(batch))
		for i, r := range batch {
			values[i] = r.value
		}
		err := g.Call(context.WithoutCancel(batch[0].ctx), key, values)
		for i, r := range batch {
			if len(batch) > 1 && err != nil && !errors.Is(err, leaderboard.ErrUnavailable) {
				r.done <- g.Call(context.WithoutCancel(r.ctx), key, values[i:i+1])
			} else {
				r.done <- err
			}
		}
	}
}
