package observe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/observe"
)

// callTraced calls f in a sampled span, and returns the child spans that f created.
func callTraced(t *testing.T, f func(context.Context)) tracetest.SpanStubs {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	f(ctx)
	root.End()
	return slices.DeleteFunc(spans.GetSpans(), func(s tracetest.SpanStub) bool {
		if s.Name != "root" && s.Parent.SpanID() != root.SpanContext().SpanID() {
			t.Errorf("the parent of %s is %v, want the root", s.Name, s.Parent.SpanID())
		}
		return s.Name == "root"
	})
}

func TestCallsAreTraced(t *testing.T) {
	disk := errors.New("disk of user mallory")
	got := []string{}
	for _, s := range callTraced(t, func(ctx context.Context) {
		index := observe.Index(memory.New(), prometheus.NewRegistry())
		_, _ = index.Loaded(ctx, leaderboard.SeasonKey{Board: "cup"})
		for _, err := range []error{leaderboard.ErrBoardNotFound, disk} {
			store := observe.Store(failingStore{err: err}, prometheus.NewRegistry())
			_, _ = store.Board(ctx, "cup")
			_, _ = store.Apply(ctx, &leaderboard.Board{ID: "cup"}, nil)
			for range store.Scan(ctx, leaderboard.SeasonKey{Board: "cup"}, leaderboard.Part{}) { // read until the error
			}
			store.Scan(ctx, leaderboard.SeasonKey{Board: "cup"}, leaderboard.Part{}) // an iterator that is not read creates no span
		}
	}) {
		line := s.Name
		for _, a := range s.Attributes {
			line += " " + a.Value.AsString()
		}
		if s.Status.Code == codes.Error {
			line += " error " + s.Status.Description
		}
		got = append(got, line)
	}
	want := []string{
		"index.Loaded cup ok",
		"store.Board cup refused", "store.Apply cup refused", "store.Scan cup refused",
		"store.Board cup failed error failed", "store.Apply cup failed error failed", "store.Scan cup failed error failed",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestUnsampledCallsAreNotTraced(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans), trace.WithSampler(trace.NeverSample()))
	unsampled, root := provider.Tracer("test").Start(t.Context(), "root")
	defer root.End()
	index := observe.Index(memory.New(), prometheus.NewRegistry())
	for _, ctx := range []context.Context{t.Context(), unsampled} {
		if observe.Tracer(ctx) != nil {
			t.Error("Tracer without a sampled span returned a tracer, want nil")
		}
		if _, err := index.Loaded(ctx, leaderboard.SeasonKey{Board: "cup"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := spans.GetSpans(); len(got) != 0 {
		t.Errorf("%d spans, want none: %v", len(got), got)
	}
}

func TestUntracedCallsAllocateNothing(t *testing.T) {
	plain := memory.New()
	measured := observe.Index(plain, prometheus.NewRegistry())
	key := leaderboard.SeasonKey{Board: leaderboard.BoardID(strings.Repeat("b", 3))}
	allocs := func(x leaderboard.Index) float64 {
		return testing.AllocsPerRun(100, func() { _, _ = x.Loaded(t.Context(), key) })
	}
	if want, got := allocs(plain), allocs(measured); got != want {
		t.Errorf("a call of the measured index makes %v allocations, want %v, as a call of the plain index makes", got, want)
	}
}
