// Package kafka contains what all Kafka clients of the service share: their configuration,
// the topics, the form of messages, and retries.
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

// Options are the settings of the connections to the brokers. The zero value has no TLS and
// no credentials.
type Options struct {
	// Mechanism is the SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. If Username
	// is empty, the client does not authenticate.
	Mechanism, Username, Password string
	// Dial connects to a broker with TLS, within a timeout. If it is nil, connections have
	// no TLS.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Rack is the rack of the client. Brokers may let consumers read from a replica there.
	Rack string
	// ConnectTimeout is the longest time to connect to a broker if Dial is nil. Default 5
	// s.
	ConnectTimeout time.Duration
	// Timeout is the longest wait for an answer of a broker. Default 30 s.
	Timeout time.Duration
}

// Config returns the configuration that all clients have in common.
//
// The murmur2 hash of a message's key determines the partition, as in Java clients and in
// librdkafka with murmur2_random. All producers therefore write the results of a user to
// the same partition.
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

// PartitionOf returns the partition, 0 to n-1, that producers with [Options.Config] choose
// for key.
func PartitionOf(key []byte, n int32) (int32, error) {
	return sarama.NewMurmur2Partitioner("").Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
}

// Unavailable wraps an error of the Kafka client in [leaderboard.ErrUnavailable]. If a
// retry cannot succeed, for example because a message is too large, it returns err
// unchanged.
func Unavailable(err error) error {
	for _, permanent := range []error{sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrInvalidTopic} {
		if errors.Is(err, permanent) {
			return err
		}
	}
	if _, ok := errors.AsType[sarama.ConfigurationError](err); ok { // for example, a message that is too large for the client
		return err
	}
	return fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, err)
}

// Retry calls f until f returns nil. The interval between two calls grows to about 10 s.
// After each failure, Retry calls notify, unless it is nil, with the error and the time
// until the next call. If ctx is done first, Retry returns its error.
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
