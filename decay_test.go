package leaderboard

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A term is p points at the time t, in Unix microseconds.
type term struct{ p, t int64 }

func sumTerms(h int64, terms ...term) (d decaySum) {
	for _, x := range terms {
		d = d.add(x.p, x.t, h)
	}
	return d
}

func keyOf(d decaySum) []byte { return d.appendKey(nil) }

// The functions named oracle… compute expected values with the series of the exponential
// function, in floating point numbers of 400 bits.

const oraclePrec = 400

func newFloat() *big.Float { return new(big.Float).SetPrec(oraclePrec) }

var oracleLn2 = func() *big.Float { // the sum of 1/(k·2^k)
	sum := newFloat()
	for k := int64(1); k < oraclePrec+20; k++ {
		x := newFloat().Quo(newFloat().SetInt64(1), newFloat().SetInt64(k))
		sum.Add(sum, x.SetMantExp(x, int(-k)))
	}
	return sum
}()

// oracleExp2 returns 2^(r/h) for 0 <= r < h.
func oracleExp2(r, h int64) *big.Float {
	x := newFloat().Quo(newFloat().SetInt64(r), newFloat().SetInt64(h))
	x.Mul(x, oracleLn2)
	sum, next := newFloat().SetInt64(1), newFloat().SetInt64(1)
	for k := int64(1); k < 100; k++ {
		next.Quo(next.Mul(next, x), newFloat().SetInt64(k))
		sum.Add(sum, next)
	}
	return sum
}

func oracleExponent(t, h int64) (e, remainder int64) {
	q, r := new(big.Int).DivMod(big.NewInt(t), big.NewInt(h), new(big.Int)) // Euclidean division: 0 <= r < h
	return q.Int64(), r.Int64()
}

// oracleSum computes V by its definition in decay.go, as sum·2^exp.
func oracleSum(h int64, terms []term) (sum *big.Int, exp int64) {
	latest := int64(math.MinInt64)
	for _, x := range terms {
		if e, _ := oracleExponent(x.t, h); x.p != 0 {
			latest = max(latest, e)
		}
	}
	sum = new(big.Int)
	if latest == math.MinInt64 {
		return sum, 0
	}
	firstKept := 256 * (int64(math.Floor(float64(latest)/256)) - 1) // exact because |latest| < 2^53
	for _, x := range terms {
		e, remainder := oracleExponent(x.t, h)
		if e < firstKept || x.p == 0 {
			continue
		}
		w := oracleExp2(remainder, h)
		m, _ := w.SetMantExp(w, 160).Int(nil) // rounded down
		m.Mul(m, big.NewInt(x.p))
		sum.Add(sum, m.Lsh(m, uint(e-firstKept)))
	}
	return sum, firstKept - 160
}

// oracleAt returns the points of terms at a time, and the sum of their absolute values.
func oracleAt(at, h int64, terms []term) (sum, size *big.Float) {
	sum, size = newFloat(), newFloat()
	for _, x := range terms {
		e, remainder := oracleExponent(x.t-at, h)
		w := oracleExp2(remainder, h)
		w.SetMantExp(w, int(e)).Mul(w, newFloat().SetInt64(x.p))
		sum.Add(sum, w)
		size.Add(size, w.Abs(w))
	}
	return sum, size
}

// number returns n and exp, such that d is n·2^exp.
func (d decaySum) number() (*big.Int, int64) {
	if d.decayParts == nil {
		return new(big.Int), 0
	}
	sum := d.newer.number()
	return sum.Add(sum.Lsh(sum, 256), d.older.number()), 256*(d.block-1) - 160
}

func (x *int576) number() *big.Int {
	n := new(big.Int)
	for _, w := range slices.Backward(x[:]) {
		n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(w))
	}
	if n.Bit(575) == 1 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 576))
	}
	return n
}

func randomHalfLife(rng *rand.Rand) int64 {
	lives := []time.Duration{time.Second, time.Minute, 90 * time.Minute, 24 * time.Hour, 365 * 24 * time.Hour, MaxHalfLife, 1_234_567 * time.Microsecond}
	if rng.IntN(3) == 0 {
		return MinHalfLife.Microseconds() + rng.Int64N(MaxHalfLife.Microseconds()-MinHalfLife.Microseconds())
	}
	return lives[rng.IntN(len(lives))].Microseconds()
}

const year = 365 * 86400 * 1_000_000 // in microseconds

func randomMoment(rng *rand.Rand) int64 { return rng.Int64N(200*year) - 100*year }

func randomTerms(rng *rand.Rand, n int, h, middle int64) []term {
	spread := h / 2
	if f := rng.Int64N(4); f > 0 {
		spread = h * []int64{2, 300, 1000}[f-1]
		if spread/1000 > 100*year {
			spread = 100 * year
		}
	}
	terms := make([]term, 1+rng.IntN(n))
	for i := range terms {
		x := term{rng.Int64N(200) - 50, middle + rng.Int64N(2*spread) - spread}
		switch rng.IntN(6) {
		case 0:
			x.p = rng.Int64N(1<<54) - 1<<53
		case 1:
			x.t = middle + h*(rng.Int64N(5)-2)
		case 2:
			if i > 0 { // cancels the previous term
				x = terms[i-1]
				x.p = -x.p
			}
		}
		terms[i] = x
	}
	return terms
}

func TestDecayIdentities(t *testing.T) {
	const second = 1_000_000
	now := time.Date(2026, 11, 20, 10, 0, 0, 123_457_000, time.UTC).UnixMicro()
	for _, h := range []int64{second, second + 1, 86400 * second, year, year + 7, 100 * year} {
		for _, at := range []int64{now, 0, -1, 1, -now, h, -h, h - 1, 255 * h, 256*h - 1, 256 * h} {
			t.Run(fmt.Sprintf("half-life %d at %d", h, at), func(t *testing.T) {
				one, before := sumTerms(h, term{1, at}), sumTerms(h, term{2, at - h})
				if !bytes.Equal(keyOf(one), keyOf(before)) {
					t.Errorf("2 points one half-life ago and 1 point now have the keys %x and %x, want equal keys", keyOf(before), keyOf(one))
				}
				if a, b := sumTerms(h, term{3, at}, term{-6, at - h}), sumTerms(h, term{1 << 50, at - 50*h}, term{-1, at}); !bytes.Equal(keyOf(b), keyOf(decaySum{})) || !bytes.Equal(keyOf(a), keyOf(decaySum{})) {
					t.Errorf("the keys of sums whose terms cancel are %x and %x, want the key of zero", keyOf(a), keyOf(b))
				}
				earlier := sumTerms(h, term{1, at - 1})
				if bytes.Compare(keyOf(earlier), keyOf(one)) >= 0 {
					t.Errorf("1 point a microsecond earlier does not have a smaller key than 1 point now")
				}
				if minus, minusEarlier := sumTerms(h, term{-1, at}), sumTerms(h, term{-1, at - 1}); bytes.Compare(keyOf(minus), keyOf(minusEarlier)) >= 0 || bytes.Compare(keyOf(minusEarlier), keyOf(decaySum{})) >= 0 {
					t.Errorf("the keys of -1 point now, -1 point a microsecond earlier and 0 points are not in ascending order")
				}
				for _, tt := range []struct {
					terms []term
					at    int64
					want  int64
				}{
					{[]term{{1, at}}, at, 1},
					{[]term{{-1, at}}, at, -1},
					{[]term{{1, at}}, at + h, 1}, // 0.5 points are rounded away from zero
					{[]term{{-1, at}}, at + h, -1},
					{[]term{{1, at}}, at + h + 1, 0},
					{[]term{{-1, at}}, at + h + 1, 0},
					{[]term{{1, at}}, at + 2*h, 0},
					{[]term{{5, at}}, at + h, 3},
					{[]term{{5, at}, {-10, at - h}}, at, 0},
					{[]term{{1000, at}, {1000, at - h}, {1000, at - 2*h}}, at, 1750},
					{[]term{{1, at}}, at - 10*h, 1024},
					{[]term{{3, at}}, at - 53*h, 1 << 53}, // limited to MaxScore
					{[]term{{-3, at}}, at - 53*h, -1 << 53},
					{[]term{{1 << 53, at}}, at, 1 << 53},
					{[]term{{-1 << 53, at}}, at, -1 << 53},
					{[]term{{1<<53 - 1, at}}, at, 1<<53 - 1},
					{[]term{{1 << 53, at}, {-1, at}}, at, 1<<53 - 1},
					{[]term{{1 << 53, at - 54*h}}, at, 1},
					{[]term{{1 << 53, at - 55*h}}, at, 0},
				} {
					if got := decayScore(keyOf(sumTerms(h, tt.terms...)), tt.at, h); got != tt.want {
						t.Errorf("%v, %+d microseconds later: %d points, want %d", tt.terms, tt.at-at, got, tt.want)
					}
				}
			})
		}
	}
}

func TestDecayNoTerms(t *testing.T) {
	d := sumTerms(1e6, term{0, 5}, term{0, math.MaxInt64})
	if d != (decaySum{}) || len(d.appendBinary(nil)) != 0 {
		t.Errorf("terms without points make %v, want the zero sum", d)
	}
	if key := keyOf(d); len(key) != decayKeyLen || decayScore(key, 123, 1e6) != 0 {
		t.Errorf("key %x of %d bytes is worth %d points, want %d bytes and 0 points", key, len(key), decayScore(key, 123, 1e6), decayKeyLen)
	}
}

// The expected value is the square root of two (OEIS A002193) minus 1, as 256 bits.
func TestExp2KnownValue(t *testing.T) {
	want := fraction{0xDA2F590B0667322A, 0x3ADEC17512775099, 0xB2FB1366EA957D3E, 0x6A09E667F3BCC908}
	if got := exp2(1, 2); got != want {
		t.Errorf("exp2(1, 2) = %x, want %x", got, want)
	}
}

func TestExp2AgainstSeries(t *testing.T) {
	rng := newRand(t)
	for range 2000 {
		h := randomHalfLife(rng)
		r := []int64{0, 1, h - 1, h / 2, rng.Int64N(h)}[rng.IntN(5)]
		f := exp2(r, h)
		got := newFloat().SetInt(f.plusOne())
		off := got.Sub(oracleExp2(r, h), got.SetMantExp(got, -256))
		off.SetMantExp(off, 245)
		if off.Cmp(newFloat().SetInt64(1)) > 0 || off.Cmp(newFloat().SetMantExp(newFloat().SetInt64(-1), -100)) < 0 || r == 0 && f != (fraction{}) {
			t.Fatalf("exp2(%d, %d) is too small by %g·2^-245, want at most 1·2^-245, and exp2(0, h) = 0", r, h, off)
		}
	}
}

func TestDecaySumAgainstDefinition(t *testing.T) {
	rng := newRand(t)
	for range 800 {
		h := randomHalfLife(rng)
		terms := randomTerms(rng, 20, h, randomMoment(rng))
		if rng.IntN(10) == 0 {
			terms = append(terms, term{rng.Int64N(9) - 4, math.MaxInt64 - rng.Int64N(1e6)}, term{rng.Int64N(9) - 4, math.MinInt64 + rng.Int64N(1e6)})
		}
		d := sumTerms(h, terms...)
		got, gotExp := d.number()
		want, wantExp := oracleSum(h, terms)
		if got.Cmp(want) != 0 || gotExp != wantExp {
			t.Fatalf("half-life %d, terms %v: %v·2^%d, want %v·2^%d", h, terms, got, gotExp, want, wantExp)
		}
		encoded := d.appendBinary(nil)
		decoded, err := decodeDecaySum(encoded)
		if err != nil {
			t.Fatalf("decodeDecaySum(%x): %v", encoded, err)
		}
		if n, exp := decoded.number(); n.Cmp(want) != 0 || exp != wantExp {
			t.Fatalf("decoded: %v·2^%d, want %v·2^%d", n, exp, want, wantExp)
		}
		for range 4 {
			shuffled := slices.Clone(terms)
			rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			var again decaySum
			for i, x := range shuffled {
				if again = again.add(x.p, x.t, h); rng.IntN(5) == 0 {
					again = sumTerms(h, shuffled[:i+1]...)
				}
				if rng.IntN(5) == 0 {
					if again, err = decodeDecaySum(again.appendBinary(nil)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !bytes.Equal(again.appendBinary(nil), encoded) || !bytes.Equal(keyOf(again), keyOf(d)) {
				t.Fatalf("half-life %d, terms %v: the order %v gives another sum", h, terms, shuffled)
			}
		}
	}
}

func TestDecaySumIsImmutable(t *testing.T) {
	rng := newRand(t)
	h := int64(1e6)
	for range 200 {
		at := randomMoment(rng)
		terms := randomTerms(rng, 5, h, at)
		d := sumTerms(h, terms...)
		before := d.appendBinary(nil)
		for _, dt := range []int64{0, -1, 1, 300 * h, -300 * h, 600 * h} {
			d.add(7, at+dt, h)
			if !bytes.Equal(d.appendBinary(nil), before) {
				t.Fatalf("add of a term %+d microseconds later modified its receiver", dt)
			}
		}
	}
}

func TestDecayKeepsTheTermsOfTwoBlocks(t *testing.T) {
	const h = 1_000_000
	at := func(e int64) int64 { return e*h + 250_000 }
	for _, tt := range []struct {
		name           string
		earlier, later int64 // exponents
		kept           bool
	}{
		{"a term in the block of the later term is kept", 300, 511, true},
		{"a term in the previous block is kept", 256, 767, true},
		{"a term two blocks earlier is dropped", 255, 512, false},
		{"a term many blocks earlier is dropped", 0, 100_000, false},
		{"a term in the previous block, which has a negative number, is kept", -256, 255, true},
		{"a term two blocks earlier, in a block with a negative number, is dropped", -257, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both := sumTerms(h, term{-5, at(tt.earlier)}, term{1, at(tt.later)})
			alone := sumTerms(h, term{1, at(tt.later)})
			if kept := !bytes.Equal(both.appendBinary(nil), alone.appendBinary(nil)); kept != tt.kept {
				t.Errorf("the earlier term is kept: %v, want %v", kept, tt.kept)
			}
			// The later term determines which blocks count, even after a third term cancels
			// the points of the later term.
			canceled := sumTerms(h, term{1, at(tt.later)}, term{-5, at(tt.earlier)}, term{-1, at(tt.later)})
			if kept := keyOf(canceled)[0] == decayNegative; kept != tt.kept {
				t.Errorf("the earlier term is kept after the later term is canceled: %v, want %v", kept, tt.kept)
			}
		})
	}
}

func TestDecayOrder(t *testing.T) {
	rng := newRand(t)
	near := 0
	const rounds = 400
	for range rounds {
		h := randomHalfLife(rng)
		at := randomMoment(rng)
		a, b := randomTerms(rng, 8, h, at), randomTerms(rng, 8, h, at)
		if rng.IntN(3) > 0 { // b differs from a in one term, by at most one point and one microsecond
			b = slices.Clone(a)
			x := &b[rng.IntN(len(b))]
			x.t += rng.Int64N(3) - 1
			x.p += rng.Int64N(3) - 1
			rng.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
		}
		keyA, keyB := keyOf(sumTerms(h, a...)), keyOf(sumTerms(h, b...))
		if len(keyA) != decayKeyLen {
			t.Fatalf("key %x has %d bytes, want %d", keyA, len(keyA), decayKeyLen)
		}
		got := bytes.Compare(keyA, keyB)

		x, xExp := oracleSum(h, a)
		y, yExp := oracleSum(h, b)
		exp := min(xExp, yExp)
		gap := new(big.Int).Sub(x.Lsh(x, uint(xExp-exp)), y.Lsh(y, uint(yExp-exp)))
		// Keys have only the first 160 bits of sums.
		tie := got == 0 && gap.BitLen() <= x.BitLen()-159
		if got != gap.Sign() && !tie {
			t.Fatalf("half-life %d: keys of %v and %v compare as %d, want %d, the order of the exact sums", h, a, b, got, gap.Sign())
		}

		v, sizeV := oracleAt(at, h, a)
		w, sizeW := oracleAt(at, h, b)
		diff, size := v.Sub(v, w), sizeV.Add(sizeV, sizeW)
		if size.SetMantExp(size, -150); newFloat().Abs(diff).Cmp(size) <= 0 {
			near++
		} else if got != diff.Sign() {
			t.Fatalf("half-life %d: keys of %v and %v compare as %d, want %d, the order of the floating-point sums", h, a, b, got, diff.Sign())
		}
	}
	if near > rounds*2/3 {
		t.Errorf("%d of %d pairs were too close to compare, want at most two thirds", near, rounds)
	}
}

func TestDecayScoreAgainstReal(t *testing.T) {
	rng := newRand(t)
	half := newFloat().SetFloat64(0.5)
	near, inside := 0, 0
	const rounds = 600
	for range rounds {
		h := randomHalfLife(rng)
		at := randomMoment(rng)
		terms := randomTerms(rng, 8, h, at)
		at += rng.Int64N(40*min(h, 1<<56/40)) - 20*min(h, 1<<56/40)
		v, size := oracleAt(at, h, terms)
		want := int64(1 << 53)
		up := newFloat().Add(half, newFloat().Abs(v))
		off := newFloat().Sub(up, newFloat().SetInt64(want)) // distance from the value at which rounding changes
		if off.Sign() < 0 {
			inside++
			want, _ = up.Int64()
			off.Sub(up, newFloat().SetInt64(want))
			off.Sub(half, off.Abs(off.Sub(off, half)))
		}
		size.SetMantExp(size, -150)
		if off.Cmp(size.Add(size, up.SetMantExp(up, -100))) <= 0 {
			near++
			continue
		}
		want *= int64(v.Sign())
		if got := decayScore(keyOf(sumTerms(h, terms...)), at, h); got != want {
			t.Fatalf("half-life %d, terms %v at %d: %d points, want %d (%g)", h, terms, at, got, want, v)
		}
	}
	if near > rounds/10 || inside < rounds/4 {
		t.Errorf("of %d values, %d were too close to a half, want at most a tenth; %d were below MaxScore, want at least a quarter", rounds, near, inside)
	}
}

func TestScorePrefixAgreesWithScoreOf(t *testing.T) {
	rng := newRand(t)
	for _, order := range []Order{HigherFirst, LowerFirst} {
		for range 300 {
			h := randomHalfLife(rng)
			at := randomMoment(rng)
			b := &Board{Policy: Decay, Order: order, HalfLife: time.Duration(h) * time.Microsecond}
			points := rng.Int64N(1<<rng.IntN(54)) - rng.Int64N(1<<rng.IntN(54))
			d := sumTerms(h, term{points, at - h*rng.Int64N(3)}) // worth points, points/2 or points/4 now
			if rng.IntN(3) == 0 {
				d = sumTerms(h, randomTerms(rng, 4, h, at)...)
			}
			keys := [][]byte{[]byte(b.rankKey(Tally{decay: d}))}
			for _, step := range []int64{1, -1, 1 << 40, -1 << 40, 1 << 55, -1 << 55} { // keys near the first key
				n := new(big.Int).SetBytes(keys[0])
				if n.Add(n, big.NewInt(step)); d.decayParts != nil && points != 0 {
					keys = append(keys, n.FillBytes(make([]byte, decayKeyLen)))
				}
			}
			now := time.UnixMicro(at)
			for _, k := range keys {
				score := b.ScoreOf(RankKey(k), now)
				for _, s := range []Score{score - 2, score - 1, score, score + 1, score + 2, 0, -MaxScore, MaxScore} {
					better := score > s
					if order == LowerFirst {
						better = score < s
					}
					if got := RankKey(k) < b.ScorePrefix(s, now); got != better {
						t.Fatalf("%v, half-life %d, points %d at %d: key %x, of score %d, is below ScorePrefix(%d): %v, want %v", order, h, points, at, k, score, s, got, better)
					}
				}
			}
		}
	}
}

func TestDecayScoreShrinksWithTime(t *testing.T) {
	rng := newRand(t)
	for range 500 {
		h := randomHalfLife(rng)
		at := randomMoment(rng)
		terms := randomTerms(rng, 8, h, at)
		key := keyOf(sumTerms(h, terms...))
		moments := make([]int64, 50)
		for i := range moments {
			moments[i] = at + rng.Int64N(60*h) - 30*h
			if i > 0 && i%3 == 0 {
				moments[i] = moments[i-1] + 1
			}
		}
		slices.Sort(moments)
		last := int64(math.MaxInt64)
		for _, m := range moments {
			got := decayScore(key, m, h)
			if size := max(got, -got); size > last {
				t.Fatalf("half-life %d, terms %v: %d points at %d, want at most ±%d, the points at the previous time", h, terms, got, m, last)
			} else {
				last = size
			}
		}
	}
}

func TestDecodeDecaySumRejects(t *testing.T) {
	good := sumTerms(1e6, term{5, 1e6}, term{-3, -400e6}).appendBinary(nil)
	if _, err := decodeDecaySum(good); err != nil {
		t.Fatal(err)
	}
	zeros := func(n int) []byte { return make([]byte, n) }
	for name, data := range map[string][]byte{
		"cut short":                   good[:len(good)-1],
		"with trailing bytes":         append(slices.Clone(good), 0),
		"only a block":                {0},
		"only one part":               {0, 0},
		"a varint of two bytes for 0": {0x80, 0x00, 0, 0},
		"an endless varint":           bytes.Repeat([]byte{0x80}, 20),
		"a block out of range":        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0},
		"the integer 0 with length 1": {0, 1, 0, 0},
		"an unnecessary byte 0":       {0, 2, 0, 1, 0},
		"an unnecessary byte ff":      {0, 2, 0xff, 0xff, 0},
		"an oversized part":           slices.Concat([]byte{0, 68, 1}, zeros(67), []byte{0}),
		"a part past the end":         {0, 5, 1, 2},
	} {
		if d, err := decodeDecaySum(data); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: decodeDecaySum returned %v, %v, want ErrFormat", name, d, err)
		}
	}
}

func FuzzDecodeDecaySum(f *testing.F) {
	f.Add([]byte{}, int64(1), int64(0))
	f.Add(sumTerms(1e6, term{5, 1e6}, term{-3, -400e6}).appendBinary(nil), int64(-7), int64(2e6))
	f.Add(sumTerms(1e6, term{1 << 53, math.MaxInt64}).appendBinary(nil), int64(1), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, data []byte, p, at int64) {
		d, err := decodeDecaySum(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("decodeDecaySum returned %v, want ErrFormat", err)
			}
			return
		}
		if again := d.appendBinary(nil); !bytes.Equal(again, data) {
			t.Fatalf("%x, decoded and encoded again, is %x, want the same bytes", data, again)
		}
		more := d.add(p, at, 1e6)
		if again, err := decodeDecaySum(more.appendBinary(nil)); err != nil || !bytes.Equal(keyOf(again), keyOf(more)) {
			t.Fatalf("%x extended by %d points at %d does not have the same key after encoding and decoding (error: %v)", data, p, at, err)
		}
		less, zero := bytes.Compare(keyOf(more), keyOf(d)), bytes.Compare(keyOf(d), keyOf(decaySum{}))
		if d.decayParts == nil && less != big.NewInt(p).Sign() {
			t.Fatalf("the key of %d points compares as %d with the key of no points, want %d", p, less, big.NewInt(p).Sign())
		}
		if n, _ := d.number(); n.Sign() != zero {
			t.Fatalf("the key of %v compares as %d with the key of 0, want %d", n, zero, n.Sign())
		}
	})
}

func FuzzDecayScore(f *testing.F) {
	f.Add(keyOf(sumTerms(1e6, term{5, 1e6})), int64(2e6), int64(1e6))
	f.Add(bytes.Repeat([]byte{0xff}, decayKeyLen), int64(math.MinInt64), int64(1e6))
	f.Add(make([]byte, decayKeyLen), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, key []byte, at, h int64) {
		if len(key) != decayKeyLen || h < 1e6 {
			return
		}
		if got := decayScore(key, at, h); got > int64(MaxScore) || got < -int64(MaxScore) {
			t.Fatalf("key %x is worth %d points at %d, want at most ±2^53", key, got, at)
		}
		if text := decayDecimal(key, at, h); len(text) > 80 {
			t.Fatalf("key %x is worth %s points at %d, want at most 80 bytes", key, text, at)
		}
	})
}

func BenchmarkDecayAdd(b *testing.B) {
	const h = 86_400_000_000
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC).UnixMicro()
	d := sumTerms(h, term{5, at - 3*h - 1}, term{7, at - 300*h})
	exp2(1, 2) // computes digitPowers
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		d.add(3, at+i*1_234_567%h, h)
	}
}

func BenchmarkDecayKey(b *testing.B) {
	const h = 86_400_000_000
	d := sumTerms(h, term{5, -3*h - 1}, term{7, -300 * h})
	key := make([]byte, 0, decayKeyLen)
	b.ReportAllocs()
	for b.Loop() {
		d.appendKey(key)
	}
}

func BenchmarkDecayScore(b *testing.B) {
	const h = 86_400_000_000
	key := keyOf(sumTerms(h, term{5, -3*h - 1}, term{7, -300 * h}))
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		decayScore(key, i*1_234_567%h, h)
	}
}
