package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// The variables that name running servers, each a comma-separated list of
// host:port.
const (
	EnvCassandra    = "LEADERBOARD_TEST_CASSANDRA"
	EnvKafka        = "LEADERBOARD_TEST_KAFKA"
	EnvRedis        = "LEADERBOARD_TEST_REDIS"
	EnvRedisCluster = "LEADERBOARD_TEST_REDIS_CLUSTER"
)

// envRequire makes a missing server a failure, and starts what none names.
const envRequire = "REQUIRE_INTEGRATION"

// kind is one sort of server that tests share.
type kind struct {
	env   string
	start func(ctx context.Context, n int, logf func(string, ...any)) (*Cluster, error)
	check func(ctx context.Context, addrs []string) error // of servers that env names

	mu      sync.Mutex
	size    int // servers asked for so far; 0 before the first time
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
		check: cassandraAnswers,
	}
	kafkaKind = &kind{
		env: EnvKafka,
		start: func(ctx context.Context, n int, logf func(string, ...any)) (*Cluster, error) {
			return StartKafka(ctx, KafkaConfig{Brokers: n, Logf: logf})
		},
		check: func(_ context.Context, addrs []string) error { return kafkaListed(addrs) },
	}
	redisKind = &kind{
		env: EnvRedis,
		start: func(ctx context.Context, _ int, _ func(string, ...any)) (*Cluster, error) {
			return StartRedis(ctx, RedisConfig{})
		},
		check: redisReady,
	}
	redisClusterKind = &kind{
		env: EnvRedisCluster,
		start: func(ctx context.Context, _ int, _ func(string, ...any)) (*Cluster, error) {
			return StartRedisCluster(ctx, RedisConfig{})
		},
		check: redisClusterReady,
	}
	kinds = []*kind{cassandraKind, kafkaKind, redisKind, redisClusterKind}
)

// Cassandra returns the addresses, host:port, of a shared Cassandra cluster of
// at least the given number of nodes. A test makes its own keyspace in it.
//
// Without servers to share, it skips the test; with REQUIRE_INTEGRATION=1 it
// fails it. So do [Kafka], [Redis] and [RedisCluster].
func Cassandra(t testing.TB, nodes int) []string { t.Helper(); return cassandraKind.share(t, nodes) }

// Kafka returns the addresses of a shared Kafka cluster of at least the given
// number of brokers. A test makes its own topics in it.
func Kafka(t testing.TB, brokers int) []string { t.Helper(); return kafkaKind.share(t, brokers) }

// Redis returns the address of a shared Redis server. A test keeps to keys of
// its own, and flushes nothing: one that must starts a server of its own, in a
// tenth of a second, with [Private].
func Redis(t testing.TB) string { t.Helper(); return redisKind.share(t, 1)[0] }

// RedisCluster returns the addresses of a shared Redis Cluster of three masters
// and three replicas. As for [Redis], a test keeps to keys of its own.
func RedisCluster(t testing.TB) []string { t.Helper(); return redisClusterKind.share(t, 1) }

// Private starts a cluster for t alone, to be hurt, and closes it when t ends:
//
//	c := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 3})
//
// When t fails, the ends of the servers' logs are in its output. Without
// REQUIRE_INTEGRATION=1 it skips t, whatever servers the environment names: it
// could not hurt those.
func Private[C any](t testing.TB, start func(context.Context, C) (*Cluster, error), cfg C) *Cluster {
	t.Helper()
	if !required() {
		t.Skipf("starts servers of its own: set %s=1 to run it", envRequire)
	}
	c, err := start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, c)
	return c
}

// Main runs a package's tests and then closes the servers they shared. It is
// the body of a TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
//
// Without it the servers die all the same, but leave their data to be removed
// by the next run.
func Main(m *testing.M) int { return MainThen(m, func() {}) }

// MainThen is [Main] with something to do in between, such as to remove what
// the tests shared from servers that stay.
func MainThen(m *testing.M, then func()) int {
	code := m.Run()
	then()
	for _, k := range kinds {
		if err := k.closeAll(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

func required() bool { return os.Getenv(envRequire) == "1" }

// share returns addresses of at least n servers, or ends t.
func (k *kind) share(t testing.TB, n int) []string {
	t.Helper()
	named := os.Getenv(k.env)
	if named == "" && !required() {
		t.Skipf("no servers: name running ones in %s=host:port,…, or set %s=1 to have them started, "+
			"or run `go run ./test/cluster/cmd run -- go test ./...`", k.env, envRequire)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.size < n {
		k.size = n
		if named != "" {
			k.addrs, k.err = k.named(named)
		} else {
			k.addrs, k.err = k.begin(t, n)
		}
	}
	if k.err != nil {
		t.Fatal(k.err)
	}
	if len(k.addrs) < n {
		missing := fmt.Sprintf("%s names %d servers, the test needs %d", k.env, len(k.addrs), n)
		if required() {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return k.addrs
}

// named returns the servers in list once they answer.
func (k *kind) named(list string) ([]string, error) {
	addrs := strings.Split(list, ",")
	// Containers that were started a moment ago may need a while.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := poll(ctx, func(ctx context.Context) error { return k.check(ctx, addrs) }); err != nil {
		return nil, fmt.Errorf("cluster: servers in %s=%s: %w", k.env, list, err)
	}
	return addrs, nil
}

func (k *kind) begin(t testing.TB, n int) ([]string, error) {
	// Not t's context: the servers stay after t.
	c, err := k.start(context.Background(), n, t.Logf)
	if err != nil {
		return nil, err
	}
	k.started = append(k.started, c)
	return c.Addrs(), nil
}

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
