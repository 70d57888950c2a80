package api

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

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// The JSON that REST clients see is the JSON mapping of protocol buffers but for
// one thing, for which it has an encoder of its own: 64-bit integers are
// numbers. Every integer of the contract is within ±2^53, where JSON numbers
// are exact. Fields that are not set are left out if they can tell, and shown
// with their zero value otherwise; empty maps are left out.

// AppendJSON appends m as the JSON that REST clients see.
func AppendJSON(dst []byte, m proto.Message) ([]byte, error) {
	return appendMessage(dst, m.ProtoReflect())
}

// DecodeJSON reads a message as REST clients send it. Nothing is the empty
// message. It returns a [leaderboard.FieldError] that names what is wrong; a body
// that exceeds a bound is not decoded.
func DecodeJSON(data []byte, m proto.Message) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	plain, err := checkValues(data)
	if err != nil {
		return err
	}
	if !plain {
		if problem := explain(data, m.ProtoReflect().Descriptor()); problem != nil {
			return problem
		}
	}
	// protojson takes 5e for a number.
	if json.Valid(data) && protojson.Unmarshal(data, m) == nil {
		return nil
	}
	if problem := explain(data, m.ProtoReflect().Descriptor()); problem != nil {
		return problem
	}
	return &leaderboard.FieldError{Field: bodyField, Problem: "is not a valid request"}
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
		// The other well-known types have forms of their own, but no 64-bit integers.
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

// appendFields appends the fields of m, what opens the first one, and a brace.
func appendFields(dst []byte, m protoreflect.Message, open byte) ([]byte, error) {
	fields := m.Descriptor().Fields()
	ours := m.Descriptor().ParentFile().Package() == contract // what details of errors leave empty says nothing
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) && (!ours || fd.HasPresence() || fd.IsMap() || omitEmpty[fd.FullName()]) {
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

// jsonName is the field's own name, which the contract pins as its JSON name
// too; other packages' fields, in the details of errors, do not pin theirs.
func jsonName(fd protoreflect.FieldDescriptor) string { return string(fd.Name()) }

// omitEmpty holds the lists that are left out when empty.
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

// contract is the package of the contract, and apiFiles are its files.
const contract = "leaderboard.v1"

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

// appendString appends s as a JSON string. Bytes that are not UTF-8 cannot get
// here by way of a protocol buffer, and would become U+FFFD.
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
