package observe

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard"
)

// Instrumentation names the source of the spans.
const Instrumentation = "github.com/open-leaderboard/leaderboard"

// Tracer returns a tracer that starts children of the span of ctx, or nil if ctx has no
// sampled span.
func Tracer(ctx context.Context) trace.Tracer {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return nil
	}
	return span.TracerProvider().Tracer(Instrumentation)
}

// Fail sets the outcome of span, and marks timeouts, unavailability and failures as errors.
// The span does not get the text of err, which may name a user.
func Fail(span trace.Span, err error) {
	result := outcome(err)
	span.SetAttributes(attribute.String("outcome", result))
	switch result {
	case timeout, unavailable, failed:
		span.SetStatus(codes.Error, result)
	}
}

func boardAttribute(id leaderboard.BoardID) attribute.KeyValue {
	return attribute.String("leaderboard.board", string(id))
}
