package cql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard/internal/observe"
)

// tracer records a span of each attempt at a statement or batch, if the caller's span is
// sampled. A span has the statements without arguments.
type tracer struct{}

func (tracer) ObserveQuery(ctx context.Context, q gocql.ObservedQuery) {
	recordSpan(ctx, q.Start, q.End, q.Host, q.Attempt, q.Err, q.Statement)
}

func (tracer) ObserveBatch(ctx context.Context, b gocql.ObservedBatch) {
	recordSpan(ctx, b.Start, b.End, b.Host, b.Attempt, b.Err, b.Statements...)
}

func recordSpan(ctx context.Context, start, end time.Time, node *gocql.HostInfo, attempt int, err error, statements ...string) {
	t := observe.Tracer(ctx)
	if t == nil || len(statements) == 0 {
		return
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(statements[0]), " ")
	if len(statements) > 1 {
		verb = "BATCH"
	}
	_, span := t.Start(ctx, "cassandra "+verb, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", "cassandra"), attribute.String("db.query.text", strings.Join(distinct(statements), "; ")),
		attribute.Int("db.operation.batch.size", len(statements))))
	if node != nil {
		span.SetAttributes(attribute.String("server.address", node.ConnectAddress().String()), attribute.Int("server.port", node.Port()))
	}
	if attempt > 0 {
		span.SetAttributes(attribute.Int("attempt", attempt))
	}
	if err != nil { // the text of the error may contain arguments
		span.SetStatus(codes.Error, fmt.Sprintf("%T", err))
	}
	span.End(trace.WithTimestamp(end))
}

func distinct(statements []string) []string {
	seen := map[string]bool{}
	var all []string
	for _, s := range statements {
		if !seen[s] {
			seen[s] = true
			all = append(all, s)
		}
	}
	return all
}
