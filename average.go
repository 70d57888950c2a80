package leaderboard

import (
	"encoding/binary"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// maxAveraged is the largest number of results for which the mean of mean is exact.
const maxAveraged = 1 << 31

// mean is a score that is the exact mean of integers. Its key has two columns: the mean, rounded down, and the
// fraction in units of 2^-64, rounded down. Two different means of at most maxAveraged integers differ by more than
// 2^-64, so they have different keys, and equal means have equal keys.
type mean struct{}

const meanBytes = columnBytes + 8

func (mean) fades() bool { return false }

func (mean) scoreBytes() int { return meanBytes }

func (mean) appendScore(dst []byte, b *Board, t Tally) []byte {
	// The dividend is the sum plus n·MaxScore, which is not negative.
	n := uint64(max(t.results, 1))
	high, low := bits.Mul64(n, uint64(MaxScore))
	low, carry := bits.Add64(low, uint64(t.score), 0)
	high += carry + uint64(t.overflow) + uint64(t.score>>63)
	if high >= n {
		return appendMean(dst, b.Order, int64(MaxScore), 0) // a damaged tally
	}
	floor, rest := bits.Div64(high, low, n)
	fraction, _ := bits.Div64(rest, 0, n)
	return appendMean(dst, b.Order, int64(floor)-int64(MaxScore), fraction)
}

func appendMean(dst []byte, order Order, floor int64, fraction uint64) []byte {
	if order == HigherFirst {
		fraction = ^fraction
	}
	return binary.BigEndian.AppendUint64(appendColumn(dst, order, floor), fraction)
}

func meanOf(order Order, k RankKey) (floor int64, fraction uint64) {
	fraction = binary.BigEndian.Uint64([]byte(k[columnBytes:meanBytes]))
	if order == HigherFirst {
		fraction = ^fraction
	}
	return columnValue(order, string(k[:columnBytes])), fraction
}

const half = 1 << 63 // the fraction 1/2

// meanBound returns a bound between the keys of smaller means and the others. Keys below the bound rank better.
func meanBound(order Order, floor int64, fraction uint64) RankKey {
	if order == HigherFirst { // the keys of smaller means are above the bound
		if fraction--; fraction == 1<<64-1 {
			floor--
		}
	}
	return RankKey(appendMean(nil, order, floor, fraction))
}

func (mean) scorePrefix(b *Board, s Score, _ int64) RankKey {
	worst := int64(s) // the rounded means from worst on are those on the greater side of the bound
	if b.Order == HigherFirst {
		worst++
	}
	fraction := uint64(half)
	if worst <= 0 { // a half is rounded away from zero
		fraction++
	}
	return meanBound(b.Order, worst-1, fraction)
}

func (mean) scoreBounds(b *Board, s Score, _ int64) (first, beyond RankKey) {
	first, beyond = meanBound(b.Order, int64(s), 1), meanBound(b.Order, int64(s), 0)
	if b.Order == LowerFirst {
		return beyond, first
	}
	return first, beyond
}

func (mean) scoreOf(b *Board, k RankKey, _ int64) Score {
	floor, fraction := meanOf(b.Order, k)
	if fraction > half || fraction == half && floor >= 0 {
		floor++
	}
	return Score(floor)
}

// exactScoreOf returns the mean to meanDigits decimal places, without zeros at the end.
func (mean) exactScoreOf(b *Board, k RankKey, _ int64) string {
	whole, fraction := meanOf(b.Order, k)
	text := strconv.FormatInt(whole, 10)
	if p, q := quotientOf(fraction); q > 0 {
		exact := new(big.Rat).SetFrac64(int64(p), int64(q))
		text = exact.Add(exact, new(big.Rat).SetInt64(whole)).FloatString(meanDigits)
		text = strings.TrimRight(text, "0")
	}
	return text
}

const meanDigits = 20

// quotientOf returns the only p/q with q of at most maxAveraged that is fraction in units of 2^-64, rounded down. If
// fraction is 0, or no mean has it, q is 0.
//
// p/q and fraction/2^64 differ by less than 2^-64, which is less than 1/(2q²). So p/q is one of the convergents of the
// continued fraction of fraction/2^64.
func quotientOf(fraction uint64) (p, q uint64) {
	if fraction < 2 {
		return 0, 0
	}
	x := fraction
	term, y := bits.Div64(1, 0, x)
	previousP, previousQ, p, q := uint64(1), uint64(0), uint64(0), uint64(1)
	for term <= maxAveraged {
		previousP, previousQ, p, q = p, q, term*p+previousP, term*q+previousQ
		if q > maxAveraged {
			break
		}
		if p < q {
			if rounded, _ := bits.Div64(p, 0, q); rounded == fraction {
				return p, q
			}
		}
		if y == 0 {
			break
		}
		term, x, y = x/y, y, x%y
	}
	return 0, 0
}

func (mean) gap(b *Board, lower, upper RankKey, _ int64) Score {
	from, fromFraction := meanOf(b.Order, lower)
	to, toFraction := meanOf(b.Order, upper)
	if toFraction > fromFraction {
		to++
	}
	return Score(to - from)
}
