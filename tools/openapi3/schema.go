package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

const apiPackage = "leaderboard.v1."

// maxInteger bounds every integer of the API.
const maxInteger = 1 << 53

// A side is where a schema is used. The same message has other rules on each side.
type side int

const (
	answer side = iota // fields without presence are always there
	input              // fields have limits, and unknown fields are refused
	change             // as input, but every field may be absent
)

type generator struct {
	schemas    object // by name
	names      map[protoreflect.FullName]string
	parameters map[protoreflect.Name]protoreflect.FieldDescriptor // of the message Parameters
	reasons    protoreflect.EnumValueDescriptors
	examples   examples
}

// addNames names the schemas of messages and enums. The name of a nested type begins with its parent's
// name, without Response: a ListSeasonsSeason is part of a ListSeasonsResponse.
func (g *generator) addNames(messages protoreflect.MessageDescriptors) {
	if g.names == nil {
		g.names = map[protoreflect.FullName]string{}
	}
	var add func(d protoreflect.Descriptor)
	add = func(d protoreflect.Descriptor) {
		name := strings.ReplaceAll(strings.TrimPrefix(string(d.FullName()), apiPackage), ".", "")
		g.names[d.FullName()] = strings.Replace(name, "Response", "", 1)
		if !strings.Contains(strings.TrimPrefix(string(d.FullName()), apiPackage), ".") {
			g.names[d.FullName()] = name
		}
		if m, ok := d.(protoreflect.MessageDescriptor); ok && !m.IsMapEntry() {
			for i := range m.Messages().Len() {
				add(m.Messages().Get(i))
			}
			for i := range m.Enums().Len() {
				add(m.Enums().Get(i))
			}
		}
	}
	for i := range messages.Len() {
		add(messages.Get(i))
	}
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// message returns a reference to the schema of a message, without the fields that omit names.
func (g *generator) message(md protoreflect.MessageDescriptor, s side, omit ...string) object {
	if special := wellKnown(md.FullName()); special != nil {
		return special
	}
	name := g.names[md.FullName()] + map[side]string{answer: "", input: "Input", change: "Change"}[s]
	name = strings.Replace(name, "RequestInput", "Request", 1)
	if _, ok := g.schemas[name]; ok {
		return ref(name)
	}
	schema := object{"type": "object", "description": comment(md)}
	g.schemas[name] = schema
	properties, required := object{}, []any{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if limits := g.limits(fd); slices.Contains(omit, string(fd.Name())) || s != answer && limits != nil && member(limits, "output_only").Bool() {
			continue
		}
		properties[string(fd.Name())] = g.field(fd, s)
		if g.isRequired(fd, s) {
			required = append(required, string(fd.Name()))
		}
	}
	schema["properties"] = properties
	if len(required) > 0 {
		schema["required"] = required
	}
	if s != answer {
		schema["additionalProperties"] = false
	}
	if s == change && md.FullName() == apiPackage+"Board" {
		schema["minProperties"] = 1
	}
	return ref(name)
}

func (g *generator) isRequired(fd protoreflect.FieldDescriptor, s side) bool {
	if s == answer {
		omitted := extension(fd, apiPackage+"omit_empty")
		return !fd.HasPresence() && !fd.IsMap() && !(omitted.IsValid() && omitted.Bool())
	}
	limits := g.limits(fd)
	return s == input && limits != nil && member(limits, "required").Bool()
}

func wellKnown(name protoreflect.FullName) object {
	switch name {
	case "google.protobuf.Timestamp":
		return object{"type": "string", "format": "date-time"}
	case "google.protobuf.Duration":
		return object{"type": "string", "pattern": `^-?([0-9]+(\.[0-9]{1,9})?(h|m|s|ms|us|ns))+$`}
	case "google.protobuf.Struct":
		return object{"type": "object", "additionalProperties": true}
	case "google.protobuf.FieldMask":
		return object{"type": "string"}
	case "google.protobuf.Any":
		return ref("ErrorDetail")
	}
	return nil
}

// field returns the schema of a field. A field of a request that may be absent may also be null.
func (g *generator) field(fd protoreflect.FieldDescriptor, s side) object {
	schema := g.value(fd, s)
	if s != answer {
		g.limit(schema, fd, s)
	}
	text := g.describe(fd, s)
	if v, ok := schema["default"]; ok { // openapi-typescript requires a field of a body that has a default
		delete(schema, "default")
		value, _ := json.Marshal(v)
		text = strings.TrimSpace(text + " Default: " + string(value) + ".")
	}
	if text != "" {
		schema["description"] = text
	}
	if s == answer || g.isRequired(fd, s) {
		return schema
	}
	if kind, ok := schema["type"]; ok {
		schema["type"] = []any{kind, "null"}
		if values, ok := schema["enum"].([]any); ok {
			schema["enum"] = append(values, nil)
		}
		return schema
	}
	nullable := object{"anyOf": []any{object{"$ref": schema["$ref"]}, object{"type": "null"}}}
	if text, ok := schema["description"]; ok {
		nullable["description"] = text
	}
	return nullable
}

// describe returns the comment of a field or, if it has none, of the field of Parameters with its
// name.
func (g *generator) describe(fd protoreflect.FieldDescriptor, s side) string {
	if text := comment(fd); text != "" {
		return text
	}
	if common := g.parameters[fd.Name()]; common != nil && (s == input || fd.Name() != "reason") {
		return comment(common)
	}
	return ""
}

// limits returns the option of a field or, if it has none, of the field of Parameters with its name.
func (g *generator) limits(fd protoreflect.FieldDescriptor) protoreflect.Message {
	for _, d := range []protoreflect.FieldDescriptor{fd, g.parameters[fd.Name()]} {
		if d == nil || d != fd && d.Kind() != fd.Kind() {
			continue
		}
		if v := extension(d, apiPackage+"limits"); v.IsValid() {
			return v.Message()
		}
	}
	return nil
}

func (g *generator) value(fd protoreflect.FieldDescriptor, s side) object {
	switch {
	case fd.IsMap():
		return object{"type": "object", "additionalProperties": g.scalar(fd.MapValue(), s)}
	case fd.IsList():
		return object{"type": "array", "items": g.scalar(fd, s)}
	}
	return g.scalar(fd, s)
}

func (g *generator) scalar(fd protoreflect.FieldDescriptor, s side) object {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.DoubleKind:
		return object{"type": "number", "format": "double"}
	case protoreflect.Int32Kind:
		return object{"type": "integer", "format": "int32"}
	case protoreflect.Int64Kind:
		schema := object{"type": "integer", "format": "int64"}
		if s != answer {
			schema["minimum"], schema["maximum"] = -maxInteger, maxInteger
		}
		return schema
	case protoreflect.EnumKind:
		return g.enum(fd.Enum(), s)
	case protoreflect.MessageKind:
		return g.message(fd.Message(), s)
	}
	panic(fmt.Sprintf("%s: no schema for the kind %v", fd.FullName(), fd.Kind()))
}

var defaultName = regexp.MustCompile(`^The default: (\w+)\.`)

// enum returns a reference to the schema of an enum. Its value 0 is never sent. In requests, the comment
// of the value 0 names the default.
func (g *generator) enum(ed protoreflect.EnumDescriptor, s side) object {
	name := g.names[ed.FullName()]
	if _, ok := g.schemas[name]; !ok {
		text := []string{comment(ed)}
		values := []any{}
		for i := 1; i < ed.Values().Len(); i++ {
			v := ed.Values().Get(i)
			values = append(values, string(v.Name()))
			text = append(text, fmt.Sprintf("- `%s`: %s", v.Name(), comment(v)))
		}
		g.schemas[name] = object{"type": "string", "enum": values, "description": text[0] + "\n\n" + strings.Join(text[1:], "\n")}
	}
	schema := ref(name)
	if m := defaultName.FindStringSubmatch(comment(ed.Values().Get(0))); m != nil && s == input {
		schema["default"] = m[1]
	}
	return schema
}

// limit adds the limits of a field to its schema.
func (g *generator) limit(schema object, fd protoreflect.FieldDescriptor, s side) {
	limits := g.limits(fd)
	if limits == nil {
		return
	}
	addLimits(schema, limits)
	if each := member(limits, "each").Message(); each.IsValid() {
		for _, key := range []string{"items", "additionalProperties"} {
			if inner, ok := schema[key].(object); ok {
				addLimits(inner, each)
			}
		}
	}
	if text := member(limits, "default").String(); text != "" && s == input {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			panic(fmt.Sprintf("%s: the default %s is not JSON: %v", fd.FullName(), text, err))
		}
		schema["default"] = v
	}
}

func addLimits(schema object, limits protoreflect.Message) {
	least, greatest := "minLength", "maxLength"
	switch schema["type"] {
	case "integer", "number":
		least, greatest = "minimum", "maximum"
		delete(schema, least)
		delete(schema, greatest)
	case "array":
		least, greatest = "minItems", "maxItems"
	case "object":
		least, greatest = "minProperties", "maxProperties"
	}
	if has(limits, "min") {
		schema[least] = member(limits, "min").Int()
	}
	if has(limits, "max") {
		schema[greatest] = member(limits, "max").Int()
	}
	if has(limits, "above") {
		schema["exclusiveMinimum"] = member(limits, "above").Int()
	}
	if pattern := member(limits, "pattern").String(); pattern != "" {
		schema["pattern"] = pattern
	}
	if list := member(limits, "values").List(); list.Len() > 0 {
		var values []any
		for i := range list.Len() {
			values = append(values, list.Get(i).String())
		}
		schema["enum"] = values
	}
}

// addErrorSchemas adds the messages in the details of errors, whose types are not the API's own.
func (g *generator) addErrorSchemas() {
	g.enum(g.reasons.Get(0).Parent().(protoreflect.EnumDescriptor), answer)
	text := func(description string) object { return object{"type": "string", "description": description} }
	detail := func(typeName, description string, properties object, required ...any) {
		properties["@type"] = object{"type": "string", "const": "type.googleapis.com/" + typeName, "description": "The type of the detail."}
		g.schemas[typeName[strings.LastIndexByte(typeName, '.')+1:]] = object{
			"type": "object", "description": description, "properties": properties, "required": append([]any{"@type"}, required...),
		}
	}
	reason := ref("ErrorReason")
	reason["description"] = "Why the call failed."
	detail("google.rpc.ErrorInfo", "The reason of an error.", object{"reason": reason, "domain": text("leaderboard.")}, "reason", "domain")
	detail("google.rpc.RetryInfo", "The delay before a retry.", object{"retry_delay": wellKnown("google.protobuf.Duration")}, "retry_delay")
	detail("google.rpc.BadRequest", "The invalid fields of a request.", object{"field_violations": object{
		"type": "array", "description": "One element for each problem.",
		"items": object{"type": "object", "properties": object{"field": text("The name of the field."), "description": text("The problem.")}, "required": []any{"field", "description"}},
	}}, "field_violations")
	list := []any{ref("ErrorInfo"), ref("RetryInfo"), ref("BadRequest")}
	for _, name := range []string{"Outcome", "Result"} {
		g.schemas["ErrorDetail"+name] = object{
			"description": "The " + strings.ToLower(name) + " that the error is about.",
			"allOf": []any{ref(name), object{"type": "object", "required": []any{"@type"}, "properties": object{
				"@type": object{"type": "string", "const": "type.googleapis.com/" + apiPackage + name, "description": "The type of the detail."},
			}}},
		}
		list = append(list, ref("ErrorDetail"+name))
	}
	g.schemas["ErrorDetail"] = object{"description": "A detail of an error.", "oneOf": list}
}
