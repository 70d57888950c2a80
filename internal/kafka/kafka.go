// Package kafka contains what all Kafka clients of the service share.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"

	"github.com/open-leaderboard/leaderboard"
)

// Options are the settings of the connections to the brokers.
type Options struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. If Username is empty, the client
	// does not authenticate.
	Mechanism, Username, Password string
	// Dial connects to a broker with TLS, within a timeout. If Dial is nil, connections have
	// no TLS.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	Rack string
	// ConnectTimeout is 5 s by default. It has no effect if Dial is set.
	ConnectTimeout time.Duration
	// Timeout limits the wait for an answer, 30 s by default.
	Timeout time.Duration
}

// Config returns the configuration that all clients have in common. The murmur2 hash of a
// message's key determines the partition, as in Java clients and in librdkafka with
// murmur2_random.
func (o Options) Config(clientID string) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = clientID
	c.RackID = o.Rack
	c.Version = sarama.V2_8_0_0
	c.Producer.Partitioner = sarama.NewMurmur2Partitioner
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Producer.Return.Successes = true
	c.Producer.Return.Errors = true
	c.Producer.Retry.Max = 20
	c.Producer.Retry.Backoff = 100 * time.Millisecond
	c.Producer.MaxMessageBytes = 1 << 20
	c.Consumer.IsolationLevel = sarama.ReadCommitted // results of an aborted transaction do not count
	c.Net.MaxOpenRequests = 1                        // an idempotent producer needs this to keep messages in order
	c.Net.DialTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	c.Net.ReadTimeout = cmp.Or(o.Timeout, 30*time.Second)
	c.Net.WriteTimeout = c.Net.ReadTimeout
	c.Metadata.AllowAutoTopicCreation = false
	c.Metadata.Timeout = 10 * time.Second          // the longest wait at startup for brokers that do not answer
	c.Metadata.RefreshFrequency = 30 * time.Second // the longest time until a new partition is noticed
	if o.Dial != nil {
		c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, dialer(o.Dial)
	}
	if o.Username != "" {
		c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, o.Username, o.Password
		c.Net.SASL.Mechanism = sarama.SASLMechanism(o.Mechanism)
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: o.Mechanism} }
	}
	return c
}

// PartitionOf returns the partition, 0 to n-1, that producers choose for key.
func PartitionOf(key []byte, n int32) (int32, error) {
	return sarama.NewMurmur2Partitioner("").Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
}

// Unavailable wraps an error of the Kafka client in [leaderboard.ErrUnavailable], unless a
// retry cannot succeed.
func Unavailable(err error) error {
	for _, permanent := range []error{sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrInvalidTopic} {
		if errors.Is(err, permanent) {
			return err
		}
	}
	if _, ok := errors.AsType[sarama.ConfigurationError](err); ok { // such as a message that is too large
		return err
	}
	return fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, err)
}

// Retry calls f until f returns nil, at intervals that grow to about 10 s. After each
// failure, Retry calls notify with the time until the next call of f. notify may be nil. If
// ctx is done first, Retry returns the error of ctx.
func Retry(ctx context.Context, f func() error, notify func(err error, wait time.Duration)) error {
	intervals := backoff.NewExponentialBackOff()
	intervals.MaxInterval = 10 * time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if err := ctx.Err(); err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, f()
	}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0), backoff.WithNotify(notify))
	return err
}
