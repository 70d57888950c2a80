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
	return appendMessage(dst, m.ProtoReflect())
}

func appendMessage(dst []byte, m protoreflect.Message) ([]byte, error) {
	switch v := m.Interface().(type) {
	case *timestamppb.Timestamp:
		if err := v.CheckValid(); err != nil {
			return nil, err
		}
		dst = append(dst, '"')
		dst = v.AsTime().AppendFormat(dst, time.RFC3339Nano)
		return append(dst, '"'), nil
	case *anypb.Any:
		inner, err := v.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		dst = appendString(append(dst, `{"@type":`...), v.TypeUrl)
		return appendFields(dst, inner.ProtoReflect(), ',')
	}
	if strings.HasPrefix(string(m.Descriptor().FullName()), "google.protobuf.") {
		// Well-known types such as Struct and Duration have special forms, which protojson
		// writes.
		b, err := protojson.Marshal(m.Interface())
		if err != nil {
			return nil, err
		}
		var compact bytes.Buffer
		err = json.Compact(&compact, b)
		return append(dst, compact.Bytes()...), err
	}
	return appendFields(dst, m, '{')
}

// appendFields writes open before the first field, and a closing brace after the last field.
func appendFields(dst []byte, m protoreflect.Message, open byte) ([]byte, error) {
	fields := m.Descriptor().Fields()
	ofAPI := m.Descriptor().ParentFile().Package() == apiPackage // other messages are error details; their empty fields are omitted
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) && (!ofAPI || fd.HasPresence() || fd.IsMap() || omitEmpty[fd.FullName()]) {
			continue
		}
		dst = append(dst, open)
		open = ','
		dst = append(appendString(dst, jsonName(fd)), ':')
		var err error
		if dst, err = appendField(dst, fd, m.Get(fd)); err != nil {
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

func appendField(dst []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	var err error
	switch {
	case fd.IsList():
		list := v.List()
		dst = append(dst, '[')
		for i := range list.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendValue(dst, fd, list.Get(i)); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case fd.IsMap():
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
			if dst, err = appendValue(dst, fd.MapValue(), byKey[k]); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	}
	return appendValue(dst, fd, v)
}

func appendValue(dst []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool()), nil
	case protoreflect.StringKind:
		return appendString(dst, v.String()), nil
	case protoreflect.BytesKind:
		return appendString(dst, base64.StdEncoding.EncodeToString(v.Bytes())), nil
	case protoreflect.EnumKind:
		if value := fd.Enum().Values().ByNumber(v.Enum()); value != nil {
			return appendString(dst, string(value.Name())), nil
		}
		return strconv.AppendInt(dst, int64(v.Enum()), 10), nil
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(dst, v.Message())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%v has no JSON form", f)
		}
		return strconv.AppendFloat(dst, f, 'g', -1, 64), nil
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v.Uint(), 10), nil
	default: // the signed integers
		return strconv.AppendInt(dst, v.Int(), 10), nil
	}
}

// appendString replaces bytes that are not UTF-8 with U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
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
