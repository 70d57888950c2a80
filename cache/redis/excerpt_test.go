package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// partOf computes the same part as excerpt.lua, but without notWorse, for a shard with the
// given sort keys.
func partOf(keys []string, cut string, above, below, keyBytes int) part {
	smaller := func(list []string, k string) int {
		n, _ := slices.BinarySearch(list, k)
		return n
	}
	rank := rankKey(cut, keyBytes)
	w := part{size: int64(len(keys)), cut: int64(smaller(keys, cut)), better: int64(smaller(keys, rank))}
	first := max(int(w.cut)-above, 0)
	w.first = int64(first)
	w.keys = keys[first:min(int(w.cut)+below, len(keys))]
	if len(w.keys) > 0 {
		w.start = int64(smaller(keys, rankKey(w.keys[0], keyBytes)))
		better := map[string]bool{}
		for _, k := range keys[:w.start] {
			better[k[:keyBytes]] = true
		}
		w.distinct = int64(len(better))
	}
	return w
}

// An excerpt joined from parts of any size, around any cut (see excerpt.go), agrees with the ladder, and
// has all requested standings.
func FuzzExcerpt(f *testing.F) {
	needs.NoRace(f, "the function starts no goroutines")
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		shards, users, scores := 1+rng.IntN(5), rng.IntN(40), 1+rng.Int64N(12)
		uneven := rng.IntN(3) == 0
		entries := map[leaderboard.UserID]leaderboard.Entry{}
		keys := make([][]string, shards)
		for i := range users {
			e := entry(fmt.Sprint("u", i), 1+rng.Uint64N(3), rng.Int64N(scores), "")
			entries[e.User] = e
			shard := rng.IntN(shards)
			if uneven {
				shard = int(int64(shards-1) * int64(e.Key[len(e.Key)-1]%7) / 6)
			}
			keys[shard] = append(keys[shard], string(e.SortKey()))
		}
		for i := range shards {
			slices.Sort(keys[i])
		}
		all := ladder(t, entries, leaderboard.Division{})
		keyBytes := testBoard.RankKeyBytes()
		cut := ""
		switch e := entry(fmt.Sprint("u", rng.IntN(50)), 1+rng.Uint64N(3), rng.Int64N(scores+2)-1, ""); {
		case rng.IntN(4) == 0:
		case rng.IntN(4) == 0:
			cut = string(e.Key)
		case rng.IntN(2) == 0 && users > 0:
			s := all[rng.IntN(users)]
			cut = string(s.SortKey())
		default:
			cut = string(e.SortKey()) + "\x00"
		}
		above, below := rng.IntN(12), rng.IntN(12)
		parts := make([]part, shards)
		for i := range parts {
			parts[i] = partOf(keys[i], cut, above, below, keyBytes)
		}
		s := join(cut, keyBytes, parts)
		r := &reader{keyBytes: keyBytes}
		cutPosition := 0 // in the ladder
		for _, st := range all {
			if string(st.SortKey()) < cut {
				cutPosition++
			}
		}
		if got := int(s.base) + s.search(cut); got != cutPosition {
			t.Fatalf("the position of the cut is %d, want %d", got, cutPosition)
		}
		for i := -2; i <= len(s.keys)+2; i++ {
			for n := range 8 {
				first := int(s.base) + i
				got, ok, err := s.standings(r, i, n)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					requested := first >= max(cutPosition-above, 0) && first+n <= cutPosition+below
					if n > 0 && requested {
						t.Fatalf("the excerpt lacks some of the %d standings from position %d; requested were %d standings above and %d below the cut at position %d", n, first, above, below, cutPosition)
					}
					continue
				}
				if n == 0 || first < 0 {
					continue
				}
				want := all[min(first, len(all)):min(first+n, len(all))]
				if shards > 1 {
					want, got = withoutDense(want), withoutDense(got)
				}
				if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
					t.Fatalf("%d standings from position %d (-want +got)\n%s", n, first, diff)
				}
			}
		}
	})
}
