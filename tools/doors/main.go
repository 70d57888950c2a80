// Command doors is a plugin of protoc that generates nothing. It returns an error if an RPC lacks an
// option that the server needs:
//
//   - (leaderboard.v1.door), with a scope and a reach
//   - idempotency_level, which is NO_SIDE_EFFECTS if and only if the RPC changes nothing. An RPC with a
//     GET route must have this level.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "doors:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	var req pluginpb.CodeGeneratorRequest
	if err := proto.Unmarshal(data, &req); err != nil {
		return err
	}
	res := &pluginpb.CodeGeneratorResponse{SupportedFeatures: proto.Uint64(uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL))}
	if err := check(&req); err != nil {
		res.Error = proto.String(err.Error())
	}
	if data, err = proto.Marshal(res); err == nil {
		_, err = out.Write(data)
	}
	return err
}

// ofGames is the service that games implement, not the server. So it has no doors.
const ofGames = "leaderboard.v1.CanonicalResultService"

func check(req *pluginpb.CodeGeneratorRequest) error {
	files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: req.GetProtoFile()})
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range req.GetFileToGenerate() {
		file, err := files.FindFileByPath(name)
		if err != nil {
			return err
		}
		for i := range file.Services().Len() {
			if file.Services().Get(i).FullName() == ofGames {
				continue
			}
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				errs = append(errs, checkMethod(dynamicpb.NewTypes(files), methods.Get(j)))
			}
		}
	}
	return errors.Join(errs...)
}

// checkMethod decodes the options with types, because this program does not know the extensions.
func checkMethod(types *dynamicpb.Types, method protoreflect.MethodDescriptor) error {
	data, err := proto.Marshal(method.Options())
	if err != nil {
		return err
	}
	var options descriptorpb.MethodOptions
	if err := (proto.UnmarshalOptions{Resolver: types}).Unmarshal(data, &options); err != nil {
		return err
	}
	var errs []error
	missing := func(what string) {
		errs = append(errs, fmt.Errorf("the RPC %s needs the option %s: see options.proto", method.FullName(), what))
	}
	door := extension(&options, "leaderboard.v1.door")
	for _, field := range []protoreflect.Name{"scope", "reach"} {
		if door == nil || !door.Has(door.Descriptor().Fields().ByName(field)) {
			missing("(door)." + string(field))
		}
	}
	if options.IdempotencyLevel == nil {
		missing("idempotency_level")
	}
	if http := extension(&options, "google.api.http"); http != nil && http.Has(http.Descriptor().Fields().ByName("get")) &&
		options.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
		missing("idempotency_level = NO_SIDE_EFFECTS, because its route is a GET")
	}
	return errors.Join(errs...)
}

// extension returns the value of an extension, or nil. It compares names: the options' own type is not
// the one that the extension extends.
func extension(options *descriptorpb.MethodOptions, name protoreflect.FullName) (value protoreflect.Message) {
	options.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.FullName() == name {
			value = v.Message()
		}
		return true
	})
	return value
}
