package redis

import (
	"math"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// window is one shard's part of a stretch.
type window struct {
	size           int64 // of the ladder in the shard
	cut, better    int64 // standings before the cut; of those with a smaller rank key than the cut
	smaller, equal int64 // rank keys whose home the shard is: smaller than the cut's; or equal
	first          int64 // position of keys[0] in the shard, from 0
	start          int64 // standings with a smaller rank key than keys[0]
	distinct       int64 // rank keys smaller than that of keys[0], in an only shard
	keys           []string
}

// stretch is a run of a ladder around a cut, put together from its shards' parts.
type stretch struct {
	keyBytes int
	cut      string // a sort key; what is not smaller is behind the cut
	parts    []window
	base     int64    // position of keys[0] in the ladder, from 0
	keys     []string // of which those from from to to are without gaps
	from, to int
	whole    bool // nothing is behind the last key
}

func join(cut string, keyBytes int, parts []window) *stretch {
	s := &stretch{keyBytes: keyBytes, cut: cut, parts: parts}
	for i := range parts {
		s.base += parts[i].first
		s.keys = append(s.keys, parts[i].keys...)
	}
	slices.Sort(s.keys)
	s.to, s.whole = len(s.keys), true
	for i := range parts {
		p := &parts[i]
		if p.first > 0 { // what is before its first key is not here
			lowest := cut
			if p.first < p.cut {
				lowest = p.keys[0]
			}
			s.from = max(s.from, s.search(lowest))
		}
		if n := len(p.keys); p.first+int64(n) < p.size { // what is behind its last key is not here
			end := s.search(cut)
			if n > 0 {
				end = max(end, s.search(p.keys[n-1])+1)
			}
			s.to, s.whole = min(s.to, end), false
		}
	}
	s.to = max(s.to, s.from)
	return s
}

// search returns how many of the keys are smaller than k.
func (s *stretch) search(k string) int {
	i, _ := slices.BinarySearch(s.keys, k)
	return i
}

// ranks returns the ranks of keys[i], which is not in a gap.
func (s *stretch) ranks(i int) leaderboard.Ranks {
	k := rankKey(s.keys[i], s.keyBytes)
	better := s.better(k)
	return leaderboard.Ranks{
		Ordinal:     s.base + int64(i) + 1,
		Competition: better + 1,
		Dense:       within(s.distinct(i, k), better) + 1,
	}
}

// better counts the standings with a smaller rank key than k, that of a key
// that is not in a gap.
func (s *stretch) better(k string) int64 {
	n := int64(0)
	for i := range s.parts {
		p := &s.parts[i]
		smaller, _ := slices.BinarySearch(p.keys, k) // a rank key is smaller than its sort keys
		switch {
		case smaller > 0 || p.first == 0:
			n += p.first + int64(smaller)
		case len(p.keys) > 0 && rankKey(p.keys[0], s.keyBytes) == k:
			n += p.start
		case k > rankKey(s.cut, s.keyBytes):
			n += p.first // the keys begin at the cut, and all of them are behind k
		default:
			n += p.better
		}
	}
	return n
}

// distinct counts the rank keys smaller than k, that of keys[i].
func (s *stretch) distinct(i int, k string) int64 {
	if len(s.parts) == 1 {
		return s.parts[0].distinct + different(s.keys[:i], s.keyBytes, "", k)
	}
	var smaller, equal int64
	for i := range s.parts {
		smaller += s.parts[i].smaller
		equal += s.parts[i].equal
	}
	cut, at := rankKey(s.cut, s.keyBytes), s.search(s.cut)
	switch strings.Compare(k, cut) {
	case -1:
		return smaller - different(s.keys[i:at], s.keyBytes, k, cut)
	case 0:
		return smaller
	default:
		// A rank key equal to the cut's counts once, on whichever side it is.
		return equal + different(s.keys[min(at, i):i], s.keyBytes, cut+"\x00", k)
	}
}

// different counts the rank keys of sorted sort keys from one to another, which
// does not count.
func different(keys []string, keyBytes int, from, to string) int64 {
	n, last := int64(0), ""
	for _, k := range keys {
		if rank := rankKey(k, keyBytes); rank != last && rank >= from && rank < to {
			n, last = n+1, rank
		}
	}
	return n
}

// standings returns up to n standings from keys[i] on, and false if they are
// not all here.
func (s *stretch) standings(r *reader, i, n int) ([]leaderboard.Standing, bool, error) {
	if s.whole {
		n = min(n, max(len(s.keys)-i, 0))
	}
	if n <= 0 {
		return nil, true, nil
	}
	if i < s.from || n > s.to-i {
		return nil, false, nil
	}
	out := make([]leaderboard.Standing, n)
	for j := range out {
		st, err := r.standing(s.keys[i+j])
		if err != nil {
			return nil, false, err
		}
		if j == 0 {
			st.Ranks = s.ranks(i)
		} else {
			st.Succeed(&out[j-1])
		}
		out[j] = st
	}
	return out, true, nil
}

// share is how many of n standings to ask each shard for, so that together
// they hold the n with near certainty: users are spread by a hash.
func share(n, shards int) int {
	if shards == 1 || n <= 16 {
		return n
	}
	mean := float64(n) / float64(shards)
	return min(n, int(mean+5*math.Sqrt(mean))+8)
}
