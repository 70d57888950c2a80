package client

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const retryFor = 2 * time.Minute

// Retry calls f until f succeeds or returns a permanent error, or until retryFor has passed.
// Submits with match ids may be retried, because each result counts once.
func Retry(ctx context.Context, f func() error) error {
	delays := &serverDelays{ExponentialBackOff: backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Second,
	}}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		switch status.Code(err) {
		case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Aborted:
			delays.minimum = retryDelay(err)
		default:
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(retryFor))
	return err
}

type serverDelays struct {
	backoff.ExponentialBackOff
	minimum time.Duration // the server's suggestion
}

// NextBackOff implements [backoff.BackOff].
func (b *serverDelays) NextBackOff() time.Duration {
	return max(b.ExponentialBackOff.NextBackOff(), b.minimum)
}

func retryDelay(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
