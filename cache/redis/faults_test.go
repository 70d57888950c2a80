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

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// eventually tries a condition until it holds.
func eventually(t *testing.T, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// store is a store of the test's, and what the index must say.
type store struct {
	mu      sync.Mutex
	entries map[leaderboard.UserID]leaderboard.Entry
}

// newStore returns a store of n users, with many ties.
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

// scan yields each entry as it is when its turn comes.
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
	if err := x.Rebuild(t.Context(), testBoard, testScope, epoch, s.scan); err != nil {
		t.Fatal(err)
	}
}

// update writes an entry to the store, and then to the index.
func (s *store) update(t testing.TB, x *Index, e leaderboard.Entry) {
	t.Helper()
	s.put(e)
	if err := x.Update(t.Context(), testScope, epoch, []leaderboard.Entry{e}); err != nil {
		t.Fatal(err)
	}
}

// unavailable checks that a question is refused, and that the scope is not loaded.
func unavailable(t *testing.T, x *Index) {
	t.Helper()
	_, _, err := x.Page(t.Context(), leaderboard.Ladder{Scope: testScope}, 1, 10)
	if !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v, want ErrRankUnavailable", err)
	}
	if loaded, err := x.Loaded(t.Context(), testScope); loaded || err != nil {
		t.Errorf("loaded %v, error %v", loaded, err)
	}
}

func addrsOf(c *cluster.Cluster) []string { return c.Addrs() }

func TestAServerThatIsGoneAnswersNothing(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 1)
	o.Redis.MaxRetries, o.UpdateTimeout = -1, 200*time.Millisecond
	x, s := opened(t, o), newStore(50)
	s.rebuild(t, x)
	must(t, c.Servers[0].Kill())
	_, _, err := x.Page(t.Context(), leaderboard.Ladder{Scope: testScope}, 1, 10)
	if !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v of a page, want ErrRankUnavailable", err)
	}
	if loaded, err := x.Loaded(t.Context(), testScope); loaded || !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("loaded %v, error %v, want ErrRankUnavailable", loaded, err)
	}
	e := entry("user 1", 2, 99, "")
	s.put(e)
	if err := x.Update(t.Context(), testScope, epoch, []leaderboard.Entry{e}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v of an update, want ErrRankUnavailable", err)
	}
	must(t, c.Servers[0].Start(t.Context()))
	unavailable(t, x)
	s.rebuild(t, x)
	agrees(t, x, s.entries)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A server that comes back with its data may have lost the last second of it.
func TestAServerThatComesBackWithOldDataIsNotBelieved(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	for _, shards := range []int{1, 3} {
		x, s := opened(t, options(addrsOf(c), shards)), newStore(50)
		s.rebuild(t, x)
		must(t, c.Servers[0].Kill())
		must(t, c.Servers[0].Start(t.Context()))
		if left, err := names(t.Context(), x); err != nil || len(left) == 0 {
			t.Fatalf("keys %v, error %v: the test needs a server that kept its data", left, err)
		}
		unavailable(t, x)
		s.rebuild(t, x)
		agrees(t, x, s.entries)
	}
}

func TestFlushIsNoticed(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	x, s := opened(t, options(addrsOf(c), 3)), newStore(50)
	s.rebuild(t, x)
	must(t, x.client.FlushAll(t.Context()).Err())
	unavailable(t, x)
	s.update(t, x, entry("user 7", 2, 99, "F")) // nothing to update
	unavailable(t, x)
	s.rebuild(t, x)
	agrees(t, x, s.entries)
	must(t, x.client.ScriptFlush(t.Context()).Err())
	agrees(t, x, s.entries)
}

func TestFlushOfOneNodeOfAClusterIsNoticed(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	x, s := opened(t, options(addrsOf(c), 6)), newStore(200)
	for shard := range 6 {
		s.rebuild(t, x)
		agrees(t, x, s.entries)
		node, err := x.client.(*goredis.ClusterClient).MasterForKey(t.Context(), (*x.scope(testScope).control.Load())[shard])
		must(t, err)
		must(t, node.FlushAll(t.Context()).Err())
		unavailable(t, x)
	}
	s.rebuild(t, x)
	agrees(t, x, s.entries)
}

// roles returns the addresses of a cluster's node that has a key, and of its replica.
func roles(t *testing.T, x *Index, c *cluster.Cluster, key string) (master, replica *cluster.Server) {
	t.Helper()
	of := map[string]*cluster.Server{}
	for _, s := range c.Servers {
		of[s.Addr] = s
	}
	want, err := x.client.ClusterKeySlot(t.Context(), key).Result()
	must(t, err)
	eventually(t, "every node knows of the replicas", func(ctx context.Context) error {
		slots, err := x.client.ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		for _, s := range slots {
			if int64(s.Start) <= want && want <= int64(s.End) && len(s.Nodes) == 2 {
				master, replica = of[s.Nodes[0].Addr], of[s.Nodes[1].Addr]
				return nil
			}
		}
		return fmt.Errorf("slot %d among %+v", want, slots)
	})
	return master, replica
}

// A replica that is made master while it is behind lacks updates that were
// acknowledged, and whoever it asks must not be told so as if they never were.
func TestAReplicaThatWasBehindIsNotBelieved(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	o := options(addrsOf(c), 6)
	o.Redis.ReadTimeout, o.Redis.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
	x, s := opened(t, o), newStore(200)
	s.rebuild(t, x)
	sc := x.scope(testScope)
	const user = "user 17"
	shard := shardOf(user, 6)
	control := (*sc.control.Load())[shard]
	live, err := x.client.HGet(t.Context(), control, "live").Result()
	must(t, err)
	master, replica := roles(t, x, c, control)

	// The replica sleeps, and its connection is gone, so that it gets nothing more.
	must(t, replica.Pause())
	node := goredis.NewClient(&goredis.Options{Addr: master.Addr})
	must(t, node.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	s.update(t, x, entry(user, 2, 1000, "F"))
	agrees(t, x, s.entries)
	must(t, node.Close())
	must(t, master.Kill())
	must(t, replica.Resume())

	promoted := goredis.NewClient(&goredis.Options{Addr: replica.Addr})
	defer promoted.Close()
	eventually(t, "promotion", func(ctx context.Context) error {
		info, err := promoted.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "role:master") {
			err = errors.New("still a replica")
		}
		return err
	})
	eventually(t, "the raw state", func(ctx context.Context) error {
		state, err := promoted.HGet(ctx, control+":"+live+":u", user).Result()
		if err == nil && state[:8] != bigEndian(1) {
			t.Fatal("the replica was not behind, which this test is about")
		}
		return err
	})
	eventually(t, "an answer", func(ctx context.Context) error {
		got, _, err := x.Standings(ctx, leaderboard.Ladder{Scope: testScope}, []leaderboard.UserID{user})
		if err == nil {
			t.Fatalf("a wrong answer: %+v", got)
		}
		loaded, err := x.Loaded(ctx, testScope)
		if loaded {
			t.Fatal("loaded")
		}
		return err
	})
	eventually(t, "a rebuild", func(ctx context.Context) error { return x.Rebuild(ctx, testBoard, testScope, epoch, s.scan) })
	agrees(t, x, s.entries)
	// The old master comes back as a replica, and things go on.
	must(t, master.Start(t.Context()))
	s.update(t, x, entry(user, 3, 1001, "M"))
	agrees(t, x, s.entries)
}

// An update of which nobody knows whether Redis took it makes the scope
// unavailable, for other processes too.
func TestAnUpdateThatFailsIsMadeUpFor(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 2)
	other := opened(t, o)
	o.Redis.ReadTimeout, o.UpdateTimeout = 50*time.Millisecond, 200*time.Millisecond
	x, s := opened(t, o), newStore(50)
	s.rebuild(t, x)
	must(t, c.Servers[0].Pause())
	e := entry("user 3", 2, 500, "F")
	s.put(e)
	err := x.Update(t.Context(), testScope, epoch, []leaderboard.Entry{e})
	if !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v, want ErrRankUnavailable", err)
	}
	_, _, err = x.Page(t.Context(), leaderboard.Ladder{Scope: testScope}, 1, 10)
	if !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v, want ErrRankUnavailable", err)
	}
	must(t, c.Servers[0].Resume())
	eventually(t, "the other process", func(ctx context.Context) error {
		if loaded, err := other.Loaded(ctx, testScope); loaded || err != nil {
			return fmt.Errorf("loaded %v, error %v", loaded, err)
		}
		return nil
	})
	s.rebuild(t, other)
	eventually(t, "the process that failed", func(ctx context.Context) error {
		if loaded, err := x.Loaded(ctx, testScope); !loaded || err != nil {
			return fmt.Errorf("loaded %v, error %v", loaded, err)
		}
		return nil
	})
	agrees(t, x, s.entries)
	agrees(t, other, s.entries)
}

// Two hundred writers and some readers, and a Rebuild now and then by another process.
func TestManyWriters(t *testing.T) {
	const writers, each, usersEach = 200, 20, 3
	seed := seeded(t)
	x := opened(t, options(cluster.RedisCluster(t), 6))
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
				if err := x.Update(t.Context(), testScope, epoch, []leaderboard.Entry{e}); err != nil {
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
						t.Error("nothing was read")
					}
					return
				default:
				}
				got, v, err := y.Page(t.Context(), leaderboard.Ladder{Scope: testScope}, 1+rng.Int64N(500), 20)
				if err != nil {
					t.Error(err)
					return
				}
				for i := 1; i < len(got); i++ {
					want := leaderboard.Standing{Key: got[i].Key}
					want.Succeed(&got[i-1])
					if want.Ranks != got[i].Ranks || got[i-1].SortKey() >= got[i].SortKey() || got[i].Ranks.Ordinal > v.Size {
						t.Errorf("%+v behind %+v of %d", got[i], got[i-1], v.Size)
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
				if err := y.Rebuild(t.Context(), testBoard, testScope, epoch, s.scan); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	busy.Wait()
	close(done)
	watching.Wait()
	agrees(t, x, s.entries)
	agrees(t, y, s.entries)
}

// One that dies while it rebuilds is followed by another, which frees what it left.
func TestADeadRebuilderIsReplaced(t *testing.T) {
	for _, shards := range []int{1, 3} {
		o := options([]string{cluster.Redis(t)}, shards)
		o.LeaseTTL = 300 * time.Millisecond
		x, s := opened(t, o), newStore(100)
		s.rebuild(t, x)
		before, err := names(t.Context(), x)
		must(t, err)

		dead, err := Open(t.Context(), o)
		must(t, err)
		g := begun(t, dead)
		ghosts := newStore(300)
		must(t, g.fill(t.Context(), testBoard, ghosts.scan))
		must(t, dead.client.Close()) // so it cannot say that it is no more

		s.update(t, x, entry("user 5", 2, 77, "F")) // goes to both generations
		agrees(t, x, s.entries)
		s.rebuild(t, x)
		agrees(t, x, s.entries)
		after, err := names(t.Context(), x)
		must(t, err)
		if len(after) > len(before) {
			t.Errorf("%d shards: %d keys before, %d after: %q", shards, len(before), len(after), after)
		}
	}
}

// begun returns a generation that is being built, by nobody who prolongs the lease.
func begun(t *testing.T, x *Index) *generation {
	t.Helper()
	g := &generation{x: x, sc: x.scope(testScope), token: fmt.Sprint(rand.Uint64())}
	must(t, g.begin(t.Context(), testBoard, epoch))
	return g
}

// One that is long paused while it rebuilds must not get in the way of the next.
func TestAnOvertakenRebuilderChangesNothing(t *testing.T) {
	for _, shards := range []int{1, 3} {
		o := options([]string{cluster.Redis(t)}, shards)
		o.LeaseTTL = 100 * time.Millisecond
		x, s := opened(t, o), newStore(100)
		s.rebuild(t, x)
		g := begun(t, x)
		ghosts := newStore(300)
		must(t, g.fill(t.Context(), testBoard, ghosts.scan))
		y := opened(t, o)
		s.rebuild(t, y) // once the lease has run out
		for name, late := range map[string]func() error{
			"fill":   func() error { return g.fill(t.Context(), testBoard, ghosts.scan) },
			"verify": func() error { return g.verify(t.Context()) },
			"flip":   func() error { return g.flip(t.Context()) },
		} {
			if err := late(); !errors.Is(err, errOvertaken) {
				t.Errorf("%s: error %v, want errOvertaken", name, err)
			}
		}
		must(t, x.abandon(t.Context(), g.control, g.name))
		agrees(t, x, s.entries)
		agrees(t, y, s.entries)
	}
}

// Nobody calls Rebuild any more: an update frees what a dead one has left.
func TestAnUpdateFreesWhatADeadRebuilderLeft(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 3)
	o.LeaseTTL = 50 * time.Millisecond
	x, s := opened(t, o), newStore(30)
	s.rebuild(t, x)
	before, err := names(t.Context(), x)
	must(t, err)
	g := begun(t, x)
	must(t, g.fill(t.Context(), testBoard, s.scan))
	version := uint64(1)
	eventually(t, "the generation is freed", func(ctx context.Context) error {
		version++
		s.update(t, x, entry("user 5", version, 10, "F"))
		now, err := names(ctx, x)
		if err == nil && len(now) > len(before)+6 { // outboxes come and go
			err = fmt.Errorf("%d keys, %d before: %q", len(now), len(before), now)
		}
		return err
	})
	agrees(t, x, s.entries)
}

// A Rebuild whose process ends once it has decided is finished by readers.
func TestReadersFinishAFlip(t *testing.T) {
	x, s := opened(t, options([]string{cluster.Redis(t)}, 4)), newStore(100)
	s.rebuild(t, x)
	flipFirst := func() *generation {
		t.Helper()
		g := begun(t, x)
		must(t, g.fill(t.Context(), testBoard, s.scan))
		must(t, g.verify(t.Context()))
		first := newCall(flipScript, g.control, 0, g.name)
		must(t, x.run(t.Context(), []*call{first}))
		must(t, x.run(t.Context(), []*call{g.lease(0)}))
		return g
	}
	flipFirst()
	agrees(t, x, s.entries)
	// So does a Rebuild, before it begins a generation of its own.
	flipFirst()
	err := x.Rebuild(t.Context(), testBoard, testScope, epoch, func(yield func(leaderboard.Entry, error) bool) {
		agrees(t, x, s.entries)
		yield(leaderboard.Entry{}, errors.New("no store"))
	})
	if err == nil {
		t.Error("no error of a Rebuild whose entries end in one")
	}
	agrees(t, x, s.entries)
	// And so does whoever gives it up.
	g := flipFirst()
	must(t, x.abandon(t.Context(), g.control, g.name))
	agrees(t, x, s.entries)
}

// A writer that dies before it has told the homes of rank keys: a reader does.
func TestReadersTellWhatAWriterLeftUntold(t *testing.T) {
	x, s := opened(t, options([]string{cluster.Redis(t)}, 4)), newStore(100)
	s.rebuild(t, x)
	control := *x.scope(testScope).control.Load()
	for i := range 20 {
		e := entry(fmt.Sprint("user ", i), 2, int64(1000+i), "F")
		s.put(e)
		c := newCall(updateScript, control, shardOf(e.User, 4), append([]any{"", 0, "", 0}, entryArgs(&e)...)...)
		must(t, x.run(t.Context(), []*call{c}))
	}
	distinct := map[leaderboard.RankKey]bool{}
	for _, e := range s.entries {
		distinct[e.Key] = true
	}
	eventually(t, "dense ranks", func(ctx context.Context) error {
		got, _, err := x.Count(ctx, leaderboard.Ladder{Scope: testScope}, []leaderboard.RankKey{"\xff"})
		if err == nil && got[0].Distinct != int64(len(distinct)) {
			err = fmt.Errorf("%d different rank keys, want %d", got[0].Distinct, len(distinct))
		}
		return err
	})
	agrees(t, x, s.entries)
}

// A shard that hears of what it was told before, and no longer knows, has lost it.
func TestAShardThatWentBackIsNotBelieved(t *testing.T) {
	for _, side := range []string{"i", "o"} { // the one that was told, the one that told
		x, s := opened(t, options([]string{cluster.Redis(t)}, 2)), newStore(100)
		s.rebuild(t, x)
		control := *x.scope(testScope).control.Load()
		eventually(t, "acknowledgements", func(ctx context.Context) error {
			for shard, other := range []string{"1", "0"} {
				live, err := x.client.HGet(ctx, control[shard], "live").Result()
				if err != nil {
					return err
				}
				w := control[shard] + ":" + live + ":w"
				told, err := x.client.HGet(ctx, w, "o"+other).Int()
				if err != nil || told == 0 {
					return fmt.Errorf("told %d, error %w", told, err)
				}
			}
			return nil
		})
		for shard := range control {
			live, err := x.client.HGet(t.Context(), control[shard], "live").Result()
			must(t, err)
			w := control[shard] + ":" + live + ":w"
			must(t, x.client.HSet(t.Context(), w, side+fmt.Sprint(1-shard), 0).Err())
		}
		version := uint64(1)
		eventually(t, "notice", func(ctx context.Context) error {
			version++
			for i := range 10 {
				s.update(t, x, entry(fmt.Sprint("user ", i), version, int64(version*20)+int64(i), ""))
			}
			if loaded, err := x.Loaded(ctx, testScope); loaded || err != nil {
				return fmt.Errorf("side %q: loaded %v, error %v", side, loaded, err)
			}
			return nil
		})
		s.rebuild(t, x)
		agrees(t, x, s.entries)
	}
}

// Processes that believe in other numbers of shards go by the one recorded.
func TestTheNumberOfShardsIsTheRecordedOne(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 4)
	x, s := opened(t, o), newStore(100)
	s.rebuild(t, x)
	for i, shards := range []int{1, 2, 16} {
		o.Shards = shards
		for n := range 10 { // each the first thing that a process does
			y := opened(t, o)
			s.update(t, y, entry(fmt.Sprint("user ", n), uint64(2+i), int64(50*i+n), "F"))
		}
		y := opened(t, o)
		agrees(t, y, s.entries)
		agrees(t, x, s.entries)
		y = opened(t, o)
		if _, _, err := y.Around(t.Context(), leaderboard.Ladder{Scope: testScope}, "user 3", 1, 1); err != nil {
			t.Error(err)
		}
		s.rebuild(t, opened(t, o))
		agrees(t, x, s.entries)
	}
	o.Shards = 2
	y := opened(t, o)
	must(t, y.Drop(t.Context(), testScope))
	unavailable(t, x)
	if left, err := names(t.Context(), x); err != nil || len(left) > 0 {
		t.Errorf("keys left by Drop: %q, %v", left, err)
	}
	s.rebuild(t, y)
	agrees(t, x, s.entries)
}

func TestOpenRefusesAServerThatEvicts(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	x := opened(t, options(addrsOf(c), 1))
	must(t, x.client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	must(t, x.client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	if _, err := Open(t.Context(), x.o); err == nil || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("error %v, want one about allkeys-lru", err)
	}
	// It may be found so only later, if it did not answer at first.
	late, err := newIndex(x.o)
	must(t, err)
	defer late.Close()
	gone := errors.New("it did not answer")
	late.unfit.Store(&gone)
	late.background.Go(late.inspectLater)
	eventually(t, "a server that answers late is found unfit", func(ctx context.Context) error {
		_, err := late.Loaded(ctx, testScope)
		if !errors.Is(err, leaderboard.ErrRankUnavailable) || !strings.Contains(err.Error(), "allkeys-lru") {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	must(t, x.client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	eventually(t, "it is fit now", func(ctx context.Context) error {
		_, err := late.Loaded(ctx, testScope)
		return err
	})
	opened(t, x.o)
}

// An index may be opened before Redis is there. It is used once it answers.
func TestOpenBeforeRedis(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 1)
	o.Redis.MaxRetries, o.UpdateTimeout = -1, 200*time.Millisecond
	must(t, c.Servers[0].Kill())
	x, s := opened(t, o), newStore(50)
	if _, _, err := x.Page(t.Context(), leaderboard.Ladder{Scope: testScope}, 1, 10); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v of a page, want ErrRankUnavailable", err)
	}
	must(t, c.Servers[0].Start(t.Context()))
	eventually(t, "Redis is used", func(ctx context.Context) error {
		_, err := x.Loaded(ctx, testScope)
		return err
	})
	s.rebuild(t, x)
	agrees(t, x, s.entries)
}

// While an update is missing of which nobody else can know, the index is not
// settled, so that whoever brought it may keep it to bring it again.
func TestSettled(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 2)
	o.Redis.MaxRetries, o.UpdateTimeout = -1, 200*time.Millisecond
	o.Redis.ReadTimeout, o.Redis.DialTimeout = 100*time.Millisecond, 100*time.Millisecond
	x, s := opened(t, o), newStore(50)
	y := opened(t, o)
	s.rebuild(t, x)
	update := func(version uint64) error {
		e := entry("user 1", version, int64(version), "F")
		s.put(e)
		return x.Update(t.Context(), testScope, epoch, []leaderboard.Entry{e})
	}
	must(t, update(2))
	if !x.Settled() {
		t.Error("not settled after an update that was made")
	}
	must(t, c.Servers[0].Pause())
	for version := uint64(3); version < 6; version++ {
		if err := update(version); !errors.Is(err, leaderboard.ErrRankUnavailable) || x.Settled() {
			t.Errorf("update %d of a server that hangs: %v, settled %v", version, err, x.Settled())
		}
	}
	if !y.Settled() {
		t.Error("another process is not settled")
	}
	must(t, c.Servers[0].Resume())
	eventually(t, "settled", func(context.Context) error {
		if !x.Settled() {
			return errors.New("it is not")
		}
		return nil
	})
	unavailable(t, y)
	s.rebuild(t, y)
	agrees(t, x, s.entries)
	must(t, update(7))
	agrees(t, y, s.entries)
}

// A Redis without room refuses updates; that is noticed as a lost one is. What it
// refuses it refuses whole.
func TestAFullServer(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(addrsOf(c), 3)
	o.UpdateTimeout = 100 * time.Millisecond
	x, s := opened(t, o), newStore(50)
	s.rebuild(t, x)
	x.background.Wait()
	must(t, x.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	control := *x.scope(testScope).control.Load()
	live, err := x.client.HGet(t.Context(), control[0], "live").Result()
	must(t, err)
	for shard := range control { // a rank key that is let go, which needs no memory
		keys, err := x.client.ZRange(t.Context(), control[shard]+":"+live+":d:", 0, 0).Result()
		must(t, err)
		w := control[shard] + ":" + live + ":w"
		from := (shard + 1) % len(control)
		heard, err := x.client.HGet(t.Context(), w, fmt.Sprint("i", from)).Int()
		must(t, err)
		tell := newCall(tellScript, control, shard, live, from, heard, 1, "-\x00"+keys[0])
		if err := x.run(t.Context(), []*call{tell}); err == nil {
			t.Errorf("shard %d heard: status %d", shard, tell.status)
		}
	}
	for start := time.Now(); time.Since(start) < 150*time.Millisecond; { // until the server is looked at again
		agrees(t, x, s.entries)
	}
	e := entry("user 1", 2, 99, "F")
	s.put(e)
	if err := x.Update(t.Context(), testScope, epoch, []leaderboard.Entry{e}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("error %v, want ErrRankUnavailable", err)
	}
	must(t, x.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	unavailable(t, x)
	s.rebuild(t, x)
	agrees(t, x, s.entries)
}

// envRebuild makes the test binary rebuild, in a process of its own.
const envRebuild = "REDIS_TEST_REBUILD"

// rebuildSlowly rebuilds from entries that are not in the store, says so half
// way, and goes on when it is told to.
func rebuildSlowly(args string) error {
	addr, prefix, _ := strings.Cut(args, " ")
	ctx := context.Background()
	x, err := Open(ctx, Options{Redis: &goredis.UniversalOptions{Addrs: []string{addr}}, Shards: 3, Prefix: prefix, LeaseTTL: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	defer x.Close()
	err = x.Rebuild(ctx, testBoard, testScope, epoch, func(yield func(leaderboard.Entry, error) bool) {
		for i := range 2000 {
			if i == 1000 {
				fmt.Println("half way")
				if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
					yield(leaderboard.Entry{}, err)
					return
				}
			}
			if !yield(entry(fmt.Sprint("ghost ", i), 1, int64(i), ""), nil) {
				return
			}
		}
	})
	fmt.Println("ended:", err)
	return nil
}

// A process that is stopped while it rebuilds wakes up to find that another has
// done it.
func TestAStoppedProcessWakesUp(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 3)
	x, s := opened(t, o), newStore(100)
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
		t.Fatalf("%q, %v", line, err)
	}
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	s.update(t, x, entry("user 3", 2, 555, "F"))
	s.rebuild(t, x) // waits until the lease runs out
	agrees(t, x, s.entries)
	_, err = io.WriteString(in, "\n")
	must(t, err)
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	line, err := lines.ReadString('\n')
	if !strings.Contains(line, leaderboard.ErrRankUnavailable.Error()) {
		t.Errorf("the process that was stopped %q, %v, want an error", line, err)
	}
	must(t, cmd.Wait())
	agrees(t, x, s.entries)
	left, err := names(t.Context(), x)
	must(t, err)
	live, err := x.client.HGet(t.Context(), (*x.scope(testScope).control.Load())[0], "live").Result()
	must(t, err)
	if i := slices.IndexFunc(left, func(k string) bool { return strings.Contains(k, "}:") && !strings.Contains(k, live) }); i >= 0 {
		t.Errorf("key %q is not of generation %s", left[i], live)
	}
}

// Processes that all find the index gone at once do not all rebuild it.
func TestRebuildsOfManyProcessesAreJoined(t *testing.T) {
	o := options([]string{cluster.Redis(t)}, 2)
	s := newStore(100)
	var reads sync.Map
	first := opened(t, o)
	others := make([]*Index, 6)
	for i := range others {
		others[i] = opened(t, o)
	}
	var all sync.WaitGroup
	err := first.Rebuild(t.Context(), testBoard, testScope, epoch, func(yield func(leaderboard.Entry, error) bool) {
		for i, x := range others {
			all.Go(func() {
				err := x.Rebuild(t.Context(), testBoard, testScope, epoch, func(yield func(leaderboard.Entry, error) bool) {
					reads.Store(i, true)
					s.scan(yield)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		// All of them have found the lease taken when they have asked once.
		eventually(t, "all wait", func(context.Context) error {
			for _, x := range others {
				if x.trips.Load() == 0 {
					return errors.New("not all have asked")
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
		t.Errorf("%d of %d read the store, want 1", n, len(others))
	}
	agrees(t, first, s.entries)
	agrees(t, others[3], s.entries)
}

// Sentinel says who is master now.
func TestBehindSentinel(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	program, err := exec.LookPath("redis-server")
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	host, port, _ := strings.Cut(c.Servers[0].Addr, ":")
	_, own, _ := strings.Cut(addr, ":")
	conf := t.TempDir() + "/sentinel.conf"
	must(t, os.WriteFile(conf, []byte(fmt.Sprintf("bind 127.0.0.1\nport %s\nsentinel monitor board %s %s 1\n", own, host, port)), 0o600))
	cmd := exec.Command(program, conf, "--sentinel")
	must(t, cmd.Start())
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed
	})
	o := options([]string{addr}, 0)
	o.Redis.MasterName = "board"
	eventually(t, "sentinel", func(ctx context.Context) error {
		x, err := Open(ctx, o)
		if err != nil {
			return err
		}
		return x.Close()
	})
	x, s := opened(t, o), newStore(30)
	if x.o.Shards != 1 {
		t.Errorf("%d shards by default, want 1", x.o.Shards)
	}
	s.rebuild(t, x)
	agrees(t, x, s.entries)
}
