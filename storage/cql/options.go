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
	"github.com/prometheus/client_golang/prometheus"

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
	// Hosts are the addresses of some nodes of the local data center, as host or
	// host:port. The driver discovers the other nodes. All nodes must listen on the same
	// port.
	Hosts []string
	// DataCenter is the name of the local data center. The store queries only the nodes
	// of this data center, and waits for a quorum of them. Without a quorum, calls return
	// [leaderboard.ErrUnavailable], even if other data centers are up.
	DataCenter string
	// Keyspace is the name of the keyspace with the tables. Default leaderboard.
	Keyspace string
	// Rack is the name of the local rack. If it is set, the store first asks the replicas
	// in this rack. If these do not answer, it asks other nodes of the data center.
	Rack string
	// Username and Password are the credentials, if the nodes require them.
	Username, Password string
	// TLS starts TLS on a connection to a node. addr is the node's address as host:port.
	// If TLS is nil, connections do not use TLS.
	TLS func(ctx context.Context, conn net.Conn, addr string) (net.Conn, error)
	// ConnectTimeout bounds the time to connect to a node, including TLS. Default 5s.
	ConnectTimeout time.Duration
	// Connections is the number of connections to each node. Default 4.
	Connections int
	// Timeout bounds the wait for a node's answer. It must exceed the nodes' own
	// timeouts, so that the store receives their timeout errors. Default 12s.
	Timeout time.Duration
	// Buckets is the number of partitions of each ladder, from 1 to 4096. The users of a
	// ladder are distributed over them. A board keeps the number that is set when the
	// board is created. A partition should stay below 100 MB. It takes 60 to 140 bytes per
	// user, and more with metadata: see README.md. Every read of a ladder reads all of its
	// partitions, so more partitions make reads slower. The default, 64, is enough for 25 million
	// users with at most 100 bytes of metadata.
	Buckets int
	// CacheUsers is the maximum number of users whose summary the store caches. For other users, a
	// result takes a few more statements. Default 100,000; a negative number disables the cache.
	CacheUsers int
	// Registerer receives the metrics of the driver. If it is nil, the driver has no
	// metrics.
	Registerer prometheus.Registerer
	// Traces makes the store record a span of each attempt at a statement, below the span of
	// the caller, if the caller's span is sampled.
	Traces bool

	metrics *metrics // the metrics of a Store's session
}

// complete sets the defaults. It returns an error if a required setting is missing, or if
// the number of buckets is out of range.
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

// ApplySchema creates the keyspace and its tables, or applies the missing migrations to
// an existing keyspace. The map replicas contains the number of replicas in each data
// center. If progress is not nil, ApplySchema calls it after each migration. Errors: those
// of [schema.Apply].
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
	connects := &connectErrors{}
	cfg.ConnectObserver = connects
	if o.metrics != nil {
		o.metrics.observe(cfg)
	}
	if o.Traces {
		cfg.QueryObserver, cfg.BatchObserver = tracer{}, tracer{}
	}
	gs, err := cfg.CreateSession()
	if err != nil {
		if rejected := o.checkRejection(connects.last()); rejected != nil {
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

// localNodes is the driver's filter of nodes. It accepts the nodes of one data center
// only.
//
// Without this filter, the driver asks nodes of other data centers if the local nodes do
// not answer. For such a node, LOCAL_QUORUM means a quorum of its own data center. That
// data center would acknowledge a write that the local data center does not have.
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
// answered, and the cluster has no data center with the name o.DataCenter. If it cannot
// determine this, it returns nil.
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
	// Retries use the same consistency level: see retryPolicy.
	cfg.Consistency, cfg.SerialConsistency = gocql.LocalQuorum, gocql.Serial
	cfg.PoolConfig.HostSelectionPolicy = ownKeyspace{gocql.TokenAwareHostPolicy(o.hostPolicy(), gocql.ShuffleReplicas()), keyspace}
	cfg.HostFilter = &localNodes{dataCenter: o.DataCenter}
	cfg.RetryPolicy = retryPolicy{}
	cfg.DefaultIdempotence = true
	// Timestamps are computed from the written data, never from this machine's clock.
	cfg.DefaultTimestamp = false
	// If a node is down, the driver tries to reconnect every second.
	cfg.ReconnectInterval = time.Second
	cfg.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 3, Interval: 200 * time.Millisecond}
	cfg.PageSize = pageRows
	cfg.Logger = quietLogger{}
	cfg.Dialer = dialer{o}
	o.setSecurity(cfg)
	return cfg, nil
}

// ownKeyspace is a policy that ignores changes of other keyspaces than its own. The driver reports
// changes of all keyspaces. If one of them has no replica in the data center of [localNodes], the
// token-aware policy panics.
type ownKeyspace struct {
	gocql.HostSelectionPolicy
	keyspace string
}

// KeyspaceChanged implements [gocql.HostSelectionPolicy].
func (p ownKeyspace) KeyspaceChanged(e gocql.KeyspaceUpdateEvent) {
	if e.Keyspace == p.keyspace {
		p.HostSelectionPolicy.KeyspaceChanged(e)
	}
}

// AddHosts adds nodes. The driver and the metrics look for this method of the token-aware policy.
func (p ownKeyspace) AddHosts(hosts []*gocql.HostInfo) {
	p.HostSelectionPolicy.(interface{ AddHosts([]*gocql.HostInfo) }).AddHosts(hosts)
}

// hostPolicy returns the policy by which the driver chooses the node for a statement. The
// filter [localNodes] excludes nodes of other data centers.
func (o *Options) hostPolicy() gocql.HostSelectionPolicy {
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

// retryPolicy makes the driver retry a statement on the next node, after a delay. The delay
// doubles with each retry, up to retryMax, and half of it is random. A retry
// is safe because the statement contains its timestamp. Conditional statements do not use
// this policy.
type retryPolicy struct{}

// Attempt waits for the delay, and reports whether the driver may retry the statement.
func (retryPolicy) Attempt(q gocql.RetryableQuery) bool {
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

func (retryPolicy) GetRetryType(err error) gocql.RetryType {
	var request gocql.RequestError
	if errors.As(err, &request) && !isTransient(request.Code()) {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}

// isTransient reports whether a request that failed with the code may succeed later,
// or on another node.
func isTransient(code int) bool {
	switch code {
	case gocql.ErrCodeServer, gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping,
		gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeReadFailure, gocql.ErrCodeWriteFailure,
		gocql.ErrCodeCASWriteUnknown, gocql.ErrCodeUnprepared, gocql.ErrCodeTruncate:
		return true
	}
	return false
}

// quietLogger discards the driver's messages, because stores do not log.
type quietLogger struct{}

func (quietLogger) Print(...any)          {}
func (quietLogger) Printf(string, ...any) {}
func (quietLogger) Println(...any)        {}
