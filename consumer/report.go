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
	ranks, bands := c.ranks(ctx, items), c.bandsOf(ctx, items)
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
			m, err := kafka.NewMessage(c.o.Topics.Updates(), string(i.result.User), update(i, ranks, bands[i.result.SeasonKey]))
			if err != nil {
				return nil, err
			}
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// update returns the update that reports the outcome of i. Parameter bands has the rank
// bands of the item's season.
func update(i *item, ranks ranksOf, bands bands) *pb.LeaderboardUpdate {
	now := time.Now()
	content := i.result.ContentID()
	u := &pb.LeaderboardUpdate{
		BoardId: string(i.result.Board), Season: string(i.result.Season), UserId: string(i.result.User),
		MatchId: string(i.result.Match), Revision: i.result.Revision, Status: protoconv.FromStatus(i.outcome.Status),
		Reason: string(i.outcome.Reason), AppliedAt: protoconv.Timestamp(now), RankKey: []byte(i.outcome.Entry.Key), ContentId: content[:],
		Hidden: i.outcome.Entry.Hidden,
	}
	set := func(k leaderboard.RankKey, score, band **int64) {
		if k == "" {
			return
		}
		*score = new(int64)
		**score = int64(i.board.ScoreOf(k, now))
		if b := bands.bandOf(k); b != 0 {
			*band = &b
		}
	}
	set(i.before, &u.OldScore, &u.OldRankBand)
	set(rankedKey(&i.outcome.Entry), &u.NewScore, &u.NewRankBand)
	if i.record.GetNotification() { // the update is about the user's entry, not about a result
		u.MatchId, u.Revision, u.ContentId = "", 0, nil
		return u
	}
	i.setPrevious(u, now, ranks)
	return u
}

// setPrevious sets the fields of an update about the user's state before the result.
func (i *item) setPrevious(u *pb.LeaderboardUpdate, now time.Time, ranks ranksOf) {
	o := &i.outcome
	u.Repeated, u.Stands = o.Repeated, o.Stands
	u.RankKeyBefore, u.RankKeyAfter = []byte(o.Before), []byte(o.After)
	if !o.Changed() {
		return
	}
	if best, ok := i.board.PersonalBest(o); ok {
		u.PersonalBest = &best
	}
	if o.Before == "" {
		return
	}
	score := int64(i.board.ScoreOf(o.Before, now))
	u.PreviousScore = &score
	if rank := ranks[i.result.SeasonKey][o.Before]; rank != 0 && !o.Entry.Hidden {
		rank = leaderboard.RankAmongOthers(rank, o.Before, o.Entry.Key)
		u.PreviousRank = &rank
	}
}

// ranksOf holds the competition rank of each rank key, by season; 0 means unknown.
type ranksOf map[leaderboard.SeasonKey]map[leaderboard.RankKey]int64

// ranks returns the competition ranks of the scores before the results of a batch. It sends
// one request per season. If ranks are unavailable, they stay unknown.
func (c *Consumer) ranks(ctx context.Context, items []*item) ranksOf {
	all := ranksOf{}
	for _, i := range items {
		if o := &i.outcome; i.cause != "" || i.covered || !o.Changed() || o.Entry.Hidden || o.Before == "" {
			continue
		}
		keys := all[i.result.SeasonKey]
		if keys == nil {
			keys = map[leaderboard.RankKey]int64{}
			all[i.result.SeasonKey] = keys
		}
		keys[i.outcome.Before] = 0
	}
	for season, known := range all {
		keys := slices.Collect(maps.Keys(known))
		ranks, err := c.service.RanksOf(ctx, season, keys)
		if err != nil {
			c.o.Log.WarnContext(ctx, "updates published without ranks", "err", err)
			continue
		}
		for n, k := range keys {
			known[k] = ranks[n]
		}
	}
	return all
}

const (
	bandsAge     = time.Second // how long bands are used after they were read
	maxBands     = 1024        // most seasons whose bands are kept
	lastBandSize = 1e10        // more than the users of any season
)

// bandSizes are the rank bands: 1, 3, 10, 100, 1000, …. A rank belongs to the smallest band
// that is at least as large.
var bandSizes = func() []int64 {
	sizes := []int64{1, 3}
	for n := int64(10); n <= lastBandSize; n *= 10 {
		sizes = append(sizes, n)
	}
	return sizes
}()

// bands are the rank bands of a season at a moment. The field keys has, for each band of
// bandSizes, the rank key at the band's last position. The key is empty if the season has
// fewer users.
type bands struct {
	at   time.Time
	keys []leaderboard.RankKey
}

// bandOf returns the band of the rank key k, or 0 if it is unknown.
func (b bands) bandOf(k leaderboard.RankKey) int64 {
	for i, last := range b.keys {
		if last == "" || k <= last { // fewer than bandSizes[i] users are better
			return bandSizes[i]
		}
	}
	return 0
}

// bandsOf returns the bands of the seasons of items. If ranks of a season are unavailable,
// the bands of this season are unknown.
func (c *Consumer) bandsOf(ctx context.Context, items []*item) map[leaderboard.SeasonKey]bands {
	all := map[leaderboard.SeasonKey]bands{}
	for _, i := range items {
		season := i.result.SeasonKey
		if _, done := all[season]; done || i.cause != "" || i.covered || i.before == "" && rankedKey(&i.outcome.Entry) == "" {
			continue
		}
		b, ok := c.bands.Get(season)
		if now := time.Now(); !ok || now.Sub(b.at) >= bandsAge {
			b = bands{at: now}
			var err error
			if b.keys, err = c.service.KeysAt(ctx, season, bandSizes); err != nil {
				c.o.Log.WarnContext(ctx, "updates published without rank bands", "err", err)
			} else {
				c.bands.Add(season, b)
			}
		}
		all[season] = b
	}
	return all
}
