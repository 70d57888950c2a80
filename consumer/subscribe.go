package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Programs outside of this module use these names.
type (
	// Connection has the settings of the connections to the brokers.
	Connection = kafka.Options
	// Topics contains the names of the topics of one service.
	Topics = kafka.Topics
)

// Subscription names the updates that [Subscribe] reads.
type Subscription struct {
	Brokers    []string
	Connection Connection
	Topics     Topics
	// Group is the consumer group. Processes with the same group share the partitions. A new group begins
	// with the oldest update that Kafka keeps.
	Group string
	Log   *slog.Logger // nil logs nothing
}

// Subscribe calls deliver for every update message, until ctx is done. It then commits the offsets and
// returns nil. Calls for one user come one after another, in the order of the topic. Calls for different
// partitions are concurrent.
//
// An offset is committed only after deliver has returned nil for all messages before it. So after a
// failure or a restart, deliver may get some updates again, but loses none. If deliver returns an error,
// Subscribe retries from this update. While no broker answers, Subscribe retries too. Errors: an empty Group;
// a missing topic; others that a retry cannot fix.
func Subscribe(ctx context.Context, s Subscription, deliver func(context.Context, *pb.LeaderboardUpdate) error) error {
	if s.Group == "" {
		return errors.New("consumer: a subscription needs a group")
	}
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := s.Connection.Config(s.Group)
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	err := kafka.Retry(ctx, func() error {
		err := subscribeOnce(ctx, &s, c, subscriber{deliver: deliver, log: log})
		if errors.Is(err, kafka.ErrRejected) || errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return backoff.Permanent(err)
		}
		return err
	}, func(err error, wait time.Duration) { log.Warn("cannot read updates, retrying", "err", err, "in", wait) })
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// subscribeOnce returns an error unless ctx is done.
func subscribeOnce(ctx context.Context, s *Subscription, c *sarama.Config, h subscriber) error {
	h.failed = make(chan error, 1)
	return consumeTopics(ctx, s.Brokers, c, s.Group, []string{s.Topics.Updates()}, h, func() error {
		select {
		case err := <-h.failed:
			return err
		default: // a rebalance
			return nil
		}
	})
}

// consumeTopics consumes existing topics as a member of a group, until ctx is done or an attempt to
// consume fails. After each session, it calls ended, and returns its error.
func consumeTopics(ctx context.Context, brokers []string, c *sarama.Config, group string, topics []string, h sarama.ConsumerGroupHandler, ended func() error) (err error) {
	names := strings.Join(topics, ", ")
	client, err := sarama.NewClient(brokers, c)
	if err != nil {
		return fmt.Errorf("consumer: subscribe to %s: %w", names, kafka.ConnectError(brokers, c, err))
	}
	defer func() { _ = client.Close() }()
	for _, topic := range topics {
		if _, err := client.Partitions(topic); err != nil {
			return fmt.Errorf("consumer: subscribe to %s: %w", topic, kafka.Unavailable(err))
		}
	}
	member, err := sarama.NewConsumerGroupFromClient(group, client)
	if err != nil {
		return fmt.Errorf("consumer: subscribe to %s: %w", names, kafka.Unavailable(err))
	}
	// Close commits the marked offsets.
	defer func() { err = errors.Join(err, member.Close()) }()
	for ctx.Err() == nil {
		if err := member.Consume(ctx, topics, h); err != nil && ctx.Err() == nil {
			return fmt.Errorf("consumer: read %s: %w", names, kafka.Unavailable(err))
		}
		if err := ended(); err != nil {
			return err
		}
	}
	return nil
}

// subscriber implements [sarama.ConsumerGroupHandler].
type subscriber struct {
	deliver func(context.Context, *pb.LeaderboardUpdate) error
	log     *slog.Logger
	failed  chan error // has the first error of deliver in a session
}

// Setup does nothing.
func (subscriber) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup does nothing.
func (subscriber) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim delivers the updates of a partition. When it returns, sarama ends the session.
func (h subscriber) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			u := &pb.LeaderboardUpdate{}
			if err := proto.Unmarshal(m.Value, u); err != nil {
				h.log.Warn("cannot decode update; it is skipped", "partition", m.Partition, "offset", m.Offset, "err", err)
			} else if err := h.deliver(session.Context(), u); err != nil {
				select {
				case h.failed <- fmt.Errorf("consumer: deliver the update at offset %d of partition %d: %w", m.Offset, m.Partition, err):
				default:
				}
				return err
			}
			session.MarkMessage(m, "")
		case <-session.Context().Done():
			return nil
		}
	}
}
