package benchmark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// BenchmarkCapacity measures constants of package capacity: bytes on disks and in Redis for each user and
// result, and processor time for each submit and read over REST. 64 callers each have one
// request in flight. LEADERBOARD_BENCH_USERS users have one result each, and later two more, each an
// improvement. A server's processor time is that of its process.
func BenchmarkCapacity(b *testing.B) {
	b.Run("embedded", func(b *testing.B) {
		data := filepath.Join(b.TempDir(), "data")
		node := deployment.Embedded(b, data)
		m := newMeasurement(b, node, map[string]*cluster.Server{"process": node.Server})
		m.run(b, func() map[string]float64 {
			// At its start, a process writes its log to tables, so the folder has no long log.
			if err := node.Restart(b.Context()); err != nil {
				b.Fatal(err)
			}
			return map[string]float64{"disk": folderBytes(b, data)}
		}, func() {})
	})
	b.Run("distributed", func(b *testing.B) {
		cassandra := cluster.Private(b, cluster.StartCassandra, cluster.CassandraConfig{Logf: b.Logf})
		kafka := cluster.Private(b, cluster.StartKafka, cluster.KafkaConfig{Logf: b.Logf})
		redis := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
		d := deployment.New(b, deployment.Options{Cassandra: cassandra.Addrs(), Kafka: kafka.Addrs(), Redis: redis.Addrs()})
		api, consumer := d.Serve(b, "--roles=api"), d.Serve(b, "--roles=consumer")
		m := newMeasurement(b, api, map[string]*cluster.Server{
			"api": api.Server, "consumer": consumer.Server, "cassandra": cassandra.Servers[0], "kafka": kafka.Servers[0], "redis": redis.Servers[0],
		})
		server := goredis.NewClient(&goredis.Options{Addr: d.Redis[0]})
		b.Cleanup(func() { _ = server.Close() })
		m.run(b, func() map[string]float64 {
			return map[string]float64{
				"cassandra-disk": keyspaceBytes(b, cassandra.Servers[0], d.Keyspace), "kafka-disk": topicBytes(b, d.Kafka), "redis-memory": usedMemory(b, server),
			}
		}, func() {
			deployment.Eventually(b, func(ctx context.Context) error {
				n, err := consumer.Metric(ctx, "leaderboard_consumer_results_total")
				if err == nil && int(n) < m.sent {
					err = fmt.Errorf("%v of %d results are applied", n, m.sent)
				}
				return err
			})
		})
	})
}

// measurement is one run on one board.
type measurement struct {
	node    *deployment.Node
	servers map[string]*cluster.Server // whose processor time is measured
	client  *http.Client
	path    string
	users   int
	sent    int
}

func newMeasurement(b *testing.B, node *deployment.Node, servers map[string]*cluster.Server) *measurement {
	board := node.Board(b, "capacity", map[string]any{"policy": "BEST", "order": "HIGHER_FIRST"})
	return &measurement{node: node, servers: servers, users: benchUsers(b),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}, path: "/v1/boards/" + board + "/scores"}
}

// run reports the metrics. sizes returns the bytes on disks and in memory, by name. applied returns
// once all sent results are applied.
func (m *measurement) run(b *testing.B, sizes func() map[string]float64, applied func()) {
	b.Helper()
	for b.Loop() {
		before := sizes()
		m.submit(b, 1)
		applied()
		first := sizes()
		began := m.times(b)
		const more = 2
		for round := range more {
			m.submit(b, 2+round)
		}
		applied()
		results := float64(more * m.users)
		for name, spent := range m.since(b, began) {
			b.ReportMetric(spent/results*1e6, name+"-µs/submit")
		}
		last := sizes()
		for name := range last {
			result := (last[name] - first[name]) / results
			b.ReportMetric(result, name+"-B/result")
			b.ReportMetric((first[name]-before[name])/float64(m.users)-result, name+"-B/user")
		}
		began = m.times(b)
		m.each(b, func(user int) error {
			return read(b.Context(), m.client, m.node.Key, m.node.URL+m.path+"/"+m.user(rand.IntN(m.users)))
		})
		for name, spent := range m.since(b, began) {
			b.ReportMetric(spent/float64(m.users)*1e6, name+"-µs/read")
		}
	}
	b.ReportMetric(0, "ns/op")
}

func (m *measurement) user(i int) string { return fmt.Sprintf("user-%011d", i) }

// each calls do for each user, 64 at a time.
func (m *measurement) each(b *testing.B, do func(user int) error) {
	b.Helper()
	var next, failed atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < m.users; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil && failed.Add(1) == 1 {
					b.Errorf("user %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		b.Fatalf("%d of %d requests failed", n, m.users)
	}
}

// submit sends a result of each user, better than those of earlier rounds.
func (m *measurement) submit(b *testing.B, round int) {
	b.Helper()
	m.each(b, func(user int) error {
		body := fmt.Sprintf(`{"user_id":%q,"match_id":"match-%02d-%07d","score":%d}`, m.user(user), round, user, round<<40+rand.IntN(1<<40))
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, m.node.URL+m.path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+m.node.Key)
		resp, err := m.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var answer json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode/100 != 2 {
			return fmt.Errorf("status %d, error %w: %s", resp.StatusCode, err, answer)
		}
		return nil
	})
	m.sent += m.users
}

// times returns the processor seconds of each server.
func (m *measurement) times(b *testing.B) map[string]float64 {
	b.Helper()
	spent := map[string]float64{}
	for name, s := range m.servers {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
		if err != nil {
			b.Skip(err) // not on Linux
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, ticks := range fields[11:13] { // utime and stime, in hundredths of a second
			n, err := strconv.ParseFloat(ticks, 64)
			if err != nil {
				b.Fatal(err)
			}
			spent[name] += n / 100
		}
	}
	return spent
}

func (m *measurement) since(b *testing.B, began map[string]float64) map[string]float64 {
	b.Helper()
	spent := m.times(b)
	for name := range spent {
		spent[name] -= began[name]
	}
	return spent
}

func folderBytes(b *testing.B, folder string) (sum float64) {
	b.Helper()
	err := filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted by a compaction
		}
		if err == nil && filepath.Ext(d.Name()) == ".sst" {
			sum += float64(info.Size())
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

// keyspaceBytes returns the bytes of a keyspace on a node, after a compaction.
func keyspaceBytes(b *testing.B, node *cluster.Server, keyspace string) (sum float64) {
	b.Helper()
	var out string
	for _, args := range [][]string{{"flush", keyspace}, {"compact", keyspace}, {"tablestats", "-F", "json", keyspace}} {
		var err error
		if out, err = cluster.Nodetool(b.Context(), node, args...); err != nil {
			b.Fatal(err)
		}
	}
	stats := map[string]json.RawMessage{}
	var tables struct {
		Tables map[string]struct {
			Live string `json:"space_used_live"`
		}
	}
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &stats); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(stats[keyspace], &tables); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, t := range tables.Tables {
		n, err := strconv.ParseFloat(t.Live, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return sum
}

// topicBytes returns the bytes of all topics of the service in the logs of the brokers.
func topicBytes(b *testing.B, brokers []string) (sum float64) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for _, shard := range client.RequestSharded(b.Context(), kmsg.NewPtrDescribeLogDirsRequest()) {
		if shard.Err != nil {
			b.Fatal(shard.Err)
		}
		for _, dir := range shard.Resp.(*kmsg.DescribeLogDirsResponse).Dirs {
			for _, topic := range dir.Topics {
				if strings.HasPrefix(topic.Topic, "__") {
					continue
				}
				for _, partition := range topic.Partitions {
					sum += float64(partition.Size)
				}
			}
		}
	}
	return sum
}

func usedMemory(b *testing.B, server *goredis.Client) float64 {
	b.Helper()
	info, err := server.Info(b.Context(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, text, _ := strings.Cut(info, "\nused_memory:")
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.SplitN(text, "\n", 2)[0]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
