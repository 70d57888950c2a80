package consumer_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/producer"
)

var updatesTopic = kafka.Topics{}.Updates()

type followedTopic struct {
	t       *testing.T
	brokers []string
	admin   sarama.ClusterAdmin
	got     chan string // match ids of the delivered updates
}

func follow(t *testing.T) *followedTopic {
	t.Helper()
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	f := &followedTopic{t: t, brokers: fake.ListenAddrs(), got: make(chan string, 1000)}
	if f.admin, err = sarama.NewClusterAdmin(f.brokers, kafka.Options{}.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.admin.Close() })
	f.createTopic()
	conf := kafka.Options{}.Config("test")
	conf.Metadata.RefreshFrequency = 50 * time.Millisecond
	follower, err := consumer.Follow(f.brokers, conf, kafka.Topics{}, slog.New(slog.NewTextHandler(t.Output(), nil)), func(u *pb.LeaderboardUpdate) error {
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

func (f *followedTopic) createTopic() {
	f.t.Helper()
	if err := f.admin.CreateTopic(updatesTopic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		f.t.Fatal(err)
	}
}

func (f *followedTopic) send(partition int32, matches ...string) {
	f.t.Helper()
	var messages []*sarama.ProducerMessage
	for _, match := range matches {
		value, err := proto.Marshal(&pb.LeaderboardUpdate{MatchId: match})
		if err != nil {
			f.t.Fatal(err)
		}
		messages = append(messages, &sarama.ProducerMessage{Topic: updatesTopic, Partition: partition, Value: sarama.ByteEncoder(value)})
	}
	conf := kafka.Options{}.Config("test")
	conf.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := producer.New(f.brokers, conf) // without the deleted topic in its cache
	if err != nil {
		f.t.Fatal(err)
	}
	defer p.Close()
	if err := p.Send(f.t.Context(), messages); err != nil {
		f.t.Fatal(err)
	}
}

func (f *followedTopic) wait(match string) bool {
	for deadline := time.After(time.Minute); ; {
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

func TestFollowerContinuesAtTheNewestUpdate(t *testing.T) {
	f := follow(t)
	before := make([]string, 1000) // the next offset, 1000, is not in the recreated topic
	before[len(before)-1] = "last"
	f.send(0, before...)
	if !f.wait("last") {
		t.Fatal("the last of 1000 updates was not delivered within a minute")
	}
	if err := f.admin.DeleteTopic(updatesTopic); err != nil {
		t.Fatal(err)
	}
	f.createTopic()
	sent := 0
	for deadline := time.Now().Add(time.Minute); len(f.got) == 0; sent++ {
		if time.Now().After(deadline) {
			t.Fatalf("none of the %d updates in the recreated topic was delivered within a minute", sent)
		}
		f.send(0, fmt.Sprint("n", sent))
		time.Sleep(50 * time.Millisecond)
	}
}

func TestFollowerFindsPartitions(t *testing.T) {
	f := follow(t)
	if err := f.admin.CreatePartitions(updatesTopic, 2, nil, false); err != nil {
		t.Fatal(err)
	}
	f.send(1, "m")
	if !f.wait("m") {
		t.Error("the update on partition 1, which was added, was not delivered within a minute")
	}
	f.send(0, "m0")
	if !f.wait("m0") {
		t.Error("the update on partition 0 was not delivered within a minute")
	}
}
