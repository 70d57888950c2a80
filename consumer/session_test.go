package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestOffsetsAreCommittedOnlyAfterApply(t *testing.T) {
	needs.Also(t, "histories")
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	g := newGate(s, func(context.Context, []leaderboard.MatchResult) error {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(3) == 0 {
			return fmt.Errorf("gate: %w", leaderboard.ErrUnavailable)
		}
		return nil
	})
	n := 1000
	if needs.Running("histories") {
		n = 4000
	}
	messages := c.results(0, n, 97)
	c.send(messages...)
	var matches [partitions][]string // by offset
	for _, m := range messages {
		for int64(len(matches[m.Partition])) <= m.Offset {
			matches[m.Partition] = append(matches[m.Partition], "")
		}
	}
	for i, m := range messages {
		matches[m.Partition][m.Offset] = fmt.Sprint("m", i)
	}
	c.join(g, consumer.Options{BatchResults: 7})
	seen := map[int64]bool{}
	eventually(t, "all offsets are committed", func() bool {
		all := int64(0)
		for p, offset := range c.committed() {
			all += offset
			for _, m := range matches[p][:offset] {
				if !g.has(m) {
					t.Fatalf("partition %d is committed up to %d, but %s is not applied", p, offset, m)
				}
			}
		}
		seen[all] = true
		return all == int64(n)
	})
	if len(seen) < 3 {
		t.Errorf("the test saw %d states of the committed offsets, want at least 3: otherwise it checks no intermediate commit", len(seen))
	}
}

// The outage is longer than SessionTimeout and StuckAfter.
func TestOutageKeepsMembership(t *testing.T) {
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	const session = 8 * time.Second // long enough for a busy machine
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
	eventually(t, "the consumer has joined with all partitions", func() bool { return m.Joined() && m.count("partitions") == partitions })
	eventually(t, "the consumer retries", func() bool { return m.count("retries_total") > 3 })
	if g.count() == 0 && c.committed() != [partitions]int64{} {
		t.Errorf("offsets %v are committed, want none before a result is applied", c.committed())
	}
	eventually(t, "all results are applied", func() bool { return g.count() == 100 })
	if diff := gocmp.Diff(before, c.members()); diff != "" {
		t.Errorf("the members changed (-before +after):\n%s", diff)
	}
	if n, stuck := m.count("sessions_total"), m.count("stuck_total"); n != 1 || stuck != 0 {
		t.Errorf("%d sessions and %d stuck batches, want 1 and 0", n, stuck)
	}
	if m.stop(); m.count("partitions") != 0 {
		t.Errorf("the consumer has %d partitions after it left, want 0", m.count("partitions"))
	}
}

func TestStuckBatchIsGivenUp(t *testing.T) {
	for name, stuck := range map[string]func(context.Context) error{
		"Apply hangs and ignores its context": func(context.Context) error { select {} },
		"Apply keeps failing":                 func(context.Context) error { return errors.New("a bug, not an unavailable server") },
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
			eventually(t, "all results are applied", func() bool { return g.count() == 40 })
			if sessions, stuck := m.count("sessions_total"), m.count("stuck_total"); sessions < 2 || stuck == 0 {
				t.Errorf("%d sessions and %d stuck batches, want at least 2 and 1", sessions, stuck)
			}
		})
	}
}

func TestHandOverRedeliversNothing(t *testing.T) {
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	g := newGate(s, pass)
	o := consumer.Options{BatchResults: 5, SessionTimeout: 30 * time.Second}
	first, second := c.join(g, o), c.join(g, o)
	eventually(t, "both consumers have partitions", func() bool { return len(c.members()) == 2 })
	n := needs.More(t, 1000)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := 0; i < n; i += 100 {
			c.send(c.results(i, i+100, 61)...)
		}
	}()
	eventually(t, "a part of the results is applied", func() bool { return g.count() > n/5 })
	first.stop()
	third := c.join(g, o)
	eventually(t, "more results are applied", func() bool { return g.count() > n/2 })
	second.stop()
	<-sent
	eventually(t, "all results are applied", func() bool { return g.count() == n })
	third.stop()
	for m, times := range g.applied {
		if times != 1 {
			t.Errorf("%s was applied %d times, want once", m, times)
		}
	}
	if got := c.allCommitted(); got != n {
		t.Errorf("the committed offsets add up to %d, want %d", got, n)
	}
}

func TestAReplayAfterAHandOverChangesNothing(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	first := &flakyService{Service: s, rng: rand.New(rand.NewPCG(1, 1))}
	stop := c.consume(first)
	send := func(from, to int) {
		var messages []*sarama.ProducerMessage
		for i := from; i < to; i++ {
			messages = append(messages, message(points(fmt.Sprint("u", i%7), fmt.Sprint("m", i), 1)))
		}
		c.send(messages...)
	}
	send(0, 50)
	c.read(c.topics.Updates(), 50)
	stop()
	before := boardLines(t, s)

	second := &flakyService{Service: s, rng: rand.New(rand.NewPCG(1, 2))}
	stop = c.consume(second)
	send(50, 60)
	c.read(c.topics.Updates(), 60)
	stop()
	for _, m := range second.applied {
		if slices.Contains(first.applied, m) {
			t.Errorf("match %s was delivered to both consumers, want only to the first", m)
		}
	}

	want := boardLines(t, s)
	if slices.Equal(before, want) {
		t.Fatal("the second consumer applied no results, want some")
	}
	if err := c.admin.DeleteConsumerGroup("leaderboard"); err != nil {
		t.Fatal(err)
	}
	c.consume(s)
	c.read(c.topics.Updates(), 120)
	if diff := gocmp.Diff(want, boardLines(t, s)); diff != "" {
		t.Errorf("the replay changed the board (-before +after):\n%s", diff)
	}
}

func TestAnInstanceIDKeepsPartitionsAcrossARestart(t *testing.T) {
	c := startReal(t)
	s, _ := newService(t, ranking.Options{})
	g := newGate(s, pass)
	staying := c.join(g, consumer.Options{InstanceID: "a", SessionTimeout: 30 * time.Second})
	leaving := c.join(g, consumer.Options{InstanceID: "b", SessionTimeout: 30 * time.Second})
	eventually(t, "both consumers have partitions", func() bool { return len(c.members()) == 2 })
	c.send(c.results(0, 200, 50)...)
	eventually(t, "all results are applied", func() bool { return g.count() == 200 })
	sessions := staying.count("sessions_total")
	leaving.stop()
	c.send(c.results(200, 400, 50)...)
	c.join(g, consumer.Options{InstanceID: "b", SessionTimeout: 30 * time.Second})
	eventually(t, "all results are applied", func() bool { return g.count() == 400 })
	if n := staying.count("sessions_total"); n != sessions {
		t.Errorf("the consumer a had %d sessions before the restart of b and %d after it, want the same number", sessions, n)
	}
	for m, times := range g.applied {
		if times != 1 {
			t.Errorf("%s was applied %d times, want once", m, times)
		}
	}
}
