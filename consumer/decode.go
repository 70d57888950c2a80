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
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

const maxValueBytes = 256 << 10

func decode(m *sarama.ConsumerMessage) (*pb.MatchResultRecord, error) {
	if len(m.Value) > maxValueBytes {
		return nil, fmt.Errorf("value has %d bytes, at most %d are allowed", len(m.Value), maxValueBytes)
	}
	record := &pb.MatchResultRecord{}
	switch contentType := kafka.Header(m, kafka.ContentType); contentType {
	case "", kafka.Protobuf:
		if err := proto.Unmarshal(m.Value, record); err != nil {
			return nil, fmt.Errorf("value is not a MatchResultRecord in protobuf: %w", err)
		}
	case kafka.JSON:
		if err := protojson.Unmarshal(m.Value, record); err != nil {
			return nil, fmt.Errorf("value is not a MatchResultRecord in JSON: %w", err)
		}
		if err := protoconv.CheckNumbers(m.Value); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("content-type %q is neither %s nor %s", contentType, kafka.Protobuf, kafka.JSON)
	}
	if record.GetResult() == nil {
		return nil, errors.New("value has no result")
	}
	if record.GetFetch() && (record.GetRetracted() || record.GetNotification() || record.GetIndexOnly()) {
		return nil, &leaderboard.FieldError{Field: "fetch", Problem: "must not be set together with retracted, notification or index_only"}
	}
	return record, nil
}

// toResult converts a record. Missing times become messageTime, so that a replay gives the same
// result.
func toResult(b *leaderboard.Board, record *pb.MatchResultRecord, messageTime time.Time) (leaderboard.MatchResult, error) {
	received, err := protoconv.ToTime("received_at", record.GetReceivedAt())
	if err != nil {
		return leaderboard.MatchResult{}, err
	}
	// An erasure removes results that were received before it. A received_at after the message's time
	// would let a result survive. The message's time is cut to milliseconds.
	if received.IsZero() || !messageTime.IsZero() && !received.Before(messageTime.Add(time.Millisecond)) {
		received = messageTime
	}
	r := leaderboard.MatchResult{
		ResultKey:  leaderboard.ResultKey{User: leaderboard.UserID(record.GetResult().GetUserId()), Match: leaderboard.MatchID(record.GetResult().GetMatchId())},
		ReceivedAt: received,
	}
	if record.GetFetch() {
		return r, r.CheckKey()
	}
	if record.GetRetracted() || record.GetNotification() {
		result := record.GetResult()
		r.Revision, r.Retracted = result.GetRevision(), record.GetRetracted()
		r.AchievedAt, err = protoconv.ToTime("achieved_at", result.GetAchievedAt())
	} else {
		r, err = protoconv.ToResult(b, record.GetResult())
		r.Assigned, r.Amends = record.GetAssigned(), record.GetAmends()
	}
	if err != nil {
		return r, err
	}
	if r.AchievedAt.IsZero() {
		r.AchievedAt, r.Assigned = messageTime, true
	}
	r.ReceivedAt = received
	return r, r.CheckKey()
}
