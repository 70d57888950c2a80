package api

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/internal/wire"
)

const (
	// maxElements bounds a list or an object of a body. The longest that a
	// request takes are the results of a batch and the users of a lookup.
	maxElements = max(ranking.MaxBatch, ranking.MaxLookup)
	// maxValues bounds the values of a body, at 100 for each result of a full
	// batch: decoded, a value takes up to a hundred times as much memory as in
	// the body.
	maxValues = 100 * ranking.MaxBatch
)

// checkValues returns an error if a body has more than maxValues values. plain
// says that it has no list or object that is too long, nothing nested deep and no
// unusual number, so that [explain] would find no bound exceeded either. It looks
// at every byte of a body, so that little is spent on one that is refused, and
// takes what is not JSON too.
func checkValues(data []byte) (plain bool, err error) {
	plain = true
	var elements [wire.MaxMetadataDepth + 1]int // of what is open, by depth
	values, depth := 1, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			values++
			depth++
			if depth < len(elements) {
				elements[depth] = 1
			}
		case c == '}' || c == ']':
			depth = max(0, depth-1)
		case c == ',':
			values++
			if depth < len(elements) {
				elements[depth]++
			}
		case c == '-' || '0' <= c && c <= '9':
			start := i
			for i+1 < len(data) && strings.IndexByte("0123456789.eE+-", data[i+1]) >= 0 {
				i++
			}
			// Any 15 digits are a number that a double holds.
			plain = plain && i-start < 15 && !bytes.ContainsAny(data[start:i+1], "eE")
		}
		plain = plain && depth < len(elements) && elements[depth] <= maxElements
		if values > maxValues {
			return false, &leaderboard.FieldError{Field: bodyField, Problem: fmt.Sprintf("holds more than %d values", maxValues)}
		}
	}
	return plain, nil
}

// rawCodec is gRPC's own codec, which also receives a message as it is.
type rawCodec struct{ encoding.CodecV2 }

// rawMessage is a message as it came, which decodeMessage decodes.
type rawMessage []byte

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*rawMessage); ok {
		*raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// decodeMessage decodes a message over gRPC, unless it has more than maxValues
// values or is nested deep.
func decodeMessage(raw rawMessage, m proto.Message) error {
	if left := spendValues(raw, m.ProtoReflect().Descriptor(), maxValues, maxMessageDepth); left == 0 {
		return &leaderboard.FieldError{Field: bodyField, Problem: fmt.Sprintf("holds more than %d values, or is nested more than %d messages deep", maxValues, maxMessageDepth)}
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return &leaderboard.FieldError{Field: bodyField, Problem: "is not a valid message"}
	}
	return nil
}

// maxMessageDepth is more than metadata needs: a level of it is three messages at
// most, as an object has entries.
const maxMessageDepth = 4 * wire.MaxMetadataDepth

// spendValues returns how many of so many values are left after those of b, a
// message of md.
func spendValues(b []byte, md protoreflect.MessageDescriptor, left, depth int) int {
	if depth == 0 {
		return 0
	}
	for len(b) > 0 && left > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			break // which proto.Unmarshal says
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			break
		}
		left--
		if fd := md.Fields().ByNumber(number); kind == protowire.BytesType && fd != nil && fd.Message() != nil {
			inside, _ := protowire.ConsumeBytes(b[n:])
			left = spendValues(inside, fd.Message(), left, depth-1)
		}
		b = b[n+size:]
	}
	return left
}

// checkCounts returns an error for a request of too many results or users, before
// anything is done for each of them.
func checkCounts(req any) error {
	field, n, limit := "", 1, 1
	switch req := req.(type) {
	case *pb.BatchSubmitScoresRequest:
		field, n, limit = "results", len(req.GetResults()), ranking.MaxBatch
	case *pb.LookupScoresRequest:
		field, n, limit = "user_ids", len(req.GetUserIds()), ranking.MaxLookup
	}
	if n < 1 || n > limit {
		return &leaderboard.FieldError{Field: field, Problem: fmt.Sprintf("%d given, 1 to %d are allowed", n, limit)}
	}
	return nil
}
