package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Follower reads the update messages that are sent after its start, also on partitions that are
// created later. It commits no offset.
type Follower struct {
	consumer sarama.Consumer // nil until a broker answers
	topic    string
	log      *slog.Logger
	targets  []func(*pb.LeaderboardUpdate) error
	ctx      context.Context // done after Close
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// Follow calls every function in deliver for each update message. Calls are concurrent for different
// partitions. While no broker answers, Follow retries in the background. Errors: a missing topic;
// other errors that a retry cannot fix.
func Follow(brokers []string, c *sarama.Config, t kafka.Topics, log *slog.Logger, deliver ...func(*pb.LeaderboardUpdate) error) (*Follower, error) {
	conf := *c
	conf.Consumer.Return.Errors = true
	f := &Follower{topic: t.Updates(), log: log, targets: deliver}
	f.ctx, f.stop = context.WithCancel(context.Background())
	start := func() error { return f.start(brokers, &conf) }
	switch err := start(); {
	case err == nil:
	case errors.Is(err, leaderboard.ErrUnavailable) && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) && !errors.Is(err, kafka.ErrRejected):
		f.running.Go(func() { _ = kafka.Retry(f.ctx, start, f.logRetry) })
	default:
		f.stop()
		return nil, err
	}
	return f, nil
}

func (f *Follower) logRetry(err error, wait time.Duration) {
	f.log.Warn("cannot read updates, retrying", "err", err, "in", wait)
}

func (f *Follower) start(brokers []string, conf *sarama.Config) error {
	consumer, err := sarama.NewConsumer(brokers, conf)
	if err != nil {
		return fmt.Errorf("consumer: follow %s: %w", f.topic, kafka.ConnectError(brokers, conf, err))
	}
	ids, err := consumer.Partitions(f.topic)
	var readers []sarama.PartitionConsumer
	for _, id := range ids {
		p, perr := consumer.ConsumePartition(f.topic, id, sarama.OffsetNewest)
		if err = perr; err != nil {
			break
		}
		readers = append(readers, p)
	}
	if err != nil {
		errs := []error{err}
		for _, p := range readers {
			errs = append(errs, p.Close())
		}
		return fmt.Errorf("consumer: follow %s: %w", f.topic, kafka.Unavailable(errors.Join(append(errs, consumer.Close())...)))
	}
	f.consumer = consumer
	for i, p := range readers {
		f.running.Go(func() { f.read(ids[i], p) })
	}
	f.running.Go(func() { f.findPartitions(len(ids), conf.Metadata.RefreshFrequency) })
	return nil
}

// findPartitions looks for new partitions, and reads them from their oldest message. n is the number
// of known partitions. Kafka numbers partitions in order of creation.
func (f *Follower) findPartitions(n int, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.ctx.Done():
			return
		}
		ids, err := f.consumer.Partitions(f.topic)
		if err != nil {
			continue // read logs connection errors
		}
		for ; n < len(ids); n++ {
			id := int32(n)
			f.running.Go(func() {
				if p, err := f.open(id, sarama.OffsetOldest); err == nil {
					f.read(id, p)
				}
			})
		}
	}
}

// open starts to read a partition, and retries until Close.
func (f *Follower) open(id int32, offset int64) (p sarama.PartitionConsumer, err error) {
	err = kafka.Retry(f.ctx, func() (err error) {
		p, err = f.consumer.ConsumePartition(f.topic, id, offset)
		return err
	}, f.logRetry)
	return p, err
}

// read delivers the messages of p until Close. If the next offset is not in the topic, read skips
// all messages up to the newest.
func (f *Follower) read(id int32, p sarama.PartitionConsumer) {
	for {
		stop := context.AfterFunc(f.ctx, p.AsyncClose)
		var errs sync.WaitGroup
		errs.Go(func() {
			for err := range p.Errors() {
				f.log.Warn("cannot read updates", "err", err)
			}
		})
		for m := range p.Messages() {
			f.deliverMessage(m)
		}
		errs.Wait()
		stop()
		var err error
		if p, err = f.open(id, sarama.OffsetNewest); err != nil {
			return
		}
	}
}

func (f *Follower) deliverMessage(m *sarama.ConsumerMessage) {
	u := &pb.LeaderboardUpdate{}
	if err := proto.Unmarshal(m.Value, u); err != nil {
		f.log.Warn("cannot decode update", "partition", m.Partition, "offset", m.Offset, "err", err)
		return
	}
	for _, deliver := range f.targets {
		if err := deliver(u); err != nil {
			f.log.Warn("update not delivered", "partition", m.Partition, "offset", m.Offset, "err", err)
		}
	}
}

// Close stops reading and disconnects.
func (f *Follower) Close() error {
	f.stop()
	f.running.Wait()
	if f.consumer == nil {
		return nil
	}
	return f.consumer.Close()
}
