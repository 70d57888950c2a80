package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
)

// Secret is a value that is never shown: whatever prints, marshals or logs it
// gets a placeholder. Convert it to string to use it.
type Secret string

// hidden stands for a secret that is set.
const hidden = "[hidden]"

// String returns "[hidden]", or nothing for no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText is String, for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for package slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Format writes String whatever the verb, so that %x does not show the secret.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = f.Write([]byte(s.GoString()))
		return
	}
	_, _ = f.Write([]byte(s.String()))
}

// UnmarshalText takes the secret as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// Bytes is a size, written as a number of bytes or with a unit: 64KiB, 256MiB, 2GiB.
type Bytes int64

var byteUnits = []struct {
	name string
	size Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String returns b in the largest unit in which it is a whole number.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b%u.size == 0 && b != 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return "0B"
}

// UnmarshalText reads what String writes, and bare numbers.
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
