// Long: the whole contract runs on a real Redis, with one shard and with several.

package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(envRebuild); args != "" {
		if err := rebuildSlowly(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(cluster.Main(m))
}

// limitsOf returns the limits of an index with a number of shards. Redis has no snapshot across slots.
func limitsOf(shards int) cachetest.Limits {
	limits := cachetest.Limits{NoDense: "a rank key that several shards have would count several times", Shards: shards}
	if shards > 1 {
		limits.MixedMoments = "shards are read concurrently, but not at one moment"
	}
	return limits
}

// suites runs the two test suites of the contract [leaderboard.Index]. In the first suite, the index
// has metrics around it, as in the server.
func suites(t *testing.T, addrs []string, shards, histories int) {
	open := func(tb testing.TB) leaderboard.Index { return openUnclosed(tb, options(addrs, shards)) }
	measured := func(tb testing.TB) leaderboard.Index { return observe.Index(open(tb), prometheus.NewRegistry()) }
	sizes := cachetest.Sizes{Histories: histories, Changes: 40, Moves: 100 * histories, Positions: min(1+histories, 12)}
	cachetest.Run(t, measured, limitsOf(shards), sizes)
	t.Run("RandomHistories", func(t *testing.T) { cachetest.RunHistories(t, open, limitsOf(shards), sizes) })
}

// options returns options with a random key prefix.
func options(addrs []string, shards int) Options {
	return Options{
		Redis:  &goredis.UniversalOptions{Addrs: addrs, DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 2 * time.Second},
		Shards: shards, Prefix: fmt.Sprintf("test-%08x:", rand.Uint32()), Hints: 64,
	}
}

// openIndex returns an open index. When tb ends, the index is closed and its keys are removed.
func openIndex(tb testing.TB, o Options) *Index {
	tb.Helper()
	x := openUnclosed(tb, o)
	tb.Cleanup(func() {
		if err := x.Close(); err != nil {
			tb.Error(err)
		}
	})
	return x.Index
}

func openUnclosed(tb testing.TB, o Options) temporary {
	tb.Helper()
	x, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return temporary{x, tb}
}

// temporary is an index whose Close also removes the index's keys.
type temporary struct {
	*Index
	tb testing.TB
}

func (x temporary) Close() error {
	remove(x.tb, x.Index)
	return x.Index.Close()
}

// trips is a hook that counts the round trips of a client, without handshakes of new connections.
type trips struct{ atomic.Int64 }

func countTrips(x *Index) *trips {
	n := &trips{}
	x.client().AddHook(n)
	return n
}

func (n *trips) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (n *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, c goredis.Cmder) error {
		if c.Name() != "hello" {
			n.Add(1)
		}
		return next(ctx, c)
	}
}

func (n *trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, c []goredis.Cmder) error {
		if c[0].Name() != "client" {
			n.Add(1)
		}
		return next(ctx, c)
	}
}

func names(ctx context.Context, x *Index) ([]string, error) {
	var all []string
	scan := func(ctx context.Context, c *goredis.Client) error {
		for it := c.Scan(ctx, 0, x.o.Prefix+"*", 1000).Iterator(); ; {
			if !it.Next(ctx) {
				return it.Err()
			}
			all = append(all, it.Val())
		}
	}
	cluster, ok := x.client().(*goredis.ClusterClient)
	if !ok {
		return all, scan(ctx, x.client().(*goredis.Client))
	}
	var mu sync.Mutex // masters are scanned concurrently
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return scan(ctx, m)
	})
	return all, err
}

func remove(tb testing.TB, x *Index) {
	ctx := context.Background()
	all, err := names(ctx, x)
	if err != nil {
		tb.Logf("cannot remove the test's keys: %v", err) // for example because the test has stopped the server
		return
	}
	for _, name := range all {
		if err := x.client().Unlink(ctx, name).Err(); err != nil {
			tb.Error(err)
		}
	}
}

// The index uses a whole Redis Cluster even if Options have only one of its addresses, and even if no
// server answers while Open runs.
func TestOneAddressOfACluster(t *testing.T) {
	needs.Slow(t, "clusters")
	o := options(cluster.RedisCluster(t)[:1], 0)
	x := openIndex(t, o)
	season, s := x.season(testSeason), newStore(100)
	must(t, x.Rebuild(t.Context(), testBoard, testSeason, epoch, s.scan))
	if _, ok := x.client().(*goredis.ClusterClient); !ok || len(*season.control.Load()) != 1 {
		t.Errorf("the client is a %T, the season has %d shards; want a ClusterClient, and the default of 1 shard", x.client(), len(*season.control.Load()))
	}
	late, err := newIndex(o)
	must(t, err)
	t.Cleanup(func() { must(t, late.Close()) })
	unreachable := errors.New("unreachable")
	late.unfit.Store(&unreachable) // like Open, if no server answers
	late.inspectUntilFit()
	if _, ok := late.client().(*goredis.ClusterClient); !ok || late.unfit.Load() != nil {
		t.Errorf("after inspectUntilFit, the client is a %T and unfit is %v; want a ClusterClient and nil", late.client(), late.unfit.Load())
	}
}

// openLocal returns an index in a miniredis, a Redis in the test's process.
func openLocal(tb testing.TB, shards int) *Index {
	tb.Helper()
	s := miniredis.RunT(tb)
	x, err := newIndex(options([]string{s.Addr()}, shards))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := x.Close(); err != nil {
			tb.Error(err)
		}
	})
	return x
}

func TestIndexOnAServer(t *testing.T) {
	needs.NoRace(t, "concurrent calls have a test of their own")
	addrs := []string{cluster.Redis(t)}
	t.Run("OneShard", func(t *testing.T) {
		suites(t, addrs, 1, needs.More(t, 1))
	})
	t.Run("Shards", func(t *testing.T) {
		suites(t, addrs, 4, needs.More(t, 1))
	})
}

func TestConcurrentCallsOnAServer(t *testing.T) {
	const shards = 4
	open := func(tb testing.TB) leaderboard.Index {
		return openUnclosed(tb, options([]string{cluster.Redis(t)}, shards))
	}
	cachetest.RunConcurrency(t, open, limitsOf(shards), cachetest.Sizes{Moves: 200})
}

func TestIndexOnACluster(t *testing.T) {
	needs.Slow(t, "clusters")
	addrs := cluster.RedisCluster(t)
	t.Run("OneShard", func(t *testing.T) {
		suites(t, addrs, 1, 6)
	})
	t.Run("Shards", func(t *testing.T) {
		suites(t, addrs, 4, 6)
	})
}
