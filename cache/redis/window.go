package redis

import (
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// part is one shard's part of a window.
type part struct {
	size           int64 // standings of the ladder in the shard
	cut, better    int64 // standings before the cut; standings with a smaller rank key than the cut's
	smaller, equal int64 // rank keys whose home is this shard: smaller than the cut's; smaller or equal
	notWorse       int64 // standings with the cut's rank key or a smaller one; 0 if keys ends with a greater rank key
	first          int64 // position of keys[0] in the shard, from 0
	start          int64 // standings with a smaller rank key than that of keys[0]
	distinct       int64 // rank keys smaller than that of keys[0]; exact only if there is one shard
	keys           []string
}

// window is a run of a ladder around a cut, joined from the parts of its shards.
type window struct {
	keyBytes int
	cut      string // a sort key; keys that are not smaller are behind the cut
	parts    []part
	base     int64    // position of keys[0] in the ladder, from 0
	keys     []string // sorted; keys[from:to] has no gaps: places where a shard has keys that were not read
	from, to int
	whole    bool // the ladder has no standing behind the last key
}

func join(cut string, keyBytes int, parts []part) *window {
	w := &window{keyBytes: keyBytes, cut: cut, parts: parts}
	for i := range parts {
		w.base += parts[i].first
		w.keys = append(w.keys, parts[i].keys...)
	}
	slices.Sort(w.keys)
	w.to, w.whole = len(w.keys), true
	for i := range parts {
		p := &parts[i]
		if p.first > 0 { // the shard has keys before its first one here
			lowest := cut
			if p.first < p.cut {
				lowest = p.keys[0]
			}
			w.from = max(w.from, w.search(lowest))
		}
		if n := len(p.keys); p.first+int64(n) < p.size { // the shard has keys behind its last one here
			end := w.search(cut)
			if n > 0 {
				end = max(end, w.search(p.keys[n-1])+1)
			}
			w.to, w.whole = min(w.to, end), false
		}
	}
	w.to = max(w.to, w.from)
	return w
}

// search returns the number of keys that are smaller than k.
func (w *window) search(k string) int {
	i, _ := slices.BinarySearch(w.keys, k)
	return i
}

// ranks returns the ranks of keys[i], which must not be in a gap.
func (w *window) ranks(i int) leaderboard.Ranks {
	k := rankKey(w.keys[i], w.keyBytes)
	better := w.better(k)
	return leaderboard.Ranks{
		Ordinal:     w.base + int64(i) + 1,
		Competition: better + 1,
		Dense:       within(w.distinct(i, k), better) + 1,
	}
}

// better counts the standings with a rank key smaller than k. k must be the rank
// key of a key that is not in a gap.
func (w *window) better(k string) int64 {
	n := int64(0)
	for i := range w.parts {
		p := &w.parts[i]
		smaller, _ := slices.BinarySearch(p.keys, k) // a rank key is smaller than its sort keys
		switch {
		case smaller > 0 || p.first == 0:
			n += p.first + int64(smaller)
		case len(p.keys) > 0 && rankKey(p.keys[0], w.keyBytes) == k:
			n += p.start
		case k > rankKey(w.cut, w.keyBytes):
			n += p.first // the shard's keys begin at the cut, and all of them are behind k
		default:
			n += p.better
		}
	}
	return n
}

// notWorse counts the standings with the cut's rank key or a smaller one.
func (w *window) notWorse() int64 {
	k, n := rankKey(w.cut, w.keyBytes), int64(0)
	for i := range w.parts {
		p := &w.parts[i]
		if n += p.notWorse; p.notWorse == 0 {
			n += p.first + int64(sort.Search(len(p.keys), func(j int) bool { return rankKey(p.keys[j], w.keyBytes) > k }))
		}
	}
	return n
}

// distinct counts the rank keys smaller than k, which is the rank key of keys[i].
func (w *window) distinct(i int, k string) int64 {
	if len(w.parts) == 1 {
		return w.parts[0].distinct + different(w.keys[:i], w.keyBytes, "", k)
	}
	var smaller, equal int64
	for i := range w.parts {
		smaller += w.parts[i].smaller
		equal += w.parts[i].equal
	}
	cut, at := rankKey(w.cut, w.keyBytes), w.search(w.cut)
	switch strings.Compare(k, cut) {
	case -1:
		return smaller - different(w.keys[i:at], w.keyBytes, k, cut)
	case 0:
		return smaller
	default:
		// A rank key equal to the cut's counts once, even if it has keys on both sides.
		return equal + different(w.keys[min(at, i):i], w.keyBytes, cut+"\x00", k)
	}
}

// different counts the different rank keys k of sorted sort keys, with
// from <= k < to.
func different(keys []string, keyBytes int, from, to string) int64 {
	n, last := int64(0), ""
	for _, k := range keys {
		if rank := rankKey(k, keyBytes); rank != last && rank >= from && rank < to {
			n, last = n+1, rank
		}
	}
	return n
}

// standings returns up to n standings, beginning with keys[i]. It returns false
// if the window does not contain all of them.
func (w *window) standings(r *reader, i, n int) ([]leaderboard.Standing, bool, error) {
	if w.whole {
		n = min(n, max(len(w.keys)-i, 0))
	}
	if n <= 0 {
		return nil, true, nil
	}
	if i < w.from || n > w.to-i {
		return nil, false, nil
	}
	out := make([]leaderboard.Standing, n)
	for j := range out {
		st, err := r.standing(w.keys[i+j])
		if err != nil {
			return nil, false, err
		}
		if j == 0 {
			st.Ranks = w.ranks(i)
		} else {
			st.RankAfter(&out[j-1])
		}
		out[j] = st
	}
	return out, true, nil
}

// share returns how many of n standings to request from each shard, so that the
// shards together almost certainly hold the n: a hash distributes the users evenly.
func share(n, shards int) int {
	if shards == 1 || n <= 16 {
		return n
	}
	mean := float64(n) / float64(shards)
	return min(n, int(mean+5*math.Sqrt(mean))+8)
}
