package faults

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// For each board, the Redis Cluster master with shard 0 of the board's season is killed under load.
// The replica that takes over lacks the last updates. Ranks return and are right, and no season is
// filled again.
func TestRedisMastersKilled(t *testing.T) {
	needs.Slow(t, "faults")
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) { redisMastersKilled(t, shards) })
	}
}

func redisMastersKilled(t *testing.T, shards int) {
	servers := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	s := newService(t, deployment.Options{Redis: servers.Addrs()}, fmt.Sprint("--redis-shards=", shards))
	ledger := s.ledger(t, "failover")
	load := s.load(t, ledger)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs()})
	defer client.Close()
	load.waitForMore(t, 200)
	load.waitForDegraded(t, false)
	for _, b := range ledger.boards {
		control := fmt.Sprintf("%s{%s/all/0}", s.RedisPrefix, url.PathEscape(b.id)) // the control hash of shard 0: see cache/redis/lua/base.lua
		before := liveGeneration(t, client, control)
		if n, err := client.HGet(t.Context(), control, "S").Int(); n != shards || err != nil {
			t.Fatalf("%s: the season has %d shards, error %v; want %d", b.id, n, err, shards)
		}
		master, replica := rolesOf(t, client, servers, control)
		load.waitForMore(t, 50)

		// Pause the replica, and close its connection. Otherwise its socket buffers the next
		// updates.
		must(t, replica.Pause())
		node := redis.NewClient(&redis.Options{Addr: master.Addr})
		must(t, node.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
		must(t, node.Close())
		load.waitForMore(t, 20)
		killed := time.Now()
		must(t, master.Kill())
		must(t, replica.Resume())
		deployment.Eventually(t, func(ctx context.Context) error {
			return client.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error {
				if m.Options().Addr == master.Addr {
					return errors.New("no replica has been promoted yet")
				}
				return m.Ping(ctx).Err()
			})
		})
		promoted := time.Now()
		load.waitForDegraded(t, false)
		t.Logf("%s: the replica became master after %v, and all answers had ranks %v later", b.id, promoted.Sub(killed).Round(time.Millisecond), time.Since(promoted).Round(time.Millisecond))
		if after := liveGeneration(t, client, control); after != before {
			t.Errorf("%s: the season was filled again: its generation is %s, and was %s", b.id, after, before)
		}
		must(t, master.Start(t.Context()))
		load.waitForMore(t, 50)
	}
	load.stop()
	check(t, ledger, s.apis...)
}

// liveGeneration returns the name of the generation that readers use.
func liveGeneration(t *testing.T, client redis.UniversalClient, control string) (name string) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) (err error) {
		name, err = client.HGet(ctx, control, "live").Result()
		return err
	})
	return name
}

// rolesOf returns the master of a key and the master's replica.
func rolesOf(t *testing.T, client redis.UniversalClient, servers *cluster.Cluster, key string) (master, replica *cluster.Server) {
	t.Helper()
	byAddr := map[string]*cluster.Server{}
	for _, s := range servers.Servers {
		byAddr[s.Addr] = s
	}
	deployment.Eventually(t, func(ctx context.Context) error {
		slot, err := client.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			return err
		}
		slots, err := client.ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		for _, r := range slots {
			if int64(r.Start) > slot || slot > int64(r.End) || len(r.Nodes) != 2 {
				continue
			}
			master, replica = byAddr[r.Nodes[0].Addr], byAddr[r.Nodes[1].Addr]
			info, err := redisInfo(ctx, replica.Addr)
			if err == nil && !strings.Contains(info, "master_link_status:up") {
				err = errors.New("the replica is not connected to its master")
			}
			return err
		}
		return fmt.Errorf("slot %d has no master with a replica", slot)
	})
	return master, replica
}

func redisInfo(ctx context.Context, addr string) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	return client.Info(ctx, "replication").Result()
}
