package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/wire"
)

// explain returns the first thing that is wrong with a body that should be a
// message as JSON, by field, or the first bound that it exceeds. Apart from
// bounds, whether anything is wrong is protojson's to say: its errors name lines
// and columns, and their wording is random by design, so a refused body is read
// once more, to tell the caller which field it was.
// It returns nil if it finds nothing.
func explain(data []byte, md protoreflect.MessageDescriptor) *leaderboard.FieldError {
	e := explainer{json.NewDecoder(bytes.NewReader(data)), data}
	e.UseNumber()
	if len(bytes.TrimSpace(data)) == 0 {
		return nil // an empty body is an empty message
	}
	if !utf8.Valid(data) {
		return &leaderboard.FieldError{Field: bodyField, Problem: "is not valid UTF-8"}
	}
	err := e.message("", md)
	if err == nil {
		if _, end := e.Token(); end != io.EOF {
			err = &leaderboard.FieldError{Field: bodyField, Problem: fmt.Sprintf("has more after the JSON object, at byte %d", e.InputOffset())}
		}
	}
	var field *leaderboard.FieldError
	if err != nil && !errors.As(err, &field) {
		field = &leaderboard.FieldError{Field: bodyField, Problem: fmt.Sprintf("is not valid JSON at byte %d", e.InputOffset())}
	}
	return field
}

// bodyField stands for the body as a whole.
const bodyField = "body"

type explainer struct {
	*json.Decoder
	data []byte
}

// value reads the next value, which belongs to fd; list elements and map values
// are read with element set. Errors that are no FieldError are of JSON's syntax.
func (e explainer) value(path string, fd protoreflect.FieldDescriptor, element bool) error {
	switch {
	case fd.IsMap() && !element:
		return e.object(path, func(key string) error {
			return e.value(join(path, key), fd.MapValue(), true)
		})
	case fd.IsList() && !element:
		return e.list(path, fd)
	case fd.Message() != nil:
		return e.message(path, fd.Message())
	}
	before := e.InputOffset()
	token, err := e.Token()
	if err != nil {
		return &leaderboard.FieldError{Field: path, Problem: fmt.Sprintf("is not valid JSON at byte %d", e.InputOffset())}
	}
	problem := scalarProblem(fd, token, element)
	if fd.Kind() == protoreflect.StringKind && !e.validText(token, before) {
		problem = mustBeText
	}
	if problem != "" {
		return &leaderboard.FieldError{Field: path, Problem: problem}
	}
	return nil
}

func (e explainer) list(path string, fd protoreflect.FieldDescriptor) error {
	token, err := e.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('[') {
		return &leaderboard.FieldError{Field: path, Problem: "must be a list"}
	}
	return e.elements(path, func(element string) error { return e.value(element, fd, true) })
}

// elements reads the rest of a list, and each element by each.
func (e explainer) elements(path string, each func(path string) error) error {
	for i := 0; e.More(); i++ {
		if i == maxElements {
			return &leaderboard.FieldError{Field: path, Problem: fmt.Sprintf("more than %d given", maxElements)}
		}
		if err := each(fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	_, err := e.Token()
	return err
}

// object reads an object, and each value by each.
func (e explainer) object(path string, each func(key string) error) error {
	token, err := e.Token()
	if err != nil {
		return err
	}
	if token == nil && path != "" {
		return nil
	}
	if token != json.Delim('{') {
		field := path
		if field == "" {
			field = bodyField
		}
		return &leaderboard.FieldError{Field: field, Problem: "must be a JSON object"}
	}
	return e.members(path, each)
}

// members reads the rest of an object, and each value by each.
func (e explainer) members(path string, each func(key string) error) error {
	seen := map[string]bool{}
	for e.More() {
		before := e.InputOffset()
		token, err := e.Token()
		if err != nil {
			return err
		}
		key := token.(string) // or Token would have failed
		switch {
		case !e.validText(token, before):
			return &leaderboard.FieldError{Field: join(path, key), Problem: "must have a name of valid text"}
		case seen[key]:
			return &leaderboard.FieldError{Field: join(path, key), Problem: "is given twice"}
		case len(seen) == maxElements:
			return &leaderboard.FieldError{Field: cmp.Or(path, bodyField), Problem: fmt.Sprintf("more than %d given", maxElements)}
		}
		seen[key] = true
		if err := each(key); err != nil {
			return err
		}
	}
	_, err := e.Token()
	return err
}

func join(path, key string) string {
	if key == "" {
		key = `""`
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func (e explainer) message(path string, md protoreflect.MessageDescriptor) error {
	if md.FullName() == "google.protobuf.Struct" {
		return e.object(path, func(key string) error { return e.metadata(join(path, key), path, 1) })
	}
	if form, ok := textForms[md.FullName()]; ok {
		token, err := e.Token()
		if err != nil || token == nil {
			return err
		}
		text, ok := token.(string)
		if quoted, err := json.Marshal(text); !ok || err != nil || protojson.Unmarshal(quoted, dynamicpb.NewMessage(md)) != nil {
			return &leaderboard.FieldError{Field: path, Problem: "must be " + form}
		}
		return nil
	}
	return e.object(path, func(key string) error {
		fd := md.Fields().ByJSONName(key)
		if fd == nil {
			return &leaderboard.FieldError{Field: join(path, key), Problem: "is unknown; known are " + fieldNames(md)}
		}
		return e.value(join(path, key), fd, false)
	})
}

// textForms are the messages that JSON has as a string.
var textForms = map[protoreflect.FullName]string{
	"google.protobuf.Timestamp": `a time as "2026-11-20T10:00:00Z"`,
	"google.protobuf.Duration":  `a duration in seconds as "3600s"`,
}

// metadata reads the next value, whatever it is, which is inside depth lists and
// objects of the metadata at root.
func (e explainer) metadata(path, root string, depth int) error {
	before := e.InputOffset()
	token, err := e.Token()
	if err != nil {
		return err
	}
	if _, opens := token.(json.Delim); opens && depth == wire.MaxMetadataDepth {
		return &leaderboard.FieldError{Field: root, Problem: wire.TooDeep}
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return e.elements(path, func(element string) error { return e.metadata(element, root, depth+1) })
		}
		return e.members(path, func(key string) error { return e.metadata(join(path, key), root, depth+1) })
	case json.Number:
		if problem := wire.NumberProblem(token); problem != "" {
			return &leaderboard.FieldError{Field: path, Problem: problem}
		}
	case string:
		if !e.validText(token, before) {
			return &leaderboard.FieldError{Field: path, Problem: mustBeText}
		}
	}
	return nil
}

const mustBeText = "must be a string of valid text"

// validText says whether a token that was read from an offset on is no string
// with half a surrogate pair, for which the decoder puts U+FFFD.
func (e explainer) validText(token json.Token, before int64) bool {
	s, ok := token.(string)
	if !ok || !strings.ContainsRune(s, utf8.RuneError) {
		return true
	}
	raw := bytes.TrimLeft(e.data[before:e.InputOffset()], " \t\r\n,:")
	return protojson.Unmarshal(raw, &wrapperspb.StringValue{}) == nil
}

func fieldNames(md protoreflect.MessageDescriptor) string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = md.Fields().Get(i).JSONName()
	}
	return strings.Join(names, ", ")
}

// scalarProblem says what is wrong with a token as a value of fd, or "".
func scalarProblem(fd protoreflect.FieldDescriptor, token json.Token, element bool) string {
	if token == nil {
		if element {
			return "must not be null"
		}
		return ""
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		if _, ok := token.(string); !ok {
			return mustBeText
		}
	case protoreflect.BoolKind:
		if _, ok := token.(bool); !ok {
			return "must be true or false"
		}
	case protoreflect.EnumKind:
		name, isName := token.(string)
		number, isNumber := token.(json.Number) // protocol buffers take the number too
		if isName && fd.Enum().Values().ByName(protoreflect.Name(name)) == nil || isNumber && integerProblem(fd, string(number)) != "" || !isName && !isNumber {
			return "must be " + enumNames(fd.Enum())
		}
	default:
		text := fmt.Sprint(token)
		if _, isDelim := token.(json.Delim); isDelim || integerProblem(fd, text) != "" {
			return integerProblem(fd, text)
		}
	}
	return ""
}

func enumNames(ed protoreflect.EnumDescriptor) string {
	var names []string
	for i := 1; i < ed.Values().Len(); i++ { // the first stands for none
		names = append(names, string(ed.Values().Get(i).Name()))
	}
	return "one of " + strings.Join(names, ", ")
}

// integerProblem says what is wrong with a text as an integer of fd, or "".
func integerProblem(fd protoreflect.FieldDescriptor, text string) string {
	bits, limits := 64, "within ±2^53"
	if kind := fd.Kind(); kind == protoreflect.Int32Kind || kind == protoreflect.EnumKind {
		bits, limits = 32, "within ±2^31"
	}
	if len(text) > wire.MaxNumberBytes {
		return fmt.Sprintf("is longer than %d characters, and no integer %s", wire.MaxNumberBytes, limits)
	}
	if _, err := strconv.ParseInt(text, 10, bits); err == nil {
		return ""
	}
	// 1e3 and 5.0 are integers too, 5.00000000000000000001 is none. A large
	// exponent, which would take much memory, makes none that is in the limits.
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if e, err := strconv.Atoi(cmp.Or(exponent, "0")); err == nil && e >= -64 && e <= 64 {
		if r, ok := new(big.Rat).SetString(text); ok && r.IsInt() && r.Num().IsInt64() && r.Num().BitLen() < bits {
			return ""
		}
	}
	return fmt.Sprintf("%.40q is not an integer %s", text, limits)
}
