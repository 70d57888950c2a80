package redis

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// BenchmarkCosts measures the memory for each user, and the server's processor time for each operation, in
// pipelines of a hundred calls. It compares both with a plain sorted set of as many users on the same
// server.
func BenchmarkCosts(b *testing.B) {
	n := benchUsers(b)
	for _, tt := range costCases {
		b.Run(tt.name, func(b *testing.B) {
			server := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
			x := openIndex(b, options(server.Addrs(), 1))
			bare := x.client().(*goredis.Client)
			rng := rand.New(rand.NewPCG(1, 2))
			empty, start, cpu := usedMemory(b, bare), time.Now(), serverSeconds(b, bare)
			err := x.Rebuild(b.Context(), testBoard, testSeason, epoch, tt.inOrder(n, rng))
			if err != nil {
				b.Fatal(err)
			}
			elapsed, loadSeconds := time.Since(start), serverSeconds(b, bare)-cpu
			full := usedMemory(b, bare)
			err = pipelined(b.Context(), bare, n, func(i int) [][]any { return [][]any{{"ZADD", "bare", rng.Int64N(tt.scores), benchUser(i)}} })
			if err != nil {
				b.Fatal(err)
			}
			b.Run("memory", func(b *testing.B) {
				for b.Loop() { // nothing to repeat: the load above was measured
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(full-empty)/float64(n), "B/user")
				b.ReportMetric(float64(usedMemory(b, bare)-full)/float64(n), "B/user-bare")
				b.ReportMetric(loadSeconds/float64(n)*1e6, "µs/user-load")
				b.ReportMetric(float64(n)/elapsed.Seconds(), "users/s")
			})
			scored := func(i int, version uint64) leaderboard.Entry {
				return tt.entry(i, version, rng.Int64N(tt.scores), rng)
			}
			for _, op := range costs(n, x, scored) {
				b.Run(op.name, func(b *testing.B) { op.measure(b, x, bare) })
			}
		})
	}
}

// costCase is a season of the benchmark.
type costCase struct {
	name      string
	scores    int64 // the number of possible scores
	divisions int
	limit     float64 // of the bytes for a user
}

var costCases = []costCase{
	{"different", 1 << 52, 0, 120},
	{"scores=1000", 1000, 0, 100},
	{"divisions=2", 1 << 52, 2, 240},
}

// If a season has 100,000 users or more, a user takes at most the limit.
func TestMemoryOfAUser(t *testing.T) {
	needs.NoRace(t, "the test measures the server")
	const n = 100_000
	for i, tt := range costCases {
		t.Run(tt.name, func(t *testing.T) {
			if i > 0 {
				needs.Slow(t, "sizes")
			}
			x := openIndex(t, options(cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{}).Addrs(), 1))
			bare := x.client().(*goredis.Client)
			empty := usedMemory(t, bare)
			must(t, x.Rebuild(t.Context(), testBoard, testSeason, epoch, tt.inOrder(n, rand.New(rand.NewPCG(1, 2)))))
			if bytes := float64(usedMemory(t, bare)-empty) / n; bytes > tt.limit {
				t.Errorf("a user takes %.1f bytes, want at most %.0f", bytes, tt.limit)
			}
		})
	}
}

func (c *costCase) entry(i int, version uint64, score int64, rng *rand.Rand) leaderboard.Entry {
	e := benchEntry(i, version, rng)
	e.Key = testBoard.ScorePrefix(leaderboard.Score(score), epoch)
	for d := range c.divisions {
		e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: fmt.Sprint("attribute", d), Value: fmt.Sprint(i % 50)})
	}
	return e
}

// inOrder yields n entries in standing order, without holding all of them.
func (c *costCase) inOrder(n int, rng *rand.Rand) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		users := int64(n)
		quotient, remainder := c.scores/users, c.scores%users
		for i := range users {
			left := users - 1 - i
			e := c.entry(shuffled(users, i), 1, left*quotient+left*remainder/users, rng)
			e.AchievedAt = epoch.Add(time.Duration(i) * time.Microsecond)
			if !yield(e, nil) {
				return
			}
		}
	}
}

// operation is a call of a script, and comparable commands on a plain sorted set.
type operation struct {
	name string
	call func() *call
	bare []func() []any
}

func costs(n int, x *Index, scored func(i int, version uint64) leaderboard.Entry) []operation {
	control := *x.season(testSeason).control.Load()
	user := func() string { return benchUser(rand.IntN(n)) }
	zrank := func() []any { return []any{"ZREVRANK", "bare", user()} }
	version := uint64(1)
	excerpt := func(counts, kind string, above, below int, cut ...any) *call {
		return newCall(excerptScript, control, 0, append([]any{"", counts, kind, above, below}, cut...)...)
	}
	return []operation{
		{"rank", func() *call {
			u := user()
			return newCall(standingsScript, control, 0, "", "c", 1, u, bucketHash(u))
		}, []func() []any{zrank}},
		{"around4", func() *call {
			u := user()
			return excerpt("cw", "u", 4, 5, u, bucketHash(u))
		}, []func() []any{zrank, func() []any {
			from := rand.IntN(n - 9)
			return []any{"ZREVRANGE", "bare", from, from + 8}
		}}},
		{"top10", func() *call { return excerpt("c", "i", 0, 10, 0) }, []func() []any{func() []any { return []any{"ZREVRANGE", "bare", 0, 9} }}},
		{"page100", func() *call { return excerpt("c", "i", 0, 100, rand.IntN(n-100)) }, []func() []any{func() []any {
			from := rand.IntN(n - 100)
			return []any{"ZREVRANGE", "bare", from, from + 99}
		}}},
		{"move", func() *call {
			version++
			e := scored(rand.IntN(n), version)
			return newCall(updateScript, control, 0, append([]any{"", 0, instant(epoch.Add(time.Duration(version) * time.Second)), 0}, entryArgs(&e)...)...)
		}, []func() []any{func() []any { return []any{"ZADD", "bare", rand.Int64N(1 << 52), user()} }}},
	}
}

func (o *operation) measure(b *testing.B, x *Index, bare *goredis.Client) {
	const pipelines, each = 40, 100
	var indexed, plain []float64
	for b.Loop() {
		start := serverSeconds(b, bare)
		for range pipelines {
			calls := make([]*call, each)
			for i := range calls {
				calls[i] = o.call()
			}
			if err := x.run(b.Context(), calls); err != nil {
				b.Fatal(err)
			}
			for _, c := range calls {
				if c.status != statusOK {
					b.Fatalf("the status of %s is %d, want %d", o.name, c.status, statusOK)
				}
			}
		}
		middle := serverSeconds(b, bare)
		for range pipelines {
			pipe := bare.Pipeline()
			for range each {
				for _, args := range o.bare {
					pipe.Do(context.Background(), args()...)
				}
			}
			if _, err := pipe.Exec(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		indexed = append(indexed, (middle-start)/pipelines/each*1e6)
		plain = append(plain, (serverSeconds(b, bare)-middle)/pipelines/each*1e6)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(indexed), "µs")
	b.ReportMetric(indexed[0], "µs-least") // median has sorted indexed
	b.ReportMetric(median(plain), "µs-bare")
}

// BenchmarkSlowest makes the largest reads and changes. From the server's SLOWLOG, it reports for each
// operation the longest time of a command, the median of the commands over 200 µs, and the number of
// commands over 1 ms. Other work on the machine lengthens these times.
func BenchmarkSlowest(b *testing.B) {
	n := benchUsers(b)
	for _, scores := range []int64{1 << 52, 1000} {
		b.Run(fmt.Sprintf("scores=%d", scores), func(b *testing.B) { slowest(b, n, scores) })
	}
}

func slowest(b *testing.B, n int, scores int64) {
	server := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
	x := openIndex(b, options(server.Addrs(), 1))
	bare := x.client().(*goredis.Client)
	ctx, l, version := b.Context(), leaderboard.Ladder{SeasonKey: testSeason}, uint64(0)
	rng := rand.New(rand.NewPCG(1, 2))
	randomEntries := func(count int) []leaderboard.Entry {
		version++
		entries := make([]leaderboard.Entry, count)
		for i := range entries {
			e := benchEntry(rng.IntN(n), version, rng)
			e.Key = testBoard.ScorePrefix(leaderboard.Score(rng.Int64N(scores)), epoch)
			for d := range 2 {
				e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: fmt.Sprint("attribute", d), Value: fmt.Sprint(rng.IntN(50))})
			}
			entries[i] = e
		}
		return entries
	}
	user := func() leaderboard.UserID { return leaderboard.UserID(benchUser(rng.IntN(n))) }
	rebuild := func() error {
		return x.Rebuild(ctx, testBoard, testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
			for i := range n {
				e := benchEntry(i, 1, rng)
				e.Key = testBoard.ScorePrefix(leaderboard.Score(rng.Int64N(scores)), epoch)
				if !yield(e, nil) {
					return
				}
			}
		})
	}
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"rebuild", rebuild},
		{"lookup", func() error {
			users := make([]leaderboard.UserID, 1000)
			for i := range users {
				users[i] = user()
			}
			_, _, err := x.Standings(ctx, l, users)
			return err
		}},
		{"histogram", func() error {
			keys := make([]leaderboard.RankKey, 200)
			for i := range keys {
				keys[i] = testBoard.ScorePrefix(leaderboard.Score(rng.Int64N(scores)), epoch)
			}
			_, _, err := x.Count(ctx, l, keys)
			return err
		}},
		{"survey", func() error {
			var q leaderboard.SurveyQuery
			for range 100 {
				q.Positions = append(q.Positions, 1+rng.Int64N(int64(n)))
			}
			_, _, err := x.Survey(ctx, l, q)
			return err
		}},
		{"buckets", func() error {
			_, _, err := x.Survey(ctx, l, leaderboard.SurveyQuery{Percents: []float64{100, 0}, Buckets: 100, FromWorst: true})
			return err
		}},
		{"around", func() error { _, _, err := x.Around(ctx, l, user(), 5000, 5000); return err }},
		{"page", func() error { _, _, err := x.Page(ctx, l, 1+rng.Int64N(int64(n)), 10_000); return err }},
		{"update", func() error { return x.Update(ctx, testSeason, epoch, randomEntries(5000)) }},
		{"drop", func() error { return x.Drop(ctx, testSeason) }},
	} {
		b.Run(op.name, func(b *testing.B) {
			must(b, bare.ConfigSet(ctx, "slowlog-max-len", "100000").Err())
			must(b, bare.ConfigSet(ctx, "slowlog-log-slower-than", "-1").Err()) // so that it does not log its own RESET
			must(b, bare.Do(ctx, "SLOWLOG", "RESET").Err())
			must(b, bare.ConfigSet(ctx, "slowlog-log-slower-than", "200").Err())
			for b.Loop() {
				must(b, op.do())
			}
			b.StopTimer()
			logged, err := bare.SlowLogGet(ctx, -1).Result()
			must(b, err)
			times, over := []float64{0}, 0
			for _, entry := range logged {
				times = append(times, float64(entry.Duration.Microseconds()))
				if entry.Duration > time.Millisecond {
					over++
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(times), "µs-median")
			b.ReportMetric(times[len(times)-1], "µs-longest") // median has sorted times
			b.ReportMetric(float64(len(logged)), "over-200-µs")
			b.ReportMetric(float64(over), "over-1-ms")
			if op.name == "drop" {
				must(b, rebuild())
			}
		})
	}
}
