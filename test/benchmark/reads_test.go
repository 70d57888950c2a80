package benchmark

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// BenchmarkReads asks a node of the distributed engine over REST. 50 callers each have one
// question in flight. It reports the processor time of the node and of Redis per question. The
// floor is the probe /healthz.
// LEADERBOARD_BENCH_USERS is the number of users, by default 100,000. They are in the index only,
// because no question reads the store.
func BenchmarkReads(b *testing.B) {
	d := deployment.New(b, deployment.Options{})
	node := d.Serve(b, "--roles=api")
	board := node.Board(b, "reads", map[string]any{"policy": "BEST", "order": "HIGHER_FIRST"})
	n := benchUsers(b)
	fillIndex(b, d, board, n)
	server := goredis.NewClient(&goredis.Options{Addr: d.Redis[0]})
	b.Cleanup(func() { _ = server.Close() })
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: readers}}
	path := node.URL + "/v1/boards/" + board + "/scores"
	user := func() string { return fmt.Sprintf("/user-%011d", rand.IntN(n)) }
	for _, q := range []struct {
		name string
		url  func() string
	}{
		{"floor", func() string { return node.URL + "/healthz" }},
		{"rank", func() string { return path + user() + "?neighbors=0" }},
		{"neighbors", func() string { return path + user() }},
		{"top10", func() string { return path }},
	} {
		b.Run(q.name, func(b *testing.B) {
			deployment.Eventually(b, func(ctx context.Context) error { return read(ctx, client, node.Key, q.url()) })
			readAll(b, client, node.Key, q.url) // opens the connections
			failed := 0
			var nodeTimes, serverTimes, sums []float64
			for b.Loop() {
				beganNode, beganServer := nodeSeconds(b, node), redisSeconds(b, server)
				failed += readAll(b, client, node.Key, q.url)
				spentNode := (nodeSeconds(b, node) - beganNode) / (readers * readsEach) * 1e6
				spentServer := (redisSeconds(b, server) - beganServer) / (readers * readsEach) * 1e6
				nodeTimes, serverTimes, sums = append(nodeTimes, spentNode), append(serverTimes, spentServer), append(sums, spentNode+spentServer)
			}
			if failed > b.N*readers*readsEach/100 {
				b.Errorf("%d of %d questions failed, want at most 1 %%", failed, b.N*readers*readsEach)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(middle(nodeTimes), "µs-node")
			b.ReportMetric(middle(serverTimes), "µs-redis")
			b.ReportMetric(middle(sums), "µs")
			b.ReportMetric(slices.Min(sums), "µs-least")
		})
	}
}

const (
	readers   = 50
	readsEach = 400 // questions of each reader in one measurement
)

// fillIndex fills the index of a board with n users.
func fillIndex(b *testing.B, d *deployment.Deployment, board string, n int) {
	x, err := redis.Open(b.Context(), redis.Options{Redis: &goredis.UniversalOptions{Addrs: d.Redis}, Prefix: d.RedisPrefix})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	}()
	key := leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: "all"}
	rules := &leaderboard.Board{ID: key.Board, Order: leaderboard.HigherFirst, Policy: leaderboard.Best}
	now := time.Now()
	err = x.Rebuild(b.Context(), rules, key, now, func(yield func(leaderboard.Entry, error) bool) {
		for i := range n {
			e := leaderboard.Entry{
				SeasonKey: key, User: leaderboard.UserID(fmt.Sprintf("user-%011d", i)), Version: 1,
				Key: rules.ScorePrefix(leaderboard.Score(rand.Int64N(1<<52)), now), AchievedAt: now,
			}
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

// readAll makes each reader send its requests, one after another, and returns the number of
// failures. On a busy machine, Redis may take longer to answer than the node waits.
func readAll(b *testing.B, client *http.Client, key string, url func() string) int {
	var failed atomic.Int64
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for range readsEach {
				if read(b.Context(), client, key, url()) != nil {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(failed.Load())
}

// read sends a request and reads its answer, which must have ranks.
func read(ctx context.Context, client *http.Client, key, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"rank":`) && string(body) != "ok\n") {
		err = fmt.Errorf("GET %s: status %d, want 200 and a rank; answer: %.300s", url, resp.StatusCode, body)
	}
	return err
}

// nodeSeconds returns the processor time of a node.
func nodeSeconds(b *testing.B, node *deployment.Node) float64 {
	seconds, err := node.Metric(b.Context(), "process_cpu_seconds_total")
	if err != nil || seconds == 0 {
		b.Fatalf("the processor time of the node is %v, error %v", seconds, err)
	}
	return seconds
}

// redisSeconds returns the processor time of the main thread of Redis.
func redisSeconds(b *testing.B, server *goredis.Client) float64 {
	info, err := server.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += seconds
		}
	}
	return sum
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
