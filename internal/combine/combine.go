// Package combine does together what is asked for at a time.
package combine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/open-leaderboard/leaderboard"
)

// A Combiner does together what is asked for at a time: while something is done
// about a key, what else is asked for about it waits, and is then done as one. So
// a busy key takes fewer and larger requests, which cost the servers far less, and
// an idle one keeps nobody waiting.
type Combiner[K comparable, T any] struct {
	// Do does what a group asks for.
	Do func(ctx context.Context, key K, group []T) error
	// Most bounds a group; 0 does not.
	Most int

	mu      sync.Mutex
	waiting map[K][]asked[T] // about keys about which something is done
}

type asked[T any] struct {
	what T
	done chan error
}

// Ask returns once what is asked for about a key is done, by what began after the
// call. If ctx is done first, that goes on without the caller.
func (c *Combiner[K, T]) Ask(ctx context.Context, key K, what T) error {
	a := asked[T]{what, make(chan error, 1)}
	c.mu.Lock()
	if c.waiting == nil {
		c.waiting = map[K][]asked[T]{}
	}
	waiting, busy := c.waiting[key]
	if c.waiting[key] = append(waiting, a); !busy {
		go c.run(context.WithoutCancel(ctx), key)
	}
	c.mu.Unlock()
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("combine: %w", ctx.Err())
	}
}

// run does what waits about a key, until there is nothing.
func (c *Combiner[K, T]) run(ctx context.Context, key K) {
	for {
		c.mu.Lock()
		group := c.waiting[key]
		if len(group) == 0 {
			delete(c.waiting, key)
			c.mu.Unlock()
			return
		}
		if c.Most > 0 {
			group = group[:min(c.Most, len(group))]
		}
		c.waiting[key] = slices.Clone(c.waiting[key][len(group):])
		c.mu.Unlock()
		all := make([]T, len(group))
		for i, a := range group {
			all[i] = a.what
		}
		err := c.Do(ctx, key, all)
		for i, a := range group {
			if len(group) > 1 && err != nil && !errors.Is(err, leaderboard.ErrUnavailable) {
				a.done <- c.Do(ctx, key, all[i:i+1]) // so that one does not fail the others
			} else {
				a.done <- err
			}
		}
	}
}
