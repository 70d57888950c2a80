package cql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/schema"
)

const (
	defaultKeyspace    = "leaderboard"
	defaultBuckets     = 64
	defaultCacheUsers  = 100_000
	defaultConnections = 4
	defaultTimeout     = 12 * time.Second
	maxBuckets         = 4096
)

// Options are the settings of a store. Hosts and DataCenter are required.
type Options struct {
	// Hosts are addresses, host or host:port, of some nodes of the local data
	// centre; the others are found. All nodes listen on one port.
	Hosts []string
	// DataCenter is the one whose nodes are asked, and whose quorum decides.
	DataCenter string
	// Keyspace holds the tables. Default leaderboard.
	Keyspace string
	// Username and Password are for nodes that ask for them.
	Username, Password string
	// TLS is for nodes that want it; nil is none.
	TLS *tls.Config
	// Connections is how many are kept to each node. Default 4.
	Connections int
	// Timeout is how long a node is waited for. It is longer than the nodes'
	// own timeouts, so that they are heard to give up. Default 12s.
	Timeout time.Duration
	// Buckets is how many partitions the users of each ladder are spread over,
	// 1 to 4096. It is fixed for a board when that is made. A partition of n
	// users takes some 200 n bytes, more with metadata, and should stay under 100 MB; a ladder is
	// read from all of its partitions. Default 64, for 25 million users.
	Buckets int
	// CacheUsers is how many users' summaries are kept in memory, so that a
	// result costs the same whatever the user's history. Default 100,000;
	// negative is none.
	CacheUsers int
}

func (o *Options) complete() error {
	var errs []error
	if len(o.Hosts) == 0 {
		errs = append(errs, errors.New("no host is named"))
	}
	if o.DataCenter == "" {
		errs = append(errs, errors.New("the local data center is not named"))
	}
	if o.Keyspace == "" {
		o.Keyspace = defaultKeyspace
	}
	if o.Connections <= 0 {
		o.Connections = defaultConnections
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.CacheUsers == 0 {
		o.CacheUsers = defaultCacheUsers
	}
	if o.Buckets == 0 {
		o.Buckets = defaultBuckets
	}
	if o.Buckets < 1 || o.Buckets > maxBuckets {
		errs = append(errs, fmt.Errorf("%d buckets are not 1 to %d", o.Buckets, maxBuckets))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cql: options: %w", err)
	}
	return nil
}

// ApplySchema makes the keyspace, with a number of replicas in each data center,
// or brings its schema up to date. progress is told of each migration, and may be
// nil. Errors are those of [schema.Apply].
func ApplySchema(ctx context.Context, o Options, replicas map[string]int, progress func(schema.Migration)) error {
	if err := o.complete(); err != nil {
		return err
	}
	return schema.Apply(ctx, o.connect, o.Keyspace, replicas, progress)
}

// CheckReplicas is [schema.CheckReplicas] of the keyspace.
func CheckReplicas(ctx context.Context, o Options, replicas map[string]int) error {
	if err := o.complete(); err != nil {
		return err
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		return err
	}
	defer gs.Close()
	return schema.CheckReplicas(ctx, gs, o.Keyspace, replicas)
}

// SchemaStatus returns the migrations that there are, and whether each was applied.
func SchemaStatus(ctx context.Context, o Options) ([]schema.Migration, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		return nil, err
	}
	defer gs.Close()
	return schema.Status(ctx, gs)
}

// connect opens a session in a keyspace, or in none.
func (o *Options) connect(keyspace string) (*gocql.Session, error) {
	cfg, err := o.cluster(keyspace)
	if err != nil {
		return nil, err
	}
	gs, err := cfg.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("cql: connect to keyspace %q of %v (if there is none: leaderboard schema apply): %w: %w",
			keyspace, o.Hosts, leaderboard.ErrUnavailable, err)
	}
	return gs, nil
}

// cluster returns the driver's settings.
func (o *Options) cluster(keyspace string) (*gocql.ClusterConfig, error) {
	cfg := gocql.NewCluster(o.Hosts...)
	if _, port, err := net.SplitHostPort(o.Hosts[0]); err == nil {
		if cfg.Port, err = strconv.Atoi(port); err != nil {
			return nil, fmt.Errorf("cql: options: port of %q: %w", o.Hosts[0], err)
		}
	}
	cfg.Keyspace = keyspace
	cfg.ProtoVersion = 4
	cfg.NumConns = o.Connections
	cfg.ConnectTimeout, cfg.Timeout, cfg.WriteTimeout = 5*time.Second, o.Timeout, o.Timeout
	// A quorum of the local data centre, never less: a retry asks another node,
	// at the same consistency.
	cfg.Consistency, cfg.SerialConsistency = gocql.LocalQuorum, gocql.Serial
	cfg.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.DCAwareRoundRobinPolicy(o.DataCenter), gocql.ShuffleReplicas())
	cfg.RetryPolicy = retries{}
	cfg.DefaultIdempotence = true
	// Timestamps come from what is written, never from this machine's clock.
	cfg.DefaultTimestamp = false
	// A node that was down is tried again soon and for good.
	cfg.ReconnectInterval = time.Second
	cfg.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 3, Interval: 200 * time.Millisecond}
	cfg.PageSize = pageRows
	cfg.Logger = quiet{} // stores do not log
	if o.Username != "" {
		cfg.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	if o.TLS != nil {
		cfg.SslOpts = &gocql.SslOptions{Config: o.TLS, EnableHostVerification: !o.TLS.InsecureSkipVerify}
	}
	return cfg, nil
}

const (
	maxRetries = 3
	retryMin   = 25 * time.Millisecond
	retryMax   = 400 * time.Millisecond
)

// retries tries a statement again on the next node, after a pause that doubles
// and of which half is random. What is tried again may be repeated: it carries its
// timestamp. Statements with a condition have no such policy.
type retries struct{}

func (retries) Attempt(q gocql.RetryableQuery) bool {
	if q.Attempts() > maxRetries {
		return false
	}
	pause := min(retryMin<<(q.Attempts()-1), retryMax)
	timer := time.NewTimer(pause/2 + rand.N(pause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-q.Context().Done():
		return false
	}
}

func (retries) GetRetryType(err error) gocql.RetryType {
	var request gocql.RequestError
	if errors.As(err, &request) && !mayPass(request.Code()) {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}

// mayPass says whether a node that answers with the code may answer otherwise
// later, or another node now.
func mayPass(code int) bool {
	switch code {
	case gocql.ErrCodeServer, gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping,
		gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeReadFailure, gocql.ErrCodeWriteFailure,
		gocql.ErrCodeCASWriteUnknown, gocql.ErrCodeUnprepared, gocql.ErrCodeTruncate:
		return true
	}
	return false
}

type quiet struct{}

func (quiet) Print(...any)          {}
func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}
