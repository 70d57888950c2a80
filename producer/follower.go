package producer

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
)

// Follower reads the updates that consumers publish, from the moment that it
// began, on every partition, also those that are added. It keeps no position:
// whoever waits for an update that it missed is told that the result was accepted.
type Follower struct {
	consumer sarama.Consumer // nil until a broker answered
	topic    string
	log      *slog.Logger
	deliver  []func(*pb.LeaderboardUpdate) error
	ctx      context.Context // until Close
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// Follow begins to read updates and gives each to every one of deliver, one
// after another a partition. When it returns, no later update is missed, as long
// as they can be read before they expire. But where no broker answers it returns
// too, and begins when one does. It returns an error that no trying mends, and
// where there is no topic.
func Follow(brokers []string, c *sarama.Config, t Topics, log *slog.Logger, deliver ...func(*pb.LeaderboardUpdate) error) (*Follower, error) {
	conf := *c
	conf.Consumer.Return.Errors = true
	f := &Follower{topic: t.Updates(), log: log, deliver: deliver}
	f.ctx, f.stop = context.WithCancel(context.Background())
	begin := func() error { return f.begin(brokers, &conf) }
	switch err := begin(); {
	case err == nil:
	case errors.Is(err, leaderboard.ErrUnavailable) && !errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		f.done.Go(func() { _ = persist(f.ctx, begin, f.notRead) })
	default:
		f.stop()
		return nil, err
	}
	return f, nil
}

// notRead tells that updates are not read, and for how long.
func (f *Follower) notRead(err error, in time.Duration) {
	f.log.Warn("updates are not read for now", "err", err, "in", in)
}

// begin begins to read every partition that there is.
func (f *Follower) begin(brokers []string, conf *sarama.Config) error {
	consumer, err := sarama.NewConsumer(brokers, conf)
	if err != nil {
		return fmt.Errorf("producer: follow %s: %w", f.topic, unavailable(err))
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
		return fmt.Errorf("producer: follow %s: %w", f.topic, unavailable(errors.Join(append(errs, consumer.Close())...)))
	}
	f.consumer = consumer
	for i, p := range readers {
		f.done.Go(func() { f.read(ids[i], p) })
	}
	f.done.Go(func() { f.findPartitions(len(ids), conf.Metadata.RefreshFrequency) })
	return nil
}

// findPartitions reads the partitions that are added to the first n, from their
// beginning. They have their numbers in order.
func (f *Follower) findPartitions(n int, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.ctx.Done():
			return
		}
		ids, err := f.consumer.Partitions(f.topic)
		if err != nil {
			continue // those who read it tell
		}
		for ; n < len(ids); n++ {
			id := int32(n)
			f.done.Go(func() {
				if p, err := f.open(id, sarama.OffsetOldest); err == nil {
					f.read(id, p)
				}
			})
		}
	}
}

// open begins to read a partition as soon as it can be. It returns an error only
// after Close.
func (f *Follower) open(id int32, offset int64) (p sarama.PartitionConsumer, err error) {
	err = persist(f.ctx, func() (err error) {
		p, err = f.consumer.ConsumePartition(f.topic, id, offset)
		return err
	}, f.notRead)
	return p, err
}

// read delivers what p brings, until Close. When p ends before, because its
// place is no longer in the log, it goes on from the newest update.
func (f *Follower) read(id int32, p sarama.PartitionConsumer) {
	for {
		closed := context.AfterFunc(f.ctx, p.AsyncClose)
		var errs sync.WaitGroup
		errs.Go(func() {
			for err := range p.Errors() {
				f.log.Warn("updates are not read for now", "err", err)
			}
		})
		for m := range p.Messages() {
			f.give(m)
		}
		errs.Wait()
		closed()
		var err error
		if p, err = f.open(id, sarama.OffsetNewest); err != nil {
			return
		}
	}
}

func (f *Follower) give(m *sarama.ConsumerMessage) {
	u := &pb.LeaderboardUpdate{}
	if err := proto.Unmarshal(m.Value, u); err != nil {
		f.log.Warn("update not understood", "partition", m.Partition, "offset", m.Offset, "err", err)
		return
	}
	for _, d := range f.deliver {
		if err := d(u); err != nil {
			f.log.Warn("update not delivered", "partition", m.Partition, "offset", m.Offset, "err", err)
		}
	}
}

// Close stops reading.
func (f *Follower) Close() error {
	f.stop()
	f.done.Wait()
	if f.consumer == nil {
		return nil
	}
	return f.consumer.Close()
}
