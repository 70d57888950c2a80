package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func newTracedHarness(t testing.TB, samplers ...trace.Sampler) (*harness, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	options := []trace.TracerProviderOption{trace.WithSyncer(spans)}
	for _, s := range samplers {
		options = append(options, trace.WithSampler(s))
	}
	store, index := embedded.Open(t)
	reg := prometheus.NewRegistry()
	observed := observe.Store(store, reg)
	svc := ranking.New(observed, observe.Index(index, reg), ranking.Options{})
	if err := svc.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := svc.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return serve(t, svc, observed, Options{TracerProvider: trace.NewTracerProvider(options...)}), spans
}

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceparent = "00-" + traceID + "-b7ad6b7169203331-01"
)

// All spans of a call continue the caller's trace. No span names the user.
func TestCallHasOneTrace(t *testing.T) {
	h, spans := newTracedHarness(t)
	submit := func() {
		points := int64(1)
		ctx := metadata.AppendToOutgoingContext(h.as("submit"), "traceparent", traceparent, "x-request-id", "ticket-1")
		if _, err := h.client().SubmitScore(ctx, &pb.SubmitScoreRequest{Result: &pb.Result{UserId: "mallory", MatchId: "m1", Points: &points}}); err != nil {
			t.Error(err)
		}
	}
	retract := func(path, body string) func() {
		return func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.http.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+h.keys["submit"])
			req.Header.Set("Traceparent", traceparent)
			req.Header.Set("X-Request-Id", "ticket-1")
			req.Header.Set("Content-Type", "application/json")
			if a := h.send(req); a.status != http.StatusOK {
				t.Errorf("retract: %d %s, want 200", a.status, a.raw)
			}
		}
	}
	for _, tt := range []struct {
		call string
		send func()
	}{
		{"leaderboard.v1.LeaderboardService/SubmitScore", submit},
		{"POST /v1/boards/{board}/results/{user_id}/{match_id}:retract", retract("/v1/boards/default/results/mallory/m1:retract", `{}`)},
		{"POST " + pb.LeaderboardService_RetractResult_FullMethodName, retract(pb.LeaderboardService_RetractResult_FullMethodName, `{"board":"default","user_id":"mallory","match_id":"m1","revision":9}`)},
	} {
		call := tt.call
		spans.Reset()
		tt.send()
		names := map[string]bool{}
		waitFor(t, "the span of the call", func() bool { // gRPC ends the span after the answer
			for _, s := range spans.GetSpans() {
				names[s.Name] = true
			}
			return names[call]
		})
		for _, s := range spans.GetSpans() {
			if got := s.SpanContext.TraceID().String(); got != traceID {
				t.Errorf("%s is in trace %s, want the caller's trace", s.Name, got)
			}
			for _, a := range s.Attributes {
				if strings.Contains(a.Value.String(), "mallory") {
					t.Errorf("%s names the user, want no user in a span: %v", s.Name, a)
				}
			}
			if s.Name == call && !slices.ContainsFunc(s.Attributes, func(a attribute.KeyValue) bool { return a.Key == "request_id" && a.Value.AsString() == "ticket-1" }) {
				t.Errorf("the attributes of %s have no request id: %v", s.Name, s.Attributes)
			}
		}
		for _, name := range []string{"store.Apply", "index.Update"} {
			if !names[name] {
				t.Errorf("%s: no span %s in %v", call, name, names)
			}
		}
	}
	for _, line := range h.logLines("call") {
		if line["trace_id"] != traceID {
			t.Errorf("the log line %v does not have the trace_id of the caller", line)
		}
	}
}

// Watches, probes and unknown routes have no spans. A span has the status Error only after a fault
// of the server.
func TestOnlyAPICallsHaveSpans(t *testing.T) {
	h, spans := newTracedHarness(t)
	for _, path := range []string{"/healthz", "/metrics", "/v1/nothing", "/"} {
		h.do("read", "GET", path, nil)
	}
	h.do("read", "GET", "/v1/scores/nobody", nil)
	got := spans.GetSpans()
	root := got[len(got)-1]
	if root.Name != "GET /v1/scores/{user_id}" || root.Status.Code != codes.Unset {
		t.Errorf("the last span is %s with status %v, want GET /v1/scores/{user_id} with an unset status", root.Name, root.Status)
	}
	for _, s := range got {
		if s.SpanContext.TraceID() != root.SpanContext.TraceID() {
			t.Errorf("the span %s is not of the call of /v1/scores/nobody, want spans of this call only", s.Name)
		}
	}
	if doorOf(pb.LeaderboardService_WatchScores_FullMethodName).hasSpans() || doorOf("/grpc.health.v1.Health/Check").hasSpans() {
		t.Error("hasSpans returns true for watches or health checks, want false")
	}
	h.options.Backup = func(context.Context, string) error { return errors.New("disk of mallory") }
	spans.Reset()
	if a := h.do("admin", "POST", "/v1/admin/backup", `{}`); a.status != http.StatusInternalServerError {
		t.Fatalf("a failed backup: %d %s, want 500", a.status, a.raw)
	}
	got = spans.GetSpans()
	if root := got[len(got)-1]; root.Status.Code != codes.Error || strings.Contains(root.Status.Description, "mallory") {
		t.Errorf("the span of a failed backup has the status %v, want Error without the text of the cause", root.Status)
	}
}

func TestTracingIsOffByDefault(t *testing.T) {
	h, spans := newTracedHarness(t, trace.NeverSample())
	h.must("submit", "POST", "/v1/scores", `{"user_id":"u","points":1}`)
	if got := spans.GetSpans(); len(got) != 0 {
		t.Errorf("a call that is not sampled has %d spans, want 0", len(got))
	}
	h = newHarness(t, Options{})
	h.must("submit", "POST", "/v1/scores", `{"user_id":"u","points":1}`)
	for _, line := range h.logLines("call") {
		if line["trace_id"] != nil {
			t.Errorf("a call without a trace is logged with a trace id, want none: %v", line)
		}
	}
}
