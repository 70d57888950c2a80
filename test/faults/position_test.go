package faults

import (
	"context"
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// While Redis hangs, results are applied, and the group's offsets reach the end of the log. Then
// the consumer is killed, so that no process knows what Redis lacks. When Redis answers again,
// another consumer takes over. It applies nothing again, and makes every rank equal the recount.
func TestConsumerKilledWhileRedisHangs(t *testing.T) {
	const boardCount, users = 8, 400
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	d := deployment.New(t, deployment.Options{Redis: redis.Addrs()})
	api, consumer := d.Serve(t, "--roles=api"), d.Serve(t, "--roles=consumer")
	boards := make([]string, boardCount)
	for i := range boards {
		boards[i] = api.Board(t, "position", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}})
	}
	// checkBoards waits until each user of each board has a score of n and a rank.
	checkBoards := func(n int64) {
		t.Helper()
		for _, id := range boards {
			deployment.Eventually(t, func(ctx context.Context) error {
				got, err := readPage(ctx, api.Client, &board{id: id}, "")
				if err != nil || got.Degraded || len(got.Standings) != users/boardCount {
					return fmt.Errorf("board %s: %d lines, degraded %v, error %w", id, len(got.Standings), got.Degraded, err)
				}
				for _, line := range got.Standings {
					if line.Score != n || line.Rank == nil || *line.Rank != 1 {
						return fmt.Errorf("board %s: line %v, want a score of %d and rank 1", id, line, n)
					}
				}
				return nil
			})
		}
	}
	burst(t, api.Client, users, boards, "first")
	waitForApplied(t, consumer, users)
	checkBoards(1)
	must(t, redis.Servers[0].Pause())
	burst(t, api.Client, users, boards, "without Redis")
	waitForApplied(t, consumer, 2*users)
	deployment.Eventually(t, func(ctx context.Context) error {
		lag, err := consumer.Metric(ctx, "leaderboard_consumer_lag_messages")
		if err != nil {
			return err
		}
		behind, err := consumer.Metric(ctx, "leaderboard_consumer_index_lag_messages")
		if err == nil && (lag != 0 || behind != users) {
			err = fmt.Errorf("%v messages are not committed and the index is %v behind, want 0 and %d", lag, behind, users)
		}
		return err
	})
	must(t, consumer.Kill())
	must(t, redis.Servers[0].Resume())
	next := d.Serve(t, "--roles=consumer")
	checkBoards(2)
	applied, err := next.Metric(t.Context(), "leaderboard_consumer_results_total")
	must(t, err)
	t.Logf("%d results were applied while Redis hung; the next consumer applied %v of them again", users, applied)
	if applied != 0 {
		t.Errorf("the next consumer applied %v results again, want 0", applied)
	}
}
