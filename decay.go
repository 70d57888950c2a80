package leaderboard

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"sync"
)

// A score on a decay board halves with every half-life. Stored sums do not change. Instead,
// later results get more weight: with the half-life h, a result of p points at the time t
// adds p·2^(t/h) to the user's sum V. At any time T the user has V·2^(-T/h) points. The
// factor 2^(-T/h) is the same for all users, so V orders the users by their points at every
// time.
//
// This is forward decay: Cormode, Shkapenyuk, Srivastava and Xu, "Forward Decay: A
// Practical Time Decay Model for Streaming Systems", ICDE 2009.
//
// V must not depend on the order in which results arrive. A floating-point sum would, because
// each addition rounds. Therefore V is an exact sum of integers. The weight 2^(t/h) is
// rounded down to m·2^(e-160), with the exponent e = floor(t/h) and m =
// floor(2^(160 + t/h - e)), an integer of 161 bits. Times that are n half-lives apart have
// equal m, so their weights differ by a factor of exactly 2^n.

// decayBlock is the number of exponents e in a block: block b begins with the exponent
// b·decayBlock. A term is the number that one result adds to a sum. A sum keeps the terms in
// the block of its latest term and in the previous block. Older terms count as zero: 2^53
// points of an older term are worth less than 2^-203 points of the latest term. The order
// of arrival does not affect which terms count.
const decayBlock = 256

// decaySum is a user's sum V. It is immutable.
type decaySum struct {
	*decayParts // nil if no term has points
}

// The unit of newer is 2^(block·decayBlock - 160). The unit of older is
// 2^((block-1)·decayBlock - 160).
type decayParts struct {
	block int64  // floor(e / decayBlock) of the latest term
	newer int576 // the sum of the terms in block
	older int576 // the sum of the terms in block - 1
}

// int576 is an integer in two's complement, least significant word first. A term has at
// most 64 + 161 + 255 = 480 bits. The other 96 bits allow sums of 2^95 terms.
type int576 [9]uint64

// add returns d with p more points at the time t, in Unix microseconds. h is the half-life
// in microseconds, at least 10^6.
func (d decaySum) add(p, t, h int64) decaySum {
	if p == 0 {
		return d
	}
	e, remainder := floorDiv(t, h)
	block, shift := floorDiv(e, decayBlock)
	sum := decayParts{block: block}
	if d.decayParts != nil {
		sum = *d.decayParts
		if block > sum.block {
			sum.older = sum.newer
			if block > sum.block+1 {
				sum.older = int576{}
			}
			sum.block, sum.newer = block, int576{}
		}
	}
	switch block {
	case sum.block:
		sum.newer.add(p, exp2(remainder, h), uint(shift))
	case sum.block - 1:
		sum.older.add(p, exp2(remainder, h), uint(shift))
	default:
		return d
	}
	return decaySum{&sum}
}

// add adds p·floor((1+f)·2^160)·2^shift to x.
func (x *int576) add(p int64, f fraction, shift uint) {
	// m is floor((1+f)·2^160): a 1 bit, followed by the top 160 bits of f.
	m := [3]uint64{f[1]>>32 | f[2]<<32, f[2]>>32 | f[3]<<32, f[3]>>32 | 1<<32}
	n := uint64(p)
	if p < 0 {
		n = -n
	}
	var term [5]uint64 // n·m has at most 225 bits; the left shift below needs the last word
	var carry uint64
	for i, w := range m {
		hi, lo := bits.Mul64(n, w)
		var c uint64
		term[i], c = bits.Add64(lo, carry, 0)
		carry = hi + c
	}
	term[3] = carry
	words, rest := int(shift/64), shift%64
	for i := 4; i > 0; i-- {
		term[i] = term[i]<<rest | term[i-1]>>(64-rest)
	}
	term[0] <<= rest

	var c uint64
	for i := words; i < len(x); i++ {
		var w uint64
		if i-words < len(term) {
			w = term[i-words]
		}
		if p < 0 {
			x[i], c = bits.Sub64(x[i], w, c)
		} else {
			x[i], c = bits.Add64(x[i], w, c)
		}
	}
}

func floorDiv(a, b int64) (q, r int64) {
	q, r = a/b, a%b
	if r < 0 {
		q, r = q-1, r+b
	}
	return q, r
}

// fraction is a number f, 0 <= f < 1, in units of 2^-256, least significant word first.
type fraction [4]uint64

// exp2 returns 2^(r/h) - 1 for 0 <= r < h. For r = 0 the result is exact. Otherwise it is
// too small by at most 2^-245. exp2 uses integers only, so the result is the same on
// every machine.
//
// If r/h is 0.d1d2d3… in base 256, then 2^(r/h) is the product of 2^(d1/256), 2^(d2/256^2),
// and so on. digitPowers has the factors. See Muller, "Elementary Functions: Algorithms and
// Implementation", on table-based methods.
func exp2(r, h int64) fraction {
	// x is r/h in base 256. Its most significant digit is the top byte of the last word.
	var x fraction
	rem := uint64(r)
	for i := len(x) - 1; i >= 0; i-- {
		x[i], rem = bits.Div64(rem, 0, uint64(h))
	}
	var f fraction
	powers := digitPowers()
	for i := range powers {
		f = f.times(&powers[i][byte(x[3-i/8]>>(56-i%8*8))])
	}
	return f
}

// times returns (1+f)·(1+g) - 1, rounded down. The result must be less than 1.
func (f fraction) times(g *fraction) fraction {
	// The result is f + g + f·g.
	var product [8]uint64
	for i, a := range f {
		var carry uint64
		for j, b := range g {
			hi, lo := bits.Mul64(a, b)
			var c uint64
			lo, c = bits.Add64(lo, carry, 0)
			hi += c
			product[i+j], c = bits.Add64(product[i+j], lo, 0)
			carry = hi + c
		}
		product[i+4] = carry
	}
	var c1, c2 uint64
	for i := range f {
		f[i], c1 = bits.Add64(f[i], g[i], c1)
		f[i], c2 = bits.Add64(f[i], product[i+4], c2)
	}
	return f
}

// digitPowers returns 2^(d/256^(i+1)) - 1 for each place i and digit d in base 256.
var digitPowers = sync.OnceValue(func() *[32][256]fraction {
	const guard = 64 // additional bits against rounding errors of the roots
	var powers [32][256]fraction
	one := new(big.Int).Lsh(big.NewInt(1), 256+guard)
	root := new(big.Int).Lsh(one, 1) // becomes the square root of 2, the fourth root, and so on
	var buf [32]byte
	for i := range powers {
		for bit := 0x80; bit > 0; bit >>= 1 {
			root.Sqrt(root.Mul(root, one))
			f := new(big.Int).Sub(root, one)
			f.Rsh(f, guard).FillBytes(buf[:])
			for j := range powers[i][bit] {
				powers[i][bit][j] = binary.BigEndian.Uint64(buf[24-8*j:])
			}
			for d := bit << 1; d < 256; d += bit << 1 {
				powers[i][d|bit] = powers[i][d].times(&powers[i][bit])
			}
		}
	}
	return &powers
})

const (
	decayKeyLen       = 29
	decayMantissaBits = 160

	decayNegative = 0x7f
	decayZero     = 0x80
	decayPositive = 0x81
)

// appendKey appends the key of d, decayKeyLen bytes. Keys have the order of sums. Sums that
// differ only after 160 bits of the mantissa have equal keys.
//
// A sum that is not zero equals ±y·2^x, with the mantissa y, 1/2 <= y < 1, and the exponent
// x. The key begins with a byte for the sign. The next 8 bytes are x, mapped by [biased].
// The last 20 bytes are y, rounded towards zero. If the sum is negative, the last 28 bytes
// are complemented.
func (d decaySum) appendKey(dst []byte) []byte {
	var key [decayKeyLen]byte
	key[0] = decayZero
	if d.decayParts == nil {
		return append(dst, key[:]...)
	}
	// sum = newer·2^256 + older
	var sum [len(int576{}) + decayBlock/64]uint64
	var c uint64
	copy(sum[decayBlock/64:], d.newer[:])
	sign := uint64(int64(d.older[8]) >> 63)
	for i := range sum {
		w := sign
		if i < len(d.older) {
			w = d.older[i]
		}
		sum[i], c = bits.Add64(sum[i], w, c)
	}
	negative := int64(sum[len(sum)-1]) < 0
	if negative {
		c = 1
		for i := range sum {
			sum[i], c = bits.Add64(^sum[i], 0, c)
		}
	}
	top := len(sum) - 1
	for top >= 0 && sum[top] == 0 {
		top--
	}
	if top < 0 {
		return append(dst, key[:]...)
	}
	word := func(i int) uint64 {
		if i < 0 {
			return 0
		}
		return sum[i]
	}
	up := bits.LeadingZeros64(sum[top])
	x := decayBlock*(d.block-1) - decayMantissaBits + int64(64*(top+1)-up)
	binary.BigEndian.PutUint64(key[1:], uint64(x)^1<<63)
	var y [24]byte
	for i := range 3 {
		binary.BigEndian.PutUint64(y[8*i:], word(top-i)<<up|word(top-i-1)>>(64-up))
	}
	copy(key[9:], y[:])
	key[0] = decayPositive
	if negative {
		key[0] = decayNegative
		for i := range key[1:] {
			key[1+i] = ^key[1+i]
		}
	}
	return append(dst, key[:]...)
}

// Keys are rounded towards zero, and so are the weights of terms. An exact sum is less than its key's
// value times 1 + 2^-decaySlack: the weights lose less than 2^-160 of the sum, and the mantissa less
// than 2^-159. Comparisons of a key's value with a number therefore take each number in this interval
// as equal to the sum.
const decaySlack = 158

func withSlack(v *big.Int) *big.Int { return new(big.Int).Add(v, new(big.Int).Rsh(v, decaySlack)) }

// decayValue returns v and x such that the sum with the given key is worth v·2^(x-416) points at the time
// t, or -v·2^(x-416) points if it is negative. v is at least 2^415 and less than 2^417. t and the
// half-life h are in microseconds. The key must not be the key of zero.
func decayValue(key []byte, t, h int64) (negative bool, v *big.Int, x int64) {
	var b [decayKeyLen - 1]byte
	copy(b[:], key[1:])
	if negative = key[0] == decayNegative; negative {
		invert(b[:])
	}
	// With the limit, the addition of down cannot overflow. It is greater than the exponent of any valid sum.
	const limit = 1 << 50
	x = min(max(int64(binary.BigEndian.Uint64(b[:])^1<<63), -limit), limit)
	down, f := decayFactor(t, h)
	return negative, new(big.Int).Mul(new(big.Int).SetBytes(b[8:]), f.plusOne()), x + down
}

const decayValueBits = decayMantissaBits + 256

// decayScore returns how many points the sum with the given key is worth at the time t.
// The result is the nearest integer, a half rounded away from zero, limited to
// ±[MaxScore]. t and the half-life h are in microseconds.
func decayScore(key []byte, t, h int64) int64 {
	if key[0] == decayZero {
		return 0
	}
	negative, v, x := decayValue(key, t, h)
	score := int64(MaxScore)
	switch {
	case x < -2: // the value is less than 1/4
		return 0
	case x <= 53: // if x > 53, the value is at least 2^53, because the mantissa is at least 1/2
		shift := uint(decayValueBits - x)
		rounded := withSlack(v)
		rounded.Add(rounded, new(big.Int).Lsh(big.NewInt(1), shift-1))
		score = min(score, rounded.Rsh(rounded, shift).Int64())
	}
	if negative {
		return -score
	}
	return score
}

// decayBound returns a bound of decayKeyLen bytes. Keys below the bound have a decayScore
// below s. All other keys have a decayScore of at least s.
func decayBound(s, t, h int64) []byte {
	bound := make([]byte, decayKeyLen)
	switch {
	case s <= -int64(MaxScore): // all keys have at least this score
		bound[decayKeyLen-1] = 1 // not 0, so that ScorePrefix can subtract 1
		return bound
	case s > int64(MaxScore): // no key has this score
		for i := range bound {
			bound[i] = 0xff
		}
		return bound
	}
	return decayThreshold(2*s-1, s <= 0, t, h)
}

// decayThreshold returns a bound of decayKeyLen bytes. Keys below the bound are worth less than n/2
// points at the time t or, if above is true, at most n/2 points. All other keys are worth more.
func decayThreshold(n int64, above bool, t, h int64) []byte {
	bound := make([]byte, decayKeyLen)
	switch {
	case n > 0:
		bound[0] = decayPositive
		copy(bound[1:], decayMagnitude(n, above, t, h))
	case n == 0 && above:
		bound[0] = decayPositive
	case n == 0:
		bound[0] = decayZero
	default:
		// The greatest key below the bound is the complement of a magnitude. The bound is this key plus 1.
		bound[0] = decayNegative
		copy(bound[1:], decayMagnitude(-n, !above, t, h))
		invert(bound[1:])
		for i := len(bound) - 1; i >= 0; i-- {
			if bound[i]++; bound[i] != 0 {
				break
			}
		}
	}
	return bound
}

// decayMagnitude returns the smallest positive key, without the sign byte, that is worth at least
// n/2 points or, if above is true, more than n/2 points. n is positive.
func decayMagnitude(n int64, above bool, t, h int64) []byte {
	down, f := decayFactor(t, h)
	factor := f.plusOne()
	// x is the key's exponent plus down. The key's value, mantissa·2^x·(1+f), is less than
	// 2^(x+1). The value is n/2 or slightly less: more than 2^(l-3), if n has l bits. So x
	// is at least l-3.
	x := int64(bits.Len64(uint64(n))) - 3
	for ; ; x++ {
		// Find the smallest v, as in decayValue, that is large enough.
		threshold := new(big.Int).Lsh(big.NewInt(n), uint(decayValueBits-1-x))
		v := new(big.Int).Add(threshold, big.NewInt(1))
		if !above {
			v.Lsh(threshold, decaySlack)
			v.Div(v, new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), decaySlack), big.NewInt(1)))
			for withSlack(v).Cmp(threshold) < 0 {
				v.Add(v, big.NewInt(1))
			}
		}
		mantissa, rest := new(big.Int).DivMod(v, factor, new(big.Int))
		if rest.Sign() > 0 {
			mantissa.Add(mantissa, big.NewInt(1))
		}
		if mantissa.BitLen() > decayMantissaBits {
			continue
		}
		if mantissa.BitLen() < decayMantissaBits { // keys with smaller exponents are worth less
			mantissa.Lsh(big.NewInt(1), decayMantissaBits-1)
		}
		key := make([]byte, decayKeyLen-1)
		binary.BigEndian.PutUint64(key, uint64(x-down)^1<<63)
		mantissa.FillBytes(key[8:])
		return key
	}
}

// decayFactor returns down and f such that 2^(-t/h) = 2^down·(1+f).
func decayFactor(t, h int64) (down int64, f fraction) {
	down, remainder := floorDiv(t, h)
	down = -down
	if remainder > 0 {
		down, remainder = down-1, h-remainder
	}
	return down, exp2(remainder, h)
}

// plusOne returns 2^256·(1+f).
func (f fraction) plusOne() *big.Int {
	b := []byte{1}
	for _, w := range slices.Backward(f[:]) {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return new(big.Int).SetBytes(b)
}

const (
	// With a half-life of one second, the earliest time in int64 microseconds is in the
	// block -maxDecayBlock.
	maxDecayBlock = 1<<63/1_000_000/decayBlock + 1
	// An int576 of maxDecayBytes can hold the sum of 2^66 terms of 2^53 points.
	maxDecayBytes = 67
)

// appendBinary appends d as bytes, which do not depend on the order of its terms. A sum
// without terms has no bytes. Other sums have the block as a varint, then newer and older.
// Each of these integers has its length in one byte, then its shortest two's complement,
// most significant byte first. The integer 0 has the length 0.
func (d decaySum) appendBinary(dst []byte) []byte {
	if d.decayParts == nil {
		return dst
	}
	dst = binary.AppendVarint(dst, d.block)
	return d.older.appendBinary(d.newer.appendBinary(dst))
}

func (x *int576) appendBinary(dst []byte) []byte {
	var b [8 * len(x)]byte
	for i, w := range x {
		binary.BigEndian.PutUint64(b[len(b)-8*(i+1):], w)
	}
	short := b[:]
	for len(short) > 1 && (short[0] == 0 && short[1] < 0x80 || short[0] == 0xff && short[1] >= 0x80) {
		short = short[1:]
	}
	if len(short) == 1 && short[0] == 0 {
		short = nil
	}
	return append(append(dst, byte(len(short))), short...)
}

// decodeDecaySum returns [ErrFormat] for bytes that appendBinary cannot produce.
func decodeDecaySum(data []byte) (decaySum, error) {
	if len(data) == 0 {
		return decaySum{}, nil
	}
	var d decayParts
	bad := fmt.Errorf("leaderboard: decayed sum: %w", ErrFormat)
	block, n := binary.Varint(data)
	if n <= 0 || block < -maxDecayBlock || block > maxDecayBlock {
		return decaySum{}, bad
	}
	d.block = block
	remainder := data[n:]
	for _, part := range []*int576{&d.newer, &d.older} {
		if len(remainder) == 0 || remainder[0] > maxDecayBytes || int(remainder[0]) >= len(remainder) {
			return decaySum{}, bad
		}
		part.setBytes(remainder[1 : 1+remainder[0]])
		remainder = remainder[1+remainder[0]:]
	}
	sum := decaySum{&d}
	if string(sum.appendBinary(nil)) != string(data) {
		return decaySum{}, bad
	}
	return sum, nil
}

// setBytes decodes two's complement of at most 72 bytes, most significant byte first.
func (x *int576) setBytes(b []byte) {
	var full [8 * len(x)]byte
	if len(b) > 0 && b[0] >= 0x80 {
		for i := range full {
			full[i] = 0xff
		}
	}
	copy(full[len(full)-len(b):], b)
	for i := range x {
		x[i] = binary.BigEndian.Uint64(full[len(full)-8*(i+1):])
	}
}
