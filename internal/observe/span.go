package observe

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard"
)

// Instrumentation is the name under which this module records spans.
const Instrumentation = "github.com/open-leaderboard/leaderboard"

// Tracer returns a tracer that starts children of the span of ctx. If ctx has no span, or if the
// span is not sampled, Tracer returns nil. So the service records no span for work that no sampled
// request caused.
func Tracer(ctx context.Context) trace.Tracer {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return nil
	}
	return span.TracerProvider().Tracer(Instrumentation)
}

// Fail sets the attribute outcome of span. If the outcome of err is timeout, unavailable or
// failed, Fail also marks span as failed. The span does not have the text of err, because
// this text may name a user.
func Fail(span trace.Span, err error) {
	result := outcome(err)
	span.SetAttributes(attribute.String("outcome", result))
	switch result {
	case timeout, unavailable, failed:
		span.SetStatus(codes.Error, result)
	}
}

// boardAttribute returns the attribute of spans that names a board. No attribute names a
// user.
func boardAttribute(id leaderboard.BoardID) attribute.KeyValue {
	return attribute.String("leaderboard.board", string(id))
}
