// Package records reads CSV, newline-delimited JSON and JSON documents record by record, in constant
// memory.
package records

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

const maxBytes = 1 << 20

// Record is one row of CSV, one line of JSON, or one object in a JSON document.
type Record struct {
	Line int64  // the number of the record's first line, from 1; in JSON documents, the number of the record
	Raw  []byte // without the line end; valid until the next call of Next
	// Err is the fault of a malformed record. The caller must then not call Column.
	Err error
	// Column returns a value, or false if it is absent, null or empty. A name such as
	// "race.id" selects a field of a nested JSON object. Column must not be called
	// after the next call of Next.
	Column func(name string) (Value, bool)
}

// Value is one value of a record.
type Value struct {
	Text string
	// Composite means that Text is a JSON array or object.
	Composite bool
	// Err is set if the value is a string that is not valid UTF-8.
	Err error
}

// Reader reads records. It is not safe for concurrent use.
type Reader interface {
	// Next returns the next record. Errors: io.EOF, and [BrokenError] if the input cannot be
	// read to its end. For a malformed record, Next returns nil and sets Record.Err.
	Next() (Record, error)
	// Offset returns the position of the next record in the decompressed input.
	Offset() int64
	// Header returns the names of the columns of CSV, or nil.
	Header() []string
}

// Options describe the format of an input. The zero value infers the format.
type Options struct {
	// Name is a file name, whose extension decides the format if Format is empty.
	Name string
	// Format is "csv", "ndjson" or "json". JSON documents contain an array of records.
	Format string
	// Arrays are the paths of this array, such as data.leaderboard. The first match counts.
	Arrays []string
	// Delimiter is by default a tab if Name ends in .tsv or .tsv.gz, and a comma otherwise.
	Delimiter byte
}

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	errTooLong    = fmt.Errorf("is longer than %d bytes", maxBytes)
	errOpenQuote  = errors.New("opens a quote that is not closed")
	errNotUTF8    = errors.New("is not valid UTF-8")
	errUTF16      = errors.New("the input is UTF-16; save it as UTF-8")
)

// Open returns a reader of the records in r, which may be compressed with gzip. For CSV,
// Open reads the header.
func Open(r io.Reader, o Options) (Reader, error) {
	r, err := Decompress(r)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(strings.ToLower(o.Name), ".gz")
	format := o.Format
	if format == "" {
		switch filepath.Ext(name) {
		case ".csv", ".tsv":
			format = "csv"
		case ".ndjson", ".jsonl", ".json":
			format = "ndjson"
		default:
			if format, r, err = detect(r); err != nil {
				return nil, err
			}
		}
	}
	switch format {
	case "ndjson":
		return newJSONReader(r)
	case "json":
		return newDocumentReader(r, o.Arrays)
	}
	delimiter := o.Delimiter
	if delimiter == 0 {
		delimiter = ','
		if strings.HasSuffix(name, ".tsv") {
			delimiter = '\t'
		}
	}
	return newCSVReader(r, delimiter)
}

func detect(r io.Reader) (format string, content io.Reader, err error) {
	var first [512]byte
	n, err := io.ReadFull(r, first[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", nil, err
	}
	format = "csv"
	if bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(first[:n], byteOrderMark)), []byte("{")) {
		format = "ndjson"
	}
	return format, io.MultiReader(bytes.NewReader(first[:n]), r), nil
}

// Decompress returns a reader of the content of r, which may be compressed with gzip. A
// byte order mark of UTF-16 is an error.
func Decompress(r io.Reader) (io.Reader, error) {
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

// BrokenError is the error of an input that cannot be read to its end.
type BrokenError struct{ Err error }

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the input ends too early (%v); it is damaged or incomplete: copy or download it again", e.Err)
}
func (e *BrokenError) Unwrap() error { return e.Err }

func isBroken(err error) bool {
	var broken *BrokenError
	return errors.As(err, &broken)
}
