package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// startTimeout bounds a start whose context has no deadline.
const startTimeout = 5 * time.Minute

// errFatal marks an error that further attempts cannot resolve.
var errFatal = errors.New("giving up")

// poll calls try until try returns nil or an error that wraps errFatal. The intervals grow, because
// each attempt slows down a starting server.
func poll(ctx context.Context, try func(context.Context) error) error {
	intervals := backoff.NewExponentialBackOff()
	intervals.InitialInterval, intervals.Multiplier, intervals.MaxInterval = 20*time.Millisecond, 1.25, 400*time.Millisecond
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		last = try(ctx)
		if errors.Is(last, errFatal) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0))
	if err == nil || errors.Is(last, errFatal) {
		return err
	}
	return fmt.Errorf("%w; last attempt: %w", err, last)
}

func withStartTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, startTimeout)
}
