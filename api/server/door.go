package server

import (
	"cmp"
	"fmt"
	"iter"

	"google.golang.org/genproto/googleapis/api/annotations"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// door is how the server treats calls of a method. The protos declare it in the method's options, which
// tools/doors requires.
type door struct {
	method   string // full name, such as /leaderboard.v1.LeaderboardService/SubmitScore
	name     string // such as SubmitScore
	scope    auth.Scope
	reach    pb.Door_Reach
	maxBytes int  // of a message or a body
	watch    bool // see leaderboard.v1.Door
	ownUser  bool // see leaderboard.v1.Door
	input    protoreflect.MessageDescriptor
	output   protoreflect.MessageDescriptor
	streams  bool
	readOnly bool                  // the method changes nothing
	http     *annotations.HttpRule // nil if the method has no REST form
}

// maxBodyBytes is the default of max_bytes in leaderboard.v1.Door.
const maxBodyBytes = 64 << 10

var (
	apiFiles = []protoreflect.FileDescriptor{pb.File_leaderboard_v1_admin_service_proto, pb.File_leaderboard_v1_leaderboard_service_proto}
	// publicFiles have services of gRPC, whose callers need no credentials.
	publicFiles = []protoreflect.FileDescriptor{
		healthpb.File_grpc_health_v1_health_proto,
		reflectionpb.File_grpc_reflection_v1_reflection_proto, reflectionalphapb.File_grpc_reflection_v1alpha_reflection_proto,
	}
	doors = readDoors()
)

// doorOf returns a door that lets nobody in if the method is unknown.
func doorOf(method string) *door {
	if d, ok := doors[method]; ok {
		return d
	}
	return &door{method: method, scope: auth.Nobody, reach: pb.Door_EVERY_BOARD, maxBytes: maxBodyBytes}
}

func readDoors() map[string]*door {
	byMethod := map[string]*door{}
	for m := range methodsOf(apiFiles) {
		d := newDoor(m)
		byMethod[d.method] = d
	}
	for m := range methodsOf(publicFiles) {
		d := newDoor(m)
		d.scope = auth.Public
		byMethod[d.method] = d
	}
	return byMethod
}

// newDoor reads the options of a method. Without options, nobody may call the method.
func newDoor(m protoreflect.MethodDescriptor) *door {
	options, _ := proto.GetExtension(m.Options(), pb.E_Door).(*pb.Door)
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	d := &door{
		method: fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()), name: string(m.Name()), scope: auth.Nobody,
		reach: cmp.Or(options.GetReach(), pb.Door_EVERY_BOARD), maxBytes: cmp.Or(int(options.GetMaxBytes()), maxBodyBytes), watch: options.GetWatch(), ownUser: options.GetOwnUser(),
		input: m.Input(), output: m.Output(), streams: m.IsStreamingServer(), http: rule,
		readOnly: m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
	}
	switch options.GetScope() {
	case pb.Door_READ:
		d.scope = auth.Read
	case pb.Door_SUBMIT:
		d.scope = auth.Submit
	case pb.Door_ADMIN:
		d.scope = auth.Admin
	}
	return d
}

func methodsOf(files []protoreflect.FileDescriptor) iter.Seq[protoreflect.MethodDescriptor] {
	return func(yield func(protoreflect.MethodDescriptor) bool) {
		for _, file := range files {
			for i := range file.Services().Len() {
				methods := file.Services().Get(i).Methods()
				for j := range methods.Len() {
					if !yield(methods.Get(j)) {
						return
					}
				}
			}
		}
	}
}

func maxMessageBytes() int {
	longest := 0
	for _, d := range doors {
		longest = max(longest, d.maxBytes)
	}
	return longest
}
