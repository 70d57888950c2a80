// Package wire translates match results between the domain and the messages
// that the API and the log share. From the wire, a field that is absent takes
// its default here; limits are checked by the domain.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
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

// Timestamp returns nil for the zero time.
func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ToTime returns the zero time for nil, and for nothing else. It returns a
// [leaderboard.FieldError] of field for instants outside the years 1 to 9999.
func ToTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if t.CheckValid() != nil || t.AsTime().IsZero() {
		return time.Time{}, &leaderboard.FieldError{Field: field, Problem: "is outside the years 1 to 9999"}
	}
	return t.AsTime(), nil
}

// ToResult makes a match result for b, without a season. Its errors are
// [leaderboard.FieldError]s, joined.
func ToResult(b *leaderboard.Board, r *pb.Result) (leaderboard.MatchResult, error) {
	result := leaderboard.MatchResult{
		ResultKey:   leaderboard.ResultKey{Scope: leaderboard.Scope{Board: b.ID}, User: leaderboard.UserID(r.GetUserId()), Match: leaderboard.MatchID(r.GetMatchId())},
		Revision:    r.GetRevision(),
		TieBreakers: r.GetTieBreakers(),
		Attributes:  r.GetAttributes(),
	}
	// The user is checked here too, so that one answer names all that is wrong.
	errs := []error{result.User.Validate()}
	name, value, other, otherName := "score", r.GetScore(), r.GetPoints(), "points"
	given, otherGiven := r != nil && r.Score != nil, r != nil && r.Points != nil
	if b.AddsUp() {
		name, value, otherName, other = otherName, other, name, value
		given, otherGiven = otherGiven, given
	}
	result.Score = leaderboard.Score(value)
	switch {
	case otherGiven:
		errs = append(errs, &leaderboard.FieldError{Field: otherName, Problem: "is not for this board, which is " + b.Policy.String() + ": give " + name})
	case !given:
		errs = append(errs, &leaderboard.FieldError{Field: name, Problem: "is required"})
	}
	var err error
	result.AchievedAt, err = ToTime("achieved_at", r.GetAchievedAt())
	errs = append(errs, err)
	result.Metadata, err = toMetadata(r.GetMetadata())
	return result, errors.Join(append(errs, err)...)
}

// MaxMetadataDepth bounds how deep metadata is nested, itself included.
const MaxMetadataDepth = 32

// TooDeep is what is wrong with metadata that is nested deeper.
var TooDeep = fmt.Sprintf("is nested more than %d deep", MaxMetadataDepth)

// toMetadata returns metadata in canonical form. What is too deep or too long is
// not made JSON of, which takes time and memory beyond its length.
func toMetadata(s *structpb.Struct) (string, error) {
	problem := ""
	switch {
	case len(s.GetFields()) == 0:
		return "", nil
	case deeper(structpb.NewStructValue(s), MaxMetadataDepth):
		problem = TooDeep
	// The message is at most six times as long as its JSON: an element of [0,0]
	// takes 2 bytes there and 11 here.
	case proto.Size(s) > 8*leaderboard.MaxMetadataBytes:
		problem = fmt.Sprintf("is longer than the %d bytes of compact JSON that are allowed", leaderboard.MaxMetadataBytes)
	default:
		data, err := s.MarshalJSON()
		if err == nil {
			return leaderboard.CanonicalMetadata(data)
		}
		problem = "holds a number that JSON has no form for" // NaN, from gRPC
	}
	return "", &leaderboard.FieldError{Field: "metadata", Problem: problem}
}

// MaxNumberBytes bounds a JSON number as written. To take a longer one apart takes
// time that grows with the square of its length.
const MaxNumberBytes = 64

// NumberProblem says what is wrong with a number of metadata, or "": one must be
// the same once it has been a double, as the message has it, written with as few
// digits as tell it from others.
func NumberProblem(number json.Number) string {
	if isDouble(string(number)) {
		return ""
	}
	return fmt.Sprintf("%.40q is no number that a double holds, and would come back as another: send it as a string", string(number))
}

func isDouble(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || len(number) > MaxNumberBytes {
		return false
	}
	if f == 0 { // of any exponent
		digits, _, _ := strings.Cut(strings.ToLower(number), "e")
		return !strings.ContainsAny(digits, "123456789")
	}
	was, ok1 := new(big.Rat).SetString(number)
	is, ok2 := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return ok1 && ok2 && was.Cmp(is) == 0
}

// deeper says whether v is nested more than depth deep.
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

// FromResult is the inverse of [ToResult]. A retraction has no content.
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
	result.TieBreakers, result.Attributes = r.TieBreakers, r.Attributes
	result.AchievedAt, result.Metadata = Timestamp(r.AchievedAt), FromMetadata(r.Metadata)
	return result
}

// FromMetadata returns canonical metadata as a message, nil if it is empty.
func FromMetadata(canonical string) *structpb.Struct {
	if canonical == "" {
		return nil
	}
	s := &structpb.Struct{}
	if err := s.UnmarshalJSON([]byte(canonical)); err != nil {
		return nil // not what CanonicalMetadata made
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

// FromStatus returns the message's status of an outcome.
func FromStatus(s leaderboard.Status) pb.Outcome_Status { return statuses[s] }

// ToStatus is the inverse of [FromStatus].
func ToStatus(s pb.Outcome_Status) (leaderboard.Status, bool) {
	for status, have := range statuses {
		if have == s {
			return status, true
		}
	}
	return 0, false
}
