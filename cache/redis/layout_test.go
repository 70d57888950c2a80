package redis

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// A season whose keys have another layout counts as not loaded. The next Rebuild fills it and frees these keys.
func TestAnotherLayoutIsRebuilt(t *testing.T) {
	for _, shards := range []int{1, 3} {
		for _, layout := range []string{"", "1 ", "22"} { // the first is an id without a layout
			x, s := openIndex(t, options([]string{cluster.Redis(t)}, shards)), newStore(50)
			s.rebuild(t, x)
			old := map[string]bool{}
			for _, control := range *x.season(testSeason).control.Load() {
				old[control+":"+x.client().HGet(t.Context(), control, "live").Val()] = true
				id := x.client().HGet(t.Context(), control, "id").Val()
				must(t, x.client().HSet(t.Context(), control, "id", layout+id[layoutBytes:], "seen", 0).Err())
			}
			checkUnavailable(t, x)
			s.rebuild(t, x)
			checkLadders(t, x, s.entries)
			keys, err := names(t.Context(), x)
			must(t, err)
			for _, name := range keys {
				if generation := name[:strings.LastIndex(name, ":")]; old[generation] {
					t.Errorf("the key %q of the other layout remains, want it freed", name)
				}
			}
		}
	}
}

// If a script fails half-way, the field busy of the shard's control hash (see lua/base.lua) stays 1.
// The next script finds the 1 and empties the shard, so the season is unavailable until a Rebuild.
func TestAScriptThatFailsHalfWayIsDetected(t *testing.T) {
	for _, shards := range []int{1, 3} {
		x, s := openIndex(t, options([]string{cluster.Redis(t)}, shards)), newStore(100)
		s.rebuild(t, x)
		r := rawLive(t, x, 0)
		// The update will fail at the first leaf of the overall ladder's tree (see lua/tree.lua).
		must(t, x.client().Del(t.Context(), r.at+"0l").Err())
		must(t, x.client().Set(t.Context(), r.at+"0l", "not a sorted set", 0).Err())
		var failed *call
		for i := 0; failed == nil; i++ {
			e := entry(fmt.Sprint("user ", i), 2, 1000, "")
			if control := *x.season(testSeason).control.Load(); shardOf(e.User, shards) == 0 {
				failed = newCall(updateScript, control, 0, append([]any{"", 0, ""}, entryArgs(&e)...)...)
			}
		}
		if err := x.run(t.Context(), []*call{failed}); err == nil {
			t.Fatal("the update succeeded although the leaf is not a sorted set")
		}
		checkUnavailable(t, x)
		s.rebuild(t, x)
		checkLadders(t, x, s.entries)
	}
}

// A Rebuild numbers the batches of entries for a shard. The shard rejects batch n if it lacks batch n-1.
// It accepts a repeated batch.
func TestASkippedBatchIsDetected(t *testing.T) {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 1)), newStore(100)
	g := beginGeneration(t, x)
	e := entry("user 1", 1, 5, "")
	send := func(batch int) int {
		t.Helper()
		c := newCall(updateScript, g.control, 0, append([]any{g.name, batch, ""}, entryArgs(&e)...)...)
		must(t, x.run(t.Context(), []*call{c}))
		return c.status
	}
	for _, step := range []struct{ batch, want int }{{2, statusGap}, {1, statusOK}, {1, statusOK}, {3, statusGap}, {2, statusOK}} {
		if got := send(step.batch); got != step.want {
			t.Errorf("batch %d: status %d, want %d", step.batch, got, step.want)
		}
	}
	must(t, x.abandon(t.Context(), g.control, g.name))
	must(t, x.run(t.Context(), []*call{g.lease(0)})) // releases the lease
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}

// Redis packs small sorted sets and hashes (listpack). If a server packs fewer members than by default,
// Open logs a warning. The index is correct on this server, and with user ids that are too long to be
// packed.
func TestServersThatPackLess(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	o := options(c.Addrs(), 1)
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	x, s := openIndex(t, o), newStore(300)
	if log.Len() > 0 {
		t.Errorf("Open on a server with default settings logged %s, want nothing", &log)
	}
	for i := range 300 {
		s.put(entry(fmt.Sprint("a user with a long id ", strings.Repeat("x", 90), i), 1, int64(i/2), "F"))
	}
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
	for _, setting := range []string{"zset-max-listpack-entries", "hash-max-listpack-entries"} {
		must(t, x.client().ConfigSet(t.Context(), setting, "10").Err())
		log.Reset()
		y := openIndex(t, o)
		if !strings.Contains(log.String(), setting) {
			t.Errorf("Open on a server with %s 10 logged %q, want a warning that names the setting", setting, &log)
		}
		s.rebuild(t, y)
		checkLadders(t, y, s.entries)
	}
}

// Several scripts read a page of more than pieceStandings standings, and the page is complete.
func TestLargeAnswersAreReadInPieces(t *testing.T) {
	const users = 5000
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 1)), newStore(users)
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
	l := leaderboard.Ladder{SeasonKey: testSeason}
	want := ladder(t, s.entries, leaderboard.Division{})
	got, v, err := x.PageAfter(context.Background(), l, want[99].SortKey(), users)
	if err != nil || v.Size != users || len(got) != users-100 || got[0] != want[100] || got[len(got)-1] != want[users-1] {
		t.Errorf("PageAfter returned %d standings of a ladder of %d, error %v, want %d of %d, nil", len(got), v.Size, err, users-100, users)
	}
}
