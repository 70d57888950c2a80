package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// checkCensus makes a census (see census.go), and checks its sums.
func checkCensus(t *testing.T, x *Index, state string, want shardCounts) {
	t.Helper()
	x.countShards(&census{}, censusShards)
	if diff := cmp.Diff(want, x.metrics.shards, cmp.AllowUnexported(shardCounts{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", state, diff)
	}
}

// The index observer has not used the season before its first census.
func TestCensusFollowsAFailure(t *testing.T) { eachNumberOfShards(t, censusFollowsAFailure) }

func censusFollowsAFailure(t *testing.T, shards int) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	o, n := options(addrsOf(c), shards), float64(shards)
	x, observer, s := openIndex(t, o), openIndex(t, o), newStore(50)
	checkCensus(t, observer, "no season", shardCounts{})
	s.rebuild(t, x)
	checkCensus(t, observer, "a season", shardCounts{live: n, users: 50, generation: 1})
	if d := advance(t, x, at(10, 5)); d != nil {
		t.Fatalf("Advance returned %+v, want no doubt", d)
	}
	checkCensus(t, observer, "all shards have the newest positions", shardCounts{live: n, users: 50, generation: 1})
	must(t, x.notePositions(t.Context(), at(12, 9)))
	checkCensus(t, observer, "each shard is 2 messages behind in one partition, and 4 in the other", shardCounts{live: n, users: 50, generation: 1, lag: 4})

	must(t, c.Servers[0].Kill())
	earlier := &census{seasons: []string{listName(testSeason)}}
	observer.countShards(earlier, censusShards)
	if got := observer.metrics.shards; got != (shardCounts{unknown: n}) && got != (shardCounts{unknown: 1}) { // 1 if observer does not know the number of shards
		t.Errorf("while the server is down, the census is %+v, want unknown shards only", got)
	}
	must(t, c.Servers[0].Start(t.Context()))
	eventually(t, "the server answers", func(ctx context.Context) error { return x.client().Ping(ctx).Err() })
	checkCensus(t, observer, "the server has restarted", shardCounts{inDoubt: n, users: 50, generation: 1, lag: 4})
	d := advance(t, x, at(12, 9))
	must(t, x.Confirm(t.Context(), testBoard, *d, at(12, 9), leaderboard.LogSession{Partitions: 2}))
	checkCensus(t, observer, "the season is confirmed", shardCounts{live: n, users: 50, generation: 1})

	must(t, x.client().HSet(t.Context(), x.controlKeys(testSeason, shards)[shards-1], "busy", 1).Err())
	x.countShards(&census{}, censusShards)
	if got := x.metrics.shards; got.notLoaded != 1 || got.live != n-1 {
		t.Errorf("after a script failed half-way, the census is %+v, want one shard that is not loaded", got)
	}
	must(t, x.Drop(t.Context(), testSeason))
	checkCensus(t, observer, "the season is dropped", shardCounts{})
}

func TestCensusDuringRebuilds(t *testing.T) {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 2)), newStore(50)
	rebuild := func(shards int, state string, want shardCounts) {
		t.Helper()
		first := true
		must(t, x.Rebuild(t.Context(), boardOf(shards), testSeason, epoch, func(yield func(leaderboard.Entry, error) bool) {
			if first {
				first = false
				checkCensus(t, x, state, want)
			}
			s.scan(yield)
		}))
	}
	rebuild(0, "during the first rebuild", shardCounts{notLoaded: 2, building: 2, generation: 1})
	rebuild(2, "during the second rebuild", shardCounts{live: 2, building: 2, users: 50, generation: 2})
	rebuild(3, "during a rebuild with more shards", shardCounts{live: 2, building: 3, users: 50, generation: 3})
	checkCensus(t, x, "all rebuilds have ended", shardCounts{live: 3, users: 50, generation: 3})
}

// Each pass reads censusChunk seasons, so the third pass ends the census and sets the metrics.
func TestCensusOfManySeasons(t *testing.T) {
	x := openIndex(t, options([]string{cluster.Redis(t)}, 1))
	const seasons = 2*censusChunk + 1
	for i := range seasons {
		must(t, x.enlist(t.Context(), leaderboard.SeasonKey{Board: leaderboard.BoardID(fmt.Sprint("board", i)), Season: leaderboard.SeasonAll}))
	}
	var c census
	for pass := range 6 {
		want := shardCounts{}
		if pass >= 2 {
			want.notLoaded = seasons
		}
		x.countShards(&c, 1)
		if x.metrics.shards != want {
			t.Errorf("after pass %d, the metrics are %+v, want %+v", pass+1, x.metrics.shards, want)
		}
	}
	if n := x.queried.Len(); n != 0 {
		t.Errorf("the census has cached %d seasons, want none", n)
	}
}

// A shard is in doubt after its slot has moved to another master.
func TestCensusOfACluster(t *testing.T) {
	needs.Slow(t, "clusters")
	o := options(addrsOf(cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})), 4)
	x, observer, s := openIndex(t, o), openIndex(t, o), newStore(50)
	s.rebuild(t, x)
	checkCensus(t, observer, "a season", shardCounts{live: 4, users: 50, generation: 1})
	moveSlot(t, x, x.controlKeys(testSeason, 4)[2])
	eventually(t, "the census follows the slot", func(ctx context.Context) error {
		observer.client().(*goredis.ClusterClient).ReloadState(ctx)
		observer.countShards(&census{}, censusShards)
		if want := (shardCounts{live: 3, inDoubt: 1, users: 50, generation: 1}); observer.metrics.shards != want {
			return fmt.Errorf("the census is %+v, want %+v", observer.metrics.shards, want)
		}
		return nil
	})
}

func TestCensusIsExposed(t *testing.T) {
	reg, o := prometheus.NewRegistry(), options([]string{cluster.Redis(t)}, 1)
	o.Registerer = reg
	x, s := openIndex(t, o), newStore(50)
	s.rebuild(t, x)
	eventually(t, "the metrics have the season", func(context.Context) error {
		x.countShards(&census{}, censusShards)
		families, err := reg.Gather()
		must(t, err)
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetName() + "=" + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue()
			}
		}
		for name, want := range map[string]float64{"shards state=live": 1, "shards state=in_doubt": 0, "shards state=not_loaded": 0, "shards state=unknown": 0,
			"building_shards": 0, "users": 50, "newest_generation": 1, "position_lag_messages": 0} {
			if v, ok := got["leaderboard_redis_"+name]; !ok || v != want {
				return fmt.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		return nil
	})
}

// BenchmarkCensus measures a pass over censusShards seasons. The log has 48 partitions.
func BenchmarkCensus(b *testing.B) {
	x := openIndex(b, options(cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{}).Addrs(), 1))
	bare := x.client().(*goredis.Client)
	var positions []leaderboard.LogPosition
	for i := range 48 {
		positions = append(positions, leaderboard.LogPosition{Partition: fmt.Sprintf("0123456789abcdef012345/%d", i), Offset: int64(1_000_000 + i)})
	}
	must(b, x.notePositions(b.Context(), positions))
	for i := range censusShards {
		key := leaderboard.SeasonKey{Board: leaderboard.BoardID(fmt.Sprint("board", i)), Season: leaderboard.SeasonAll}
		must(b, x.Rebuild(b.Context(), &leaderboard.Board{ID: key.Board}, key, epoch, sequence(nil)))
	}
	cpu := serverSeconds(b, bare)
	for b.Loop() {
		x.countShards(&census{}, censusShards)
	}
	b.ReportMetric((serverSeconds(b, bare)-cpu)/float64(b.N)*1e3, "server-ms/op")
	if x.metrics.shards.live != censusShards {
		b.Errorf("the census is %+v, want %d live shards", x.metrics.shards, censusShards)
	}
}
