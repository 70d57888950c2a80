package leaderboard

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"sync"
)

// A decay board's score halves with every half-life that passes. Rather than
// age every score, the board gives later results more weight: with half-life h,
// a result of p points at time t adds p·2^(t/h), and at any moment T the sum V of
// a user's results is worth V·2^(-T/h) points. All users' sums shrink alike, so
// V ranks them at every moment, and a score need only be written when a result
// comes. The idea is forward decay: Cormode, Shkapenyuk, Srivastava and Xu,
// "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009.
//
// V is kept exactly, as an integer, so that it does not depend on the order in
// which results arrive. The weight 2^(t/h) is m·2^(e-160), where e is the whole
// number of half-lives in t, and m, of 161 bits, is 2^160 times two to the power
// of what is left, rounded down. So weights a whole number of half-lives apart
// are exactly so many halvings apart.

// decayBlock is the width of a block of exponents. A sum keeps the block of its
// latest term and the block before, and what is older counts as zero: by then
// 2^53 points are less than 2^-202 of one. As the latest of all terms sets the
// cut, that too is independent of their order.
const decayBlock = 256

// decaySum is a sum of decayed points. The zero decaySum has no terms. It is a
// value: adding to it makes another.
type decaySum struct {
	*decayParts // nil while no term has any points; never written to once set
}

type decayParts struct {
	block        int64  // floor(e / decayBlock) of the latest term
	newer, older int576 // of the terms of this block and of the one before, in units of 2^(decayBlock·its block - 160)
}

// int576 is an integer in two's complement, least word first. A term of a part
// has 64 + 161 + 255 bits at most, so that no number of them overflows.
type int576 [9]uint64

// add returns d with p points at t, in Unix microseconds, for a half-life of h
// microseconds, at least 10^6.
func (d decaySum) add(p, t, h int64) decaySum {
	if p == 0 {
		return d
	}
	e, left := floorDiv(t, h)
	block, shift := floorDiv(e, decayBlock)
	next := decayParts{block: block}
	if d.decayParts != nil {
		next = *d.decayParts
		if block > next.block {
			// The cut moves up: the newer part becomes the older, or falls too.
			next.older = next.newer
			if block > next.block+1 {
				next.older = int576{}
			}
			next.block, next.newer = block, int576{}
		}
	}
	switch block {
	case next.block:
		next.newer.add(p, exp2(left, h), uint(shift))
	case next.block - 1:
		next.older.add(p, exp2(left, h), uint(shift))
	default:
		return d
	}
	return decaySum{&next}
}

// add adds p·floor((1+f)·2^160)·2^shift to x.
func (x *int576) add(p int64, f fraction, shift uint) {
	// The top 160 bits of f, and a one above them.
	m := [3]uint64{f[1]>>32 | f[2]<<32, f[2]>>32 | f[3]<<32, f[3]>>32 | 1<<32}
	n := uint64(p)
	if p < 0 {
		n = -n
	}
	var term [5]uint64 // n·m, of 225 bits at most, and a word to shift into
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

// floorDiv returns the quotient rounded down and the remainder, 0 <= r < b.
func floorDiv(a, b int64) (q, r int64) {
	q, r = a/b, a%b
	if r < 0 {
		q, r = q-1, r+b
	}
	return q, r
}

// fraction is a number f, 0 <= f < 1, in units of 2^-256, least word first.
type fraction [4]uint64

// exp2 returns 2^(r/h) - 1 for 0 <= r < h. It is exact for r = 0 and else at most
// 2^-245 too small. It is the same on every machine, as it is made of integers.
func exp2(r, h int64) fraction {
	// r/h in base 256, and for each digit two to the power of it.
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

// times returns (1+f)·(1+g) - 1, rounded down, which must be less than 1.
func (f fraction) times(g *fraction) fraction {
	// f + g + f·g; of the product, the words from the fifth on.
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

// digitPowers returns 2^(d/256^(i+1)) - 1 for each place i and digit d.
var digitPowers = sync.OnceValue(func() *[32][256]fraction {
	const guard = 64 // further bits, so that errors of the roots do not add up
	var powers [32][256]fraction
	one := new(big.Int).Lsh(big.NewInt(1), 256+guard)
	root := new(big.Int).Lsh(one, 1) // of two: the square root, the fourth root and so on
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

// appendKey appends decayKeyLen bytes that compare as the sums do: of two sums
// the greater has the greater key, or the same if they agree in their first 160
// bits. A sum of zero has the key of no terms. The key is a sign, and for sums
// other than zero x as 8 bytes and f as 20, where the sum is ±f·2^x and f, rounded
// towards zero, at least one half and less than one. For negative sums these 28
// bytes are complemented.
func (d decaySum) appendKey(dst []byte) []byte {
	var key [decayKeyLen]byte
	key[0] = decayZero
	if d.decayParts == nil {
		return append(dst, key[:]...)
	}
	// newer·2^256 + older
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
	var f [24]byte
	for i := range 3 {
		binary.BigEndian.PutUint64(f[8*i:], word(top-i)<<up|word(top-i-1)>>(64-up))
	}
	copy(key[9:], f[:])
	key[0] = decayPositive
	if negative {
		key[0] = decayNegative
		for i := range key[1:] {
			key[1+i] = ^key[1+i]
		}
	}
	return append(dst, key[:]...)
}

// decayScore returns what the sum with the key is worth at a moment, in Unix
// microseconds, for a half-life of h microseconds: whole points, halves rounded
// away from zero, within ±[MaxScore]. What is within 2^-100 of itself of a half
// counts as a half, so that rounding the key down does not tell on exact halves.
func decayScore(key []byte, at, h int64) int64 {
	if key[0] == decayZero {
		return 0
	}
	var b [decayKeyLen - 1]byte
	copy(b[:], key[1:])
	if key[0] == decayNegative {
		for i := range b {
			b[i] = ^b[i]
		}
	}
	x := int64(binary.BigEndian.Uint64(b[:]) ^ 1<<63)

	// 2^(-at/h) = 2^down·(1+f)
	down, left := floorDiv(at, h)
	down = -down
	if left > 0 {
		down, left = down-1, h-left
	}
	f := exp2(left, h)

	const limit = 1 << 50 // beyond any exponent that times make
	score := int64(MaxScore)
	switch x = min(max(x, -limit), limit) + down; {
	case x < -2: // less than a quarter, as the mantissa and f are less than one
		return 0
	case x <= 53: // beyond, it is at least 2^53, as the mantissa is at least a half
		// The mantissa's 160 bits times f's 257, then a 2^-110th more, and rounded.
		v := new(big.Int).Mul(new(big.Int).SetBytes(b[8:]), f.plusOne())
		v.Add(v, new(big.Int).Rsh(v, 110))
		shift := uint(decayMantissaBits + 256 - x)
		v.Add(v, new(big.Int).Lsh(big.NewInt(1), shift-1))
		v.Rsh(v, shift)
		score = min(score, v.Int64())
	}
	if key[0] == decayNegative {
		return -score
	}
	return score
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
	// maxDecayBlock bounds the blocks of all times in int64 microseconds for a
	// half-life of a second or more.
	maxDecayBlock = 1<<63/1_000_000/decayBlock + 1
	// maxDecayBytes bounds a part's bytes: room for 2^66 terms of 2^53 points.
	maxDecayBytes = 67
)

// appendBinary appends d as bytes; equal sets of terms are equal bytes, and no
// terms are none. They are the block as a varint, then the newer part and the
// older, each as a byte that counts the bytes that follow: the integer in two's
// complement, most significant byte first, as short as can be, zero as none.
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

// decodeDecaySum is the inverse of appendBinary. It returns [ErrFormat] for
// whatever appendBinary does not write.
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
	rest := data[n:]
	for _, part := range []*int576{&d.newer, &d.older} {
		if len(rest) == 0 || rest[0] > maxDecayBytes || int(rest[0]) >= len(rest) {
			return decaySum{}, bad
		}
		part.setBytes(rest[1 : 1+rest[0]])
		rest = rest[1+rest[0]:]
	}
	sum := decaySum{&d}
	// There is one encoding of each sum: what is left over, or longer than it
	// need be, is none.
	if string(sum.appendBinary(nil)) != string(data) {
		return decaySum{}, bad
	}
	return sum, nil
}

// setBytes sets x to the integer in two's complement in at most 72 bytes.
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
