// Package producer is the way into the log: it publishes match results to
// Kafka, and waits for word that they were applied.
package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/wire"
)

// The topics, but for the prefix of [Topics].
const (
	Results     = "match-results"
	DeadLetters = "match-results.dlq"
	Updates     = "leaderboard-updates"
)

// Topics name the topics of one service. The zero value is usable.
type Topics struct {
	// Prefix begins every name, so that several services share a Kafka. It has no dots.
	Prefix string
}

// Results is where match results come in. A region mirrors another's as that
// region's name, a dot and this.
func (t Topics) Results() string { return t.Prefix + Results }

// DeadLetters is where messages go that are no results.
func (t Topics) DeadLetters() string { return t.Prefix + DeadLetters }

// Updates is where consumers tell what became of results.
func (t Topics) Updates() string { return t.Prefix + Updates }

// ContentType is the header that tells the form of a message's value:
// [Protobuf] if it is absent, or [JSON].
const (
	ContentType = "content-type"
	Protobuf    = "application/x-protobuf"
	JSON        = "application/json"
)

// Config returns what every client of the log here has in common. Results are
// partitioned by the murmur2 hash of their key as Java clients and librdkafka's
// murmur2_random do, so that all producers put a user on one partition; a
// message is acknowledged by all in-sync replicas, and sent once.
func Config(clientID string) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = clientID
	c.Version = sarama.V2_8_0_0
	c.Producer.Partitioner = sarama.NewMurmur2Partitioner
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Producer.Return.Successes = true
	c.Producer.Return.Errors = true
	c.Producer.Retry.Max = 20
	c.Producer.Retry.Backoff = 100 * time.Millisecond
	c.Producer.MaxMessageBytes = 1 << 20
	c.Net.MaxOpenRequests = 1 // an idempotent producer's order depends on it
	c.Metadata.AllowAutoTopicCreation = false
	return c
}

// Producer publishes messages. It is safe for concurrent use.
type Producer struct {
	async sarama.AsyncProducer
	done  sync.WaitGroup
}

// New connects to the brokers.
func New(brokers []string, c *sarama.Config) (*Producer, error) {
	async, err := sarama.NewAsyncProducer(brokers, c)
	if err != nil {
		return nil, fmt.Errorf("producer: brokers %v: %w", brokers, unavailable(err))
	}
	p := &Producer{async: async}
	p.done.Go(func() {
		for m := range async.Successes() {
			m.Metadata.(chan error) <- nil
		}
	})
	p.done.Go(func() {
		for e := range async.Errors() {
			e.Msg.Metadata.(chan error) <- e.Err
		}
	})
	return p, nil
}

// Close sends what is under way and disconnects.
func (p *Producer) Close() error {
	p.async.AsyncClose()
	p.done.Wait()
	return nil
}

// Send publishes messages and returns once all are acknowledged. On an error
// some may have been: sending them again is for whoever reads them to bear.
func (p *Producer) Send(ctx context.Context, messages []*sarama.ProducerMessage) error {
	acks := make(chan error, len(messages))
	for i, m := range messages {
		m.Metadata = acks
		select {
		case p.async.Input() <- m:
		case <-ctx.Done():
			return fmt.Errorf("producer: %d of %d messages handed over: %w", i, len(messages), unavailable(ctx.Err()))
		}
	}
	var errs []error
	for range messages {
		select {
		case err := <-acks:
			errs = append(errs, err)
		case <-ctx.Done():
			return fmt.Errorf("producer: not acknowledged in time: %w", unavailable(ctx.Err()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("producer: %w", unavailable(err))
	}
	return nil
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, err) }

// message returns the message for a complete result of b.
func message(topic string, b *leaderboard.Board, r *leaderboard.MatchResult) (*sarama.ProducerMessage, error) {
	value, err := proto.Marshal(&pb.MatchResultRecord{
		BoardId: string(b.ID), Result: wire.FromResult(b, r), Retracted: r.Retracted,
		Season: string(r.Season), ReceivedAt: wire.Timestamp(r.ReceivedAt), Assigned: r.Assigned,
	})
	if err != nil {
		return nil, fmt.Errorf("producer: result %q: %w", r.Match, err)
	}
	return &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(r.User), Value: sarama.ByteEncoder(value),
		Headers: []sarama.RecordHeader{{Key: []byte(ContentType), Value: []byte(Protobuf)}},
	}, nil
}
