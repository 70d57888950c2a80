// Package consumer reads match results from Kafka and applies them through the ranking service. For
// each result, it publishes an update message with the outcome to the topic leaderboard-updates. A
// [Follower] reads these messages. A message that is not a valid result becomes a dead letter. A message
// with fetch set names a result of the game's own store: see fetcher.go.
//
// A consumer applies the messages of a partition in batches, and the results of one user in order.
// While it reports the outcomes of a batch, it applies the next batch.
//
// # When an offset is committed
//
// The consumer marks a message's offset for commit once three conditions hold for this message and
// all earlier messages of the partition:
//
//  1. The store has its result durably, or the message is not a valid result.
//  2. Kafka has acknowledged the update message, or the dead letter.
//  3. The commit includes the position of the rank index (see position.go).
//
// Otherwise the next owner of the partition reads the message again. Applying a message again
// changes nothing.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// service is the part of *ranking.Applier that the consumer needs.
type service interface {
	Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error)
	BoardSince(ctx context.Context, id leaderboard.BoardID, since time.Time) (leaderboard.Board, error)
	Complete(ctx context.Context, b *leaderboard.Board, r leaderboard.MatchResult) (leaderboard.MatchResult, error)
	Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error)
	RanksOf(ctx context.Context, s leaderboard.SeasonKey, keys []leaderboard.RankKey) ([]int64, error)
	KeysAt(ctx context.Context, s leaderboard.SeasonKey, positions []int64) ([]leaderboard.RankKey, error)
	Refresh(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error)
	Synced(seasons ...leaderboard.SeasonKey) bool
	CatchUp(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) (rest []leaderboard.UserID, dropped bool, err error)
	CatchUpAll(ctx context.Context) error
	Advance(ctx context.Context, positions []leaderboard.LogPosition, all bool) ([]leaderboard.Doubt, error)
	Reindex(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID, changedAt time.Time) error
	Repeat(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error
	Confirm(ctx context.Context, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) error
	Forget(ctx context.Context, key leaderboard.SeasonKey) error
}

// sender returns nil once Kafka has acknowledged all messages.
type sender interface {
	Send(ctx context.Context, messages []*sarama.ProducerMessage) error
}

// Consumer is one member of the consumer group. Create it with [New], and call Run once.
type Consumer struct {
	o       Options
	service service
	sender  sender
	conf    *sarama.Config
	client  sarama.Client
	group   sarama.ConsumerGroup
	metrics metrics

	bands         *lru.Cache[leaderboard.SeasonKey, bands] // the ends of each season's rank bands: see report.go
	deadLetterLog deadLetterLog
	batchLimit    atomic.Int64      // largest number of messages in one call of apply
	firstTopics   map[string]string // for each topic, the first id that this process knew
	fetcher       *fetcher          // nil without Options.Canonical
	joined        atomic.Bool
	unreachable   atomic.Bool
}

// New returns a consumer that applies results through s, and publishes through send. It does not
// connect. Errors: invalid options.
func New(o Options, s service, send sender) (*Consumer, error) {
	o = o.withDefaults()
	c := o.Connection.Config("leaderboard-consumer")
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.ResetInvalidOffsets = false // sarama would not log a reset; resetInvalidOffsets logs each
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Group.Session.Timeout = o.SessionTimeout
	c.Consumer.Group.Heartbeat.Interval = o.SessionTimeout / 4
	c.Consumer.Group.InstanceId = o.InstanceID
	// The range strategy assigns partition n of every topic to one member, so one process applies a
	// user's results from all regions.
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	c.Consumer.Return.Errors = true
	c.ChannelBufferSize = o.BatchResults
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	cache, err := lru.New[leaderboard.SeasonKey, bands](maxBands)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	con := &Consumer{o: o, service: s, sender: send, conf: c, metrics: newMetrics(o.Registerer), bands: cache, firstTopics: map[string]string{}}
	con.deadLetterLog.log = o.Log
	con.batchLimit.Store(int64(o.BatchResults))
	if o.Canonical != nil {
		con.fetcher = newFetcher(con)
	}
	return con, nil
}

// Joined reports whether the consumer has joined its group at least once. It may have no partition.
func (c *Consumer) Joined() bool { return c.joined.Load() }

// Unreachable reports whether Run has tried to connect and has not reached a broker yet.
func (c *Consumer) Unreachable() bool { return c.unreachable.Load() }

// Run consumes until ctx is done. Then it finishes the batches under way, commits, and leaves the
// group. It retries after failures.
func (c *Consumer) Run(ctx context.Context) error {
	var logging, fetching sync.WaitGroup
	if c.fetcher != nil {
		fetching.Go(func() { c.fetcher.run(ctx) })
		defer fetching.Wait()
	}
	intervals := backoff.NewExponentialBackOff()
	intervals.MaxInterval = 10 * time.Second
	for ctx.Err() == nil {
		_, _ = backoff.Retry(ctx, func() (struct{}, error) {
			started := time.Now()
			err := c.consume(ctx, &logging)
			if time.Since(started) > 2*intervals.MaxInterval {
				intervals.Reset()
			}
			return struct{}{}, err
		}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, wait time.Duration) {
			c.o.Log.Warn("not consuming, retrying", "err", err, "in", wait)
		}))
	}
	if c.group == nil {
		return nil
	}
	err := errors.Join(c.group.Close(), c.client.Close())
	logging.Wait()
	return err
}

func (c *Consumer) consume(ctx context.Context, logging *sync.WaitGroup) error {
	if err := c.connect(logging); err != nil {
		return err
	}
	topics, err := c.topics()
	if err != nil {
		return err
	}
	return c.session(ctx, topics)
}

func (c *Consumer) connect(logging *sync.WaitGroup) error {
	if c.group != nil {
		return nil
	}
	client, err := sarama.NewClient(c.o.Brokers, c.conf)
	c.unreachable.Store(err != nil)
	if err != nil {
		return fmt.Errorf("consumer: %w", kafka.ConnectError(c.o.Brokers, c.conf, err))
	}
	group, err := sarama.NewConsumerGroupFromClient(c.o.Group, client)
	if err != nil {
		return errors.Join(fmt.Errorf("consumer: group %q: %w", c.o.Group, err), client.Close())
	}
	c.client, c.group = client, group
	logging.Go(func() {
		for err := range group.Errors() {
			c.o.Log.Warn("error of the consumer group", "group", c.o.Group, "err", err)
		}
	})
	return nil
}

// topics returns, by name, the ids of the results topic and its mirrors (copies from other
// regions). A recreated topic has a new id. Old brokers report no id.
func (c *Consumer) topics() (map[string]string, error) {
	if err := c.client.RefreshMetadata(); err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(c.client) // closing it would close the client
	if err != nil {
		return nil, err
	}
	all, err := admin.DescribeTopics(nil)
	if err != nil {
		return nil, err
	}
	topics := map[string]string{}
	for _, t := range all {
		if t.Name == c.o.Topics.Results() || c.o.isMirror(t.Name) {
			topics[t.Name] = ""
			if t.Uuid != (sarama.Uuid{}) {
				topics[t.Name] = fmt.Sprintf("%x", t.Uuid[:])
			}
		}
	}
	if _, ok := topics[c.o.Topics.Results()]; !ok {
		return nil, fmt.Errorf("consumer: topic %q does not exist; create it with `leaderboard topics`", c.o.Topics.Results())
	}
	return topics, nil
}
