package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func TestParseInfo(t *testing.T) {
	const memory = "# Memory\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\nmaxmemory:2097152\r\n# Stats\r\nevicted_keys:3\r\n"
	for name, tt := range map[string]struct {
		info string
		want serverState
	}{
		"a server without replicas has no lag": {memory + "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n",
			serverState{used: 1 << 20, limit: 2 << 20, evicted: 3}},
		"the replica furthest behind counts": {"slave0:ip=10.0.0.2,port=6379,state=online,offset=900,lag=0\r\n" +
			"slave1:ip=10.0.0.3,port=6379,state=online,offset=700,lag=1\r\nmaster_repl_offset:1000\r\n",
			serverState{replicas: 2, lag: 300}},
		"a replica whose offset exceeds the master's has no lag": {"slave0:ip=10.0.0.2,port=6379,state=online,offset=1001,lag=0\r\nmaster_repl_offset:1000\r\n",
			serverState{replicas: 1}},
		"a value that is not a number counts as 0": {"used_memory:many\r\n\r\nslave_read_only:1\r\n", serverState{}},
	} {
		if diff := cmp.Diff(tt.want, parseInfo(tt.info), cmp.AllowUnexported(serverState{})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestStatesOfMastersAdd(t *testing.T) {
	sum := serverState{used: 1, limit: 10, keys: 1, evicted: 1, slow: 1, replicas: 1, lag: 5, masters: 1}
	sum.add(serverState{used: 2, limit: 10, keys: 2, evicted: 0, slow: 3, replicas: 1, lag: 3, masters: 1})
	want := serverState{used: 3, limit: 20, keys: 3, evicted: 1, slow: 4, replicas: 2, lag: 5, masters: 2}
	if sum != want {
		t.Errorf("the sum is %+v, want %+v", sum, want)
	}
}

// metricsOf returns a function. This function reads the servers, as pollServers does, and returns the
// metrics of the index by name.
func metricsOf(t *testing.T, x *Index, reg *prometheus.Registry) func() map[string]float64 {
	return func() map[string]float64 {
		t.Helper()
		state := x.readServers()
		x.metrics.mu.Lock()
		x.metrics.state = state
		x.metrics.mu.Unlock()
		families, err := reg.Gather()
		must(t, err)
		values := map[string]float64{}
		for _, f := range families {
			values[strings.TrimPrefix(f.GetName(), "leaderboard_redis_")] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return values
	}
}

func TestMetricsOfAServerWithAReplica(t *testing.T) {
	ctx, reg := t.Context(), prometheus.NewRegistry()
	master := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{}).Addrs()[0]
	replica := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{}).Addrs()[0]
	o := options([]string{master}, 1)
	o.Registerer = reg
	x := openIndex(t, o)
	read := metricsOf(t, x, reg)
	if m := read(); m["masters"] != 1 || m["replicas"] != 0 || m["max_memory_bytes"] != 0 || m["evicted_keys"] != 0 {
		t.Errorf("the metrics of a new server are %v; want masters 1, and replicas, max_memory_bytes and evicted_keys 0", m)
	}
	replicaClient := goredis.NewClient(&goredis.Options{Addr: replica})
	defer replicaClient.Close()
	host, port, _ := strings.Cut(master, ":")
	must(t, replicaClient.ReplicaOf(ctx, host, port).Err())
	must(t, x.client().ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
	s := newStore(50)
	s.rebuild(t, x)
	eventually(t, "the metrics have the replica and the keys", func(ctx context.Context) error {
		keys, err := names(ctx, x)
		must(t, err)
		if m := read(); m["masters"] != 1 || m["replicas"] != 1 || m["keys"] != float64(len(keys)) || len(keys) == 0 || m["slow_commands"] < 10 || m["used_memory_bytes"] < 1<<19 || m["connections"] < 1 {
			return fmt.Errorf("the metrics are %v; want masters 1, replicas 1, keys %d, and at least 10 slow_commands, 524288 used_memory_bytes and 1 connections", m, len(keys))
		}
		return nil
	})
}

// If the maxmemory-policy makes a server evict keys, the metrics show the evictions.
func TestMetricsOfAServerThatEvicts(t *testing.T) {
	ctx, reg := t.Context(), prometheus.NewRegistry()
	o := options(cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{}).Addrs(), 1)
	o.Registerer = reg
	x := openIndex(t, o)
	used := metricsOf(t, x, reg)()["used_memory_bytes"]
	limit := int64(used) + 2<<20
	must(t, x.client().ConfigSet(ctx, "maxmemory", strconv.FormatInt(limit, 10)).Err())
	must(t, x.client().ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	value := strings.Repeat("x", 1<<16)
	for i := range 100 { // 6 MiB, of which 2 fit
		must(t, x.client().Set(ctx, fmt.Sprint(x.o.Prefix, i), value, 0).Err())
	}
	if m := metricsOf(t, x, reg)(); m["evicted_keys"] < 1 || m["max_memory_bytes"] != float64(limit) || m["keys"] >= 100 {
		t.Errorf("the metrics are %v, want evicted keys, the limit %d, and fewer than 100 keys", m, limit)
	}
}
