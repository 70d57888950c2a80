package leaderboard

import (
	"errors"
	"slices"
	"time"
)

// arithmetic is all that depends on a board's [Policy]. A new policy is a type with these methods, its
// name in policyNames, and its place in arithmetics.
type arithmetic interface {
	// validate checks the settings that only some policies allow.
	validate(b *Board) error
	// addsUp is [Board.AddsUp].
	addsUp() bool
	// keepsBest reports whether the entry has the best of the user's results.
	keepsBest() bool
	// add returns t extended by the score of r, which counts. [Board.Add] extends Tally.results and
	// Tally.attributes.
	add(b *Board, t Tally, r *MatchResult) Tally
	// refuse returns the reason why b refuses r because of the user's other results, or "". The tally
	// includes old, the result that r replaces, or the zero MatchResult.
	refuse(b *Board, t Tally, old, r MatchResult) Reason
	scoreForm
}

// scoreForm is the form of a score in a [RankKey]. The score is the first part of the key.
type scoreForm interface {
	// fades is [Board.Fades].
	fades() bool
	scoreBytes() int
	// appendScore appends the score of t. The zero Tally has the score 0.
	appendScore(dst []byte, b *Board, t Tally) []byte

	// The other methods are those of [Board] with the same names, at the time at, in Unix microseconds.
	scorePrefix(b *Board, s Score, at int64) RankKey
	scoreBounds(b *Board, s Score, at int64) (first, beyond RankKey)
	scoreOf(b *Board, k RankKey, at int64) Score
	exactScoreOf(b *Board, k RankKey, at int64) string
	// gap returns the difference of two scores, which are not equal.
	gap(b *Board, lower, upper RankKey, at int64) Score
}

var arithmetics = [...]arithmetic{
	Best: bestPolicy{}, Sum: sumPolicy{}, Latest: latestPolicy{}, Decay: decayPolicy{}, Count: countPolicy{}, First: firstPolicy{},
	Average: averagePolicy{}, BestK: bestKPolicy{},
}

// arithmetic returns that of Best if the policy is invalid, as [Board.Validate] has not been called.
func (b *Board) arithmetic() arithmetic {
	if b.Policy < 0 || int(b.Policy) >= len(arithmetics) {
		return bestPolicy{}
	}
	return arithmetics[b.Policy]
}

// Policies returns all policies.
func Policies() (all []Policy) {
	for p := range arithmetics {
		all = append(all, Policy(p))
	}
	return all
}

// AddsUp reports whether the scores on b follow from the points of several results. Otherwise they are the score
// of one result.
func (b *Board) AddsUp() bool { return b.arithmetic().addsUp() }

// StartsAtZero reports whether a user without results has the score 0. Otherwise such a user has no score.
func (b *Board) StartsAtZero() bool { return b.AddsUp() && b.Policy != Average }

// RoundsScores reports whether scores on b are rounded to integers: see [Board.ExactScoreOf].
func (b *Board) RoundsScores() bool { return b.arithmetic().scoreBytes() != columnBytes }

// Fades reports whether scores on b change with time, without results.
func (b *Board) Fades() bool { return b.arithmetic().fades() }

func (b *Board) checkNoHalfLife() error {
	if b.HalfLife != 0 {
		return fieldErrorf("half_life", "is allowed on DECAY boards only")
	}
	return nil
}

func (b *Board) checkNoFloor() error {
	if b.Floor != nil {
		return fieldErrorf("floor", "is allowed on SUM boards only")
	}
	return nil
}

// oneResult is the arithmetic of policies that choose one of the user's results, the deciding one.
type oneResult struct{ integer }

func (oneResult) validate(b *Board) error { return errors.Join(b.checkNoHalfLife(), b.checkNoFloor()) }

func (oneResult) addsUp() bool { return false }

func (oneResult) refuse(*Board, Tally, MatchResult, MatchResult) Reason { return "" }

func (oneResult) replace(b *Board, t Tally, r *MatchResult) Tally {
	t.score, t.ties, t.finish = r.Score, b.ResultTieBreakers(r), r.Finish
	t.match, t.achievedAt, t.metadata = r.Match, r.AchievedAt, r.Metadata
	return t
}

// bestPolicy implements [Best].
type bestPolicy struct{ oneResult }

func (bestPolicy) keepsBest() bool { return true }

func (p bestPolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	if t.results == 0 {
		return p.replace(b, t, r)
	}
	c := slices.Index(b.Statuses, r.Finish) - slices.Index(b.Statuses, t.finish) // a result with a rank, -1, is the best
	if c == 0 {
		c = b.compareResults(r.Score, b.ResultTieBreakers(r), t.score, t.ties)
	}
	if c > 0 || c == 0 && !isLater(t.achievedAt, t.match, r.AchievedAt, r.Match) {
		return t
	}
	return p.replace(b, t, r)
}

// compareResults returns a negative number if x with its tie-breakers is better than y, and a positive number if it
// is worse.
func (b *Board) compareResults(x Score, xTies []int64, y Score, yTies []int64) int {
	c := b.Order.compare(int64(x), int64(y))
	for i := 0; i < len(b.TieBreakers) && c == 0; i++ {
		c = b.TieBreakers[i].Order.compare(valueAt(xTies, i), valueAt(yTies, i))
	}
	return c
}

// latestPolicy implements [Latest].
type latestPolicy struct{ oneResult }

func (latestPolicy) keepsBest() bool { return false }

func (p latestPolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	if t.results > 0 && !isLater(r.AchievedAt, r.Match, t.achievedAt, t.match) {
		return t
	}
	return p.replace(b, t, r)
}

// firstPolicy implements [First].
type firstPolicy struct{ oneResult }

func (firstPolicy) keepsBest() bool { return false }

func (p firstPolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	if t.results > 0 && !isLater(t.achievedAt, t.match, r.AchievedAt, r.Match) {
		return t
	}
	return p.replace(b, t, r)
}

// points is the arithmetic of tie-breakers that are combined, and of the deciding result among them.
type points struct{}

func (points) addsUp() bool { return true }

func (points) keepsBest() bool { return false }

// addTies extends everything in t but the score. changesSum means that r changes the score.
func (p points) addTies(b *Board, t Tally, r *MatchResult, changesSum bool) Tally {
	p.decide(b, &t, b.ResultTieBreakers(r), positionOf(r), r.Metadata, changesSum)
	b.noteLatest(&t, r)
	return t
}

// decide extends the tie-breakers and the deciding result of t.
func (points) decide(b *Board, t *Tally, ties []int64, at position, metadata string, changesSum bool) {
	changesSum = b.combine(t, ties, at) || changesSum
	var decides bool
	switch {
	case t.match == "" || changesSum && !t.changed:
		decides = true
	case changesSum:
		decides = isLater(at.achievedAt, at.match, t.achievedAt, t.match)
	case !t.changed:
		decides = isLater(t.achievedAt, t.match, at.achievedAt, at.match)
	}
	if decides {
		t.match, t.achievedAt, t.metadata, t.changed = at.match, at.achievedAt, metadata, changesSum
	}
}

// include extends the sums of t, which t.match may lack yet, by a result without attributes and metadata.
func (p points) include(b *Board, t *Tally, r *keptResult) {
	at := position{r.achievedAt, r.match}
	p.decide(b, t, r.ties, at, "", r.score != 0)
	t.score += r.score
	if b.tracksLatest() && at.isAfter(t.latest) {
		t.latest = at
	}
}

// A sum of tie-breakers must not leave ±2^53. Other combinations cannot.
func (points) refuse(b *Board, t Tally, old, r MatchResult) Reason {
	oldTies, newTies := b.ResultTieBreakers(&old), b.ResultTieBreakers(&r)
	for i, tie := range b.TieBreakers {
		sum := valueAt(t.ties, i)
		if tie.Combine == Added && leavesRange(sum, sum-valueAt(oldTies, i)+valueAt(newTies, i)) {
			return ReasonRange
		}
	}
	return ""
}

// sumPolicy implements [Sum]. The sum is Tally.overflow·2^64 + Tally.score. If results set the score ([MatchResult].Reset),
// Tally.reset is the latest of them, and earlier results are in no sum.
type sumPolicy struct {
	integer
	points
}

func (sumPolicy) validate(b *Board) error {
	if b.Floor != nil && (*b.Floor < -MaxScore || *b.Floor > 0) {
		return errors.Join(b.checkNoHalfLife(), fieldErrorf("floor", "%d is not in the range -2^53 to 0; every user starts at 0", *b.Floor))
	}
	return b.checkNoHalfLife()
}

func (p sumPolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	if t.hides(r) {
		return t
	}
	t.addScore(r.Score)
	return p.addTies(b, t, r, r.Score != 0 || r.Reset)
}

// A result that sets the score is checked with its own points. If old sets the score, the sum after a correction is
// unknown, and not checked, as after a retraction.
func (p sumPolicy) refuse(b *Board, t Tally, old, r MatchResult) Reason {
	replacesReset := t.reset.match != "" && t.reset.match == r.Match
	if replacesReset && !r.Reset {
		return ""
	}
	for _, x := range []*MatchResult{&old, &r} {
		if !replacesReset && t.hides(x) {
			x.Score, x.TieBreakers, x.Reset = 0, nil, false
		}
	}
	sum := t.sum()
	newSum := sum - old.Score + r.Score
	if r.Reset {
		newSum, old.TieBreakers, t.ties = r.Score, nil, nil
	}
	switch {
	case b.Floor != nil && newSum < *b.Floor && newSum < sum:
		return ReasonFloor
	case leavesRange(int64(sum), int64(newSum)):
		return ReasonRange
	}
	return p.points.refuse(b, t, old, r)
}

// decayPolicy implements [Decay]: see decaySum.
type decayPolicy struct {
	fading
	points
}

func (decayPolicy) validate(b *Board) error {
	if b.HalfLife < MinHalfLife || b.HalfLife > MaxHalfLife || b.HalfLife%time.Microsecond != 0 {
		return errors.Join(b.checkNoFloor(), fieldErrorf("half_life", "%v is not allowed; it must be %v to %v in whole microseconds", b.HalfLife, MinHalfLife, MaxHalfLife))
	}
	return b.checkNoFloor()
}

func (p decayPolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	t.decay = t.decay.add(int64(r.Score), r.AchievedAt.UnixMicro(), b.HalfLife.Microseconds())
	return p.addTies(b, t, r, r.Score != 0)
}

// countPolicy implements [Count]. Each result changes the score.
type countPolicy struct {
	integer
	points
}

func (countPolicy) validate(b *Board) error {
	errs := []error{b.checkNoHalfLife(), b.checkNoFloor()}
	for field, given := range map[string]bool{"min_score": b.MinScore != nil, "max_score": b.MaxScore != nil, "decimals": b.Decimals != 0} {
		if given {
			errs = append(errs, fieldErrorf(field, "is not allowed on COUNT boards, which count results and ignore their points"))
		}
	}
	return errors.Join(errs...)
}

func (p countPolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	t.score++
	return p.addTies(b, t, r, true)
}

// averagePolicy implements [Average]. The sum of the points is Tally.overflow·2^64 + Tally.score. Each result
// changes the score.
type averagePolicy struct {
	mean
	points
}

func (averagePolicy) validate(b *Board) error {
	return errors.Join(b.checkNoHalfLife(), b.checkNoFloor())
}

func (p averagePolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	t.addScore(r.Score)
	return p.addTies(b, t, r, true)
}

func (p averagePolicy) refuse(b *Board, t Tally, old, r MatchResult) Reason {
	if t.results >= maxAveraged && old.Match == "" {
		return ReasonRange
	}
	return p.points.refuse(b, t, old, r)
}

// bestKPolicy implements [BestK]. With K, the score and the tie-breakers follow from the kept results, the K best. So that
// no sum leaves ±2^53, each result is limited to this range divided by K.
//
// With DropWorst, the kept results are the DropWorst+1 worst. The others are in Tally.rest, and never leave it while results
// are only added. All but the DropWorst worst are those in rest, and the best one of the kept.
type bestKPolicy struct {
	integer
	points
}

func (bestKPolicy) validate(b *Board) error {
	errs := []error{b.checkNoHalfLife(), b.checkNoFloor()}
	switch {
	case b.K != 0 && b.DropWorst != 0:
		errs = append(errs, fieldErrorf("drop_worst", "cannot be combined with k"))
	case b.DropWorst < 0 || b.DropWorst > MaxK:
		errs = append(errs, fieldErrorf("drop_worst", "%d is not in the range 1 to %d", b.DropWorst, MaxK))
	case b.DropWorst == 0 && (b.K < 1 || b.K > MaxK):
		errs = append(errs, fieldErrorf("k", "%d is not in the range 1 to %d; BEST_K boards require it, or drop_worst", b.K, MaxK))
	}
	for field, s := range map[string]*Score{"min_score": b.MinScore, "max_score": b.MaxScore} {
		if limit := b.largestScore(); s != nil && (*s < -limit || *s > limit) {
			errs = append(errs, fieldErrorf(field, "%d is outside ±%d, which is 2^53 divided by the largest number of results that count", *s, limit))
		}
	}
	return errors.Join(errs...)
}

func (p bestKPolicy) add(b *Board, t Tally, r *MatchResult) Tally {
	added := keptResult{r.Score, b.ResultTieBreakers(r), r.AchievedAt, r.Match}
	i, _ := slices.BinarySearchFunc(t.kept, added, b.compareKept)
	if b.DropWorst > 0 {
		return p.addDropping(b, t, i, added, r)
	}
	b.noteLatest(&t, r)
	k := max(b.K, 1)
	if i >= k {
		return t
	}
	kept := make([]keptResult, 0, min(len(t.kept)+1, k))
	kept = append(append(kept, t.kept[:i]...), added)
	t.kept = append(kept, t.kept[i:min(len(t.kept), k-1)]...)
	if i == 0 {
		t.match, t.metadata = r.Match, r.Metadata
	}
	var sums Tally
	for i := range t.kept {
		p.include(b, &sums, &t.kept[i])
	}
	return t.withSums(&sums)
}

// addDropping adds the kept result with the index i.
func (p bestKPolicy) addDropping(b *Board, t Tally, i int, added keptResult, r *MatchResult) Tally {
	t.kept = slices.Insert(slices.Clone(t.kept), i, added)
	var rest Tally
	if t.rest != nil {
		rest = *t.rest
	}
	if len(t.kept) > b.DropWorst+1 {
		p.include(b, &rest, &t.kept[0])
		t.kept, t.rest = t.kept[1:], &rest
	}
	sums := rest
	p.include(b, &sums, &t.kept[0])
	if positionOf(r).isAfter(t.latest) {
		t.match, t.metadata = r.Match, r.Metadata
	}
	b.noteLatest(&t, r)
	return t.withSums(&sums)
}

// withSums returns t with the sums of s, and with their time.
func (t Tally) withSums(s *Tally) Tally {
	t.score, t.ties, t.achievedAt, t.changed = s.score, s.ties, s.achievedAt, s.changed
	return t
}

func (p bestKPolicy) refuse(b *Board, t Tally, old, r MatchResult) Reason {
	limit := int64(b.largestScore())
	exceeds := func(v int64) bool { return v < -limit || v > limit }
	if exceeds(int64(r.Score)) || b.DropWorst > 0 && t.results >= maxCounted && old.Match == "" {
		return ReasonRange
	}
	for i, v := range b.ResultTieBreakers(&r) {
		if b.TieBreakers[i].Combine == Added && exceeds(v) {
			return ReasonRange
		}
	}
	return ""
}

// integer is a score that is an integer: it has one column of the rank key.
type integer struct{}

func (integer) fades() bool { return false }

func (integer) scoreBytes() int { return columnBytes }

func (integer) appendScore(dst []byte, b *Board, t Tally) []byte {
	return appendColumn(dst, b.Order, int64(min(max(t.sum(), -MaxScore), MaxScore)))
}

func (integer) scorePrefix(b *Board, s Score, _ int64) RankKey {
	return RankKey(appendColumn(nil, b.Order, int64(s)))
}

func (p integer) scoreBounds(b *Board, s Score, at int64) (first, beyond RankKey) {
	worse := s - 1
	if b.Order == LowerFirst {
		worse = s + 1
	}
	return p.scorePrefix(b, s, at), p.scorePrefix(b, worse, at)
}

func (integer) scoreOf(b *Board, k RankKey, _ int64) Score {
	return Score(columnValue(b.Order, string(k[:columnBytes])))
}

func (integer) exactScoreOf(*Board, RankKey, int64) string { return "" }

func (p integer) gap(b *Board, lower, upper RankKey, at int64) Score {
	return p.scoreOf(b, upper, at) - p.scoreOf(b, lower, at)
}

// fading is a score that halves with every half-life.
type fading struct{}

func (fading) fades() bool { return true }

func (fading) scoreBytes() int { return decayKeyLen }

func (fading) appendScore(dst []byte, b *Board, t Tally) []byte {
	n := len(dst)
	dst = t.decay.appendKey(dst)
	if b.Order == HigherFirst {
		invert(dst[n:])
	}
	return dst
}

func (fading) scorePrefix(b *Board, s Score, at int64) RankKey {
	halfLife := b.HalfLife.Microseconds()
	if b.Order == LowerFirst {
		return RankKey(decayBound(int64(s), at, halfLife))
	}
	return invertedBound(decayBound(int64(s)+1, at, halfLife))
}

func (fading) scoreBounds(b *Board, s Score, at int64) (first, beyond RankKey) {
	halfLife := b.HalfLife.Microseconds()
	equal, above := decayThreshold(2*int64(s), false, at, halfLife), decayThreshold(2*int64(s), true, at, halfLife)
	if b.Order == LowerFirst {
		return RankKey(equal), RankKey(above)
	}
	return invertedBound(above), invertedBound(equal)
}

func (p fading) scoreOf(b *Board, k RankKey, at int64) Score {
	return Score(decayScore(p.sumKey(b, k), at, b.HalfLife.Microseconds()))
}

func (p fading) exactScoreOf(b *Board, k RankKey, at int64) string {
	return decayDecimal(p.sumKey(b, k), at, b.HalfLife.Microseconds())
}

func (p fading) gap(b *Board, lower, upper RankKey, at int64) Score {
	return Score(max(decayGap(p.sumKey(b, lower), p.sumKey(b, upper), at, b.HalfLife.Microseconds()), 1))
}

// sumKey returns the key of the decaying sum in k: see appendScore.
func (fading) sumKey(b *Board, k RankKey) []byte {
	key := []byte(k[:decayKeyLen])
	if b.Order == HigherFirst {
		invert(key)
	}
	return key
}

// bound is a bound of encoded sums before invert. All sum keys have the same length, so the sum keys
// below the bound are at most the bound minus 1. A rank key begins with the complement of its sum key,
// and the complement reverses the order. So exactly the rank keys below the complement of (bound minus
// 1) have a sum key of at least the bound.
func invertedBound(bound []byte) RankKey {
	for i := len(bound) - 1; i >= 0; i-- {
		if bound[i]--; bound[i] != 0xff {
			break
		}
	}
	invert(bound)
	return RankKey(bound)
}

// leavesRange reports whether newSum is outside ±MaxScore, and farther outside than oldSum.
func leavesRange(oldSum, newSum int64) bool {
	return newSum > int64(MaxScore) && newSum > oldSum || newSum < -int64(MaxScore) && newSum < oldSum
}
