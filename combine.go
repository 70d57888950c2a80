package leaderboard

import "time"

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

// noteLatest sets t.latest and t.finish if r is the latest result so far.
func (b *Board) noteLatest(t *Tally, r *MatchResult) {
	if b.tracksLatest() && positionOf(r).isAfter(t.latest) {
		t.latest, t.finish = positionOf(r), r.Finish
	}
}

// resets reports whether r sets scores on b.
func (b *Board) resets(r *MatchResult) bool { return r.Reset && b.Policy == Sum }
