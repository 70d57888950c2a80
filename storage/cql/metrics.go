package cql

import (
	"context"
	"net"
	"sync"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

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

// observe makes sessions with cfg report to m. The caller must first set the policies and
// the ConnectObserver of cfg.
func (m *metrics) observe(cfg *gocql.ClusterConfig) {
	cfg.RetryPolicy = countedRetries{cfg.RetryPolicy, m.retries}
	cfg.PoolConfig.HostSelectionPolicy = observedPolicy{cfg.PoolConfig.HostSelectionPolicy, m.nodes}
	cfg.ConnectObserver = observers{cfg.ConnectObserver, m}
}

func (m *metrics) ObserveConnect(c gocql.ObservedConnect) {
	outcome := "ok"
	if c.Err != nil {
		outcome = "failed"
	}
	m.connects.WithLabelValues(outcome).Inc()
}

type observers []gocql.ConnectObserver

func (o observers) ObserveConnect(c gocql.ObservedConnect) {
	for _, observer := range o {
		observer.ObserveConnect(c)
	}
}

type countedRetries struct {
	gocql.RetryPolicy
	retries prometheus.Counter
}

func (c countedRetries) GetRetryType(err error) gocql.RetryType {
	retry := c.RetryPolicy.GetRetryType(err)
	if retry != gocql.Rethrow {
		c.retries.Inc()
	}
	return retry
}

// nodeStates has the nodes that the driver may use. The driver updates each HostInfo.
type nodeStates struct {
	mu  sync.Mutex
	all map[string]*gocql.HostInfo // by host id
}

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

// observedPolicy is a token-aware policy that records the nodes.
type observedPolicy struct {
	gocql.HostSelectionPolicy
	nodes *nodeStates
}

// AddHosts adds the first nodes of a session. The driver calls it instead of AddHost for
// each of them.
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

func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: o.ConnectTimeout}).DialContext(ctx, network, address)
	tcp, ok := conn.(*net.TCPConn)
	if err != nil || o.metrics == nil || !ok {
		return conn, err
	}
	o.metrics.connections.Inc()
	return &countedConn{TCPConn: tcp, closed: sync.OnceFunc(o.metrics.connections.Dec)}, nil
}

// countedConn embeds *net.TCPConn, because the driver uses its vectored writes.
type countedConn struct {
	*net.TCPConn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.TCPConn.Close()
}

type dialer struct{ o *Options }

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.o.dial(ctx, network, address)
}

// DescribeMetrics sends the descriptions of the metrics of a store, also without a connection.
func DescribeMetrics(descriptions chan<- *prometheus.Desc) {
	registry := prometheus.NewRegistry()
	newMetrics(registry)
	registry.Describe(descriptions)
}
