// Package producer writes match results to Kafka, and waits until consumers report their outcomes.
package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Producer publishes messages. It is safe for concurrent use.
type Producer struct {
	stop       context.CancelFunc
	connecting sync.WaitGroup
	answering  sync.WaitGroup

	mu    sync.Mutex
	async sarama.AsyncProducer // nil until connected
	err   error                // the last failure to connect
}

// New connects to the brokers. If no broker answers, the producer retries in the background. Until
// it is connected, Send fails. Errors: [kafka.ErrRejected], and others that a retry cannot fix.
func New(brokers []string, c *sarama.Config) (*Producer, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &Producer{stop: stop}
	connect := func() error { return p.connect(brokers, c) }
	if err := connect(); errors.Is(err, leaderboard.ErrUnavailable) && !errors.Is(err, kafka.ErrRejected) {
		p.connecting.Go(func() { _ = kafka.Retry(ctx, connect, nil) })
	} else if err != nil {
		stop()
		return nil, err
	}
	return p, nil
}

func (p *Producer) connect(brokers []string, c *sarama.Config) error {
	async, err := sarama.NewAsyncProducer(brokers, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = fmt.Errorf("producer: %w", kafka.ConnectError(brokers, c, err))
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

func (p *Producer) connection() (sarama.AsyncProducer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.async == nil {
		return nil, p.err
	}
	return p.async, nil
}

// Close waits until all sent messages are acknowledged or fail, and disconnects.
func (p *Producer) Close() error {
	p.stop()
	p.connecting.Wait()
	if async, err := p.connection(); err == nil {
		async.AsyncClose()
	}
	p.answering.Wait()
	return nil
}

// Send publishes messages, waits until Kafka has acknowledged all of them, and sets their Partition
// and Offset. After an error, some messages may be published, and a retry may publish them again.
// Errors: [leaderboard.ErrUnavailable] if a retry may succeed.
func (p *Producer) Send(ctx context.Context, messages []*sarama.ProducerMessage) error {
	async, err := p.connection()
	if err != nil {
		return err
	}
	acks := make(chan error, len(messages))
	// After an error, the caller may retry while the client still uses the copies.
	copies := make([]sarama.ProducerMessage, len(messages))
	for i, m := range messages {
		copies[i] = sarama.ProducerMessage{Topic: m.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.Timestamp, Metadata: acks}
		select {
		case async.Input() <- &copies[i]:
		case <-ctx.Done():
			return fmt.Errorf("producer: only %d of %d messages sent in time: %w", i, len(messages), kafka.Unavailable(ctx.Err()))
		}
	}
	var errs []error
	for range messages {
		select {
		case err := <-acks:
			errs = append(errs, err)
		case <-ctx.Done():
			return fmt.Errorf("producer: messages not acknowledged in time: %w", kafka.Unavailable(ctx.Err()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("producer: %w", kafka.Unavailable(err))
	}
	for i, m := range messages {
		m.Partition, m.Offset = copies[i].Partition, copies[i].Offset
	}
	return nil
}
