package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size, written as a number, alone or with a unit: 64KiB, 256MiB, 2GiB.
type Bytes int64

var byteUnits = []struct {
	name string
	size Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String returns b as a whole number with the largest unit that divides b.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b%u.size == 0 && b != 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return "0B"
}

// UnmarshalText is the inverse of String. Without a unit, the number is in bytes.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, size := string(text), Bytes(1)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, size = n, u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(size) {
		return fmt.Errorf("%q is not a size such as 64KiB, 256MiB or 2GiB", text)
	}
	*b = Bytes(n) * size
	return nil
}
