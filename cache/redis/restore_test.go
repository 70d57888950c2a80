package redis

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// partScans records the parts that a Restore reads, and the number of entries.
type partScans struct {
	*store
	mu      sync.Mutex
	parts   []leaderboard.Part
	entries int
	each    func() // called after each entry; may be nil
}

func (s *partScans) scan(part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	s.mu.Lock()
	s.parts = append(s.parts, part)
	s.mu.Unlock()
	return func(yield func(leaderboard.Entry, error) bool) {
		s.store.scan(func(e leaderboard.Entry, err error) bool {
			if !part.Contains(e.User) {
				return true
			}
			s.entries++
			ok := yield(e, err)
			if s.each != nil {
				s.each()
			}
			return ok
		})
	}
}

func (s *partScans) restore(t testing.TB, x *Index) {
	t.Helper()
	must(t, x.Restore(t.Context(), testBoard, testSeason, epoch, s.scan))
}

// partsOf returns the parts of the lost shards, and the number of all users in them.
func (s *partScans) partsOf(lost []int, shards int) (parts []leaderboard.Part, users int) {
	for _, shard := range lost {
		part := leaderboard.Part{Index: shard, Of: shards}
		parts = append(parts, part)
		for user := range s.store.entries {
			if part.Contains(user) {
				users++
			}
		}
	}
	return parts, users
}

// Shards are lost in different ways, again and again. Updates run before, between and during the
// Restores. Each Restore reads only the users of the lost shards. Afterwards, all contents of the
// index are as after a Rebuild.
func TestRestoreOfLostShards(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	runSeed, rounds := seed.New(t), needs.More(t, 3)
	smallTrees(t)
	const shards = 4
	addrs := []string{cluster.Redis(t)}
	for _, runs := range []bool{false, true} { // whether bulk loads write several runs
		t.Run(fmt.Sprintf("runs=%v", runs), func(t *testing.T) {
			if runs {
				smallRuns(t)
			}
			rng := rand.New(rand.NewPCG(runSeed, 1))
			x, s := openIndex(t, options(addrs, shards)), &partScans{store: newStore(0)}
			users := 0
			change := func(newUsers int) {
				e := randomEntries(rng, 1, 30)[0]
				i := users + 1
				if newUsers > 0 {
					users++
				} else {
					i = 1 + rng.IntN(users)
				}
				e.User = leaderboard.UserID(fmt.Sprint("user ", i))
				s.store.mu.Lock()
				e.Version = s.store.entries[e.User].Version + 1
				s.store.mu.Unlock()
				s.update(t, x, e)
			}
			s.rebuild(t, x)
			for range 100 {
				change(1)
			}
			for round := range rounds {
				for range 30 {
					change(rng.IntN(2))
				}
				control := *x.season(testSeason).control.Load()
				lost := rng.Perm(shards)[:1+rng.IntN(shards-1)]
				slices.Sort(lost)
				for _, shard := range lost {
					switch rng.IntN(3) {
					case 0:
						must(t, x.client().Del(t.Context(), control[shard]).Err())
					case 1:
						must(t, x.run(t.Context(), []*call{newCall(dropScript, control, shard, "lose")}))
					case 2:
						all, err := names(t.Context(), x)
						must(t, err)
						for _, name := range all {
							if strings.HasPrefix(name, control[shard]) {
								must(t, x.client().Del(t.Context(), name).Err())
							}
						}
					}
				}
				checkUnavailable(t, x)
				for range 20 { // the lost shards miss these updates
					change(rng.IntN(2))
				}
				s.parts, s.entries, s.each = nil, 0, nil
				parts, n := s.partsOf(lost, shards)
				if round%2 == 1 {
					s.each = func() {
						if s.entries%4 == 0 {
							change(rng.IntN(2))
						}
					}
				}
				s.restore(t, x)
				if !slices.Equal(s.parts, parts) || s.each == nil && s.entries != n {
					t.Errorf("after the loss of the shards %v, Restore read %d entries of the parts %v, want %d of %v", lost, s.entries, s.parts, n, parts)
				}
				checkLadders(t, x, s.store.entries)
				fresh := openIndex(t, options(addrs, shards))
				s.rebuild(t, fresh)
				if diff := cmp.Diff(contents(t, fresh), contents(t, x)); diff != "" {
					t.Fatalf("after Restore, the index differs from a rebuilt one (-rebuilt +restored):\n%s", diff)
				}
			}
			checkNothingIsLeft(t, x)
		})
	}
}

// One master of a cluster loses its data. Restore reads only the users of this master's shards.
// Meanwhile, a season on another master stays available.
func TestRestoreAfterAFlushOfOneClusterNode(t *testing.T) {
	needs.Slow(t, "clusters")
	c := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	x, s := openIndex(t, options(addrsOf(c), 6)), &partScans{store: newStore(600)}
	s.rebuild(t, x)
	client := x.client().(*goredis.ClusterClient)
	control := *x.season(testSeason).control.Load()
	masterOf := func(key string) string {
		node, err := client.MasterForKey(t.Context(), key)
		must(t, err)
		return node.Options().Addr
	}
	for shard := range 6 {
		node, err := client.MasterForKey(t.Context(), control[shard])
		must(t, err)
		var lost []int
		for i := range control {
			if masterOf(control[i]) == node.Options().Addr {
				lost = append(lost, i)
			}
		}
		away := leaderboard.SeasonKey{Board: testSeason.Board, Season: "away"}
		for i := 0; masterOf(controlKey(x.o.Prefix, away, 0, 1)) == node.Options().Addr; i++ {
			away.Season = leaderboard.SeasonID(fmt.Sprint("away", i))
		}
		y := openIndex(t, options(addrsOf(c), 1))
		must(t, y.Rebuild(t.Context(), testBoard, away, epoch, sequence(nil)))
		must(t, node.FlushAll(t.Context()).Err())
		checkUnavailable(t, x)
		s.parts, s.entries = nil, 0
		s.each = func() {
			if _, _, err := y.Page(t.Context(), leaderboard.Ladder{SeasonKey: away}, 1, 10, leaderboard.Competition); err != nil {
				t.Errorf("a page of a season on another master: %v", err)
			}
		}
		s.restore(t, x)
		if parts, n := s.partsOf(lost, 6); !slices.Equal(s.parts, parts) || s.entries != n || len(lost) == 6 {
			t.Errorf("Restore read %d entries of the parts %v, want %d of %v", s.entries, s.parts, n, parts)
		}
		checkLadders(t, x, s.store.entries)
	}
}

// While a Restore copies shards, a Restore or a Rebuild of another process waits for the lease. A
// waiting Restore then has nothing to do. A waiting Rebuild must read the store: it also
// repairs wrong standings, which the Restore may have copied.
func TestOnlyARestoreAcceptsCopiedShards(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 3)
	x, s := openIndex(t, o), &partScans{store: newStore(100)}
	s.rebuild(t, x)
	lose := func() {
		must(t, x.client().Del(t.Context(), (*x.season(testSeason).control.Load())[1]).Err())
	}
	for _, tt := range []struct {
		name string
		wait func(y *Index, s *partScans) error
		want []leaderboard.Part
	}{
		{"Restore", func(y *Index, s *partScans) error {
			return y.Restore(t.Context(), testBoard, testSeason, epoch, s.scan)
		}, nil},
		{"Rebuild", func(y *Index, s *partScans) error {
			return y.Rebuild(t.Context(), testBoard, testSeason, epoch, s.scan(leaderboard.Part{}))
		}, []leaderboard.Part{{}}},
	} {
		lose()
		y, theirs := openIndex(t, o), &partScans{store: s.store}
		began := countTrips(y)
		done := make(chan error, 1)
		var once sync.Once
		s.each = func() {
			once.Do(func() {
				go func() { done <- tt.wait(y, theirs) }()
				for before := began.Load(); began.Load() < before+4; { // y has asked for the lease
					_ = sleep(t.Context(), leasePoll)
				}
			})
		}
		s.restore(t, x)
		must(t, <-done)
		read := theirs.entries > 0
		if read != (tt.want != nil) {
			t.Errorf("a %s that waited for a Restore read %d entries of the parts %v, want the parts %v", tt.name, theirs.entries, theirs.parts, tt.want)
		}
		checkLadders(t, x, s.store.entries)
	}
}

// After an Update of this process has failed, a shard that is not lost may lack the Update. So
// Restore reads all users.
func TestRestoreAfterAMissedUpdateReadsAllUsers(t *testing.T) {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 3)), &partScans{store: newStore(100)}
	s.rebuild(t, x)
	season := x.season(testSeason)
	season.mu.Lock()
	season.failures++
	x.unsynced.Add(1)
	season.mu.Unlock()
	must(t, x.client().Del(t.Context(), (*season.control.Load())[1]).Err())
	s.restore(t, x)
	if !slices.Equal(s.parts, []leaderboard.Part{{}}) || !x.Synced(testSeason) {
		t.Errorf("Restore read the parts %v, synced %v; want all users, and synced", s.parts, x.Synced(testSeason))
	}
	checkLadders(t, x, s.store.entries)
}
