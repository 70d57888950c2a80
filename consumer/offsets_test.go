package consumer_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
)

// The first consumer resets committed offsets outside the log. The next consumer resets nothing.
func TestOffsetsOutOfTheLog(t *testing.T) {
	onBoth(t, offsetsOutOfTheLog)
}

func offsetsOutOfTheLog(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	var want []string
	messages := c.results(0, 40, 40)
	c.send(messages...)
	const expired, beyond = 1, 2 // partitions with a committed offset before and after the log
	for i, m := range messages {
		if m.Partition != expired || m.Offset >= 3 {
			want = append(want, fmt.Sprintf("u%d 1", i))
		}
	}
	slices.Sort(want)
	if err := c.admin.DeleteRecords(c.topics.Results(), map[int32]int64{expired: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.AlterConsumerGroupOffsets(c.group(), map[string]map[int32]sarama.OffsetAndMetadata{
		c.topics.Results(): {expired: {Offset: 1, LeaderEpoch: -1}, beyond: {Offset: 1000, LeaderEpoch: -1}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := c.join(s, consumer.Options{Log: slog.New(slog.NewTextHandler(io.MultiWriter(&log, t.Output()), nil))})
	eventually(t, "all results in the log are applied", func() bool { return len(boardLines(t, s)) >= len(want) })
	if diff := gocmp.Diff(want, boardLines(t, s)); diff != "" {
		t.Errorf("lines of the board (-want +got):\n%s", diff)
	}
	if sessions, resets := m.count("sessions_total"), m.count("offset_resets_total"); sessions != 1 || resets != 2 {
		t.Errorf("the consumer had %d sessions and made %d resets, want 1 and 2", sessions, resets)
	}
	m.stop()
	for _, line := range []string{"partition=1 committed=1 oldest=3", "partition=2 committed=1000 oldest=0"} {
		if !bytes.Contains(log.Bytes(), []byte("level=ERROR")) || !bytes.Contains(log.Bytes(), []byte(line)) {
			t.Errorf("the log has no error with %q", line)
		}
	}
	next := c.join(s, consumer.Options{})
	eventually(t, "the next consumer has all partitions", func() bool { return next.count("partitions") == partitions })
	if resets := next.count("offset_resets_total"); resets != 0 {
		t.Errorf("the next consumer made %d resets, want 0", resets)
	}
}

func (c *cluster) recreateTopic() {
	c.t.Helper()
	if err := c.admin.DeleteTopic(c.topics.Results()); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the topic is recreated", func() bool {
		return c.createTopic(c.topics.Results()) == nil
	})
}

func TestRecreatedTopicIsReadFromItsOldestMessage(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	c.join(s, consumer.Options{})
	c.send(c.results(0, 40, 40)...)
	eventually(t, "all offsets are committed", func() bool { return c.allCommitted() == 40 })
	c.recreateTopic()
	p, err := producer.New(c.brokers, kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Send(t.Context(), []*sarama.ProducerMessage{message(points("ann", "m", 1))}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the result in the recreated topic is applied", func() bool { return slices.Contains(boardLines(t, s), "ann 1") })
}

func TestRecreatedTopicWithMoreMessages(t *testing.T) {
	onBoth(t, recreatedTopicWithMoreMessages)
}

func recreatedTopicWithMoreMessages(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	c.join(s, consumer.Options{}.WithTopicPoll(5*time.Second))
	c.send(c.results(0, 40, 40)...)
	eventually(t, "all results are applied", func() bool { return len(boardLines(t, s)) == 40 })
	c.recreateTopic()
	p, err := producer.New(c.brokers, kafka.Options{}.Config("test")) // without the deleted topic in its cache
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	messages := c.results(40, 540, 540)
	eventually(t, "the recreated topic has results", func() bool { return p.Send(t.Context(), messages) == nil })
	eventually(t, "all results of the recreated topic are applied", func() bool { return len(boardLines(t, s)) == 540 })
}

func TestSessionsArePaced(t *testing.T) {
	c, fake := startFake(t)
	s, _ := newService(t, ranking.Options{})
	c.send(c.results(0, 1, 1)...)
	var healthy atomic.Bool
	fake.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if healthy.Load() {
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, requested := range r.(*kmsg.ListOffsetsRequest).Topics {
			topic := kmsg.ListOffsetsResponseTopic{Topic: requested.Topic}
			for _, p := range requested.Partitions {
				partition := kmsg.NewListOffsetsResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, kerr.UnknownServerError.Code
				topic.Partitions = append(topic.Partitions, partition)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	started := time.Now()
	m := c.join(s, consumer.Options{})
	eventually(t, "the consumer has joined 5 times", func() bool { return m.count("sessions_total") >= 5 })
	if took := time.Since(started); took < 1500*time.Millisecond {
		t.Errorf("the consumer joined 5 sessions within %v, want at least 1.5s, with waits between the sessions", took)
	}
	healthy.Store(true)
	eventually(t, "the result is applied", func() bool { return len(boardLines(t, s)) == 1 })
}
