package consumer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// item is a message, and what the consumer found out about it.
type item struct {
	message *sarama.ConsumerMessage
	readAt  time.Time
	record  *pb.MatchResultRecord // log.proto explains index_only, notification and fetch
	// boardSince, if not zero, is the time after which the board must have been read from the store.
	boardSince time.Time
	board      *leaderboard.Board // nil until resolve sets it
	missingAt  time.Time          // when the board was first found to be missing
	result     leaderboard.MatchResult
	outcome    leaderboard.Outcome
	before     leaderboard.RankKey // user's rank key before the batch
	// covered means that the consumer publishes no update message for this item: another item of the
	// batch reports the same entry, or the message has index_only or fetch set.
	covered    bool
	cause      cause // set if the message becomes a dead letter
	detail     error
	deadLetter *sarama.ProducerMessage
}

// applyBatch resolves items and applies the valid results. It retries while a server is
// unavailable. Errors: the cause of the session's end, or errStuck (see retry.go).
func (c *Consumer) applyBatch(session context.Context, items []*item) error {
	for len(items) > 0 {
		if err := c.retry(session, func(ctx context.Context) error { return c.resolve(ctx, items) }); err != nil {
			return err
		}
		n := prefixBeforeRetry(items)
		pending := slices.Clone(items[:n])
		for len(pending) > 0 {
			if err := c.retry(session, func(ctx context.Context) (err error) {
				if err := c.resolve(ctx, pending); err != nil { // resolve again the items whose board was deleted
					return err
				}
				pending = slices.DeleteFunc(pending, func(i *item) bool { return i.cause != "" })
				pending, err = c.applyLimited(ctx, pending)
				return err
			}); err != nil {
				return err
			}
		}
		items = items[n:]
		for _, i := range items {
			i.board = nil // resolve this item again: a result that was just applied may determine its season
		}
	}
	c.batchLimit.Store(min(2*c.batchLimit.Load(), int64(c.o.BatchResults)))
	return nil
}

// prefixBeforeRetry returns how many of the first items can be applied now. It stops at the second
// of two results without achieved_at that have the same user and match, but different seasons.
//
// If a producer retries a result without achieved_at while a season ends, the times of the two
// messages select different seasons. Once the first message is applied, resolve puts the
// second into the season of the first.
func prefixBeforeRetry(items []*item) int {
	seasons := map[leaderboard.ResultKey]leaderboard.SeasonID{} // by match; the keys lack the season
	for n, i := range items {
		if i.cause != "" || !i.result.Assigned {
			continue
		}
		match := i.result.ResultKey
		match.Season = ""
		if season, ok := seasons[match]; ok && season != i.result.Season {
			return n
		}
		seasons[match] = i.result.Season
	}
	return len(items)
}

// countMisplaced counts an item that is not on its user's partition. The consumer still
// applies the item.
func (c *Consumer) countMisplaced(i *item) {
	m := i.message
	partitions, err := c.client.Partitions(m.Topic)
	if err != nil || len(partitions) == 0 {
		return
	}
	expected, err := kafka.PartitionOf([]byte(i.record.GetResult().GetUserId()), int32(len(partitions)))
	if err == nil && expected != m.Partition {
		c.metrics.misplaced.Inc()
	}
}

// resolve decodes items, and sets each item's board and result, or its cause. Resolved items stay
// unchanged.
//
// A cached board may be old, and refuse a valid result. So if a board refuses a result, resolve gets
// a version that was read from the store after readAt. The sender knew no newer version, because it
// wrote the message before readAt.
func (c *Consumer) resolve(ctx context.Context, items []*item) error {
	for _, i := range items {
		if i.record == nil && i.cause == "" {
			i.decode()
		}
	}
	err := c.resolveBoards(ctx, items)
	reload := false
	for _, i := range items {
		if i.boardSince.IsZero() && (i.cause == causeSeason || i.cause == causeInvalid && i.record != nil ||
			i.board != nil && !i.record.GetNotification() && !i.record.GetFetch() && i.board.RefusalReason(&i.result) != "") {
			i.boardSince, i.board, i.cause, i.detail = i.readAt, nil, "", nil
			reload = true
		}
	}
	if reload {
		err = cmp.Or(err, c.resolveBoards(ctx, items))
	}
	return err
}

func (i *item) decode() {
	record, err := decode(i.message)
	if err == nil {
		i.record = record
		return
	}
	i.cause, i.detail = causeForm, err
	if errors.Is(err, leaderboard.ErrInvalid) {
		i.cause = causeInvalid
	}
}

func (i *item) boardID() leaderboard.BoardID {
	return cmp.Or(leaderboard.BoardID(i.record.GetBoardId()), leaderboard.DefaultBoard)
}

func (c *Consumer) resolveBoards(ctx context.Context, items []*item) error {
	type version struct {
		id    leaderboard.BoardID
		since time.Time
	}
	byBoard := map[version][]*item{}
	for _, i := range items {
		if i.board == nil && i.cause == "" {
			v := version{i.boardID(), i.boardSince}
			byBoard[v] = append(byBoard[v], i)
		}
	}
	type resolved struct {
		item  *item
		board *leaderboard.Board
	}
	var mu sync.Mutex
	var pairs []resolved
	boardErr := forEach(slices.Collect(maps.Keys(byBoard)), func(v version) error {
		var board leaderboard.Board
		var err error
		if v.since.IsZero() {
			board, err = c.service.Board(ctx, v.id)
		} else {
			board, err = c.service.BoardSince(ctx, v.id, v.since)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, i := range byBoard[v] {
			switch {
			case err == nil:
				pairs = append(pairs, resolved{i, &board})
			case errors.Is(err, leaderboard.ErrInvalid):
				i.cause, i.detail = causeBoard, err
			case !i.failIfPermanent(err):
				return err
			}
		}
		return nil
	})
	resultErr := forEach(pairs, func(p resolved) error {
		i := p.item
		result, err := c.result(ctx, p.board, i)
		if err == nil {
			i.board, i.result = p.board, result
		} else if !i.failIfPermanent(err) {
			return err
		}
		return nil
	})
	return cmp.Or(boardErr, resultErr)
}

// result returns the result of i. A retraction or a notification may name its season. Otherwise,
// Complete sets the season and missing fields.
func (c *Consumer) result(ctx context.Context, b *leaderboard.Board, i *item) (leaderboard.MatchResult, error) {
	r, err := toResult(b, i.record, i.message.Timestamp)
	if err == nil && !i.record.GetIndexOnly() {
		err = b.CheckDirect()
	}
	if err == nil && i.record.GetFetch() && c.o.Canonical == nil {
		err = errNoStore
	}
	if err != nil || i.record.GetFetch() {
		r.Board = b.ID
		return r, err
	}
	id := leaderboard.SeasonID(i.record.GetSeason())
	if id == "" || !r.Retracted && !i.record.GetNotification() {
		if r, err = c.service.Complete(ctx, b, r); err == nil {
			r.ReceivedAt = receivedAt(b, &r, i.message.Timestamp)
		}
		return r, err
	}
	season, err := b.Season.ByID(id)
	r.Board, r.Season = b.ID, season.ID
	return r, err
}

// maxReceiveDelay is the longest plausible time between ReceivedAt, set by the sender, and the
// timestamp of the Kafka message. It allows for clock differences.
const maxReceiveDelay = 10 * time.Minute

// receivedAt returns r.ReceivedAt, with one exception. If ReceivedAt is more than maxReceiveDelay
// before messageTime, and the season is closed at messageTime, receivedAt returns messageTime. A
// producer with a wrong clock must not add results to a closed season.
func receivedAt(b *leaderboard.Board, r *leaderboard.MatchResult, messageTime time.Time) time.Time {
	messageTime = leaderboard.Truncate(messageTime)
	season, err := b.Season.ByID(r.Season)
	if err == nil && messageTime.Sub(r.ReceivedAt) > maxReceiveDelay && b.Closed(season, messageTime) {
		return messageTime
	}
	return r.ReceivedAt
}

// applyLimited applies at most batchLimit items, and returns the items that are not yet applied. If
// ctx times out, it lowers batchLimit, because a large batch would always time out on a slow store.
func (c *Consumer) applyLimited(ctx context.Context, items []*item) (pending []*item, err error) {
	n := min(len(items), int(c.batchLimit.Load()))
	if n == 0 {
		return nil, nil
	}
	pending, err = c.apply(ctx, items[:n])
	if err != nil && ctx.Err() != nil {
		limit := n / 4
		if applied := n - len(pending); applied > 0 {
			limit, err = applied/2, nil
		}
		c.batchLimit.Store(int64(max(1, limit)))
	}
	return append(pending, items[n:]...), err
}

func (c *Consumer) apply(ctx context.Context, items []*item) (pending []*item, err error) {
	byBoard := map[leaderboard.BoardID][]*item{}
	var notifications, indexOnly []*item
	for _, i := range items {
		switch {
		case i.record.GetIndexOnly():
			indexOnly = append(indexOnly, i)
		case i.record.GetFetch():
			i.covered = true // the message moves to another topic: see outcomeMessages
		case i.record.GetNotification():
			notifications = append(notifications, i)
		default:
			byBoard[i.board.ID] = append(byBoard[i.board.ID], i)
		}
	}
	pending, err = c.refresh(ctx, notifications)
	rest, indexErr := c.reindex(ctx, indexOnly)
	unapplied, applyErr := c.applyEach(ctx, slices.Collect(maps.Values(byBoard)))
	return slices.Concat(pending, rest, unapplied), cmp.Or(applyErr, indexErr, err)
}

// reindex passes the stored entries of items to the rank index.
func (c *Consumer) reindex(ctx context.Context, items []*item) (pending []*item, err error) {
	seasons := map[leaderboard.SeasonKey][]*item{}
	for _, i := range items {
		i.covered = true
		seasons[i.result.SeasonKey] = append(seasons[i.result.SeasonKey], i)
	}
	for key, items := range seasons {
		var users []leaderboard.UserID
		var changedAt time.Time
		for _, i := range items {
			users = append(users, i.result.User)
			// Use the messages' time, not now: a replay must not make the ranks look newer.
			if i.message.Timestamp.After(changedAt) {
				changedAt = i.message.Timestamp
			}
		}
		if reindexErr := c.service.Reindex(ctx, key, users, changedAt); reindexErr != nil {
			unapplied, fault := retryUnlessPermanent(items, reindexErr)
			pending, err = append(pending, unapplied...), cmp.Or(err, fault)
		}
	}
	return pending, err
}

// applyResults applies results of one board. If a user's stored data cannot be decoded, only that
// user's items become dead letters.
func (c *Consumer) applyResults(ctx context.Context, items []*item) (pending []*item, err error) {
	results := make([]leaderboard.MatchResult, len(items))
	for n, i := range items {
		results[n] = i.result
	}
	report, err := c.service.Apply(ctx, items[0].board, results)
	if cause := permanentCause(err); cause != "" && cause != causeBoard {
		// The error may concern a single entry.
		if groups := slices.Collect(maps.Values(groupByEntry(items))); len(groups) > 1 {
			return c.applyEach(ctx, groups)
		}
	}
	if err != nil {
		return retryUnlessPermanent(items, err)
	}
	before := map[leaderboard.EntryKey]leaderboard.RankKey{}
	for _, change := range report.Changes {
		before[leaderboard.EntryKey{SeasonKey: change.Before.SeasonKey, User: change.Before.User}] = rankedKey(&change.Before)
	}
	for n, i := range items {
		i.outcome = report.Outcomes[n]
		if i.outcome.Err != nil {
			unapplied, fault := retryUnlessPermanent([]*item{i}, i.outcome.Err)
			pending, err = append(pending, unapplied...), cmp.Or(fault, err)
			continue
		}
		var changed bool
		if i.before, changed = before[leaderboard.EntryKey{SeasonKey: i.result.SeasonKey, User: i.result.User}]; !changed {
			i.before = rankedKey(&i.outcome.Entry)
		}
	}
	return pending, err
}

// retryUnlessPermanent returns the items to retry, and err. If err is permanent, the items become
// dead letters. If the board was deleted, a new board may have the same id. So the items lose their
// board, resolve looks for the new board, and the error is nil.
func retryUnlessPermanent(items []*item, err error) ([]*item, error) {
	if errors.Is(err, leaderboard.ErrBoardNotFound) && !errors.Is(err, leaderboard.ErrUnavailable) {
		for _, i := range items {
			i.board, i.boardSince = nil, time.Now()
		}
		return items, nil
	}
	for _, i := range items {
		if !i.failIfPermanent(err) {
			return items, err
		}
	}
	return nil, nil
}

func groupByEntry(items []*item) map[leaderboard.EntryKey][]*item {
	groups := map[leaderboard.EntryKey][]*item{}
	for _, i := range items {
		e := leaderboard.EntryKey{SeasonKey: i.result.SeasonKey, User: i.result.User}
		groups[e] = append(groups[e], i)
	}
	return groups
}

// Each group must be of one board.
func (c *Consumer) applyEach(ctx context.Context, groups [][]*item) (pending []*item, err error) {
	var mu sync.Mutex
	err = forEach(groups, func(items []*item) error {
		unapplied, err := c.applyResults(ctx, items)
		mu.Lock()
		defer mu.Unlock()
		pending = append(pending, unapplied...)
		return err
	})
	return pending, err
}

// refresh recomputes the entries of notifications from the store, each entry once.
func (c *Consumer) refresh(ctx context.Context, notifications []*item) (pending []*item, err error) {
	var mu sync.Mutex
	err = forEach(slices.Collect(maps.Values(groupByEntry(notifications))), func(items []*item) error {
		first := items[0]
		change, err := c.service.Refresh(ctx, first.board, first.result.Season, first.result.User)
		if err != nil {
			unapplied, err := retryUnlessPermanent(items, err)
			mu.Lock()
			defer mu.Unlock()
			pending = append(pending, unapplied...)
			return err
		}
		first.before, first.outcome = rankedKey(&change.Before), leaderboard.Outcome{Status: leaderboard.Applied, Entry: change.After}
		for _, i := range items[1:] {
			i.covered = true
		}
		return nil
	})
	return pending, err
}

func rankedKey(e *leaderboard.Entry) leaderboard.RankKey {
	if !e.Ranked() {
		return ""
	}
	return e.Key
}

// forEach calls f concurrently. An error does not stop the other calls.
func forEach[T any](elements []T, f func(T) error) error {
	const concurrency = 32
	var calls errgroup.Group
	calls.SetLimit(concurrency)
	for _, x := range elements {
		calls.Go(func() error { return f(x) })
	}
	return calls.Wait()
}
