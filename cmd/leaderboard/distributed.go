package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/canonical"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

const clientID = "leaderboard"

// openDistributed connects to Cassandra, Redis and Kafka. It waits for Cassandra only: the index and the
// clients of Kafka reconnect by themselves.
func (s *server) openDistributed(ctx context.Context) error {
	c := s.config
	options, err := cqlOptions(&c.Cassandra)
	if err != nil {
		return err
	}
	driver, err := redisOptions(&c.Redis)
	if err != nil {
		return err
	}
	if s.kafka, err = kafkaOptions(&c.Kafka); err != nil {
		return err
	}
	options.Registerer = s.metrics
	options.Traces = s.traces != nil
	s.warnOfPasswords(ctx)
	var store *cql.Store
	if err := s.retryStart(ctx, "connect to Cassandra", func() (err error) {
		store, err = cql.Open(ctx, options)
		return err
	}); err != nil {
		return err
	}
	s.store = observe.Store(engine.New(store), s.metrics)
	s.closeLater(store.Close)
	index, err := redis.Open(ctx, redis.Options{
		Redis: driver, Shards: c.Redis.Shards, Prefix: c.Redis.Prefix, Registerer: s.metrics, Log: s.log, Traces: s.traces != nil,
	})
	if err != nil {
		return err
	}
	s.closeLater(index.Close)

	return s.openService(ctx, observe.Index(index, s.metrics))
}

// openService connects to Kafka and opens the service. With the API role, the service writes
// results to Kafka. With the consumer role, a consumer applies them.
func (s *server) openService(ctx context.Context, index leaderboard.Index) error {
	c, topics := s.config, topicsOf(&s.config.Kafka)
	p, err := producer.New(c.Kafka.Brokers, s.kafka.Config(clientID))
	if err != nil {
		return err
	}
	s.closeLater(p.Close)
	s.deadLetters = &deadLetters{kafka: &c.Kafka, producer: p}
	options := ranking.Options{Log: s.log, Registerer: s.metrics, Sealed: s.archives.noteSeal, Journal: producer.NewJournal(p, topics)}
	var submitter *producer.Submitter
	if c.Has(config.RoleAPI) {
		submitter = producer.NewSubmitter(p, topics, c.Kafka.ApplyWait)
		options.Results = submitter
	}
	s.service = ranking.New(s.store, index, options)
	s.closeLater(s.finishWrites)
	if submitter != nil {
		if err := s.retryStart(ctx, "follow the updates in Kafka", func() error { return s.followUpdates(submitter) }); err != nil {
			return err
		}
	}
	if !c.Has(config.RoleConsumer) {
		return nil
	}
	game, err := s.openCanonical()
	if err != nil {
		return err
	}
	s.consumer, err = consumer.New(consumer.Options{
		Brokers: c.Kafka.Brokers, Connection: s.kafka, Topics: topics, Region: c.Region, Group: c.ConsumerGroup(), InstanceID: c.Kafka.InstanceID,
		SessionTimeout: c.Kafka.SessionTimeout, BatchResults: c.Kafka.Batch, Canonical: game,
		Log: s.log, Registerer: s.metrics, TracerProvider: s.traces,
	}, s.service.Applier, p)
	return err
}

// openCanonical returns the settings of the game's own store, or nil if it has none.
func (s *server) openCanonical() (*consumer.Canonical, error) {
	c := &s.config.Canonical
	if c.URL == "" {
		return nil, nil
	}
	store, err := newCanonical(c)
	if err != nil {
		return nil, err
	}
	s.closeLater(store.Close)
	return &consumer.Canonical{Store: store, Concurrency: c.Concurrency, RetryInterval: c.RetryInterval, NotFoundFor: c.NotFoundFor, RetryFor: c.RetryFor}, nil
}

func newCanonical(c *config.Canonical) (*canonical.Client, error) {
	return canonical.New(canonical.Options{
		URL: c.Address(), Keys: c.Keys(), Timeout: c.Timeout,
		TLS: certs.Client{Setting: "canonical.tls", Enabled: "canonical.url", CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key, ServerName: c.TLS.ServerName},
	})
}

// followUpdates follows the update messages in Kafka. It passes the outcomes of results to submitter,
// and the changed seasons to the service. If a message states that the index lacks an entry, the
// service repairs the index.
func (s *server) followUpdates(submitter *producer.Submitter) error {
	c, topics := s.config, topicsOf(&s.config.Kafka)
	follower, err := consumer.Follow(c.Kafka.Brokers, s.kafka.Config(clientID), topics, s.log, func(u *pb.LeaderboardUpdate) error {
		season := leaderboard.SeasonKey{Board: leaderboard.BoardID(u.GetBoardId()), Season: leaderboard.SeasonID(u.GetSeason())}
		if u.GetIndexBehind() {
			s.service.RepairIndex(season, leaderboard.UserID(u.GetUserId()))
		}
		s.service.Notify(season)
		return nil
	}, submitter.Deliver)
	if err != nil {
		if errors.Is(err, kafka.ErrRejected) {
			return err
		}
		return fmt.Errorf("%w; if a topic is missing, create it with `leaderboard topics`", err)
	}
	s.closeLater(follower.Close)
	return nil
}
