package server

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// This line compiles only if a JSON list can hold the largest batch and the largest lookup.
const _ uint = restjson.MaxElements - max(ranking.MaxBatch, ranking.MaxLookup)

// rawCodec is gRPC's codec, but does not decode a rawMessage, and encodes a sharedMessage once.
type rawCodec struct{ encoding.CodecV2 }

type rawMessage []byte

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*sharedMessage); ok {
		b, err := m.protobuf()
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return c.CodecV2.Marshal(v)
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*rawMessage); ok {
		*raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// decodeMessage decodes the message of a gRPC method, unless the message is too long, has more than
// [restjson.MaxValues] values, or is nested too deep.
func decodeMessage(d *door, raw rawMessage, m proto.Message) error {
	if limit := d.maxBytes; len(raw) > limit {
		return newStatus(codes.OutOfRange, fmt.Sprintf("the message is longer than the %d bytes that are allowed", limit), errorInfo(pb.Error_BODY_TOO_LARGE))
	}
	if budget := spendValues(raw, m.ProtoReflect().Descriptor(), restjson.MaxValues, maxMessageDepth); budget == 0 {
		return &leaderboard.FieldError{Field: restjson.BodyField, Problem: fmt.Sprintf("has more than %d values, or is nested more than %d messages deep", restjson.MaxValues, maxMessageDepth)}
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return &leaderboard.FieldError{Field: restjson.BodyField, Problem: "is not a valid message"}
	}
	return nil
}

// maxMessageDepth bounds the nesting of messages. A level of metadata needs at most three messages:
// a value, an object, and an entry of the object. The fourth per level leaves room for the request
// around the metadata.
const maxMessageDepth = 4 * protoconv.MaxMetadataDepth

// spendValues returns budget minus the number of values in b, an encoded message of type md. It
// returns 0 if the number reaches budget, or if b is nested more than depth messages deep.
func spendValues(b []byte, md protoreflect.MessageDescriptor, budget, depth int) int {
	if depth == 0 {
		return 0
	}
	for len(b) > 0 && budget > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			break
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			break
		}
		budget--
		if fd := md.Fields().ByNumber(number); kind == protowire.BytesType && fd != nil && fd.Message() != nil {
			content, _ := protowire.ConsumeBytes(b[n:])
			budget = spendValues(content, fd.Message(), budget, depth-1)
		}
		b = b[n+size:]
	}
	return budget
}

func checkCounts(req any) error {
	field, n, limit := "", 1, 1
	switch req := req.(type) {
	case interface{ GetResults() []*pb.Result }:
		field, n, limit = "results", len(req.GetResults()), ranking.MaxBatch
	case *pb.BatchRetractResultsRequest:
		field, n, limit = "results", len(req.GetResults()), ranking.MaxBatch
	case *pb.LookupScoresRequest:
		field, n, limit = "user_ids", len(req.GetUserIds()), ranking.MaxLookup
	case *pb.BatchPutProfilesRequest:
		field, n, limit = "profiles", len(req.GetProfiles()), ranking.MaxProfiles
	}
	if n < 1 || n > limit {
		return &leaderboard.FieldError{Field: field, Problem: fmt.Sprintf("has %d elements, 1 to %d are allowed", n, limit)}
	}
	return nil
}
