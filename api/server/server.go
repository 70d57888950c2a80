// Package server serves the leaderboard over gRPC and, through an in-process connection, over REST,
// Connect and gRPC-Web. All calls pass the same interceptors, which handle credentials, limits, deadlines,
// metrics and errors. Handlers only translate between messages and the service.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// Options are the settings of a [Server]. With the zero value, every caller needs an API key and
// rates are unlimited.
type Options struct {
	// Insecure lets every caller do everything without a key. Use Insecure on the loopback
	// interface only: see [auth.CheckLoopback].
	Insecure bool
	// PublicRead lets callers without credentials read rankings.
	PublicRead bool
	// SelfEdit lets users with JSON web tokens of the read scope change their own profile.
	SelfEdit bool
	// DenyName, unless nil, reports whether profiles must not have a name.
	DenyName func(name string) bool
	// JWT describes the accepted JSON web tokens. Without JWT.Algorithm, no token is accepted.
	JWT auth.JWT
	// TLS is the configuration of both listeners: see [Certificates.Config]. If it is nil,
	// connections are not encrypted.
	TLS    *tls.Config
	Limits auth.Limits
	// Timeout bounds a call, except streams and methods of the admin scope. Default 10 s.
	Timeout time.Duration
	// ReceiveTimeout bounds the time that a client takes to send a request. Default 30 s.
	ReceiveTimeout time.Duration
	// HandshakeTimeout bounds the TLS handshake, the HTTP/2 handshake of gRPC, and the time to send
	// the headers of a REST request. Default 10 s.
	HandshakeTimeout time.Duration
	// IdleTimeout is how long a connection may be open without a call. Default 2 minutes.
	IdleTimeout time.Duration
	// MaxConnections bounds the connections of each listener. Further connections wait. Default
	// 20,000.
	MaxConnections int
	// MaxStreams bounds the concurrent calls on one HTTP/2 connection. Default 250.
	MaxStreams uint32
	// MaxWatchers bounds the concurrent watches of callers with keys. Watches of the health service
	// count separately, with the same bound. Default 10,000.
	MaxWatchers int
	// MaxCallerWatchers bounds these watches for each key. Default 1,000.
	MaxCallerWatchers int
	// MaxAnonymousStreams bounds the concurrent streams of callers without keys. These are watches, and calls
	// of the health service's Watch and of reflection. Default 1,000. With Insecure, only MaxWatchers
	// bounds streams.
	MaxAnonymousStreams int
	// MaxPeerStreams bounds these streams for one IPv4 address or IPv6 /64. Default 100.
	MaxPeerStreams int
	// NoReflection switches off gRPC reflection, which needs no key.
	NoReflection bool
	// SeparateProbes leaves /healthz, /readyz and /metrics to [NewAdminServer].
	SeparateProbes bool
	// TrustedProxies are the addresses of proxies whose X-Forwarded-For names the client. The
	// server ignores this header from other callers.
	TrustedProxies []netip.Prefix
	// CORSOrigins are the origins whose web pages may call the API. "*" means any origin.
	CORSOrigins []string
	// FrameAncestors are the origins whose pages may show the web page in a frame.
	FrameAncestors []string
	// PublicCacheControl is the Cache-Control of successful GETs without credentials, if PublicRead
	// is set. Default no-store.
	PublicCacheControl string
	// ShutdownGrace is how long Serve waits for running calls. Default 15 s.
	ShutdownGrace time.Duration

	// Ready returns nil if the server can answer. If Ready is nil, the server always can.
	Ready func() error
	// Backup copies the store to a backup with a name, which has no path separators. If Backup is
	// nil, the API method fails with UNIMPLEMENTED.
	Backup func(ctx context.Context, name string) error
	// CheckBackup, unless nil, returns an error if Backup would refuse a name.
	CheckBackup func(name string) error
	// DeadLetters, unless nil, reads and replays the messages that consumers could not apply. Without it, the API
	// methods fail with UNIMPLEMENTED.
	DeadLetters DeadLetters
	// TracerProvider, unless nil, records a span of each call, except watches, health checks and
	// reflection. The parent of a span is the caller's traceparent.
	TracerProvider trace.TracerProvider
	// LogCalls logs calls at level info, not debug. Faults of the server have level warn or error.
	LogCalls bool
	// Log and Metrics may be nil.
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Now     func() time.Time
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.ReceiveTimeout = cmp.Or(o.ReceiveTimeout, 30*time.Second)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, handshakeTimeout)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, idleTimeout)
	o.MaxConnections = cmp.Or(o.MaxConnections, 20_000)
	o.MaxStreams = cmp.Or(o.MaxStreams, 250)
	o.MaxWatchers = cmp.Or(o.MaxWatchers, 10_000)
	o.MaxCallerWatchers = cmp.Or(o.MaxCallerWatchers, 1_000)
	o.MaxAnonymousStreams = cmp.Or(o.MaxAnonymousStreams, 1_000)
	o.MaxPeerStreams = cmp.Or(o.MaxPeerStreams, 100)
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

// Server answers gRPC, REST, Connect and gRPC-Web.
type Server struct {
	pb.UnimplementedLeaderboardServiceServer
	pb.UnimplementedAdminServiceServer

	service service
	keys    leaderboard.APIKeyStore
	options Options
	guard   *auth.Guard
	metrics *metrics
	grpc    *grpc.Server
	handler http.Handler
	local   *inProcessConn
	// lists shares answers of equal calls of ListScores.
	lists coalesce.Group[ranking.PageQuery, *listAnswer]
	// watches and probes have the streams of callers with keys, anonymousStreams those of other callers.
	watches, probes, anonymousStreams streamPool
	anonymousLifetime                 time.Duration // [anonymousLifetime]; only tests change it
	// anonymous limits the messages that callers without a key send concurrently.
	anonymous        slots
	anonymousTimeout time.Duration // [anonymousReceiveTimeout]; only tests change it
	revokeMu         sync.Mutex
	// stopping is canceled at shutdown and ends streams.
	stopping context.Context
	stop     context.CancelFunc
	draining atomic.Bool
	// running has the handlers of HTTP requests and of in-process streams. net/http does not wait for those of an
	// HTTP/2 connection that the client has closed.
	running sync.WaitGroup
}

// New returns a server for svc, with the API keys in keys. It returns an error if it cannot read
// the keys that verify JSON web tokens.
func New(ctx context.Context, svc service, keys leaderboard.APIKeyStore, o Options) (*Server, error) {
	s := &Server{service: svc, keys: keys, options: o.withDefaults(), anonymousTimeout: anonymousReceiveTimeout, anonymousLifetime: anonymousLifetime}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.lists.Call, s.lists.MaxWait = s.shareScores, shareWait
	openScope := auth.Public // scope of callers without credentials
	switch {
	case o.Insecure:
		openScope = auth.Admin
	case o.PublicRead:
		openScope = auth.Read
	}
	var err error
	if s.guard, err = auth.NewGuard(ctx, keys, auth.Options{Open: openScope, JWT: o.JWT, Limits: o.Limits, Now: s.options.Now}); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(s.options.Metrics, s.options.Log, s.options.LogCalls)

	unary, stream := s.interceptors()
	s.grpc = grpc.NewServer(s.grpcOptions(unary, stream)...)
	local := newInProcessConn(&s.running, unary, stream)
	s.local = local
	network := lateRegistrar{s.grpc, s}
	for _, registrar := range []grpc.ServiceRegistrar{network, local} {
		pb.RegisterLeaderboardServiceServer(boardRegistrar{registrar, s}, s)
		pb.RegisterAdminServiceServer(boardRegistrar{registrar, s}, s)
	}
	healthpb.RegisterHealthServer(network, health{Server: s})
	healthpb.RegisterHealthServer(local, health{Server: s})
	if !s.options.NoReflection {
		reflection.Register(network)
	}

	gw, err := newGateway(ctx, local, s)
	if err != nil {
		return nil, fmt.Errorf("server: gateway: %w", err)
	}
	rpcs, err := s.newRPCHandlers(local)
	if err == nil {
		s.handler, err = s.newHandler(gw, rpcs)
	}
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return s, nil
}

// Keepalive pings of both listeners.
const (
	keepaliveTime    = time.Minute
	keepaliveTimeout = 20 * time.Second
)

func (s *Server) grpcOptions(unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.WaitForHandlers(true), // so that no handler reads a store that is closed after Stop
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(stream...),
		grpc.MaxRecvMsgSize(maxMessageBytes()),
		grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2("proto")}),
		grpc.MaxConcurrentStreams(s.options.MaxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionIdle: s.options.IdleTimeout}),
		grpc.ConnectionTimeout(s.options.HandshakeTimeout),
		grpc.MaxHeaderListSize(maxHeaderBytes),
	}
	if s.options.TracerProvider != nil {
		options = append(options, traceGRPC(s.options.TracerProvider))
	}
	if s.options.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.options.TLS)))
	}
	return options
}

// Drain makes the server close each HTTP connection after its next answer.
func (s *Server) Drain() { s.draining.Store(true) }

// Handler returns the HTTP handler of REST, Connect, gRPC-Web, the probes, the metrics and the web page.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers REST on rest and gRPC on grpcListener, until ctx is done or a listener fails. Serve
// then ends streams with an error that tells clients to reconnect, and waits for running calls. After
// ShutdownGrace, Serve cancels the remaining calls and returns an error.
func (s *Server) Serve(ctx context.Context, rest, grpcListener net.Listener) error {
	rest = netutil.LimitListener(rest, s.options.MaxConnections)
	grpcListener = netutil.LimitListener(grpcListener, s.options.MaxConnections)
	server := newHTTPServer(s.handler, s.options.Log)
	server.ReadHeaderTimeout, server.IdleTimeout = s.options.HandshakeTimeout, s.options.IdleTimeout
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: int(s.options.MaxStreams), SendPingTimeout: keepaliveTime, PingTimeout: keepaliveTimeout}
	serve := func() error { return server.Serve(rest) }
	if s.options.TLS != nil {
		server.TLSConfig = s.options.TLS.Clone()
		serve = func() error { return server.ServeTLS(rest, "", "") } // also serves HTTP/2
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("server: http: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		// If shutdown ran before, s.grpc.Serve returns ErrServerStopped.
		if err := s.grpc.Serve(grpcListener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("server: grpc: %w", err)
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
	finished := make(chan struct{})
	go func() { // after Shutdown, no handler begins
		<-stopped
		s.running.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	s.grpc.Stop()
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("server: canceled the calls that still ran %v after the server had stopped accepting calls; shutdown_grace sets this time", s.options.ShutdownGrace)
	}
	return errors.Join(err, server.Close())
}
