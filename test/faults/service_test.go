package faults

import (
	"testing"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// service is the engine with two processes of each role.
type service struct {
	*deployment.Deployment
	apis []*deployment.Node
	// constant comes back under its name after it was killed; the group gives
	// the partitions of the other away when it has not heard of it for a while.
	constant, other *deployment.Node
	seed            uint64
}

func newService(t *testing.T, o deployment.Options) *service {
	t.Helper()
	s := &service{Deployment: deployment.New(t, o), seed: seed.New(t)}
	s.apis = []*deployment.Node{s.Serve(t, "--roles=api"), s.Serve(t, "--roles=api")}
	s.constant = s.Serve(t, "--roles=consumer", "--kafka-instance-id=constant")
	s.other = s.Serve(t, "--roles=consumer")
	return s
}

// TestKills kills and pauses the service's own processes, and kills Redis.
func TestKills(t *testing.T) {
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	s := newService(t, deployment.Options{Redis: redis.Addrs()})
	t.Run("consumers", func(t *testing.T) { consumersKilled(t, s) })
	t.Run("paused consumer", func(t *testing.T) { consumerPaused(t, s) })
	t.Run("Redis", func(t *testing.T) { redisLost(t, s, redis.Servers[0]) })
}

// ledger makes boards for a test, with results of its own.
func (s *service) ledger(t *testing.T, name string) *ledger {
	t.Helper()
	return newLedger(t, s.apis[0], name, s.seed)
}

// load begins to send results of a ledger to both API nodes and into the log.
func (s *service) load(t *testing.T, l *ledger) *load {
	t.Helper()
	return start(t, s.Deployment, l, s.apis...)
}
