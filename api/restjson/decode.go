package restjson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
)

const (
	// MaxElements bounds a list or an object in a body.
	MaxElements = 5000
	// MaxValues bounds the values in a body. A decoded value takes up to a hundred times as
	// much memory as its JSON text.
	MaxValues = 100 * MaxElements
)

// BodyField is the field name in errors about a whole body.
const BodyField = "body"

// Decode decodes the JSON body of a REST request into m. An empty body is an empty message.
// Decode is stricter than protojson: it requires strict JSON syntax, and bounds the number
// of values, the depth of metadata and the length of numbers. Its error is a
// [leaderboard.FieldError] that names the invalid field; m is then empty.
func Decode(data []byte, m proto.Message) error {
	proto.Reset(m)
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	d := &decoder{scanner: scanner{data: data}}
	err := d.readBody(m.ProtoReflect())
	if err != nil {
		proto.Reset(m)
	}
	return err
}

type decoder struct {
	scanner
	values int
	path   []step // from the body to the current value
}

type step struct {
	name  string
	index int // -1 for a field
}

func (d *decoder) enterField(name string)  { d.path = append(d.path, step{name, -1}) }
func (d *decoder) enterElement(index int)  { d.path = append(d.path, step{"", index}) }
func (d *decoder) leave()                  { d.path = d.path[:len(d.path)-1] }
func (d *decoder) fault(text string) error { return fault(d.path, text) }

func fault(path []step, problem string) error {
	var field strings.Builder
	for i, s := range path {
		switch {
		case s.index >= 0:
			fmt.Fprintf(&field, "[%d]", s.index)
			continue
		case i > 0:
			field.WriteByte('.')
		}
		field.WriteString(cmp.Or(s.name, `""`))
	}
	return &leaderboard.FieldError{Field: cmp.Or(field.String(), BodyField), Problem: problem}
}

func (d *decoder) syntaxError() error {
	return fault(nil, fmt.Sprintf("is not valid JSON at byte %d", d.pos))
}

func (d *decoder) readBody(m protoreflect.Message) error {
	k, err := d.nextKind()
	if err != nil {
		return err
	}
	if k == 0 {
		return d.syntaxError()
	}
	if err := d.readMessage(k, m); err != nil {
		return err
	}
	if d.skipSpace(); d.pos < len(d.data) {
		return fault(nil, fmt.Sprintf("has more text after the JSON object, at byte %d", d.pos))
	}
	return nil
}

func (d *decoder) nextKind() (kind, error) {
	if d.values++; d.values > MaxValues {
		return 0, fault(nil, fmt.Sprintf("has more than %d values", MaxValues))
	}
	return d.peek(), nil
}

func (d *decoder) readMessage(k kind, m protoreflect.Message) error {
	switch m := m.Interface().(type) {
	case *structpb.Struct:
		if k != '{' {
			return d.fault(mustBeObject)
		}
		return d.readMetadataObject(m, len(d.path), 1)
	case *timestamppb.Timestamp:
		return d.readWellKnown(k, m, `must be a time such as "2026-11-20T10:00:00Z"`)
	case *durationpb.Duration:
		return d.readWellKnown(k, m, `must be a duration such as "3600s" or "1h"`)
	}
	if k != '{' {
		return d.fault(mustBeObject)
	}
	md := m.Descriptor()
	var seen uint64 // a bit per field; no message of the API has more than 64 fields
	return d.readMembers(func(name string) error {
		fd := md.Fields().ByJSONName(name)
		switch {
		case fd == nil:
			return d.fault("is unknown; the known fields are " + fieldNames(md))
		case seen&(1<<fd.Index()) != 0:
			return d.fault(givenTwice)
		}
		seen |= 1 << fd.Index()
		return d.readField(fd, m)
	})
}

const (
	mustBeObject = "must be a JSON object"
	mustBeText   = "must be a string of valid text"
	mustNotNull  = "must not be null"
	givenTwice   = "is given twice"
)

func fieldNames(md protoreflect.MessageDescriptor) string {
	names := make([]string, md.Fields().Len())
	for i := range names {
		names[i] = md.Fields().Get(i).JSONName()
	}
	return strings.Join(names, ", ")
}

// readWellKnown reads a message whose JSON form is a string. problem is the error text for
// an invalid value.
func (d *decoder) readWellKnown(k kind, m proto.Message, problem string) error {
	if k != '"' {
		return d.fault(problem)
	}
	start := d.pos
	if _, bad := d.readText(); bad == badSyntax || bad == badUTF8 {
		return d.textError(bad)
	}
	text := d.data[start:d.pos]
	if protojson.Unmarshal(text, m) == nil {
		return nil
	}
	if duration, ok := m.(*durationpb.Duration); ok {
		if value, err := time.ParseDuration(string(text[1 : len(text)-1])); err == nil {
			proto.Merge(duration, durationpb.New(value))
			return nil
		}
	}
	return d.fault(problem)
}

// null leaves the field unset.
func (d *decoder) readField(fd protoreflect.FieldDescriptor, m protoreflect.Message) error {
	k, err := d.nextKind()
	switch {
	case err != nil:
		return err
	case k == 'n':
		d.pos += len("null")
		return nil
	case k == 0 && (fd.IsMap() || fd.IsList() || fd.Message() != nil):
		return d.syntaxError()
	case fd.IsMap():
		if k != '{' {
			return d.fault(mustBeObject)
		}
		return d.readMap(fd.MapValue(), m.Mutable(fd).Map())
	case fd.IsList():
		if k != '[' {
			return d.fault("must be a list")
		}
		return d.readList(fd, m.Mutable(fd).List())
	case fd.Message() != nil:
		return d.readMessage(k, m.Mutable(fd).Message())
	}
	v, err := d.readScalar(k, fd)
	if err == nil {
		m.Set(fd, v)
	}
	return err
}

func (d *decoder) readList(fd protoreflect.FieldDescriptor, list protoreflect.List) error {
	return d.readElements(func() error {
		k, err := d.nextKind()
		if err != nil {
			return err
		}
		v := list.NewElement()
		switch {
		case k == 'n':
			return d.fault(mustNotNull)
		case fd.Message() == nil:
			v, err = d.readScalar(k, fd)
		case k == 0:
			err = d.syntaxError()
		default:
			err = d.readMessage(k, v.Message())
		}
		if err == nil {
			list.Append(v)
		}
		return err
	})
}

// fd describes the values of the map, which must be scalars.
func (d *decoder) readMap(fd protoreflect.FieldDescriptor, values protoreflect.Map) error {
	return d.readMembers(func(name string) error {
		key := protoreflect.ValueOfString(name).MapKey()
		if values.Has(key) {
			return d.fault(givenTwice)
		}
		if err := d.checkMembers(values.Len()); err != nil {
			return err
		}
		k, err := d.nextKind()
		if err != nil {
			return err
		}
		if k == 'n' {
			return d.fault(mustNotNull)
		}
		v, err := d.readScalar(k, fd)
		if err == nil {
			values.Set(key, v)
		}
		return err
	})
}

// checkMembers returns an error if an object with n members may have no further member. The
// last step of d.path is this further member.
func (d *decoder) checkMembers(n int) error {
	if n == MaxElements {
		return fault(d.path[:len(d.path)-1], tooMany)
	}
	return nil
}

var tooMany = fmt.Sprintf("more than %d given", MaxElements)

func (d *decoder) readElements(readElement func() error) error {
	d.pos++ // the bracket
	for i := 0; ; i++ {
		if more, err := d.hasMore(']', i == 0); !more || err != nil {
			return err
		}
		if i == MaxElements {
			return d.fault(tooMany)
		}
		d.enterElement(i)
		if err := readElement(); err != nil {
			return err
		}
		d.leave()
	}
}

func (d *decoder) readMembers(readValue func(name string) error) error {
	d.pos++ // the brace
	for first := true; ; first = false {
		if more, err := d.hasMore('}', first); !more || err != nil {
			return err
		}
		if d.peek() != '"' {
			return d.syntaxError()
		}
		name, bad := d.readText()
		if bad == badSyntax || bad == badUTF8 {
			return d.textError(bad)
		}
		d.enterField(name)
		if bad == badSurrogate {
			return d.fault("must have a name of valid text")
		}
		if !d.skip(':') {
			return d.syntaxError()
		}
		if err := readValue(name); err != nil {
			return err
		}
		d.leave()
	}
}

// hasMore reports whether another element or member follows. It also reads the comma before it,
// or the closing bracket, which is end. first means that no element came before.
func (d *decoder) hasMore(end byte, first bool) (bool, error) {
	switch {
	case d.skip(end):
		return false, nil
	case first || d.skip(','):
		return true, nil
	}
	return false, d.syntaxError()
}

func (d *decoder) textError(bad textFault) error {
	switch bad {
	case badUTF8:
		return fault(nil, "is not valid UTF-8")
	case badSurrogate:
		return d.fault(mustBeText)
	}
	return d.syntaxError()
}

// fd must not be a message.
func (d *decoder) readScalar(k kind, fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	none := protoreflect.Value{}
	if k == 0 {
		return none, d.fault(fmt.Sprintf("is not valid JSON at byte %d", d.pos))
	}
	var text string // the content of a string, or a number as written
	switch k {
	case '"':
		var bad textFault
		if text, bad = d.readText(); bad == badSyntax || bad == badUTF8 || bad == badSurrogate && fd.Kind() == protoreflect.StringKind {
			return none, d.textError(bad)
		}
	case '0':
		var ok bool
		if text, ok = d.readNumber(); !ok {
			return none, d.fault(fmt.Sprintf("is not valid JSON at byte %d", d.pos))
		}
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		if k != '"' {
			return none, d.fault(mustBeText)
		}
		return protoreflect.ValueOfString(text), nil
	case protoreflect.BoolKind:
		switch k {
		case 't':
			d.pos += len("true")
		case 'f':
			d.pos += len("false")
		default:
			return none, d.fault("must be true or false")
		}
		return protoreflect.ValueOfBool(k == 't'), nil
	case protoreflect.EnumKind:
		return d.enumValue(k, text, fd)
	}
	return d.numberValue(k, text, fd)
}

// enumValue accepts names and, like protojson, numbers.
func (d *decoder) enumValue(k kind, text string, fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	switch k {
	case '"':
		if v := fd.Enum().Values().ByName(protoreflect.Name(text)); v != nil {
			return protoreflect.ValueOfEnum(v.Number()), nil
		}
	case '0':
		if n, problem := parseInteger(fd, text); problem == "" {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)), nil
		}
	}
	return protoreflect.Value{}, d.fault("must be " + protoconv.EnumNames(fd.Enum()))
}

// text is a JSON number as written, or the content of a JSON string. Other JSON kinds are
// an error.
func (d *decoder) numberValue(k kind, text string, fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	switch k {
	case 't':
		text = "true"
	case 'f':
		text = "false"
	case '{', '[':
		text = string(k)
	}
	if fd.Kind() == protoreflect.DoubleKind {
		f, problem := parseDouble(text)
		if problem != "" {
			return protoreflect.Value{}, d.fault(problem)
		}
		return protoreflect.ValueOfFloat64(f), nil
	}
	n, problem := parseInteger(fd, text)
	if problem == "" && k == '"' && numberLen(text) != len(text) {
		problem = notInteger(text, fd)
	}
	if problem != "" {
		return protoreflect.Value{}, d.fault(problem)
	}
	if fd.Kind() == protoreflect.Int32Kind {
		return protoreflect.ValueOfInt32(int32(n)), nil
	}
	return protoreflect.ValueOfInt64(n), nil
}

// NumberProblem returns the reason why text is not a valid number of the field fd, or "".
func NumberProblem(fd protoreflect.FieldDescriptor, text string) (problem string) {
	if fd.Kind() == protoreflect.DoubleKind {
		_, problem = parseDouble(text)
	} else {
		_, problem = parseInteger(fd, text)
	}
	return problem
}

// parseDouble accepts the numbers of JSON that a double can hold or round.
func parseDouble(text string) (f float64, problem string) {
	if len(text) > protoconv.MaxNumberBytes {
		return 0, fmt.Sprintf("is longer than %d characters; it must be a number", protoconv.MaxNumberBytes)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || numberLen(text) != len(text) { // not NaN or 0x1p4 either
		return 0, fmt.Sprintf("%.40q is not a number", text)
	}
	return f, ""
}

// parseInteger accepts 1e3 and 5.0, but not 5.00000000000000000001. problem is empty if text
// is valid.
func parseInteger(fd protoreflect.FieldDescriptor, text string) (n int64, problem string) {
	bits, limits := integerSize(fd)
	if len(text) > protoconv.MaxNumberBytes {
		return 0, fmt.Sprintf("is longer than %d characters; it must be an integer %s", protoconv.MaxNumberBytes, limits)
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err == nil {
		return n, ""
	}
	// SetString would take much memory for a large exponent. Integers within the limits
	// need no exponent above 64.
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if e, err := strconv.Atoi(cmp.Or(exponent, "0")); err == nil && e >= -64 && e <= 64 && numberLen(text) == len(text) {
		if r, ok := new(big.Rat).SetString(text); ok && r.IsInt() && r.Num().IsInt64() {
			if n := r.Num().Int64(); bits == 64 || int64(int32(n)) == n {
				return n, ""
			}
		}
	}
	return 0, notInteger(text, fd)
}

func notInteger(text string, fd protoreflect.FieldDescriptor) string {
	_, limits := integerSize(fd)
	return fmt.Sprintf("%.40q is not an integer %s", text, limits)
}

func integerSize(fd protoreflect.FieldDescriptor) (bits int, limits string) {
	switch fd.Kind() {
	case protoreflect.Int32Kind, protoreflect.EnumKind:
		return 32, "within ±2^31"
	}
	return 64, "within ±2^53"
}

// depth is the nesting level of s; the whole metadata has depth 1. root is the length of
// d.path at the whole metadata.
func (d *decoder) readMetadataObject(s *structpb.Struct, root, depth int) error {
	s.Fields = map[string]*structpb.Value{}
	return d.readMembers(func(name string) error {
		if _, twice := s.Fields[name]; twice {
			return d.fault(givenTwice)
		}
		if err := d.checkMembers(len(s.Fields)); err != nil {
			return err
		}
		v, err := d.readMetadata(root, depth)
		s.Fields[name] = v
		return err
	})
}

// depth is the number of lists and objects around the value.
func (d *decoder) readMetadata(root, depth int) (*structpb.Value, error) {
	k, err := d.nextKind()
	if err != nil {
		return nil, err
	}
	if (k == '{' || k == '[') && depth == protoconv.MaxMetadataDepth {
		return nil, fault(d.path[:root], protoconv.TooDeep)
	}
	switch k {
	case '{':
		s := &structpb.Struct{}
		return structpb.NewStructValue(s), d.readMetadataObject(s, root, depth+1)
	case '[':
		list := &structpb.ListValue{}
		return structpb.NewListValue(list), d.readElements(func() error {
			v, err := d.readMetadata(root, depth+1)
			list.Values = append(list.Values, v)
			return err
		})
	case '"':
		text, bad := d.readText()
		if bad != noFault {
			return nil, d.textError(bad)
		}
		return structpb.NewStringValue(text), nil
	case '0':
		return d.readMetadataNumber()
	case 't', 'f':
		d.pos += len("true")
		if k == 'f' {
			d.pos++
		}
		return structpb.NewBoolValue(k == 't'), nil
	case 'n':
		d.pos += len("null")
		return structpb.NewNullValue(), nil
	}
	return nil, d.syntaxError()
}

func (d *decoder) readMetadataNumber() (*structpb.Value, error) {
	text, ok := d.readNumber()
	if !ok {
		return nil, d.syntaxError()
	}
	if problem := protoconv.NumberProblem(json.Number(text)); problem != "" {
		return nil, d.fault(problem)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, d.syntaxError()
	}
	return structpb.NewNumberValue(f), nil
}
