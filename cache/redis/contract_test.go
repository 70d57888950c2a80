package redis

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// BenchmarkContract compares reads of the index with the same reads of a plain sorted set. It reports the
// sum of the processor times of the server and of this process.
func BenchmarkContract(b *testing.B) {
	n := benchUsers(b)
	server := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
	x := openIndex(b, options(server.Addrs(), 1))
	bare := x.client().(*goredis.Client)
	rng := rand.New(rand.NewPCG(1, 2))
	entries := make([]leaderboard.Entry, n)
	for i := range entries {
		entries[i] = benchEntry(i, 1, rng)
	}
	slices.SortFunc(entries, func(a, b leaderboard.Entry) int { return strings.Compare(string(a.SortKey()), string(b.SortKey())) })
	must(b, x.Rebuild(b.Context(), testBoard, testSeason, epoch, sequence(entries)))
	must(b, pipelined(b.Context(), bare, n, func(i int) [][]any { return [][]any{{"ZADD", "bare", rng.Int64N(1 << 52), benchUser(i)}} }))
	l := leaderboard.Ladder{SeasonKey: testSeason}
	user := func() string { return benchUser(rand.IntN(n)) }
	for _, q := range []struct {
		name      string
		bare, ask func(context.Context) error
	}{
		{"rank", func(ctx context.Context) error { return bare.ZRevRank(ctx, "bare", user()).Err() }, func(ctx context.Context) error {
			_, _, err := x.Standings(ctx, l, []leaderboard.UserID{leaderboard.UserID(user())}, leaderboard.Competition)
			return err
		}},
		{"around4", func(ctx context.Context) error {
			rank, err := bare.ZRevRank(ctx, "bare", user()).Result()
			if err != nil {
				return err
			}
			return bare.ZRevRangeWithScores(ctx, "bare", max(rank-4, 0), rank+4).Err()
		}, func(ctx context.Context) error {
			_, _, err := x.Around(ctx, l, leaderboard.UserID(user()), 4, 4, leaderboard.Competition)
			return err
		}},
		{"top10", func(ctx context.Context) error { return bare.ZRevRangeWithScores(ctx, "bare", 0, 9).Err() }, func(ctx context.Context) error {
			_, _, err := x.Page(ctx, l, 1, 10, leaderboard.Competition)
			return err
		}},
	} {
		b.Run(q.name, func(b *testing.B) {
			var indexed, plain, ratio []float64
			measureCallers(b, bare, q.bare) // opens the connections
			for b.Loop() {
				p, i := measureCallers(b, bare, q.bare), measureCallers(b, bare, q.ask)
				plain, indexed, ratio = append(plain, p), append(indexed, i), append(ratio, i/p)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(indexed), "µs")
			b.ReportMetric(median(plain), "µs-bare")
			b.ReportMetric(median(ratio), "×bare")
		})
	}
}

// measureCallers calls the function ask 20,000 times, from 50 goroutines. It returns the processor time of
// the server and of this process for each call, in µs.
func measureCallers(b *testing.B, c *goredis.Client, ask func(context.Context) error) float64 {
	const callers, each = 50, 400
	begin := serverSeconds(b, c) + processSeconds(b)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if err := ask(context.Background()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return (serverSeconds(b, c) + processSeconds(b) - begin) / (callers * each) * 1e6
}

func processSeconds(tb testing.TB) float64 {
	var usage syscall.Rusage
	must(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
