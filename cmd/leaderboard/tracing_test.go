package main

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/collector"
)

func submitTraced(t *testing.T, s *testServer, trace, flags string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.http+"/v1/scores", strings.NewReader(`{"user_id":"ada","points":3}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-"+flags)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("submit: %v, %v", res, err)
	}
	res.Body.Close()
}

const aTrace, anotherTrace = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"

func TestTracesAreExported(t *testing.T) {
	for _, tt := range []struct {
		protocol string
		collect  func(testing.TB) *collector.Collector
	}{{"", collector.New}, {"http/protobuf", collector.New}, {"grpc", collector.NewGRPC}} {
		t.Run(tt.protocol, func(t *testing.T) {
			traces := tt.collect(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.URL)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", tt.protocol)
			t.Setenv("OTEL_SERVICE_NAME", "scores")
			s := startInsecure(t)
			submitTraced(t, s, aTrace, "01")
			s.stop()
			names := map[string]string{}
			for _, span := range traces.Trace(aTrace) {
				names[span.Name] = span.Process
			}
			for _, name := range []string{"POST /v1/scores", "store.Apply", "index.Update"} {
				if names[name] != "scores" {
					t.Errorf("no span %s of the process scores in %v", name, names)
				}
			}
			if line, ok := findLogEntry(s.stderr.String(), "exporting traces"); !ok || line["endpoint"] != traces.URL {
				t.Errorf("the log does not name the collector: %s", s.stderr)
			}
		})
	}
}

func TestTracesAreSampled(t *testing.T) {
	for _, tt := range []struct {
		sampler, arg string
		want         map[string]bool // the traces that arrive
	}{
		{"", "", map[string]bool{aTrace: true}},
		{"always_on", "", map[string]bool{aTrace: true, anotherTrace: true}},
		{"always_off", "", map[string]bool{}},
		{"parentbased_traceidratio", "0", map[string]bool{aTrace: true}},
		{"traceidratio", "0", map[string]bool{}},
	} {
		t.Run(tt.sampler, func(t *testing.T) {
			traces := collector.New(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.URL)
			t.Setenv("OTEL_TRACES_SAMPLER", tt.sampler)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", tt.arg)
			s := startInsecure(t)
			submitTraced(t, s, aTrace, "01")       // the caller samples this trace
			submitTraced(t, s, anotherTrace, "00") // the caller does not sample this one
			s.ok(t, "top")
			s.stop()
			got, others := map[string]bool{}, false
			for _, span := range traces.Spans() {
				if span.Trace == aTrace || span.Trace == anotherTrace {
					got[span.Trace] = true
				} else {
					others = true
				}
			}
			if all := tt.sampler == "" || tt.sampler == "always_on"; !maps.Equal(got, tt.want) || others != all {
				t.Errorf("exported traces of callers: %v, want %[3]v; exported traces that the server began: %[2]v, want %[4]v", got, others, tt.want, all)
			}
		})
	}
}

func TestTracesThatCannotBeExported(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	s := startInsecure(t)
	s.ok(t, "submit", "ada", "--points", "3")
	if code := s.stop(); code != exitOK {
		t.Errorf("serve exited with %d, want 0", code)
	}
	if _, ok := findLogEntry(s.stderr.String(), "traces not exported"); !ok {
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
		{"traces are off by default", nil, traceTarget{}, ""},
		{"an endpoint", map[string]string{endpoint: "http://c:4318"}, traceTarget{"http://c:4318", "http/protobuf"}, ""},
		{"the protocol gRPC", map[string]string{endpoint: "https://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, traceTarget{"https://c:4317", "grpc"}, ""},
		{"an endpoint of traces only", map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t"}, traceTarget{"http://t", "http/protobuf"}, ""},
		{"the default endpoint", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, traceTarget{"", "http/protobuf"}, ""},
		{"a disabled SDK", map[string]string{endpoint: "http://c", "OTEL_SDK_DISABLED": "true"}, traceTarget{}, ""},
		{"no exporter", map[string]string{endpoint: "http://c", "OTEL_TRACES_EXPORTER": "none"}, traceTarget{}, ""},
		{"an unsupported exporter", map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, traceTarget{}, `OTEL_TRACES_EXPORTER is "zipkin"`},
		{"an unsupported protocol", map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, traceTarget{}, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"an endpoint that is not a URL", map[string]string{endpoint: "c:4317"}, traceTarget{}, endpoint + " is not a URL"},
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
