package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

const maxDepth = 100 // of values around an array of records

// documentReader reads the objects of an array in each of several JSON documents, such as the pages
// that a server returned. The line of a record is its number.
type documentReader struct {
	input  *limitedReader
	json   *json.Decoder
	arrays []string    // paths of the array, such as data.leaderboard
	around []container // the objects and arrays around the next token
	inside bool        // whether the next token is of a record or ends the array
	found  bool        // whether a document had the array
	line   int64
}

// container is an object or an array that the reader has entered.
type container struct {
	object, expectsKey bool
	key                string // of the current value in an object
}

// limitedReader fails if more than maxBytes are read before left is reset.
type limitedReader struct {
	io.Reader
	left int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.Reader.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

func newDocumentReader(r io.Reader, arrays []string) (*documentReader, error) {
	var first [3]byte
	n, err := io.ReadFull(r, first[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	d := &documentReader{arrays: arrays, input: &limitedReader{Reader: io.MultiReader(bytes.NewReader(bytes.TrimPrefix(first[:n], byteOrderMark)), r)}}
	d.json = json.NewDecoder(d.input)
	return d, nil
}

// Next implements [Reader].
func (d *documentReader) Next() (Record, error) {
	for {
		d.input.left = maxBytes
		if d.inside && d.json.More() {
			var raw json.RawMessage
			d.line++
			if err := d.json.Decode(&raw); err != nil {
				return Record{}, d.fault(err)
			}
			rec := Record{Line: d.line, Raw: raw}
			if !utf8.Valid(raw) {
				rec.Err = errNotUTF8
			} else {
				rec.Column, rec.Err = jsonFields(raw)
			}
			return rec, nil
		}
		if err := d.step(); err != nil {
			return Record{}, d.fault(err)
		}
	}
}

// step reads a token that is not part of a record.
func (d *documentReader) step() error {
	token, err := d.json.Token()
	if err != nil {
		return err
	}
	top := len(d.around) - 1
	switch token {
	case json.Delim('{'), json.Delim('['):
		if top >= maxDepth {
			return fmt.Errorf("the input has more than %d values inside each other", maxDepth)
		}
		object := token == json.Delim('{')
		d.inside = !object && d.isArray()
		d.found = d.found || d.inside
		d.around = append(d.around, container{object: object, expectsKey: object})
		return nil
	case json.Delim('}'), json.Delim(']'):
		d.inside = false
		d.around = d.around[:top]
		top--
	default:
		if key, ok := token.(string); ok && top >= 0 && d.around[top].expectsKey {
			d.around[top].key, d.around[top].expectsKey = key, false
			return nil
		}
	}
	if top >= 0 { // a value has ended
		d.around[top].expectsKey = d.around[top].object
	}
	return nil
}

// isArray reports whether an array that begins here contains the records.
func (d *documentReader) isArray() bool {
	keys := make([]string, 0, len(d.around))
	for _, s := range d.around {
		if !s.object {
			return false
		}
		keys = append(keys, s.key)
	}
	return slices.Contains(d.arrays, strings.Join(keys, "."))
}

func (d *documentReader) fault(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF) && len(d.around) > 0:
		return &BrokenError{io.ErrUnexpectedEOF}
	case errors.Is(err, io.EOF) && !d.found:
		return fmt.Errorf("the input has no array at %s", strings.Join(d.arrays, " or "))
	case errors.Is(err, errTooLong):
		return fmt.Errorf("record %d, or a value beside it, %w", d.line, errTooLong)
	case errors.As(err, &syntax):
		return fmt.Errorf("the input is not JSON after record %d: %w", d.line, err)
	}
	return err
}

// Offset implements [Reader].
func (d *documentReader) Offset() int64 { return d.json.InputOffset() }

// Header implements [Reader].
func (d *documentReader) Header() []string { return nil }
