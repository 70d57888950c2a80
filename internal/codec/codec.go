// Package codec decodes the values and keys that stores write.
package codec

import (
	"encoding/binary"
	"time"
)

// Decoder reads values one after another. After a failed read, it sets Bad, and every read returns a
// zero value.
type Decoder struct {
	Rest []byte // what remains to be read
	Bad  bool
}

// Next reads n bytes. They are part of the decoded slice.
func (d *Decoder) Next(n uint64) []byte {
	if n > uint64(len(d.Rest)) {
		d.Rest, d.Bad = nil, true
		return nil
	}
	out := d.Rest[:n]
	d.Rest = d.Rest[n:]
	return out
}

// Byte reads a byte.
func (d *Decoder) Byte() byte {
	if b := d.Next(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint32 reads four bytes, the most significant first.
func (d *Decoder) Uint32() uint32 {
	if b := d.Next(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Uvarint reads an unsigned integer of variable length.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.Rest)
	if n <= 0 {
		d.Rest, d.Bad = nil, true
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// Time reads an instant: a signed integer of variable length, in Unix microseconds.
func (d *Decoder) Time() time.Time {
	v, n := binary.Varint(d.Rest)
	if n <= 0 {
		d.Rest, d.Bad = nil, true
		return time.Time{}
	}
	d.Rest = d.Rest[n:]
	return time.UnixMicro(v).UTC()
}

// Bytes reads a length and as many bytes. They are part of the decoded slice.
func (d *Decoder) Bytes() []byte { return d.Next(d.Uvarint()) }

// Text reads a text that AppendText wrote.
func (d *Decoder) Text() string { return string(d.Bytes()) }

// AppendText appends the length of s, and s.
func AppendText[S ~string | ~[]byte](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
