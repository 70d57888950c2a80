package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// report publishes the outcomes of items: an update for each applied item, and a dead
// letter for each item with a cause. It returns nil once Kafka has acknowledged all of
// them. It retries while a server is unavailable.
func (c *Consumer) report(session context.Context, items []*item) error {
	var messages []*sarama.ProducerMessage
	if err := c.retry(session, func(ctx context.Context) (err error) {
		messages, err = c.outcomeMessages(ctx, items)
		return err
	}); err != nil {
		return err
	}
	session, end := kafka.TraceSend(session, c.o.Topics.Updates(), len(messages))
	err := c.retry(session, func(ctx context.Context) error {
		err := c.sender.Send(ctx, messages)
		if errors.Is(err, sarama.ErrMessageSizeTooLarge) {
			return c.sendOneByOne(ctx, items, messages)
		}
		return err
	})
	end(err)
	return err
}

// outcomeMessages returns the updates and dead letters for items.
func (c *Consumer) outcomeMessages(ctx context.Context, items []*item) ([]*sarama.ProducerMessage, error) {
	bands := c.bands(ctx, items)
	var messages []*sarama.ProducerMessage
	for _, i := range items {
		switch {
		case i.cause != "":
			c.metrics.deadLetters.WithLabelValues(string(i.cause)).Inc()
			c.deadLetterLog.add(i)
			i.deadLetter = newDeadLetter(c.o.Topics.DeadLetters(), i, maxDeadLetterBytes)
			messages = append(messages, i.deadLetter)
		case i.covered:
			c.metrics.results.WithLabelValues("NOTIFICATION").Inc()
		default:
			status := i.outcome.Status.String()
			if i.record.GetNotification() {
				status = "NOTIFICATION"
			}
			c.metrics.results.WithLabelValues(status).Inc()
			m, err := kafka.NewMessage(c.o.Topics.Updates(), string(i.result.User), update(i, bands))
			if err != nil {
				return nil, err
			}
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// update returns the update that reports the outcome of i.
func update(i *item, bands bandsOf) *pb.LeaderboardUpdate {
	now := time.Now()
	content := i.result.ContentID()
	u := &pb.LeaderboardUpdate{
		BoardId: string(i.result.Board), Season: string(i.result.Season), UserId: string(i.result.User),
		MatchId: string(i.result.Match), Revision: i.result.Revision, Status: protoconv.FromStatus(i.outcome.Status),
		Reason: string(i.outcome.Reason), AppliedAt: protoconv.Timestamp(now), RankKey: []byte(i.outcome.Entry.Key), ContentId: content[:],
		Hidden: i.outcome.Entry.Hidden,
	}
	if i.record.GetNotification() { // the update is about the user's entry, not about a result
		u.MatchId, u.Revision, u.ContentId = "", 0, nil
	}
	set := func(k leaderboard.RankKey, score, band **int64) {
		if k == "" {
			return
		}
		*score = new(int64)
		**score = int64(i.board.ScoreOf(k, now))
		if b := bands[i.result.SeasonKey][k]; b != 0 {
			*band = &b
		}
	}
	set(i.before, &u.OldScore, &u.OldRankBand)
	set(rankedKey(&i.outcome.Entry), &u.NewScore, &u.NewRankBand)
	return u
}

// bandsOf holds the rank band of each rank key, by season. A rank band is a rounded rank,
// as bandOf returns it; 0 means unknown.
type bandsOf map[leaderboard.SeasonKey]map[leaderboard.RankKey]int64

// bands returns the rank bands of all scores in a batch. It sends one request per
// season. If ranks are unavailable, the bands stay unknown.
func (c *Consumer) bands(ctx context.Context, items []*item) bandsOf {
	bands := bandsOf{}
	for _, i := range items {
		if i.cause != "" || i.covered {
			continue
		}
		keys := bands[i.result.SeasonKey]
		if keys == nil {
			keys = map[leaderboard.RankKey]int64{}
			bands[i.result.SeasonKey] = keys
		}
		for _, k := range []leaderboard.RankKey{i.before, rankedKey(&i.outcome.Entry)} {
			if k != "" {
				keys[k] = 0
			}
		}
	}
	for season, band := range bands {
		keys := slices.Collect(maps.Keys(band))
		if len(keys) == 0 {
			continue
		}
		ranks, err := c.service.RanksOf(ctx, season, keys)
		if err != nil {
			c.o.Log.WarnContext(ctx, "updates published without rank bands", "err", err)
			continue
		}
		for n, k := range keys {
			band[k] = bandOf(ranks[n])
		}
	}
	return bands
}

// bandOf returns the smallest of 1, 3, 10, 100, 1000, … that is at least rank.
func bandOf(rank int64) int64 {
	switch {
	case rank <= 1:
		return 1
	case rank <= 3:
		return 3
	}
	band := int64(10)
	for band < rank {
		band *= 10
	}
	return band
}
