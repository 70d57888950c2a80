package storagetest

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A line is an entry of the model.
type line struct {
	user       leaderboard.UserID
	score      int64      // rounded; unused on decay boards
	mean       *big.Rat   // on average boards, the score before rounding
	decayed    *big.Float // on decay boards, the sum of score·2^(event time/half-life)
	greatest   *big.Float // the largest absolute value among the terms of decayed
	terms      string     // the terms of decayed as text; equal texts mean equal sums
	ties       []int64
	achievedAt time.Time
	match      leaderboard.MatchID
	metadata   string
	finish     leaderboard.Finish
	divisions  []leaderboard.Division
	results    int64
	hidden     bool
}

// The precision of decayed sums, in bits.
const precision = 400

func eventOrder(x, y leaderboard.MatchResult) int {
	return cmp.Or(x.AchievedAt.Compare(y.AchievedAt), strings.Compare(string(x.Match), string(y.Match)))
}

func (m *model) line(s leaderboard.SeasonKey, user leaderboard.UserID) *line {
	b := m.boards[s.Board]
	results := m.countingResults(s, user)
	if len(results) == 0 {
		return nil
	}
	slices.SortFunc(results, eventOrder)
	l := &line{user: user, results: int64(len(results)), hidden: m.isBanned(user, s.Board)}
	var deciding leaderboard.MatchResult
	finish := results[len(results)-1].Finish
	switch b.Policy {
	case leaderboard.Best:
		b.K = 1
		deciding = bestResults(b, bestFinish(b, results))[0]
		finish = deciding.Finish
		l.score, l.ties = int64(deciding.Score), padded(deciding.TieBreakers, b)
	case leaderboard.Latest:
		deciding = results[len(results)-1]
		l.score, l.ties = int64(deciding.Score), padded(deciding.TieBreakers, b)
	case leaderboard.First:
		deciding = results[0]
		finish = deciding.Finish
		l.score, l.ties = int64(deciding.Score), padded(deciding.TieBreakers, b)
	case leaderboard.Count:
		deciding = results[len(results)-1]
		l.ties = combined(b, results)
		l.score = l.results
	case leaderboard.BestK:
		best := bestResults(b, results)
		deciding = lastChange(b, best)
		l.score, _ = totals(best, len(b.TieBreakers))
		l.ties = combined(b, best)
		shown := best[0]
		if b.DropWorst > 0 {
			shown = results[len(results)-1]
		}
		deciding.Match, deciding.Metadata = shown.Match, shown.Metadata
	case leaderboard.Average:
		deciding = results[len(results)-1]
		l.ties = combined(b, results)
		l.mean = meanOf(results)
		l.score, _ = strconv.ParseInt(l.mean.FloatString(0), 10, 64)
	default:
		counting := sinceReset(b, results)
		deciding = lastChange(b, counting)
		l.score, _ = totals(counting, len(b.TieBreakers))
		l.ties = combined(b, counting)
		l.score = min(max(l.score, -1<<53), 1<<53)
	}
	if b.Policy == leaderboard.Decay {
		l.decay(results, b.HalfLife)
	}
	l.achievedAt, l.match, l.metadata = deciding.AchievedAt, deciding.Match, deciding.Metadata
	if b.Ties == leaderboard.ByUserID || b.Ties == leaderboard.Shared {
		l.achievedAt = time.Time{}
	}
	if l.finish = finish; finish == leaderboard.Ranked && l.results < b.MinResults {
		l.finish = leaderboard.TooFew
	}
	names := b.Divisions
	if sealed := m.sealed[s]; sealed != nil {
		names = sealed.divisions
	}
	for _, division := range names {
		var parts []leaderboard.Division
		for name := range strings.SplitSeq(division, "+") {
			value := ""
			for _, r := range results {
				if v, ok := r.Attributes[name]; ok {
					value = v
				}
			}
			if value == "" {
				parts = nil
				break
			}
			parts = append(parts, leaderboard.Division{Attribute: name, Value: value})
		}
		if len(parts) > 0 {
			l.divisions = append(l.divisions, leaderboard.Cross(parts...))
		}
	}
	return l
}

func padded(ties []int64, b leaderboard.Board) []int64 {
	out := make([]int64, len(b.TieBreakers))
	copy(out, ties)
	return out
}

// bestFinish returns those of results whose finish is the best one.
func bestFinish(b leaderboard.Board, results []leaderboard.MatchResult) []leaderboard.MatchResult {
	for _, f := range append([]leaderboard.Finish{leaderboard.Ranked}, b.Statuses...) {
		if found := slices.DeleteFunc(slices.Clone(results), func(r leaderboard.MatchResult) bool { return r.Finish != f }); len(found) > 0 {
			return found
		}
	}
	return results
}

// sinceReset returns the results from the last reset on. results are ordered by event time.
func sinceReset(b leaderboard.Board, results []leaderboard.MatchResult) []leaderboard.MatchResult {
	from := 0
	for i, r := range results {
		if r.Reset && b.Policy == leaderboard.Sum {
			from = i
		}
	}
	return results[from:]
}

// combined returns the tie-breakers of an entry that follows from results.
func combined(b leaderboard.Board, results []leaderboard.MatchResult) []int64 {
	ordered := slices.SortedFunc(slices.Values(results), eventOrder)
	_, ties := totals(ordered, len(b.TieBreakers))
	for i, tie := range b.TieBreakers {
		if tie.Combine == leaderboard.Added {
			continue
		}
		for n, r := range ordered {
			v := padded(r.TieBreakers, b)[i]
			if n == 0 || tie.Combine == leaderboard.Last || tie.Combine == leaderboard.Greatest && v > ties[i] || tie.Combine == leaderboard.Least && v < ties[i] {
				ties[i] = v
			}
		}
	}
	return ties
}

// bestResults returns the b.K best of results, or all but the b.DropWorst worst, the best first.
func bestResults(b leaderboard.Board, results []leaderboard.MatchResult) []leaderboard.MatchResult {
	best := slices.SortedFunc(slices.Values(results), func(x, y leaderboard.MatchResult) int {
		return cmp.Or(inOrder(b.Order, int64(x.Score), int64(y.Score)),
			compareTies(b.TieBreakers, padded(x.TieBreakers, b), padded(y.TieBreakers, b)), eventOrder(x, y))
	})
	if b.DropWorst > 0 {
		return best[:max(len(best)-b.DropWorst, 1)]
	}
	return best[:min(b.K, len(best))]
}

// lastChange returns the last result that changes a sum, or else the first result.
func lastChange(b leaderboard.Board, results []leaderboard.MatchResult) leaderboard.MatchResult {
	ordered := slices.SortedFunc(slices.Values(results), eventOrder)
	last := ordered[0]
	for _, r := range ordered {
		changes := r.Score != 0 || r.Reset && b.Policy == leaderboard.Sum
		for i, v := range r.TieBreakers {
			changes = changes || v != 0 && b.TieBreakers[i].Combine == leaderboard.Added
		}
		if changes {
			last = r
		}
	}
	return last
}

func meanOf(results []leaderboard.MatchResult) *big.Rat {
	mean := new(big.Rat)
	for _, r := range results {
		mean.Add(mean, big.NewRat(int64(r.Score), int64(len(results))))
	}
	return mean
}

func (l *line) decay(results []leaderboard.MatchResult, halfLife time.Duration) {
	l.score = 0
	l.decayed, l.greatest = newFloat(), newFloat()
	var terms []string
	for _, r := range results {
		if r.Score == 0 {
			continue
		}
		term := newFloat().SetInt64(int64(r.Score))
		term.Mul(term, twoTo(r.AchievedAt, halfLife))
		l.decayed.Add(l.decayed, term)
		if magnitude := newFloat().Abs(term); magnitude.Cmp(l.greatest) > 0 {
			l.greatest = magnitude
		}
		terms = append(terms, fmt.Sprint(r.Score, r.AchievedAt.UnixMicro()))
	}
	slices.Sort(terms)
	l.terms = strings.Join(terms, ",")
}

func newFloat() *big.Float { return new(big.Float).SetPrec(precision) }

// roots returns 2 to the power of 1/2, 1/4, 1/8 and so on.
var roots = sync.OnceValue(func() (roots [precision]*big.Float) {
	root := newFloat().SetInt64(2)
	for i := range roots {
		roots[i] = newFloat().Sqrt(root)
		root = roots[i]
	}
	return roots
})

// twoTo returns 2^(t/halfLife), with t in microseconds since 1970.
func twoTo(t time.Time, halfLife time.Duration) *big.Float {
	h := halfLife.Microseconds()
	quotient, remainder := t.UnixMicro()/h, t.UnixMicro()%h
	if remainder < 0 {
		quotient, remainder = quotient-1, remainder+h
	}
	// If digit i of the binary fraction remainder/h is 1, the power has the factor roots[i].
	v := newFloat().SetInt64(1)
	for _, root := range roots() {
		if remainder *= 2; remainder >= h {
			remainder -= h
			v.Mul(v, root)
		}
	}
	return v.SetMantExp(v, int(quotient))
}

// scoreAt returns the decayed sum at t, not rounded.
func (l *line) scoreAt(t time.Time, halfLife time.Duration) *big.Float {
	return newFloat().Quo(l.decayed, twoTo(t, halfLife))
}

// inOrder is negative if x is better.
func inOrder(o leaderboard.Order, x, y int64) int {
	if o == leaderboard.LowerFirst {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x)
}

func compareTies(breakers []leaderboard.TieBreaker, x, y []int64) int {
	for i, tb := range breakers {
		if c := inOrder(tb.Order, x[i], y[i]); c != 0 {
			return c
		}
	}
	return 0
}

// c is negative if x ranks better, and 0 in a tie. If the decayed sums are too close for the model
// to decide, ok is false.
func (m *model) compare(b leaderboard.Board, x, y *line) (c int, ok bool) {
	place := func(f leaderboard.Finish) int {
		return slices.Index(append([]leaderboard.Finish{leaderboard.Ranked, leaderboard.TooFew}, b.Statuses...), f)
	}
	if c := cmp.Compare(place(x.finish), place(y.finish)); c != 0 {
		return c, true
	}
	if b.Policy == leaderboard.Average {
		c := x.mean.Cmp(y.mean)
		if b.Order == leaderboard.HigherFirst {
			c = -c
		}
		return cmp.Or(c, compareTies(b.TieBreakers, x.ties, y.ties)), true
	}
	if b.Policy != leaderboard.Decay {
		return cmp.Or(inOrder(b.Order, x.score, y.score), compareTies(b.TieBreakers, x.ties, y.ties)), true
	}
	if x.terms != y.terms {
		diff := newFloat().Sub(x.decayed, y.decayed)
		greatest := x.greatest
		if y.greatest.Cmp(greatest) > 0 {
			greatest = y.greatest
		}
		if newFloat().Abs(diff).Cmp(newFloat().SetMantExp(greatest, -100)) <= 0 {
			return 0, false
		}
		if c = diff.Sign(); b.Order == leaderboard.HigherFirst {
			c = -c
		}
		return c, true
	}
	return compareTies(b.TieBreakers, x.ties, y.ties), true
}

func (m *model) ladder(l leaderboard.Ladder) []*line {
	var out []*line
	for _, user := range m.users(l.SeasonKey) {
		ln := m.line(l.SeasonKey, user)
		if ln != nil && !ln.hidden && (l.Division.Overall() || slices.Contains(ln.divisions, l.Division)) {
			out = append(out, ln)
		}
	}
	return out
}
