package leaderboard

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// isNear reports whether x and y differ by less than their rounding errors. size is the sum of the absolute
// values of the terms.
func isNear(x, y, size *big.Float) bool {
	limit := newFloat().Set(size)
	diff := newFloat().Sub(x, y)
	return diff.Abs(diff).Cmp(limit.SetMantExp(limit, -150)) <= 0
}

func digitsOf(text string) int {
	mantissa, _, _ := strings.Cut(text, "e")
	return len(strings.Trim(strings.ReplaceAll(mantissa, ".", ""), "-0"))
}

func TestExactScoresAgainstSeries(t *testing.T) {
	rng := newRand(t)
	for range 1500 {
		h := randomHalfLife(rng)
		middle := randomMoment(rng)
		terms := randomTerms(rng, 6, h, middle)
		at := middle + rng.Int64N(4*h) - 2*h
		key := keyOf(sumTerms(h, terms...))
		text := decayDecimal(key, at, h)
		got, ok := newFloat().SetString(text)
		want, size := oracleAt(at, h, terms)
		if !ok || !isNear(got, want, size) || digitsOf(text) > 51 {
			t.Fatalf("half-life %d, terms %v, at %d: %s, want %.60g", h, terms, at, text, want)
		}
	}
}

func TestExactScoresOfKnownSums(t *testing.T) {
	const h = 1_000_000
	now := time.Date(2026, 11, 20, 10, 0, 0, 123_457_000, time.UTC).UnixMicro()
	for _, tt := range []struct {
		terms []term
		later int64
		want  string
	}{
		{nil, 0, "0"},
		{[]term{{100, now}}, 0, "100"},
		{[]term{{-100, now}}, 0, "-100"},
		{[]term{{100, now}}, h, "50"},
		{[]term{{100, now}}, 3 * h, "12.5"},
		{[]term{{-3, now}}, 10 * h, "-0.0029296875"},
		{[]term{{5, now}, {-10, now - h}}, 0, "0"},
		{[]term{{1000, now}, {1000, now - h}, {1000, now - 2*h}}, 0, "1750"},
		{[]term{{1 << 53, now}}, -60 * h, "10384593717069655257060992658440192"}, // 2^113
		{[]term{{1, now}}, 100 * h, "7.8886090522101180541172856528278622967320643510902300477027893e-31"}, // 2^-100
		// The square root of two: OEIS A002193.
		{[]term{{1, now}}, -h / 2, "1.4142135623730950488016887242096980785696718753769"},
	} {
		t.Run(fmt.Sprint(tt.terms, tt.later), func(t *testing.T) {
			got := decayDecimal(keyOf(sumTerms(h, tt.terms...)), now+tt.later, h)
			if len(tt.want) > 50 || strings.Contains(tt.want, "1.414") { // compare 47 digits, and the exponent
				digits, exponent, _ := strings.Cut(tt.want, "e")
				gotDigits, gotExponent, _ := strings.Cut(got, "e")
				if !strings.HasPrefix(gotDigits, digits[:47]) || gotExponent != exponent {
					t.Errorf("%s, want %s", got, tt.want)
				}
				return
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Sums that are older or later by a billion half-lives have exponents beyond those of a big.Float.
func TestExactScoresOfExtremeTimes(t *testing.T) {
	const h = 1_000_000
	for _, tt := range []struct {
		halfLives int64
		want      string // from the series of the logarithm: n·log10(2)
	}{
		{1 << 10, "5.5626846462680034577255817933310101605480399511558e-309"},
		{-1 << 10, "1.7976931348623159077293051907890247336179769789423e308"},
	} {
		got := decayDecimal(keyOf(sumTerms(h, term{1, 0})), tt.halfLives*h, h)
		digits, exponent, _ := strings.Cut(tt.want, "e")
		gotDigits, gotExponent, _ := strings.Cut(got, "e")
		if gotExponent != exponent || gotDigits[:45] != digits[:45] {
			t.Errorf("after %d half-lives: %s, want %s", tt.halfLives, got, tt.want)
		}
	}
	previous := ""
	for _, halfLives := range []int64{1 << 33, 1 << 40} {
		got := decayDecimal(keyOf(sumTerms(h, term{1, 0})), halfLives*h, h)
		// 2^33·log10(2) is 2585827972.98, and 2^40·log10(2) is 330985980542.00.
		want := map[int64]string{1 << 33: "e-2585827973", 1 << 40: "e-330985980542"}[halfLives]
		if got == previous || !strings.HasSuffix(got, want) {
			t.Errorf("after %d half-lives: %s, want a number with %s", halfLives, got, want)
		}
		previous = got
	}
}

// Keys that differ have decimals that differ, in the same order, however small the difference is.
func TestExactScoresHaveTheOrderOfKeys(t *testing.T) {
	rng := newRand(t)
	for range 400 {
		h := randomHalfLife(rng)
		at := randomMoment(rng)
		base := term{1 + rng.Int64N(1000), at - rng.Int64N(3*h)}
		var keys [][]byte
		for _, back := range []int64{20, 60, 100, 140, 150, 155} {
			keys = append(keys, keyOf(sumTerms(h, base, term{1, base.t - back*h - rng.Int64N(h)})))
		}
		keys = append(keys, keyOf(sumTerms(h, base)), keyOf(sumTerms(h, term{base.p, base.t - 1})), keyOf(sumTerms(h, term{-base.p, base.t})))
		slices.SortFunc(keys, bytes.Compare)
		keys = slices.CompactFunc(keys, bytes.Equal)
		for i := range keys[1:] {
			low, _, err := new(big.Float).SetPrec(600).Parse(decayDecimal(keys[i], at, h), 10)
			high, _, err2 := new(big.Float).SetPrec(600).Parse(decayDecimal(keys[i+1], at, h), 10)
			if err != nil || err2 != nil || low.Cmp(high) >= 0 {
				t.Fatalf("half-life %d: the keys %x and %x have the scores %.60g and %.60g, want a smaller one first (errors %v, %v)", h, keys[i], keys[i+1], low, high, err, err2)
			}
		}
	}
}

func decayBoard(order Order, h int64) *Board {
	return &Board{ID: "b", Policy: Decay, Order: order, HalfLife: time.Duration(h) * time.Microsecond}
}

// A rank key ranks better than, equal to or worse than a score exactly as the exact score does.
func TestScoreBoundsAgainstSeries(t *testing.T) {
	rng := newRand(t)
	for range 3000 {
		h := randomHalfLife(rng)
		middle := randomMoment(rng)
		b := decayBoard([]Order{HigherFirst, LowerFirst}[rng.IntN(2)], h)
		at := middle + rng.Int64N(4*h) - 2*h
		var terms []term
		if rng.IntN(3) == 0 { // an integer, or half of one
			terms = []term{{rng.Int64N(21) - 10, at - h*rng.Int64N(2)}}
		} else {
			terms = randomTerms(rng, 6, h, middle)
		}
		key := b.rankKey(Tally{decay: sumTerms(h, terms...)})
		value, size := oracleAt(at, h, terms)
		n, _ := value.Int64()
		for _, s := range []Score{Score(n - 1), Score(n), Score(n + 1), 0, MaxScore, -MaxScore} {
			if s > MaxScore || s < -MaxScore {
				continue
			}
			score := newFloat().SetInt64(int64(s))
			want := value.Cmp(score)
			if isNear(value, score, size) {
				if len(terms) > 1 {
					continue // a sum of several terms may have a larger error
				}
				want = 0
			}
			if b.Order == HigherFirst {
				want = -want
			}
			first, beyond := b.ScoreBounds(s, time.UnixMicro(at))
			got := 0
			if key < first {
				got = -1
			} else if key >= beyond {
				got = 1
			}
			if got != want {
				t.Fatalf("order %v, half-life %d, terms %v (%.30g points at %d): compared with %d the key ranks %d, want %d", b.Order, h, terms, value, at, s, got, want)
			}
		}
	}
}

func TestScoreBoundsOfOtherBoards(t *testing.T) {
	for _, order := range []Order{HigherFirst, LowerFirst} {
		b := Board{ID: "b", Policy: Best, Order: order, TieBreakers: []TieBreaker{{Name: "wins"}}}
		for _, s := range []Score{-MaxScore, -1, 0, 7, MaxScore} {
			first, beyond := b.ScoreBounds(s, time.Time{})
			for _, other := range []Score{-MaxScore, s - 1, s, s + 1, MaxScore} {
				for _, wins := range []int64{-int64(MaxScore), 0, int64(MaxScore)} {
					key := RankKey(appendColumn(appendColumn(nil, order, int64(other)), b.TieBreakers[0].Order, wins))
					want := cmp.Compare(s, other)
					if order == LowerFirst {
						want = -want
					}
					if better, worse := key < first, key >= beyond; better != (want < 0) || worse != (want > 0) {
						t.Errorf("order %v: the score %d is better than %d: %v, and worse: %v", order, other, s, better, worse)
					}
				}
			}
		}
	}
}

// After a gain of the gap, the score is at least as good; after one point less, it is not.
func TestGap(t *testing.T) {
	rng := newRand(t)
	for range 1500 {
		h := randomHalfLife(rng)
		at := randomMoment(rng)
		b := decayBoard([]Order{HigherFirst, LowerFirst}[rng.IntN(2)], h)
		sums := make([][]term, 2)
		for i := range sums {
			for range rng.IntN(3) {
				sums[i] = append(sums[i], term{rng.Int64N(2001) - 1000, at - []int64{0, h, 5 * h, rng.Int64N(5 * h), rng.Int64N(5 * h)}[rng.IntN(5)]})
			}
		}
		keyWith := func(terms []term, more int64) RankKey {
			return b.rankKey(Tally{decay: sumTerms(h, append(slices.Clone(terms), term{more, at})...)})
		}
		from, to := keyWith(sums[0], 0), keyWith(sums[1], 0)
		gap := b.Gap(from, to, time.UnixMicro(at))
		sign := int64(1)
		if b.Order == LowerFirst {
			sign = -1
		}
		// Without the slack of keys, an equal score may seem to be worse.
		reaches := func(points int64) bool {
			after := keyWith(sums[0], sign*points)
			return after <= to || b.ExactScoreOf(after, time.UnixMicro(at)) == b.ExactScoreOf(to, time.UnixMicro(at))
		}
		if gap < 0 || (gap == 0) != (from <= to) || !reaches(int64(gap)) || gap > 1 && reaches(int64(gap)-1) {
			t.Fatalf("order %v, half-life %d: from %v to %v: gap %d; enough: %v, one less is enough: %v", b.Order, h, sums[0], sums[1], gap, reaches(int64(gap)), reaches(int64(gap)-1))
		}
		if empty := keyWith(nil, 0); b.Gap("", to, time.UnixMicro(at)) != b.Gap(empty, to, time.UnixMicro(at)) {
			t.Fatalf("the gap of an empty key is %d, want that of the score 0, %d", b.Gap("", to, time.UnixMicro(at)), b.Gap(empty, to, time.UnixMicro(at)))
		}
	}
	for _, tt := range []struct {
		order          Order
		from, to, want Score
	}{{HigherFirst, 5, 12, 7}, {HigherFirst, 12, 5, 0}, {HigherFirst, -MaxScore, MaxScore, 2 * MaxScore}, {LowerFirst, 12, 5, 7}, {LowerFirst, 5, 12, 0}, {LowerFirst, 5, 5, 0}} {
		b := Board{ID: "b", Policy: Best, Order: tt.order}
		key := func(s Score) RankKey { return RankKey(appendColumn(nil, tt.order, int64(s))) }
		if got := b.Gap(key(tt.from), key(tt.to), time.Time{}); got != tt.want {
			t.Errorf("order %v: the gap from %d to %d is %d, want %d", tt.order, tt.from, tt.to, got, tt.want)
		}
	}
}

func BenchmarkExactScore(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	const h = 86400_000_000
	at := randomMoment(rng)
	key := keyOf(sumTerms(h, term{100, at - h/3}, term{7, at - 5*h/2}))
	for b.Loop() {
		decayDecimal(key, at, h)
	}
}
