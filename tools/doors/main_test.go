package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

const protos = "../../api/proto/leaderboard/v1/"

// generate returns the error of the plugin for one file of the API.
func generate(t *testing.T, file string, source []byte) string {
	t.Helper()
	const folder = "leaderboard/v1/"
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
		&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{folder + file: string(source)})},
		&protocompile.SourceResolver{ImportPaths: []string{"../../api/proto", "../../api/third_party"}},
	})}
	compiled, err := compiler.Compile(t.Context(), folder+file)
	if err != nil {
		t.Fatal(err)
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{folder + file}}
	added := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if added[fd.Path()] {
			return
		}
		added[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		req.ProtoFile = append(req.ProtoFile, protodesc.ToFileDescriptorProto(fd))
	}
	add(compiled[0])
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(bytes.NewReader(data), &out); err != nil {
		t.Fatal(err)
	}
	var res pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatal(err)
	}
	return res.GetError()
}

func TestEveryRPCHasADoor(t *testing.T) {
	files, err := filepath.Glob(protos + "*_service.proto")
	if err != nil || len(files) != 2 {
		t.Fatalf("files of services: %q, %v; want two", files, err)
	}
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := generate(t, filepath.Base(path), source); got != "" {
			t.Errorf("%s: %s, want no error", path, got)
		}
	}
}

func TestAnRPCWithoutADoorIsNotGenerated(t *testing.T) {
	path := protos + "admin_service.proto"
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for options, want := range map[string][]string{
		"":                                       {"(door).scope", "(door).reach", "idempotency_level"},
		"option idempotency_level = IDEMPOTENT;": {"(door).scope", "(door).reach"},
		"option (door) = {scope: ADMIN, reach: EVERY_BOARD};":                                                                             {"idempotency_level"},
		"option (door) = {scope: ADMIN}; option idempotency_level = IDEMPOTENT;":                                                          {"(door).reach"},
		"option (door) = {reach: ONE_BOARD}; option idempotency_level = IDEMPOTENT;":                                                      {"(door).scope"},
		"option (door) = {scope: SCOPE_UNSPECIFIED, reach: ONE_BOARD}; option idempotency_level = IDEMPOTENT;":                            {"(door).scope"},
		`option (door) = {scope: READ, reach: ONE_BOARD}; option idempotency_level = IDEMPOTENT; option (google.api.http) = {get: "/x"};`: {"idempotency_level = NO_SIDE_EFFECTS"},
		"option (door) = {scope: ADMIN, reach: EVERY_BOARD}; option idempotency_level = IDEMPOTENCY_UNKNOWN;":                             nil,
	} {
		rpc := "service AdminService {\n  rpc Extra(BackupRequest) returns (BackupResponse) {" + options + "}\n"
		changed := strings.Replace(string(source), "service AdminService {\n", rpc, 1)
		got := generate(t, "admin_service.proto", []byte(changed))
		if len(want) == 0 && got != "" || strings.Count(got, "\n")+1 != max(1, len(want)) {
			t.Errorf("options %q: error %q, want one line for each of %q", options, got, want)
		}
		for _, name := range want {
			if !strings.Contains(got, "leaderboard.v1.AdminService.Extra needs the option "+name) {
				t.Errorf("options %q: error %q, want %q named", options, got, name)
			}
		}
	}
}
