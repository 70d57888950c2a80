package records

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// splitter splits its input into records. A CSV record ends at a line end outside quotes.
// A JSON record ends at the next line end.
type splitter struct {
	r         io.Reader
	delimiter byte // of CSV; 0 for JSON
	buf       []byte
	start     int // buf[:start] has been returned
	err       error
	offset    int64 // of buf[start] in the input
	line      int64 // of buf[start]
}

func newSplitter(r io.Reader, delimiter byte) (*splitter, error) {
	s := &splitter{r: r, delimiter: delimiter, line: 1}
	for len(s.buf) < len(byteOrderMark) && s.fill() {
	}
	if bytes.HasPrefix(s.buf, byteOrderMark) {
		s.start, s.offset = len(byteOrderMark), int64(len(byteOrderMark))
	}
	if s.err != nil && !errors.Is(s.err, io.EOF) {
		return nil, &BrokenError{s.err}
	}
	return s, nil
}

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

const (
	fieldStart = iota
	inField
	inQuotes
	afterQuote // after a quote that may end a quoted field
)

// next returns a record with its line end, and the number of its first line. If it returns
// errTooLong or errOpenQuote, the following record starts after this record's first line.
func (s *splitter) next() (rec []byte, line int64, err error) {
	line = s.line
	state, firstLine := fieldStart, -1 // firstLine is the first line's length, or -1 until its end is found
	for i := 0; ; i++ {
		for s.start+i == len(s.buf) {
			if !s.fill() {
				return s.lastRecord(line, state == inQuotes, firstLine)
			}
		}
		if i >= maxBytes {
			if firstLine >= 0 {
				return s.consume(firstLine), line, errOpenQuote
			}
			return nil, line, s.skipLine()
		}
		c := s.buf[s.start+i]
		if c == '\n' && firstLine < 0 {
			firstLine = i + 1
		}
		if c == '\n' && (s.delimiter == 0 || state != inQuotes) {
			return s.consume(i + 1), line, nil
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

// The last record may lack a line end. If open is true, the input ends inside quotes.
func (s *splitter) lastRecord(line int64, open bool, firstLine int) ([]byte, int64, error) {
	switch {
	case !errors.Is(s.err, io.EOF):
		return nil, line, &BrokenError{s.err}
	case s.start == len(s.buf):
		return nil, line, io.EOF
	case open && firstLine >= 0:
		return s.consume(firstLine), line, errOpenQuote
	}
	return s.consume(len(s.buf) - s.start), line, nil
}

func (s *splitter) consume(n int) []byte {
	b := s.buf[s.start : s.start+n]
	s.start += n
	s.offset += int64(n)
	s.line += int64(bytes.Count(b, []byte{'\n'}))
	return b
}

func (s *splitter) skipLine() error {
	for {
		if i := bytes.IndexByte(s.buf[s.start:], '\n'); i >= 0 {
			s.consume(i + 1)
			return errTooLong
		}
		s.consume(len(s.buf) - s.start)
		if !s.fill() {
			if !errors.Is(s.err, io.EOF) {
				return &BrokenError{s.err}
			}
			return errTooLong
		}
	}
}
