package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/gocql/gocql"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type cqlTable struct {
	t       *testing.T
	session *gocql.Session
}

func newTable(t *testing.T, s *Server, replication string) cqlTable {
	t.Helper()
	session, err := nodeSession(nil, s.Addr)
	must(t, err)
	t.Cleanup(session.Close)
	must(t, session.Query("CREATE KEYSPACE test WITH replication = "+replication).Exec())
	must(t, session.Query("CREATE TABLE test.numbers (n int PRIMARY KEY)").Exec())
	return cqlTable{t, session}
}

func (c cqlTable) write(from, to int, level gocql.Consistency) {
	c.t.Helper()
	for n := from; n < to; n++ {
		q := c.session.Query("INSERT INTO test.numbers (n) VALUES (?)", n).Consistency(level).Idempotent(true).
			RetryPolicy(&gocql.ExponentialBackoffRetryPolicy{NumRetries: 8, Min: 50 * time.Millisecond, Max: time.Second})
		must(c.t, q.Exec())
	}
}

// count returns the number of rows that a node reads. It retries, because reads time out until the
// node detects that a peer is dead.
func count(t *testing.T, s *Server, level gocql.Consistency) int {
	t.Helper()
	session, err := nodeSession(nil, s.Addr)
	must(t, err)
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var n int
	must(t, poll(ctx, func(ctx context.Context) error {
		return session.Query("SELECT count(*) FROM test.numbers").Consistency(level).WithContext(ctx).Scan(&n)
	}))
	return n
}

func TestCassandra(t *testing.T) {
	needs.Slow(t, "clusters")
	c := Private(t, StartCassandra, CassandraConfig{DataCenters: OneDC(3), Logf: t.Logf})
	pids := pidsOf(t, c)
	table := newTable(t, c.Servers[0], "{'class': 'SimpleStrategy', 'replication_factor': 3}")
	table.write(0, 100, gocql.Quorum)

	status, err := Nodetool(t.Context(), c.Servers[1], "status")
	must(t, err)
	if got := strings.Count(status, "\nUN "); got != 3 {
		t.Errorf("nodetool status lists %d nodes up, want 3:\n%s", got, status)
	}

	t.Log("one node killed: the other two form a quorum; the restarted node gets the missed writes")
	must(t, c.Servers[2].Kill())
	if pid := c.Servers[2].PID(); pid != 0 || alive(pids[2]) {
		t.Errorf("after Kill: PID = %d, want 0; alive(old PID) = %v, want false", pid, alive(pids[2]))
	}
	table.write(100, 200, gocql.Quorum)
	if got := count(t, c.Servers[1], gocql.Quorum); got != 200 {
		t.Errorf("%d rows while one node is down, want 200", got)
	}
	timed(t, "restart of one node", func() { must(t, c.Servers[2].Start(t.Context())) })
	if got := count(t, c.Servers[2], gocql.All); got != 200 {
		t.Errorf("%d rows through the restarted node, want 200", got)
	}

	t.Log("one node paused: it does not answer; the other two form a quorum")
	must(t, c.Servers[1].Pause())
	if session, err := nodeSession(nil, c.Servers[1].Addr); err == nil {
		session.Close()
		t.Error("a paused node accepted a session, want an error")
	}
	table.write(200, 250, gocql.Quorum)
	must(t, c.Servers[1].Resume())
	timed(t, "resume of one node", func() { must(t, c.WaitReady(t.Context())) })
	if got := count(t, c.Servers[1], gocql.All); got != 250 {
		t.Errorf("%d rows through the resumed node, want 250", got)
	}

	t.Log("one node restarted cleanly")
	timed(t, "clean restart of one node", func() { must(t, c.Servers[0].Restart(t.Context())) })

	t.Log("all nodes killed at once: no acknowledged write is lost")
	session, err := nodeSession(nil, c.Servers[1].Addr)
	must(t, err)
	cqlTable{t, session}.write(250, 300, gocql.All)
	session.Close()
	for _, s := range c.Servers {
		must(t, s.Kill())
	}
	timed(t, "restart of three nodes", func() { must(t, c.Start(t.Context())) })
	if got := count(t, c.Servers[0], gocql.All); got != 300 {
		t.Errorf("%d rows after all nodes were killed, want 300", got)
	}
	pids = append(pids, pidsOf(t, c)...)
	must(t, c.Close())
	waitGone(t, pids)
}

func TestCassandraTwoDataCenters(t *testing.T) {
	needs.Slow(t, "clusters")
	racks := []string{"rack1", "rack2", "rack1"}
	c := Private(t, StartCassandra, CassandraConfig{DataCenters: []string{"dc1", "dc1", "dc2"}, Racks: racks, Logf: t.Logf})
	for i, s := range c.Servers {
		session, err := nodeSession(nil, s.Addr)
		must(t, err)
		var rack string
		must(t, session.Query("SELECT rack FROM system.local").Scan(&rack))
		session.Close()
		if rack != racks[i] {
			t.Errorf("node %d is in %s, want %s", i+1, rack, racks[i])
		}
	}
	table := newTable(t, c.Servers[0], "{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}")
	table.write(0, 50, gocql.EachQuorum)
	if got := count(t, c.Servers[2], gocql.LocalQuorum); got != 50 {
		t.Errorf("%d rows in dc2, want 50", got)
	}
	must(t, c.Servers[2].Kill())
	table.write(50, 60, gocql.LocalQuorum)
	if got := count(t, c.Servers[1], gocql.LocalQuorum); got != 60 {
		t.Errorf("%d rows in dc1 while dc2 is down, want 60", got)
	}
	must(t, c.Servers[2].Start(t.Context()))
	if got := count(t, c.Servers[2], gocql.All); got != 60 {
		t.Errorf("%d rows at level ALL, want 60", got)
	}
}

const testTopic = "numbers"

func send(addrs []string, from, to int) error {
	cfg := kafkaClientConfig()
	cfg.Metadata.Retry.Max = 40
	// The retries last until Kafka has replaced a dead leader.
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = 40, time.Second
	producer, err := sarama.NewSyncProducer(addrs, cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	for n := from; n < to; n++ {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: testTopic, Value: sarama.StringEncoder(fmt.Sprint(n))}); err != nil {
			return err
		}
	}
	return nil
}

// countReceived returns how often it received each number below n. It reads for at most a minute.
func countReceived(t *testing.T, addrs []string, n int) []int {
	t.Helper()
	cfg := kafkaClientConfig()
	cfg.Metadata.Retry.Max = 40
	consumer, err := sarama.NewConsumer(addrs, cfg)
	must(t, err)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var part sarama.PartitionConsumer
	must(t, poll(ctx, func(context.Context) error { // A broker may still name a dead broker as leader.
		part, err = consumer.ConsumePartition(testTopic, 0, sarama.OffsetOldest)
		return err
	}))
	defer part.Close()
	seen := make([]int, n)
	for missing := n; missing > 0; {
		select {
		case m := <-part.Messages():
			var i int
			if _, err := fmt.Sscan(string(m.Value), &i); err != nil || i >= n {
				t.Fatalf("message %q is not a number below %d; error: %v", m.Value, n, err)
			}
			if seen[i]++; seen[i] == 1 {
				missing--
			}
		case <-ctx.Done():
			return seen
		}
	}
	return seen
}

func checkReceived(t *testing.T, addrs []string, n int) {
	t.Helper()
	for i, times := range countReceived(t, addrs, n) {
		if times == 0 {
			t.Errorf("message %d is lost", i)
		}
	}
}

func createTopic(t *testing.T, addrs []string, replicas int16) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(addrs, kafkaClientConfig())
	must(t, err)
	defer admin.Close()
	must(t, admin.CreateTopic(testTopic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: replicas}, false))
}

func TestKafka(t *testing.T) {
	needs.Slow(t, "clusters")
	c := Private(t, StartKafka, KafkaConfig{Brokers: 3, Logf: t.Logf})
	pids := pidsOf(t, c)
	createTopic(t, c.Addrs(), 3)
	must(t, send(c.Addrs(), 0, 100))

	t.Log("one broker killed: the other two accept writes; the restarted broker gets in sync")
	must(t, c.Servers[0].Kill())
	must(t, send(c.Addrs()[1:], 100, 200))
	checkReceived(t, c.Addrs()[1:], 200)
	timed(t, "restart of one broker", func() { must(t, c.Servers[0].Start(t.Context())) })

	t.Log("one broker paused and resumed")
	must(t, c.Servers[1].Pause())
	must(t, c.WaitReady(t.Context())) // The other brokers have now taken over the partitions.
	must(t, send([]string{c.Servers[0].Addr, c.Servers[2].Addr}, 200, 250))
	must(t, c.Servers[1].Resume())
	timed(t, "resume of one broker", func() { must(t, c.WaitReady(t.Context())) })

	t.Log("two brokers killed: no write is acknowledged")
	must(t, c.Servers[1].Kill())
	must(t, c.Servers[2].Kill())
	cfg := kafkaClientConfig()
	cfg.Producer.Retry.Max = 0
	if producer, err := sarama.NewSyncProducer(c.Addrs()[:1], cfg); err == nil {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: testTopic, Value: sarama.StringEncoder("0")}); err == nil {
			t.Error("one broker of three acknowledged a write, want an error: at least two must be in sync")
		}
		producer.Close()
	}
	timed(t, "restart of two brokers", func() { must(t, c.Start(t.Context())) })
	must(t, send(c.Addrs(), 250, 300))

	t.Log("one broker stopped cleanly, then two killed")
	must(t, c.Servers[0].Stop(t.Context()))
	must(t, c.Servers[1].Kill())
	must(t, c.Servers[2].Kill())
	timed(t, "restart of three brokers", func() { must(t, c.Start(t.Context())) })
	checkReceived(t, c.Addrs(), 300)
	pids = append(pids, pidsOf(t, c)...)
	must(t, c.Close())
	waitGone(t, pids)
}

func redisClient(t *testing.T, s *Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: time.Second, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestRedis(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  RedisConfig
		want []any
	}{
		{"empty after a kill without AppendOnly", RedisConfig{}, []any{nil}},
		{"keeps its data after a kill with AppendOnly", RedisConfig{AppendOnly: true}, []any{"v"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Private(t, StartRedis, tt.cfg)
			s := c.Servers[0]
			pids := pidsOf(t, c)
			must(t, redisClient(t, s).Set(t.Context(), "k", "v", 0).Err())

			must(t, s.Pause())
			if err := redisClient(t, s).Ping(t.Context()).Err(); err == nil {
				t.Error("a paused server answered a ping, want an error")
			}
			must(t, s.Resume())
			if got, err := redisClient(t, s).Get(t.Context(), "k").Result(); got != "v" || err != nil {
				t.Errorf("GET after a pause = %q, %v, want v", got, err)
			}

			must(t, s.Kill())
			must(t, s.Start(t.Context()))
			got, err := redisClient(t, s).MGet(t.Context(), "k").Result()
			must(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("MGET after a kill and a start: (-want +got)\n%s", diff)
			}
			must(t, s.Restart(t.Context()))
			pids = append(pids, pidsOf(t, c)...)
			must(t, c.Close())
			waitGone(t, pids)
		})
	}
}

func TestRedisCluster(t *testing.T) {
	c := Private(t, StartRedisCluster, RedisConfig{})
	pids := pidsOf(t, c)
	// By default, the client searches for a new master once a minute.
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ClusterStateReloadInterval: 200 * time.Millisecond})
	defer client.Close()
	for i := range 100 {
		must(t, client.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err())
	}
	must(t, client.ForEachMaster(t.Context(), func(ctx context.Context, m *redis.Client) error {
		return m.Wait(ctx, 1, 5*time.Second).Err() // Replication is asynchronous.
	}))
	var master *Server
	for _, s := range c.Servers {
		if role, err := redisClient(t, s).Info(t.Context(), "replication").Result(); err == nil && strings.Contains(role, "role:master") {
			master = s
		}
	}
	if master == nil {
		t.Fatal("no server reports the role of a master")
	}

	t.Log("one master killed: its replica takes over; the restarted server becomes a replica")
	must(t, master.Kill())
	must(t, poll(t.Context(), func(ctx context.Context) error {
		for i := range 100 {
			if got, err := client.Get(ctx, fmt.Sprint("k", i)).Int(); err != nil || got != i {
				return fmt.Errorf("k%d = %d, %w", i, got, err)
			}
		}
		return nil
	}))
	timed(t, "restart of one server", func() { must(t, master.Start(t.Context())) })
	role, err := redisClient(t, master).Info(t.Context(), "replication").Result()
	must(t, err)
	if !strings.Contains(role, "role:slave") {
		t.Errorf("replication state of the restarted server, want role:slave:\n%s", role)
	}
	must(t, c.Close())
	waitGone(t, pids)
}

func TestSharedServersAreStartedOnce(t *testing.T) {
	type shared struct {
		name string
		get  func() []string
		kind *kind
	}
	all := []shared{
		{"cassandra", func() []string { return Cassandra(t, 1) }, cassandraKind},
		{"kafka", func() []string { return Kafka(t, 1) }, kafkaKind},
		{"redis", func() []string { return []string{Redis(t)} }, redisKind},
	}
	if !inCheck() { // the check has no cluster
		all = append(all, shared{"redis cluster", func() []string { return RedisCluster(t) }, redisClusterKind})
	}
	for _, tt := range all {
		var first []string
		timed(t, "shared "+tt.name, func() { first = tt.get() })
		if diff := cmp.Diff(first, tt.get()); diff != "" {
			t.Errorf("%s: a second call returns other servers: (-first +second)\n%s", tt.name, diff)
		}
		if err := tt.kind.check(t.Context(), first); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestTwoClustersAreSeparate(t *testing.T) {
	needs.Slow(t, "clusters")
	a := Private(t, StartKafka, KafkaConfig{})
	b := Private(t, StartKafka, KafkaConfig{})
	createTopic(t, a.Addrs(), 1)
	must(t, send(a.Addrs(), 0, 1))
	if err := send(b.Addrs(), 0, 1); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		t.Errorf("write to the other cluster = %v, want ErrUnknownTopicOrPartition", err)
	}
}

func timed(t *testing.T, step string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	t.Logf("%s: %.1f s", step, time.Since(start).Seconds())
}
