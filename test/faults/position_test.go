package faults

import (
	"context"
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// indexOutage is a deployment whose consumer applies results while Redis hangs.
type indexOutage struct {
	t        *testing.T
	d        *deployment.Deployment
	redis    *cluster.Cluster
	api      *deployment.Node
	consumer *deployment.Node
	boards   []string
	matches  int // of each user so far
}

const (
	outageBoards = 8
	outageUsers  = 400 // each on one board
)

// startIndexOutage returns when the consumer group has committed all offsets, and the index's
// position is outageUsers messages behind.
func startIndexOutage(t *testing.T) *indexOutage {
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	d := deployment.New(t, deployment.Options{Redis: redis.Addrs()})
	o := &indexOutage{t: t, d: d, redis: redis, api: d.Serve(t, "--roles=api"), consumer: d.Serve(t, "--roles=consumer")}
	for range outageBoards {
		o.boards = append(o.boards, o.api.Board(t, "position", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}}))
	}
	o.submit()
	waitForApplied(t, o.consumer, outageUsers)
	o.checkBoards()
	must(t, redis.Servers[0].Pause())
	o.submit()
	waitForApplied(t, o.consumer, 2*outageUsers)
	deployment.Eventually(t, func(ctx context.Context) error {
		lag, err := o.consumer.Metric(ctx, "leaderboard_consumer_lag_messages")
		if err != nil {
			return err
		}
		behind, err := o.consumer.Metric(ctx, "leaderboard_consumer_index_lag_messages")
		if err == nil && (lag != 0 || behind != outageUsers) {
			err = fmt.Errorf("%v messages are not committed, want 0; the index is %v messages behind, want %d", lag, behind, outageUsers)
		}
		return err
	})
	return o
}

func (o *indexOutage) submit() {
	o.t.Helper()
	o.matches++
	burst(o.t, o.api.Client, outageUsers, o.boards, fmt.Sprint("match ", o.matches))
}

func (o *indexOutage) checkBoards() {
	o.t.Helper()
	for _, id := range o.boards {
		deployment.Eventually(o.t, func(ctx context.Context) error {
			got, err := readPage(ctx, o.api.Client, &board{id: id}, "")
			if err != nil || got.Degraded || len(got.Standings) != outageUsers/outageBoards {
				return fmt.Errorf("board %s: %d lines, degraded %v, error %v; want %d lines, not degraded", id, len(got.Standings), got.Degraded, err, outageUsers/outageBoards)
			}
			for _, line := range got.Standings {
				if line.Score != int64(o.matches) || line.Rank == nil || *line.Rank != 1 {
					return fmt.Errorf("board %s: line %v, want a score of %d and rank 1", id, line, o.matches)
				}
			}
			return nil
		})
	}
}

// The killed consumer has committed the offsets of results whose updates Redis lacks. When Redis
// answers again, another consumer corrects every rank, and applies no result a second time.
func TestConsumerKilledWhileRedisHangs(t *testing.T) {
	needs.Slow(t, "faults")
	o := startIndexOutage(t)
	must(t, o.consumer.Kill())
	must(t, o.redis.Servers[0].Resume())
	o.takeOver()
}

func (o *indexOutage) takeOver() *deployment.Node {
	o.t.Helper()
	next := o.d.Serve(o.t, "--roles=consumer")
	o.checkBoards()
	applied, err := next.Metric(o.t.Context(), "leaderboard_consumer_results_total")
	must(o.t, err)
	o.t.Logf("%d results were applied while Redis hung; the next consumer applied %v of them again", outageUsers, applied)
	if applied != 0 {
		o.t.Errorf("the next consumer applied %v results again, want 0", applied)
	}
	return next
}

// The first consumer is paused. After Redis answers again, a second consumer takes over. The first
// consumer resumes with outdated state. When the second consumer is killed, the first consumer takes
// over.
func TestConsumerPausedWhileRedisHangs(t *testing.T) {
	needs.Slow(t, "faults")
	o := startIndexOutage(t)
	must(t, o.consumer.Pause())
	must(t, o.redis.Servers[0].Resume())
	next := o.takeOver()
	o.submit()
	waitForApplied(t, next, outageUsers)
	must(t, o.consumer.Resume())
	o.checkBoards()
	o.submit()
	o.checkBoards()
	must(t, next.Kill())
	o.submit()
	o.checkBoards()
	deployment.Eventually(t, func(ctx context.Context) error {
		behind, err := o.consumer.Metric(ctx, "leaderboard_consumer_index_lag_messages")
		if err == nil && behind != 0 {
			err = fmt.Errorf("the index is %v messages behind, want 0", behind)
		}
		return err
	})
}
