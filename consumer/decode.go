package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/wire"
	"github.com/open-leaderboard/leaderboard/producer"
)

// maxValueBytes bounds a message's value; a result with all that it may have
// is well below.
const maxValueBytes = 256 << 10

// decode reads a message's value, in the form that its content-type says.
func decode(m *sarama.ConsumerMessage) (*pb.MatchResultRecord, error) {
	if len(m.Value) > maxValueBytes {
		return nil, fmt.Errorf("value is %d bytes long, at most %d are allowed", len(m.Value), maxValueBytes)
	}
	record := &pb.MatchResultRecord{}
	switch form := header(m, producer.ContentType); form {
	case "", producer.Protobuf:
		if err := proto.Unmarshal(m.Value, record); err != nil {
			return nil, fmt.Errorf("value is no MatchResultRecord in protobuf: %w", err)
		}
	case producer.JSON:
		if err := protojson.Unmarshal(m.Value, record); err != nil {
			return nil, fmt.Errorf("value is no MatchResultRecord in JSON: %w", err)
		}
	default:
		return nil, fmt.Errorf("content-type %q is neither %s nor %s", form, producer.Protobuf, producer.JSON)
	}
	if record.GetResult() == nil {
		return nil, errors.New("value has no result")
	}
	return record, nil
}

func header(m *sarama.ConsumerMessage, key string) string {
	for _, h := range m.Headers {
		if string(h.Key) == key {
			return string(h.Value)
		}
	}
	return ""
}

// toResult makes of a record the result that its producer means. Its times
// default to the message's, so that every reading of the log gives the same.
func toResult(b *leaderboard.Board, record *pb.MatchResultRecord, at time.Time) (leaderboard.MatchResult, error) {
	received, err := wire.ToTime("received_at", record.GetReceivedAt())
	if err != nil {
		return leaderboard.MatchResult{}, err
	}
	if received.IsZero() {
		received = at
	}
	var r leaderboard.MatchResult
	if record.GetRetracted() || record.GetNotification() {
		in := record.GetResult()
		r = leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(in.GetUserId()), Match: leaderboard.MatchID(in.GetMatchId())},
			Revision:  in.GetRevision(), Retracted: record.GetRetracted(),
		}
		r.AchievedAt, err = wire.ToTime("achieved_at", in.GetAchievedAt())
	} else {
		r, err = wire.ToResult(b, record.GetResult())
		r.Assigned = record.GetAssigned()
	}
	if err != nil {
		return r, err
	}
	if r.AchievedAt.IsZero() {
		r.AchievedAt, r.Assigned = at, true
	}
	r.ReceivedAt = received
	if err := errors.Join(r.User.Validate(), r.Match.Validate()); err != nil {
		return r, err
	}
	if r.Revision < 0 || r.Revision > leaderboard.MaxRevision {
		return r, &leaderboard.FieldError{Field: "revision", Problem: fmt.Sprintf("%d is not 0 to %d", r.Revision, int64(leaderboard.MaxRevision))}
	}
	return r, nil
}
