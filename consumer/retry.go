package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/open-leaderboard/leaderboard"
)

var errStuck = errors.New("no progress for too long")

// retry calls f, at growing intervals, until f succeeds. Errors: the cause of the session's end;
// errStuck if a call takes longer than StuckAfter, or calls fail for longer than StuckAfter
// although all servers are available.
func (c *Consumer) retry(session context.Context, f func(context.Context) error) error {
	intervals := backoff.NewExponentialBackOff()
	intervals.InitialInterval, intervals.MaxInterval = 50*time.Millisecond, 5*time.Second
	stuckAt := time.Now().Add(c.o.StuckAfter)
	_, err := backoff.Retry(session, func() (struct{}, error) {
		err := c.attempt(session, f)
		switch {
		case err == nil:
		case errors.Is(err, errStuck):
			err = backoff.Permanent(err)
		case errors.Is(err, leaderboard.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
			stuckAt = time.Now().Add(c.o.StuckAfter)
		case time.Now().After(stuckAt):
			err = backoff.Permanent(fmt.Errorf("%w: %w", errStuck, err))
		}
		return struct{}{}, err
	}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, wait time.Duration) {
		c.metrics.retries.Inc()
		c.o.Log.WarnContext(session, "a batch failed and will be retried", "err", err, "in", wait)
	}))
	return err
}

// attempt calls f with ApplyTimeout. The end of the session does not interrupt f, because the next
// owner of the partition would repeat the work. After StuckAfter, attempt returns while f runs on.
func (c *Consumer) attempt(session context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(session), c.o.ApplyTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stuck := time.NewTimer(c.o.StuckAfter)
	defer stuck.Stop()
	select {
	case err := <-done:
		return err
	case <-stuck.C:
		return errStuck
	}
}
