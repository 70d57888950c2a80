package faults

import (
	"testing"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

type service struct {
	*deployment.Deployment
	apis []*deployment.Node
	// The consumer static has a group instance id, so it gets its partitions back when it restarts.
	// The consumer dynamic has none. When its session times out, its partitions go to other members.
	static, dynamic *deployment.Node
	seed            uint64
}

func newService(t *testing.T, o deployment.Options, flags ...string) *service {
	t.Helper()
	s := &service{Deployment: deployment.New(t, o), seed: seed.New(t)}
	serve := func(more ...string) *deployment.Node { return s.Serve(t, append(more, flags...)...) }
	s.apis = []*deployment.Node{serve("--roles=api"), serve("--roles=api")}
	s.static = serve("--roles=consumer", "--kafka-instance-id=static")
	s.dynamic = serve("--roles=consumer")
	return s
}

// The subtests share one service, because its start takes long.
func TestConsumersAndRedisKilled(t *testing.T) {
	needs.Slow(t, "faults")
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	s := newService(t, deployment.Options{Redis: redis.Addrs()})
	t.Run("consumers killed", func(t *testing.T) { testConsumersKilled(t, s) })
	t.Run("consumer paused", func(t *testing.T) { testConsumerPaused(t, s) })
	t.Run("Redis killed and flushed", func(t *testing.T) { testRedisLost(t, s, redis.Servers[0]) })
}

func (s *service) ledger(t *testing.T, name string) *ledger {
	t.Helper()
	return newLedger(t, s.apis[0], name, s.seed)
}

func (s *service) load(t *testing.T, l *ledger) *load {
	t.Helper()
	var clients []*deployment.Client
	for _, api := range s.apis {
		clients = append(clients, api.Client)
	}
	return startLoad(t, s.Deployment, l, clients...)
}
