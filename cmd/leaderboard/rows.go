package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxRecordBytes bounds one record of an input; the largest result that a
// server takes is far smaller.
const maxRecordBytes = 1 << 20

// record is one line of NDJSON or one row of CSV.
type record struct {
	line int64  // where it begins, from 1
	raw  []byte // without the line's end; valid until the next record is read
	// err says what is wrong with it, and columns are then of no use.
	err error
	// columns returns what stands under a name, and false if that is nothing.
	columns func(name string) (cell, bool)
}

// cell is one value of a record.
type cell struct {
	text string
	// composite says that text is a JSON list or object, err that it is no text.
	composite bool
	err       error
}

// recordReader reads records one after another, in constant memory.
type recordReader interface {
	// next returns io.EOF after the last record. Another error ends the input
	// before its end.
	next() (record, error)
	// offset is where the next record begins in the decompressed input.
	offset() int64
	// header are the names of the columns, if they are known before the records.
	header() []string
}

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	errTooLong    = fmt.Errorf("is longer than %d bytes", maxRecordBytes)
	errOpenQuote  = errors.New("opens a quote that is not closed")
	errNotUTF8    = errors.New("is not valid UTF-8")
	errUTF16      = errors.New("the input is UTF-16; save it as UTF-8")
)

// decompress returns what is compressed in r by gzip, or r itself.
func decompress(r io.Reader) (io.Reader, error) {
	var magic [2]byte
	n, err := io.ReadFull(r, magic[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	r = io.MultiReader(bytes.NewReader(magic[:n]), r)
	switch string(magic[:n]) {
	case "\x1f\x8b":
		return gzip.NewReader(r)
	case "\xff\xfe", "\xfe\xff":
		return nil, errUTF16
	}
	return r, nil
}

// splitter cuts an input into records at line ends, for CSV only at those
// outside of quotes.
type splitter struct {
	r         io.Reader
	delimiter byte // of CSV; 0 for lines
	buf       []byte
	start     int // buf[start:] is not consumed
	err       error
	at        int64 // offset of buf[start]
	line      int64 // of buf[start]
}

func newSplitter(r io.Reader, delimiter byte) (*splitter, error) {
	s := &splitter{r: r, delimiter: delimiter, line: 1}
	for len(s.buf) < len(byteOrderMark) && s.fill() {
	}
	if bytes.HasPrefix(s.buf, byteOrderMark) {
		s.start, s.at = len(byteOrderMark), int64(len(byteOrderMark))
	}
	if s.err != nil && s.err != io.EOF {
		return nil, s.err
	}
	return s, nil
}

// fill reads more of the input, and returns false at its end.
func (s *splitter) fill() bool {
	if s.err != nil {
		return false
	}
	if s.start > 0 && s.start >= len(s.buf)/2 {
		s.buf = s.buf[:copy(s.buf, s.buf[s.start:])]
		s.start = 0
	}
	s.buf = slices.Grow(s.buf, 64<<10)
	n, err := s.r.Read(s.buf[len(s.buf) : len(s.buf)+64<<10])
	s.buf = s.buf[:len(s.buf)+n]
	s.err = err
	return n > 0 || err == nil
}

// The states of a scan through CSV.
const (
	fieldStart = iota
	inField
	inQuotes
	afterQuote // in quotes, behind what may be the closing one
)

// next returns a record with its line end, and the line it begins in. A record
// that is not one, because of err, is one line that has been passed over.
func (s *splitter) next() (rec []byte, line int64, err error) {
	line = s.line
	state, firstLine := fieldStart, -1
	for i := 0; ; i++ {
		for s.start+i == len(s.buf) {
			if !s.fill() {
				return s.last(line, state == inQuotes, firstLine)
			}
		}
		if i >= maxRecordBytes {
			if firstLine >= 0 {
				return s.take(firstLine), line, errOpenQuote
			}
			return nil, line, s.skipLine()
		}
		c := s.buf[s.start+i]
		if c == '\n' && firstLine < 0 {
			firstLine = i + 1
		}
		if c == '\n' && (s.delimiter == 0 || state != inQuotes) {
			return s.take(i + 1), line, nil
		}
		if s.delimiter == 0 {
			continue
		}
		switch {
		case c == '"' && (state == fieldStart || state == afterQuote):
			state = inQuotes
		case c == '"' && state == inQuotes:
			state = afterQuote
		case state == inQuotes:
		case c == s.delimiter:
			state = fieldStart
		default:
			state = inField
		}
	}
}

// last returns what is left at the end of the input.
func (s *splitter) last(line int64, open bool, firstLine int) ([]byte, int64, error) {
	switch {
	case s.err != io.EOF:
		return nil, line, &brokenInput{s.err}
	case s.start == len(s.buf):
		return nil, line, io.EOF
	case open && firstLine >= 0:
		return s.take(firstLine), line, errOpenQuote
	}
	return s.take(len(s.buf) - s.start), line, nil
}

// take consumes n bytes.
func (s *splitter) take(n int) []byte {
	b := s.buf[s.start : s.start+n]
	s.start += n
	s.at += int64(n)
	s.line += int64(bytes.Count(b, []byte{'\n'}))
	return b
}

// skipLine passes over a line of any length.
func (s *splitter) skipLine() error {
	for {
		if i := bytes.IndexByte(s.buf[s.start:], '\n'); i >= 0 {
			s.take(i + 1)
			return errTooLong
		}
		s.take(len(s.buf) - s.start)
		if !s.fill() {
			if s.err != io.EOF {
				return &brokenInput{s.err}
			}
			return errTooLong
		}
	}
}

// brokenInput is an input that cannot be read further.
type brokenInput struct{ err error }

func (e *brokenInput) Error() string {
	return fmt.Sprintf("the input breaks off (%v); it is damaged or cut short, get it again", e.err)
}
func (e *brokenInput) Unwrap() error { return e.err }

func isBroken(err error) bool {
	var b *brokenInput
	return errors.As(err, &b)
}

// csvReader reads CSV with a header.
type csvReader struct {
	*splitter
	names  []string
	column map[string]int // -1 for a name that is there twice
	csv    *csv.Reader
	feed   feeder
}

// feeder gives a csv.Reader one record at a time.
type feeder struct{ rest []byte }

func (f *feeder) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func newCSVReader(r io.Reader, delimiter byte) (*csvReader, error) {
	s, err := newSplitter(r, delimiter)
	if err != nil {
		return nil, err
	}
	c := &csvReader{splitter: s, column: map[string]int{}}
	c.reset()
	first, err := c.readFields()
	if err == nil {
		err = first.err
	}
	if err == io.EOF {
		return nil, errors.New("the input is empty; its first line must name the columns")
	}
	if err != nil {
		return nil, fmt.Errorf("line %d, which must name the columns, %w", first.line, err)
	}
	c.names = slices.Clone(first.fields)
	for i, name := range c.names {
		if _, twice := c.column[name]; twice {
			i = -1
		}
		c.column[name] = i
	}
	return c, nil
}

func (c *csvReader) reset() {
	c.csv = csv.NewReader(&c.feed)
	c.csv.Comma, c.csv.FieldsPerRecord, c.csv.ReuseRecord = rune(c.delimiter), -1, true
}

type csvFields struct {
	record
	fields []string
}

// readFields returns the next row that is not blank.
func (c *csvReader) readFields() (csvFields, error) {
	for {
		raw, line, err := c.splitter.next()
		if err == io.EOF || isBroken(err) {
			return csvFields{}, err
		}
		row := csvFields{record: record{line: line, raw: bytes.TrimRight(raw, "\r\n"), err: err}}
		if err == nil && !utf8.Valid(raw) {
			row.err = errNotUTF8
		}
		if row.err != nil {
			return row, nil
		}
		c.feed.rest = raw
		row.fields, err = c.csv.Read()
		if err == io.EOF {
			continue // a blank line
		}
		if err != nil {
			c.reset() // it may hold the rest of the row
			var parse *csv.ParseError
			if errors.As(err, &parse) {
				err = parse.Err
			}
			row.err = fmt.Errorf("is not CSV: %w", err)
		}
		return row, nil
	}
}

func (c *csvReader) next() (record, error) {
	row, err := c.readFields()
	if err != nil || row.err != nil {
		return row.record, err
	}
	if len(row.fields) != len(c.names) {
		row.err = fmt.Errorf("has %s, the header %d", plural(int64(len(row.fields)), "field", "fields"), len(c.names))
		return row.record, nil
	}
	row.columns = func(name string) (cell, bool) {
		i, ok := c.column[name]
		if !ok || i < 0 || row.fields[i] == "" {
			return cell{}, false
		}
		return cell{text: row.fields[i]}, true
	}
	return row.record, nil
}

func (c *csvReader) offset() int64    { return c.at }
func (c *csvReader) header() []string { return c.names }

// jsonReader reads NDJSON: one object a line.
type jsonReader struct{ *splitter }

func newJSONReader(r io.Reader) (*jsonReader, error) {
	s, err := newSplitter(r, 0)
	return &jsonReader{s}, err
}

func (j *jsonReader) next() (record, error) {
	for {
		raw, line, err := j.splitter.next()
		if err == io.EOF || isBroken(err) {
			return record{}, err
		}
		rec := record{line: line, raw: bytes.TrimSpace(raw), err: err}
		if err == nil && len(rec.raw) == 0 {
			continue
		}
		if err == nil && !utf8.Valid(raw) {
			rec.err = errNotUTF8
		}
		if rec.err == nil {
			rec.columns, rec.err = jsonColumns(rec.raw)
		}
		return rec, nil
	}
}

func jsonColumns(raw []byte) (func(string) (cell, bool), error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, errors.New("is not a JSON object")
	}
	return func(name string) (cell, bool) { return jsonCell(object, name, raw) }, nil
}

// jsonCell returns the member of a name, or the member of a member where the
// name has dots.
func jsonCell(object map[string]json.RawMessage, name string, raw []byte) (cell, bool) {
	value, ok := object[name]
	if !ok {
		outer, inner, dotted := strings.Cut(name, ".")
		var nested map[string]json.RawMessage
		if !dotted || json.Unmarshal(object[outer], &nested) != nil {
			return cell{}, false
		}
		return jsonCell(nested, inner, raw)
	}
	switch value[0] {
	case 'n': // null
		return cell{}, false
	case '{', '[':
		return cell{text: string(value), composite: true}, true
	case '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil || text == "" {
			return cell{}, false
		}
		if strings.ContainsRune(text, utf8.RuneError) && !bytes.ContainsRune(raw, utf8.RuneError) {
			// A lone surrogate, which would become another character.
			return cell{err: errNotUTF8}, true
		}
		return cell{text: text}, true
	}
	return cell{text: string(value)}, true
}

func (j *jsonReader) offset() int64    { return j.at }
func (j *jsonReader) header() []string { return nil }
