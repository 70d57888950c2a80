package producer

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/IBM/sarama"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// Follower reads the updates that consumers publish, from the moment that it
// began, on every partition. It keeps no position: whoever waits for an update
// that it missed is told that the result was accepted.
type Follower struct {
	consumer   sarama.Consumer
	partitions []sarama.PartitionConsumer
	done       sync.WaitGroup
}

// Follow begins to read updates and gives each to every one of deliver, one
// after another a partition. When it returns, no later update is missed.
func Follow(brokers []string, c *sarama.Config, t Topics, log *slog.Logger, deliver ...func(*pb.LeaderboardUpdate) error) (*Follower, error) {
	conf, topic := *c, t.Updates()
	conf.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(brokers, &conf)
	if err != nil {
		return nil, fmt.Errorf("producer: follow %s: %w", topic, unavailable(err))
	}
	f := &Follower{consumer: consumer}
	ids, err := consumer.Partitions(topic)
	if err != nil {
		return nil, fmt.Errorf("producer: follow %s: %w", topic, unavailable(joinClose(err, f)))
	}
	for _, id := range ids {
		p, err := consumer.ConsumePartition(topic, id, sarama.OffsetNewest)
		if err != nil {
			return nil, fmt.Errorf("producer: follow partition %d of %s: %w", id, topic, unavailable(joinClose(err, f)))
		}
		f.partitions = append(f.partitions, p)
		f.done.Go(func() {
			for err := range p.Errors() {
				log.Warn("updates are not read for now", "err", err)
			}
		})
		f.done.Go(func() {
			for m := range p.Messages() {
				u := &pb.LeaderboardUpdate{}
				if err := proto.Unmarshal(m.Value, u); err != nil {
					log.Warn("update not understood", "partition", m.Partition, "offset", m.Offset, "err", err)
					continue
				}
				for _, d := range deliver {
					if err := d(u); err != nil {
						log.Warn("update not delivered", "partition", m.Partition, "offset", m.Offset, "err", err)
					}
				}
			}
		})
	}
	return f, nil
}

func joinClose(err error, f *Follower) error {
	if cerr := f.Close(); cerr != nil {
		return fmt.Errorf("%w (and closing: %w)", err, cerr)
	}
	return err
}

// Close stops reading.
func (f *Follower) Close() error {
	for _, p := range f.partitions {
		p.AsyncClose()
	}
	f.done.Wait()
	return f.consumer.Close()
}
