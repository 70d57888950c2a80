package redis

import (
	"math"
	"slices"
	"sort"

	"github.com/open-leaderboard/leaderboard"
)

// part is one shard's part of an excerpt. For cuts, see excerpt. All counts are of this shard.
type part struct {
	size     int64    // all standings of the ladder
	cut      int64    // standings before the cut
	better   int64    // standings with a smaller rank key than the cut's; 0 with one shard
	notWorse int64    // standings with the cut's rank key or a smaller one; 0 if keys ends with a greater rank key
	first    int64    // standings before keys[0]
	start    int64    // standings with a smaller rank key than the rank key of keys[0]
	distinct int64    // different rank keys smaller than the rank key of keys[0]; valid only with one shard
	keys     []string // sort keys of consecutive standings
}

// excerpt has consecutive standings of a ladder around a cut, joined from the parts of its
// shards. A cut is a point between two standings. A sort key names the cut: the standings with
// smaller sort keys are before the cut, the other standings are behind the cut. The cut's rank key is
// the start of its sort key.
type excerpt struct {
	keyBytes  int // length of a rank key
	cut       string
	parts     []part
	base      int64    // for low <= i < high, keys[i] has the position base+i in the ladder, from 0
	keys      []string // sorted
	low, high int      // keys[low:high] has no gaps: no shard has an unread key between these keys
	atEnd     bool     // the ladder has no standing behind the last key
}

func join(cut string, keyBytes int, parts []part) *excerpt {
	w := &excerpt{keyBytes: keyBytes, cut: cut, parts: parts}
	for i := range parts {
		w.base += parts[i].first
		w.keys = append(w.keys, parts[i].keys...)
	}
	slices.Sort(w.keys)
	w.high, w.atEnd = len(w.keys), true
	for i := range parts {
		p := &parts[i]
		if p.first > 0 { // the shard has keys before the first key of its part
			lowest := cut
			if p.first < p.cut && len(p.keys) > 0 {
				lowest = p.keys[0]
			}
			w.low = max(w.low, w.search(lowest))
		}
		if n := len(p.keys); p.first+int64(n) < p.size { // the shard has keys behind the last key of its part
			end := w.search(cut)
			if n > 0 {
				end = max(end, w.search(p.keys[n-1])+1)
			}
			w.high, w.atEnd = min(w.high, end), false
		}
	}
	w.high = max(w.high, w.low)
	return w
}

// search returns the number of keys that are smaller than k.
func (w *excerpt) search(k string) int {
	i, _ := slices.BinarySearch(w.keys, k)
	return i
}

// ranks returns the ranks of keys[i], which must be in keys[low:high]. With several shards, Dense is 0.
func (w *excerpt) ranks(i int) leaderboard.Ranks {
	k := rankKey(w.keys[i], w.keyBytes)
	r := leaderboard.Ranks{Ordinal: w.base + int64(i) + 1, Competition: w.countBetter(k) + 1}
	if len(w.parts) == 1 {
		r.Dense = w.parts[0].distinct + countDistinct(w.keys[:i], w.keyBytes, k) + 1
	}
	return r
}

// countBetter counts the standings with a rank key smaller than k. k must be the rank key of
// one of keys[low:high].
func (w *excerpt) countBetter(k string) int64 {
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
			n += p.first // the part's keys begin at the cut, and all of them are behind k
		default: // k is the cut's rank key
			n += p.better
		}
	}
	return n
}

// countNotWorse counts the standings with the cut's rank key or a smaller one.
func (w *excerpt) countNotWorse() int64 {
	k, n := rankKey(w.cut, w.keyBytes), int64(0)
	for i := range w.parts {
		p := &w.parts[i]
		if n += p.notWorse; p.notWorse == 0 {
			n += p.first + int64(sort.Search(len(p.keys), func(j int) bool { return rankKey(p.keys[j], w.keyBytes) > k }))
		}
	}
	return n
}

// countDistinct counts the different rank keys k < high in sorted sort keys.
func countDistinct(keys []string, keyBytes int, high string) int64 {
	n, last := int64(0), ""
	for _, k := range keys {
		if rank := rankKey(k, keyBytes); rank != last && rank < high {
			n, last = n+1, rank
		}
	}
	return n
}

// standings returns n standings from keys[i] on, or fewer at the ladder's end. It returns false if the
// excerpt lacks some of them.
func (w *excerpt) standings(r *reader, i, n int) ([]leaderboard.Standing, bool, error) {
	if w.atEnd {
		n = min(n, max(len(w.keys)-i, 0))
	}
	if n <= 0 {
		return nil, true, nil
	}
	if i < w.low || n > w.high-i {
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

// requestSize returns how many standings to request from each shard in order to read n
// consecutive standings of the ladder. A hash distributes the users evenly, so almost certainly no shard
// has more of the n standings than the returned number.
func requestSize(n, shards int) int {
	if shards == 1 || n <= 16 {
		return n
	}
	mean := float64(n) / float64(shards)
	return min(n, int(mean+5*math.Sqrt(mean))+8)
}
