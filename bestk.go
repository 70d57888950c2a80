package leaderboard

import (
	"slices"
	"time"
)

// compareKept orders results from the best on. Of equal results, the earliest is the best.
func (b *Board) compareKept(x, y keptResult) int {
	switch c := b.compareResults(x.score, x.ties, y.score, y.ties); {
	case c != 0:
		return c
	case isLater(x.achievedAt, x.match, y.achievedAt, y.match):
		return 1
	}
	return -1
}

// reachedAt returns the time of the latest result that changes the sums or, if none does, of the earliest result.
func reachedAt(kept []keptResult) time.Time {
	earliest, latest, changed := kept[0].achievedAt, time.Time{}, false
	for _, r := range kept {
		if r.achievedAt.Before(earliest) {
			earliest = r.achievedAt
		}
		changes := r.score != 0 || slices.ContainsFunc(r.ties, func(v int64) bool { return v != 0 })
		if changes && (!changed || r.achievedAt.After(latest)) {
			latest, changed = r.achievedAt, true
		}
	}
	if changed {
		return latest
	}
	return earliest
}
