// Package wire translates match results between the domain and the messages
// that the API and the log share. From the wire, a field that is absent takes
// its default here; limits are checked by the domain.
package wire

import (
	"errors"
	"time"

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
	if len(r.GetMetadata().GetFields()) > 0 {
		// From gRPC it may hold NaN, which no JSON has.
		data, err := r.GetMetadata().MarshalJSON()
		if err != nil {
			err = &leaderboard.FieldError{Field: "metadata", Problem: "holds a number that JSON has no form for"}
		} else {
			result.Metadata, err = leaderboard.CanonicalMetadata(data)
		}
		errs = append(errs, err)
	}
	return result, errors.Join(errs...)
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
