package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/collector"
)

// With OpenTelemetry's variables, a submit is one trace in the collector: the call, the
// store and the rank index. The server exports the last spans before it stops.
func TestTracesAreExported(t *testing.T) {
	to := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.URL)
	t.Setenv("OTEL_SERVICE_NAME", "scores")
	s := startInsecure(t)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.http+"/v1/scores", strings.NewReader(`{"user_id":"ada","points":3}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("submit: %v, %v", res, err)
	}
	res.Body.Close()
	s.stop()
	names := map[string]string{}
	for _, span := range to.Trace(trace) {
		names[span.Name] = span.Process
	}
	for _, name := range []string{"POST /v1/scores", "store.Apply", "index.Update"} {
		if names[name] != "scores" {
			t.Errorf("no span %s of the process scores in %v", name, names)
		}
	}
	if line, ok := logged(s.stderr.String(), "exporting traces"); !ok || line["endpoint"] != to.URL {
		t.Errorf("the log does not name the collector: %s", s.stderr)
	}
}

// If the collector does not answer, the server logs warnings, but no call fails.
func TestTracesThatCannotBeExported(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	s := startInsecure(t)
	s.ok(t, "submit", "ada", "--points", "3")
	if code := s.stop(); code != exitOK {
		t.Errorf("serve exited with %d, want 0", code)
	}
	if _, ok := logged(s.stderr.String(), "traces not exported"); !ok {
		t.Errorf("the log has no entry \"traces not exported\": %s", s.stderr)
	}
}

func TestVariablesOfTraces(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tt := range []struct {
		name string
		env  map[string]string
		want traceTarget
		err  string
	}{
		{"off by default", nil, traceTarget{}, ""},
		{"an endpoint", map[string]string{endpoint: "http://c:4318"}, traceTarget{"http://c:4318", "http/protobuf"}, ""},
		{"gRPC", map[string]string{endpoint: "https://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, traceTarget{"https://c:4317", "grpc"}, ""},
		{"an endpoint of traces only", map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t"}, traceTarget{"http://t", "http/protobuf"}, ""},
		{"the default endpoint", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, traceTarget{"", "http/protobuf"}, ""},
		{"disabled", map[string]string{endpoint: "http://c", "OTEL_SDK_DISABLED": "true"}, traceTarget{}, ""},
		{"no exporter", map[string]string{endpoint: "http://c", "OTEL_TRACES_EXPORTER": "none"}, traceTarget{}, ""},
		{"another exporter", map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, traceTarget{}, `OTEL_TRACES_EXPORTER is "zipkin"`},
		{"another protocol", map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, traceTarget{}, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"no URL", map[string]string{endpoint: "c:4317"}, traceTarget{}, endpoint + " is not a URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := traceTargetOf(func(name string) string { return tt.env[name] })
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("the error is %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got == nil && tt.want != (traceTarget{}) || got != nil && *got != tt.want {
				t.Errorf("the collector is %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}
