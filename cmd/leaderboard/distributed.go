package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

// clientID is what the program calls itself to its servers.
const clientID = "leaderboard"

// openDistributed connects to Cassandra, Redis and Kafka. Submits go into the
// log, and a consumer, of this process or another, applies them. Kafka may be
// down: submits fail until it is there, and reads do not need it.
func (n *node) openDistributed(ctx context.Context) error {
	c := n.config
	store, err := cql.Open(ctx, cqlOptions(&c.Cassandra))
	if err != nil {
		return err
	}
	n.store = store
	n.closeLater(store.Close)
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
	n.closeLater(index.Close)

	topics := topicsOf(&c.Kafka)
	p, err := producer.New(c.Kafka.Brokers, producer.Config(clientID))
	if err != nil {
		return err
	}
	n.closeLater(p.Close)
	applying := ranking.New(store, index, ranking.Options{Log: n.log})
	n.closeLater(func() error { applying.Close(); return nil })
	n.service = applying
	if c.Has(config.RoleAPI) {
		if err := n.submitToLog(store, index, p); err != nil {
			return err
		}
	}
	if !c.Has(config.RoleConsumer) {
		return nil
	}
	n.consumer, err = consumer.New(consumer.Options{
		Brokers: c.Kafka.Brokers, Topics: topics, Region: c.Region, Group: c.ConsumerGroup(), InstanceID: c.Kafka.InstanceID,
		SessionTimeout: c.Kafka.SessionTimeout, BatchResults: c.Kafka.Batch,
		Log: n.log, Registerer: n.metrics,
	}, applying, p)
	return err
}

// submitToLog makes the service one that submits into the log, and learns from
// the updates what became of results.
func (n *node) submitToLog(store leaderboard.Store, index leaderboard.Index, p *producer.Producer) error {
	c, topics := n.config, topicsOf(&n.config.Kafka)
	submitter := producer.NewSubmitter(p, topics, c.Kafka.ApplyWait)
	n.service = ranking.New(store, index, ranking.Options{Log: n.log, Submit: submitter.Submit, Accept: submitter.Accept})
	n.closeLater(n.finishWrites)
	follower, err := producer.Follow(c.Kafka.Brokers, producer.Config(clientID), topics, n.log, submitter.Deliver, func(u *pb.LeaderboardUpdate) error {
		n.service.Notify(leaderboard.Scope{Board: leaderboard.BoardID(u.GetBoardId()), Season: leaderboard.SeasonID(u.GetSeason())})
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w; leaderboard topics makes the topics", err)
	}
	n.closeLater(follower.Close)
	return nil
}

func cqlOptions(c *config.Cassandra) cql.Options {
	return cql.Options{
		Hosts: c.Hosts, DataCenter: c.DataCenter, Keyspace: c.Keyspace,
		Username: c.Username, Password: string(c.Password), Buckets: c.Buckets,
	}
}

func topicsOf(c *config.Kafka) producer.Topics { return producer.Topics{Prefix: c.TopicPrefix} }

// serveProbes answers probes and metrics only, as a node does that is no API.
func (n *node) serveProbes(ctx context.Context) error {
	mux := http.NewServeMux()
	api.HandleProbes(mux, n.ready, n.metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	err := ignoreClosed(server.Serve(n.rest))
	<-ctx.Done()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
