// Package kafka holds what all Kafka clients of the service share: the client
// configuration, the topics, the form of messages, and the rule which errors may be
// retried.
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

// Options are the settings of the connections to the brokers. The zero value is
// usable: it means connections without TLS and without credentials.
type Options struct {
	// Mechanism is how Username and Password authenticate the client: PLAIN,
	// SCRAM-SHA-256 or SCRAM-SHA-512. It has no effect without a Username.
	Mechanism, Username, Password string
	// Dial connects to a broker with TLS, and bounds how long that takes. If it is nil,
	// connections are without TLS.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Rack is the rack of the client. If it is set, brokers may let consumers read from
	// a replica of the same rack.
	Rack string
	// ConnectTimeout bounds the connection to a broker without TLS. Default 5 s.
	ConnectTimeout time.Duration
	// Timeout bounds the wait for an answer of a broker. Default 30 s.
	Timeout time.Duration
}

// Config returns the configuration of a client without TLS and without credentials. See
// [Options.Config].
func Config(clientID string) *sarama.Config { return Options{}.Config(clientID) }

// Config returns the client configuration that all clients start from.
//
// Messages are partitioned by the murmur2 hash of their key, as in Java clients and
// in librdkafka with murmur2_random. So every producer puts a user on the same
// partition. All in-sync replicas acknowledge a message, and the idempotent
// producer writes it once.
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
	c.Metadata.Timeout = 10 * time.Second          // bounds how long startup waits for brokers that do not answer
	c.Metadata.RefreshFrequency = 30 * time.Second // bounds how long a new partition stays unnoticed
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

// PartitionOf returns the partition, out of n, that producers with [Config] choose
// for key.
func PartitionOf(key []byte, n int32) (int32, error) {
	return sarama.NewMurmur2Partitioner("").Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
}

// Unavailable wraps an error of the Kafka client in [leaderboard.ErrUnavailable].
// If a retry cannot succeed, for example because a message is too large, Unavailable
// returns err unchanged.
func Unavailable(err error) error {
	for _, final := range []error{sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrInvalidTopic} {
		if errors.Is(err, final) {
			return err
		}
	}
	if _, ok := errors.AsType[sarama.ConfigurationError](err); ok { // also: a message larger than the client allows
		return err
	}
	return fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, err)
}

// Retry calls f until f returns nil. The intervals between the calls grow to about
// 10 s. After each failure, Retry calls notify with the error and the time until the
// next call. notify may be nil. After ctx is done, Retry does not call f.
// Errors: the error of ctx, if ctx is done before f succeeds.
func Retry(ctx context.Context, f func() error, notify func(err error, in time.Duration)) error {
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
