package consumer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func TestReceivedAtIsBoundedByTheMessage(t *testing.T) {
	c := start(t)
	store, index := embedded.Open(t)
	s := ranking.New(store, index, ranking.Options{})
	now := time.Now().UTC()
	season := leaderboard.Season{ID: "past", Start: now.Add(-72 * time.Hour).Truncate(time.Minute), End: now.Add(-24 * time.Hour).Truncate(time.Minute)}
	past := ranking.New(store, index, ranking.Options{Now: func() time.Time { return season.Start }})
	if _, err := past.CreateBoard(t.Context(), leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Windows: []leaderboard.Season{season}, Grace: time.Hour,
	}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Erase(t.Context(), "erased"); err != nil {
		t.Fatal(err)
	}
	send := func(user, match string, received, sent time.Time) {
		r := points(user, match, 1)
		r.Result.AchievedAt, r.ReceivedAt = timestamppb.New(season.Start), timestamppb.New(received)
		m := message(r)
		m.Timestamp = sent
		c.send(m)
	}
	before := season.End.Add(-time.Hour)
	send("u", "in time", before, before)
	send("u", "received_at is shortly before the message's time", season.End.Add(59*time.Minute), season.End.Add(62*time.Minute))
	send("u", "received_at is long before the message's time", before, now)
	send("erased", "received_at is after the message's time", now.Add(time.Hour), before)
	c.consume(s)
	want := []string{
		"in time APPLIED", "received_at is after the message's time REJECTED USER_ERASED",
		"received_at is long before the message's time REJECTED SEASON_CLOSED", "received_at is shortly before the message's time APPLIED",
	}
	if diff := cmp.Diff(want, c.outcomes(4)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func TestAbortedTransactionsAreNotRead(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	conf := kafka.Options{}.Config("transactional")
	conf.Producer.Transaction.ID = "test"
	p, err := sarama.NewSyncProducer(c.brokers, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	transact := func(match string, end func() error) {
		t.Helper()
		if err := p.BeginTxn(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.SendMessage(message(points("u", match, 1))); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	transact("aborted", p.AbortTxn)
	transact("committed", p.CommitTxn)
	c.consume(s)
	if diff := cmp.Diff([]string{"committed APPLIED"}, c.outcomes(1)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	// If the consumer had read the aborted result, its update would come before this one.
	c.send(message(points("u", "last", 1)))
	if diff := cmp.Diff([]string{"committed APPLIED", "last APPLIED"}, c.outcomes(2)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func TestPlacementFollowsTheUserInTheValue(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	for n := range 20 {
		m := message(points(fmt.Sprint("u", n), "m", 1))
		m.Key = sarama.StringEncoder("one key for all")
		c.send(m)
	}
	misplaced := 0
	onlyPartition, err := kafka.PartitionOf([]byte("one key for all"), partitions)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if p, err := kafka.PartitionOf(fmt.Append(nil, "u", n), partitions); err != nil || p != onlyPartition {
			misplaced++
		}
	}
	c.send(&sarama.ProducerMessage{Topic: c.topics.Results(), Value: sarama.StringEncoder("no result")})
	m := c.join(s, consumer.Options{})
	c.read(c.topics.Updates(), 20)
	c.read(c.topics.DeadLetters(), 1)
	if n := m.count("misplaced_total"); n != misplaced {
		t.Errorf("misplaced_total = %d, want %d", n, misplaced)
	}
}
