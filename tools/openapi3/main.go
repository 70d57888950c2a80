// Command openapi3 is a plugin of protoc that writes openapi.json: the REST API in OpenAPI 3.1. All
// facts come from the protos: their routes, comments, and the options of options.proto and
// errors.proto. The JSON of messages is that of package restjson. The examples come from the file
// that the parameter "examples" names.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// object is a JSON object.
type object map[string]any

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openapi3:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	files, req, err := readRequest(data)
	if err != nil {
		return err
	}
	res := &pluginpb.CodeGeneratorResponse{SupportedFeatures: proto.Uint64(uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL))}
	document, err := generate(files, req)
	if err != nil {
		res.Error = proto.String(err.Error())
	} else {
		res.File = []*pluginpb.CodeGeneratorResponse_File{{Name: proto.String("openapi.json"), Content: proto.String(document)}}
	}
	if data, err = proto.Marshal(res); err == nil {
		_, err = out.Write(data)
	}
	return err
}

// readRequest decodes the request twice: the types of the options are among the files of the request.
func readRequest(data []byte) (*protoregistry.Files, *pluginpb.CodeGeneratorRequest, error) {
	var req pluginpb.CodeGeneratorRequest
	for resolver := (*dynamicpb.Types)(nil); ; {
		options := proto.UnmarshalOptions{}
		if resolver != nil {
			options.Resolver = resolver
		}
		if err := options.Unmarshal(data, &req); err != nil {
			return nil, nil, err
		}
		files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: req.GetProtoFile()})
		if err != nil || resolver != nil {
			return files, &req, err
		}
		resolver = dynamicpb.NewTypes(files)
	}
}

func generate(files *protoregistry.Files, req *pluginpb.CodeGeneratorRequest) (string, error) {
	examples, err := readExamples(strings.TrimPrefix(req.GetParameter(), "examples="))
	if err != nil {
		return "", err
	}
	g := &generator{schemas: object{}, examples: examples, parameters: map[protoreflect.Name]protoreflect.FieldDescriptor{}}
	var services []protoreflect.ServiceDescriptor
	for _, name := range req.GetFileToGenerate() {
		file, err := files.FindFileByPath(name)
		if err != nil {
			return "", err
		}
		g.addNames(file.Messages())
		for i := range file.Services().Len() {
			services = append(services, file.Services().Get(i))
		}
	}
	find := func(name protoreflect.FullName) protoreflect.Descriptor {
		d, e := files.FindDescriptorByName(apiPackage + name)
		if e != nil && err == nil {
			err = e
		}
		return d
	}
	common, reasons, tags := find("Parameters"), find("Error.Reason"), find("Door.Tag")
	if err != nil {
		return "", err
	}
	fields := common.(protoreflect.MessageDescriptor).Fields()
	for i := range fields.Len() {
		g.parameters[fields.Get(i).Name()] = fields.Get(i)
	}
	g.reasons = reasons.(protoreflect.EnumDescriptor).Values()
	paths := object{}
	for _, s := range services {
		for i := range s.Methods().Len() {
			g.addMethod(paths, s.Methods().Get(i))
		}
	}
	if unused := g.examples.unused(); len(unused) > 0 {
		return "", fmt.Errorf("no route has the examples %v", unused)
	}
	document := g.document(paths, tags.(protoreflect.EnumDescriptor).Values())
	text, err := json.MarshalIndent(document, "", "  ")
	return string(text) + "\n", err
}

func (g *generator) document(paths object, tags protoreflect.EnumValueDescriptors) object {
	var described []any
	for i := 1; i < tags.Len(); i++ {
		described = append(described, object{"name": tagName(tags.Get(i).Name()), "description": comment(tags.Get(i))})
	}
	g.addErrorSchemas()
	components := g.shareResponses(paths)
	components["schemas"] = g.schemas
	components["headers"] = headers
	components["securitySchemes"] = object{"key": object{
		"type": "http", "scheme": "bearer",
		"description": "An API key or a JSON web token. The scopes read, submit and admin each include the scopes before them. With the server's setting public_read, reads need no key.",
	}}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Leaderboard", "version": "1",
			"description": "Match results in, exact ranks out. Every integer is a JSON number within ±2^53. Unknown fields and parameters are errors. HEAD works wherever GET does. " +
				"Lengths of texts are bounded in bytes of UTF-8, so that a text with other characters than ASCII reaches a bound earlier.",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"contact": object{"name": "Leaderboard", "url": "https://github.com/open-leaderboard/leaderboard"},
		},
		"servers":    []any{object{"url": "/", "description": "The server of this document."}},
		"tags":       described,
		"paths":      paths,
		"components": components,
	}
}

func tagName(name protoreflect.Name) string {
	return string(name[:1]) + strings.ToLower(string(name[1:]))
}

// comment returns the comment above a declaration. Its lines are joined, except for paragraphs and
// lists.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimRight(strings.TrimPrefix(line, " "), "\n ")
		switch {
		case line == "":
			b.WriteString("\n\n")
			continue
		case strings.HasPrefix(line, " - "):
			b.WriteByte('\n')
			line = line[1:]
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "\n"):
			b.WriteByte(' ')
			line = strings.TrimSpace(line)
		}
		b.WriteString(line)
	}
	return strings.ReplaceAll(b.String(), "\n\n\n", "\n\n")
}

// extension returns the value of an option, or nil.
func extension(d protoreflect.Descriptor, name protoreflect.FullName) (value protoreflect.Value) {
	d.Options().ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.FullName() == name {
			value = v
		}
		return true
	})
	return value
}

// member returns the field of a message that has a name.
func member(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func has(m protoreflect.Message, name protoreflect.Name) bool {
	return m.Has(m.Descriptor().Fields().ByName(name))
}

// enumName returns the name of the value of an enum field.
func enumName(m protoreflect.Message, name protoreflect.Name) protoreflect.Name {
	fd := m.Descriptor().Fields().ByName(name)
	return fd.Enum().Values().ByNumber(m.Get(fd).Enum()).Name()
}
