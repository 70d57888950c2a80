// Package restjson decodes and encodes the messages of the API as JSON for REST clients.
//
// The JSON follows the JSON mapping of protocol buffers, with these differences:
//
//   - A 64-bit integer is a number, not a string. Every integer of the API is within ±2^53,
//     where JSON numbers are exact.
//   - A field has its name from the proto file, such as user_id.
//   - A field that is not set appears with its zero value. It is absent only if it is a
//     message, a map, declared optional, or a list with the option omit_empty.
package restjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// Append appends m as JSON to dst.
func Append(dst []byte, m proto.Message) ([]byte, error) {
	r := m.ProtoReflect()
	return formOf(r.Descriptor()).appendMessage(slices.Grow(dst, typicalBytes), r)
}

// typicalBytes is the size of most answers: a page of ten entries, or a user with neighbors.
const typicalBytes = 2048

// form describes the JSON of a type of messages. Forms are cached, because their parts take longer
// to find than to write.
type form struct {
	special func(dst []byte, m protoreflect.Message) ([]byte, error) // writes the message, or nil
	fields  []fieldForm
}

type fieldForm struct {
	protoreflect.FieldDescriptor
	key      []byte // such as "user_id":
	optional bool   // the field is absent if it is not set
	append   appender
}

// An appender appends a value as JSON to dst.
type appender func(dst []byte, v protoreflect.Value) ([]byte, error)

var forms sync.Map // protoreflect.MessageDescriptor -> *form

func formOf(md protoreflect.MessageDescriptor) *form {
	if f, ok := forms.Load(md); ok {
		return f.(*form)
	}
	f := &form{}
	fields, ofAPI := md.Fields(), md.ParentFile().Package() == apiPackage // other messages are error details; their empty fields are omitted
	for i := range fields.Len() {
		fd := fields.Get(i)
		f.fields = append(f.fields, fieldForm{
			FieldDescriptor: fd, key: append(appendString(nil, jsonName(fd)), ':'),
			optional: !ofAPI || fd.HasPresence() || fd.IsMap() || omitEmpty[fd.FullName()],
			append:   fieldAppender(fd),
		})
	}
	switch name := md.FullName(); {
	case name == "google.protobuf.Timestamp":
		f.special = appendTimestamp
	case name == "google.protobuf.Any":
		f.special = appendAny
	case strings.HasPrefix(string(name), "google.protobuf."):
		f.special = appendWellKnown
	}
	forms.Store(md, f)
	return f
}

func (f *form) appendMessage(dst []byte, m protoreflect.Message) ([]byte, error) {
	if f.special != nil {
		return f.special(dst, m)
	}
	return f.appendFields(dst, m, '{')
}

func appendTimestamp(dst []byte, m protoreflect.Message) ([]byte, error) {
	t := m.Interface().(*timestamppb.Timestamp)
	if err := t.CheckValid(); err != nil {
		return nil, err
	}
	dst = t.AsTime().AppendFormat(append(dst, '"'), time.RFC3339Nano)
	return append(dst, '"'), nil
}

func appendAny(dst []byte, m protoreflect.Message) ([]byte, error) {
	v := m.Interface().(*anypb.Any)
	inner, err := v.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	dst = appendString(append(dst, `{"@type":`...), v.TypeUrl)
	r := inner.ProtoReflect()
	return formOf(r.Descriptor()).appendFields(dst, r, ',')
}

// appendWellKnown appends a message of a type such as Struct or Duration, whose special form
// protojson writes.
func appendWellKnown(dst []byte, m protoreflect.Message) ([]byte, error) {
	b, err := protojson.Marshal(m.Interface())
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, b)
	return append(dst, compact.Bytes()...), err
}

// appendFields writes open before the first field, and a closing brace after the last field.
func (f *form) appendFields(dst []byte, m protoreflect.Message, open byte) ([]byte, error) {
	for i := range f.fields {
		fd := &f.fields[i]
		if fd.optional && !m.Has(fd.FieldDescriptor) {
			continue
		}
		dst = append(append(dst, open), fd.key...)
		open = ','
		var err error
		if dst, err = fd.append(dst, m.Get(fd.FieldDescriptor)); err != nil {
			return nil, fmt.Errorf("%s: %w", fd.Name(), err)
		}
	}
	if open == '{' {
		dst = append(dst, '{')
	}
	return append(dst, '}'), nil
}

// fd.JSONName would return lowerCamelCase for error details, because only the proto files
// of this API set json_name.
func jsonName(fd protoreflect.FieldDescriptor) string { return string(fd.Name()) }

var omitEmpty = func() map[protoreflect.FullName]bool {
	names := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.MessageDescriptors)
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			fields := messages.Get(i).Fields()
			for j := range fields.Len() {
				fd := fields.Get(j)
				names[fd.FullName()] = proto.GetExtension(fd.Options(), pb.E_OmitEmpty).(bool)
			}
			walk(messages.Get(i).Messages())
		}
	}
	for _, file := range apiFiles {
		walk(file.Messages())
	}
	return names
}()

const apiPackage = "leaderboard.v1"

var apiFiles = []protoreflect.FileDescriptor{
	pb.File_leaderboard_v1_types_proto,
	pb.File_leaderboard_v1_leaderboard_service_proto,
	pb.File_leaderboard_v1_admin_service_proto,
}

func fieldAppender(fd protoreflect.FieldDescriptor) appender {
	switch {
	case fd.IsList():
		return listAppender(valueAppender(fd))
	case fd.IsMap():
		return mapAppender(valueAppender(fd.MapValue()))
	}
	return valueAppender(fd)
}

func listAppender(element appender) appender {
	return func(dst []byte, v protoreflect.Value) (_ []byte, err error) {
		list := v.List()
		dst = append(dst, '[')
		for i := range list.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = element(dst, list.Get(i)); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
}

func mapAppender(value appender) appender {
	return func(dst []byte, v protoreflect.Value) (_ []byte, err error) {
		values := v.Map()
		keys := make([]string, 0, values.Len())
		byKey := make(map[string]protoreflect.Value, values.Len())
		values.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			keys = append(keys, k.String())
			byKey[k.String()] = v
			return true
		})
		slices.Sort(keys)
		open := byte('{')
		for _, k := range keys {
			dst = append(appendString(append(dst, open), k), ':')
			open = ','
			if dst, err = value(dst, byKey[k]); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	}
}

func valueAppender(fd protoreflect.FieldDescriptor) appender {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return func(dst []byte, v protoreflect.Value) ([]byte, error) { return strconv.AppendBool(dst, v.Bool()), nil }
	case protoreflect.StringKind:
		return func(dst []byte, v protoreflect.Value) ([]byte, error) { return appendString(dst, v.String()), nil }
	case protoreflect.BytesKind:
		return func(dst []byte, v protoreflect.Value) ([]byte, error) {
			return appendString(dst, base64.StdEncoding.EncodeToString(v.Bytes())), nil
		}
	case protoreflect.EnumKind:
		return enumAppender(fd.Enum().Values())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		// Later, because a message may contain messages of its own type.
		inner := sync.OnceValue(func() *form { return formOf(fd.Message()) })
		return func(dst []byte, v protoreflect.Value) ([]byte, error) { return inner().appendMessage(dst, v.Message()) }
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return appendFloat
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return func(dst []byte, v protoreflect.Value) ([]byte, error) {
			return strconv.AppendUint(dst, v.Uint(), 10), nil
		}
	default: // the signed integers
		return func(dst []byte, v protoreflect.Value) ([]byte, error) {
			return strconv.AppendInt(dst, v.Int(), 10), nil
		}
	}
}

func enumAppender(values protoreflect.EnumValueDescriptors) appender {
	return func(dst []byte, v protoreflect.Value) ([]byte, error) {
		if value := values.ByNumber(v.Enum()); value != nil {
			return appendString(dst, string(value.Name())), nil
		}
		return strconv.AppendInt(dst, int64(v.Enum()), 10), nil
	}
}

func appendFloat(dst []byte, v protoreflect.Value) ([]byte, error) {
	f := v.Float()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%v has no JSON form", f)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64), nil
}

// appendString replaces bytes that are not UTF-8 with U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	if isPlain(s) {
		return append(append(dst, s...), '"')
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// isPlain reports whether s has only ASCII characters that JSON writes unchanged.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
