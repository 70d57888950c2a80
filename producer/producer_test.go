package producer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/producer"
)

// A message that is too large is refused for good: its sender must not wait for
// a server to come back.
func TestTooLargeIsNotUnavailable(t *testing.T) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	send := func(limit, n int) error {
		conf := producer.Config("test")
		conf.Producer.MaxMessageBytes = limit
		p, err := producer.New(kafka.ListenAddrs(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return p.Send(t.Context(), []*sarama.ProducerMessage{{Topic: "t", Value: sarama.StringEncoder(strings.Repeat("x", n))}})
	}
	if err := send(1<<20, 2<<20); err == nil || errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Send of what the client refuses: %v", err)
	}
	if err := send(4<<20, 2<<20); !errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Send of what the broker refuses: %v", err)
	}
	if err := send(1<<20, 1000); err != nil {
		t.Errorf("Send of what is not too large: %v", err)
	}
}

// Messages that were not acknowledged in time are sent again, as they are, while
// the first try is still under way. That must not mix up the acknowledgements of
// both: whoever sends afterwards would wait for ever.
func TestSendAgain(t *testing.T) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	p, err := producer.New(kafka.ListenAddrs(), producer.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	answered := make(chan struct{})
	kafka.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		kafka.KeepControl()
		kafka.SleepControl(func() { <-answered })
		return nil, nil, false
	})
	var messages []*sarama.ProducerMessage
	for i := range 10 {
		messages = append(messages, &sarama.ProducerMessage{Topic: "t", Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := p.Send(ctx, messages); !errors.Is(err, leaderboard.ErrUnavailable) {
			t.Errorf("Send without an answer: %v", err)
		}
		cancel()
	}
	close(answered)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Send(ctx, messages); err != nil {
		t.Errorf("Send again: %v", err)
	}
	if err := p.Send(ctx, []*sarama.ProducerMessage{{Topic: "t", Value: sarama.StringEncoder("another")}}); err != nil {
		t.Errorf("Send of another: %v", err)
	}
}

// followed is a topic of updates and a follower of it.
type followed struct {
	t       *testing.T
	brokers []string
	admin   sarama.ClusterAdmin
	got     chan string // matches
}

func follow(t *testing.T) *followed {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	f := &followed{t: t, brokers: kafka.ListenAddrs(), got: make(chan string, 1000)}
	if f.admin, err = sarama.NewClusterAdmin(f.brokers, producer.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.admin.Close() })
	f.make()
	conf := producer.Config("test")
	conf.Metadata.RefreshFrequency = 50 * time.Millisecond
	follower, err := producer.Follow(f.brokers, conf, producer.Topics{}, slog.New(slog.NewTextHandler(t.Output(), nil)), func(u *pb.LeaderboardUpdate) error {
		f.got <- u.GetMatchId()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := follower.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// make makes the topic, of one partition.
func (f *followed) make() {
	f.t.Helper()
	if err := f.admin.CreateTopic(producer.Updates, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		f.t.Fatal(err)
	}
}

// send publishes updates on a partition.
func (f *followed) send(partition int32, matches ...string) {
	f.t.Helper()
	var messages []*sarama.ProducerMessage
	for _, match := range matches {
		value, err := proto.Marshal(&pb.LeaderboardUpdate{MatchId: match})
		if err != nil {
			f.t.Fatal(err)
		}
		messages = append(messages, &sarama.ProducerMessage{Topic: producer.Updates, Partition: partition, Value: sarama.ByteEncoder(value)})
	}
	conf := producer.Config("test")
	conf.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := producer.New(f.brokers, conf) // anew: it must not know the topic of before
	if err != nil {
		f.t.Fatal(err)
	}
	defer p.Close()
	if err := p.Send(f.t.Context(), messages); err != nil {
		f.t.Fatal(err)
	}
}

// wait waits for an update.
func (f *followed) wait(match string) bool {
	for deadline := time.After(10 * time.Second); ; {
		select {
		case got := <-f.got:
			if got == match {
				return true
			}
		case <-deadline:
			return false
		}
	}
}

// A follower whose place is no longer in the log reads on from the newest update.
func TestFollowerReadsOn(t *testing.T) {
	f := follow(t)
	before := make([]string, 1000) // more than the new topic will have
	before[len(before)-1] = "last"
	f.send(0, before...)
	if !f.wait("last") {
		t.Fatal("the updates did not come")
	}
	if err := f.admin.DeleteTopic(producer.Updates); err != nil {
		t.Fatal(err)
	}
	f.make()
	sent := 0
	for deadline := time.Now().Add(10 * time.Second); len(f.got) == 0; sent++ {
		if time.Now().After(deadline) {
			t.Fatalf("none of %d updates came", sent)
		}
		f.send(0, fmt.Sprint("n", sent))
		time.Sleep(50 * time.Millisecond)
	}
}

// A follower reads partitions that are added, all that is on them.
func TestFollowerFindsPartitions(t *testing.T) {
	f := follow(t)
	if err := f.admin.CreatePartitions(producer.Updates, 2, nil, false); err != nil {
		t.Fatal(err)
	}
	f.send(1, "m")
	if !f.wait("m") {
		t.Error("the update on the added partition did not come")
	}
	f.send(0, "m0")
	if !f.wait("m0") {
		t.Error("an update on the first partition did not come")
	}
}
