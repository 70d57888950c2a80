// Package protoconv converts between the types of package leaderboard and the protobuf
// messages of the API and of Kafka.
package protoconv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// afterYears is the first second, since 1970, that messages cannot represent: the year 10000.
const afterYears = 253402300800

// Timestamp returns nil for the zero time, and for a time after the year 9999, such as the end of
// that year's season.
func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() || t.Unix() >= afterYears {
		return nil
	}
	return timestamppb.New(t)
}

// ToTime returns the zero time for nil. It returns a [leaderboard.FieldError] about field
// if t is outside the years 1 to 9999 or is the zero time.
func ToTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if t.CheckValid() == nil && t.AsTime().IsZero() {
		return time.Time{}, &leaderboard.FieldError{Field: field, Problem: "must be set: 0001-01-01T00:00:00Z is the time of a field without a value; give a time, or omit the field"}
	}
	if t.CheckValid() != nil {
		return time.Time{}, &leaderboard.FieldError{Field: field, Problem: "is outside the years 1 to 9999"}
	}
	return t.AsTime(), nil
}

// ToResult converts a message to a match result on the board b, without the season. Its
// error joins a [leaderboard.FieldError] for each fault.
func ToResult(b *leaderboard.Board, r *pb.Result) (leaderboard.MatchResult, error) {
	result := leaderboard.MatchResult{
		ResultKey:   leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID}, User: leaderboard.UserID(r.GetUserId()), Match: leaderboard.MatchID(r.GetMatchId())},
		Revision:    r.GetRevision(),
		Reset:       r.GetReset_(),
		TieBreakers: r.GetTieBreakers(),
		Attributes:  r.GetAttributes(),
	}
	// Board.Check would check the user later, but one error must name all faults.
	errs := []error{result.User.Validate()}
	if id := r.GetBoardId(); id != "" && id != string(b.ID) {
		errs = append(errs, &leaderboard.FieldError{Field: "board_id", Problem: fmt.Sprintf("is %.128q, but the request is for board %q", id, b.ID)})
	}
	name, value, other, otherName := "score", r.GetScore(), r.GetPoints(), "points"
	given, otherGiven := r != nil && r.Score != nil, r != nil && r.Points != nil
	if b.AddsUp() {
		name, value, otherName = otherName, other, name
		given, otherGiven = otherGiven, given
	}
	result.Score = leaderboard.Score(value)
	finish, err := toEnum("status", r.GetStatus())
	if result.Finish = leaderboard.Finish(finish); result.Finish == leaderboard.TooFew && err == nil {
		err = &leaderboard.FieldError{Field: "status", Problem: "TOO_FEW_RESULTS is a status of entries, not of results"}
	}
	errs = append(errs, err)
	switch {
	case otherGiven:
		errs = append(errs, &leaderboard.FieldError{Field: otherName, Problem: "this board has the policy " + b.Policy.String() + " and takes " + name + ", not " + otherName})
	case !given && b.Policy != leaderboard.Count && result.Finish == leaderboard.Ranked:
		errs = append(errs, &leaderboard.FieldError{Field: name, Problem: "is required"})
	}
	result.AchievedAt, err = ToTime("achieved_at", r.GetAchievedAt())
	errs = append(errs, err)
	result.Metadata, err = toObject("metadata", r.GetMetadata(), leaderboard.MaxMetadataBytes)
	return result, errors.Join(append(errs, err)...)
}

// MaxMetadataDepth bounds the nesting of metadata. A flat object has depth 1.
const MaxMetadataDepth = 32

// TooDeep is the Problem of metadata that is nested deeper than MaxMetadataDepth.
var TooDeep = fmt.Sprintf("is nested more than %d deep", MaxMetadataDepth)

// toObject returns the canonical form of s, the value of a field. It checks s before it encodes s,
// because encoding large metadata takes much time and memory.
func toObject(field string, s *structpb.Struct, maxBytes int) (string, error) {
	var problem string
	switch {
	case len(s.GetFields()) == 0:
		return "", nil
	case deeper(structpb.NewStructValue(s), MaxMetadataDepth):
		problem = TooDeep
	// The worst case is a list of zeros: each takes 11 bytes in a message, and 2 in JSON. So a
	// message above 8 times the limit (11/2 plus a margin) has a JSON above the limit.
	case proto.Size(s) > 8*maxBytes:
		problem = fmt.Sprintf("is longer than the %d bytes of compact JSON that are allowed", maxBytes)
	default:
		data, err := s.MarshalJSON()
		if err == nil {
			return leaderboard.CanonicalObject(field, data, maxBytes)
		}
		problem = "holds a number that JSON cannot represent" // NaN or infinity, from gRPC
	}
	return "", &leaderboard.FieldError{Field: field, Problem: problem}
}

// MaxNumberBytes limits the length of a JSON number. The time to parse a number exactly grows
// with the square of its length.
const MaxNumberBytes = 64

// NumberProblem returns the reason why metadata cannot contain a number, or "". Messages
// store numbers as doubles.
func NumberProblem(number json.Number) string {
	if isDouble(string(number)) {
		return ""
	}
	return fmt.Sprintf("%.40q cannot be stored exactly, because it is not a double-precision number: send it as a string", string(number))
}

// CheckNumbers refuses a number in the field result.metadata of a JSON document that protojson cannot
// represent exactly, with a [leaderboard.FieldError].
func CheckNumbers(document []byte) error {
	var record struct {
		Result struct{ Metadata json.RawMessage }
	}
	if err := json.Unmarshal(document, &record); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(record.Result.Metadata))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if number, ok := token.(json.Number); ok {
			if problem := NumberProblem(number); problem != "" {
				return &leaderboard.FieldError{Field: "result.metadata", Problem: problem}
			}
		}
	}
}

// isDouble reports whether number equals the shortest decimal form of its nearest double, as
// 0.1 does.
func isDouble(number string) bool {
	if len(number) <= 15 && !strings.ContainsAny(number, "eE") {
		return true // a double holds any 15 digits
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || len(number) > MaxNumberBytes {
		return false
	}
	if f == 0 { // number may be a zero with an exponent, or a tiny number
		digits, _, _ := strings.Cut(strings.ToLower(number), "e")
		return !strings.ContainsAny(digits, "123456789")
	}
	exact, ok1 := new(big.Rat).SetString(number)
	shortest, ok2 := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return ok1 && ok2 && exact.Cmp(shortest) == 0
}

func deeper(v *structpb.Value, depth int) bool {
	var inside iter.Seq[*structpb.Value]
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		inside = maps.Values(kind.StructValue.GetFields())
	case *structpb.Value_ListValue:
		inside = slices.Values(kind.ListValue.GetValues())
	default:
		return false
	}
	if depth == 0 {
		return true
	}
	for v := range inside {
		if deeper(v, depth-1) {
			return true
		}
	}
	return false
}

// FromResult is the inverse of [ToResult]. The message of a retraction has only the user,
// the match and the revision.
func FromResult(b *leaderboard.Board, r *leaderboard.MatchResult) *pb.Result {
	result := &pb.Result{UserId: string(r.User), MatchId: string(r.Match), Revision: r.Revision}
	if r.Retracted {
		return result
	}
	score := int64(r.Score)
	if b.AddsUp() {
		result.Points = &score
	} else {
		result.Score = &score
	}
	if r.Reset {
		result.Reset_ = new(true)
	}
	if r.Finish != leaderboard.Ranked {
		result.Status = new(FromFinish(r.Finish))
	}
	// Stores remove trailing zeros from tie-breakers. A submit of this message may need all values.
	result.TieBreakers = make([]int64, len(b.TieBreakers))
	copy(result.TieBreakers, b.ResultTieBreakers(r))
	result.Attributes = r.Attributes
	result.AchievedAt, result.Metadata = Timestamp(r.AchievedAt), FromMetadata(r.Metadata)
	return result
}

// FromMetadata converts canonical metadata to a message. It returns nil for "".
func FromMetadata(canonical string) *structpb.Struct {
	if canonical == "" {
		return nil
	}
	s := &structpb.Struct{}
	if err := s.UnmarshalJSON([]byte(canonical)); err != nil {
		return nil // cannot happen: CanonicalMetadata returns valid JSON objects
	}
	return s
}

var statuses = map[leaderboard.Status]pb.Outcome_Status{
	leaderboard.Applied:    pb.Outcome_APPLIED,
	leaderboard.Duplicate:  pb.Outcome_DUPLICATE,
	leaderboard.Superseded: pb.Outcome_SUPERSEDED,
	leaderboard.Conflict:   pb.Outcome_CONFLICT,
	leaderboard.Rejected:   pb.Outcome_REJECTED,
	leaderboard.Accepted:   pb.Outcome_ACCEPTED,
}

// FromStatus converts the status of an outcome.
func FromStatus(s leaderboard.Status) pb.Outcome_Status { return statuses[s] }

// ToStatus is the inverse of [FromStatus]. It returns false for an unknown status.
func ToStatus(s pb.Outcome_Status) (leaderboard.Status, bool) {
	for status, message := range statuses {
		if message == s {
			return status, true
		}
	}
	return 0, false
}

var resultStatuses = map[leaderboard.Status]pb.GetResultResponse_Status{
	leaderboard.Applied:    pb.GetResultResponse_APPLIED,
	leaderboard.Superseded: pb.GetResultResponse_SUPERSEDED,
	leaderboard.Retracted:  pb.GetResultResponse_RETRACTED,
	leaderboard.Voided:     pb.GetResultResponse_VOIDED,
	leaderboard.Rejected:   pb.GetResultResponse_REJECTED,
}

// FromResultStatus converts the status of a stored result for GetResult.
func FromResultStatus(s leaderboard.Status) pb.GetResultResponse_Status { return resultStatuses[s] }

// FromAPIKey converts an API key to a message without the hash.
func FromAPIKey(k *leaderboard.APIKey) *pb.Key {
	key := &pb.Key{
		KeyId: k.ID, Name: k.Name, Scopes: k.Scopes, CreatedAt: Timestamp(k.CreatedAt), ExpiresAt: Timestamp(k.ExpiresAt),
		BoardPrefixes: k.BoardPrefixes,
	}
	for _, id := range k.Boards {
		key.Boards = append(key.Boards, string(id))
	}
	if k.Insecure {
		key.Insecure = &k.Insecure
	}
	return key
}
