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
	"github.com/cenkalti/backoff/v5"
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
	c.Metadata.Timeout = 10 * time.Second // for which a start waits at most for brokers that are silent
	c.Net.DialTimeout = 5 * time.Second
	c.Metadata.RefreshFrequency = 30 * time.Second // in which partitions that are added are found
	return c
}

// Producer publishes messages. It is safe for concurrent use.
type Producer struct {
	stop       context.CancelFunc // of connecting
	connecting sync.WaitGroup
	answering  sync.WaitGroup

	mu    sync.Mutex
	async sarama.AsyncProducer // nil until it is connected
	err   error                // why it is not
}

// New connects to the brokers. If none answers it goes on trying until Close, and
// meanwhile Send fails. It returns an error that no trying mends.
func New(brokers []string, c *sarama.Config) (*Producer, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &Producer{stop: stop}
	connect := func() error { return p.connect(brokers, c) }
	if err := connect(); errors.Is(err, leaderboard.ErrUnavailable) {
		p.connecting.Go(func() { _ = persist(ctx, connect, nil) }) // Send tells of the error
	} else if err != nil {
		stop()
		return nil, err
	}
	return p, nil
}

// persist calls f until it returns nil, or ctx is done.
func persist(ctx context.Context, f func() error, failed func(error, time.Duration)) error {
	pause := backoff.NewExponentialBackOff()
	pause.MaxInterval = 10 * time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if err := ctx.Err(); err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, f()
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0), backoff.WithNotify(failed))
	return err
}

func (p *Producer) connect(brokers []string, c *sarama.Config) error {
	async, err := sarama.NewAsyncProducer(brokers, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = fmt.Errorf("producer: brokers %v: %w", brokers, unavailable(err))
		return p.err
	}
	p.async = async
	p.answering.Go(func() {
		for m := range async.Successes() {
			m.Metadata.(chan error) <- nil
		}
	})
	p.answering.Go(func() {
		for e := range async.Errors() {
			e.Msg.Metadata.(chan error) <- e.Err
		}
	})
	return nil
}

// connected returns the connection, or why there is none.
func (p *Producer) connected() (sarama.AsyncProducer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.async == nil {
		return nil, p.err
	}
	return p.async, nil
}

// Close sends what is under way and disconnects.
func (p *Producer) Close() error {
	p.stop()
	p.connecting.Wait()
	if async, err := p.connected(); err == nil {
		async.AsyncClose()
	}
	p.answering.Wait()
	return nil
}

// Send publishes messages and returns once all are acknowledged, and have their
// Partition and Offset. On an error some may have been: sending them again is for
// whoever reads them to bear. The error is [leaderboard.ErrUnavailable] unless
// that would be in vain, as with a message that is too large.
func (p *Producer) Send(ctx context.Context, messages []*sarama.ProducerMessage) error {
	async, err := p.connected()
	if err != nil {
		return err
	}
	acks := make(chan error, len(messages))
	// Copies: after an error some are still under way, while the messages are sent again.
	sent := make([]sarama.ProducerMessage, len(messages))
	for i, m := range messages {
		sent[i] = sarama.ProducerMessage{Topic: m.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.Timestamp, Metadata: acks}
		select {
		case async.Input() <- &sent[i]:
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
	for i, m := range messages {
		m.Partition, m.Offset = sent[i].Partition, sent[i].Offset
	}
	return nil
}

// unavailable says of an error of Kafka's that the operation may be tried again,
// but for those that no waiting mends.
func unavailable(err error) error {
	for _, final := range []error{sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrInvalidTopic} {
		if errors.Is(err, final) {
			return err
		}
	}
	if _, ok := errors.AsType[sarama.ConfigurationError](err); ok { // also of a message that is too large
		return err
	}
	return fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, err)
}

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
