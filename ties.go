package leaderboard

import "time"

// TieRule is the order of users with equal rank keys.
type TieRule int8

// The rules. Of equal times, and without times, the smaller user id is first.
const (
	EarliestFirst TieRule = iota
	LatestFirst
	ByUserID
	// Shared is ByUserID for boards whose users share their ranks: there are no ordinal ranks.
	Shared
)

var tieRuleNames = []string{"EARLIEST_FIRST", "LATEST_FIRST", "USER_ID", "SHARED"}

func (r TieRule) String() string { return enumString(tieRuleNames, int(r)) }

// MarshalText writes EARLIEST_FIRST, LATEST_FIRST, USER_ID or SHARED.
func (r TieRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (r *TieRule) UnmarshalText(text []byte) error { return parseEnum("ties", tieRuleNames, text, r) }

// TieTime returns the time by which b orders an entry among those with equal rank keys, the earliest first. achievedAt is
// its event time.
func (b *Board) TieTime(achievedAt time.Time) time.Time {
	switch b.Ties {
	case EarliestFirst:
		return achievedAt
	case LatestFirst: // mirrored, so that it stays in the years 1 to 9999
		return time.UnixMicro(minAchievedAt.UnixMicro() + maxAchievedAt.UnixMicro() - achievedAt.UnixMicro()).UTC()
	}
	return time.UnixMicro(0).UTC()
}

// AchievedAt is the inverse of [Board.TieTime]. It returns the zero time if b orders equal users by their ids.
func (b *Board) AchievedAt(tieTime time.Time) time.Time {
	if b.Ties == ByUserID || b.Ties == Shared {
		return time.Time{}
	}
	return b.TieTime(tieTime)
}

// Combination is the way in which the values of a tie-breaker become one value.
type Combination int8

// The combinations. On a board that does not add up ([Board.AddsUp]), a tie-breaker has the value of the deciding
// result, and its Combination is Added.
const (
	Added Combination = iota
	Greatest
	Least
	Last // of the latest result that counts
)

var combinationNames = []string{"SUM", "MAX", "MIN", "LAST"}

func (c Combination) String() string { return enumString(combinationNames, int(c)) }

// MarshalText writes SUM, MAX, MIN or LAST.
func (c Combination) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Combination) UnmarshalText(text []byte) error {
	return parseEnum("combine", combinationNames, text, c)
}

// combine adds the tie-breakers of a result to t. It reports whether the result changes a sum. t.latest must not include
// the result yet.
func (b *Board) combine(t *Tally, values []int64, at position) (changes bool) {
	if len(values) == 0 && !b.combines() {
		return false
	}
	ties := make([]int64, len(b.TieBreakers))
	copy(ties, t.ties)
	first := t.match == ""
	for i := range ties {
		v := valueAt(values, i)
		switch c := b.TieBreakers[i].Combine; {
		case c == Added:
			ties[i] += v
			changes = changes || v != 0
		case first, c == Greatest && v > ties[i], c == Least && v < ties[i], c == Last && at.isAfter(t.latest):
			ties[i] = v
		}
	}
	t.ties = ties
	return changes
}

// combines reports whether a tie-breaker is no sum.
func (b *Board) combines() bool {
	for _, tie := range b.TieBreakers {
		if tie.Combine != Added {
			return true
		}
	}
	return false
}

// tracksLatest reports whether tallies of b have the latest result.
func (b *Board) tracksLatest() bool {
	if len(b.Statuses) > 0 || b.DropWorst > 0 {
		return true
	}
	for _, tie := range b.TieBreakers {
		if tie.Combine == Last {
			return true
		}
	}
	return false
}

// position is a place in the order of a user's results, or zero.
type position struct {
	achievedAt time.Time
	match      MatchID
}

func positionOf(r *MatchResult) position { return position{r.AchievedAt, r.Match} }

func (p position) isAfter(o position) bool {
	return o.match == "" || isLater(p.achievedAt, p.match, o.achievedAt, o.match)
}

// noteLatest sets t.latest and t.finish if r is the latest result so far.
func (b *Board) noteLatest(t *Tally, r *MatchResult) {
	if b.tracksLatest() && positionOf(r).isAfter(t.latest) {
		t.latest, t.finish = positionOf(r), r.Finish
	}
}
