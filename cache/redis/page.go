package redis

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// windows asks every shard for a stretch around a cut. It also returns the sort
// key of a user, "" without one or for one who does not stand; by 'u' the
// stretch is then nil.
func (r *reader) windows(by, cut string, above, below int, user leaderboard.UserID) (*stretch, string, error) {
	calls := make([]*call, r.shards())
	for i := range calls {
		of := leaderboard.UserID("")
		if user != "" && shardOf(user, r.shards()) == i {
			of = user
		}
		calls[i] = r.call(windowScript, i, by, cut, above, below, string(of))
	}
	sizes, err := r.ask(calls)
	if err != nil {
		return nil, "", err
	}
	mine := ""
	parts := make([]window, len(calls))
	for i, c := range calls {
		if k := c.str(); k != "" {
			mine = k
		}
		if by == "u" && mine == "" {
			return nil, "", fault(calls)
		}
		parts[i] = window{
			size: sizes[i], cut: c.int(), better: c.int(), smaller: c.int(), equal: c.int(),
			first: c.int(), start: c.int(), distinct: c.int(), keys: c.strings(),
		}
	}
	switch by {
	case "u":
		cut = mine
	case "i":
		cut = "" // the keys begin at it
	}
	return join(cut, r.keyBytes, parts), mine, fault(calls)
}

// Page implements [leaderboard.Ranker]. A position before the first is the first.
func (x *Index) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int) ([]leaderboard.Standing, leaderboard.View, error) {
	from := min(max(position, 1), maxPosition) - 1
	n = min(max(n, 0), math.MaxInt32)
	var out []leaderboard.Standing
	v, err := x.answer(ctx, l, func(r *reader) (err error) {
		switch {
		case r.shards() == 1:
			var s *stretch
			if s, _, err = r.windows("i", fmt.Sprint(from), 0, n, ""); err == nil {
				out, _, err = s.standings(r, 0, n)
			}
		case from <= int64(max(n, nearTop)):
			out, err = r.after("", int(from), n)
		default:
			out, err = r.deep(from, n)
		}
		return err
	})
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return out, v, nil
}

// nearTop is the number of standings that may be read and passed over.
const nearTop = 100

// after returns n standings behind a cut, after skipping some.
func (r *reader) after(cut string, skip, n int) ([]leaderboard.Standing, error) {
	for _, ask := range []int{share(skip+n, r.shards()), skip + n} {
		s, _, err := r.windows("k", cut, 0, ask, "")
		if err != nil {
			return nil, err
		}
		out, ok, err := s.standings(r, s.search(cut)+skip, n)
		if ok || err != nil {
			return out, err
		}
	}
	return nil, errUnsettled
}

// PageAfter implements [leaderboard.Ranker]. The empty key is before all, and
// the beginning of a sort key is before those that begin with it.
func (x *Index) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) ([]leaderboard.Standing, leaderboard.View, error) {
	var out []leaderboard.Standing
	v, err := x.answer(ctx, l, func(r *reader) (err error) {
		out, err = r.after(string(after)+"\x00", 0, min(max(n, 0), math.MaxInt32)) // the least key behind it
		return err
	})
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return out, v, nil
}

// Around implements [leaderboard.Ranker].
func (x *Index) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) ([]leaderboard.Standing, leaderboard.View, error) {
	above, below = max(above, 0), min(max(below, 0), math.MaxInt32)
	var out []leaderboard.Standing
	v, err := x.answer(ctx, l, func(r *reader) (err error) {
		out, err = r.around(user, above, below+1)
		return err
	})
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return out, v, nil
}

// around returns the standings around a user: above of them, and below from the
// user on.
func (r *reader) around(user leaderboard.UserID, above, below int) ([]leaderboard.Standing, error) {
	by, cut := "u", ""
	if r.shards() > 1 {
		by = "k"
		cut, _ = r.x.hints.Get(hint{r.sc, user})
	}
	full := false
	for range attempts {
		up, down := share(above, r.shards()), share(below, r.shards())
		if full {
			up, down = above, below
		}
		if by == "k" && cut == "" {
			up, down = 0, 0 // only the user's key is wanted
		}
		s, mine, err := r.windows(by, cut, up, down, user)
		if err != nil {
			return nil, err
		}
		if mine == "" {
			return nil, fmt.Errorf("%q: %w", user, leaderboard.ErrEntryNotFound)
		}
		if by == "k" && mine != cut {
			cut = mine
			r.x.hints.Add(hint{r.sc, user}, cut)
			continue
		}
		at := s.search(mine)
		first := max(at-above, 0)
		if s.base+int64(at) > int64(above) && at < above {
			full = true // there is more above than was read
			continue
		}
		out, ok, err := s.standings(r, first, at-first+below)
		if ok || err != nil {
			return out, err
		}
		full = true
	}
	return nil, errUnsettled
}

const (
	pivotsAShard = 16
	guesses      = 4    // rounds before a search no longer guesses
	reach        = 4096 // how far from a pivot a window is looked through
)

// deep returns n standings from a position on, from 0, of several shards. The
// standings before it are spread over the shards by a hash, so that the position
// is nearly known in each: pivots around there, then a window at the best of
// them, whose position is exact since all shards count up to it in one trip. If
// the window misses, what it says narrows the search. After a few rounds the
// search no longer guesses but takes pivots all over what is left, of which a
// round then leaves about a quarter at most, whoever stands where.
func (r *reader) deep(position int64, n int) ([]leaderboard.Standing, error) {
	shards := r.shards()
	bounds := make([]bracket, shards) // what is known of how many of position are in each shard
	aim := make([]bracket, shards)    // where to look
	mean := float64(position) / float64(shards)
	spread := 5*math.Sqrt(mean) + 1
	for i := range bounds {
		bounds[i] = bracket{0, maxPosition}
		aim[i] = bracket{int64(mean - spread), int64(mean + spread)}.within(bounds[i])
	}
	for round := range attempts {
		pivots, sizes, err := r.pivots(aim)
		if err != nil {
			return nil, err
		}
		if position >= sizes.total() {
			return nil, nil
		}
		for i := range bounds {
			bounds[i] = bounds[i].within(bracket{0, sizes[i]})
		}
		cut, estimate, doubt := choose(pivots, bounds, position)
		off := position - estimate
		up, down := 0, 1 // to learn the pivot's position, at least
		if doubt+max(off, -off) <= reach {
			up, down = int(max(-off, 0)+doubt), int(max(off, 0)+doubt)+n
			if round < guesses {
				up, down = share(up, shards), share(down, shards)
			}
		}
		s, _, err := r.windows("k", cut, up, down, "")
		if err != nil {
			return nil, err
		}
		out, ok, err := s.standings(r, int(position-s.base), n)
		if ok || err != nil {
			return out, err
		}
		r.narrow(bounds, aim, s, position, round)
	}
	return nil, errUnsettled
}

// bracket holds a number: from lo to hi.
type bracket struct{ lo, hi int64 }

func (b bracket) within(o bracket) bracket {
	lo := min(max(b.lo, o.lo), o.hi)
	return bracket{lo, max(min(b.hi, o.hi), lo)}
}

// pivot is a standing at a position, from 0, of its shard.
type pivot struct {
	at  int64
	key string
}

// pivots asks each shard for standings spread evenly over where to look.
func (r *reader) pivots(aim []bracket) ([][]pivot, sizes, error) {
	calls := make([]*call, r.shards())
	for i, b := range aim {
		n := min(b.hi-b.lo, pivotsAShard-1)
		args := make([]any, n+1)
		for j := range n + 1 {
			args[j] = b.lo + (b.hi-b.lo)*j/max(n, 1)
		}
		calls[i] = r.call(pivotsScript, i, args...)
	}
	sizes, err := r.ask(calls)
	if err != nil {
		return nil, nil, err
	}
	out := make([][]pivot, len(calls))
	for i, c := range calls {
		for len(c.rest) > 0 && !c.fault {
			if p := (pivot{c.int(), c.str()}); len(out[i]) == 0 || out[i][len(out[i])-1].at < p.at {
				out[i] = append(out[i], p)
			}
		}
	}
	return out, sizes, fault(calls)
}

// choose returns the pivot whose position in the ladder is likely nearest to the
// one wanted, an estimate of it, and how far off that may well be. It narrows
// bounds by what the pivots prove.
func choose(pivots [][]pivot, bounds []bracket, position int64) (string, int64, int64) {
	var all []string
	for _, list := range pivots {
		for _, p := range list {
			all = append(all, p.key)
		}
	}
	slices.Sort(all)
	var best string
	var estimate, doubt int64
	nearest := int64(math.MaxInt64)
	for _, k := range all {
		var low, high, guess int64
		var variance float64
		lows, highs := make([]int64, len(pivots)), make([]int64, len(pivots))
		for i, list := range pivots {
			j, equal := slices.BinarySearchFunc(list, k, func(p pivot, k string) int {
				switch {
				case p.key < k:
					return -1
				case p.key > k:
					return 1
				}
				return 0
			})
			lows[i], highs[i] = bounds[i].lo, bounds[i].hi
			if j > 0 {
				lows[i] = max(lows[i], list[j-1].at+1)
			}
			if j < len(list) {
				highs[i] = min(highs[i], list[j].at)
			}
			highs[i] = max(highs[i], lows[i])
			if equal {
				lows[i] = highs[i]
			}
			low, high = low+lows[i], high+highs[i]
			gap := float64(highs[i] - lows[i])
			switch {
			case j == 0 && len(list) > 0:
				guess += min(highs[i], list[0].at) // likely near, since outside of where it was looked
				variance += 1
			case j == len(list) && len(list) > 0:
				guess += lows[i]
				variance += 1
			default:
				guess += (lows[i] + highs[i]) / 2
				variance += gap * gap / 12
			}
		}
		if high <= position { // so many at most are before k: k is before the position, or at it
			for i := range bounds {
				bounds[i].lo = min(max(bounds[i].lo, lows[i]), bounds[i].hi)
			}
		} else if low >= position {
			for i := range bounds {
				bounds[i].hi = max(min(bounds[i].hi, highs[i]), bounds[i].lo)
			}
		}
		if off := max(guess-position, position-guess); off < nearest {
			nearest, best, estimate, doubt = off, k, guess, int64(2*math.Sqrt(variance))+2
		}
	}
	return best, estimate, doubt
}

// narrow takes up what a window that missed the position says of it.
func (r *reader) narrow(bounds, aim []bracket, s *stretch, position int64, round int) {
	var cut, left int64
	for i := range s.parts {
		cut += s.parts[i].cut
	}
	off := position - cut
	for i := range bounds {
		if off >= 0 {
			bounds[i] = bounds[i].within(bracket{s.parts[i].cut, s.parts[i].size})
		} else {
			bounds[i] = bounds[i].within(bracket{0, s.parts[i].cut})
		}
		left += bounds[i].hi - bounds[i].lo
	}
	for i := range aim {
		if round >= guesses || left == 0 {
			aim[i] = bounds[i]
			continue
		}
		// As much of the way as the shard has of what is left.
		way := float64(off) * float64(bounds[i].hi-bounds[i].lo) / float64(left)
		spread := 5*math.Sqrt(math.Abs(way)) + 8
		at := float64(s.parts[i].cut) + way
		aim[i] = bracket{int64(at - spread), int64(at + spread)}.within(bounds[i])
	}
}
