package cql

import (
	"context"
	"net"
	"sync"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics contains the metrics of the driver for one session.
type metrics struct {
	connections prometheus.Gauge
	connects    *prometheus.CounterVec
	retries     prometheus.Counter
	nodes       *nodeStates
}

func newMetrics(reg prometheus.Registerer) *metrics {
	const namespace, subsystem = "leaderboard", "cassandra"
	f := promauto.With(reg)
	m := &metrics{
		connections: f.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "connections",
			Help: "Open connections to nodes of Cassandra."}),
		connects: f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "connects_total",
			Help: "Attempts to connect to a node of Cassandra, by outcome: ok or failed."}, []string{"outcome"}),
		retries: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "retries_total",
			Help: "Retries of statements after a failure, on another node if there is one."}),
		nodes: &nodeStates{all: map[string]*gocql.HostInfo{}},
	}
	for _, outcome := range []string{"ok", "failed"} {
		m.connects.WithLabelValues(outcome)
	}
	for state, up := range map[string]bool{"up": true, "down": false} {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "nodes",
			Help: "Nodes of the local data center, by state as this process sees them: up or down.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return m.nodes.count(up) })
	}
	return m
}

// observe makes the session of cfg report to m. The caller must set the policies of cfg
// first.
func (m *metrics) observe(cfg *gocql.ClusterConfig) {
	cfg.RetryPolicy = countedRetries{cfg.RetryPolicy, m.retries}
	cfg.PoolConfig.HostSelectionPolicy = observedPolicy{cfg.PoolConfig.HostSelectionPolicy, m.nodes}
	cfg.ConnectObserver = observers{cfg.ConnectObserver, m}
}

// ObserveConnect implements [gocql.ConnectObserver].
func (m *metrics) ObserveConnect(c gocql.ObservedConnect) {
	outcome := "ok"
	if c.Err != nil {
		outcome = "failed"
	}
	m.connects.WithLabelValues(outcome).Inc()
}

// observers is a [gocql.ConnectObserver] that notifies several others.
type observers []gocql.ConnectObserver

// ObserveConnect implements [gocql.ConnectObserver].
func (o observers) ObserveConnect(c gocql.ObservedConnect) {
	for _, observer := range o {
		observer.ObserveConnect(c)
	}
}

// A countedRetries is a retry policy that counts the retries.
type countedRetries struct {
	gocql.RetryPolicy
	retries prometheus.Counter
}

// GetRetryType counts a retry, unless the error is final. The driver calls it only after
// Attempt has allowed another attempt.
func (c countedRetries) GetRetryType(err error) gocql.RetryType {
	retry := c.RetryPolicy.GetRetryType(err)
	if retry != gocql.Rethrow {
		c.retries.Inc()
	}
	return retry
}

// nodeStates contains the nodes that the driver may use. The driver updates the state of a
// node, up or down, in its HostInfo.
type nodeStates struct {
	mu  sync.Mutex
	all map[string]*gocql.HostInfo // by host id
}

// count returns the number of nodes that are up, or that are down.
func (n *nodeStates) count(up bool) float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, host := range n.all {
		if host.IsUp() == up {
			count++
		}
	}
	return float64(count)
}

// observedPolicy is a token-aware policy. It records the nodes that the driver adds and
// removes.
type observedPolicy struct {
	gocql.HostSelectionPolicy
	nodes *nodeStates
}

// AddHosts adds many nodes at once. The driver calls this method if a policy has it,
// because adding one node after another costs more.
func (p observedPolicy) AddHosts(hosts []*gocql.HostInfo) {
	p.nodes.mu.Lock()
	for _, host := range hosts {
		p.nodes.all[host.HostID()] = host
	}
	p.nodes.mu.Unlock()
	p.HostSelectionPolicy.(interface{ AddHosts([]*gocql.HostInfo) }).AddHosts(hosts)
}

func (p observedPolicy) AddHost(host *gocql.HostInfo) {
	p.nodes.mu.Lock()
	p.nodes.all[host.HostID()] = host
	p.nodes.mu.Unlock()
	p.HostSelectionPolicy.AddHost(host)
}

func (p observedPolicy) RemoveHost(host *gocql.HostInfo) {
	p.nodes.mu.Lock()
	delete(p.nodes.all, host.HostID())
	p.nodes.mu.Unlock()
	p.HostSelectionPolicy.RemoveHost(host)
}

// dial opens a TCP connection, and counts it while it is open.
func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: o.ConnectTimeout}).DialContext(ctx, network, address)
	tcp, ok := conn.(*net.TCPConn)
	if err != nil || o.metrics == nil || !ok {
		return conn, err
	}
	o.metrics.connections.Inc()
	return &countedConn{TCPConn: tcp, closed: sync.OnceFunc(o.metrics.connections.Dec)}, nil
}

// countedConn embeds *net.TCPConn and not the interface net.Conn, because the driver needs
// the vectored writes of a TCP connection.
type countedConn struct {
	*net.TCPConn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.TCPConn.Close()
}

// dialer is the [gocql.Dialer] of connections without TLS.
type dialer struct{ o *Options }

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.o.dial(ctx, network, address)
}
