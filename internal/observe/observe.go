// Package observe measures and traces the calls of a [leaderboard.Store] and a
// [leaderboard.Index].
package observe

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard"
)

const namespace = "leaderboard"

// SecondsBuckets returns boundaries of histograms, in seconds. They include 0.05, because
// 95 % of results should become visible within 50 ms.
func SecondsBuckets() []float64 {
	return []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}

// The values of the label outcome.
const (
	ok          = "ok"
	refused     = "refused"     // an error of the domain, such as ErrEntryNotFound
	canceled    = "canceled"    // the caller stopped waiting
	timeout     = "timeout"     // the caller's deadline passed
	unavailable = "unavailable" // ErrUnavailable or ErrRankUnavailable
	failed      = "failed"      // any other error
)

// An error that wraps both a timeout and ErrUnavailable is a timeout.
func outcome(err error) string {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		return ok
	case is(context.Canceled):
		return canceled
	case is(context.DeadlineExceeded):
		return timeout
	case is(leaderboard.ErrUnavailable), is(leaderboard.ErrRankUnavailable):
		return unavailable
	case slices.ContainsFunc([]error{
		leaderboard.ErrInvalid, leaderboard.ErrBoardNotFound, leaderboard.ErrBoardExists, leaderboard.ErrEntryNotFound,
		leaderboard.ErrResultNotFound, leaderboard.ErrNotSealed, leaderboard.ErrAPIKeyNotFound, leaderboard.ErrMethodUnavailable,
	}, is):
		return refused
	}
	return failed
}

type calls struct {
	subsystem string
	seconds   *prometheus.HistogramVec
	running   *prometheus.GaugeVec
}

func newCalls(reg prometheus.Registerer, subsystem, contract string) calls {
	f := promauto.With(reg)
	return calls{
		subsystem: subsystem,
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "call_seconds",
			Help:    "Time of a call of the " + contract + ", by method and outcome. A call that returns a sequence lasts until the caller has read the sequence.",
			Buckets: SecondsBuckets(),
		}, []string{"method", "outcome"}),
		running: f.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "running_calls",
			Help: "Calls of the " + contract + " in progress, by method.",
		}, []string{"method"}),
	}
}

type call struct {
	calls
	method string
	start  time.Time
	span   trace.Span // nil if the call is not traced
}

// The caller must pass the returned context on, and call end when the call ends. board may
// be empty.
func (c calls) begin(ctx context.Context, method string, board leaderboard.BoardID) (context.Context, call) {
	running := call{calls: c, method: method, start: time.Now()}
	c.running.WithLabelValues(method).Inc()
	if tracer := Tracer(ctx); tracer != nil {
		ctx, running.span = tracer.Start(ctx, c.subsystem+"."+method)
		if board != "" {
			running.span.SetAttributes(boardAttribute(board))
		}
	}
	return ctx, running
}

func (c call) end(err *error) {
	c.calls.running.WithLabelValues(c.method).Dec()
	c.seconds.WithLabelValues(c.method, outcome(*err)).Observe(time.Since(c.start).Seconds())
	if c.span != nil {
		Fail(c.span, *err)
		c.span.End()
	}
}

// sequence measures each iteration over the result of open as one call.
func sequence[T any](ctx context.Context, c calls, method string, board leaderboard.BoardID, open func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var err error
		ctx, running := c.begin(ctx, method, board)
		defer running.end(&err)
		for v, e := range open(ctx) {
			if e != nil {
				err = e
			}
			if !yield(v, e) {
				return
			}
		}
	}
}
