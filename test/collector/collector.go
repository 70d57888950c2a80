// Package collector receives traces over OTLP, for tests.
package collector

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is a received span.
type Span struct {
	Name, Process     string // Process is the service.name of the span's resource
	Trace, ID, Parent string // in hex; Parent is empty if the span has no parent
	Attributes        map[string]string
	Failed            bool
}

// Collector keeps the spans that it received.
type Collector struct {
	// URL is the value of OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string

	mu    sync.Mutex
	spans []Span
}

// NewGRPC starts a collector for OTLP over gRPC, which stops when the test ends.
func NewGRPC(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{URL: "http://" + l.Addr().String()}
	server := grpc.NewServer()
	tracepb.RegisterTraceServiceServer(server, traceService{collector: c})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return c
}

type traceService struct {
	tracepb.UnimplementedTraceServiceServer
	collector *Collector
}

func (s traceService) Export(_ context.Context, request *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	s.collector.add(request)
	return &tracepb.ExportTraceServiceResponse{}, nil
}

// New starts a collector for OTLP over HTTP, which stops when the test ends.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request tracepb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil {
			t.Errorf("collector: %v", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.add(&request)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) add(request *tracepb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		process := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				process = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := Span{
					Name: s.GetName(), Process: process, Trace: hex.EncodeToString(s.GetTraceId()),
					ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Attributes: map[string]string{}, Failed: s.GetStatus().GetCode() == 2,
				}
				for _, a := range s.GetAttributes() {
					span.Attributes[a.GetKey()] = a.GetValue().GetStringValue()
				}
				c.spans = append(c.spans, span)
			}
		}
	}
}

// Trace returns the spans so far whose field Trace is id.
func (c *Collector) Trace(id string) (spans []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s Span) bool { return s.Trace != id })
}

// Spans returns all spans that have arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}
