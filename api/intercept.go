package api

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// The interceptors that every call passes, of gRPC and REST alike, outermost
// first: report, errors, panics, deadline, guard, the message, its counts and
// the rate of users.
func (s *Server) interceptors() ([]grpc.UnaryServerInterceptor, []grpc.StreamServerInterceptor) {
	panics := recovery.WithRecoveryHandlerContext(func(_ context.Context, p any) error {
		s.metrics.panics.Inc()
		return fmt.Errorf("api: panic: %v\n%s", p, debug.Stack())
	})
	unary := []grpc.UnaryServerInterceptor{
		interceptors.UnaryServerInterceptor(s.metrics),
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			res, err := next(ctx, req)
			return res, told(ctx, err)
		},
		recovery.UnaryServerInterceptor(panics),
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if needs[info.FullMethod] == admin {
				return next(ctx, req) // deleting, erasing and copying take the time they take
			}
			ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
			defer cancel()
			return next(ctx, req)
		},
		auth.UnaryServerInterceptor(s.guard.enter),
		decodeLate,
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := checkCounts(req); err != nil {
				return nil, err
			}
			if err := s.guard.takeUsers(usersOf(req)); err != nil {
				return nil, err
			}
			return next(ctx, req)
		},
	}
	stream := []grpc.StreamServerInterceptor{
		interceptors.StreamServerInterceptor(s.metrics),
		func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return told(ss.Context(), next(srv, ss))
		},
		recovery.StreamServerInterceptor(panics),
		auth.StreamServerInterceptor(s.guard.enter),
	}
	return unary, stream
}

// lateRegistrar registers services whose unary calls pass the guard before their
// messages are received and decoded, which gRPC itself does first.
type lateRegistrar struct{ grpc.ServiceRegistrar }

type decodeKey struct{}

func (r lateRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	late := *desc
	late.Methods = slices.Clone(desc.Methods)
	for i, m := range desc.Methods {
		late.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			return m.Handler(srv, context.WithValue(ctx, decodeKey{}, decode), func(any) error { return nil }, intercept)
		}
	}
	r.ServiceRegistrar.RegisterService(&late, impl)
}

// decodeLate receives the message that a lateRegistrar has left.
func decodeLate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if decode, ok := ctx.Value(decodeKey{}).(func(any) error); ok {
		var raw rawMessage
		if err := decode(&raw); err != nil {
			return nil, err
		}
		if err := decodeMessage(raw, req.(proto.Message)); err != nil {
			return nil, err
		}
	}
	return next(ctx, req)
}

// usersOf counts the results of each user in a submit.
func usersOf(req any) map[string]int {
	switch req := req.(type) {
	case *pb.SubmitScoreRequest:
		return map[string]int{req.GetResult().GetUserId(): 1}
	case *pb.RetractResultRequest:
		return map[string]int{req.GetUserId(): 1}
	case *pb.BatchSubmitScoresRequest:
		users := make(map[string]int, len(req.GetResults()))
		for _, r := range req.GetResults() {
			users[r.GetUserId()]++
		}
		return users
	}
	return nil
}

// callInfo is what the inner interceptors learn of a call, for the log.
type callInfo struct {
	caller string
	cause  error
}

type callInfoKey struct{}

func callInfoFrom(ctx context.Context) *callInfo {
	info, _ := ctx.Value(callInfoKey{}).(*callInfo)
	return info
}

// told makes of an error what the caller is told, and keeps the error itself for
// the log.
func told(ctx context.Context, err error) error {
	if info := callInfoFrom(ctx); info != nil {
		info.cause = err
	}
	return toStatus(err)
}

// metrics measures and logs calls.
type metrics struct {
	log     *slog.Logger
	seconds *prometheus.HistogramVec
	running *prometheus.GaugeVec
	panics  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, log *slog.Logger) *metrics {
	f := promauto.With(reg)
	return &metrics{
		log: log,
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "leaderboard", Subsystem: "api", Name: "call_seconds",
			Help:    "Time to answer a call of gRPC or REST, by method and code.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 13), // 0.1 ms to 6 s
		}, []string{"method", "code"}),
		running: f.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "leaderboard", Subsystem: "api", Name: "running_calls",
			Help: "Calls being answered, by method.",
		}, []string{"method"}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Namespace: "leaderboard", Subsystem: "api", Name: "panics_total",
			Help: "Calls that panicked.",
		}),
	}
}

// ServerReporter begins the report of a call.
func (m *metrics) ServerReporter(ctx context.Context, c interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	info := &callInfo{}
	ctx = context.WithValue(ctx, callInfoKey{}, info)
	m.running.WithLabelValues(c.Method).Inc()
	return &report{metrics: m, method: c.Method, ctx: ctx, info: info}, ctx
}

type report struct {
	interceptors.NoopReporter
	*metrics
	method string
	ctx    context.Context
	info   *callInfo
}

// PostCall ends it.
func (r *report) PostCall(err error, d time.Duration) {
	code := status.Code(err)
	r.running.WithLabelValues(r.method).Dec()
	r.seconds.WithLabelValues(r.method, code.String()).Observe(d.Seconds())
	level := logLevel(code)
	if !r.log.Enabled(r.ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("method", r.method), slog.String("code", code.String()),
		slog.Float64("seconds", d.Seconds()), slog.String("caller", r.info.caller)}
	if err != nil {
		attrs = append(attrs, slog.Any("err", r.info.cause))
	}
	r.log.LogAttrs(r.ctx, level, "call", attrs...)
}

// logLevel is high for what is the server's fault.
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
