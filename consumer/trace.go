package consumer

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/observe"
)

// spans are the spans of a batch, one in each sampled trace. The first span is the parent of the
// spans of the store and index. The other spans link to the first.
type spans []trace.Span

// startSpans returns a context with the first span of a batch.
func (c *Consumer) startSpans(ctx context.Context, topic string, items []*item) (context.Context, spans) {
	if c.o.TracerProvider == nil {
		return ctx, nil
	}
	var senders []trace.SpanContext // the first of each trace
	seen := map[trace.TraceID]bool{}
	for _, i := range items {
		if sc := kafka.TraceOf(i.message); sc.IsSampled() && !seen[sc.TraceID()] {
			seen[sc.TraceID()] = true
			senders = append(senders, sc)
		}
	}
	tracer := c.o.TracerProvider.Tracer(observe.Instrumentation)
	var all spans
	for n, sender := range senders {
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), kafka.TraceAttributes("process", topic, len(items))}
		if n > 0 {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: all[0].SpanContext()}))
		}
		_, span := tracer.Start(trace.ContextWithRemoteSpanContext(ctx, sender), "process "+topic, options...)
		all = append(all, span)
	}
	if len(all) == 0 {
		return ctx, nil
	}
	return trace.ContextWithSpan(ctx, all[0]), all
}

func (s spans) end(err error) {
	for _, span := range s {
		observe.Fail(span, err)
		span.End()
	}
}
