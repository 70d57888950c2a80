package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// eventually calls try until try returns nil. After 30 s, the test fails.
func eventually(t *testing.T, condition string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s: %v", condition, err)
		}
	}
}

// store holds the entries that a Rebuild reads.
type store struct {
	mu      sync.Mutex
	entries map[leaderboard.UserID]leaderboard.Entry
}

// newStore returns a store of n users with many ties.
func newStore(n int) *store {
	s := &store{entries: map[leaderboard.UserID]leaderboard.Entry{}}
	for i := range n {
		s.put(entry(fmt.Sprint("user ", i), 1, int64(i/3), string("FM"[i%2])))
	}
	return s
}

func (s *store) put(e leaderboard.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[e.User] = e
}

// scan yields the newest version of each entry, even if the version was put after scan began.
func (s *store) scan(yield func(leaderboard.Entry, error) bool) {
	s.mu.Lock()
	var users []leaderboard.UserID
	for user := range s.entries {
		users = append(users, user)
	}
	s.mu.Unlock()
	for _, user := range users {
		s.mu.Lock()
		e := s.entries[user]
		s.mu.Unlock()
		if !yield(e, nil) {
			return
		}
	}
}

func (s *store) rebuild(t testing.TB, x *Index) {
	t.Helper()
	if err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, s.scan); err != nil {
		t.Fatal(err)
	}
}

// update writes an entry to the store and then to the index.
func (s *store) update(t testing.TB, x *Index, e leaderboard.Entry) {
	t.Helper()
	s.put(e)
	if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e}); err != nil {
		t.Fatal(err)
	}
}

// checkUnavailable checks that a read fails and that the season is not loaded.
func checkUnavailable(t *testing.T, x *Index) {
	t.Helper()
	_, _, err := x.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition)
	if !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Page: error %v, want ErrRankUnavailable", err)
	}
	if loaded, err := x.Loaded(t.Context(), testSeason); loaded || err != nil {
		t.Errorf("Loaded = %v, %v, want false, nil", loaded, err)
	}
}

// bucketOf returns the number of a user's bucket: see lua/base.lua.
func bucketOf(user string, buckets int) string {
	h, m := int(bucketHash(user)), 1
	for m < buckets {
		m *= 2
	}
	if i := h % m; i < buckets {
		return fmt.Sprint(i)
	}
	return fmt.Sprint(h % (m / 2))
}

func addrsOf(c *cluster.Cluster) []string { return c.Addrs() }

func TestQuestionsFailWhileTheServerIsDown(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 1)
	o.Redis.MaxRetries, o.UpdateTimeout = -1, 200*time.Millisecond
	x, s := openIndex(t, o), newStore(50)
	s.rebuild(t, x)
	must(t, c.Servers[0].Kill())
	_, _, err := x.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition)
	if !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Page: error %v, want ErrRankUnavailable", err)
	}
	if loaded, err := x.Loaded(t.Context(), testSeason); loaded || !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Loaded = %v, %v, want false and ErrRankUnavailable", loaded, err)
	}
	e := entry("user 1", 2, 99, "")
	s.put(e)
	if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Update: error %v, want ErrRankUnavailable", err)
	}
	must(t, c.Servers[0].Start(t.Context()))
	checkUnavailable(t, x)
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFlushIsDetected(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	x, s := openIndex(t, options(addrsOf(c), 3)), newStore(50)
	s.rebuild(t, x)
	must(t, x.client().FlushAll(t.Context()).Err())
	checkUnavailable(t, x)
	s.update(t, x, entry("user 7", 2, 99, "F")) // the season is not loaded, so Update changes nothing
	checkUnavailable(t, x)
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
	must(t, x.client().ScriptFlush(t.Context()).Err())
	checkLadders(t, x, s.entries)
}

func TestFlushOfOneClusterNodeIsDetected(t *testing.T) {
	needs.Slow(t, "clusters")
	c := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	x, s := openIndex(t, options(addrsOf(c), 6)), newStore(200)
	for shard := range 6 {
		s.rebuild(t, x)
		checkLadders(t, x, s.entries)
		node, err := x.client().(*goredis.ClusterClient).MasterForKey(t.Context(), (*x.season(testSeason).control.Load())[shard])
		must(t, err)
		must(t, node.FlushAll(t.Context()).Err())
		checkUnavailable(t, x)
	}
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}

// roles returns the master of a key in a cluster, and the master's replica.
func roles(t *testing.T, x *Index, c *cluster.Cluster, key string) (master, replica *cluster.Server) {
	t.Helper()
	byAddr := map[string]*cluster.Server{}
	for _, s := range c.Servers {
		byAddr[s.Addr] = s
	}
	keySlot, err := x.client().ClusterKeySlot(t.Context(), key).Result()
	must(t, err)
	eventually(t, "the cluster lists a replica of the master", func(ctx context.Context) error {
		slots, err := x.client().ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		for _, s := range slots {
			if int64(s.Start) <= keySlot && keySlot <= int64(s.End) && len(s.Nodes) == 2 {
				master, replica = byAddr[s.Nodes[0].Addr], byAddr[s.Nodes[1].Addr]
				return nil
			}
		}
		return fmt.Errorf("no master with a replica has slot %d: %+v", keySlot, slots)
	})
	return master, replica
}

// A replica that is promoted while it is behind lacks acknowledged updates. The index must not
// answer from this replica until the missing updates are repeated.
func TestASeasonIsInDoubtAfterThePromotionOfAStaleReplica(t *testing.T) {
	needs.Slow(t, "clusters")
	c := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	o := options(addrsOf(c), 6)
	o.Redis.ReadTimeout, o.Redis.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
	x, s := openIndex(t, o), newStore(200)
	s.rebuild(t, x)
	season := x.season(testSeason)
	const user = "user 17"
	shard := shardOf(user, 6)
	control := (*season.control.Load())[shard]
	live, err := x.client().HGet(t.Context(), control, "live").Result()
	must(t, err)
	buckets, err := x.client().HGet(t.Context(), control, "buckets").Int()
	must(t, err)
	master, replica := roles(t, x, c, control)

	// Pause the replica and cut its connection, so that it receives no more updates.
	must(t, replica.Pause())
	node := goredis.NewClient(&goredis.Options{Addr: master.Addr})
	must(t, node.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	s.update(t, x, entry(user, 2, 1000, "F"))
	checkLadders(t, x, s.entries)
	must(t, node.Close())
	must(t, master.Kill())
	must(t, replica.Resume())

	promoted := goredis.NewClient(&goredis.Options{Addr: replica.Addr})
	defer promoted.Close()
	eventually(t, "the replica is promoted", func(ctx context.Context) error {
		info, err := promoted.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "role:master") {
			err = errors.New("still a replica")
		}
		return err
	})
	eventually(t, "the promoted replica answers with old data", func(ctx context.Context) error {
		record, err := promoted.HGet(ctx, control+":"+live+":u"+bucketOf(user, buckets), user).Result()
		if err == nil && record[:2] != "\x01\x01" { // version 1, after its length
			t.Fatal("the replica has version 2 of the entry, the test needs a replica with version 1")
		}
		return err
	})
	eventually(t, "the season is in doubt", func(ctx context.Context) error {
		got, _, err := x.Standings(ctx, leaderboard.Ladder{SeasonKey: testSeason}, []leaderboard.UserID{user}, leaderboard.Competition)
		if err == nil {
			t.Fatalf("the index answers from stale data: %+v, want an error", got)
		}
		loaded, err := x.Loaded(ctx, testSeason)
		if err == nil && !loaded {
			t.Fatal("Loaded = false on a stale replica, want true, so that no process rebuilds the season")
		}
		return err
	})
	eventually(t, "the season is not in doubt", func(ctx context.Context) error {
		if err := s.keepUp(ctx, x); err != nil {
			return err
		}
		_, _, err := x.Page(ctx, leaderboard.Ladder{SeasonKey: testSeason}, 1, 1, leaderboard.Competition)
		return err
	})
	checkLadders(t, x, s.entries)
	if after, err := x.client().HGet(t.Context(), control, "live").Result(); after != live || err != nil {
		t.Errorf("the live generation is %q, error %v; want %q as before", after, err, live)
	}
	// The old master returns as a replica.
	must(t, master.Start(t.Context()))
	s.update(t, x, entry(user, 3, 1001, "M"))
	checkLadders(t, x, s.entries)
}

// While Redis hangs, two processes update the index. When Redis answers again, the processes repeat
// the failed updates, so no Rebuild is necessary.
func TestFailedUpdatesAreRepeated(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
			o := options(addrsOf(c), shards)
			o.Redis.MaxRetries, o.UpdateTimeout = -1, 800*time.Millisecond
			o.Redis.ReadTimeout, o.Redis.DialTimeout = 700*time.Millisecond, 700*time.Millisecond
			processes := []*Index{openIndex(t, o), openIndex(t, o)}
			const users = 3 * missedChunk
			s := newStore(users)
			s.rebuild(t, processes[0])
			rng, version := rand.New(rand.NewPCG(seed.New(t), 1)), uint64(1)
			for range 2 {
				must(t, c.Servers[0].Pause())
				for i := range users {
					version++
					e := entry(fmt.Sprint("user ", rng.IntN(users)), version, rng.Int64N(100), string("FM"[rng.IntN(2)]))
					s.put(e)
					x := processes[i%2]
					if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e}); !errors.Is(err, leaderboard.ErrRankUnavailable) || x.Synced() {
						t.Fatalf("Update on a paused server: error %v, synced %v; want ErrRankUnavailable, false", err, x.Synced())
					}
				}
				_, _, err := processes[0].Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition)
				if !errors.Is(err, leaderboard.ErrRankUnavailable) {
					t.Errorf("Page: error %v, want ErrRankUnavailable", err)
				}
				must(t, c.Servers[0].Resume())
				for _, x := range processes {
					eventually(t, "the index is synced", func(ctx context.Context) error {
						if loaded, err := x.Loaded(ctx, testSeason); !loaded && err == nil {
							t.Error("Loaded = false while updates are repeated, want true")
						}
						if !x.Synced() {
							return errors.New("not synced")
						}
						return nil
					})
					if n := x.missedEntries.Load(); n != 0 {
						t.Errorf("a synced index still keeps %d entries of failed updates, want 0", n)
					}
				}
				for _, x := range processes {
					checkLadders(t, x, s.entries)
				}
			}
		})
	}
}

// If the failed updates of a process have too many entries, the process drops the season. The season
// is then unavailable to all processes until a Rebuild.
func TestTooManyMissedEntries(t *testing.T) {
	x := openLocal(t, 2)
	y, err := newIndex(x.o)
	must(t, err)
	defer y.Close()
	s := newStore(30)
	s.rebuild(t, x)
	season := x.season(testSeason)
	<-season.rebuild // the process needs this token to drop the data, so the drop waits
	entries := make([]leaderboard.Entry, maxMissed)
	for i := range entries {
		entries[i] = entry(fmt.Sprint("user ", i), 2, 1, "F")
	}
	season.mu.Lock()
	season.repairing = true // so that fail starts no goroutine that repeats updates
	season.mu.Unlock()
	x.fail(season, epoch, entries)
	if loaded, err := x.Loaded(t.Context(), testSeason); !loaded || err != nil {
		t.Errorf("with %d entries of failed updates, Loaded = %v, %v; want true, nil", maxMissed, loaded, err)
	}
	x.fail(season, epoch, []leaderboard.Entry{entry("another user", 1, 1, "F")})
	if loaded, err := x.Loaded(t.Context(), testSeason); loaded || err != nil {
		t.Errorf("with %d entries of failed updates, Loaded = %v, %v; want false, nil", maxMissed+1, loaded, err)
	}
	if n := x.missedEntries.Load(); n != 0 {
		t.Errorf("the process keeps %d entries of failed updates, want 0", n)
	}
	var repair sync.WaitGroup
	repair.Go(func() { x.repair(season) })
	season.rebuild <- struct{}{}
	eventually(t, "the season is not loaded", func(ctx context.Context) error {
		if loaded, err := y.Loaded(ctx, testSeason); loaded || err != nil {
			return fmt.Errorf("loaded %v, error %w", loaded, err)
		}
		return nil
	})
	repair.Wait() // the drop of the second shard would overtake a rebuild
	s.rebuild(t, y)
	checkLadders(t, x, s.entries)
}

// Every page is consistent while 200 writers update the index and another process rebuilds
// the index repeatedly. Afterwards the index is exact.
func TestManyWritersWithReadersAndRebuilds(t *testing.T) {
	needs.Slow(t, "clusters")
	const writers, each, usersEach = 200, 20, 3
	seed := seed.New(t)
	x := openIndex(t, options(cluster.RedisCluster(t), 6))
	o := x.o
	y, err := Open(t.Context(), o)
	must(t, err)
	defer y.Close()
	s := newStore(writers * usersEach)
	s.rebuild(t, x)
	done := make(chan struct{})
	var busy, watching sync.WaitGroup
	for w := range writers {
		busy.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for version := uint64(2); version < 2+each; version++ {
				e := entry(fmt.Sprint("user ", w*usersEach+rng.IntN(usersEach)), version, rng.Int64N(300), []string{"", "F", "M"}[rng.IntN(3)])
				e.Hidden = rng.IntN(10) == 0
				s.put(e)
				if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 4 {
		watching.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(1000+i)))
			for reads := 0; ; reads++ {
				select {
				case <-done:
					if reads == 0 {
						t.Error("a reader read no page, want at least one")
					}
					return
				default:
				}
				got, v, err := y.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1+rng.Int64N(500), 20, leaderboard.Competition)
				if err != nil {
					t.Error(err)
					return
				}
				for i := 1; i < len(got); i++ {
					want := leaderboard.Standing{Key: got[i].Key}
					want.RankAfter(&got[i-1])
					if want.Ranks != got[i].Ranks || got[i-1].SortKey() >= got[i].SortKey() || got[i].Ranks.Ordinal > v.Size {
						t.Errorf("in a ladder of %d standings, %+v follows %+v; want a greater sort key, ranks %+v, and no rank above the size", v.Size, got[i], got[i-1], want.Ranks)
						return
					}
				}
			}
		})
	}
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if err := y.Rebuild(t.Context(), testBoard, testSeason, epoch, s.scan); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	busy.Wait()
	close(done)
	watching.Wait()
	checkLadders(t, x, s.entries)
	checkLadders(t, y, s.entries)
}

// A process dies during its Rebuild. The next Rebuild frees the keys that the dead process left.
func TestADeadRebuilderIsReplaced(t *testing.T) {
	for _, shards := range []int{1, 3} {
		o := options([]string{cluster.Redis(t)}, shards)
		x, s := openIndex(t, o), newStore(100)
		s.rebuild(t, x)
		before, err := names(t.Context(), x)
		must(t, err)

		dead, err := Open(t.Context(), o)
		must(t, err)
		g := beginGeneration(t, dead)
		larger := newStore(300)
		must(t, g.fill(t.Context(), testBoard, larger.scan))
		g.expireSoon(t)
		must(t, dead.client().Close())

		s.update(t, x, entry("user 5", 2, 77, "F")) // also goes to the generation of dead
		checkLadders(t, x, s.entries)
		s.rebuild(t, x)
		checkLadders(t, x, s.entries)
		after, err := names(t.Context(), x)
		must(t, err)
		if len(after) > len(before) {
			t.Errorf("%d shards: %d keys before the Rebuild that died, %d after the next Rebuild, want no more than before: %q", shards, len(before), len(after), after)
		}
	}
}

// A process rebuilds a season after a failed Update. While the process waits for the lease, another
// process begins and ends a Rebuild. The first process accepts this Rebuild and reads no entries.
func TestAFillOfAnotherProcessRepairsTheSeason(t *testing.T) {
	x := openLocal(t, 3)
	y, err := newIndex(x.o)
	must(t, err)
	defer y.Close()
	s := newStore(30)
	s.rebuild(t, y)
	season := x.season(testSeason)
	<-season.rebuild // the process needs this token to drop the season, so the drop waits
	x.fail(season, epoch, nil)
	if x.Synced(testSeason) {
		t.Fatal("Synced = true after a failed update, want false")
	}
	filled := make(chan error)
	scans := 0
	g := beginGeneration(t, y)
	go func() {
		filled <- x.rebuild(t.Context(), testBoard, &generation{season: season}, epoch, func(ctx context.Context, g *generation) error {
			scans++
			return g.fill(ctx, testBoard, s.scan)
		})
	}()
	fills := 0
	for done := false; !done && fills < 100; fills++ { // y keeps the lease
		must(t, g.fill(t.Context(), testBoard, s.scan))
		must(t, g.verify(t.Context()))
		must(t, g.flip(t.Context()))
		select {
		case err := <-filled:
			must(t, err)
			done = true
		case <-time.After(10 * time.Millisecond):
			must(t, g.begin(t.Context(), testBoard, epoch))
		}
	}
	if fills == 100 { // release the lease, so that the goroutine ends
		must(t, y.run(t.Context(), []*call{g.lease(0)}))
		must(t, <-filled)
	}
	if scans != 0 {
		t.Errorf("after %d fills of another process, the first process read the entries %d times, want 0", fills, scans)
	}
	if !x.Synced(testSeason) {
		t.Error("Synced = false after another process filled the season, want true")
	}
	loaded, err := x.Loaded(t.Context(), testSeason)
	if err != nil || !loaded {
		t.Errorf("Loaded = %v, %v, want true, nil", loaded, err)
	}
	season.rebuild <- struct{}{}
	checkLadders(t, x, s.entries)
}

// beginGeneration begins a generation. No goroutine extends its lease.
func beginGeneration(t *testing.T, x *Index) *generation {
	t.Helper()
	g := &generation{x: x, season: x.season(testSeason), token: fmt.Sprint(rand.Uint64())}
	must(t, g.begin(t.Context(), testBoard, epoch))
	return g
}

// expireSoon makes the generation's lease expire in 100 ms.
func (g *generation) expireSoon(t *testing.T) {
	t.Helper()
	must(t, g.x.run(t.Context(), []*call{g.lease(100 * time.Millisecond)}))
}

// After the lease of a Rebuild has expired, this Rebuild must not disturb the next one.
func TestAnOvertakenRebuilderChangesNothing(t *testing.T) {
	for _, shards := range []int{1, 3} {
		o := options([]string{cluster.Redis(t)}, shards)
		x, s := openIndex(t, o), newStore(100)
		s.rebuild(t, x)
		g := beginGeneration(t, x)
		larger := newStore(300)
		must(t, g.fill(t.Context(), testBoard, larger.scan))
		g.expireSoon(t)
		y := openIndex(t, o)
		s.rebuild(t, y) // waits until the lease expires
		for name, step := range map[string]func() error{
			"fill":   func() error { return g.fill(t.Context(), testBoard, larger.scan) },
			"verify": func() error { return g.verify(t.Context()) },
			"flip":   func() error { return g.flip(t.Context()) },
		} {
			if err := step(); !errors.Is(err, errOvertaken) {
				t.Errorf("%s: error %v, want errOvertaken", name, err)
			}
		}
		must(t, x.abandon(t.Context(), g.control, g.name))
		checkLadders(t, x, s.entries)
		checkLadders(t, y, s.entries)
	}
}

// A process dies during its Rebuild. If no Rebuild follows, an Update frees the keys that the
// dead process left.
func TestAnUpdateFreesWhatADeadRebuilderLeft(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 3)
	dead, s := openIndex(t, o), newStore(30)
	s.rebuild(t, dead)
	before, err := names(t.Context(), dead)
	must(t, err)
	g := beginGeneration(t, dead)
	must(t, g.fill(t.Context(), testBoard, s.scan))
	g.expireSoon(t)
	o.LeaseTTL = 50 * time.Millisecond // Updates free keys at most once per LeaseTTL
	x := openIndex(t, o)
	version := uint64(1)
	eventually(t, "the dead generation is freed", func(ctx context.Context) error {
		version++
		s.update(t, x, entry("user 5", version, 10, "F"))
		keys, err := names(ctx, x)
		if err == nil && len(keys) > len(before)+6 { // Updates also add other keys
			err = fmt.Errorf("%d keys, want at most %d: %q", len(keys), len(before)+6, keys)
		}
		return err
	})
	checkLadders(t, x, s.entries)
}

// A flip makes a generation live. If a process ends after the flip of shard 0, readers flip the
// other shards.
func TestReadersFinishAFlip(t *testing.T) {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 4)), newStore(100)
	s.rebuild(t, x)
	flipFirst := func() *generation {
		t.Helper()
		g := beginGeneration(t, x)
		must(t, g.fill(t.Context(), testBoard, s.scan))
		must(t, g.verify(t.Context()))
		first := newCall(flipScript, g.control, 0, g.name)
		must(t, x.run(t.Context(), []*call{first}))
		must(t, x.run(t.Context(), []*call{g.lease(0)}))
		return g
	}
	flipFirst()
	checkLadders(t, x, s.entries)
	// A new Rebuild first finishes the flip.
	flipFirst()
	err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
		checkLadders(t, x, s.entries)
		yield(leaderboard.Entry{}, errors.New("no store"))
	})
	if err == nil {
		t.Error("Rebuild returned nil, want the error that the store returned")
	}
	checkLadders(t, x, s.entries)
	// abandon also finishes the flip.
	g := flipFirst()
	must(t, x.abandon(t.Context(), g.control, g.name))
	checkLadders(t, x, s.entries)
}

// beforeUser is a hook that calls the function f before the first pipeline that names the user.
type beforeUser struct {
	goredis.Hook
	user string
	f    func()
	once sync.Once
}

func (h *beforeUser) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, calls []goredis.Cmder) error {
		if slices.ContainsFunc(calls, func(c goredis.Cmder) bool { return slices.Contains(c.Args(), any(h.user)) }) {
			h.once.Do(h.f)
		}
		return next(ctx, calls)
	}
}

// If another process rebuilds the index between two batches of Standings, Standings repeats only the
// second batch.
func TestStandingsRepeatsALaterBatch(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 4)
	x, y, s := openIndex(t, o), openIndex(t, o), newStore(batchUsers+50)
	s.rebuild(t, x)
	want := ladder(t, s.entries, leaderboard.Division{})
	var users []leaderboard.UserID
	for _, st := range want {
		users = append(users, st.User)
	}
	replaced := false
	x.client().AddHook(&beforeUser{Hook: &trips{}, user: string(users[batchUsers+10]), f: func() {
		// Make a new generation live in shard 0 only.
		g := beginGeneration(t, y)
		must(t, g.fill(t.Context(), testBoard, s.scan))
		must(t, g.verify(t.Context()))
		must(t, y.run(t.Context(), []*call{newCall(flipScript, g.control, 0, g.name)}))
		replaced = true
	}})
	got, v, err := x.Standings(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, users, leaderboard.Competition)
	must(t, err)
	if diff := cmp.Diff(withoutDense(want), withoutDense(got)); diff != "" || v.Size != int64(len(want)) || !replaced {
		t.Errorf("rebuilt between the batches: %v, want true; size %d, want %d; standings (-want +got)\n%s", replaced, v.Size, len(want), diff)
	}
}

// A process that is configured with another number of shards uses the number that Redis records.
func TestTheRecordedNumberOfShardsIsUsed(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 4)
	x, s := openIndex(t, o), newStore(100)
	s.rebuild(t, x)
	for i, shards := range []int{1, 2, 16} {
		o.Shards = shards
		for n := range 10 { // each process begins with an update
			y := openIndex(t, o)
			s.update(t, y, entry(fmt.Sprint("user ", n), uint64(2+i), int64(50*i+n), "F"))
		}
		y := openIndex(t, o)
		checkLadders(t, y, s.entries)
		checkLadders(t, x, s.entries)
		y = openIndex(t, o)
		if _, _, err := y.Around(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, "user 3", 1, 1, leaderboard.Competition); err != nil {
			t.Error(err)
		}
		s.rebuild(t, openIndex(t, o))
		checkLadders(t, x, s.entries)
	}
	o.Shards = 2
	y := openIndex(t, o)
	must(t, y.Drop(t.Context(), testSeason))
	checkUnavailable(t, x)
	if keys, err := names(t.Context(), x); err != nil || len(keys) > 0 {
		t.Errorf("after Drop the keys %q remain, error %v; want none", keys, err)
	}
	s.rebuild(t, y)
	checkLadders(t, x, s.entries)
}

func TestOpenRefusesAServerThatEvicts(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	x := openIndex(t, options(addrsOf(c), 1))
	must(t, x.client().ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	must(t, x.client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	if _, err := Open(t.Context(), x.o); err == nil || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("Open of a server that evicts keys: error %v, want an error about allkeys-lru", err)
	}
	// A server that did not answer at first is inspected later.
	late, err := newIndex(x.o)
	must(t, err)
	defer late.Close()
	unreachable := errors.New("Redis did not answer")
	late.unfit.Store(&unreachable)
	late.background.Go(late.inspectUntilFit)
	eventually(t, "a server that answers late is rejected", func(ctx context.Context) error {
		_, err := late.Loaded(ctx, testSeason)
		if !errors.Is(err, leaderboard.ErrRankUnavailable) || !strings.Contains(err.Error(), "allkeys-lru") {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	must(t, x.client().ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	eventually(t, "the server is accepted", func(ctx context.Context) error {
		_, err := late.Loaded(ctx, testSeason)
		return err
	})
	openIndex(t, x.o)
}

// A running server is configured to evict keys. Until the setting is corrected, reads fail.
// Afterwards the season is not loaded, because it may lack keys.
func TestAServerThatBeginsToEvict(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	x, err := newIndex(options(addrsOf(c), 1))
	must(t, err)
	defer x.Close()
	other, s := openIndex(t, x.o), newStore(50)
	s.rebuild(t, x)
	x.periodic.Go(func() { x.inspectEvery(20 * time.Millisecond) })
	must(t, x.client().ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	must(t, x.client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	eventually(t, "reads fail", func(ctx context.Context) error {
		_, _, err := x.Page(ctx, leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition)
		if !errors.Is(err, leaderboard.ErrRankUnavailable) || x.Synced() {
			return fmt.Errorf("Page: error %w, synced %v", err, x.Synced())
		}
		return nil
	})
	err = other.Rebuild(t.Context(), testBoard, testSeason, epoch, s.scan)
	if !errors.Is(err, leaderboard.ErrRankUnavailable) || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("Rebuild: error %v, want ErrRankUnavailable with the text allkeys-lru", err)
	}
	must(t, x.client().ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	for _, process := range []*Index{x, other} {
		eventually(t, "the season is not loaded", func(ctx context.Context) error {
			if loaded, err := process.Loaded(ctx, testSeason); loaded || err != nil {
				return fmt.Errorf("Loaded = %v, %w", loaded, err)
			}
			return nil
		})
	}
	s.rebuild(t, x)
	checkLadders(t, other, s.entries)
}

// Open succeeds while Redis is down. The index uses Redis once Redis answers.
func TestOpenBeforeRedis(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 1)
	o.Redis.MaxRetries, o.UpdateTimeout = -1, 200*time.Millisecond
	must(t, c.Servers[0].Kill())
	x, s := openIndex(t, o), newStore(50)
	if _, _, err := x.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Page: error %v, want ErrRankUnavailable", err)
	}
	must(t, c.Servers[0].Start(t.Context()))
	eventually(t, "the index uses Redis", func(ctx context.Context) error {
		_, err := x.Loaded(ctx, testSeason)
		return err
	})
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}

// After a failed update, an index is not synced until its process has repeated the update.
func TestSynced(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 2)
	o.Redis.MaxRetries, o.UpdateTimeout = -1, time.Second
	o.Redis.ReadTimeout, o.Redis.DialTimeout = time.Second, time.Second
	x, s := openIndex(t, o), newStore(50)
	y := openIndex(t, o)
	s.rebuild(t, x)
	update := func(version uint64) error {
		e := entry("user 1", version, int64(version), "F")
		s.put(e)
		return x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e})
	}
	must(t, update(2))
	if !x.Synced() {
		t.Error("Synced = false after an update that succeeded, want true")
	}
	must(t, c.Servers[0].Pause())
	for version := uint64(3); version < 6; version++ {
		if err := update(version); !errors.Is(err, leaderboard.ErrRankUnavailable) || x.Synced() {
			t.Errorf("update %d on a paused server: error %v, synced %v, want ErrRankUnavailable, false", version, err, x.Synced())
		}
	}
	if !y.Synced() {
		t.Error("Synced = false in another process, want true")
	}
	must(t, c.Servers[0].Resume())
	eventually(t, "the index is synced", func(context.Context) error {
		if !x.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	checkLadders(t, x, s.entries)
	must(t, update(7))
	checkLadders(t, y, s.entries)
}

// While Redis hangs, a process ends before its update is in the index. Another process calls
// Invalidate, and at once no longer reads the old ranks. Soon no process reads them.
func TestInvalidate(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 2)
	o.Redis.MaxRetries, o.UpdateTimeout = -1, time.Second
	o.Redis.ReadTimeout, o.Redis.DialTimeout = time.Second, time.Second
	x, s := openIndex(t, o), newStore(50)
	y := openIndex(t, o)
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
	checkLadders(t, y, s.entries)
	must(t, c.Servers[0].Pause())
	s.put(entry("user 1", 2, 2, "F")) // this update is not in the index
	x.Invalidate(testSeason)
	if x.Synced(testSeason) || !x.Synced(leaderboard.SeasonKey{Board: "another", Season: leaderboard.SeasonAll}) {
		t.Error("Synced = true for the invalidated season, or false for another season; want false, true")
	}
	must(t, c.Servers[0].Resume())
	checkUnavailable(t, x)
	eventually(t, "the season is not loaded", func(ctx context.Context) error {
		if loaded, err := y.Loaded(ctx, testSeason); loaded || err != nil {
			return fmt.Errorf("loaded %v, error %w", loaded, err)
		}
		return nil
	})
	s.rebuild(t, y)
	checkLadders(t, x, s.entries)
	checkLadders(t, y, s.entries)
}

// A Redis server without free memory rejects an update before the update changes anything. After some
// attempts, the season is unavailable to every process.
func TestAFullServerRejectsWholeUpdates(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 3)
	y, s := openIndex(t, o), newStore(50)
	s.rebuild(t, y)
	y.background.Wait()
	o.UpdateTimeout = 500 * time.Millisecond
	x := openIndex(t, o)
	must(t, x.client().ConfigSet(t.Context(), "maxmemory", "1").Err())
	for start := time.Now(); time.Since(start) < 150*time.Millisecond; { // more than the 100 ms after which reads check the server again
		checkLadders(t, x, s.entries)
	}
	e := entry("user 1", 2, 99, "F")
	s.put(e)
	if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Update: error %v, want ErrRankUnavailable", err)
	}
	eventually(t, "the season is not loaded for another process", func(ctx context.Context) error {
		if loaded, err := y.Loaded(ctx, testSeason); loaded || err != nil {
			return fmt.Errorf("Loaded = %v, %v, want false, nil", loaded, err)
		}
		return nil
	})
	must(t, x.client().ConfigSet(t.Context(), "maxmemory", "0").Err())
	checkUnavailable(t, x)
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}

// envRebuild makes the test binary run rebuildSlowly instead of tests.
const envRebuild = "REDIS_TEST_REBUILD"

// rebuildSlowly rebuilds a season with entries that are not in the test's store. Half way, it prints a
// line and waits for a line of input.
func rebuildSlowly(args string) error {
	addr, prefix, _ := strings.Cut(args, " ")
	ctx := context.Background()
	x, err := Open(ctx, Options{Redis: &goredis.UniversalOptions{Addrs: []string{addr}}, Shards: 3, Prefix: prefix, LeaseTTL: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	defer x.Close()
	err = x.Rebuild(ctx, testBoard, testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
		for i := range 2000 {
			if i == 1000 {
				fmt.Println("half way")
				if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
					yield(leaderboard.Entry{}, err)
					return
				}
			}
			if !yield(entry(fmt.Sprint("orphan ", i), 1, int64(i), ""), nil) {
				return
			}
		}
	})
	fmt.Println("ended:", err)
	return nil
}

// A process is suspended during its Rebuild, and another process rebuilds the season. When the first
// process continues, it changes nothing.
func TestAStoppedRebuilderChangesNothing(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 3)
	x, s := openIndex(t, o), newStore(100)
	s.rebuild(t, x)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), envRebuild+"="+o.Redis.Addrs[0]+" "+o.Prefix)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "half way\n" {
		t.Fatalf("the process printed %q, %v, want \"half way\"", line, err)
	}
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	s.update(t, x, entry("user 3", 2, 555, "F"))
	s.rebuild(t, x) // waits until the lease expires
	checkLadders(t, x, s.entries)
	_, err = io.WriteString(in, "\n")
	must(t, err)
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	line, err := lines.ReadString('\n')
	if !strings.Contains(line, leaderboard.ErrRankUnavailable.Error()) {
		t.Errorf("after it continued, the suspended process printed %q, %v, want ErrRankUnavailable", line, err)
	}
	must(t, cmd.Wait())
	checkLadders(t, x, s.entries)
	keys, err := names(t.Context(), x)
	must(t, err)
	live, err := x.client().HGet(t.Context(), (*x.season(testSeason).control.Load())[0], "live").Result()
	must(t, err)
	if i := slices.IndexFunc(keys, func(k string) bool { return strings.Contains(k, "}:") && !strings.Contains(k, live) }); i >= 0 {
		t.Errorf("key %q remains, want only keys of generation %s", keys[i], live)
	}
}

// Six processes call Rebuild while a first Rebuild runs. They wait for its lease. The first Rebuild may
// have read the store before their calls, so one of the six processes reads the store again. The other
// five accept this second Rebuild.
func TestConcurrentRebuildsAreMerged(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 2)
	s := newStore(100)
	var reads sync.Map
	first := openIndex(t, o)
	others := make([]*Index, 6)
	for i := range others {
		others[i] = openIndex(t, o)
	}
	var all sync.WaitGroup
	err := first.Rebuild(t.Context(), testBoard, testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
		const waiting = 10 // round trips of a Rebuild that waits for the lease; it makes fewer before
		var tripsOf []*trips
		for _, x := range others {
			tripsOf = append(tripsOf, countTrips(x))
		}
		for i, x := range others {
			all.Go(func() {
				err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
					reads.Store(i, true)
					s.scan(yield)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "all processes have begun a Rebuild", func(context.Context) error {
			for _, n := range tripsOf {
				if n.Load() < waiting {
					return errors.New("not all processes wait for the lease")
				}
			}
			return nil
		})
		s.scan(yield)
	})
	must(t, err)
	all.Wait()
	n := 0
	reads.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d of %d waiting rebuilds read the store, want 1", n, len(others))
	}
	checkLadders(t, first, s.entries)
	checkLadders(t, others[3], s.entries)
}

// The index finds the master through a Sentinel that requires a password, or a user and a password.
func TestBehindSentinel(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	program, err := exec.LookPath("redis-server")
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	host, port, _ := strings.Cut(c.Servers[0].Addr, ":")
	_, sentinelPort, _ := strings.Cut(addr, ":")
	conf := t.TempDir() + "/sentinel.conf"
	must(t, os.WriteFile(conf, []byte(fmt.Sprintf("bind 127.0.0.1\nport %s\nrequirepass secret\nuser finder on >found +@all\nsentinel monitor board %s %s 1\n", sentinelPort, host, port)), 0o600))
	cmd := exec.Command(program, conf, "--sentinel")
	must(t, cmd.Start())
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the process was killed
	})
	o := options([]string{addr}, 0)
	o.Redis.MasterName, o.Redis.SentinelPassword = "board", "secret"
	eventually(t, "Sentinel answers", func(ctx context.Context) error {
		x, err := Open(ctx, o)
		if err != nil {
			return err
		}
		return x.Close()
	})
	for _, tt := range []struct{ user, password, want string }{
		{"", "", "NOAUTH"}, {"", "wrong", "WRONGPASS"}, {"finder", "wrong", "WRONGPASS"}, {"nobody", "found", "WRONGPASS"}, {"finder", "found", ""},
	} {
		o := options([]string{addr}, 0)
		o.Redis.MasterName, o.Redis.SentinelUsername, o.Redis.SentinelPassword = "board", tt.user, tt.password
		x, err := Open(t.Context(), o)
		if err == nil {
			must(t, x.Close())
		}
		if tt.want == "" && err == nil {
			continue
		}
		if tt.want == "" || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "redis.sentinel_username and redis.sentinel_password") {
			t.Errorf("Open as Sentinel user %q with password %q: error %v, want %q and the names of the settings (empty: want nil)", tt.user, tt.password, err, tt.want)
		}
	}
	x, s := openIndex(t, o), newStore(30)
	if x.o.Shards != 1 {
		t.Errorf("the default number of shards is %d, want 1", x.o.Shards)
	}
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}
