package redis

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// window asks every shard for its part of a window around a cut. It also returns
// the sort key of user, or "" if user is empty or not in the ladder. If by is "u" and the
// user is not in the ladder, the window is nil.
func (r *reader) window(by, cut string, above, below int, user leaderboard.UserID) (*window, string, error) {
	calls := make([]*call, r.shards())
	for i := range calls {
		of := leaderboard.UserID("")
		if user != "" && shardOf(user, r.shards()) == i {
			of = user
		}
		calls[i] = r.call(windowScript, i, by, cut, above, below, string(of), bucketHash(string(of)))
	}
	sizes, err := r.ask(calls)
	if err != nil {
		return nil, "", err
	}
	mine := ""
	parts := make([]part, len(calls))
	for i, c := range calls {
		if k := c.str(); k != "" {
			mine = k
		}
		if by == "u" && mine == "" {
			return nil, "", fault(calls)
		}
		parts[i] = part{
			size: sizes[i], cut: c.int(), better: c.int(), smaller: c.int(), equal: c.int(),
			notWorse: c.int(), first: c.int(), start: c.int(), distinct: c.int(), keys: c.lists(),
		}
	}
	switch by {
	case "u":
		cut = mine
	case "i":
		cut = "" // the keys begin at the cut
	}
	return join(cut, r.keyBytes, parts), mine, fault(calls)
}

// pageQuery is a question of Page or PageAfter. Concurrent equal ones share a read.
type pageQuery struct {
	ladder   leaderboard.Ladder
	position int64               // of the first standing, from 0; -1 in a question of PageAfter
	after    leaderboard.SortKey // of PageAfter
	n        int
	counts   string // see lua/read.lua
}

// pageAnswer is the answer to a pageQuery.
type pageAnswer struct {
	standings []leaderboard.Standing
	view      leaderboard.View
	err       error
}

// Page implements [leaderboard.Ranker]. It treats a position below 1 as 1. Concurrent
// equal calls share one read, which begins after each of them.
func (x *Index) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.sharePage(ctx, pageQuery{ladder: l, position: min(max(position, 1), maxPosition) - 1, n: n, counts: countsOf(methods)})
}

// PageAfter implements [leaderboard.Ranker]. The empty key precedes all keys, and
// a proper prefix of a sort key precedes every key that begins with it. Concurrent equal
// calls share a read, as those of Page do.
func (x *Index) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.sharePage(ctx, pageQuery{ladder: l, position: -1, after: after, n: n, counts: countsOf(methods)})
}

func (x *Index) sharePage(ctx context.Context, q pageQuery) ([]leaderboard.Standing, leaderboard.View, error) {
	q.n = min(max(q.n, 0), math.MaxInt32)
	var a pageAnswer
	if err := x.pages.Do(ctx, q, &a); err != nil {
		return nil, leaderboard.View{}, fmt.Errorf("redis: %v: %w: %w", q.ladder, leaderboard.ErrRankUnavailable, err)
	}
	return a.standings, a.view, a.err
}

// readPages reads a page for all calls that share it.
func (x *Index) readPages(ctx context.Context, q pageQuery, calls []*pageAnswer) error {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	defer context.AfterFunc(x.ctx, cancel)()
	var a pageAnswer
	if a.standings, a.view, a.err = x.readPage(ctx, q); a.err != nil {
		a.standings, a.view = nil, leaderboard.View{}
	}
	for i, call := range calls {
		if *call = a; i > 0 {
			call.standings = slices.Clone(a.standings)
		}
	}
	return nil
}

// sharedTimeout bounds a shared read, which does not end when its callers leave.
const sharedTimeout = 5 * time.Second

func (x *Index) readPage(ctx context.Context, q pageQuery) ([]leaderboard.Standing, leaderboard.View, error) {
	n := min(q.n, pieceStandings)
	var out []leaderboard.Standing
	v, err := x.answer(ctx, q.ladder, q.counts, func(r *reader) (err error) {
		switch {
		case q.position < 0:
			out, err = r.after(string(q.after)+"\x00", 0, n) // the least key behind after
		case r.shards() == 1:
			var w *window
			if w, _, err = r.window("i", fmt.Sprint(q.position), 0, n, ""); err == nil {
				out, _, err = w.standings(r, 0, n)
			}
		case q.position <= int64(max(n, nearTop)):
			out, err = r.after("", int(q.position), n)
		default:
			out, err = r.deep(q.position, n)
		}
		return err
	})
	if err == nil && len(out) == n && q.n > n {
		out, v, err = x.extend(ctx, q, out, v)
	}
	return out, v, err
}

// pieceStandings bounds the standings that one script reads, because a script blocks its
// server.
const pieceStandings = 1000

// extend appends standings that follow the last one of out, up to q.n in all, in pieces.
// Each piece shows the ladder at a later moment. The ranks continue those of out.
func (x *Index) extend(ctx context.Context, q pageQuery, out []leaderboard.Standing, v leaderboard.View) ([]leaderboard.Standing, leaderboard.View, error) {
	for len(out) < q.n {
		var part []leaderboard.Standing
		var err error
		want := min(q.n-len(out), pieceStandings)
		v, err = x.answer(ctx, q.ladder, q.counts, func(r *reader) (err error) {
			part, err = r.after(string(out[len(out)-1].SortKey())+"\x00", 0, want)
			return err
		})
		if err != nil {
			return nil, v, err
		}
		for _, s := range part {
			s.RankAfter(&out[len(out)-1])
			out = append(out, s)
		}
		if len(part) < want {
			break
		}
	}
	return out, v, nil
}

// nearTop bounds the standings before a short page that are read only to be skipped.
// A page deeper in the ladder is found by [reader.deep].
const nearTop = 100

// The method after returns up to n standings behind a cut. It leaves out the first skip
// standings.
func (r *reader) after(cut string, skip, n int) ([]leaderboard.Standing, error) {
	for _, ask := range []int{share(skip+n, r.shards()), skip + n} {
		w, _, err := r.window("k", cut, 0, ask, "")
		if err != nil {
			return nil, err
		}
		out, ok, err := w.standings(r, w.search(cut)+skip, n)
		if ok || err != nil {
			return out, err
		}
	}
	return nil, errUnstable
}

// Around implements [leaderboard.Ranker].
func (x *Index) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	above, below = max(above, 0), min(max(below, 0), math.MaxInt32)
	var n leaderboard.Neighborhood
	ask := func(above, below int) (leaderboard.View, error) {
		return x.answer(ctx, l, countsOf(methods)+"w", func(r *reader) (err error) {
			n, err = r.around(user, above, below+1)
			return err
		})
	}
	if above+below < pieceStandings {
		v, err := ask(above, below)
		if err != nil {
			return leaderboard.Neighborhood{}, leaderboard.View{}, err
		}
		return n, v, nil
	}
	for range attempts { // more than one if the user moves between the first piece and the others
		v, err := ask(0, 0)
		if err == nil {
			place := n.Standings[0].Ranks.Ordinal
			from := max(place-int64(above), 1)
			n.Of = int(place - from)
			n.Standings, v, err = x.Page(ctx, l, from, min(n.Of+1+below, math.MaxInt32), methods...)
		}
		if err != nil {
			return leaderboard.Neighborhood{}, leaderboard.View{}, err
		}
		if n.Of < len(n.Standings) && n.Standings[n.Of].User == user {
			return n, v, nil
		}
	}
	return leaderboard.Neighborhood{}, leaderboard.View{}, fmt.Errorf("redis: %v: %w", l, errUnstable)
}

// around returns the standings around a user: at most as many before the user as above
// states, and then at most as many as below states, beginning with the user's own.
func (r *reader) around(user leaderboard.UserID, above, below int) (leaderboard.Neighborhood, error) {
	by, cut := "u", ""
	if r.shards() > 1 {
		by = "k"
		cut, _ = r.x.hints.Get(hint{r.season, user})
	}
	full := false
	for range attempts {
		up, down := share(above, r.shards()), share(below, r.shards())
		if full {
			up, down = above, below
		}
		if by == "k" && cut == "" {
			up, down = 0, 0 // only the user's sort key is needed
		}
		w, mine, err := r.window(by, cut, up, down, user)
		if err != nil {
			return leaderboard.Neighborhood{}, err
		}
		if mine == "" {
			return leaderboard.Neighborhood{}, fmt.Errorf("%q: %w", user, leaderboard.ErrEntryNotFound)
		}
		if by == "k" && mine != cut {
			cut = mine
			r.x.hints.Add(hint{r.season, user}, cut)
			continue
		}
		at := w.search(mine)
		first := max(at-above, 0)
		if w.base+int64(at) > int64(above) && at < above {
			full = true // the ladder has more above the user than was read
			continue
		}
		out, ok, err := w.standings(r, first, at-first+below)
		if ok || err != nil {
			return leaderboard.Neighborhood{Standings: out, Of: at - first, NotWorse: w.notWorse()}, err
		}
		full = true
	}
	return leaderboard.Neighborhood{}, errUnstable
}

const (
	pivotsAShard = 16
	guesses      = 4    // rounds in which a search estimates positions
	reach        = 1024 // the distance from a pivot that a window may cover
)

// deep returns n standings of a ladder of several shards, beginning at a
// position from 0. A hash distributes the standings before the position, so the
// position within each shard is nearly known. A round reads pivots near these
// positions and then a window at the best pivot. The position of the window is
// exact, because all shards count up to its cut in one round trip. If the window
// misses the position, its counts narrow the search. After guesses rounds, deep
// stops estimating and reads pivots evenly over the remaining range. Each further
// round then leaves at most about a quarter of that range, for any distribution.
func (r *reader) deep(position int64, n int) ([]leaderboard.Standing, error) {
	shards := r.shards()
	bounds := make([]bracket, shards) // for each shard, proven bounds of its number of standings before position
	aim := make([]bracket, shards)    // where to read pivots
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
		up, down := 0, 1 // at least the pivot, for its exact position
		if doubt+max(off, -off) <= reach {
			up, down = int(max(-off, 0)+doubt), int(max(off, 0)+doubt)+n
			if round < guesses {
				up, down = share(up, shards), share(down, shards)
			}
		}
		w, _, err := r.window("k", cut, up, down, "")
		if err != nil {
			return nil, err
		}
		out, ok, err := w.standings(r, int(position-w.base), n)
		if ok || err != nil {
			return out, err
		}
		r.narrow(bounds, aim, w, position, round)
	}
	return nil, errUnstable
}

// bracket is a range that contains a number: lo to hi, both included.
type bracket struct{ lo, hi int64 }

func (b bracket) within(o bracket) bracket {
	lo := min(max(b.lo, o.lo), o.hi)
	return bracket{lo, max(min(b.hi, o.hi), lo)}
}

// pivot is a standing at a position of its shard, from 0.
type pivot struct {
	at  int64
	key string
}

// pivots reads standings of each shard at even distances within aim.
func (r *reader) pivots(aim []bracket) ([][]pivot, sizes, error) {
	calls := make([]*call, r.shards())
	for i, b := range aim {
		n := min(b.hi-b.lo, pivotsAShard-1)
		args := make([]any, n+1)
		for j := range n + 1 {
			args[j] = b.lo + (b.hi-b.lo)*j/max(n, 1)
		}
		calls[i] = r.call(surveyScript, i, append([]any{len(args), 0}, args...)...)
	}
	sizes, err := r.ask(calls)
	if err != nil {
		return nil, nil, err
	}
	out := make([][]pivot, len(calls))
	for i, c := range calls {
		for len(c.rest) > 0 && !c.fault {
			if p := (pivot{c.int(), c.str()}); p.key != "" && (len(out[i]) == 0 || out[i][len(out[i])-1].at < p.at) {
				out[i] = append(out[i], p)
			}
		}
	}
	return out, sizes, fault(calls)
}

// choose returns the pivot whose position in the ladder is likely nearest to
// position, an estimate of the pivot's position, and the likely error of the
// estimate. It narrows bounds by what the pivots prove.
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
				guess += min(highs[i], list[0].at) // likely near, because it is outside of the range that was read
				variance += 1
			case j == len(list) && len(list) > 0:
				guess += lows[i]
				variance += 1
			default:
				guess += (lows[i] + highs[i]) / 2
				variance += gap * gap / 12
			}
		}
		if high <= position { // at most high standings precede k: k is at the position or before it
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

// narrow tightens bounds by the counts of a window that missed the position, and
// sets aim for the next round.
func (r *reader) narrow(bounds, aim []bracket, w *window, position int64, round int) {
	var cut, left int64
	for i := range w.parts {
		cut += w.parts[i].cut
	}
	off := position - cut
	for i := range bounds {
		if off >= 0 {
			bounds[i] = bounds[i].within(bracket{w.parts[i].cut, w.parts[i].size})
		} else {
			bounds[i] = bounds[i].within(bracket{0, w.parts[i].cut})
		}
		left += bounds[i].hi - bounds[i].lo
	}
	for i := range aim {
		if round >= guesses || left == 0 {
			aim[i] = bounds[i]
			continue
		}
		// The shard's share of the distance is its share of the remaining range.
		way := float64(off) * float64(bounds[i].hi-bounds[i].lo) / float64(left)
		spread := 5*math.Sqrt(math.Abs(way)) + 8
		at := float64(w.parts[i].cut) + way
		aim[i] = bracket{int64(at - spread), int64(at + spread)}.within(bounds[i])
	}
}
