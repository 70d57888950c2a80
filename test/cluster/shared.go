package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// Environment variables that name running servers, as a comma-separated list of host:port.
const (
	EnvCassandra    = "LEADERBOARD_TEST_CASSANDRA"
	EnvKafka        = "LEADERBOARD_TEST_KAFKA"
	EnvRedis        = "LEADERBOARD_TEST_REDIS"
	EnvRedisCluster = "LEADERBOARD_TEST_REDIS_CLUSTER"
)

type kind struct {
	env   string
	start func(ctx context.Context, n int, logf func(string, ...any)) (*Cluster, error)
	check func(ctx context.Context, addrs []string) error // checks, without waiting, that the servers named by env are ready

	mu      sync.Mutex
	size    int
	addrs   []string
	err     error
	started []*Cluster
}

var (
	cassandraKind = &kind{
		env: EnvCassandra,
		start: func(ctx context.Context, n int, logf func(string, ...any)) (*Cluster, error) {
			return StartCassandra(ctx, CassandraConfig{DataCenters: OneDC(n), Logf: logf})
		},
		check: checkCassandraAnswers,
	}
	kafkaKind = &kind{
		env: EnvKafka,
		start: func(ctx context.Context, n int, logf func(string, ...any)) (*Cluster, error) {
			return StartKafka(ctx, KafkaConfig{Brokers: n, Logf: logf})
		},
		check: func(_ context.Context, addrs []string) error { return checkKafkaListed(nil, addrs) },
	}
	redisKind = &kind{
		env: EnvRedis,
		start: func(ctx context.Context, _ int, _ func(string, ...any)) (*Cluster, error) {
			return StartRedis(ctx, RedisConfig{})
		},
		check: func(ctx context.Context, addrs []string) error { return checkRedisReady(ctx, nil, addrs) },
	}
	redisClusterKind = &kind{
		env: EnvRedisCluster,
		start: func(ctx context.Context, _ int, _ func(string, ...any)) (*Cluster, error) {
			return StartRedisCluster(ctx, RedisConfig{})
		},
		check: func(ctx context.Context, addrs []string) error { return checkRedisClusterReady(ctx, nil, addrs) },
	}
	kinds = []*kind{cassandraKind, kafkaKind, redisKind, redisClusterKind}
)

// Cassandra returns the addresses, host:port, of a shared Cassandra cluster of at least the given
// number of nodes. Each test must use a keyspace of its own.
//
// If [EnvCassandra] names too few servers, Cassandra skips t. With REQUIRE_INTEGRATION=1, Cassandra
// starts servers if none are named, and fails t if too few are named. If named servers do not
// answer, Cassandra fails t. [Kafka], [Redis] and [RedisCluster] do the same.
func Cassandra(t testing.TB, nodes int) []string { t.Helper(); return cassandraKind.share(t, nodes) }

// Kafka returns the addresses of a shared Kafka cluster of at least the given number of brokers.
// Each test must use topics of its own.
func Kafka(t testing.TB, brokers int) []string { t.Helper(); return kafkaKind.share(t, brokers) }

// Redis returns the address of a shared Redis server. Each test must use keys of its own, and must
// not flush the server. For an empty server, use [Private].
func Redis(t testing.TB) string { t.Helper(); return redisKind.share(t, 1)[0] }

// RedisCluster returns the addresses of a shared Redis Cluster of three masters and three replicas.
// The rules of [Redis] apply.
func RedisCluster(t testing.TB) []string { t.Helper(); return redisClusterKind.share(t, 1) }

// Private starts a cluster for t alone, and closes it when t ends. The test may kill, pause and
// restart the servers:
//
//	c := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 3})
//
// Without REQUIRE_INTEGRATION=1, Private skips t, even if the environment names servers.
func Private[C any](t testing.TB, start func(context.Context, C) (*Cluster, error), cfg C) *Cluster {
	t.Helper()
	needs.Servers(t)
	if _, one := any(cfg).(RedisConfig); !one && inCheck() {
		t.Fatalf("make check starts one Cassandra node and one Kafka broker: state with package needs in which part of make slow the test runs")
	}
	c, err := start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, c)
	return c
}

// Main runs a package's tests, then closes the servers that they shared:
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
//
// Without Main, the servers' data stays until the next run removes it.
func Main(m *testing.M) int { return MainThen(m, func() {}) }

// MainThen is like [Main], but it calls cleanup before it closes the servers.
func MainThen(m *testing.M, cleanup func()) int {
	code := m.Run()
	cleanup()
	for _, k := range kinds {
		if err := k.closeAll(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// If share fails for n servers, later calls for at most n servers fail without another attempt.
func (k *kind) share(t testing.TB, n int) []string {
	t.Helper()
	list := os.Getenv(k.env)
	if list == "" && !needs.Required() {
		t.Skipf("the test needs servers: name running ones in %s=host:port,…, or set %s=1 to start some, "+
			"or run `go run ./test/cluster/cmd run -- go test ./...`", k.env, needs.EnvServers)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.size < n {
		k.size = n
		if list != "" {
			k.addrs, k.err = k.awaitNamed(list)
		} else {
			k.addrs, k.err = k.begin(t, n)
		}
	}
	if k.err != nil {
		t.Fatal(k.err)
	}
	if len(k.addrs) < n {
		missing := fmt.Sprintf("%s names %d servers, but the test needs %d", k.env, len(k.addrs), n)
		if needs.Required() {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return k.addrs
}

func (k *kind) awaitNamed(list string) ([]string, error) {
	addrs := strings.Split(list, ",")
	// Containers that were just started may need time.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := poll(ctx, func(ctx context.Context) error { return k.check(ctx, addrs) }); err != nil {
		return nil, fmt.Errorf("cluster: servers named by %s=%s are not ready: %w", k.env, list, err)
	}
	return addrs, nil
}

func (k *kind) begin(t testing.TB, n int) ([]string, error) {
	if inCheck() {
		return nil, fmt.Errorf("cluster: make check names no servers in %s: state with package needs in which part of make slow the test runs", k.env)
	}
	// The servers outlive t.
	c, err := k.start(context.Background(), n, t.Logf)
	if err != nil {
		return nil, err
	}
	k.started = append(k.started, c)
	return c.Addrs(), nil
}

func inCheck() bool { return os.Getenv(needs.Variable) == needs.Check }

func (k *kind) closeAll() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.started {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}
