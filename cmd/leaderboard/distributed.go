package main

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

// clientID is the client name that the program gives to Redis and Kafka.
const clientID = "leaderboard"

// openDistributed connects to Cassandra, Redis and Kafka. A submit is written to
// Kafka, and a consumer of this process or of another one applies it. Kafka may be
// down: submits fail until Kafka is available, and reads do not need it.
func (s *server) openDistributed(ctx context.Context) error {
	c := s.config
	store, err := cql.Open(ctx, cqlOptions(&c.Cassandra))
	if err != nil {
		return err
	}
	s.store = store
	s.closeLater(store.Close)
	index, err := redis.Open(ctx, redis.Options{
		Redis: &goredis.UniversalOptions{
			Addrs: c.Redis.Addresses, MasterName: c.Redis.MasterName, Username: c.Redis.Username, Password: string(c.Redis.Password),
			ClientName: clientID,
		},
		Shards: c.Redis.Shards, Prefix: c.Redis.Prefix,
	})
	if err != nil {
		return err
	}
	s.closeLater(index.Close)

	topics := topicsOf(&c.Kafka)
	p, err := producer.New(c.Kafka.Brokers, kafka.Config(clientID))
	if err != nil {
		return err
	}
	s.closeLater(p.Close)
	options := ranking.Options{Log: s.log}
	var submitter *producer.Submitter
	if c.Has(config.RoleAPI) {
		submitter = producer.NewSubmitter(p, topics, c.Kafka.ApplyWait)
		options.Results = submitter
	}
	s.service = ranking.New(store, index, options)
	s.closeLater(s.finishWrites)
	if submitter != nil {
		if err := s.followUpdates(submitter); err != nil {
			return err
		}
	}
	if !c.Has(config.RoleConsumer) {
		return nil
	}
	s.consumer, err = consumer.New(consumer.Options{
		Brokers: c.Kafka.Brokers, Topics: topics, Region: c.Region, Group: c.ConsumerGroup(), InstanceID: c.Kafka.InstanceID,
		SessionTimeout: c.Kafka.SessionTimeout, BatchResults: c.Kafka.Batch,
		Log: s.log, Registerer: s.metrics,
	}, s.service.Applier, p)
	return err
}

// followUpdates follows the topic leaderboard-updates. It passes the outcomes of
// submitted results to submitter, and notifies the watchers of changed seasons.
func (s *server) followUpdates(submitter *producer.Submitter) error {
	c, topics := s.config, topicsOf(&s.config.Kafka)
	follower, err := consumer.Follow(c.Kafka.Brokers, kafka.Config(clientID), topics, s.log, submitter.Deliver, func(u *pb.LeaderboardUpdate) error {
		s.service.Notify(leaderboard.SeasonKey{Board: leaderboard.BoardID(u.GetBoardId()), Season: leaderboard.SeasonID(u.GetSeason())})
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w; if a topic is missing, create it with `leaderboard topics`", err)
	}
	s.closeLater(follower.Close)
	return nil
}

func cqlOptions(c *config.Cassandra) cql.Options {
	return cql.Options{
		Hosts: c.Hosts, DataCenter: c.DataCenter, Keyspace: c.Keyspace,
		Username: c.Username, Password: string(c.Password), Buckets: c.Buckets,
	}
}

func topicsOf(c *config.Kafka) kafka.Topics { return kafka.Topics{Prefix: c.TopicPrefix} }
