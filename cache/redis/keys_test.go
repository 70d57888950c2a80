package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func TestSlotEqualsClusterKeyslot(t *testing.T) {
	// 0x31c3 is the check value of CRC-16/XMODEM. CLUSTER KEYSLOT returned the other slots.
	for tag, want := range map[string]int{"123456789": 0x31c3 % slots, "": 0, "foo": 12182, "user1000": 3443} {
		if got := slot(tag); got != want {
			t.Errorf("slot(%q) = %d, want %d", tag, got, want)
		}
	}
}

func TestShardsAreSpreadOverSlots(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	for _, shards := range []int{2, 3, 8, 64, leaderboard.MaxShards} {
		const nodes = 3
		for board := range needs.More(t, 4) {
			s := leaderboard.SeasonKey{Board: leaderboard.BoardID(fmt.Sprint("board ", board)), Season: "202611"}
			var perNode [nodes]int
			seen := map[int]bool{}
			for i := range shards {
				key := controlKey("p:", s, i, shards)
				_, rest, _ := strings.Cut(key, "{")
				tag, after, _ := strings.Cut(rest, "}")
				if after != "" || seen[slot(tag)] {
					t.Fatalf("key %q must end with its hash tag, and no other shard may have the same slot", key)
				}
				seen[slot(tag)] = true
				perNode[slot(tag)*nodes/slots]++
			}
			for _, n := range perNode {
				if n > shards/nodes+2 {
					t.Errorf("board %d: the %d nodes have %v of %d shards, want at most %d each", board, nodes, perNode, shards, shards/nodes+2)
				}
			}
		}
	}
}

func TestUsersAreSpreadOverShards(t *testing.T) {
	const users, shards = 100_000, 8
	var count [shards]int
	for i := range users {
		count[shardOf(leaderboard.UserID(fmt.Sprint("user ", i)), shards)]++
	}
	for shard, n := range count {
		if n < users/shards*97/100 || n > users/shards*103/100 {
			t.Errorf("shard %d has %d of %d users, want %d within 3 %%", shard, n, users, users/shards)
		}
	}
}

func FuzzSeasonsHaveDistinctKeys(f *testing.F) {
	f.Add("a", "b/0", "a/b", "0")
	f.Add("{", "}", "%7B", "%7D")
	f.Add("a}", "{b", "a%7D", "{b")
	f.Fuzz(func(t *testing.T, board1, season1, board2, season2 string) {
		one := leaderboard.SeasonKey{Board: leaderboard.BoardID(board1), Season: leaderboard.SeasonID(season1)}
		two := leaderboard.SeasonKey{Board: leaderboard.BoardID(board2), Season: leaderboard.SeasonID(season2)}
		for i := range 2 {
			k1, k2 := controlKey("p:", one, i, 2), controlKey("p:", two, i, 2)
			if one != two && k1 == k2 {
				t.Fatalf("%v and %v share key %q, want different keys", one, two, k1)
			}
			if strings.Count(k1, "{") != 1 || strings.Count(k1, "}") != 1 || !strings.HasSuffix(k1, "}") {
				t.Fatalf("key %q: want one hash tag, at its end", k1)
			}
		}
	})
}

func FuzzInstant(f *testing.F) {
	f.Add(int64(0), int64(-1))
	f.Add(time.Time{}.UnixMicro(), int64(1_800_000_000_000_000))
	f.Fuzz(func(t *testing.T, x, y int64) {
		a, b := time.UnixMicro(x).UTC(), time.UnixMicro(y).UTC()
		if !instantOf(instant(a)).Equal(a) {
			t.Errorf("instant %v, encoded and decoded, is %v, want no change", a, instantOf(instant(a)))
		}
		if got := strings.Compare(instant(a), instant(b)); got != a.Compare(b) {
			t.Errorf("instants %v and %v compare as %d, want %d", a, b, got, a.Compare(b))
		}
	})
}
