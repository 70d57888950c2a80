package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func benchEntry(i int, version uint64, rng *rand.Rand) leaderboard.Entry {
	return leaderboard.Entry{
		SeasonKey: testSeason, User: leaderboard.UserID(benchUser(i)), Version: version,
		Key: testBoard.ScorePrefix(leaderboard.Score(rng.Int64N(1<<52)), epoch), AchievedAt: epoch.Add(time.Duration(rng.Int64N(1e12)) * time.Microsecond),
	}
}

// BenchmarkIndex compares the index with bare commands on a sorted set of as many users, on the
// same server. The metric ×bare is the ratio of elapsed times. The metric server×bare is the ratio
// of processor times of the server's main thread.
func BenchmarkIndex(b *testing.B) {
	n := benchUsers(b)
	for _, shards := range []int{1, 4} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			server := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
			o := options(server.Addrs(), shards)
			o.Hints = defaultHints
			x := openIndex(b, o)
			bare := x.client().(*goredis.Client)
			rng := rand.New(rand.NewPCG(1, 2))
			ctx := context.Background()
			empty := usedMemory(b, bare)
			start := time.Now()
			err := x.Rebuild(ctx, testBoard, testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
				for i := range n {
					if !yield(benchEntry(i, 1, rng), nil) {
						return
					}
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			elapsed, full := time.Since(start), usedMemory(b, bare)
			err = pipelined(ctx, bare, n, func(i int) [][]any { return [][]any{{"ZADD", "bare", rng.Int64N(1 << 52), benchUser(i)}} })
			if err != nil {
				b.Fatal(err)
			}
			b.Run("rebuild", func(b *testing.B) {
				for b.Loop() { // the Rebuild above is measured, once
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(full-empty)/float64(n), "B/user")
				b.ReportMetric(float64(usedMemory(b, bare)-full)/float64(n), "B/user-bare")
				b.ReportMetric(float64(n)/elapsed.Seconds(), "users/s")
			})
			l, trips := leaderboard.Ladder{SeasonKey: testSeason}, countTrips(x)
			var version atomic.Uint64
			version.Store(1)
			user := func() string { return benchUser(rand.IntN(n)) }
			for _, q := range []struct {
				name          string
				bare, indexed func() error
			}{
				{"rank", func() error { return bare.ZRevRank(ctx, "bare", user()).Err() }, func() error {
					_, _, err := x.Standings(ctx, l, []leaderboard.UserID{leaderboard.UserID(user())})
					return err
				}},
				{"top10", func() error { return bare.ZRevRangeWithScores(ctx, "bare", 0, 9).Err() }, func() error {
					_, _, err := x.Page(ctx, l, 1, 10)
					return err
				}},
				{"page100-deep", func() error {
					from := rand.Int64N(int64(n - 100))
					return bare.ZRevRangeWithScores(ctx, "bare", from, from+99).Err()
				}, func() error {
					_, _, err := x.Page(ctx, l, rand.Int64N(int64(n-100)), 100)
					return err
				}},
				{"around4", func() error { // bare commands need two round trips
					rank, err := bare.ZRevRank(ctx, "bare", user()).Result()
					if err != nil {
						return err
					}
					return bare.ZRevRangeWithScores(ctx, "bare", max(rank-4, 0), rank+4).Err()
				}, func() error {
					_, _, err := x.Around(ctx, l, leaderboard.UserID(user()), 4, 4)
					return err
				}},
				{"update", func() error {
					return bare.ZAdd(ctx, "bare", goredis.Z{Score: float64(rand.Int64N(1 << 52)), Member: user()}).Err()
				}, func() error {
					e := benchEntry(rand.IntN(n), version.Add(1), rand.New(rand.NewPCG(rand.Uint64(), 0)))
					return x.Update(ctx, testSeason, epoch, []leaderboard.Entry{e})
				}},
				{"update-and-rank", func() error {
					u := user()
					pipe := bare.Pipeline()
					pipe.ZAdd(ctx, "bare", goredis.Z{Score: float64(rand.Int64N(1 << 52)), Member: u})
					pipe.ZRevRank(ctx, "bare", u)
					_, err := pipe.Exec(ctx)
					return err
				}, func() error {
					e := benchEntry(rand.IntN(n), version.Add(1), rand.New(rand.NewPCG(rand.Uint64(), 0)))
					if err := x.Update(ctx, testSeason, epoch, []leaderboard.Entry{e}); err != nil {
						return err
					}
					_, _, err := x.Standings(ctx, l, []leaderboard.UserID{e.User})
					return err
				}},
			} {
				b.Run(q.name, func(b *testing.B) {
					var times, cpu []float64
					var ops, allTrips float64
					for b.Loop() {
						plain := measureSide(b, bare, q.bare)
						before := trips.Load()
						indexed := measureSide(b, bare, q.indexed)
						allTrips += float64(trips.Load() - before)
						ops += sideOps
						times = append(times, indexed.elapsed/plain.elapsed)
						cpu = append(cpu, indexed.server/plain.server)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(median(times), "×bare")
					b.ReportMetric(median(cpu), "server×bare")
					b.ReportMetric(allTrips/ops, "trips/op")
				})
			}
		})
	}
}

const (
	sideOps     = 4000
	sideWorkers = 16
)

// cost has the elapsed time and the server's processor time, in seconds.
type cost struct{ elapsed, server float64 }

func measureSide(b *testing.B, c *goredis.Client, op func() error) cost {
	b.Helper()
	cpu, start := serverSeconds(b, c), time.Now()
	var all sync.WaitGroup
	for range sideWorkers {
		all.Go(func() {
			for range sideOps / sideWorkers {
				if err := op(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	elapsed := time.Since(start).Seconds()
	return cost{elapsed, serverSeconds(b, c) - cpu}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// benchUsers returns the number of users in benchmarks: LEADERBOARD_BENCH_USERS,
// or 100,000.
func benchUsers(b *testing.B) int {
	b.Helper()
	n, err := strconv.Atoi(os.Getenv("LEADERBOARD_BENCH_USERS"))
	if err != nil {
		return 100_000
	}
	return n
}

func benchUser(i int) string { return fmt.Sprintf("user-%011d", i) }

// pipelined calls command with 0 to n-1, and runs the returned Redis commands in pipelines.
func pipelined(ctx context.Context, c *goredis.Client, n int, command func(i int) [][]any) error {
	for i := 0; i < n; {
		pipe := c.Pipeline()
		for end := min(i+1000, n); i < end; i++ {
			for _, args := range command(i) {
				pipe.Do(ctx, args...)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func serverSeconds(b *testing.B, c *goredis.Client) float64 {
	b.Helper()
	var sum float64
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		v, err := strconv.ParseFloat(infoField(b, c, field), 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += v
	}
	return sum
}

func infoField(b testing.TB, c *goredis.Client, field string) string {
	b.Helper()
	info, err := c.Info(b.Context(), "everything").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, ok := strings.Cut(info, field+":")
	if !ok {
		b.Fatalf("INFO has no %s", field)
	}
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

func usedMemory(b testing.TB, c *goredis.Client) int64 {
	b.Helper()
	n, err := strconv.ParseInt(infoField(b, c, "used_memory"), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
