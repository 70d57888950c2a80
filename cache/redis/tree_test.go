package redis

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// smallTrees reduces the sizes of leaves, groups (see lua/tree.lua), buckets and steps of free.lua.
// A few hundred users then split and join all leaves and groups.
func smallTrees(t *testing.T) {
	t.Helper()
	small := strings.NewReplacer("local BITS = 96", "local BITS = 8", "local GROUP = 256", "local GROUP = 8", "local USERS = 64", "local USERS = 4", "local PIECE = 128", "local PIECE = 10")
	for _, s := range []*script{updateScript, standingsScript, excerptScript, surveyScript, freeScript, bulkScript} {
		original := *s
		*s = *newScript(s.name, small.Replace(s.text))
		t.Cleanup(func() { *s = original })
	}
	usual := treeSizes
	treeSizes.bits, treeSizes.group, treeSizes.users = 8, 8, 4
	t.Cleanup(func() { treeSizes = usual })
}

// raw reads the keys of one generation of a shard: see lua/base.lua and lua/tree.lua.
type raw struct {
	t   testing.TB
	x   *Index
	ctx context.Context
	at  string // the beginning of the names of the generation's keys
}

func rawLive(t testing.TB, x *Index, shard int) raw {
	t.Helper()
	control := (*x.season(testSeason).control.Load())[shard]
	live, err := x.client().HGet(t.Context(), control, "live").Result()
	must(t, err)
	return raw{t, x, t.Context(), control + ":" + live + ":"}
}

func (r raw) zset(key string) []string {
	r.t.Helper()
	all, err := r.x.client().ZRange(r.ctx, r.at+key, 0, -1).Result()
	must(r.t, err)
	return all
}

// leaves returns the names of the groups of a tree, and of the leaves of each group, in order. The
// parameter tree is the number of the tree's ladder.
func (r raw) leaves(tree string) (groups []string, leaves map[string][]string) {
	r.t.Helper()
	leaves = map[string][]string{}
	if groups = r.zset(tree + "r"); len(groups) == 0 {
		groups = []string{""}
	}
	for _, g := range groups {
		if leaves[g] = r.zset(tree + "d" + g); len(leaves[g]) == 0 {
			leaves[g] = []string{""}
		}
	}
	return groups, leaves
}

// ones returns each leaf's number of ones in a key c or f (see lua/tree.lua). It checks that each leaf's
// ones come before its zeros.
func (r raw) ones(key string, leaves, perLeaf int) []int {
	r.t.Helper()
	text, err := r.x.client().GetRange(r.ctx, r.at+key, 0, -1).Result()
	must(r.t, err)
	counts := make([]int, leaves)
	if n := perLeaf / 8 * leaves; len(text) > n {
		r.t.Fatalf("the key %q has %d bytes, want at most %d", key, len(text), n)
	}
	for i := range text {
		leaf := i / (perLeaf / 8)
		counts[leaf] += bits.OnesCount8(text[i])
		if n := bits.LeadingZeros8(^text[i]); n != bits.OnesCount8(text[i]) || n > 0 && counts[leaf]-n != i%(perLeaf/8)*8 {
			r.t.Fatalf("leaf %d in the key %q has a zero bit before a one, in or before the byte %08b", leaf, key, text[i])
		}
	}
	return counts
}

// checkTree checks a tree: the order of its strings, the size of its leaves and groups, and all its counts.
// The tree must have the sizes of smallTrees, and rank keys of 8 bytes.
func (r raw) checkTree(tree string) {
	const keyBytes, perLeaf, perGroup = 8, 8, 8 // a join may add a leaf to a full group
	r.t.Helper()
	groups, leaves := r.leaves(tree)
	var all []string
	var stringCounts, followerCounts []int // by group
	single := len(groups) == 1 && len(leaves[""]) == 1
	for i, g := range groups {
		names := leaves[g]
		if names[0] != g || len(groups) > 1 && len(names) < 2 || len(names) > perGroup+1 {
			r.t.Fatalf("group %d, %q, has %d leaves, the first %q, want the group's name as the first, and 2 to %d leaves, or 1 in a single group", i, g, len(names), names[0], perGroup+1)
		}
		n, f := 0, 0
		var strings, counts []int
		for j, name := range names {
			members := r.zset(tree + "l" + name)
			if len(members) == 0 && !single || len(members) >= perLeaf {
				r.t.Fatalf("leaf %q, one of %d, has %d strings, want 1 to %d, or 0 in an empty tree", name, len(names), len(members), perLeaf-1)
			}
			leafFollowers := 0
			for _, k := range members {
				if len(all) > 0 && (all[len(all)-1] >= k || k < name) {
					r.t.Fatalf("leaf %d, %q: %q comes after %q, want ascending strings, none less than the leaf's name", j, name, k, all[len(all)-1])
				}
				if len(all) > 0 && rankKey(all[len(all)-1], keyBytes) == rankKey(k, keyBytes) {
					leafFollowers++
				}
				all = append(all, k)
			}
			strings, counts = append(strings, len(members)), append(counts, leafFollowers)
			n, f = n+len(members), f+leafFollowers
		}
		stringCounts, followerCounts = append(stringCounts, n), append(followerCounts, f)
		if single {
			break
		}
		if got := r.ones(tree+"c"+g, len(names), perLeaf); !slices.Equal(got, strings) {
			r.t.Fatalf("group %q counts %v strings in its leaves, want %v", g, got, strings)
		}
		if got := r.ones(tree+"f"+g, len(names), perLeaf); !slices.Equal(got, counts) {
			r.t.Fatalf("group %q counts %v followers in its leaves, want %v", g, got, counts)
		}
	}
	r.checkSums(tree, map[string][]int{"": stringCounts, "f": followerCounts})
}

// checkSums checks the Fenwick trees over the groups of a tree. groups[""] has the number of strings
// of each group, and groups["f"] the number of followers.
func (r raw) checkSums(tree string, groups map[string][]int) {
	r.t.Helper()
	sums, err := r.x.client().HGetAll(r.ctx, r.at+tree+"s").Result()
	must(r.t, err)
	if len(groups[""]) == 1 {
		if len(sums) > 0 {
			r.t.Fatalf("a tree of one group has the sums %v, want none", sums)
		}
		return
	}
	for kind, values := range groups {
		total := 0
		for i, v := range values {
			want, n := 0, i+1
			for j := n - n&-n; j < n; j++ {
				want += values[j]
			}
			if got, err := strconv.Atoi(sums[fmt.Sprint(kind, n)]); err != nil || got != want {
				r.t.Fatalf("the sum %s%d in a tree of %d groups is %q, want %d", kind, n, len(values), sums[fmt.Sprint(kind, n)], want)
			}
			total += v
		}
		if got := sums[map[string]string{"": "t", "f": "ft"}[kind]]; got != fmt.Sprint(total) {
			r.t.Fatalf("the total %st is %q, want %d", kind, got, total)
		}
	}
}

// Trees whose leaves and groups often split and join stay exact. The scores have one value,
// four values, or mostly different values.
func TestTreesSplitAndJoin(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	needs.Also(t, "histories")
	runSeed := seed.New(t)
	smallTrees(t)
	addrs := []string{cluster.Redis(t)}
	for i, scores := range []int64{1, 4, 1 << 40} {
		for j, shards := range []int{1, 3} {
			if (i+j)%2 == 0 && !needs.Running("histories") {
				continue
			}
			t.Run(fmt.Sprintf("scores=%d/shards=%d", scores, shards), func(t *testing.T) {
				splitAndJoin(t, openIndex(t, options(addrs, shards)), rand.New(rand.NewPCG(runSeed, uint64(scores))), scores)
			})
		}
	}
}

func splitAndJoin(t *testing.T, x *Index, rng *rand.Rand, scores int64) {
	const users = 900
	s := &store{entries: map[leaderboard.UserID]leaderboard.Entry{}}
	version := uint64(0)
	change := func(n int, share float64) { // makes n Updates; share is the part of the entries that is not hidden
		t.Helper()
		for range n {
			var batch []leaderboard.Entry
			for range 1 + rng.IntN(20) {
				version++
				e := entry(fmt.Sprint("user ", rng.IntN(users)), version, rng.Int64N(scores), []string{"", "F", "M"}[rng.IntN(3)])
				e.AchievedAt = epoch.Add(time.Duration(rng.IntN(1000)) * time.Second)
				e.Hidden = rng.Float64() >= share
				s.put(e)
				batch = append(batch, e)
			}
			must(t, x.Update(t.Context(), testSeason, epoch, batch))
		}
	}
	check := func() {
		t.Helper()
		for shard := range *x.season(testSeason).control.Load() {
			r := rawLive(t, x, shard)
			numbers, err := x.client().HVals(t.Context(), r.at+"l").Result()
			must(t, err)
			for _, n := range numbers {
				r.checkTree(n)
			}
		}
		checkLadders(t, x, s.entries)
	}
	s.rebuild(t, x)
	change(60, 1) // grow
	check()
	for range 4 {
		change(10, 0.9)
		check()
	}
	change(150, 0.2) // shrink
	check()
	change(100, 0.01)
	check()
	change(60, 1)
	check()
	checkPages(t, x, s, rng)
	s.rebuild(t, x)
	check()
	must(t, x.Drop(t.Context(), testSeason))
	if keys, err := names(t.Context(), x); err != nil || len(keys) > 0 {
		t.Errorf("after Drop the keys %q remain, error %v; want none", keys, err)
	}
}

func checkPages(t *testing.T, x *Index, s *store, rng *rand.Rand) {
	t.Helper()
	l := leaderboard.Ladder{SeasonKey: testSeason}
	all := ladder(t, s.entries, leaderboard.Division{})
	for range 100 {
		i, n := rng.IntN(len(all)), rng.IntN(30)
		got, _, err := x.Page(t.Context(), l, int64(i+1), n, leaderboard.Competition)
		must(t, err)
		if want := all[i:min(i+n, len(all))]; !slices.Equal(withoutDense(got), withoutDense(want)) {
			t.Fatalf("page of %d from %d: got %v, want %v", n, i+1, got, want)
		}
		around, _, err := x.Around(t.Context(), l, all[i].User, n, 3, leaderboard.Competition)
		must(t, err)
		if want := all[max(i-n, 0):min(i+4, len(all))]; !slices.Equal(withoutDense(around.Standings), withoutDense(want)) {
			t.Fatalf("%d above and 3 below position %d: got %v, want %v", n, i+1, around.Standings, want)
		}
	}
}
