package records

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

type csvReader struct {
	*splitter
	names  []string
	column map[string]int // -1 for a name that occurs twice
	csv    *csv.Reader
	feed   feeder
}

// feeder passes one record at a time to a csv.Reader.
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
	header, err := c.readFields()
	if err == nil {
		err = header.Err
	}
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the input is empty; its first line must name the columns")
	}
	if err != nil {
		return nil, fmt.Errorf("line %d, which must name the columns, %w", header.Line, err)
	}
	for i, field := range header.fields {
		name := strings.TrimSpace(field)
		c.names = append(c.names, name)
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
	Record
	fields []string
}

func (c *csvReader) readFields() (csvFields, error) {
	for {
		raw, line, err := c.splitter.next()
		if errors.Is(err, io.EOF) || isBroken(err) {
			return csvFields{}, err
		}
		row := csvFields{Record: Record{Line: line, Raw: bytes.TrimRight(raw, "\r\n"), Err: err}}
		if err == nil && !utf8.Valid(raw) {
			row.Err = errNotUTF8
		}
		if row.Err != nil {
			return row, nil //nolint:nilerr // row.Err contains the error
		}
		c.feed.rest = raw
		row.fields, err = c.csv.Read()
		if errors.Is(err, io.EOF) {
			continue // a blank line
		}
		if err != nil {
			c.reset() // drop the rest of the row, which the csv.Reader may have buffered
			var parseErr *csv.ParseError
			if errors.As(err, &parseErr) {
				err = parseErr.Err
			}
			row.Err = fmt.Errorf("is not CSV: %w", err)
		}
		return row, nil
	}
}

// Next implements [Reader].
func (c *csvReader) Next() (Record, error) {
	row, err := c.readFields()
	if err != nil || row.Err != nil {
		return row.Record, err
	}
	if len(row.fields) != len(c.names) {
		row.Err = fmt.Errorf("has %d instead of %d columns", len(row.fields), len(c.names))
		return row.Record, nil
	}
	row.Column = func(name string) (Value, bool) {
		i, ok := c.column[name]
		if !ok || i < 0 || row.fields[i] == "" {
			return Value{}, false
		}
		return Value{Text: row.fields[i]}, true
	}
	return row.Record, nil
}

// Offset implements [Reader].
func (c *csvReader) Offset() int64 { return c.offset }

// Header implements [Reader].
func (c *csvReader) Header() []string { return c.names }
