package producer

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Programs outside of this module use these names.
type (
	// Options are the settings of the connections to the brokers. Options.Config returns the
	// configuration for [New].
	Options = kafka.Options
	// Topics contains the names of the topics of one service.
	Topics = kafka.Topics
)

// SendResults publishes results, and waits until Kafka has acknowledged all of them. The service has not
// applied them yet. If every record has a match_id, a repetition counts once. Errors: a
// [leaderboard.FieldError] if a record has no user_id or match_id, before anything is published; those
// of Send.
func (p *Producer) SendResults(ctx context.Context, t Topics, records ...*pb.MatchResultRecord) error {
	messages := make([]*sarama.ProducerMessage, len(records))
	for i, r := range records {
		for _, id := range []struct{ field, text string }{{"user_id", r.GetResult().GetUserId()}, {"match_id", r.GetResult().GetMatchId()}} {
			if id.text == "" {
				return &leaderboard.FieldError{Field: fmt.Sprintf("results[%d].%s", i, id.field), Problem: "is required"}
			}
		}
		m, err := kafka.NewMessage(t.Results(), r.GetResult().GetUserId(), r)
		if err != nil {
			return fmt.Errorf("producer: result of match %q: %w", r.GetResult().GetMatchId(), err)
		}
		messages[i] = m
	}
	return p.Send(ctx, messages)
}
