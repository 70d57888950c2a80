package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

// node is a server with all that it is made of.
type node struct {
	config  *config.Config
	log     *slog.Logger
	store   leaderboard.Store
	service *ranking.Service
	server  *api.Server // nil if the node is no API
	metrics *prometheus.Registry
	// consumer applies results from the log; nil if there is no log, or the node does not.
	consumer *consumer.Consumer
	// backup copies the store under a name; nil if the store is not this node's.
	backup  func(ctx context.Context, name string) error
	closers []func() error // to be called last to first

	rest net.Listener
	grpc net.Listener // nil if the node is no API
	// newKey is the admin key that the first start made, for its one showing.
	newKey api.Secret
}

// open makes a node that listens but does not answer yet: see [node.serve].
func (w *world) open(ctx context.Context, c *config.Config, log *slog.Logger) (n *node, err error) {
	n = &node{config: c, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if c.Insecure {
		if err := api.CheckLoopback(c.HTTP, c.GRPC); err != nil {
			return n, usagef("%w; or leave --insecure out", err)
		}
	}
	if n.rest, err = listen("http", c.HTTP); err != nil {
		return n, err
	}
	if c.ServesAPI() {
		if n.grpc, err = listen("grpc", c.GRPC); err != nil {
			return n, err
		}
	}
	n.metrics = prometheus.NewRegistry()
	n.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if c.Distributed() {
		err = n.openDistributed(ctx)
	} else {
		err = n.openEmbedded()
	}
	if err != nil {
		return n, err
	}
	if err := n.service.EnsureDefaultBoard(ctx); err != nil {
		return n, err
	}
	if !c.ServesAPI() {
		return n, nil
	}
	if err := n.ensureAdminKey(ctx); err != nil {
		return n, err
	}
	n.server, err = n.newServer(ctx)
	return n, err
}

// openEmbedded opens the store in the data folder, and an empty index.
func (n *node) openEmbedded() error {
	c := n.config
	store, err := pebble.Open(c.Data, pebble.Options{CacheBytes: int64(c.CacheBytes)})
	if err != nil {
		return fmt.Errorf("%w; --data names the folder", err)
	}
	n.store = store
	n.closeLater(store.Close)
	n.backup = func(ctx context.Context, name string) error { return backup(ctx, store, c, name) }
	n.service = ranking.New(store, memory.New(), ranking.Options{Log: n.log})
	n.closeLater(n.finishWrites)
	return nil
}

// finishWrites waits for writes whose callers are gone.
func (n *node) finishWrites() error {
	n.service.Close()
	return nil
}

// closeLater has f called by close, before what was opened earlier is closed.
func (n *node) closeLater(f func() error) { n.closers = append(n.closers, f) }

func (n *node) newServer(ctx context.Context) (*api.Server, error) {
	c := n.config
	tls, err := api.TLS{CertFile: c.TLS.Cert, KeyFile: c.TLS.Key, ClientCAFile: c.TLS.ClientCA}.Config()
	if err != nil {
		return nil, err
	}
	return api.New(ctx, n.service, n.store, api.Options{
		Insecure:   c.Insecure,
		PublicRead: c.PublicRead,
		JWT: api.JWT{
			Algorithm: c.JWT.Algorithm, Secret: api.Secret(c.JWT.Secret), PublicKey: c.JWT.PublicKey, JWKS: c.JWT.JWKS,
			Issuer: c.JWT.Issuer, Audience: c.JWT.Audience, Leeway: c.JWT.Leeway, Refresh: c.JWT.Refresh,
		},
		TLS: tls,
		Limits: api.Limits{
			PerKey:  api.Rate{PerSecond: c.Limits.KeyRate, Burst: c.Limits.KeyBurst},
			PerUser: api.Rate{PerSecond: c.Limits.UserRate, Burst: c.Limits.UserBurst},
			PerPeer: api.Rate{PerSecond: c.Limits.PeerRate, Burst: c.Limits.PeerBurst},
		},
		Timeout:       c.RequestTimeout,
		MaxStreams:    uint32(c.Limits.Streams),
		MaxWatchers:   int64(c.Limits.Watchers),
		ShutdownGrace: c.ShutdownGrace,
		Ready:         n.ready,
		Backup:        n.backup,
		Log:           n.log,
		Metrics:       n.metrics,
	})
}

func backup(ctx context.Context, store *pebble.Store, c *config.Config, name string) error {
	dir := c.BackupDir
	if dir == "" {
		dir = filepath.Join(c.Data, "backups")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); err == nil {
		return &leaderboard.FieldError{Field: "name", Problem: fmt.Sprintf("a backup %q exists; choose another name", name)}
	}
	return store.Backup(ctx, path)
}

// ensureAdminKey sees to it that somebody can administer: by the configured
// key, by one that is kept, or by a new one.
func (n *node) ensureAdminKey(ctx context.Context) error {
	scopes := []string{"admin"}
	if n.config.AdminKey != "" {
		_, key := api.KeyFrom(api.Secret(n.config.AdminKey), "admin_key of the configuration", scopes, time.Now())
		_, err := n.store.APIKey(ctx, key.Hash)
		if errors.Is(err, leaderboard.ErrAPIKeyNotFound) {
			err = n.store.PutAPIKey(ctx, key)
		}
		return err
	}
	if n.config.Insecure {
		return nil
	}
	keys, err := n.store.APIKeys(ctx)
	if err != nil || len(keys) > 0 {
		return err
	}
	secret, key := api.NewKey("first admin key", scopes, time.Now())
	n.newKey = secret
	return n.store.PutAPIKey(ctx, key)
}

func listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s address %s is in use, by another server perhaps; stop that, or choose another with --%s", setting, address, setting)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s address %s may not be listened on by this user; choose a port from 1024 on with --%s", setting, address, setting)
	}
	return nil, fmt.Errorf("%s address %s cannot be listened on (%w); choose one of this machine with --%s", setting, address, err, setting)
}

// serve fills the index, of which progress is told until loaded is called, and
// answers until ctx is done or something fails. Then it waits for running calls.
func (n *node) serve(ctx context.Context, progress ranking.Progress, loaded func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() {
		begun := time.Now()
		err := n.load(ctx, progress)
		loaded()
		if err != nil {
			cancel(fmt.Errorf("the rank index could not be filled: %w", err))
			return
		}
		n.log.InfoContext(ctx, "ready", "after", time.Since(begun).Round(time.Millisecond))
		n.service.SweepEvery(ctx, n.config.SweepInterval)
	})
	if n.consumer != nil {
		background.Go(func() {
			if err := n.consumer.Run(ctx); err != nil {
				n.log.ErrorContext(ctx, "the consumer ended badly", "err", err)
			}
		})
	}
	var err error
	if n.server != nil {
		err = n.server.Serve(ctx, n.rest, n.grpc)
	} else {
		err = n.serveProbes(ctx)
	}
	n.rest, n.grpc = nil, nil // they are closed
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	return err
}

// ready says what the node has yet to do before it does its work. An API that
// consumes too need not wait for a Kafka that is away: reads do without.
func (n *node) ready() error {
	if !n.service.Ready() {
		return errors.New("the rank index is being filled")
	}
	if n.consumer != nil && !n.consumer.Joined() && !(n.server != nil && n.consumer.Away()) {
		return errors.New("the consumer has not joined its group yet")
	}
	return nil
}

// load fills the index. While a server that it needs does not answer it tries
// again: what can be answered without the index is answered meanwhile.
func (n *node) load(ctx context.Context, progress ranking.Progress) error {
	again := backoff.NewExponentialBackOff()
	again.MaxInterval = 10 * time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := n.service.Load(ctx, progress)
		if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) && !errors.Is(err, leaderboard.ErrUnavailable) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(again), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, wait time.Duration) {
		n.log.WarnContext(ctx, "the rank index cannot be filled yet", "err", err, "in", wait)
	}))
	return err
}

// close releases what open took.
func (n *node) close() error {
	var errs []error
	for _, l := range []net.Listener{n.rest, n.grpc} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	for _, f := range slices.Backward(n.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
