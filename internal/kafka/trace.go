package kafka

import (
	"context"

	"github.com/IBM/sarama"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard/internal/observe"
)

// InjectTrace sets the W3C trace headers of m to the span of ctx, if ctx has a span.
func InjectTrace(ctx context.Context, m *sarama.ProducerMessage) {
	propagation.TraceContext{}.Inject(ctx, producerHeaders{m})
}

// TraceOf returns the span that the headers of m name. Without such headers, the span is
// invalid.
func TraceOf(m *sarama.ConsumerMessage) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), consumerHeaders{m}))
}

// CopyTrace sets the trace headers of m to those of the message from.
func CopyTrace(from *sarama.ConsumerMessage, m *sarama.ProducerMessage) {
	InjectTrace(trace.ContextWithRemoteSpanContext(context.Background(), TraceOf(from)), m)
}

// TraceAttributes returns the attributes of a span about n messages of a topic.
func TraceAttributes(operation, topic string, n int) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.String("messaging.system", "kafka"), attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.destination.name", topic), attribute.Int("messaging.batch.message_count", n))
}

// TraceSend begins a span of sending n messages to a topic, if ctx has a sampled span. This span is the
// parent.
// The caller must call end with the error of sending.
func TraceSend(ctx context.Context, topic string, n int) (_ context.Context, end func(error)) {
	tracer := observe.Tracer(ctx)
	if tracer == nil {
		return ctx, func(error) {}
	}
	ctx, span := tracer.Start(ctx, "send "+topic, trace.WithSpanKind(trace.SpanKindProducer), TraceAttributes("send", topic, n))
	return ctx, func(err error) {
		observe.Fail(span, err)
		span.End()
	}
}

type producerHeaders struct{ *sarama.ProducerMessage }

func (h producerHeaders) Set(key, value string) {
	h.Headers = append(h.Headers, sarama.RecordHeader{Key: []byte(key), Value: []byte(value)})
}

func (producerHeaders) Get(string) string { return "" }
func (producerHeaders) Keys() []string    { return nil }

type consumerHeaders struct{ *sarama.ConsumerMessage }

func (h consumerHeaders) Get(key string) string { return Header(h.ConsumerMessage, key) }
func (consumerHeaders) Set(string, string)      {}
func (consumerHeaders) Keys() []string          { return nil }
