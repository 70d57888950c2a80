package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	authinterceptor "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/observe"
)

// interceptors returns the interceptors of every call, the outermost first:
//
//   - find the client behind proxies;
//   - log and measure the call;
//   - translate errors;
//   - recover panics;
//   - set the deadline (not for streams);
//   - let the guard (auth.Guard) admit the call;
//   - limit streams (see limitStream);
//   - decode and check the request, and limit the rates of users (not for streams);
//   - name the boards that the caller may see in errors.
func (s *Server) interceptors() ([]grpc.UnaryServerInterceptor, []grpc.StreamServerInterceptor) {
	panics := recovery.WithRecoveryHandlerContext(func(_ context.Context, p any) error { return s.panicError(p) })
	unary := []grpc.UnaryServerInterceptor{
		s.withClientUnary,
		interceptors.UnaryServerInterceptor(s.metrics),
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			res, err := next(ctx, req)
			return res, report(ctx, err)
		},
		recovery.UnaryServerInterceptor(panics),
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if doorOf(info.FullMethod).scope == auth.Admin {
				return next(ctx, req) // no deadline: deletions and backups may take long
			}
			ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
			defer cancel()
			return next(ctx, req)
		},
		authinterceptor.UnaryServerInterceptor(s.enter),
		decodeLate,
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := checkCounts(req); err != nil {
				return nil, err
			}
			if err := s.checkBoards(ctx, doorOf(info.FullMethod), req); err != nil {
				return nil, err
			}
			if err := s.guard.TakeUsers(resultsByUser(req)); err != nil {
				return nil, err
			}
			res, err := next(ctx, req)
			return res, s.reveal(ctx, err)
		},
	}
	stream := []grpc.StreamServerInterceptor{
		s.withClientStream,
		interceptors.StreamServerInterceptor(s.metrics),
		func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return report(ss.Context(), next(srv, ss))
		},
		recovery.StreamServerInterceptor(panics),
		authinterceptor.StreamServerInterceptor(s.enter),
		s.limitStream,
		func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return s.reveal(ss.Context(), next(srv, ss))
		},
	}
	return unary, stream
}

var errPanic = errors.New("panic")

// panicError counts a panic and returns it as an error with the stack. The deferred function that
// recovers p must call panicError, so that the stack shows the panic.
func (s *Server) panicError(p any) error {
	s.metrics.panics.Inc()
	return fmt.Errorf("server: %w: %v\n%s", errPanic, p, debug.Stack())
}

// lateRegistrar registers services whose messages are received and decoded only after the guard has
// admitted the call. gRPC itself decodes a message before any interceptor runs.
type lateRegistrar struct {
	*grpc.Server
	api *Server
}

type decodeKey struct{}

func (r lateRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	late := *desc
	late.Methods = slices.Clone(desc.Methods)
	for i, m := range desc.Methods {
		late.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			receive := func(ctx context.Context, raw *rawMessage) error { return r.api.receive(ctx, raw, decode) }
			return m.Handler(srv, context.WithValue(ctx, decodeKey{}, receive), func(any) error { return nil }, intercept)
		}
	}
	late.Streams = slices.Clone(desc.Streams)
	for i, m := range desc.Streams {
		d := doorOf("/" + desc.ServiceName + "/" + m.StreamName)
		late.Streams[i].Handler = func(srv any, ss grpc.ServerStream) error {
			return m.Handler(srv, &lateStream{ServerStream: ss, api: r.api, door: d, bidi: m.ClientStreams})
		}
	}
	r.Server.RegisterService(&late, impl)
}

// A lateStream counts each message after the first one as a further call of its caller.
type lateStream struct {
	grpc.ServerStream
	api      *Server
	door     *door
	bidi     bool
	received bool
}

func (s *lateStream) RecvMsg(m any) error {
	var raw rawMessage
	if err := s.api.receive(s.Context(), &raw, s.ServerStream.RecvMsg); err != nil {
		return err
	}
	if s.received {
		ctx := s.Context()
		if err := s.api.guard.Count(admissionFrom(ctx).caller, peerAddr(ctx)); err != nil {
			return toStatus(err)
		}
	}
	s.received = true
	return decodeMessage(s.door, raw, m.(proto.Message))
}

// SendMsg of a bidirectional stream returns when the stream's context is done, even if the client reads
// nothing. The handlers of other streams use prepareStream.
func (s *lateStream) SendMsg(m any) error {
	if !s.bidi {
		return s.ServerStream.SendMsg(m)
	}
	return s.api.sendUntil(s.Context(), func() error { return s.ServerStream.SendMsg(m) })
}

// decodeLate receives and decodes the message of a unary call over gRPC. The messages of the
// gateway are already decoded.
func decodeLate(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if receive, ok := ctx.Value(decodeKey{}).(func(context.Context, *rawMessage) error); ok {
		var raw rawMessage
		if err := receive(ctx, &raw); err != nil {
			return nil, err
		}
		if err := decodeMessage(doorOf(info.FullMethod), raw, req.(proto.Message)); err != nil {
			return nil, err
		}
	}
	return next(ctx, req)
}

func resultsByUser(req any) map[string]int {
	switch req := req.(type) {
	case *pb.SubmitScoreRequest:
		return map[string]int{req.GetResult().GetUserId(): 1}
	case *pb.RetractResultRequest:
		return map[string]int{req.GetUserId(): 1}
	case *pb.CorrectResultRequest:
		return map[string]int{req.GetUserId(): 1}
	case *pb.PurgeResultsRequest:
		return map[string]int{req.GetUserId(): 1}
	case *pb.BatchRetractResultsRequest:
		users := make(map[string]int, len(req.GetResults()))
		for _, r := range req.GetResults() {
			users[r.GetUserId()]++
		}
		return users
	case interface{ GetResults() []*pb.Result }:
		users := make(map[string]int, len(req.GetResults()))
		for _, r := range req.GetResults() {
			users[r.GetUserId()]++
		}
		return users
	}
	return nil
}

// callInfo stores facts about a call for the log. Inner interceptors set them.
type callInfo struct {
	caller  string
	request string
	cause   error
}

type callInfoKey struct{}

func callInfoFrom(ctx context.Context) *callInfo {
	info, _ := ctx.Value(callInfoKey{}).(*callInfo)
	return info
}

// report returns the status that the caller receives for err, and stores err for the log.
func report(ctx context.Context, err error) error {
	if info := callInfoFrom(ctx); info != nil {
		info.cause = err
	}
	return toStatus(err)
}

type metrics struct {
	log     *slog.Logger
	level   slog.Level // lowest level at which a call is logged
	seconds *prometheus.HistogramVec
	running *prometheus.GaugeVec
	visible *prometheus.HistogramVec // time from a submit until reads see the result
	panics  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, log *slog.Logger, logCalls bool) *metrics {
	f := promauto.With(reg)
	level := slog.LevelDebug
	if logCalls {
		level = slog.LevelInfo
	}
	m := &metrics{
		log:   log,
		level: level,
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "leaderboard", Subsystem: "api", Name: "call_seconds",
			Help:    "Time to answer a call over gRPC, REST, Connect or gRPC-Web, by method and gRPC code.",
			Buckets: observe.SecondsBuckets(),
		}, []string{"method", "code"}),
		running: f.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "leaderboard", Subsystem: "api", Name: "running_calls",
			Help: "Calls in progress, by method.",
		}, []string{"method"}),
		visible: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "leaderboard", Subsystem: "api", Name: "visible_seconds",
			Help:    "Time from a submit until reads see its results, by method. If a result is not applied in time, the time that the call waited.",
			Buckets: observe.SecondsBuckets(),
		}, []string{"method"}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Namespace: "leaderboard", Subsystem: "api", Name: "panics_total",
			Help: "Calls that panicked.",
		}),
	}
	for _, d := range doors {
		if d.watch {
			m.running.WithLabelValues(d.name) // the dashboard needs a 0 before the first watcher
		}
	}
	return m
}

// ServerReporter returns the reporter of a call that begins.
func (m *metrics) ServerReporter(ctx context.Context, c interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	info := &callInfo{}
	ctx = context.WithValue(ctx, callInfoKey{}, info)
	m.running.WithLabelValues(c.Method).Inc()
	return &reporter{metrics: m, method: c.Method, ctx: ctx, info: info}, ctx
}

type reporter struct {
	interceptors.NoopReporter
	*metrics
	method string
	ctx    context.Context
	info   *callInfo
}

// PostCall records the duration and the outcome of the call.
func (r *reporter) PostCall(err error, d time.Duration) {
	code := status.Code(err)
	r.running.WithLabelValues(r.method).Dec()
	r.seconds.WithLabelValues(r.method, code.String()).Observe(d.Seconds())
	span := trace.SpanFromContext(r.ctx)
	describeSpan(span, code, r.info.request)
	level := max(logLevel(code), r.level)
	if !r.log.Enabled(r.ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("method", r.method), slog.String("code", code.String()),
		slog.Float64("seconds", d.Seconds()), slog.String("caller", r.info.caller),
		slog.String("client", clientOf(r.ctx)), slog.String("request_id", r.info.request)}
	if span.SpanContext().IsSampled() {
		attrs = append(attrs, slog.String("trace_id", span.SpanContext().TraceID().String()))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", r.info.cause))
	}
	r.log.LogAttrs(r.ctx, level, "call", attrs...)
}

// logLevel returns error or warning only for failures of the server.
func logLevel(code codes.Code) slog.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.Unavailable, codes.DeadlineExceeded:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
