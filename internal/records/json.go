package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

type jsonReader struct{ *splitter }

func newJSONReader(r io.Reader) (*jsonReader, error) {
	s, err := newSplitter(r, 0)
	return &jsonReader{s}, err
}

// Next implements [Reader].
func (j *jsonReader) Next() (Record, error) {
	for {
		raw, line, err := j.splitter.next()
		if errors.Is(err, io.EOF) || isBroken(err) {
			return Record{}, err
		}
		rec := Record{Line: line, Raw: bytes.TrimSpace(raw), Err: err}
		if err == nil && len(rec.Raw) == 0 {
			continue
		}
		if err == nil && !utf8.Valid(raw) {
			rec.Err = errNotUTF8
		}
		if rec.Err == nil {
			rec.Column, rec.Err = jsonFields(rec.Raw)
		}
		return rec, nil
	}
}

func jsonFields(raw []byte) (func(string) (Value, bool), error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, errors.New("is not a JSON object")
	}
	return func(name string) (Value, bool) { return jsonField(object, name) }, nil
}

// If object has no field named "race.id", jsonField looks for the field id in the object race.
func jsonField(object map[string]json.RawMessage, name string) (Value, bool) {
	value, ok := object[name]
	if !ok {
		outer, inner, dotted := strings.Cut(name, ".")
		var nested map[string]json.RawMessage
		if !dotted || json.Unmarshal(object[outer], &nested) != nil {
			return Value{}, false
		}
		return jsonField(nested, inner)
	}
	switch value[0] {
	case 'n':
		return Value{}, false
	case '{', '[':
		return Value{Text: string(value), Composite: true}, true
	case '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil || text == "" {
			return Value{}, false
		}
		if strings.ContainsRune(text, utf8.RuneError) && !bytes.ContainsRune(value, utf8.RuneError) {
			// encoding/json decodes a lone surrogate as U+FFFD. The escape \ufffd has the same
			// result: both are errors.
			return Value{Err: errNotUTF8}, true
		}
		return Value{Text: text}, true
	}
	return Value{Text: string(value)}, true
}

// Offset implements [Reader].
func (j *jsonReader) Offset() int64 { return j.offset }

// Header implements [Reader].
func (j *jsonReader) Header() []string { return nil }
