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

// report publishes the update messages and dead letters of items, with retries. It returns nil once
// Kafka has acknowledged all messages.
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

func (c *Consumer) outcomeMessages(ctx context.Context, items []*item) ([]*sarama.ProducerMessage, error) {
	linked := linkedChanges(items)
	ranks, bands := c.ranks(ctx, items), c.bandsOf(ctx, items, linked)
	messages, err := c.linkedMessages(ctx, linked, bands)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		switch {
		case i.cause != "":
			c.metrics.deadLetters.WithLabelValues(string(i.cause)).Inc()
			c.deadLetterLog.add(i)
			i.deadLetter = newDeadLetter(c.o.Topics.DeadLetters(), i, maxDeadLetterBytes)
			messages = append(messages, i.deadLetter)
		case i.record.GetFetch():
			c.metrics.results.WithLabelValues("FETCH").Inc()
			// The region of a mirrored message fetches the result, and its log is mirrored too.
			if i.message.Topic == c.o.Topics.Results() {
				m, err := c.fetchMessage(i)
				if err != nil {
					return nil, err
				}
				messages = append(messages, m)
			}
		case i.covered:
			c.metrics.results.WithLabelValues("NOTIFICATION").Inc()
		default:
			status := i.outcome.Status.String()
			if i.record.GetNotification() {
				status = "NOTIFICATION"
			}
			c.metrics.results.WithLabelValues(status).Inc()
			m, err := kafka.NewMessage(c.o.Topics.Updates(), string(i.result.User), c.newUpdate(i, ranks, bands[i.result.SeasonKey]))
			if err != nil {
				return nil, err
			}
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// linkedChanges returns one change for each entry on a linked board.
func linkedChanges(items []*item) []leaderboard.Change {
	var changes []leaderboard.Change
	index := map[leaderboard.EntryKey]int{} // positions in changes
	for _, i := range items {
		if i.cause != "" {
			continue
		}
		for _, l := range i.outcome.Linked {
			key := leaderboard.EntryKey{SeasonKey: l.After.SeasonKey, User: l.After.User}
			n, known := index[key]
			switch {
			case known && l.After.Version > changes[n].After.Version:
				changes[n].After = l.After
			// If the board skipped the result and the entry is unchanged, no update message is needed.
			case !known && (l.Skipped == "" || l.Before.Version != l.After.Version):
				index[key] = len(changes)
				changes = append(changes, l.Change)
			}
		}
	}
	return changes
}

func (c *Consumer) linkedMessages(ctx context.Context, changes []leaderboard.Change, seasons map[leaderboard.SeasonKey]bands) ([]*sarama.ProducerMessage, error) {
	var messages []*sarama.ProducerMessage
	boards := map[leaderboard.BoardID]*leaderboard.Board{} // nil if the board was deleted
	for i := range changes {
		after := &changes[i].After
		b, known := boards[after.Board]
		if !known {
			stored, err := c.service.Board(ctx, after.Board)
			switch {
			case err == nil:
				b = &stored
			case !errors.Is(err, leaderboard.ErrBoardNotFound):
				return nil, err
			}
			boards[after.Board] = b
		}
		if b == nil {
			continue
		}
		u := c.entryUpdate(b, rankedKey(&changes[i].Before), after, seasons[after.SeasonKey], time.Now())
		m, err := kafka.NewMessage(c.o.Topics.Updates(), string(after.User), u)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// entryUpdate returns the update message of an entry. before is the user's rank key before the batch.
func (c *Consumer) entryUpdate(b *leaderboard.Board, before leaderboard.RankKey, after *leaderboard.Entry, bands bands, now time.Time) *pb.LeaderboardUpdate {
	u := &pb.LeaderboardUpdate{
		BoardId: string(b.ID), Season: string(after.Season), UserId: string(after.User), Status: pb.Outcome_APPLIED,
		AppliedAt: protoconv.Timestamp(now), RankKey: []byte(after.Key), Hidden: after.Hidden,
		IndexBehind: !c.service.Synced(after.SeasonKey),
	}
	set := func(k leaderboard.RankKey, score, band **int64) {
		if k == "" {
			return
		}
		*score = new(int64)
		**score = int64(b.ScoreOf(k, now))
		if n := bands.bandOf(k); n != 0 && b.FinishOf(k) == leaderboard.Ranked {
			*band = &n
		}
	}
	set(before, &u.OldScore, &u.OldRankBand)
	set(rankedKey(after), &u.NewScore, &u.NewRankBand)
	return u
}

func (c *Consumer) newUpdate(i *item, ranks rankTable, bands bands) *pb.LeaderboardUpdate {
	now, entry := time.Now(), i.outcome.Entry
	entry.SeasonKey, entry.User = i.result.SeasonKey, i.result.User
	u := c.entryUpdate(i.board, i.before, &entry, bands, now)
	u.Status, u.Reason = protoconv.FromStatus(i.outcome.Status), string(i.outcome.Reason)
	if i.record.GetNotification() {
		return u
	}
	content := i.result.ContentID()
	u.MatchId, u.Revision, u.ContentId = string(i.result.Match), i.result.Revision, content[:]
	for _, l := range i.outcome.Linked {
		u.Linked = append(u.Linked, &pb.LeaderboardUpdate_Linked{
			BoardId: string(l.After.Board), Season: string(l.After.Season), RankKey: []byte(l.After.Key), Hidden: l.After.Hidden, Skipped: string(l.Skipped),
		})
	}
	i.setPrevious(u, now, ranks)
	return u
}

// setPrevious sets the fields about the user's state before the result.
func (i *item) setPrevious(u *pb.LeaderboardUpdate, now time.Time, ranks rankTable) {
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

// rankTable has the competition ranks of rank keys, or 0 for unknown ranks.
type rankTable map[leaderboard.SeasonKey]map[leaderboard.RankKey]int64

// ranks returns the present ranks of the rank keys that users had before their results.
func (c *Consumer) ranks(ctx context.Context, items []*item) rankTable {
	all := rankTable{}
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
	var failures []error
	for season, seasonRanks := range all {
		keys := slices.Collect(maps.Keys(seasonRanks))
		ranks, err := c.service.RanksOf(ctx, season, keys)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for n, k := range keys {
			seasonRanks[k] = ranks[n]
		}
	}
	if len(failures) > 0 {
		c.o.Log.WarnContext(ctx, "cannot read ranks, publishing updates without previous ranks", "seasons", len(failures), "err", failures[0])
	}
	return all
}

// A band is a range of ranks: band 10 has the ranks 4 to 10.

const (
	bandsAge     = time.Second // how long cached bands are used
	maxBands     = 1024        // largest number of seasons whose bands are cached
	lastBandSize = 1e10        // more than the users of any season
)

// bandSizes has the last rank of each band.
var bandSizes = func() []int64 {
	sizes := []int64{1, 3}
	for n := int64(10); n <= lastBandSize; n *= 10 {
		sizes = append(sizes, n)
	}
	return sizes
}()

// bands has a season's rank key at the last rank of each band. The key is empty if the season has
// fewer users.
type bands struct {
	readAt time.Time
	keys   []leaderboard.RankKey
}

// bandOf returns the band of k, or 0 if the band is unknown.
func (b bands) bandOf(k leaderboard.RankKey) int64 {
	for i, last := range b.keys {
		if last == "" || k <= last { // fewer than bandSizes[i] users have a better key
			return bandSizes[i]
		}
	}
	return 0
}

// bandsOf returns the available bands of the seasons of items and linked.
func (c *Consumer) bandsOf(ctx context.Context, items []*item, linked []leaderboard.Change) map[leaderboard.SeasonKey]bands {
	all := map[leaderboard.SeasonKey]bands{}
	var failures []error
	add := func(season leaderboard.SeasonKey, before, after leaderboard.RankKey) {
		if _, done := all[season]; !done && (before != "" || after != "") {
			var err error
			if all[season], err = c.seasonBands(ctx, season); err != nil {
				failures = append(failures, err)
			}
		}
	}
	for _, i := range items {
		if i.cause == "" && !i.covered {
			add(i.result.SeasonKey, i.before, rankedKey(&i.outcome.Entry))
		}
	}
	for i := range linked {
		add(linked[i].After.SeasonKey, rankedKey(&linked[i].Before), rankedKey(&linked[i].After))
	}
	if len(failures) > 0 {
		c.o.Log.WarnContext(ctx, "cannot read rank bands, publishing updates without them", "seasons", len(failures), "err", failures[0])
	}
	return all
}

// seasonBands returns the bands of a season, at most bandsAge old.
func (c *Consumer) seasonBands(ctx context.Context, season leaderboard.SeasonKey) (bands, error) {
	b, ok := c.bands.Get(season)
	now := time.Now()
	if ok && now.Sub(b.readAt) < bandsAge {
		return b, nil
	}
	keys, err := c.service.KeysAt(ctx, season, bandSizes)
	if err != nil {
		return bands{}, err
	}
	b = bands{now, keys}
	c.bands.Add(season, b)
	return b, nil
}
