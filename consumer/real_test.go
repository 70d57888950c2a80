package consumer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	realcluster "github.com/open-leaderboard/leaderboard/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(realcluster.Main(m)) }

// startReal is start on a real Kafka, with topics and a group of the test's own.
func startReal(t *testing.T) *cluster {
	t.Helper()
	return startOn(t, realcluster.Kafka(t, 1), producer.Topics{Prefix: "consumer-" + rand.Text() + "-"})
}

// member is a consumer of a group, run until it is stopped or the test ends.
type member struct {
	*consumer.Consumer
	t       *testing.T
	metrics *prometheus.Registry
	stop    func()
}

// join runs a consumer; o's zero values are filled in.
func (c *cluster) join(s serviceAPI, o consumer.Options) *member {
	c.t.Helper()
	m := &member{t: c.t, metrics: prometheus.NewRegistry()}
	o.Brokers, o.Topics, o.Group, o.Registerer = c.brokers, c.topics, c.group(), m.metrics
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(c.t.Output(), nil))
	}
	con, err := consumer.New(o, s, c.Producer)
	if err != nil {
		c.t.Fatal(err)
	}
	if m.Consumer = con; con.Joined() {
		c.t.Error("a consumer that has not run has joined")
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

// count returns the value of a counter or gauge of the consumer.
func (m *member) count(name string) int {
	m.t.Helper()
	all, err := m.metrics.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "leaderboard_consumer_"+name {
			m := f.GetMetric()[0]
			return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	m.t.Fatalf("there is no metric %q", name)
	return 0
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const patience = 5 * time.Minute
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// members returns the ids of the group's members that have partitions.
func (c *cluster) members() []string {
	c.t.Helper()
	var groups []*sarama.GroupDescription
	eventually(c.t, "the group's coordinator answers", func() (ok bool) {
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

// committed returns the group's offset of each partition, 0 where it has none.
func (c *cluster) committed() [partitions]int64 {
	c.t.Helper()
	all := []int32{0, 1, 2, 3}
	var got *sarama.OffsetFetchResponse
	eventually(c.t, "the group's coordinator answers", func() (ok bool) {
		var err error
		got, err = c.admin.ListConsumerGroupOffsets(c.group(), map[string][]int32{c.topics.Results(): all})
		return err == nil && got.Err == sarama.ErrNoError
	})
	var offsets [partitions]int64
	for _, p := range all {
		if b := got.GetBlock(c.topics.Results(), p); b != nil && b.Err == sarama.ErrNoError {
			offsets[p] = max(b.Offset, 0)
		}
	}
	return offsets
}

// results returns messages of n results by so many users, a point each, and sets
// their topic.
func (c *cluster) results(from, to, users int) []*sarama.ProducerMessage {
	var messages []*sarama.ProducerMessage
	for i := from; i < to; i++ {
		m := message(points(fmt.Sprint("u", i%users), fmt.Sprint("m", i), 1))
		m.Topic = c.topics.Results()
		messages = append(messages, m)
	}
	return messages
}

// gate is a service that fails, or waits, as the test says, and records what it
// applied.
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

func always(context.Context, []leaderboard.MatchResult) error { return nil }

// At no time is an offset committed before which a message is not applied, while
// batches fail at random and others of the partition wait behind them.
func TestCommitsOnlyBehindAppliedWork(t *testing.T) {
	t.Parallel()
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	random := mathrand.New(mathrand.NewPCG(seed, 0))
	g := newGate(s, func(context.Context, []leaderboard.MatchResult) error {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(3) == 0 {
			return fmt.Errorf("gate: %w", leaderboard.ErrUnavailable)
		}
		return nil
	})
	const n = 2000
	messages := c.results(0, n, 97)
	c.send(messages...)
	var at [partitions][]string // matches by offset
	for _, m := range messages {
		for int64(len(at[m.Partition])) <= m.Offset {
			at[m.Partition] = append(at[m.Partition], "")
		}
	}
	for i, m := range messages {
		at[m.Partition][m.Offset] = fmt.Sprint("m", i)
	}
	c.join(g, consumer.Options{BatchResults: 7})
	seen := map[int64]bool{}
	eventually(t, "all offsets are committed", func() bool {
		all := int64(0)
		for p, offset := range c.committed() {
			all += offset
			for _, m := range at[p][:offset] {
				if !g.has(m) {
					t.Fatalf("partition %d is committed up to %d, and %s is not applied", p, offset, m)
				}
			}
		}
		seen[all] = true
		return all == n
	})
	if len(seen) < 3 {
		t.Errorf("the offsets were only ever %v: nothing was seen of the way", seen)
	}
}

// While the store is down, for much longer than a session lasts without a sign of
// life, and than a batch may be stuck, a consumer keeps its partitions, commits
// nothing, and then goes on where it was.
func TestOutageKeepsMembership(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	const session = 8 * time.Second // a busy machine may pause for some of it
	var up time.Time
	g := newGate(s, func(context.Context, []leaderboard.MatchResult) error {
		if time.Now().Before(up) {
			return fmt.Errorf("gate: %w", leaderboard.ErrUnavailable)
		}
		return nil
	})
	up = time.Now().Add(3 * session)
	m := c.join(g, consumer.Options{SessionTimeout: session, StuckAfter: session})
	c.send(c.results(0, 100, 10)...)
	eventually(t, "the consumer has the partitions", func() bool { return len(c.members()) == 1 })
	before := c.members()
	eventually(t, "the consumer is told of its partitions", func() bool { return m.Joined() && m.count("partitions") == partitions })
	eventually(t, "the consumer tries again", func() bool { return m.count("retries_total") > 3 })
	if g.count() == 0 && c.committed() != [partitions]int64{} {
		t.Errorf("%v is committed, and nothing applied", c.committed())
	}
	eventually(t, "all is applied", func() bool { return g.count() == 100 })
	if diff := gocmp.Diff(before, c.members()); diff != "" {
		t.Errorf("the members changed:\n%s", diff)
	}
	if n, stuck := m.count("sessions_total"), m.count("stuck_total"); n != 1 || stuck != 0 {
		t.Errorf("%d sessions and %d batches stuck, want 1 and 0", n, stuck)
	}
	if m.stop(); m.count("partitions") != 0 {
		t.Errorf("a consumer that has left has %d partitions", m.count("partitions"))
	}
}

// A batch that hangs, and one that fails for no reason that waiting could mend,
// are given up after a while, with the partitions, and done anew.
func TestStuckBatchIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]func(context.Context) error{
		"hangs, deaf to its context": func(context.Context) error { select {} },
		"fails and fails":            func(context.Context) error { return errors.New("a fault of the program") },
	} {
		t.Run(name, func(t *testing.T) {
			c := startReal(t)
			s, _ := newService(t, ranking.Options{})
			var m *member
			var joined sync.WaitGroup
			joined.Add(1)
			g := newGate(s, func(ctx context.Context, results []leaderboard.MatchResult) error {
				joined.Wait()
				if m.count("stuck_total") == 0 && slices.ContainsFunc(results, func(r leaderboard.MatchResult) bool { return r.Match == "m7" }) {
					return stuck(ctx)
				}
				return nil
			})
			m = c.join(g, consumer.Options{StuckAfter: 2 * time.Second})
			joined.Done()
			c.send(c.results(0, 40, 20)...)
			eventually(t, "all is applied", func() bool { return g.count() == 40 })
			if sessions, stuck := m.count("sessions_total"), m.count("stuck_total"); sessions < 2 || stuck == 0 {
				t.Errorf("%d sessions, %d batches stuck, want at least 2 and 1", sessions, stuck)
			}
		})
	}
}

// A consumer that leaves in order in the midst of its work hands over exactly:
// what it finished is not delivered again, and nothing is left out.
func TestHandOverRedeliversNothing(t *testing.T) {
	t.Parallel()
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	g := newGate(s, always)
	o := consumer.Options{BatchResults: 5, SessionTimeout: 30 * time.Second}
	first, second := c.join(g, o), c.join(g, o)
	eventually(t, "both have partitions", func() bool { return len(c.members()) == 2 })
	const n = 3000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := 0; i < n; i += 100 {
			c.send(c.results(i, i+100, 61)...)
		}
	}()
	eventually(t, "a part is applied", func() bool { return g.count() > n/5 })
	first.stop()
	third := c.join(g, o)
	eventually(t, "more is applied", func() bool { return g.count() > n/2 })
	second.stop()
	<-sent
	eventually(t, "all is applied", func() bool { return g.count() == n })
	third.stop()
	for m, times := range g.applied {
		if times != 1 {
			t.Errorf("%s was applied %d times", m, times)
		}
	}
	all := int64(0)
	for _, offset := range c.committed() {
		all += offset
	}
	if all != n {
		t.Errorf("the offsets add up to %d, want %d", all, n)
	}
}

// A consumer with a name that goes and comes back in time has its partitions
// again, and the other one's work is not interrupted.
func TestStaticMembership(t *testing.T) {
	t.Parallel()
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	g := newGate(s, always)
	stays := c.join(g, consumer.Options{InstanceID: "a", SessionTimeout: 30 * time.Second})
	goes := c.join(g, consumer.Options{InstanceID: "b", SessionTimeout: 30 * time.Second})
	eventually(t, "both have partitions", func() bool { return len(c.members()) == 2 })
	c.send(c.results(0, 200, 50)...)
	eventually(t, "all is applied", func() bool { return g.count() == 200 })
	sessions := stays.count("sessions_total")
	goes.stop()
	c.send(c.results(200, 400, 50)...)
	c.join(g, consumer.Options{InstanceID: "b", SessionTimeout: 30 * time.Second})
	eventually(t, "all is applied", func() bool { return g.count() == 400 })
	if n := stays.count("sessions_total"); n != sessions {
		t.Errorf("the consumer that stayed had %d sessions, then %d", sessions, n)
	}
	for m, times := range g.applied {
		if times != 1 {
			t.Errorf("%s was applied %d times", m, times)
		}
	}
}
