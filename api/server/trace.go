package server

import (
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"

	"github.com/open-leaderboard/leaderboard/api/auth"
	"github.com/open-leaderboard/leaderboard/internal/observe"
)

// hasSpans reports whether calls of a method have spans. Watches last for hours, and health checks
// and reflection ([auth.Public]) read no data, so their calls have no spans.
func (d *door) hasSpans() bool { return !d.watch && d.scope != auth.Public }

func traceGRPC(provider trace.TracerProvider) grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(provider), otelgrpc.WithMeterProvider(noop.NewMeterProvider()), otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return doorOf(info.FullMethodName).hasSpans() }),
	))
}

// traceMiddleware begins a span for each REST request. The span has the route instead of the path,
// because the path may name a user.
func (gw *gateway) traceMiddleware(provider trace.TracerProvider) runtime.Middleware {
	tracer := newTracer(provider)
	return func(next runtime.HandlerFunc) runtime.HandlerFunc {
		route := gw.routeFinder()
		return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
			rt := route(r)
			if !rt.hasSpans() {
				next(w, r, params)
				return
			}
			r, span := startSpan(tracer, r, rt.door, rt.path)
			defer span.End()
			next(w, r, params)
		}
	}
}

func newTracer(provider trace.TracerProvider) trace.Tracer {
	return provider.Tracer(observe.Instrumentation)
}

// startSpan begins the span of a request over HTTP, and adds it to the request's context.
func startSpan(tracer trace.Tracer, r *http.Request, d *door, route string) (*http.Request, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("http.route", route), attribute.String("rpc.method", d.method[1:])))
	return r.WithContext(ctx), span
}

func describeSpan(span trace.Span, code codes.Code, request string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("rpc.response.status_code", code.String()), attribute.String("request_id", request))
	if logLevel(code) > 0 {
		span.SetStatus(otelcodes.Error, code.String())
	}
}
