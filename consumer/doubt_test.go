package consumer_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// startOn runs a consumer that begins on the index server of the process other. If other is nil, it
// begins on the present server.
func (r *region) startOn(other *cachetest.Process) (*member, *cachetest.Process) {
	x := r.index.Process(other)
	s := ranking.New(r.store, x, ranking.Options{})
	return r.join(s, consumer.Options{BatchResults: 20, SessionTimeout: 2 * time.Second}.WithAdvanceInterval(20*time.Millisecond)), x
}

// waitAdvanced waits until the index has recorded positions after all messages.
func (r *region) waitAdvanced() {
	r.t.Helper()
	eventually(r.t, "all positions are recorded", func() bool { return r.index.Advanced(partitions, r.sent) })
}

func (r *region) isDegraded() bool {
	r.t.Helper()
	for _, board := range []leaderboard.BoardID{"b", "linked"} {
		page, err := r.reader.Page(r.t.Context(), ranking.PageQuery{Query: ranking.Query{Board: board}, Limit: 1})
		if err != nil || page.Degraded {
			return true
		}
	}
	return false
}

// Servers of the index fail, also twice in a row, and their replicas lack the last writes.
// Consumers start and end meanwhile, and notice new servers late. In the end, each rank equals the
// recount, and no season was filled twice.
func TestServersFailInRandomHistories(t *testing.T) {
	r := openRegion(t)
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	type process struct {
		*member
		index *cachetest.Process
	}
	var processes []process
	start := func() {
		var other *cachetest.Process
		if len(processes) > 0 && random.IntN(2) == 0 {
			other = processes[random.IntN(len(processes))].index
		}
		m, x := r.startOn(other)
		processes = append(processes, process{m, x})
	}
	checkAll := func() {
		r.waitCommitted()
		eventually(t, "no season is in doubt", func() bool { return !r.isDegraded() })
		r.waitAdvanced()
		r.checkRanks()
	}
	start()
	r.send(r.next(1+random.IntN(30), 23)...)
	r.waitCommitted()
	r.checkRanks() // fills the index
	r.waitAdvanced()
	r.index.Keep()
	counts := map[string]int{}
	for range needs.More(t, 30) {
		switch step := random.IntN(10); {
		case step < 4:
			r.send(r.next(1+random.IntN(30), 23)...)
			counts["sends"]++
		case step == 4 && len(processes) < 3:
			start()
			counts["starts"]++
		case step == 5 && len(processes) > 1:
			i := random.IntN(len(processes))
			processes[i].stop()
			processes = slices.Delete(processes, i, i+1)
			counts["ends"]++
		case step == 6:
			for _, p := range processes {
				if random.IntN(2) == 0 {
					p.index.Follow()
				}
			}
		case step < 9:
			r.index.Fail(random.IntN(40))
			r.process.Follow()
			for _, p := range processes {
				if random.IntN(2) == 0 {
					p.index.Follow()
				}
			}
			counts["failures"]++
		default:
			for _, p := range processes {
				p.index.Follow()
			}
			checkAll()
			counts["checks"]++
		}
		if t.Failed() {
			break
		}
	}
	for _, p := range processes {
		p.index.Follow()
	}
	checkAll()
	if n := r.index.Rebuilds(); n != 2 {
		t.Errorf("%d rebuilds, want 2: the first fill of each board", n)
	}
	t.Logf("%d results, %v", r.sent, counts)
}

// After a failover, a consumer joins, updates the former server, commits, and ends before it
// notices the failover. The next consumer repeats these updates.
func TestAConsumerOfTheFormerServer(t *testing.T) {
	r := openRegion(t)
	former := r.index.Process(nil)
	first, index := r.startOn(nil)
	r.send(r.next(100, 23)...)
	r.waitCommitted()
	r.checkRanks() // fills the index
	r.waitAdvanced()
	r.index.Fail(0)
	r.process.Follow()
	index.Follow()
	eventually(t, "no season is in doubt", func() bool { return !r.isDegraded() })

	second, _ := r.startOn(former)
	first.stop()
	r.send(r.next(50, 23)...)
	r.waitCommitted()
	second.stop()
	r.startOn(nil)
	r.waitAdvanced()
	r.checkRanks()
	if n := r.index.Rebuilds(); n != 2 {
		t.Errorf("%d rebuilds, want 2: the first fill of each board", n)
	}
}

// A producer writes results in transactions. So each partition ends with a marker of a transaction.
// Consumers skip markers.
func TestDoubtsEndAfterTransactions(t *testing.T) {
	onBoth(t, doubtsEndAfterTransactions)
}

func doubtsEndAfterTransactions(t *testing.T, c *cluster) {
	r := openRegionOn(c)
	_, index := r.startOn(nil)
	cfg := kafka.Options{}.Config("transactions")
	cfg.Producer.Idempotent, cfg.Producer.Transaction.ID, cfg.Net.MaxOpenRequests = true, r.group(), 1
	cfg.Producer.RequiredAcks, cfg.Producer.Return.Successes = sarama.WaitForAll, true
	transactions, err := sarama.NewSyncProducer(r.brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transactions.Close() })
	markers := 0
	send := func() {
		t.Helper()
		if err := transactions.BeginTxn(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(transactions.SendMessages(r.next(50, 10)), transactions.CommitTxn()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the results are committed", func() bool { return r.allCommitted() == r.sent+markers })
		for _, offset := range r.committed() {
			if offset > 0 { // the transaction wrote a marker into the partition
				markers++
			}
		}
	}
	send()
	r.checkRanks() // fills the index
	r.index.Keep()
	send()
	r.index.Fail(40)
	r.process.Follow()
	index.Follow()
	eventually(t, "no season is in doubt", func() bool { return !r.isDegraded() })
	r.checkRanks()
	if n := r.index.Rebuilds(); n != 2 {
		t.Errorf("%d rebuilds, want 2: the first fill of each board", n)
	}
}

// For a message with index_only, the consumer passes the stored entry to the index, also on a
// linked board. It publishes no update.
func TestNotedEntriesReachTheIndex(t *testing.T) {
	r := openRegion(t)
	r.start(false)
	r.send(r.next(20, 10)...)
	r.waitCommitted()
	r.checkRanks() // fills the index

	// A process with another index applies results, so this index lacks them.
	other := ranking.New(r.store, memory.New(), ranking.Options{})
	b := boardB(t, other)
	for user := range r.scores {
		result := leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: leaderboard.UserID(user), Match: "more"},
			Score:     5, AchievedAt: time.Now(), ReceivedAt: time.Now(),
		}
		if _, err := other.Apply(t.Context(), b, []leaderboard.MatchResult{result}); err != nil {
			t.Fatal(err)
		}
	}
	updates, journal := r.messagesIn(r.topics.Updates()), producer.NewJournal(r.Producer, r.topics)
	for user := range r.scores {
		for _, board := range []leaderboard.BoardID{"b", "linked"} {
			key := leaderboard.SeasonKey{Board: board, Season: leaderboard.SeasonAll}
			if err := journal.Note(t.Context(), key, []leaderboard.UserID{leaderboard.UserID(user)}); err != nil {
				t.Fatal(err)
			}
		}
		r.scores[user] += 5
	}
	eventually(t, "the messages are committed", func() bool { return r.allCommitted() == 40 })
	r.checkRanks()
	if n := r.messagesIn(r.topics.Updates()); n != updates {
		t.Errorf("%d updates are published, want still %d", n, updates)
	}
	if n := r.messagesIn(r.topics.DeadLetters()); n != 0 {
		t.Errorf("%d dead letters, want 0", n)
	}
}
