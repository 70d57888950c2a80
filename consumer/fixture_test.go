package consumer_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	realcluster "github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func TestMain(m *testing.M) {
	// The tests mostly wait, so many run concurrently.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(realcluster.Main(m))
}

const partitions = 4

type cluster struct {
	t       *testing.T
	brokers []string
	topics  kafka.Topics
	admin   sarama.ClusterAdmin
	*producer.Producer
}

// start creates an in-process cluster with the service's topics and the given topics.
func start(t *testing.T, topics ...string) *cluster {
	t.Helper()
	c, _ := startFake(t, topics...)
	return c
}

func startFake(t *testing.T, topics ...string) (*cluster, *kfake.Cluster) {
	t.Helper()
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return startOn(t, fake.ListenAddrs(), kafka.Topics{}, topics...), fake
}

func startReal(t *testing.T) *cluster {
	t.Helper()
	t.Parallel()
	return startOn(t, realcluster.Kafka(t, 1), kafka.Topics{Prefix: "consumer-" + rand.Text() + "-"})
}

// onBoth runs test on an in-process cluster and on a real one.
func onBoth(t *testing.T, test func(*testing.T, *cluster)) {
	t.Parallel()
	t.Run("in process", func(t *testing.T) { test(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { test(t, startReal(t)) })
}

func startOn(t *testing.T, brokers []string, names kafka.Topics, topics ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, brokers: brokers, topics: names}
	var err error
	if c.admin, err = sarama.NewClusterAdmin(c.brokers, kafka.Options{}.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.admin.Close() })
	for _, topic := range append(topics, names.Results(), names.Updates(), names.DeadLetters()) {
		if err := c.createTopic(topic); err != nil {
			t.Fatal(err)
		}
	}
	if c.Producer, err = producer.New(c.brokers, kafka.Options{}.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Producer.Close() })
	return c
}

func (c *cluster) group() string { return c.topics.Prefix + "leaderboard" }

func (c *cluster) send(messages ...*sarama.ProducerMessage) {
	c.t.Helper()
	if err := c.Send(c.t.Context(), messages); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) read(topic string, n int) []*sarama.ConsumerMessage {
	c.t.Helper()
	reader, err := sarama.NewConsumer(c.brokers, kafka.Options{}.Config("reader"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer reader.Close()
	all := make(chan *sarama.ConsumerMessage)
	stop := make(chan struct{})
	var done sync.WaitGroup
	for p := range int32(partitions) {
		pc, err := reader.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			c.t.Fatal(err)
		}
		done.Go(func() {
			defer pc.Close()
			for {
				select {
				case m := <-pc.Messages():
					select {
					case all <- m:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		})
	}
	var messages []*sarama.ConsumerMessage
	deadline := time.After(5 * time.Minute)
	for len(messages) < n {
		select {
		case m := <-all:
			messages = append(messages, m)
		case <-deadline:
			c.t.Fatalf("topic %s: read %d messages within 5 minutes, want %d", topic, len(messages), n)
		}
	}
	close(stop)
	done.Wait()
	return messages
}

// members returns the ids of the group's members, or none during a rebalance.
func (c *cluster) members() []string {
	c.t.Helper()
	var groups []*sarama.GroupDescription
	eventually(c.t, "answer of the group's coordinator", func() (ok bool) {
		var err error
		groups, err = c.admin.DescribeConsumerGroups([]string{c.group()})
		return err == nil
	})
	var ids []string
	if groups[0].State == "Stable" {
		for id := range groups[0].Members {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// committed returns the committed offset of each partition of the results topic, or 0.
func (c *cluster) committed() (offsets [partitions]int64) {
	c.t.Helper()
	for p, b := range c.committedBlocks() {
		offsets[p] = max(b.Offset, 0)
	}
	return offsets
}

func (c *cluster) allCommitted() int {
	c.t.Helper()
	sum := int64(0)
	for _, offset := range c.committed() {
		sum += offset
	}
	return int(sum)
}

// results returns a message for each of the matches m<from> to m<to-1>. Match m<i> gives one point to
// user u<i modulo users>.
func (c *cluster) results(from, to, users int) []*sarama.ProducerMessage {
	var messages []*sarama.ProducerMessage
	for i := from; i < to; i++ {
		m := message(points(fmt.Sprint("u", i%users), fmt.Sprint("m", i), 1))
		m.Topic = c.topics.Results()
		messages = append(messages, m)
	}
	return messages
}

func points(user, match string, n int64) *pb.MatchResultRecord {
	return &pb.MatchResultRecord{BoardId: "b", Result: &pb.Result{UserId: user, MatchId: match, Points: &n}}
}

// message returns a message with record, for topics without a prefix.
func message(record *pb.MatchResultRecord) *sarama.ProducerMessage {
	value, err := proto.Marshal(record)
	if err != nil {
		panic(err)
	}
	return &sarama.ProducerMessage{Topic: kafka.Topics{}.Results(), Key: sarama.StringEncoder(record.GetResult().GetUserId()), Value: sarama.ByteEncoder(value)}
}

func headers(m *sarama.ConsumerMessage) map[string]string {
	h := map[string]string{}
	for _, x := range m.Headers {
		h[string(x.Key)] = string(x.Value)
	}
	return h
}

func newService(t *testing.T, o ranking.Options) (*ranking.Service, leaderboard.Store) {
	t.Helper()
	s, store, _ := newServiceIndex(t, o)
	return s, store
}

func newServiceIndex(t *testing.T, o ranking.Options) (*ranking.Service, leaderboard.Store, leaderboard.Index) {
	t.Helper()
	store, index := embedded.Open(t)
	s := ranking.New(store, index, o)
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "b", Policy: leaderboard.Sum}); err != nil {
		t.Fatal(err)
	}
	return s, store, index
}

func boardB(t *testing.T, s *ranking.Service) *leaderboard.Board {
	t.Helper()
	b, err := s.Board(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	return &b
}

// boardLines returns the lines of board b, as "user score", sorted as text.
func boardLines(t *testing.T, s *ranking.Service) []string {
	t.Helper()
	page, err := s.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, l := range page.Lines {
		lines = append(lines, fmt.Sprintf("%s %d", l.User, l.Score))
	}
	slices.Sort(lines)
	return lines
}

func (c *cluster) consume(s consumer.Service) (stop func()) {
	c.t.Helper()
	return c.join(s, consumer.Options{}).stop
}

type member struct {
	*consumer.Consumer
	t       *testing.T
	metrics *prometheus.Registry
	stop    func()
}

func (c *cluster) join(s consumer.Service, o consumer.Options) *member {
	c.t.Helper()
	m := &member{t: c.t, metrics: prometheus.NewRegistry()}
	o.Brokers, o.Topics, o.Group, o.Registerer = c.brokers, c.topics, cmp.Or(o.Group, c.group()), m.metrics
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(c.t.Output(), nil))
	}
	o.BoardWait = cmp.Or(o.BoardWait, 10*time.Millisecond)
	con, err := consumer.New(o, s, c.Producer)
	if err != nil {
		c.t.Fatal(err)
	}
	if m.Consumer = con; con.Joined() {
		c.t.Error("Joined() = true before Run")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- con.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	c.t.Cleanup(m.stop)
	return m
}

// metric returns the sum of a metric's values, and the number of its samples.
func (m *member) metric(name string) (sum, samples int, ok bool) {
	m.t.Helper()
	all, err := m.metrics.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "leaderboard_consumer_"+name {
			for _, m := range f.GetMetric() {
				sum += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
				samples += int(m.GetHistogram().GetSampleCount())
			}
			return sum, samples, true
		}
	}
	return 0, 0, false
}

func (m *member) count(name string) int {
	m.t.Helper()
	sum, _, ok := m.metric(name)
	if !ok {
		m.t.Fatalf("metric %q does not exist", name)
	}
	return sum
}

// gate calls the function before at the start of Apply. It counts the applied results by match.
type gate struct {
	*ranking.Service
	before func(ctx context.Context, results []leaderboard.MatchResult) error

	mu      sync.Mutex
	applied map[leaderboard.MatchID]int
}

func newGate(s *ranking.Service, before func(context.Context, []leaderboard.MatchResult) error) *gate {
	return &gate{Service: s, before: before, applied: map[leaderboard.MatchID]int{}}
}

func (g *gate) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	if err := g.before(ctx, results); err != nil {
		return leaderboard.ApplyReport{}, err
	}
	report, err := g.Service.Apply(ctx, b, results)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range report.Outcomes {
		if err == nil && report.Outcomes[i].Err == nil {
			g.applied[results[i].Match]++
		}
	}
	return report, err
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.applied)
}

func (g *gate) has(m string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied[leaderboard.MatchID(m)] > 0
}

func pass(context.Context, []leaderboard.MatchResult) error { return nil }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const timeout = 5 * time.Minute
	deadline := time.After(timeout)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out after %v waiting for: %s", timeout, what)
		}
	}
}

// createTopic waits until each partition of the new topic has a leader.
func (c *cluster) createTopic(topic string) error {
	c.t.Helper()
	if err := c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	eventually(c.t, "the new topic "+topic+" has leaders", func() bool {
		_, err := c.countMessages(topic)
		return err == nil
	})
	return nil
}

func (c *cluster) messagesIn(topic string) int64 {
	c.t.Helper()
	n, err := c.countMessages(topic)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) countMessages(topic string) (n int64, err error) {
	client, err := sarama.NewClient(c.brokers, kafka.Options{}.Config("test"))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	for p := range int32(partitions) {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		n += end
	}
	return n, nil
}
