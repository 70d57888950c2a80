package producer

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Journal writes a message for each index update that no message of the log caused, for example
// after a ban. The consumer of this message passes the user's entry to the rank index again.
type Journal struct {
	producer *Producer
	topic    string
}

// NewJournal returns a journal that writes to the topic of results.
func NewJournal(p *Producer, t kafka.Topics) *Journal { return &Journal{p, t.Results()} }

// unused is the match id of messages that concern no match. Older consumers require a match id.
const unused = "-"

// Note writes a message for each user of a season. It returns nil once Kafka has acknowledged all
// messages.
func (j *Journal) Note(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) error {
	messages := make([]*sarama.ProducerMessage, len(users))
	for i, user := range users {
		var err error
		if messages[i], err = kafka.NewMessage(j.topic, string(user), &pb.MatchResultRecord{
			BoardId: string(key.Board), Season: string(key.Season), Notification: true, IndexOnly: true,
			Result: &pb.Result{UserId: string(user), MatchId: unused},
		}); err != nil {
			return err
		}
	}
	return j.producer.Send(ctx, messages)
}
