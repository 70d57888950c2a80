package observe

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard"
)

// Instrumentation is the name of the tracer.
const Instrumentation = "github.com/open-leaderboard/leaderboard"

// Tracer returns a tracer from the provider of the span in ctx, or nil if ctx has no sampled
// span.
func Tracer(ctx context.Context) trace.Tracer {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return nil
	}
	return span.TracerProvider().Tracer(Instrumentation)
}

// Fail sets the attribute outcome of span. The outcomes timeout, unavailable and failed are errors.
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
