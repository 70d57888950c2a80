package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// The terms of these tests: a record has a user's version, prefix and ladders. A prefix is a rank key
// and a time. A bucket is a hash of records: see lua/base.lua. A tree keeps strings in leaves: the sort
// keys of a ladder, or its rank keys, each with a shard's number: see lua/tree.lua. A bulk load writes
// a generation in pieces, each in one transaction: see lua/bulk.lua.

func TestBulkLoadsUseTheSizesOfTheScripts(t *testing.T) {
	for _, line := range []string{
		fmt.Sprintf("local BITS = %d\n", treeSizes.bits), fmt.Sprintf("local GROUP = %d ", treeSizes.group),
		fmt.Sprintf("local USERS = %d ", treeSizes.users), fmt.Sprintf("local LEAF_BYTES = %d ", leafBytes),
		fmt.Sprintf("local UNPACKED = string.rep('x', %d)", len(unpacked)),
	} {
		if !strings.Contains(updateScript.text, line) {
			t.Errorf("the update script does not contain %q", line)
		}
	}
}

// randomEntries returns the entries of n users. The user ids have different lengths, and some entries
// are hidden.
func randomEntries(rng *rand.Rand, n int, scores int64) []leaderboard.Entry {
	var all []leaderboard.Entry
	for i := range n {
		e := entry(fmt.Sprint("user ", i, strings.Repeat("x", rng.IntN(2)*rng.IntN(80))), 1+rng.Uint64N(1<<uint(rng.IntN(40))), rng.Int64N(scores), []string{"", "F", "M"}[rng.IntN(3)])
		e.AchievedAt = epoch.Add(time.Duration(rng.IntN(1000)) * time.Second)
		if rng.IntN(3) == 0 {
			e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: "country", Value: fmt.Sprint(rng.IntN(20))})
		}
		e.Hidden = rng.IntN(5) == 0
		all = append(all, e)
	}
	return all
}

// contents returns, for each shard, the users' records with the names of their ladders, the strings of
// each tree, and the counters. The result does not depend on the bucket of a user or the
// leaf of a string. So contents also checks the buckets and trees.
func contents(t *testing.T, x *Index) []map[string]string {
	t.Helper()
	var all []map[string]string
	control := *x.season(testSeason).control.Load()
	for shard, key := range control {
		r, out := rawLive(t, x, shard), map[string]string{}
		hash := func(name string) map[string]string {
			t.Helper()
			h, err := x.client().HGetAll(t.Context(), r.at+name).Result()
			must(t, err)
			return h
		}
		names := map[string]string{}
		for name, number := range hash("l") {
			names[number] = name
			r.checkTree(number)
			groups, leaves := r.leaves(number)
			for _, g := range groups {
				for _, leaf := range leaves[g] {
					if all := r.zset(number + "l" + leaf); len(all) > 0 {
						out["tree "+name] += strings.Join(all, "|") + "|"
					}
				}
			}
		}
		buckets, err := x.client().HGet(t.Context(), key, "buckets").Int()
		must(t, err)
		users := 0
		for i := range buckets {
			for user, record := range hash(fmt.Sprint("u", i)) {
				if got := bucketOf(user, buckets); got != fmt.Sprint(i) {
					t.Errorf("user %q is in bucket %d, want %s", user, i, got)
				}
				users++
				fixed := min(len(record), 1+int(record[0])+16) // the version and the prefix: see lua/base.lua
				var ladders []string
				for rest := record[fixed:]; rest != ""; rest = rest[3:] {
					ladders = append(ladders, names[strconv.Itoa(int(rest[0])<<16|int(rest[1])<<8|int(rest[2]))])
				}
				out["user "+user] = record[:fixed] + strings.Join(ladders, ",")
			}
		}
		if want := countBuckets(users); buckets != want && !(users == 0 && buckets == 1) {
			t.Errorf("%d users are in %d buckets, want %d", users, buckets, want)
		}
		w := hash("w")
		for _, counter := range []string{"users", "standings"} {
			if out[counter] = w[counter]; w[counter] == "" {
				out[counter] = "0"
			}
		}
		all = append(all, out)
	}
	return all
}

// smallRuns makes bulk loads write runs of about 60 users, in blocks of about ten users. At most
// about ten strings wait in tree writers.
func smallRuns(t *testing.T) {
	t.Helper()
	usual := bulkSizes
	bulkSizes.run, bulkSizes.block, bulkSizes.strings = 6000, 500, 1000
	t.Cleanup(func() { bulkSizes = usual })
}

// A bulk load and a series of Updates lead to the same index.
func TestABulkLoadEqualsUpdates(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	runSeed := seed.New(t)
	smallTrees(t)
	addrs := []string{cluster.Redis(t)}
	for i, shards := range []int{1, 3} {
		for j, scores := range []int64{1, 5, 1 << 40} {
			for k, order := range []string{"sorted", "random", "runs"} {
				if chosen := (uint64(i+j+k)+runSeed)%3 == 0; needs.More(t, 1) == 1 && !chosen {
					continue // the part histories runs all combinations
				}
				t.Run(fmt.Sprintf("shards=%d/scores=%d/%s", shards, scores, order), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(runSeed, uint64(scores)))
					if order == "runs" {
						smallRuns(t)
					}
					entries := randomEntries(rng, rng.IntN(700), scores)
					newest := map[leaderboard.UserID]leaderboard.Entry{}
					for _, e := range entries {
						newest[e.User] = e
					}
					rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
					if order == "sorted" {
						slices.SortFunc(entries, func(a, b leaderboard.Entry) int { return strings.Compare(string(a.SortKey()), string(b.SortKey())) })
					}
					bulk, updates := openIndex(t, options(addrs, shards)), openIndex(t, options(addrs, shards))
					must(t, bulk.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(entries)))
					must(t, updates.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(nil)))
					for part := range slices.Chunk(entries, 50) {
						must(t, updates.Update(t.Context(), testSeason, epoch, part))
					}
					checkLadders(t, bulk, newest)
					want, got := contents(t, updates), contents(t, bulk)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("the bulk load differs from the updates (-updates +bulk):\n%s", diff)
					}
					checkNothingIsLeft(t, bulk)
				})
			}
		}
	}
}

// checkNothingIsLeft checks that no temporary key of a bulk load remains, and that no memory counts
// as held.
func checkNothingIsLeft(t *testing.T, x *Index) {
	t.Helper()
	all, err := names(t.Context(), x)
	must(t, err)
	for _, name := range all {
		if kind := name[strings.LastIndex(name, ":")+1:]; kind == "b" || kind == "p" || strings.HasPrefix(kind, "x") {
			t.Errorf("key %q remains after the rebuild, want no temporary keys", name)
		}
	}
	if got := x.held.Load(); got != 0 {
		t.Errorf("after the rebuild, entries hold %d bytes, want none", got)
	}
}

// Updates are made while a Rebuild reads older entries and writes them. In the limited
// cases, the entries together need more memory than one run has.
func TestUpdatesDuringABulkLoad(t *testing.T) {
	needs.Also(t, "histories")
	runSeed := seed.New(t)
	smallTrees(t)
	addrs := []string{cluster.Redis(t)}
	for i, shards := range []int{1, 3} {
		for j, limited := range []bool{false, true} {
			if (uint64(i+j)+runSeed)%2 > 0 && !needs.Running("histories") {
				continue
			}
			t.Run(fmt.Sprintf("shards=%d/limited=%v", shards, limited), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(runSeed, uint64(shards)))
				x, s := openIndex(t, options(addrs, shards)), newStore(0)
				old := randomEntries(rng, 600, 50)
				for _, e := range old {
					s.put(e)
				}
				s.rebuild(t, x)
				if limited {
					smallRuns(t)
				}
				change := func(rng *rand.Rand, from, n int) { // changes one of n users; the ranges of concurrent callers do not overlap
					i := from + rng.IntN(n)
					s.mu.Lock()
					e := s.entries[old[i].User]
					s.mu.Unlock()
					next := randomEntries(rng, 1, 50)[0]
					next.User, next.Version = e.User, e.Version+1
					s.update(t, x, next)
				}
				var writers sync.WaitGroup
				stop := make(chan struct{})
				pieces := atPiece(x, 5, func() { change(rand.New(rand.NewPCG(runSeed, 2)), 0, 100) })
				write := func() {
					rng := rand.New(rand.NewPCG(runSeed, 1))
					for {
						select {
						case <-stop:
							return
						default:
							change(rng, 300, 300)
						}
					}
				}
				err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
					writers.Go(write) // not earlier: from now on, Updates also go to the generation that the Rebuild builds
					for i, e := range old {
						if i%5 == 0 {
							change(rng, 100, 200)
						}
						if !yield(e, nil) {
							return
						}
					}
				})
				close(stop)
				writers.Wait()
				must(t, err)
				if pieces.Load() < 5 {
					t.Errorf("the rebuild wrote %d pieces, want at least 5", pieces.Load())
				}
				all := contents(t, x)
				for user, e := range s.entries {
					record := all[shardOf(user, shards)]["user "+string(user)]
					if want := strings.TrimLeft(bigEndian(e.Version), "\x00"); !strings.HasPrefix(record, string(rune(len(want)))+want) {
						t.Errorf("the record of user %q is %q, want version %q", user, record, want)
					}
				}
				checkLadders(t, x, s.entries)
				checkNothingIsLeft(t, x)
			})
		}
	}
}

// pieceHook calls do before the n-th piece of a bulk load.
type pieceHook struct {
	trips
	n  int64
	do func()
}

func atPiece(x *Index, n int64, do func()) *pieceHook {
	h := &pieceHook{n: n, do: do}
	x.client().AddHook(h)
	return h
}

func (h *pieceHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (h *pieceHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, c []goredis.Cmder) error {
		if strings.EqualFold(c[0].Name(), "multi") && h.Add(1) == h.n {
			h.do()
		}
		return next(ctx, c)
	}
}

// While a Rebuild writes its pieces, another process rebuilds or drops the season, Redis loses
// its data or its scripts or has no memory, or the Rebuild's process dies. After the next
// Rebuild, no entry and no key of the interrupted Rebuild remains.
func TestABulkLoadIsInterrupted(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	needs.Also(t, "histories")
	runSeed := seed.New(t)
	smallTrees(t)
	server := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	for i, kind := range []struct {
		shards int
		runs   bool
		piece  int64
	}{{1, false, 10}, {3, false, 10}, {1, true, 10}, {1, true, 90}, {3, true, 90}} {
		shards := kind.shards
		for j, tt := range []struct {
			name string
			do   func(t *testing.T, y *Index, s *store, die context.CancelFunc)
			want error
		}{
			{"rebuild", func(t *testing.T, y *Index, s *store, _ context.CancelFunc) { s.rebuild(t, y) }, errOvertaken},
			{"flush", func(t *testing.T, y *Index, _ *store, _ context.CancelFunc) {
				must(t, y.client().FlushAll(t.Context()).Err())
			}, errOvertaken},
			{"drop", func(t *testing.T, y *Index, _ *store, _ context.CancelFunc) {
				must(t, y.Drop(t.Context(), testSeason))
			}, errOvertaken},
			{"death", func(_ *testing.T, _ *Index, _ *store, die context.CancelFunc) { die() }, context.Canceled},
			{"scripts", func(t *testing.T, y *Index, _ *store, _ context.CancelFunc) {
				must(t, y.client().ScriptFlush(t.Context()).Err())
			}, nil},
			{"memory", func(t *testing.T, y *Index, _ *store, _ context.CancelFunc) {
				must(t, y.client().ConfigSet(t.Context(), "maxmemory", "1").Err())
			}, leaderboard.ErrRankUnavailable},
		} {
			if (uint64(i+j)+runSeed)%3 > 0 && !needs.Running("histories") {
				continue // make check runs each kind and each event at least once
			}
			t.Run(fmt.Sprintf("%s/shards=%d/runs=%v/piece=%d", tt.name, shards, kind.runs, kind.piece), func(t *testing.T) {
				o := options(server.Addrs(), shards)
				if tt.name == "memory" {
					o.UpdateTimeout = 200 * time.Millisecond
				}
				if kind.runs {
					smallRuns(t)
				}
				x, y, s := openIndex(t, o), openIndex(t, o), newStore(200)
				s.rebuild(t, x)
				before, err := names(t.Context(), x)
				must(t, err)
				g := beginGeneration(t, x)
				g.expireSoon(t)
				ctx, die := context.WithCancel(t.Context())
				defer die()
				var once atomic.Bool
				pieces := atPiece(x, kind.piece, func() {
					once.Store(true)
					tt.do(t, y, s, die)
				})
				orphans := newStore(2000)
				if err := g.fill(ctx, testBoard, orphans.scan); !errors.Is(err, tt.want) {
					t.Errorf("fill: error %v, want %v", err, tt.want)
				}
				must(t, y.client().ConfigSet(t.Context(), "maxmemory", "0").Err())
				if !once.Load() {
					t.Fatalf("the bulk load wrote %d pieces before it ended; the test needs at least %d", pieces.Load(), kind.piece)
				}
				s.rebuild(t, y)
				checkLadders(t, y, s.entries)
				after, err := names(t.Context(), y)
				must(t, err)
				if i := slices.IndexFunc(after, func(name string) bool { return strings.Contains(name, g.name) }); i >= 0 {
					t.Errorf("%d keys before, %d after; key %q of the interrupted bulk load remains, want no key of it", len(before), len(after), after[i])
				}
			})
		}
	}
}

// The script that ends a bulk load returns statusGap if not all pieces were written.
func TestAMissingPieceIsDetected(t *testing.T) {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 1)), newStore(100)
	g := beginGeneration(t, x)
	for _, step := range []struct {
		pieces any
		want   int
	}{{"", statusOK}, {1, statusGap}, {0, statusOK}, {0, statusOK}} {
		c := newCall(bulkScript, g.control, 0, g.name, g.name+"b", 1, step.pieces)
		must(t, x.run(t.Context(), []*call{c}))
		if c.status != step.want {
			t.Errorf("%v pieces: status %d, want %d", step.pieces, c.status, step.want)
		}
	}
	g.aside = g.name + "b"
	must(t, g.abandon(t.Context()))
	must(t, x.run(t.Context(), []*call{g.lease(0)}))
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}
