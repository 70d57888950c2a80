package leaderboard

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

const (
	decayDigits = 50  // the number of digits of a decimal, or one more
	shortDigits = 40  // see decayDecimal
	floatBits   = 512 // the precision of intermediate numbers
	maxZeros    = 20  // a decimal with more zeros has an exponent
)

// decayDecimal returns how many points the sum with the given key is worth at the time t, as a decimal
// number such as -0.5, 128 or 3.2e-41. Decimals have the order of keys. t and the half-life h are in
// microseconds.
//
// If a number of up to shortDigits digits is equal to the sum, apart from the rounding of keys, decayDecimal
// returns this number: 100 points are 100 and not 99.99…9. Otherwise it returns enough digits to tell
// the sum from every sum with another key.
func decayDecimal(key []byte, t, h int64) string {
	if key[0] == decayZero {
		return "0"
	}
	negative, v, x := decayValue(key, t, h)
	if v.Sign() == 0 {
		return "0" // a damaged key
	}
	// The value is from 2^(x-1) to 2^(x+1). Divide it by a power of ten such that decayDigits digits remain.
	exponent := int64(math.Floor(float64(x-1)*math.Log10(2))) - decayDigits + 1
	power, e := pow5(max(exponent, -exponent))
	scaled := new(big.Float).SetPrec(floatBits).SetInt(v)
	if exponent >= 0 {
		scaled.Quo(scaled, power)
		e = -e
	} else {
		scaled.Mul(scaled, power)
	}
	scaled.SetMantExp(scaled, int(x-decayValueBits-exponent+e))
	low, _ := scaled.Int(nil)
	digits := low.String()
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(digits)-shortDigits)), nil)
	short := new(big.Int).Add(low, new(big.Int).Sub(unit, big.NewInt(1)))
	short.Div(short, unit) // low, in units, rounded up
	if new(big.Int).Mul(short, unit).Cmp(withSlack(low)) <= 0 {
		exponent += int64(len(digits) - shortDigits)
		digits = short.String()
	}
	point := int64(len(digits)) + exponent // the number of digits before the decimal point
	text := formatDecimal(strings.TrimRight(digits, "0"), point)
	if negative {
		return "-" + text
	}
	return text
}

// formatDecimal returns the number 0.digits·10^point. The last digit must not be 0.
func formatDecimal(digits string, point int64) string {
	n := int64(len(digits))
	switch {
	case point > n+maxZeros || point < -maxZeros:
		text := digits[:1]
		if n > 1 {
			text += "." + digits[1:]
		}
		return text + "e" + strconv.FormatInt(point-1, 10)
	case point >= n:
		return digits + strings.Repeat("0", int(point-n))
	case point > 0:
		return digits[:point] + "." + digits[point:]
	default:
		return "0." + strings.Repeat("0", int(-point)) + digits
	}
}

// pow5 returns m and e such that 5^n is m·2^e. The exponent of a big.Float cannot hold every 5^n.
func pow5(n int64) (m *big.Float, e int64) {
	multiply := func(a *big.Float, ae int64, b *big.Float, be int64) (*big.Float, int64) {
		product := new(big.Float).Mul(a, b)
		shift := product.MantExp(product)
		return product, ae + be + int64(shift)
	}
	m = new(big.Float).SetPrec(floatBits).SetInt64(1)
	square, squareExp := new(big.Float).SetPrec(floatBits).SetInt64(5), int64(0)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			m, e = multiply(m, e, square, squareExp)
		}
		square, squareExp = multiply(square, squareExp, square, squareExp)
	}
	return m, e
}

// maxGap is the greatest result of decayGap.
const maxGap = 1 << 62

// decayGap returns the least number of points which, added to the sum with the key from at the time t,
// makes it worth at least as much as the sum with the key to. It is negative if points can be
// taken away, and limited to ±maxGap.
func decayGap(from, to []byte, t, h int64) int64 {
	const prec = 2048 // the sum of two values has at most 1,500 bits
	value := func(key []byte) *big.Float {
		f := new(big.Float).SetPrec(prec)
		if key[0] == decayZero {
			return f
		}
		negative, v, x := decayValue(key, t, h)
		if f.SetInt(v); negative {
			f.Neg(f)
		}
		return f.SetMantExp(f, int(min(max(x, -1000), 64)-decayValueBits))
	}
	a, b := value(from), value(to)
	gap := new(big.Float).SetPrec(prec).Sub(b, a)
	slack := new(big.Float).SetPrec(prec).Add(a.Abs(a), b.Abs(b))
	gap.Sub(gap, slack.SetMantExp(slack, -decaySlack))
	n, _ := gap.Int(nil) // rounded towards zero
	if gap.Sign() > 0 && !gap.IsInt() {
		n.Add(n, big.NewInt(1))
	}
	if limit := big.NewInt(maxGap); n.CmpAbs(limit) > 0 {
		return maxGap * int64(n.Sign())
	}
	return n.Int64()
}
