package redis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// excerpt reads an excerpt: standings around a cut, which is a point between two standings (see
// excerpt.go). kind is the way in which the string cut names this point, "i" or "k": see
// lua/excerpt.lua. The method also returns the sort key of user, or "" if user is empty or not in
// the ladder.
func (r *reader) excerpt(kind, cut string, above, below int, user leaderboard.UserID) (*excerpt, string, error) {
	calls := make([]*call, r.shards())
	for i := range calls {
		shardUser := ""
		if user != "" && shardOf(user, r.shards()) == i {
			shardUser = string(user)
		}
		calls[i] = r.call(excerptScript, i, kind, above, below, cut, shardUser, bucketHash(shardUser))
	}
	sizes, err := r.ask(calls)
	if err != nil {
		return nil, "", err
	}
	sortKey := ""
	parts := make([]part, len(calls))
	for i, c := range calls {
		if k := c.str(); k != "" {
			sortKey = k
		}
		parts[i] = r.part(c, sizes[i])
		if r.shards() > 1 {
			parts[i].better = c.int()
		}
	}
	if kind == "i" {
		cut = "" // above is 0 here, so all keys are behind the cut
	}
	return join(cut, r.keyBytes, parts), sortKey, fault(calls)
}

// part reads a part from an answer of the excerpt script. size is the size of the ladder in the shard.
func (r *reader) part(c *call, size int64) part {
	return part{
		size: size, cut: c.int(), first: c.int(), start: c.int(), distinct: c.int(),
		notWorse: c.int(), keys: c.sortKeys(r.keyBytes),
	}
}

type pageQuery struct {
	ladder   leaderboard.Ladder
	position int64               // of the first standing, from 0; -1 in a question of PageAfter
	after    leaderboard.SortKey // of PageAfter
	n        int
	counts   string // see lua/read.lua
}

type pageAnswer struct {
	standings []leaderboard.Standing
	view      leaderboard.View
	err       error
}

// Page implements [leaderboard.Ranker]. It treats a position below 1 as 1. Concurrent
// equal calls share one read, which begins after the last of these calls began.
func (x *Index) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.sharePage(ctx, pageQuery{ladder: l, position: min(max(position, 1), maxPosition) - 1, n: n, counts: countsOf(methods)})
}

// PageAfter implements [leaderboard.Ranker]. Sort keys that begin with after, but are longer,
// follow it. So an empty after requests the first page. Concurrent equal calls share one read.
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

func (x *Index) readPages(ctx context.Context, q pageQuery, calls []*pageAnswer) error {
	ctx, cancel := x.boundShared(ctx)
	defer cancel()
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

// sharedTimeout bounds a shared read. Even if all callers stop waiting, the read goes on.
const sharedTimeout = 5 * time.Second

// boundShared returns the context of a shared read, which Close also ends.
func (x *Index) boundShared(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	stop := context.AfterFunc(x.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

func (x *Index) readPage(ctx context.Context, q pageQuery) ([]leaderboard.Standing, leaderboard.View, error) {
	n := min(q.n, pieceStandings)
	var out []leaderboard.Standing
	v, err := x.answer(ctx, q.ladder, q.counts, func(r *reader) (err error) {
		switch {
		case q.position < 0:
			out, err = r.pageBehind(string(q.after)+"\x00", 0, n) // the least key greater than q.after
		case r.shards() == 1:
			var w *excerpt
			if w, _, err = r.excerpt("i", fmt.Sprint(q.position), 0, n, ""); err == nil {
				out, _, err = w.standings(r, 0, n)
			}
		case q.position <= int64(max(n, nearTop)):
			out, err = r.pageBehind("", int(q.position), n)
		default:
			out, err = r.readDeep(q.position, n)
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

// extend reads the standings that follow out, in pieces, and appends them until out has q.n standings.
// Each piece shows the ladder at a later moment. Its ranks continue the ranks of out.
func (x *Index) extend(ctx context.Context, q pageQuery, out []leaderboard.Standing, v leaderboard.View) ([]leaderboard.Standing, leaderboard.View, error) {
	for len(out) < q.n {
		var piece []leaderboard.Standing
		var err error
		limit := min(q.n-len(out), pieceStandings)
		v, err = x.answer(ctx, q.ladder, q.counts, func(r *reader) (err error) {
			piece, err = r.pageBehind(string(out[len(out)-1].SortKey())+"\x00", 0, limit)
			return err
		})
		if err != nil {
			return nil, v, err
		}
		for _, s := range piece {
			s.RankAfter(&out[len(out)-1])
			out = append(out, s)
		}
		if len(piece) < limit {
			break
		}
	}
	return out, v, nil
}

// nearTop is for seasons of several shards. If a page begins at most nearTop standings, or one page,
// below the top, readPage also reads the standings before the page. Otherwise it calls [reader.readDeep].
const nearTop = 100

// pageBehind returns up to n standings, from an offset behind a cut (see [excerpt]). The offset counts
// standings.
func (r *reader) pageBehind(cut string, offset, n int) ([]leaderboard.Standing, error) {
	for _, ask := range []int{requestSize(offset+n, r.shards()), offset + n} {
		w, _, err := r.excerpt("k", cut, 0, ask, "")
		if err != nil {
			return nil, err
		}
		out, ok, err := w.standings(r, w.search(cut)+offset, n)
		if ok || err != nil {
			return out, err
		}
	}
	return nil, errUnstable
}

type aroundQuery struct {
	ladder       leaderboard.Ladder
	counts       string // see lua/read.lua
	above, below int    // see around
}

type aroundAnswer struct {
	user leaderboard.UserID
	leaderboard.Neighborhood
	view leaderboard.View
	err  error
}

// Around implements [leaderboard.Ranker]. In a season with one shard, concurrent calls with equal
// parameters but different users share one read, which begins after the last of these calls began.
func (x *Index) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	above, below = max(above, 0), min(max(below, 0), math.MaxInt32)
	if above+below < pieceStandings {
		return x.shareAround(ctx, aroundQuery{l, countsOf(methods) + "w", above, below + 1}, user)
	}
	// Read the user's position, then a page. If the user moves between the two, read both again.
	for range attempts {
		n, v, err := x.shareAround(ctx, aroundQuery{l, countsOf(methods) + "w", 0, 1}, user)
		if err == nil {
			place := n.Standings[0].Ranks.Ordinal
			first := max(place-int64(above), 1)
			n.Of = int(place - first)
			n.Standings, v, err = x.Page(ctx, l, first, min(n.Of+1+below, math.MaxInt32), methods...)
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

func (x *Index) shareAround(ctx context.Context, q aroundQuery, user leaderboard.UserID) (leaderboard.Neighborhood, leaderboard.View, error) {
	a := aroundAnswer{user: user}
	if len(*x.peek(q.ladder.SeasonKey).control.Load()) > 1 || q.above+q.below > sharedStandings {
		x.answerArounds(ctx, q, []*aroundAnswer{&a})
	} else if err := x.arounds.Do(ctx, q, &a); err != nil {
		return leaderboard.Neighborhood{}, leaderboard.View{}, fmt.Errorf("redis: %v: %w: %w", q.ladder, leaderboard.ErrRankUnavailable, err)
	}
	if a.err == nil && len(a.Standings) == 0 {
		a.err = fmt.Errorf("redis: %v: %q: %w", q.ladder, user, leaderboard.ErrEntryNotFound)
	}
	if a.err != nil {
		return leaderboard.Neighborhood{}, leaderboard.View{}, a.err
	}
	return a.Neighborhood, a.view, nil
}

func (x *Index) readArounds(ctx context.Context, q aroundQuery, calls []*aroundAnswer) error {
	ctx, cancel := x.boundShared(ctx)
	defer cancel()
	x.answerArounds(ctx, q, calls)
	return nil
}

// answerArounds reads the standings around the users of all calls. With one shard, one script reads
// all of them.
func (x *Index) answerArounds(ctx context.Context, q aroundQuery, calls []*aroundAnswer) {
	_, err := x.answer(ctx, q.ladder, q.counts, func(r *reader) (err error) {
		if r.shards() == 1 {
			return r.neighborhoods(calls, q.above, q.below)
		}
		for _, c := range calls {
			if c.Neighborhood, err = r.around(c.user, q.above, q.below); err != nil {
				return err
			}
			c.view = r.view
		}
		return nil
	})
	for _, c := range calls {
		c.err = err
	}
}

// A script that several calls of Around share reads at most sharedUsers users, and at most
// sharedStandings standings for each, because a script blocks its server. A script takes longest if
// many users tie.
const (
	sharedUsers     = 16
	sharedStandings = 16
)

// neighborhoods reads the standings around each user, in a season with one shard. The parameters above
// and below are those of the method around. If a user is not in the ladder, the user's answer is empty.
func (r *reader) neighborhoods(answers []*aroundAnswer, above, below int) error {
	args := make([]any, 0, 3+2*len(answers))
	args = append(args, "u", above, below)
	for _, a := range answers {
		args = append(args, string(a.user), bucketHash(string(a.user)))
	}
	c := r.call(excerptScript, 0, args...)
	sizes, err := r.ask([]*call{c})
	if err != nil {
		return err
	}
	for _, a := range answers {
		a.Neighborhood, a.view = leaderboard.Neighborhood{}, r.view
		sortKey := c.str()
		if sortKey == "" {
			continue
		}
		w := join(sortKey, r.keyBytes, []part{r.part(c, sizes[0])})
		position := w.search(sortKey)
		out, ok, err := w.standings(r, 0, position+below)
		if err != nil {
			return err
		}
		if !ok {
			return errUnstable
		}
		a.Neighborhood = leaderboard.Neighborhood{Standings: out, Of: position, NotWorse: w.countNotWorse()}
	}
	return fault([]*call{c})
}

// around returns the standings around a user, in a season with several shards. The parameter above
// limits the standings before the user's own standing. The parameter below limits the user's own
// standing and those after it.
func (r *reader) around(user leaderboard.UserID, above, below int) (leaderboard.Neighborhood, error) {
	cut, _ := r.x.hints.Get(hint{r.season, user})
	full := false
	for range attempts {
		countAbove, countBelow := requestSize(above, r.shards()), requestSize(below, r.shards())
		if full {
			countAbove, countBelow = above, below
		}
		if cut == "" {
			countAbove, countBelow = 0, 0 // first read the user's sort key
		}
		w, sortKey, err := r.excerpt("k", cut, countAbove, countBelow, user)
		if err != nil || sortKey == "" {
			return leaderboard.Neighborhood{}, err
		}
		if sortKey != cut {
			cut = sortKey
			r.x.hints.Add(hint{r.season, user}, cut)
			continue
		}
		position := w.search(sortKey)
		first := max(position-above, 0)
		if w.base+int64(position) > int64(above) && position < above {
			full = true // the ladder has more standings above the user than the excerpt
			continue
		}
		out, ok, err := w.standings(r, first, position-first+below)
		if ok || err != nil {
			return leaderboard.Neighborhood{Standings: out, Of: position - first, NotWorse: w.countNotWorse()}, err
		}
		full = true
	}
	return leaderboard.Neighborhood{}, errUnstable
}

const (
	pivotsPerShard = 16
	estimateRounds = 4 // rounds in which readDeep estimates positions
	// maxReach bounds the standings between a pivot and the wanted position that readDeep reads. If the
	// distance is probably greater, readDeep reads only the pivot.
	maxReach = 1024
)

// readDeep returns n standings of a ladder of several shards, from a position, which counts from 0.
// A hash distributes users over shards. So each shard has about the same number of the standings
// before the position.
//
// A round of the search has two round trips. The first one reads pivots: in each shard, standings near
// the place where the page probably begins. The second one reads an excerpt whose cut is the pivot that
// is probably nearest to the position. All shards count their standings before the cut, so the position
// of the cut is exact. If the excerpt lacks the wanted standings, these counts narrow the search.
//
// After estimateRounds rounds, readDeep stops estimating, and distributes the pivots evenly over the
// remaining ranges of the shards. Each further round leaves at most about a quarter of these ranges, for
// any distribution of the standings.
func (r *reader) readDeep(position int64, n int) ([]leaderboard.Standing, error) {
	shards := r.shards()
	bounds := make([]bracket, shards) // for each shard: proven bounds of its number of standings before the position
	aim := make([]bracket, shards)    // for each shard: the range of positions in which to read pivots
	mean := float64(position) / float64(shards)
	spread := 5*math.Sqrt(mean) + 1
	for i := range bounds {
		bounds[i] = bracket{0, maxPosition}
		aim[i] = bracket{int64(mean - spread), int64(mean + spread)}.clampTo(bounds[i])
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
			bounds[i] = bounds[i].clampTo(bracket{0, sizes[i]})
		}
		cut, estimate, margin := choosePivot(pivots, bounds, position)
		distance := position - estimate
		countAbove, countBelow := 0, 1 // read at least the pivot
		if margin+max(distance, -distance) <= maxReach {
			countAbove, countBelow = int(max(-distance, 0)+margin), int(max(distance, 0)+margin)+n
			if round < estimateRounds {
				countAbove, countBelow = requestSize(countAbove, shards), requestSize(countBelow, shards)
			}
		}
		w, _, err := r.excerpt("k", cut, countAbove, countBelow, "")
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

// bracket bounds an unknown number: it is at least lo and at most hi.
type bracket struct{ lo, hi int64 }

// clampTo returns the common part of b and o. If b and o have no common number, clampTo returns the
// number in o that is nearest to b, as a bracket.
func (b bracket) clampTo(o bracket) bracket {
	lo := min(max(b.lo, o.lo), o.hi)
	return bracket{lo, max(min(b.hi, o.hi), lo)}
}

// pivot is the sort key of a standing, and the position of the standing in its shard, from 0.
type pivot struct {
	position int64
	key      string
}

// The method pivots reads pivots of each shard, at even distances within aim.
func (r *reader) pivots(aim []bracket) ([][]pivot, sizes, error) {
	calls := make([]*call, r.shards())
	for i, b := range aim {
		n := min(b.hi-b.lo, pivotsPerShard-1)
		args := make([]any, n+1)
		for j := range n + 1 {
			args[j] = b.lo + (b.hi-b.lo)*j/max(n, 1)
		}
		calls[i] = r.call(surveyScript, i, append([]any{len(args), 0, 0, 0, 1, 0}, args...)...)
	}
	sizes, err := r.ask(calls)
	if err != nil {
		return nil, nil, err
	}
	out := make([][]pivot, len(calls))
	for i, c := range calls {
		for len(c.rest) > 0 && !c.fault {
			if p := (pivot{c.int(), c.str()}); p.key != "" && (len(out[i]) == 0 || out[i][len(out[i])-1].position < p.position) {
				out[i] = append(out[i], p)
			}
		}
	}
	return out, sizes, fault(calls)
}

// placement describes the number of standings of a shard that precede a key. The shard's pivots
// prove the bounds in bracket. guess is an estimate of the number, with the given variance.
type placement struct {
	bracket
	guess    int64
	variance float64
}

// placementOf returns the placement of key in a shard with the given pivots. The parameter
// bound has the bounds from earlier rounds.
func placementOf(pivots []pivot, bound bracket, key string) placement {
	j, equal := slices.BinarySearchFunc(pivots, key, func(p pivot, key string) int { return cmp.Compare(p.key, key) })
	p := placement{bracket: bound}
	if j > 0 {
		p.lo = max(p.lo, pivots[j-1].position+1)
	}
	if j < len(pivots) {
		p.hi = min(p.hi, pivots[j].position)
	}
	p.hi = max(p.hi, p.lo)
	if equal {
		p.lo = p.hi
	}
	switch {
	case j == 0 && len(pivots) > 0:
		p.guess = min(p.hi, pivots[0].position) // the key precedes all pivots, and is probably near the first one
		p.variance = 1
	case j == len(pivots) && len(pivots) > 0:
		p.guess = p.lo
		p.variance = 1
	default:
		p.guess = (p.lo + p.hi) / 2
		gap := float64(p.hi - p.lo)
		p.variance = gap * gap / 12 // of a uniform distribution
	}
	return p
}

// choosePivot chooses the pivot that is likely nearest to position in the ladder. It returns
// the pivot's sort key, an estimate of its position, and the likely error of the estimate. It
// also narrows bounds as far as the pivots prove.
func choosePivot(pivots [][]pivot, bounds []bracket, position int64) (string, int64, int64) {
	var all []string
	for _, list := range pivots {
		for _, p := range list {
			all = append(all, p.key)
		}
	}
	slices.Sort(all)
	var best string
	var estimate, margin int64
	nearest := int64(math.MaxInt64)
	for _, k := range all {
		var sum placement
		places := make([]placement, len(pivots))
		for i, list := range pivots {
			p := placementOf(list, bounds[i], k)
			places[i] = p
			sum.lo, sum.hi = sum.lo+p.lo, sum.hi+p.hi
			sum.guess, sum.variance = sum.guess+p.guess, sum.variance+p.variance
		}
		if sum.hi <= position { // k is not behind the position, so the standings before k are also before the position
			for i := range bounds {
				bounds[i].lo = min(max(bounds[i].lo, places[i].lo), bounds[i].hi)
			}
		} else if sum.lo >= position {
			for i := range bounds {
				bounds[i].hi = max(min(bounds[i].hi, places[i].hi), bounds[i].lo)
			}
		}
		if distance := max(sum.guess-position, position-sum.guess); distance < nearest {
			nearest, best, estimate, margin = distance, k, sum.guess, int64(2*math.Sqrt(sum.variance))+2
		}
	}
	return best, estimate, margin
}

// narrow tightens bounds by the counts of an excerpt that does not contain the position. It
// also sets aim for the next round.
func (r *reader) narrow(bounds, aim []bracket, w *excerpt, position int64, round int) {
	var cut, remaining int64
	for i := range w.parts {
		cut += w.parts[i].cut
	}
	distance := position - cut
	for i := range bounds {
		if distance >= 0 {
			bounds[i] = bounds[i].clampTo(bracket{w.parts[i].cut, w.parts[i].size})
		} else {
			bounds[i] = bounds[i].clampTo(bracket{0, w.parts[i].cut})
		}
		remaining += bounds[i].hi - bounds[i].lo
	}
	for i := range aim {
		if round >= estimateRounds || remaining == 0 {
			aim[i] = bounds[i]
			continue
		}
		// Divide the distance among the shards in proportion to their remaining ranges.
		shardDistance := float64(distance) * float64(bounds[i].hi-bounds[i].lo) / float64(remaining)
		spread := 5*math.Sqrt(math.Abs(shardDistance)) + 8
		target := float64(w.parts[i].cut) + shardDistance
		aim[i] = bracket{int64(target - spread), int64(target + spread)}.clampTo(bounds[i])
	}
}
