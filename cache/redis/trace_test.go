package redis

import (
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A span has the name of its command, and no arguments. Its status is not Error if a key does not exist, if
// the server needs the text of a script, or if the server does not know a subcommand of CLIENT.
func TestCommandsAreTraced(t *testing.T) {
	server := miniredis.RunT(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	client.AddHook(tracer{})
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	client.Set(ctx, "mallory", 1, 0)
	client.Get(ctx, "nobody")
	client.EvalSha(ctx, strings.Repeat("0", 40), []string{"mallory"})
	client.LPush(ctx, "mallory", 1) // fails: the key holds a string
	pipe := client.Pipeline()
	pipe.Get(ctx, "mallory")
	pipe.EvalSha(ctx, strings.Repeat("0", 40), []string{"mallory"})
	_, _ = pipe.Exec(ctx)
	client.Get(t.Context(), "mallory") // outside a span
	root.End()
	var got, failed []string
	for _, s := range spans.GetSpans() {
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), "mallory") {
				t.Errorf("%s has an attribute with an argument: %v, want none", s.Name, a)
			}
		}
		if s.Status.Code == codes.Error {
			failed = append(failed, s.Name)
		}
		// The spans of a new connection are below the span of the command that needed it.
		if s.Parent.SpanID() == root.SpanContext().SpanID() {
			got = append(got, s.Name)
		}
	}
	if want := []string{"redis set", "redis get", "redis evalsha", "redis lpush", "redis pipeline"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
	if want := []string{"redis lpush"}; !slices.Equal(failed, want) {
		t.Errorf("failed spans %q, want %q", failed, want)
	}
}
