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
	schemaTimeout         = time.Minute // A cold or busy cluster changes its schema slowly.
	maxBuckets            = 4096
)

// Options are the settings of a store. Hosts and DataCenter are required.
type Options struct {
	// Hosts are some nodes of the local data center, as host or host:port. All nodes must
	// have the same port.
	Hosts []string
	// DataCenter is the local data center. The store queries its nodes only. Without a
	// quorum of them, calls return [leaderboard.ErrUnavailable].
	DataCenter string
	// Keyspace is the name of the keyspace. Default leaderboard.
	Keyspace string
	// Rack, if set, is the rack whose replicas the store prefers.
	Rack string
	// Username and Password are the credentials, if the nodes require them.
	Username, Password string
	// TLS starts TLS on a connection to addr, as host:port. Default nil: no TLS.
	TLS func(ctx context.Context, conn net.Conn, addr string) (net.Conn, error)
	// ConnectTimeout bounds the time to connect to a node, with TLS. Default 5s.
	ConnectTimeout time.Duration
	// Connections is the number of connections to each node. Default 4.
	Connections int
	// Timeout bounds the wait for an answer. It must exceed the nodes' own timeouts.
	// Default 12s.
	Timeout time.Duration
	// Buckets is the number of partitions of each ladder of a new board, 1 to 4096. Reads
	// of a ladder read all of them, and each should stay below 100 MB: see README.md.
	// Default 64.
	Buckets int
	// CacheUsers bounds the cached summaries of users. Default 100,000; a negative number
	// disables the cache.
	CacheUsers int
	// Registerer receives the metrics of the driver. Default nil: no metrics.
	Registerer prometheus.Registerer
	// Traces makes the store record spans of statements, if the caller's span is sampled.
	Traces bool

	metrics *metrics
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

// ApplySchema creates a missing keyspace with the given replicas per data center, and
// applies missing migrations. It calls progress, if not nil, after each migration. Errors:
// those of [schema.Apply].
func ApplySchema(ctx context.Context, o Options, replicas map[string]int, progress func(schema.Migration)) error {
	if err := o.complete(); err != nil {
		return err
	}
	o.Timeout = max(o.Timeout, schemaTimeout)
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

// SchemaStatus calls [schema.Status] for the keyspace.
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

// localNodes accepts the nodes of one data center. At a node of another data center,
// LOCAL_QUORUM would mean a quorum of that data center.
type localNodes struct {
	dataCenter string

	mu     sync.Mutex
	local  bool
	remote *gocql.HostInfo // a node that Accept has rejected
}

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

// checkDataCenter returns [schema.ErrDataCenter] if a node of another data center knows no
// node in o.DataCenter. Otherwise it returns nil.
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
	cfg.Consistency, cfg.SerialConsistency = gocql.LocalQuorum, gocql.Serial
	cfg.PoolConfig.HostSelectionPolicy = ownKeyspace{gocql.TokenAwareHostPolicy(o.hostPolicy(), gocql.ShuffleReplicas()), keyspace}
	cfg.HostFilter = &localNodes{dataCenter: o.DataCenter}
	cfg.RetryPolicy = retryPolicy{}
	cfg.DefaultIdempotence = true
	// the driver must not add timestamps from this machine's clock
	cfg.DefaultTimestamp = false
	cfg.ReconnectInterval = time.Second
	cfg.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 3, Interval: 200 * time.Millisecond}
	cfg.PageSize = pageRows
	cfg.Logger = quietLogger{}
	cfg.Dialer = dialer{o}
	o.setSecurity(cfg)
	return cfg, nil
}

// ownKeyspace hides changes of other keyspaces, because the token-aware policy panics if
// such a keyspace has no replica in the local data center.
type ownKeyspace struct {
	gocql.HostSelectionPolicy
	keyspace string
}

func (p ownKeyspace) KeyspaceChanged(e gocql.KeyspaceUpdateEvent) {
	if e.Keyspace == p.keyspace {
		p.HostSelectionPolicy.KeyspaceChanged(e)
	}
}

func (p ownKeyspace) AddHosts(hosts []*gocql.HostInfo) {
	p.HostSelectionPolicy.(interface{ AddHosts([]*gocql.HostInfo) }).AddHosts(hosts)
}

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

// retryPolicy retries a statement on the next node. A repeated write changes nothing,
// because the statement contains its timestamp.
type retryPolicy struct{}

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

// isTransient reports whether a request with this error may succeed later or on another
// node.
func isTransient(code int) bool {
	switch code {
	case gocql.ErrCodeServer, gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping,
		gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeReadFailure, gocql.ErrCodeWriteFailure,
		gocql.ErrCodeCASWriteUnknown, gocql.ErrCodeUnprepared, gocql.ErrCodeTruncate:
		return true
	}
	return false
}

type quietLogger struct{}

func (quietLogger) Print(...any)          {}
func (quietLogger) Printf(string, ...any) {}
func (quietLogger) Println(...any)        {}
