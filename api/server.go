// Package api serves the leaderboard over gRPC and, by way of a gateway in the
// same process, over REST. A call of either passes the same interceptors:
// credentials, limits, deadlines, metrics and errors are handled once. Handlers
// only translate; the logic is the service's.
package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// Options are the settings of a [Server]. The zero value asks every caller for an
// API key, and limits nobody.
type Options struct {
	// Insecure lets everyone do everything, without keys. It is for the loopback
	// interface only: see [CheckLoopback].
	Insecure bool
	// PublicRead lets callers without credentials read rankings.
	PublicRead bool
	// JWT, if its Algorithm is set, says which JSON web tokens are accepted too.
	JWT JWT
	// TLS secures both listeners; nil is no TLS. See [TLS.Config].
	TLS    *tls.Config
	Limits Limits
	// Timeout is the longest that a call may take, streams and those that need
	// the admin scope excepted. Default 10 s.
	Timeout time.Duration
	// MaxStreams bounds the calls at once on one connection, and MaxWatchers
	// those that watch a ranking on all. Defaults 250 and 10,000.
	MaxStreams  uint32
	MaxWatchers int64
	// ShutdownGrace is how long Serve waits for running calls. Default 15 s.
	ShutdownGrace time.Duration

	// Ready says what the server has yet to do before it can answer, for /readyz
	// and the gRPC health service; nil is nothing, always.
	Ready func() error
	// Backup makes a copy of the store under a name that has been checked to be
	// a plain file name. nil answers UNIMPLEMENTED.
	Backup func(ctx context.Context, name string) error
	// Log and Metrics receive what happens; nil discards it.
	Log     *slog.Logger
	Metrics *prometheus.Registry
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxStreams = cmp.Or(o.MaxStreams, 250)
	o.MaxWatchers = cmp.Or(o.MaxWatchers, 10_000)
	o.ShutdownGrace = cmp.Or(o.ShutdownGrace, 15*time.Second)
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Server answers gRPC and REST.
type Server struct {
	pb.UnimplementedLeaderboardServiceServer
	pb.UnimplementedAdminServiceServer

	service  service
	keys     leaderboard.APIKeyStore
	options  Options
	guard    *guard
	metrics  *metrics
	grpc     *grpc.Server
	handler  http.Handler
	watchers atomic.Int64
	// stopping ends streams, which would otherwise keep the server from stopping.
	stopping context.Context
	stop     context.CancelFunc
}

// New returns a server of a service, whose callers' keys are in keys.
func New(ctx context.Context, svc service, keys leaderboard.APIKeyStore, o Options) (*Server, error) {
	s := &Server{service: svc, keys: keys, options: o.withDefaults()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	open := public
	switch {
	case o.Insecure:
		open = admin
	case o.PublicRead:
		open = read
	}
	var tokens *verifier
	if o.JWT.Algorithm != "" {
		var err error
		if tokens, err = newVerifier(ctx, o.JWT, s.options.Now); err != nil {
			return nil, err
		}
	}
	s.guard = newGuard(keys, tokens, open, o.Limits, s.options.Now)
	s.metrics = newMetrics(s.options.Metrics, s.options.Log)

	unary, stream := s.interceptors()
	s.grpc = grpc.NewServer(s.grpcOptions(unary, stream)...)
	local := newLocalConn(unary, stream)
	for _, registrar := range []grpc.ServiceRegistrar{lateRegistrar{s.grpc}, local} {
		pb.RegisterLeaderboardServiceServer(registrar, s)
		pb.RegisterAdminServiceServer(registrar, s)
	}
	healthpb.RegisterHealthServer(s.grpc, readiness{health.NewServer(), s.options.Ready})
	reflection.Register(s.grpc)

	gw, err := newGateway(ctx, local, s.guard)
	if err != nil {
		return nil, fmt.Errorf("api: gateway: %w", err)
	}
	s.handler = s.newHandler(gw)
	return s, nil
}

func (s *Server) grpcOptions(unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(stream...),
		grpc.MaxRecvMsgSize(maxBatchBytes),
		grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2("proto")}),
		grpc.MaxConcurrentStreams(s.options.MaxStreams),
		// Clients may ask for signs of life as often as watchers get them.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute}),
	}
	if s.options.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.options.TLS)))
	}
	return options
}

// readiness is the gRPC health service: the server is serving while it is ready.
type readiness struct {
	*health.Server
	ready func() error
}

func (r readiness) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	status := healthpb.HealthCheckResponse_SERVING
	if r.ready() != nil {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	r.SetServingStatus(req.GetService(), status)
	return r.Server.Check(ctx, req)
}

// Handler returns what serves HTTP: REST, the probes, the metrics and the page.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers REST on one listener and gRPC on another until ctx is done or one
// of them fails, and then waits for running calls. Streams are ended.
func (s *Server) Serve(ctx context.Context, rest, grpcListener net.Listener) error {
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	serve := func() error { return server.Serve(rest) }
	if s.options.TLS != nil {
		server.TLSConfig = s.options.TLS.Clone()
		serve = func() error { return server.ServeTLS(rest, "", "") } // with HTTP/2
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("api: http: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		// Stopped before it began is stopped too.
		if err := s.grpc.Serve(grpcListener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("api: grpc: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		return s.shutdown(server)
	})
	return g.Wait()
}

func (s *Server) shutdown(server *http.Server) error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), s.options.ShutdownGrace)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	err := server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	select {
	case <-stopped:
	case <-ctx.Done():
		s.grpc.Stop()
	}
	return err
}
