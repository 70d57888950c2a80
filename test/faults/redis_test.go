package faults

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// Redis is killed and restarts empty. Later it is flushed. While Redis is down, answers have no
// ranks.
func testRedisLost(t *testing.T, s *service, server *cluster.Server) {
	ledger := s.ledger(t, "redis")
	load := s.load(t, ledger)
	load.waitForMore(t, 100)
	must(t, server.Kill())
	load.waitForDegraded(t, true)
	load.waitForMore(t, 50)
	must(t, server.Start(t.Context()))
	load.waitForDegraded(t, false)
	load.waitForMore(t, 100)

	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	must(t, client.FlushAll(t.Context()).Err())
	load.waitForMore(t, 100)
	load.stop()
	check(t, ledger, s.apis...)
}

func (l *load) waitForDegraded(t *testing.T, want bool) {
	t.Helper()
	for _, api := range l.apis {
		deployment.Eventually(t, func(ctx context.Context) error {
			for _, b := range l.ledger.boards {
				p, err := readPage(ctx, api, b, "")
				if err != nil {
					return err
				}
				if p.Degraded != want {
					return fmt.Errorf("board %s: the answer's degraded field is %v, want %v", b.id, p.Degraded, want)
				}
			}
			return nil
		})
	}
}
