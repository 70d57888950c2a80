package leaderboard

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
