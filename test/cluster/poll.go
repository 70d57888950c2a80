package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// StartTimeout bounds a start whose context has no deadline. Starts fail at
// once when a server exits, so this only catches one that hangs.
const StartTimeout = 5 * time.Minute

// errFatal marks a condition that waiting longer cannot meet.
var errFatal = errors.New("giving up")

// poll tries a condition until it holds, fails with errFatal, or ctx ends; then
// the error says what was still missing. It tries less and less often, for the
// attempts take processor time from the servers that they wait for.
func poll(ctx context.Context, try func(context.Context) error) error {
	const first, last = 20 * time.Millisecond, 400 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := first; ; pause = min(pause*5/4, last) {
		err := try(ctx)
		if err == nil || errors.Is(err, errFatal) {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; still: %w", context.Cause(ctx), err)
		case <-timer.C:
		}
	}
}

func withStartTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, StartTimeout)
}
