package faults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

const batchResults = 500

// burst submits n results, and does not wait until they are applied. Result i is of user i on
// boards[i%len(boards)].
func burst(t *testing.T, api *deployment.Client, n int, boards []string, match string) {
	t.Helper()
	for from := 0; from < n; from += batchResults {
		var results []map[string]any
		for i := from; i < min(from+batchResults, n); i++ {
			results = append(results, map[string]any{"board_id": boards[i%len(boards)], "user_id": fmt.Sprint("user-", i), "match_id": match, "points": 1})
		}
		body := map[string]any{"results": results, "no_wait": true}
		deployment.Eventually(t, func(ctx context.Context) error { // a result that arrives twice counts once
			var answer struct {
				Outcomes []struct {
					Status string `json:"status"`
				} `json:"outcomes"`
			}
			status, err := api.Call(ctx, http.MethodPost, "/v1/results:batch", body, &answer)
			if err == nil && (status != http.StatusAccepted || len(answer.Outcomes) != len(results)) {
				err = fmt.Errorf("results:batch: status %d with %d outcomes, want 202 with %d", status, len(answer.Outcomes), len(results))
			}
			return err
		})
	}
}

func waitForApplied(t *testing.T, consumer *deployment.Node, n int) time.Duration {
	t.Helper()
	started := time.Now()
	deployment.Eventually(t, func(ctx context.Context) error {
		got, err := consumer.Metric(ctx, "leaderboard_consumer_results_total")
		if err == nil && int(got) < n {
			err = fmt.Errorf("%v results are applied, want %d", got, n)
		}
		return err
	})
	return time.Since(started)
}

// Servers that have just started are slow. The consumer must not retry a batch while an attempt to
// apply it still runs.
func TestBurstOfFirstResultsOnColdServers(t *testing.T) {
	needs.Slow(t, "faults")
	const users = 12_000
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(1), Logf: t.Logf})
	d := deployment.New(t, deployment.Options{Cassandra: cassandra.Addrs(), Partitions: 12})
	api := d.Serve(t, "--roles=api")
	boards := []string{api.Board(t, "burst", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}})}
	burst(t, api.Client, users, boards, "m")
	consumer := d.Serve(t, "--roles=consumer")
	took := waitForApplied(t, consumer, users)
	metric := func(name string) float64 {
		v, err := consumer.Metric(t.Context(), name)
		must(t, err)
		return v
	}
	applied, retries := metric(`leaderboard_consumer_results_total{status="APPLIED"}`), metric("leaderboard_consumer_retries_total")
	t.Logf("%d results: %v have the status APPLIED, after %v and %v retries of batches", users, applied, took.Round(time.Second), retries)
	if applied != users {
		t.Errorf("%v results have the status APPLIED, want %d", applied, users)
	}
	if retries != 0 {
		t.Errorf("the consumer retried batches %v times, want 0", retries)
	}
	deployment.Eventually(t, func(ctx context.Context) error {
		var answer struct {
			Data struct {
				Total    int  `json:"total"`
				Degraded bool `json:"degraded"`
			} `json:"data"`
		}
		_, err := api.Call(ctx, http.MethodGet, "/v1/boards/"+boards[0]+"/scores", nil, &answer)
		if got := answer.Data; err == nil && (got.Total != users || got.Degraded) {
			err = fmt.Errorf("the board has %d users, want %d; degraded is %v, want false", got.Total, users, got.Degraded)
		}
		return err
	})
}

// While Redis hangs, at most one read of each reader takes more than two seconds. The consumer does
// not wait for Redis again for each board.
func TestRedisHangs(t *testing.T) {
	needs.Slow(t, "faults")
	const boardCount, results = 320, 1600
	redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	d := deployment.New(t, deployment.Options{Redis: redis.Addrs()})
	api, consumer := d.Serve(t, "--roles=api"), d.Serve(t, "--roles=consumer")
	boards := make([]string, boardCount)
	for i := range boards {
		boards[i] = api.Board(t, "hang", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}})
	}
	burst(t, api.Client, results, boards, "first")
	waitForApplied(t, consumer, results)
	// The burst while Redis hangs adds no users either, so the two times are comparable.
	burst(t, api.Client, results, boards, "with Redis")
	before := waitForApplied(t, consumer, 2*results)
	read := func(ctx context.Context, i int) (page, error) {
		return readPage(ctx, api.Client, &board{id: boards[i]}, "")
	}
	for i := range boards { // makes the API node cache all boards, and load their seasons into Redis
		deployment.Eventually(t, func(ctx context.Context) error {
			got, err := read(ctx, i)
			if err != nil || got.Degraded || len(got.Standings) != results/boardCount {
				return fmt.Errorf("board %d: %d lines, degraded %v, error %v; want %d lines, not degraded", i, len(got.Standings), got.Degraded, err, results/boardCount)
			}
			for _, line := range got.Standings {
				if line.Score != 2 || line.Rank == nil || *line.Rank != 1 {
					return fmt.Errorf("board %d: line %v, want a score of 2 and rank 1", i, line)
				}
			}
			return nil
		})
	}
	must(t, redis.Servers[0].Pause())
	slow := readersOf(t, func(ctx context.Context, i int) error {
		_, err := read(ctx, i%boardCount)
		return err
	})
	burst(t, api.Client, results, boards, "without Redis")
	during := waitForApplied(t, consumer, 3*results)
	waited, reads := slow()
	t.Logf("%d results of %d boards were applied in %v with Redis, and in %v while Redis hung; of %d reads, %d waited for more than 2 s", results, boardCount, before.Round(time.Millisecond), during.Round(time.Millisecond), reads, waited)
	// An update of the index times out after 5 s, and the consumer makes 32 updates at a time. If
	// each of the 320 boards waited for a timeout, the updates would take 50 s.
	if limit := 3*before + 15*time.Second; during > limit {
		t.Errorf("results were applied in %v while Redis hung, want at most %v", during, limit)
	}
	if waited > readers {
		t.Errorf("%d of %d reads waited for more than 2 s, want at most %d: one for each reader", waited, reads, readers)
	}
	must(t, redis.Servers[0].Resume())
}

const readers = 20

// readersOf starts readers, which call the function read. The function stop ends the readers. Its
// result slow counts the reads of more than two seconds.
func readersOf(t *testing.T, read func(ctx context.Context, i int) error) (stop func() (slow, all int)) {
	var mu sync.Mutex
	var slow, all int
	var group sync.WaitGroup
	ending := make(chan struct{})
	for reader := range readers {
		group.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for i := reader; ; i += readers {
				started := time.Now()
				err := read(t.Context(), i)
				mu.Lock()
				if all++; time.Since(started) > 2*time.Second {
					slow++
				}
				mu.Unlock()
				if err != nil {
					t.Errorf("read while Redis hangs: %v", err)
				}
				select {
				case <-ending:
					return
				case <-tick.C:
				}
			}
		})
	}
	return func() (int, int) {
		close(ending)
		group.Wait()
		return slow, all
	}
}
