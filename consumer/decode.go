package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		if err := checkNumbers(m.Value); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("content-type %q is neither %s nor %s", form, producer.Protobuf, producer.JSON)
	}
	if record.GetResult() == nil {
		return nil, errors.New("value has no result")
	}
	return record, nil
}

// checkNumbers returns a [leaderboard.FieldError] for a number of the metadata of
// a record in JSON that came back as another, as the API does.
func checkNumbers(value []byte) error {
	var record struct {
		Result struct{ Metadata json.RawMessage }
	}
	if err := json.Unmarshal(value, &record); err != nil {
		return fmt.Errorf("value is no MatchResultRecord in JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(record.Result.Metadata))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("value is no MatchResultRecord in JSON: %w", err)
		}
		if number, ok := token.(json.Number); ok {
			if problem := wire.NumberProblem(number); problem != "" {
				return &leaderboard.FieldError{Field: "result.metadata", Problem: problem}
			}
		}
	}
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
