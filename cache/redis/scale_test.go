package redis

import (
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// BenchmarkScale loads LEADERBOARD_BENCH_USERS users into one shard, and reports the memory that
// a user takes, and the time of the load. It also checks 10,000 random ranks and 1,000 random
// pages. The scores are the numbers from 0 to users-1, and scaleUser returns the user of each
// score, so the ranks are known.
func BenchmarkScale(b *testing.B) {
	n := int64(benchUsers(b))
	server := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
	x := openIndex(b, options(server.Addrs(), 1))
	bare := x.client().(*goredis.Client)
	empty, start, cpu := usedMemory(b, bare), time.Now(), serverSeconds(b, bare)
	must(b, x.Rebuild(b.Context(), testBoard, testSeason, epoch, scaleEntries(b, n)))
	elapsed, loadSeconds := time.Since(start), serverSeconds(b, bare)-cpu
	full := usedMemory(b, bare)
	b.Logf("%d users are loaded after %v", n, elapsed)

	l, rng := leaderboard.Ladder{SeasonKey: testSeason}, rand.New(rand.NewPCG(1, 2))
	check := func(st leaderboard.Standing, position int64) {
		b.Helper()
		want := leaderboard.Ranks{Ordinal: position, Competition: position, Dense: position}
		if user := scaleUser(n, n-position); st.User != user || st.Ranks != want {
			b.Fatalf("user %q has the ranks %+v, want user %q and the ranks %+v", st.User, st.Ranks, user, want)
		}
	}
	const ranks, pages = 10_000, 1_000
	for b.Loop() {
		for range ranks {
			position := 1 + rng.Int64N(n)
			all, v, err := x.Standings(b.Context(), l, []leaderboard.UserID{scaleUser(n, n-position)}, leaderboard.Competition)
			must(b, err)
			if v.Size != n {
				b.Fatalf("the ladder has %d standings, want %d", v.Size, n)
			}
			check(all[0], position)
		}
		for range pages {
			first := 1 + rng.Int64N(n-99)
			page, _, err := x.Page(b.Context(), l, first, 100, leaderboard.Competition)
			must(b, err)
			if len(page) != 100 {
				b.Fatalf("the page at position %d has %d standings, want 100", first, len(page))
			}
			for i, st := range page {
				check(st, first+int64(i))
			}
		}
	}
	b.ReportMetric(float64(full-empty)/float64(n), "B/user")
	b.ReportMetric(loadSeconds/float64(n)*1e6, "µs/user-load")
	b.ReportMetric(float64(n)/elapsed.Seconds(), "users/s")
}

// shuffled returns another number below n for each i below n, because the multiplier is a prime greater
// than n.
func shuffled(n, i int64) int { return int(i * 2_654_435_761 % n) }

// scaleUser returns the user of a score among n scores. Different scores have different users.
func scaleUser(n, score int64) leaderboard.UserID {
	return leaderboard.UserID(benchUser(shuffled(n, score)))
}

// scaleEntries yields the entries of users with the scores n-1 to 0, in this order.
func scaleEntries(b *testing.B, n int64) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		last := time.Now()
		for score := n - 1; score >= 0; score-- {
			e := leaderboard.Entry{
				SeasonKey: testSeason, User: scaleUser(n, score), Version: 1, AchievedAt: epoch,
				Key: testBoard.ScorePrefix(leaderboard.Score(score), epoch),
			}
			if !yield(e, nil) {
				return
			}
			if score%100_000 == 0 && time.Since(last) > time.Minute {
				last = time.Now()
				b.Logf("%d of %d users are sent", n-score, n)
			}
		}
	}
}
