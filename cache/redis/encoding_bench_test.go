package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// benchUsers is how many users benchmarks have: LEADERBOARD_BENCH_USERS, or
// 100,000.
func benchUsers(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv("LEADERBOARD_BENCH_USERS"))
	if err != nil {
		return 100_000
	}
	return n
}

func benchUser(i int) string { return fmt.Sprintf("user-%011d", i) }

// standing is what the encodings hold of a user: 8 bytes of rank key, 8 of time.
type standing struct {
	score   int64
	user    string
	prefix  string
	version string
}

func benchStanding(i int, version uint64, scores int64, rng *rand.Rand) standing {
	score := rng.Int64N(scores)
	prefix := binary.BigEndian.AppendUint64(nil, ^(uint64(score) ^ 1<<63))
	prefix = binary.BigEndian.AppendUint64(prefix, 1<<63|uint64(1_790_000_000_000_000+rng.Int64N(1e12)))
	return standing{score, benchUser(i), string(prefix), bigEndian(version)}
}

// encoding is a way to keep standings in Redis, compared with the others for
// bytes and time. rank asks for what a rank takes: the standings before the
// user, those with a better score and, where it is kept, the different scores.
type encoding struct {
	name string
	load func(ctx context.Context, c *goredis.Client, all []standing) error
	rank func(s standing) []any
	move func(from, to standing) []any
}

// pipelined runs a command for each of n, a thousand at a time.
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

const (
	scoredRank = `local s = redis.call('HGET','u',ARGV[1]) local score = redis.call('ZSCORE','z',string.sub(s,9,16)..ARGV[1])
return {redis.call('ZRANK','z',string.sub(s,9,16)..ARGV[1]), redis.call('ZCOUNT','z','-inf','('..score)}`
	scoredMove = `local s = redis.call('HGET','u',ARGV[1]) redis.call('ZREM','z',string.sub(s,9,16)..ARGV[1])
redis.call('HSET','u',ARGV[1],ARGV[2]..ARGV[3]) redis.call('ZADD','z',ARGV[4],ARGV[3]..ARGV[1]) return 1`
	lexRank = `local s = redis.call('HGET','u',ARGV[1]) local p = string.sub(s,9,24)
return {redis.call('ZLEXCOUNT','z','-','('..p..ARGV[1]), redis.call('ZLEXCOUNT','z','-','('..string.sub(p,1,8)), redis.call('ZLEXCOUNT','d','-','('..string.sub(p,1,8))}`
	lexMove = `local s = redis.call('HGET','u',ARGV[1]) local k = string.sub(s,9,16)
redis.call('HSET','u',ARGV[1],ARGV[2]..ARGV[3]) redis.call('ZADD','z',0,ARGV[3]..ARGV[1]) redis.call('ZADD','d',0,string.sub(ARGV[3],1,8))
redis.call('ZREM','z',string.sub(s,9,24)..ARGV[1])
local m = redis.call('ZRANGEBYLEX','z','['..k,'+','LIMIT',0,1)[1] if not m or string.sub(m,1,8) ~= k then redis.call('ZREM','d',k) end return 1`
)

// buckets is lexicographic with the users' states in small hashes, which Redis
// packs.
const bucketUsers = 64

func bucket(user string, n int) string { return fmt.Sprintf("u%d", hash(user)%uint32(n/bucketUsers+1)) }

// packed is the standings in blocks of rows, a counter for each block and one
// for each hundred of them.
const (
	blockRows = 64
	blockSpan = 100
	rowBytes  = 33 // rank key, time, a byte for the length, an id of 16 bytes
	packedLua = `
local function find(x) -- block of x: the last whose first row is not greater
  local sep = redis.call('ZREVRANGEBYLEX','dir','['..x..'\255','-','LIMIT',0,1)[1] or redis.call('ZRANGE','dir',0,0)[1]
  return tonumber(string.sub(sep, -8))
end
local function at(rows, x)
  local lo, hi = 0, #rows/33
  while lo < hi do
    local mid = math.floor((lo+hi)/2)
    local less = false
    for i = 1, #x do local a, b = string.byte(rows, mid*33+i) or -1, string.byte(x, i) if a ~= b then less = a < b break end end
    if less then lo = mid+1 else hi = mid end
  end
  return lo
end
local function before(x)
  local b = find(x)
  local n, s = 0, math.floor(b/100)
  if s > 0 then for _, v in ipairs(redis.call('LRANGE','super',0,s-1)) do n = n+v end end
  if b > s*100 then for _, v in ipairs(redis.call('LRANGE','count',s*100,b-1)) do n = n+v end end
  return n + at(redis.call('HGET','b',b), x)
end
`
	packedRank = packedLua + `local s = redis.call('HGET',KEYS[1],ARGV[1]) local p = string.sub(s,9,24)
return {before(p..string.char(#ARGV[1])..ARGV[1]), before(string.sub(p,1,8))}`
	packedMove = packedLua + `
local function edit(x, put)
  local b = find(x) local rows = redis.call('HGET','b',b) local i = at(rows, x) local d = put and 1 or -1
  redis.call('HSET','b',b, string.sub(rows,1,i*33)..(put and x or '')..string.sub(rows, (i+(put and 0 or 1))*33+1))
  local s = math.floor(b/100)
  redis.call('LSET','count',b, redis.call('LINDEX','count',b)+d) redis.call('LSET','super',s, redis.call('LINDEX','super',s)+d)
end
local s = redis.call('HGET',KEYS[1],ARGV[1]) local id = string.char(#ARGV[1])..ARGV[1]
redis.call('HSET',KEYS[1],ARGV[1],ARGV[2]..ARGV[3]) edit(string.sub(s,9,24)..id) edit(ARGV[3]..id, true) return 1`
)

func encodings(n int) []encoding {
	state := func(s standing) [][]any { return [][]any{{"HSET", bucket(s.user, n), s.user, s.version + s.prefix}} }
	eval := func(text string, key string, args ...any) []any {
		return append([]any{"EVAL", text, 1, key}, args...)
	}
	return []encoding{
		{
			name: "plain",
			load: func(ctx context.Context, c *goredis.Client, all []standing) error {
				return pipelined(ctx, c, len(all), func(i int) [][]any { return [][]any{{"ZADD", "z", all[i].score, all[i].user}} })
			},
			rank: func(s standing) []any { return []any{"ZREVRANK", "z", s.user} },
			move: func(_, to standing) []any { return []any{"ZADD", "z", to.score, to.user} },
		},
		{
			name: "scored",
			load: func(ctx context.Context, c *goredis.Client, all []standing) error {
				return pipelined(ctx, c, len(all), func(i int) [][]any {
					s := all[i]
					return [][]any{{"ZADD", "z", -s.score, s.prefix[8:] + s.user}, {"HSET", "u", s.user, s.version + s.prefix[8:]}}
				})
			},
			rank: func(s standing) []any { return eval(scoredRank, "z", s.user) },
			move: func(_, to standing) []any {
				return eval(scoredMove, "z", to.user, to.version, to.prefix[8:], -to.score)
			},
		},
		{
			name: "lexicographic",
			load: func(ctx context.Context, c *goredis.Client, all []standing) error {
				return pipelined(ctx, c, len(all), func(i int) [][]any {
					s := all[i]
					return [][]any{{"ZADD", "z", 0, s.prefix + s.user}, {"ZADD", "d", 0, s.prefix[:8]}, {"HSET", "u", s.user, s.version + s.prefix}}
				})
			},
			rank: func(s standing) []any { return eval(lexRank, "z", s.user) },
			move: func(_, to standing) []any { return eval(lexMove, "z", to.user, to.version, to.prefix) },
		},
		{
			name: "lexicographic-packed-states",
			load: func(ctx context.Context, c *goredis.Client, all []standing) error {
				return pipelined(ctx, c, len(all), func(i int) [][]any {
					s := all[i]
					return append(state(s), []any{"ZADD", "z", 0, s.prefix + s.user}, []any{"ZADD", "d", 0, s.prefix[:8]})
				})
			},
			rank: func(s standing) []any {
				return eval(strings.ReplaceAll(lexRank, "'u'", "KEYS[1]"), bucket(s.user, n), s.user)
			},
			move: func(_, to standing) []any {
				return eval(strings.ReplaceAll(lexMove, "'u'", "KEYS[1]"), bucket(to.user, n), to.user, to.version, to.prefix)
			},
		},
		{
			name: "packed-blocks",
			load: func(ctx context.Context, c *goredis.Client, all []standing) error {
				if err := pipelined(ctx, c, len(all), func(i int) [][]any { return state(all[i]) }); err != nil {
					return err
				}
				rows := make([]string, len(all))
				for i, s := range all {
					rows[i] = s.prefix + string(byte(len(s.user))) + s.user
				}
				slices.Sort(rows)
				full := blockRows * 7 / 10 // as trees are after random insertions
				blocks := slices.Collect(slices.Chunk(rows, full))
				super := 0
				return pipelined(ctx, c, len(blocks), func(i int) [][]any {
					commands := [][]any{
						{"HSET", "b", i, strings.Join(blocks[i], "")},
						{"ZADD", "dir", 0, blocks[i][0] + fmt.Sprintf("\xff%08d", i)},
						{"RPUSH", "count", len(blocks[i])},
					}
					if super += len(blocks[i]); (i+1)%blockSpan == 0 || i == len(blocks)-1 {
						commands = append(commands, []any{"RPUSH", "super", super})
						super = 0
					}
					return commands
				})
			},
			rank: func(s standing) []any { return eval(packedRank, bucket(s.user, n), s.user) },
			move: func(_, to standing) []any {
				return eval(packedMove, bucket(to.user, n), to.user, to.version, to.prefix)
			},
		},
	}
}

// BenchmarkEncoding compares ways to keep standings: bytes a user, and the
// server's time for a rank and for a move, a hundred to a pipeline so that it is
// the server's work that counts.
func BenchmarkEncoding(b *testing.B) {
	n := benchUsers(b)
	for _, scores := range []int64{1 << 52, 1000} {
		for _, e := range encodings(n) {
			b.Run(fmt.Sprintf("scores=%d/%s", scores, e.name), func(b *testing.B) {
				server := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
				c := goredis.NewClient(&goredis.Options{Addr: server.Servers[0].Addr, ReadTimeout: time.Minute})
				b.Cleanup(func() { c.Close() })
				rng := rand.New(rand.NewPCG(1, 2))
				all := make([]standing, n)
				for i := range all {
					all[i] = benchStanding(i, 1, scores, rng)
				}
				empty := usedMemory(b, c)
				if err := e.load(b.Context(), c, all); err != nil {
					b.Fatal(err)
				}
				bytes := float64(usedMemory(b, c)-empty) / float64(n)
				b.Run("memory", func(b *testing.B) {
					for b.Loop() {
					}
					b.ReportMetric(bytes, "B/user")
					b.ReportMetric(0, "ns/op")
				})
				b.Run("rank", func(b *testing.B) {
					serverCPU(b, c, func() []any { return e.rank(all[rng.IntN(n)]) })
				})
				b.Run("move", func(b *testing.B) {
					version := uint64(1)
					serverCPU(b, c, func() []any {
						version++
						i := rng.IntN(n)
						to := benchStanding(i, version, scores, rng)
						from := all[i]
						all[i] = to
						return e.move(from, to)
					})
				})
			})
		}
	}
}

// serverCPU reports the processor time of the server for a command.
func serverCPU(b *testing.B, c *goredis.Client, command func() []any) {
	const width = 100
	b.Helper()
	before, ops := serverSeconds(b, c), 0
	for b.Loop() {
		pipe := c.Pipeline()
		for range width {
			pipe.Do(b.Context(), command()...)
		}
		if _, err := pipe.Exec(b.Context()); err != nil {
			b.Fatal(err)
		}
		ops += width
	}
	b.ReportMetric((serverSeconds(b, c)-before)*1e6/float64(ops), "server-us/command")
	b.ReportMetric(0, "ns/op")
}

// serverSeconds is the processor time of the server's main thread.
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

func infoField(b *testing.B, c *goredis.Client, field string) string {
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

func usedMemory(b *testing.B, c *goredis.Client) int64 {
	b.Helper()
	n, err := strconv.ParseInt(infoField(b, c, "used_memory"), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
