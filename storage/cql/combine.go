package cql

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/open-leaderboard/leaderboard"
)

// bucket is a partition of user_entries, and of the overall leaderboard.
type bucket struct {
	leaderboard.Scope
	edition, number int
}

// combiner puts writes to one bucket together: while one is under way, those that
// come wait, and then go as one. So a busy bucket takes fewer and larger writes,
// which cost a node far less, and an idle one keeps nobody waiting.
type combiner struct {
	write func(ctx context.Context, ops ...op) error

	mu    sync.Mutex
	queue map[bucket][]*pending // of buckets with a write under way
}

// pending is one caller's write.
type pending struct {
	ops  []op
	done chan error
}

// do writes ops to a bucket, as one. If ctx is done first, that goes on without
// the caller.
func (c *combiner) do(ctx context.Context, b bucket, ops []op) error {
	p := &pending{ops, make(chan error, 1)}
	c.mu.Lock()
	if c.queue == nil {
		c.queue = map[bucket][]*pending{}
	}
	waiting, busy := c.queue[b]
	if busy {
		c.queue[b] = append(waiting, p)
	} else {
		c.queue[b] = nil
		go c.run(context.WithoutCancel(ctx), b, []*pending{p})
	}
	c.mu.Unlock()
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("cql: write: %w", ctx.Err())
	}
}

// run writes a group, and then what has come meanwhile, until there is no more.
func (c *combiner) run(ctx context.Context, b bucket, group []*pending) {
	for len(group) > 0 {
		c.writeGroup(ctx, group)
		c.mu.Lock()
		waiting := c.queue[b]
		n, size := 0, 0
		for n < len(waiting) && (n == 0 || size < maxBatchBytes) {
			for i := range waiting[n].ops {
				size += waiting[n].ops[i].size()
			}
			n++
		}
		group = waiting[:n:n]
		if c.queue[b] = waiting[n:]; n == 0 {
			delete(c.queue, b)
		}
		c.mu.Unlock()
	}
}

func (c *combiner) writeGroup(ctx context.Context, group []*pending) {
	var all []op
	for _, p := range group {
		all = append(all, p.ops...)
	}
	err := c.write(ctx, all...)
	if err != nil && len(group) > 1 && !errors.Is(err, leaderboard.ErrUnavailable) {
		for _, p := range group { // so that one does not fail the others
			p.done <- c.write(ctx, p.ops...)
		}
		return
	}
	for _, p := range group {
		p.done <- err
	}
}
