package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"

	"github.com/open-leaderboard/leaderboard"
)

// # The position of the rank index
//
// The position of a partition is an offset. The rank index lacks no update of a message before
// it, or every process treats the seasons that lack one as not loaded. Usually the position
// is the committed offset. While the index is not synced, the committed offset advances, but the
// position stays. If the owner of the partition ends then, its next owner reads the messages
// from the position up to the committed offset again. It applies and reports none of them: it
// only brings the index up to date for the users that they name (see CatchUp of
// [ranking.Applier]). At the same time it applies new messages. From the death of the former owner
// until then, reads may return the old ranks of these users. The answer to a submit does not: the
// API node compares the user's entry with the index (see eachRanked of [ranking.Submitter]).
//
// Positions are offsets of a group of their own, which has no members. The metadata of an offset
// is the id of the topic. They are not in the metadata of the consumer group's own offsets: an
// older version takes such metadata for the id of another topic, and begins the whole log again.
// An older version ignores positions, and commits an offset only while its index is synced. So
// the positions stay true below the offsets that it commits.
//
// Why no update is lost, whenever a process dies:
//
//   - A message before the committed offset is applied, so the store has its result.
//   - A stored position is a fact that stays true: what is before it cannot be missing later,
//     unless Redis loses the season, which every process notices. So it is harmless if a former
//     owner stores a position late. It may be too low, which costs work only.
//   - An offset after the position is committed only if a position is stored. So a missing position
//     means that the index lacked nothing before the committed offset.
//   - Kafka removes offsets of a group without members when they were not stored for a week.
//     Therefore a position is stored again at least every positionAge.
//   - If the log no longer has the messages after the position, any season may lack an update, so
//     all seasons that are in the index are dropped, and filled from the store. This happens
//     after an outage longer than the log's retention, or after a topic was created again.

const (
	// positionInterval is the interval at which changed positions are stored.
	positionInterval = time.Second
	// positionAge is the age at which a position is stored again.
	positionAge = time.Hour
	// maxPositionDelay bounds the time for which the end of a session waits for the last positions.
	maxPositionDelay = 3 * time.Second
	// maxGapUsers is the number of users, of all seasons, that a consumer remembers while it reads
	// a gap. If there are more, the largest season is treated as a whole.
	maxGapUsers = 1 << 18
	// gapIdle is the longest wait for the next message of a gap. A gap may end with messages that
	// a reader does not get, such as those of an aborted transaction.
	// The wait is longer than a read of the log may take, so a broker that hangs ends it with an error.
	gapIdle = 90 * time.Second
)

// PositionGroup returns the name of the group that keeps the positions of the consumer group. The
// names of regions have no dot, so it is never the consumer group of a region.
func PositionGroup(group string) string { return group + ".index" }

// partition is a partition of a topic.
type partition struct {
	topic string
	id    int32
}

// position is the state of the index's position in one partition.
type position struct {
	offset   int64     // the position
	topic    string    // the id of the topic to which offset belongs
	stored   int64     // the position in Kafka; -1 if it has none
	storedAt time.Time // when this process stored it last
	known    bool      // false until the stored position was read
	caughtUp bool      // true if the position follows the reported offset while the index is synced
	reported int64     // the offset after the last reported message; -1 if there is none
}

// positions are those of the partitions of one session.
type positions struct {
	mu      sync.Mutex
	all     map[partition]*position
	lost    sync.Mutex // held while seasons are dropped because messages are lost
	dropped bool       // guarded by lost: the session has dropped all seasons
}

// reset sets the partitions of a session.
func (ps *positions) reset(claims map[string][]int32) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.all = map[partition]*position{}
	for topic, ids := range claims {
		for _, id := range ids {
			ps.all[partition{topic, id}] = &position{stored: -1, reported: -1}
		}
	}
}

// advance records that all messages of a partition before offset are applied and reported. If
// synced is true, the index was synced after that. advance reports whether the consumer may
// commit offset.
func (ps *positions) advance(p partition, offset int64, synced bool) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := ps.all[p]
	s.reported = max(s.reported, offset)
	if synced && s.caughtUp {
		s.offset = max(s.offset, offset)
	}
	return s.stored >= 0 || synced && s.caughtUp
}

// begin sets the position of a partition at the start of a claim, which begins with the offset
// start. Parameter stored is the position in Kafka, or -1.
func (ps *positions) begin(p partition, offset, stored, start int64, topicID string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := ps.all[p]
	s.offset, s.topic, s.stored, s.known, s.reported = offset, topicID, stored, true, max(s.reported, start)
}

// catchUp records that the index lacks nothing before offset.
func (ps *positions) catchUp(p partition, offset int64, topicID string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := ps.all[p]
	s.offset, s.topic, s.caughtUp = offset, topicID, true
}

// due returns the positions to store. They are grouped as the request to Kafka needs them.
func (ps *positions) due(now time.Time) map[string]map[int32]sarama.OffsetAndMetadata {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	request := map[string]map[int32]sarama.OffsetAndMetadata{}
	for p, s := range ps.all {
		if !s.known || s.offset == s.stored && now.Sub(s.storedAt) < positionAge {
			continue
		}
		if request[p.topic] == nil {
			request[p.topic] = map[int32]sarama.OffsetAndMetadata{}
		}
		request[p.topic][p.id] = sarama.OffsetAndMetadata{Offset: s.offset, LeaderEpoch: -1, Metadata: s.topic}
	}
	return request
}

// lags returns, for each topic, the number of reported messages after the positions.
func (ps *positions) lags() map[string]int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	lags := map[string]int64{}
	for p, s := range ps.all {
		lags[p.topic] += max(0, s.reported-s.offset)
	}
	return lags
}

// keepPositions stores changed positions until the session ends.
func (h handler) keepPositions(s sarama.ConsumerGroupSession) {
	ticker := time.NewTicker(positionInterval)
	defer ticker.Stop()
	var failed bool
	for {
		select {
		case <-ticker.C:
		case <-s.Context().Done():
			return
		}
		err := h.storePositions()
		if err != nil && !failed {
			h.o.Log.Warn("positions of the rank index not stored; offsets are committed only while the index is synced", "group", PositionGroup(h.o.Group), "err", err)
		}
		failed = err != nil
	}
}

// storePositions stores changed positions in Kafka.
func (h handler) storePositions() error {
	now := time.Now()
	request := h.positions.due(now)
	if len(request) == 0 {
		return nil
	}
	admin, err := sarama.NewClusterAdminFromClient(h.client) // not closed: that would close the client
	if err != nil {
		return err
	}
	response, err := admin.AlterConsumerGroupOffsets(PositionGroup(h.o.Group), request, nil)
	if err != nil {
		return err
	}
	var errs []error
	h.positions.mu.Lock()
	defer h.positions.mu.Unlock()
	for topic, offsets := range request {
		for id, stored := range offsets {
			switch err, ok := response.Errors[topic][id]; {
			case !ok:
				errs = append(errs, sarama.ErrIncompleteResponse)
			case err != sarama.ErrNoError:
				errs = append(errs, err)
			default:
				state := h.positions.all[partition{topic, id}]
				state.stored, state.storedAt = stored.Offset, now
			}
		}
	}
	return errors.Join(errs...)
}

// storeLastPositions stores the positions at the end of a session, so that the next owners need not
// read messages again. It gives up after maxPositionDelay, because a rebalance waits for it.
func (h handler) storeLastPositions() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.storePositions() // if this fails, the next owners read some messages again
	}()
	select {
	case <-done:
	case <-time.After(maxPositionDelay):
	}
}

// gap is a part of a partition whose messages are applied, but whose updates the index may lack.
type gap struct {
	from, to int64 // offsets; to is not part of the gap
	lost     bool  // the log lacks messages of the gap
}

// followIndex brings the index up to date with the messages before a claim, and retries until this
// succeeds or ctx is done. After that, the position of the partition follows the reported offset.
func (h handler) followIndex(ctx context.Context, claim sarama.ConsumerGroupClaim) {
	p := partition{claim.Topic(), claim.Partition()}
	intervals := backoff.NewExponentialBackOff()
	intervals.InitialInterval, intervals.MaxInterval = 100*time.Millisecond, 5*time.Second
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		g, err := h.findGap(p, claim.InitialOffset())
		if err == nil {
			err = h.closeGap(ctx, p, g)
		}
		if err == nil {
			h.positions.catchUp(p, g.to, h.topics[p.topic])
		}
		return struct{}{}, err
	}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, wait time.Duration) {
		h.o.Log.Warn("rank index not brought up to date with applied messages", "topic", p.topic, "partition", p.id, "err", err, "in", wait)
	}))
}

// findGap reads the stored position of a partition, and returns the gap before the offset start,
// with which the claim begins. If start is negative, the claim begins with the oldest message.
func (h handler) findGap(p partition, start int64) (gap, error) {
	oldest, err := h.client.GetOffset(p.topic, p.id, sarama.OffsetOldest)
	if err != nil {
		return gap{}, err
	}
	if start < 0 {
		start = oldest
	}
	admin, err := sarama.NewClusterAdminFromClient(h.client) // not closed: that would close the client
	if err != nil {
		return gap{}, err
	}
	response, err := admin.ListConsumerGroupOffsets(PositionGroup(h.o.Group), map[string][]int32{p.topic: {p.id}})
	// Without access to the group, no position was stored, and none will be. The consumer then commits
	// offsets only while the index is synced.
	id, missing := h.topics[p.topic], errors.Is(err, sarama.ErrGroupIDNotFound) || errors.Is(err, sarama.ErrGroupAuthorizationFailed)
	if err != nil && !missing {
		return gap{}, err
	}
	var stored *sarama.OffsetFetchResponseBlock
	if !missing {
		stored = response.GetBlock(p.topic, p.id)
	}
	if stored != nil && stored.Err != sarama.ErrNoError {
		return gap{}, stored.Err
	}
	if stored == nil || stored.Offset < 0 {
		h.positions.begin(p, start, -1, start, id)
		return gap{from: start, to: start}, nil
	}
	g := gap{from: min(stored.Offset, start), to: start}
	recreated := stored.Metadata != "" && id != "" && stored.Metadata != id
	if g.lost = recreated || g.from < oldest; g.lost {
		// Until the index is brought up to date, the position in Kafka stays as it is, so that
		// another owner finds the same loss.
		h.positions.begin(p, stored.Offset, stored.Offset, start, stored.Metadata)
		return g, nil
	}
	h.positions.begin(p, g.from, stored.Offset, start, id)
	return g, nil
}

// closeGap brings the index up to date with the messages of a gap.
func (h handler) closeGap(ctx context.Context, p partition, g gap) error {
	if !g.lost && g.from == g.to {
		return nil
	}
	h.o.Log.Info("bringing the rank index up to date with applied messages", "topic", p.topic, "partition", p.id,
		"position", g.from, "offset", g.to, "messages_lost", g.lost)
	users := &gapUsers{seasons: map[leaderboard.SeasonKey]map[leaderboard.UserID]struct{}{}}
	if !g.lost && g.from < g.to {
		var err error
		if g.lost, err = h.readGap(ctx, p, g, users); err != nil {
			return err
		}
	}
	if !g.lost {
		if err := h.service.CatchUp(ctx, users.lists()); err != nil {
			return err
		}
		return h.waitUntilSynced(ctx)
	}
	h.positions.lost.Lock()
	defer h.positions.lost.Unlock()
	if h.positions.dropped { // for another partition, in this session: after the lost messages were applied
		return nil
	}
	err := h.service.CatchUpAll(ctx)
	if err == nil {
		err = h.waitUntilSynced(ctx)
	}
	h.positions.dropped = err == nil
	return err
}

// waitUntilSynced waits until the index lacks no update of this process. Until then, only this
// process knows of a missing update, so the position must stay.
func (h handler) waitUntilSynced(ctx context.Context) error {
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for !h.service.Synced() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// readGap reads the messages of a gap, and adds the users whom they name. It returns true if it
// did not get the last message of the gap within gapIdle.
func (h handler) readGap(ctx context.Context, p partition, g gap, users *gapUsers) (lost bool, err error) {
	reader, err := sarama.NewConsumerFromClient(h.client) // it needs no Close, which would leave the client open
	if err != nil {
		return false, err
	}
	messages, err := reader.ConsumePartition(p.topic, p.id, g.from)
	if err != nil {
		return false, fmt.Errorf("consumer: read partition %d of %s again: %w", p.id, p.topic, err)
	}
	defer messages.AsyncClose()
	idle := time.NewTimer(gapIdle)
	defer idle.Stop()
	var batch []*item
	for {
		select {
		case m, ok := <-messages.Messages():
			if !ok {
				return false, errors.New("consumer: the broker ended the read")
			}
			idle.Reset(gapIdle)
			last := m.Offset >= g.to-1
			if m.Offset < g.to {
				batch = append(batch, &item{message: m, readAt: time.Now()})
			}
			if last || len(batch) == h.o.BatchResults {
				if err := h.addUsers(ctx, batch, users); err != nil {
					return false, err
				}
				batch = nil
				idle.Reset(gapIdle)
			}
			if last {
				return false, nil
			}
		case err := <-messages.Errors():
			return false, err
		case <-idle.C:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// addUsers adds the users whose results the items have. An item that is not a valid result is a
// dead letter, which changed no entry.
func (c *Consumer) addUsers(ctx context.Context, items []*item, users *gapUsers) error {
	if err := c.resolve(ctx, items); err != nil {
		return err
	}
	for _, i := range items {
		if i.cause == "" {
			users.add(i.result.SeasonKey, i.result.User)
		}
	}
	return nil
}

// gapUsers are the users that the messages of a gap name, by season. A season without a set
// stands for all its users.
type gapUsers struct {
	seasons map[leaderboard.SeasonKey]map[leaderboard.UserID]struct{}
	n       int // users in all sets
}

func (g *gapUsers) add(key leaderboard.SeasonKey, user leaderboard.UserID) {
	set, ok := g.seasons[key]
	if ok && set == nil {
		return
	}
	if !ok {
		set = map[leaderboard.UserID]struct{}{}
		g.seasons[key] = set
	}
	before := len(set)
	set[user] = struct{}{}
	g.n += len(set) - before
	if g.n <= maxGapUsers {
		return
	}
	largest := key
	for k, set := range g.seasons {
		if len(set) > len(g.seasons[largest]) {
			largest = k
		}
	}
	g.n -= len(g.seasons[largest])
	g.seasons[largest] = nil
}

// lists returns the users as CatchUp takes them.
func (g *gapUsers) lists() map[leaderboard.SeasonKey][]leaderboard.UserID {
	lists := map[leaderboard.SeasonKey][]leaderboard.UserID{}
	for key, set := range g.seasons {
		if set == nil {
			lists[key] = nil
			continue
		}
		list := make([]leaderboard.UserID, 0, len(set))
		for user := range set {
			list = append(list, user)
		}
		lists[key] = list
	}
	return lists
}
