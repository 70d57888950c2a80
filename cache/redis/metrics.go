package redis

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	goredis "github.com/redis/go-redis/v9"
)

const (
	// pollInterval is the time between two reads of the servers' state.
	pollInterval = 10 * time.Second
	pollTimeout  = 5 * time.Second
)

// serverState is the state of a server, or of several together: see add.
type serverState struct {
	used, limit   float64 // bytes; limit is 0 if memory is unlimited
	keys          float64
	evicted, slow float64 // counted since the start of the server
	replicas      float64
	lag           float64 // bytes of replication that the slowest replica has not received
	masters       float64 // masters that answered
}

func (s *serverState) add(o serverState) {
	s.used += o.used
	s.limit += o.limit
	s.keys += o.keys
	s.evicted += o.evicted
	s.slow += o.slow
	s.replicas += o.replicas
	s.lag = max(s.lag, o.lag)
	s.masters += o.masters
}

type metrics struct {
	mu     sync.Mutex
	state  serverState // the zero value while Redis does not answer
	shards shardCounts // the zero value until the first census (see census.go) ends
}

// reader returns a function that locks mu and calls the function read.
func (m *metrics) reader(read func(*metrics) float64) func() float64 {
	return func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return read(m)
	}
}

// DescribeMetrics sends the descriptions of the metrics of an index, also without a connection.
func DescribeMetrics(descriptions chan<- *prometheus.Desc) {
	registry, x := prometheus.NewRegistry(), &Index{}
	x.register(registry)
	x.registerShards(registry)
	registry.Describe(descriptions)
}

// register registers the metrics of the servers and connections.
func (x *Index) register(reg prometheus.Registerer) {
	const namespace, subsystem = "leaderboard", "redis"
	f := promauto.With(reg)
	for _, g := range []struct {
		name, help string
		read       func(*serverState) float64
	}{
		{"masters", "Masters that answered the last poll; 0 if Redis does not answer.", func(s *serverState) float64 { return s.masters }},
		{"used_memory_bytes", "Memory that the masters use.", func(s *serverState) float64 { return s.used }},
		{"max_memory_bytes", "Memory that the masters may use (maxmemory); 0 if it is unlimited.", func(s *serverState) float64 { return s.limit }},
		{"keys", "Keys of the masters, also those of other programs.", func(s *serverState) float64 { return s.keys }},
		{"evicted_keys", "Keys that the masters have evicted since they started. The index needs every key.", func(s *serverState) float64 { return s.evicted }},
		{"slow_commands", "Commands in the slow log of the masters since they started or the log was reset.", func(s *serverState) float64 { return s.slow }},
		{"replicas", "Replicas that are connected to the masters.", func(s *serverState) float64 { return s.replicas }},
		{"replication_lag_bytes", "Bytes of the replication stream that the replica furthest behind lacks.", func(s *serverState) float64 { return s.lag }},
	} {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: g.name, Help: g.help}, x.metrics.reader(func(m *metrics) float64 { return g.read(&m.state) }))
	}
	stats := func(read func(*goredis.PoolStats) uint32) func() float64 {
		return func() float64 { return float64(read(x.client().PoolStats())) }
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "connections",
		Help: "Open connections to Redis."}, stats(func(s *goredis.PoolStats) uint32 { return s.TotalConns }))
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "idle_connections",
		Help: "Open connections to Redis that no call uses."}, stats(func(s *goredis.PoolStats) uint32 { return s.IdleConns }))
	f.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "pool_timeouts_total",
		Help: "Calls that found no free connection in time."}, stats(func(s *goredis.PoolStats) uint32 { return s.Timeouts }))
}

// poll calls the function read at once, and again after each interval, until Close.
func (x *Index) poll(interval time.Duration, read func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		read()
		select {
		case <-ticker.C:
		case <-x.ctx.Done():
			return
		}
	}
}

func (x *Index) pollServers() {
	x.poll(pollInterval, func() {
		state := x.readServers()
		x.metrics.mu.Lock()
		defer x.metrics.mu.Unlock()
		x.metrics.state = state
	})
}

// readServers returns the sum of the states of the masters that answer.
func (x *Index) readServers() serverState {
	ctx, cancel := context.WithTimeout(x.ctx, pollTimeout)
	defer cancel()
	var mu sync.Mutex
	var sum serverState
	add := func(ctx context.Context, c goredis.Cmdable) {
		if state, err := readServer(ctx, c); err == nil {
			mu.Lock()
			defer mu.Unlock()
			sum.add(state)
		}
	}
	if c, ok := x.client().(*goredis.ClusterClient); ok {
		_ = c.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error { // the function add ignores errors
			add(ctx, m)
			return nil
		})
	} else {
		add(ctx, x.client())
	}
	return sum
}

func readServer(ctx context.Context, c goredis.Cmdable) (serverState, error) {
	info, err := c.Info(ctx, "memory", "stats", "replication").Result()
	if err != nil {
		return serverState{}, err
	}
	state := parseInfo(info)
	state.masters = 1
	// The service's user in Redis may lack permission for the following two commands.
	if keys, err := c.DBSize(ctx).Result(); err == nil {
		state.keys = float64(keys)
	}
	if log, err := c.SlowLogGet(ctx, 1).Result(); err == nil && len(log) > 0 {
		state.slow = float64(log[0].ID + 1) // ids count from 0
	}
	return state, nil
}

// parseInfo reads the answer of INFO. A field that is missing or not a number is 0.
func parseInfo(info string) serverState {
	var s serverState
	var offset, furthest float64
	number := func(text string) float64 {
		n, _ := strconv.ParseFloat(text, 64)
		return n
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "used_memory":
			s.used = number(value)
		case name == "maxmemory":
			s.limit = number(value)
		case name == "evicted_keys":
			s.evicted = number(value)
		case name == "master_repl_offset":
			offset = number(value)
		case strings.HasPrefix(name, "slave") && strings.HasPrefix(value, "ip="):
			for field := range strings.SplitSeq(value, ",") {
				if text, ok := strings.CutPrefix(field, "offset="); ok {
					if received := number(text); s.replicas == 0 || received < furthest {
						furthest = received
					}
					s.replicas++
				}
			}
		}
	}
	if s.replicas > 0 {
		s.lag = max(0, offset-furthest)
	}
	return s
}
