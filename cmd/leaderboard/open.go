package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	apiserver "github.com/open-leaderboard/leaderboard/api/server"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/archive"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/names"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/internal/secret"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

type server struct {
	config  *config.Config
	log     *slog.Logger
	store   leaderboard.Store
	service *ranking.Service
	api     *apiserver.Server // nil without the API role
	metrics *prometheus.Registry
	traces  trace.TracerProvider // nil unless traces are exported
	// consumer is nil in an embedded server, and without the consumer role.
	consumer *consumer.Consumer
	kafka    kafka.Options
	// deadLetters is nil in the embedded engine.
	deadLetters apiserver.DeadLetters
	// backup copies the embedded store to a backup with a name. backup and backups are nil in a
	// distributed server.
	backup      func(ctx context.Context, name string) error
	checkBackup func(name string) error
	backups     *backups
	archives    *archives
	closers     []func() error

	rest         net.Listener            // REST and probes; nil without the API role if "admin" is set
	grpc         net.Listener            // nil without the API role
	admin        net.Listener            // probes only; nil without the setting "admin"
	certificates *apiserver.Certificates // nil without TLS
	draining     atomic.Bool             // whether the server is about to stop
	starting     atomic.Pointer[string]  // what the start waits for; nil after the start
	startBy      time.Time

	deniedNames *names.DenyList // of profiles

	// newKey is the admin key that this start created, or empty.
	newKey     secret.Text
	newKeyFile string // the file with newKey; empty if newKey is printed
	terminal   bool   // whether standard output is a terminal
}

// openServer returns a server that listens, but answers calls only while [server.serve] runs. Before,
// it answers probes. terminal reports whether standard output is a terminal. The caller must close the
// server.
func openServer(ctx context.Context, c *config.Config, log *slog.Logger, terminal bool) (s *server, err error) {
	s = &server{config: c, log: log, terminal: terminal}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.listen(); err != nil {
		return s, err
	}
	if c.ServesAPI() {
		if s.deniedNames, err = names.ReadDenyList(c.Profiles.DenyList); err != nil {
			return s, err
		}
		if s.certificates, err = (apiserver.TLS{CertFile: c.TLS.Cert, KeyFile: c.TLS.Key, ClientCAFile: c.TLS.ClientCA}).Load(); err != nil {
			return s, err
		}
	}
	if err := s.openTracing(ctx, c); err != nil {
		return s, err
	}
	s.metrics = prometheus.NewRegistry()
	s.metrics.MustRegister(buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.archives = newArchives(&c.Archive, s.metrics)
	s.startBy = time.Now().Add(c.StartTimeout)
	s.setStarting("starting")
	defer s.serveStarting()()
	if c.Distributed() {
		err = s.openDistributed(ctx)
	} else {
		err = s.openEmbedded()
	}
	if err != nil {
		return s, err
	}
	if err := s.retryStart(ctx, "create the default board", func() error { return s.service.EnsureDefaultBoard(ctx) }); err != nil {
		return s, err
	}
	if c.ServesAPI() {
		if s.api, err = s.newAPI(ctx); err != nil {
			return s, err
		}
		if err := s.ensureAdminKey(ctx); err != nil { // last, because after a later failure nobody would see the new key
			return s, err
		}
	}
	s.starting.Store(nil)
	return s, nil
}

func buildInfo() prometheus.Collector {
	v := cli.ReadVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "leaderboard", Name: "build_info", Help: "Version and commit of this program. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision},
	}, func() float64 { return 1 })
}

func (s *server) openEmbedded() error {
	c := s.config
	store, err := pebble.Open(c.Data, pebble.Options{CacheBytes: int64(c.CacheBytes), Registerer: s.metrics})
	if err != nil {
		return fmt.Errorf("%w; --data names the folder", err)
	}
	s.store = observe.Store(engine.New(store), s.metrics)
	s.closeLater(store.Close)
	s.warnOfSharedFolders(c.Data, c.BackupDir)
	s.backups = newBackups(store, c.BackupFolder(), s.metrics)
	s.backup, s.checkBackup = s.backups.makeNamed, s.backups.checkName
	s.service = ranking.New(s.store, observe.Index(memory.New(), s.metrics), ranking.Options{Log: s.log, Registerer: s.metrics, Sealed: s.archives.noteSeal})
	s.closeLater(s.finishWrites)
	return nil
}

// warnOfSharedFolders logs a warning for each folder to which other users have access. Shared
// folders are allowed, because some platforms mount folders with access for a group.
func (s *server) warnOfSharedFolders(folders ...string) {
	for _, folder := range folders {
		if mode, open := cli.OpenToOthers(folder); open {
			s.log.Warn(sharedFolderWarning, "folder", folder, "mode", mode)
		}
	}
}

const sharedFolderWarning = "other users of this machine may read the data: make the folder private with chmod 700"

// finishWrites waits for writes whose callers have disconnected.
func (s *server) finishWrites() error {
	s.service.Close()
	return nil
}

func (s *server) closeLater(f func() error) { s.closers = append(s.closers, f) }

func (s *server) newAPI(ctx context.Context) (*apiserver.Server, error) {
	c := s.config
	options := apiserver.Options{
		Insecure:   c.Insecure,
		PublicRead: c.PublicRead,
		SelfEdit:   c.Profiles.SelfEdit,
		DenyName:   s.deniedNames.Denies,
		JWT: auth.JWT{
			Algorithm: c.JWT.Algorithm, Secret: c.JWT.Secret, PublicKey: c.JWT.PublicKey, JWKS: c.JWT.JWKS,
			Issuer: c.JWT.Issuer, Audience: c.JWT.Audience, Leeway: c.JWT.Leeway, Refresh: c.JWT.Refresh, MaxLifetime: c.JWT.MaxLifetime,
		},
		TLS: s.certificates.Config(),
		Limits: auth.Limits{
			PerKey:  auth.Rate{PerSecond: c.Limits.KeyRate, Burst: c.Limits.KeyBurst},
			PerUser: auth.Rate{PerSecond: c.Limits.UserRate, Burst: c.Limits.UserBurst},
			PerPeer: auth.Rate{PerSecond: c.Limits.PeerRate, Burst: c.Limits.PeerBurst},
		},
		NoReflection:        !c.Reflection,
		SeparateProbes:      c.Admin != "",
		TrustedProxies:      c.ProxyPrefixes(),
		CORSOrigins:         c.Web.CORSOrigins,
		FrameAncestors:      c.Web.AncestorSources(),
		PublicCacheControl:  c.Web.CacheControl,
		Timeout:             c.RequestTimeout,
		ReceiveTimeout:      c.ReceiveTimeout,
		MaxConnections:      c.Limits.Connections,
		MaxStreams:          uint32(c.Limits.Streams),
		MaxWatchers:         c.Limits.Watchers,
		MaxCallerWatchers:   c.Limits.CallerWatchers,
		MaxAnonymousStreams: c.Limits.AnonymousStreams,
		MaxPeerStreams:      c.Limits.PeerStreams,
		ShutdownGrace:       c.ShutdownGrace,
		Ready:               s.ready,
		Backup:              s.backup,
		CheckBackup:         s.checkBackup,
		DeadLetters:         s.deadLetters,
		TracerProvider:      s.traces,
		LogCalls:            c.Log.Calls,
		Log:                 s.log,
		Metrics:             s.metrics,
	}
	var api *apiserver.Server
	err := s.retryStart(ctx, "read the keys that verify tokens", func() (err error) {
		api, err = apiserver.New(ctx, s.service, s.store, options)
		return err
	})
	return api, err
}

func (s *server) listen() (err error) {
	c := s.config
	if c.Admin != "" {
		if s.admin, err = listen("admin", c.Admin); err != nil {
			return err
		}
	}
	if c.ServesAPI() || c.Admin == "" {
		if s.rest, err = listen("http", c.HTTP); err != nil {
			return err
		}
	}
	if c.ServesAPI() {
		s.grpc, err = listen("grpc", c.GRPC)
	}
	return err
}

func listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s address %s is in use, possibly by another server; stop that server, or choose another address with --%s", setting, address, setting)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("this user may not listen on %s address %s; choose port 1024 or higher with --%s", setting, address, setting)
	}
	return nil, fmt.Errorf("cannot listen on %s address %s (%w); choose an address of this machine with --%s", setting, address, err, setting)
}

// serve answers calls until ctx is done, a listener fails, or the index cannot be filled. After ctx
// is done, serve still answers for DrainTime, but ready returns an error. Finally, serve waits
// for running calls.
//
// In the background, serve fills the index, and reports each step to progress. When the fill
// has ended or failed, serve calls loaded.
func (s *server) serve(ctx context.Context, progress ranking.Progress, loaded func()) error {
	ctx, cancel := s.untilDrained(ctx)
	defer cancel(nil)
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() {
		start := time.Now()
		err := s.load(ctx, progress)
		loaded()
		if err != nil {
			cancel(fmt.Errorf("cannot fill the rank index: %w", err))
			return
		}
		s.log.InfoContext(ctx, "ready", "after", time.Since(start).Round(time.Millisecond))
		s.service.SweepEvery(ctx, s.config.SweepInterval)
	})
	if s.consumer != nil {
		background.Go(func() {
			if err := s.consumer.Run(ctx); err != nil {
				s.log.ErrorContext(ctx, "consumer failed", "err", err)
			}
		})
	}
	if s.config.Distributed() {
		background.Go(func() { s.warnOfTopics(ctx) })
	}
	if s.backups != nil && s.config.BackupEvery > 0 {
		background.Go(func() { s.backups.run(ctx, s.config, s.log) })
	}
	if s.api != nil && s.config.Archive.To != "" {
		background.Go(func() { s.archives.run(ctx, archive.NewSource(s.api.Local()), s.log) })
	}
	stopProbes := s.serveProbes(cancel)
	var err error
	if s.api != nil {
		err = s.api.Serve(ctx, s.rest, s.grpc)
		s.rest, s.grpc = nil, nil // both are closed already
	} else {
		<-ctx.Done()
	}
	stopProbes()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	return err
}

// ready returns nil, or the reason why the server is not ready. A consumer must have joined its
// group, unless Kafka is unreachable and the server also serves reads.
func (s *server) ready() error {
	if s.draining.Load() {
		return errors.New("the server is stopping")
	}
	if state := s.starting.Load(); state != nil {
		return errors.New(*state)
	}
	if !s.service.Ready() {
		return fmt.Errorf("the rank index is being filled: %v", s.service.Filling())
	}
	if s.consumer != nil && !s.consumer.Joined() && !(s.api != nil && s.consumer.Unreachable()) {
		return errors.New("the consumer has not joined its consumer group yet")
	}
	return nil
}

func (s *server) load(ctx context.Context, progress ranking.Progress) error {
	delays := backoff.NewExponentialBackOff()
	delays.MaxInterval = 10 * time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := s.service.Load(ctx, progress)
		if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) && !errors.Is(err, leaderboard.ErrUnavailable) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, wait time.Duration) {
		s.log.WarnContext(ctx, "cannot fill the rank index yet, retrying", "err", err, "in", wait.Round(time.Millisecond))
	}))
	return err
}

func (s *server) close() error {
	var errs []error
	for _, l := range []net.Listener{s.rest, s.grpc, s.admin} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
