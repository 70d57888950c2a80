package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func boardOf(shards int) *leaderboard.Board {
	b := *testBoard
	b.Shards = shards
	return &b
}

func (s *store) rebuildWith(ctx context.Context, x *Index, shards int) error {
	return x.Rebuild(ctx, boardOf(shards), testSeason, epoch, s.scan)
}

// Rebuilds change the number of shards. Meanwhile two processes, x and y, update the season, and y reads
// pages. Every page is complete. After each change, x equals a new index with this number of shards.
func TestTheNumberOfShardsChanges(t *testing.T) {
	runSeed, changes := seed.New(t), needs.More(t, 2)
	smallTrees(t)
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint("cluster=", many), func(t *testing.T) {
			var addrs []string
			if many {
				needs.Slow(t, "clusters")
				changes = 3
				addrs = addrsOf(cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{}))
			} else {
				addrs = []string{cluster.Redis(t)}
			}
			rng := rand.New(rand.NewPCG(runSeed, 1))
			o := options(addrs, 1)
			x, y, s := openIndex(t, o), openIndex(t, o), newStore(400)
			s.rebuild(t, x)
			for range changes {
				shards := []int{1, 2, 3, 4, 7}[rng.IntN(5)]
				ctx, stop := context.WithCancel(t.Context())
				var background sync.WaitGroup
				var reads atomic.Int64
				for i, index := range []*Index{x, y} {
					own := rand.New(rand.NewPCG(runSeed, rng.Uint64()))
					background.Go(func() {
						for ctx.Err() == nil {
							e := randomEntries(own, 1, 30)[0]
							e.User = leaderboard.UserID(fmt.Sprint("user ", 2*own.IntN(250)+i)) // each process has its own users
							s.mu.Lock()
							e.Version = s.entries[e.User].Version + 1
							s.mu.Unlock()
							s.update(t, index, e)
						}
					})
				}
				background.Go(func() {
					for ctx.Err() == nil {
						got, v, err := y.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 20, leaderboard.Competition)
						if err != nil || len(got) != 20 || v.Size < 200 {
							t.Errorf("a page during a change to %d shards: %d standings of %d, error %v; want 20 of at least 200", shards, len(got), v.Size, err)
							return
						}
						reads.Add(1)
					}
				})
				for reads.Load() < 5 && !t.Failed() {
					_ = sleep(ctx, leasePoll)
				}
				if err := s.rebuildWith(t.Context(), x, shards); err != nil {
					t.Errorf("Rebuild with %d shards: %v", shards, err)
				}
				for n := reads.Load(); reads.Load() < n+5 && !t.Failed(); {
					_ = sleep(ctx, leasePoll)
				}
				stop()
				background.Wait()
				fresh := openIndex(t, o)
				for name, index := range map[string]*Index{"the process that rebuilt": x, "another process": y, "a new process": fresh} {
					if loaded, err := index.Loaded(t.Context(), testSeason); !loaded || err != nil || !index.Fits(boardOf(shards), testSeason) || index.Fits(boardOf(shards+1), testSeason) {
						t.Errorf("%s: Loaded = %v, %v, want true, nil; Fits with %d shards = %v, want true; Fits with %d shards must be false", name, loaded, err, shards, index.Fits(boardOf(shards), testSeason), shards+1)
					}
					checkLadders(t, index, s.entries)
				}
				other := options(addrs, shards)
				rebuilt := openIndex(t, other)
				s.rebuild(t, rebuilt)
				if diff := cmp.Diff(contents(t, rebuilt), contents(t, x)); diff != "" {
					t.Fatalf("after a change to %d shards, the index differs from a rebuilt one (-rebuilt +changed):\n%s", shards, diff)
				}
				if t.Failed() {
					return
				}
			}
			checkNothingIsLeft(t, x)
		})
	}
}

// A process dies while it changes the number of shards: after the fill, or after it has made (flipped)
// the new generation live in shard 0 only. The index stays exact, and the next Rebuild frees the keys
// that the process left.
func TestAProcessDiesWhileItChangesTheNumberOfShards(t *testing.T) {
	smallTrees(t)
	for _, change := range [][2]int{{1, 3}, {3, 1}, {3, 4}} {
		for _, flipped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d to %d, flipped %v", change[0], change[1], flipped), func(t *testing.T) {
				o := options([]string{cluster.Redis(t)}, change[0])
				x, s := openIndex(t, o), newStore(100)
				s.rebuild(t, x)
				dead := openIndex(t, o)
				g := &generation{x: dead, season: dead.season(testSeason), token: "dead"}
				must(t, g.begin(t.Context(), boardOf(change[1]), epoch))
				must(t, g.fill(t.Context(), testBoard, s.scan))
				s.update(t, x, entry("user 1", 2, 70, "F"))
				if flipped {
					must(t, g.verify(t.Context()))
					must(t, x.run(t.Context(), []*call{newCall(flipScript, g.control, 0, g.name)}))
				}
				must(t, x.run(t.Context(), []*call{g.lease(0)})) // the lease ends
				s.update(t, x, entry("user 2", 2, 80, "F"))
				checkLadders(t, x, s.entries)
				checkLadders(t, openIndex(t, o), s.entries)
				must(t, s.rebuildWith(t.Context(), x, 2))
				checkLadders(t, x, s.entries)
				fresh := openIndex(t, options(o.Redis.Addrs, 2))
				s.rebuild(t, fresh)
				if diff := cmp.Diff(contents(t, fresh), contents(t, x)); diff != "" {
					t.Fatalf("the index differs from a rebuilt one (-rebuilt +changed):\n%s", diff)
				}
				checkNothingIsLeft(t, x)
			})
		}
	}
}

// While the number of shards changes, writers learn of the new generation from the old shards. If an old
// shard is lost, writers may not update the new generation, so the Rebuild fails.
func TestAShardIsLostWhileTheNumberOfShardsChanges(t *testing.T) {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 3)), newStore(100)
	s.rebuild(t, x)
	control := slices.Clone(*x.season(testSeason).control.Load())
	lose := func(yield func(leaderboard.Entry, error) bool) {
		s.scan(yield)
		must(t, x.client().Del(t.Context(), control[2]).Err())
	}
	if err := x.Rebuild(t.Context(), boardOf(1), testSeason, epoch, lose); !errors.Is(err, errOvertaken) {
		t.Errorf("Rebuild after the loss of an old shard: error %v, want errOvertaken", err)
	}
	must(t, s.rebuildWith(t.Context(), x, 1))
	checkLadders(t, x, s.entries)
}

// If an Update fails before its process knows the season's number of shards, Loaded reads the number
// from Redis.
func TestLoadedLearnsTheNumberOfShards(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 3)
	x, s := openIndex(t, o), newStore(30)
	s.rebuild(t, x)
	y := openIndex(t, o)
	season := y.season(testSeason)
	season.mu.Lock()
	season.failures++
	season.mu.Unlock()
	y.unsynced.Add(1)
	if loaded, err := y.Loaded(t.Context(), testSeason); !loaded || err != nil {
		t.Errorf("Loaded = %v, %v, want true, nil", loaded, err)
	}
}
