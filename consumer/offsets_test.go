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
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
)

// A committed offset whose message has expired, and one that the log has not
// reached, are told of, and their partitions are read from the oldest message
// that there is. The others go on as if nothing were.
func TestOffsetsOutOfTheLog(t *testing.T) {
	t.Run("in process", func(t *testing.T) { offsetsOutOfTheLog(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { offsetsOutOfTheLog(t, startReal(t)) })
}

func offsetsOutOfTheLog(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	var want []string
	messages := c.results(0, 40, 40)
	c.send(messages...)
	const expired, beyond = 1, 2 // partitions
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
	eventually(t, "all that there is is applied", func() bool { return len(board(t, s)) >= len(want) })
	if diff := gocmp.Diff(want, board(t, s)); diff != "" {
		t.Error(diff)
	}
	if sessions, resets := m.count("sessions_total"), m.count("offset_resets_total"); sessions != 1 || resets != 2 {
		t.Errorf("%d sessions and %d resets, want 1 and 2", sessions, resets)
	}
	m.stop()
	for _, line := range []string{"partition=1 committed=1 oldest=3", "partition=2 committed=1000 oldest=0"} {
		if !bytes.Contains(log.Bytes(), []byte("level=ERROR")) || !bytes.Contains(log.Bytes(), []byte(line)) {
			t.Errorf("nothing says %q", line)
		}
	}
	next := c.join(s, consumer.Options{})
	eventually(t, "the next consumer has the partitions", func() bool { return next.count("partitions") == partitions })
	if resets := next.count("offset_resets_total"); resets != 0 {
		t.Errorf("%d resets again", resets)
	}
}

// A topic that is deleted and made again while it is read is read from its
// beginning.
func TestTopicMadeAgain(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	c.join(s, consumer.Options{})
	c.send(c.results(0, 40, 40)...)
	eventually(t, "all is committed", func() bool {
		all := int64(0)
		for _, offset := range c.committed() {
			all += offset
		}
		return all == 40
	})
	if err := c.admin.DeleteTopic(producer.Results); err != nil {
		t.Fatal(err)
	}
	if err := c.admin.CreateTopic(producer.Results, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(c.brokers, producer.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Send(t.Context(), []*sarama.ProducerMessage{message(points("ann", "m", 1))}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the result in the new topic is applied", func() bool { return slices.Contains(board(t, s), "ann 1") })
}

// A topic that is made again while it is read is read from its beginning also if
// there is a message at the offset that was reached, before that is noticed.
func TestTopicMadeAgainAndFilled(t *testing.T) {
	t.Run("in process", func(t *testing.T) { topicMadeAgainAndFilled(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { topicMadeAgainAndFilled(t, startReal(t)) })
}

func topicMadeAgainAndFilled(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	c.join(s, consumer.Options{})
	c.send(c.results(0, 40, 40)...)
	eventually(t, "all is applied", func() bool { return len(board(t, s)) == 40 })
	if err := c.admin.DeleteTopic(c.topics.Results()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic is made again", func() bool {
		return c.admin.CreateTopic(c.topics.Results(), &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false) == nil
	})
	p, err := producer.New(c.brokers, producer.Config("test")) // anew: it must not know the topic of before
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	more := c.results(40, 540, 540)
	eventually(t, "the new topic is filled", func() bool { return p.Send(t.Context(), more) == nil })
	eventually(t, "all of the new topic is applied", func() bool { return len(board(t, s)) == 540 })
}

// However often a session ends at once, the group is not joined again without a
// pause, which grows; and when it does not any more, all goes on.
func TestSessionsArePaced(t *testing.T) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	c := startOn(t, kafka.ListenAddrs(), producer.Topics{})
	s, _ := newService(t, ranking.Options{})
	c.send(c.results(0, 1, 1)...)
	var healthy atomic.Bool
	kafka.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		kafka.KeepControl()
		if healthy.Load() {
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, asked := range r.(*kmsg.ListOffsetsRequest).Topics {
			topic := kmsg.ListOffsetsResponseTopic{Topic: asked.Topic}
			for _, p := range asked.Partitions {
				partition := kmsg.NewListOffsetsResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, kerr.UnknownServerError.Code
				topic.Partitions = append(topic.Partitions, partition)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	began := time.Now()
	m := c.join(s, consumer.Options{})
	eventually(t, "the group was joined again and again", func() bool { return m.count("sessions_total") >= 5 })
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("5 sessions in %v", took)
	}
	healthy.Store(true)
	eventually(t, "the result is applied", func() bool { return len(board(t, s)) == 1 })
}
