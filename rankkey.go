package leaderboard

import "time"

func (b *Board) rankKey(t Tally) RankKey {
	key := make([]byte, 0, b.RankKeyBytes())
	if b.HasUnranked() {
		key = append(key, b.class(&t))
	}
	key = b.arithmetic().appendScore(key, b, t)
	for i, tb := range b.TieBreakers {
		key = appendColumn(key, tb.Order, valueAt(t.ties, i))
	}
	return RankKey(key)
}

// RankKeyBytes returns the length of b's rank keys in bytes.
func (b *Board) RankKeyBytes() int {
	return b.classBytes() + b.arithmetic().scoreBytes() + columnBytes*len(b.TieBreakers)
}

// ScorePrefix returns the first bytes of all rank keys of ranked entries with the score s. A smaller rank key
// ranks better than every standing with this score.
//
// On decay and average boards, s is a rounded score at the time t. A rank key is smaller than the result
// if, and only if, ScoreOf returns a better score than s for it at t. Boards that are not decay boards ignore t.
func (b *Board) ScorePrefix(s Score, t time.Time) RankKey {
	return b.ranked(b.arithmetic().scorePrefix(b, s, t.UnixMicro()))
}

// ScoreBounds returns the bounds of the rank keys of ranked entries with the score s. Rank keys below first have a
// better score. Rank keys from beyond on have a worse score. On decay and average boards, they have exact
// scores at the time t, as of [Board.ExactScoreOf]. Boards that are not decay boards ignore t.
func (b *Board) ScoreBounds(s Score, t time.Time) (first, beyond RankKey) {
	first, beyond = b.arithmetic().scoreBounds(b, s, t.UnixMicro())
	return b.ranked(first), b.ranked(beyond)
}

// ScoreOf returns the score in k, a rank key of b, on decay boards at the time t. On decay and average boards,
// it is rounded to an integer, a half away from zero.
func (b *Board) ScoreOf(k RankKey, t time.Time) Score {
	return b.arithmetic().scoreOf(b, k[b.classBytes():], t.UnixMicro())
}

// ExactScoreOf returns the score in k at the time t on a decay board, without rounding, as a decimal
// number such as 99.5 or 3.2e-41. Of two rank keys with different scores, the results differ, unless the
// difference is below 2^-158 of the score.
//
// On average boards, the decimal number has at most 20 decimal places. Different scores have different results. On
// other boards it returns "".
func (b *Board) ExactScoreOf(k RankKey, t time.Time) string {
	return b.arithmetic().exactScoreOf(b, k[b.classBytes():], t.UnixMicro())
}

// Gap returns the least number of points by which the score in from must improve to be at least as good as
// the score in to: at least 1 if to has a better score, otherwise 0. If from is empty, the score is 0. On decay
// boards, the scores are those at the time t. Whether they have ranks does not matter.
func (b *Board) Gap(from, to RankKey, t time.Time) Score {
	p := b.arithmetic()
	if to = to[b.classBytes():]; from == "" {
		from = RankKey(p.appendScore(nil, b, Tally{}))
	} else {
		from = from[b.classBytes():]
	}
	if from[:p.scoreBytes()] <= to[:p.scoreBytes()] {
		return 0
	}
	if b.Order == LowerFirst {
		from, to = to, from
	}
	return p.gap(b, from, to, t.UnixMicro())
}

// StartKey returns the rank key of a user without results, on boards where such a user has the score 0: those of
// [Board.StartsAtZero] whose order is HigherFirst. Otherwise it returns "": such a user comes after all ranked
// entries.
func (b *Board) StartKey() RankKey {
	if !b.StartsAtZero() || b.Order == LowerFirst {
		return ""
	}
	return b.ranked(b.rankKey(Tally{})[b.classBytes():])
}

// TieBreakersOf returns the tie-breakers in k, a rank key of b.
func (b *Board) TieBreakersOf(k RankKey) []int64 {
	if len(b.TieBreakers) == 0 {
		return nil
	}
	values := make([]int64, len(b.TieBreakers))
	columns := string(k[b.classBytes()+b.arithmetic().scoreBytes():])
	for i, tb := range b.TieBreakers {
		values[i] = columnValue(tb.Order, columns[i*columnBytes:][:columnBytes])
	}
	return values
}
