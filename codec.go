package leaderboard

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// biased preserves the order of numbers.
func biased(v int64) uint64 { return uint64(v) ^ 1<<63 }

func unbiased(v uint64) int64 { return int64(v ^ 1<<63) }

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// decoder reads encoded values from the start of b. After a read fails, bad is true and
// every read returns zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() { d.bad, d.b = true, nil }

func (d *decoder) next(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.next(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the length of a list, and fails above limit.
func (d *decoder) count(limit int) int {
	n := d.uvarint()
	if n > uint64(limit) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) string() string { return string(d.next(d.uvarint())) }

func enumString(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%%!(%d)", i)
	}
	return names[i]
}

func parseEnum[E ~int8](field string, names []string, text []byte, dst *E) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fieldErrorf(field, "%.64q is unknown; it must be one of %s", text, strings.Join(names, ", "))
	}
	*dst = E(i)
	return nil
}
