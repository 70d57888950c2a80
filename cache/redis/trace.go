package redis

import (
	"context"
	"errors"
	"net"

	goredis "github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard/internal/observe"
)

// tracer records a span of each command and each pipeline, below the span of the caller. No span
// has arguments of commands.
//
// redisotel, the hook of go-redis, does not fit: it begins traces for work that no request
// caused, and formats all arguments of a pipeline, even if the pipeline is not sampled.
type tracer struct{}

var _ goredis.Hook = tracer{}

// DialHook implements [goredis.Hook].
func (tracer) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements [goredis.Hook].
func (tracer) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		ctx, span := begin(ctx, command.Name(), 1)
		err := next(ctx, command)
		end(span, err)
		return err
	}
}

// ProcessPipelineHook implements [goredis.Hook].
func (tracer) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		name := "pipeline"
		if len(commands) == 1 {
			name = commands[0].Name()
		}
		ctx, span := begin(ctx, name, len(commands))
		err := next(ctx, commands)
		end(span, err)
		return err
	}
}

// begin begins the span of n commands. It returns nil outside a sampled span.
func begin(ctx context.Context, name string, n int) (context.Context, trace.Span) {
	t := observe.Tracer(ctx)
	if t == nil {
		return ctx, nil
	}
	return t.Start(ctx, "redis "+name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("db.system.name", "redis"), attribute.Int("db.operation.batch.size", n)))
}

func end(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil && !expected(err) {
		span.SetStatus(codes.Error, "") // the text of err may have arguments
	}
	span.End()
}

// expected reports whether err is part of normal operation. Such errors are:
//   - a key does not exist
//   - the server needs the text of a script
//   - the server does not know a subcommand of CLIENT that go-redis tries on each new connection
func expected(err error) bool {
	return errors.Is(err, goredis.Nil) || goredis.HasErrorPrefix(err, "NOSCRIPT") ||
		goredis.HasErrorPrefix(err, "unknown subcommand") || goredis.HasErrorPrefix(err, "Unknown subcommand")
}
