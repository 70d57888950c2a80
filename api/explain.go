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

	"github.com/open-leaderboard/leaderboard"
)

// explain returns the first thing that is wrong with a body that should be a
// message as JSON, by field. Whether anything is wrong is protojson's to say:
// its errors name lines and columns, and their wording is random by design, so
// a refused body is read once more, to tell the caller which field it was.
// It returns nil if it finds nothing.
func explain(data []byte, md protoreflect.MessageDescriptor) *leaderboard.FieldError {
	e := explainer{json.NewDecoder(bytes.NewReader(data))}
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

type explainer struct{ *json.Decoder }

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
	token, err := e.Token()
	if err != nil {
		return &leaderboard.FieldError{Field: path, Problem: fmt.Sprintf("is not valid JSON at byte %d", e.InputOffset())}
	}
	if problem := scalarProblem(fd, token, element); problem != "" {
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
	for i := 0; e.More(); i++ {
		if err := e.value(fmt.Sprintf("%s[%d]", path, i), fd, true); err != nil {
			return err
		}
	}
	_, err = e.Token()
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
	seen := map[string]bool{}
	for e.More() {
		token, err := e.Token()
		if err != nil {
			return err
		}
		key := token.(string) // or Token would have failed
		if seen[key] {
			return &leaderboard.FieldError{Field: join(path, key), Problem: "is given twice"}
		}
		seen[key] = true
		if err := each(key); err != nil {
			return err
		}
	}
	_, err = e.Token()
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
	if form, ok := wellKnownForms[md.FullName()]; ok {
		var raw json.RawMessage
		if err := e.Decode(&raw); err != nil {
			return err
		}
		if string(raw) != "null" && protojson.Unmarshal(raw, dynamicpb.NewMessage(md)) != nil {
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

var wellKnownForms = map[protoreflect.FullName]string{
	"google.protobuf.Timestamp": `a time as "2026-11-20T10:00:00Z"`,
	"google.protobuf.Duration":  `a duration in seconds as "3600s"`,
	"google.protobuf.Struct":    "a JSON object, with valid text and no key given twice",
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
		if s, ok := token.(string); !ok || strings.ContainsRune(s, utf8.RuneError) {
			return "must be a string of valid text"
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
