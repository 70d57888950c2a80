package cql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/schema"
)

const (
	defaultKeyspace       = "leaderboard"
	defaultBuckets        = 64
	defaultCacheUsers     = 100_000
	defaultConnections    = 4
	defaultConnectTimeout = 5 * time.Second
	defaultTimeout        = 12 * time.Second
	maxBuckets            = 4096
)

// Options are the settings of a store. Hosts and DataCenter are required.
type Options struct {
	// Hosts are addresses, host or host:port, of some nodes of the local data
	// center. The driver discovers the others. All nodes listen on one port.
	Hosts []string
	// DataCenter is the local data center. The store queries its nodes only,
	// and waits for a quorum of them. Without a quorum, calls fail with
	// [leaderboard.ErrUnavailable], also while other data centers are up.
	DataCenter string
	// Keyspace holds the tables. Default leaderboard.
	Keyspace string
	// Rack is the local rack. If it is set, the store prefers replicas of that rack, and
	// asks other nodes of the data center if those do not answer.
	Rack string
	// Username and Password are the credentials, if the nodes require them.
	Username, Password string
	// TLS begins TLS on a connection to addr, as host:port. If it is nil, connections are
	// without TLS.
	TLS func(ctx context.Context, conn net.Conn, addr string) (net.Conn, error)
	// ConnectTimeout bounds the connection to a node, with TLS. Default 5s.
	ConnectTimeout time.Duration
	// Connections is the number of connections to each node. Default 4.
	Connections int
	// Timeout bounds the wait for a node's answer. It must exceed the nodes' own
	// timeouts, so that the store receives their timeout errors. Default 12s.
	Timeout time.Duration
	// Buckets is the number of partitions over which the users of each ladder are
	// spread, 1 to 4096. It is fixed for a board when the board is created. A
	// partition of n users takes about 200·n bytes, more with metadata. It should
	// stay below 100 MB. Reading a ladder reads all of its partitions. The default
	// of 64 is enough for 25 million users.
	Buckets int
	// CacheUsers is the number of users for whom the store caches a summary of their
	// results. For a cached user, the cost of a new result does not depend on the
	// number of the user's results. Default 100,000; a negative number disables the
	// cache.
	CacheUsers int
}

func (o *Options) complete() error {
	var errs []error
	if len(o.Hosts) == 0 {
		errs = append(errs, errors.New("no host is set; set cassandra.hosts"))
	}
	if o.DataCenter == "" {
		errs = append(errs, errors.New("no local data center is set; set cassandra.data_center"))
	}
	if o.Keyspace == "" {
		o.Keyspace = defaultKeyspace
	}
	if o.Connections <= 0 {
		o.Connections = defaultConnections
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = defaultConnectTimeout
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
		errs = append(errs, fmt.Errorf("%d buckets; the number must be 1 to %d", o.Buckets, maxBuckets))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cql: options: %w", err)
	}
	return nil
}

// ApplySchema creates the keyspace, with a number of replicas per data center, or
// brings its schema up to date. It calls progress after each migration; progress
// may be nil. Errors: those of [schema.Apply].
func ApplySchema(ctx context.Context, o Options, replicas map[string]int, progress func(schema.Migration)) error {
	if err := o.complete(); err != nil {
		return err
	}
	return schema.Apply(ctx, o.connect, o.Keyspace, replicas, progress)
}

// CheckReplicas calls [schema.CheckReplicas] for the keyspace.
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

// SchemaStatus returns the migrations of this program and of the keyspace, as
// [schema.Status] does.
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

// connect opens a session in a keyspace, or in no keyspace if the name is empty.
func (o *Options) connect(keyspace string) (*gocql.Session, error) {
	cfg, err := o.cluster(keyspace)
	if err != nil {
		return nil, err
	}
	attempts := &attempts{}
	cfg.ConnectObserver = attempts
	gs, err := cfg.CreateSession()
	if err != nil {
		if rejected := o.rejected(attempts.last()); rejected != nil {
			return nil, rejected
		}
		if missing := o.checkDataCenter(cfg.HostFilter.(*localNodes)); missing != nil {
			return nil, missing
		}
		return nil, fmt.Errorf("cql: connect to keyspace %q on %v (to create the keyspace, run `leaderboard schema apply`): %w: %w",
			keyspace, o.Hosts, leaderboard.ErrUnavailable, err)
	}
	return gs, nil
}

// localNodes is the driver's filter of nodes. It accepts the nodes of one data
// center only.
//
// Without this filter, the driver asks nodes of other data centers once the local
// nodes do not answer. LOCAL_QUORUM then means a quorum of the other data center. A
// write would be acknowledged there, and be missing in the local data center.
type localNodes struct {
	dataCenter string

	mu     sync.Mutex
	local  bool            // a local node answered
	remote *gocql.HostInfo // a node of another data center that answered
}

// Accept reports whether the driver may use a node.
func (n *localNodes) Accept(node *gocql.HostInfo) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node.DataCenter() == n.dataCenter {
		n.local = true
		return true
	}
	n.remote = node
	return false
}

// checkDataCenter returns [schema.ErrDataCenter] if only nodes of other data centers
// answered, and these nodes do not know the local data center. It returns nil if it
// cannot find out.
func (o *Options) checkDataCenter(nodes *localNodes) error {
	nodes.mu.Lock()
	local, node := nodes.local, nodes.remote
	nodes.mu.Unlock()
	if local || node == nil {
		return nil
	}
	cfg, err := o.cluster("")
	if err == nil {
		address := node.ConnectAddress().String()
		cfg.Hosts, cfg.HostFilter = []string{address}, gocql.WhiteListHostFilter(address)
		var gs *gocql.Session
		if gs, err = cfg.CreateSession(); err == nil {
			defer gs.Close()
			ctx, cancel := context.WithTimeout(context.Background(), cfg.ConnectTimeout)
			defer cancel()
			err = schema.CheckDataCenter(ctx, gs, o.DataCenter)
		}
	}
	if errors.Is(err, schema.ErrDataCenter) {
		return fmt.Errorf("cql: hosts %v: %w", o.Hosts, err)
	}
	return nil
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
	cfg.ConnectTimeout, cfg.Timeout, cfg.WriteTimeout = o.ConnectTimeout, o.Timeout, o.Timeout
	// A retry asks another node, at the same consistency.
	cfg.Consistency, cfg.SerialConsistency = gocql.LocalQuorum, gocql.Serial
	cfg.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(o.nodes(), gocql.ShuffleReplicas())
	cfg.HostFilter = &localNodes{dataCenter: o.DataCenter}
	cfg.RetryPolicy = retries{}
	cfg.DefaultIdempotence = true
	// Timestamps are computed from the written data, never from this machine's clock.
	cfg.DefaultTimestamp = false
	// The driver keeps trying to reconnect to a node that is down.
	cfg.ReconnectInterval = time.Second
	cfg.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 3, Interval: 200 * time.Millisecond}
	cfg.PageSize = pageRows
	cfg.Logger = quiet{}
	o.secure(cfg)
	return cfg, nil
}

// nodes returns the policy that orders the nodes. The filter [localNodes] excludes the
// nodes of other data centers, whatever the policy.
func (o *Options) nodes() gocql.HostSelectionPolicy {
	if o.Rack != "" {
		return gocql.RackAwareRoundRobinPolicy(o.DataCenter, o.Rack)
	}
	return gocql.DCAwareRoundRobinPolicy(o.DataCenter)
}

const (
	maxRetries = 3
	retryMin   = 25 * time.Millisecond
	retryMax   = 400 * time.Millisecond
)

// retries retries a statement on the next node, after a delay that doubles and is
// half random. A retry is safe because the statement carries its timestamp.
// Conditional statements do not use this policy.
type retries struct{}

func (retries) Attempt(q gocql.RetryableQuery) bool {
	if q.Attempts() > maxRetries {
		return false
	}
	delay := min(retryMin<<(q.Attempts()-1), retryMax)
	timer := time.NewTimer(delay/2 + rand.N(delay/2))
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

// mayPass reports whether a request that failed with the code may succeed later,
// or on another node.
func mayPass(code int) bool {
	switch code {
	case gocql.ErrCodeServer, gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping,
		gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeReadFailure, gocql.ErrCodeWriteFailure,
		gocql.ErrCodeCASWriteUnknown, gocql.ErrCodeUnprepared, gocql.ErrCodeTruncate:
		return true
	}
	return false
}

// quiet discards the driver's messages, because stores do not log.
type quiet struct{}

func (quiet) Print(...any)          {}
func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}
