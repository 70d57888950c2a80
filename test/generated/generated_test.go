package generated

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

const api = "../../api"

// The descriptors in the generated code are those of the protos, with every
// field, number, JSON name and route. Comments, which openapi.json shows, are not
// in them: make generate brings those along.
func TestGeneratedCodeIsOfTheProtos(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(api, "proto/leaderboard/v1/*.proto"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("protos: %v, %v", paths, err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, "leaderboard/v1/"+filepath.Base(path))
	}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		ImportPaths: []string{filepath.Join(api, "proto"), filepath.Join(api, "third_party")},
	})}
	files, err := compiler.Compile(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, compiled := range files {
		generated, err := protoregistry.GlobalFiles.FindFileByPath(compiled.Path())
		if err != nil {
			t.Errorf("%s has no generated code: run make generate: %v", compiled.Path(), err)
			continue
		}
		if diff := cmp.Diff(descriptor(t, compiled), descriptor(t, generated), protocmp.Transform()); diff != "" {
			t.Errorf("the code generated from %s is another's: run make generate (-proto +code):\n%s", compiled.Path(), diff)
		}
	}
	generated := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("leaderboard.v1", func(f protoreflect.FileDescriptor) bool {
		generated++
		if _, err := os.Stat(filepath.Join(api, "proto", f.Path())); err != nil {
			t.Errorf("code was generated from a proto that is gone: %v", err)
		}
		return true
	})
	if generated != len(files) {
		t.Errorf("%d protos, generated code of %d", len(files), generated)
	}
}

// descriptor returns a file's descriptor with its options as this program knows them.
func descriptor(t *testing.T, f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(f))
	if err != nil {
		t.Fatal(err)
	}
	d := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(data, d); err != nil {
		t.Fatal(err)
	}
	return d
}
