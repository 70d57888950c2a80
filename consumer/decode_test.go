package consumer

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Arbitrary bytes are rejected, or decoded to a result that any board can merge and a store can
// encode.
func FuzzMessage(f *testing.F) {
	score := int64(7)
	for _, r := range []*pb.MatchResultRecord{
		{Result: &pb.Result{UserId: "u", MatchId: "m", Points: &score}},
		{BoardId: "b", Season: "all", Retracted: true, Result: &pb.Result{UserId: "u", MatchId: "m", Revision: 3}},
		{Notification: true, Result: &pb.Result{UserId: "u", MatchId: "m"}},
		{Fetch: true, Result: &pb.Result{UserId: "u", MatchId: "m"}},
		{Result: &pb.Result{UserId: "u", MatchId: "m", Score: &score, Attributes: map[string]string{"team": "red"}, TieBreakers: []int64{1}}},
	} {
		binary, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		text, err := protojson.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(binary, kafka.Protobuf)
		f.Add(text, kafka.JSON)
	}
	f.Add([]byte(`{"result":{"user_id":"u","score":1e400}}`), kafka.JSON)
	f.Add([]byte{}, "text/plain")
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	boards := []leaderboard.Board{
		{ID: "b", Policy: leaderboard.Sum, TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}}},
		{ID: "b", Policy: leaderboard.Best, Divisions: []string{"team"}, Season: leaderboard.Schedule{Kind: leaderboard.Monthly, TimeZone: "UTC"}},
		{ID: "b", Policy: leaderboard.Decay, HalfLife: time.Hour},
	}
	f.Fuzz(func(t *testing.T, value []byte, contentType string) {
		record, err := decode(&sarama.ConsumerMessage{Value: value, Headers: []*sarama.RecordHeader{{Key: []byte(kafka.ContentType), Value: []byte(contentType)}}})
		if err != nil {
			return
		}
		for i := range boards {
			b := &boards[i]
			r, err := toResult(b, record, now)
			if err != nil {
				continue
			}
			if err := r.User.Validate(); err != nil {
				t.Error(err)
			}
			if err := r.Match.Validate(); err != nil {
				t.Error(err)
			}
			if record.GetFetch() {
				continue // no result
			}
			season, err := b.Season.At(r.AchievedAt)
			if err != nil {
				continue
			}
			r.Board, r.Season = b.ID, season.ID
			d := b.Merge(leaderboard.Known{}, r)
			if d.Put == nil {
				continue
			}
			back, err := leaderboard.DecodePayload(d.Put.ResultKey, d.Put.Revision, d.Put.AppendPayload(nil))
			if err != nil || back.ContentID() != d.Put.ContentID() {
				t.Errorf("the payload of %+v decodes to %+v, error %v; want the same content", d.Put, back, err)
			}
		}
	})
}
