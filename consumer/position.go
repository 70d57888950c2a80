package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
)

// # The position of the rank index
//
// The position of a partition is an offset. The seasons that are loaded into the rank index have the
// updates of all messages before this offset.
//
// Usually the position is the committed offset. While the index is not synced, the position stays,
// and the committed offset moves on. The messages between these offsets are a gap. If the partition's
// owner ends, the next owner reads the gap again. It does not apply these messages, but brings the
// index up to date for their users. Until then, reads may return old ranks of these users. Answers to
// submits have no old ranks, because the API node compares the entry with the index.
//
// Kafka stores the position as an offset of another group (see PositionGroup), with the topic's id as
// metadata. The metadata of the committed offset cannot hold the position: older versions of this
// program would take it for the id of a recreated topic, and read the whole log again. Older versions
// never move the position. It stays correct, because they commit only while their index is synced.
//
// Why no update is lost if a process dies:
//
//   - A message before the committed offset is applied, so the store has its result.
//   - The index keeps the updates before a position, except in a season that Redis loses. Every
//     process notices such a loss. If a former owner overwrites a newer position, the next owner only
//     reads more messages.
//   - While Kafka has no position, the consumer commits an offset only if the index has all updates
//     before this offset.
//   - The other group has no members. By default, Kafka removes its offsets after a week. So the
//     consumer sets a longer retention.
//   - If the log lacks messages of the gap, any season may lack an update. So the owner drops all
//     seasons from the index. Until then, the position's metadata is lostMessages. If the owner dies,
//     this metadata makes the next owner drop the seasons.
//
// If an unclean leader election loses messages, the log may grow beyond the committed offset before
// a session begins. The consumers do not notice such a loss: run `leaderboard verify --repair`.

const (
	positionInterval = time.Second
	// positionAge is the age at which an unchanged position is stored again.
	positionAge = time.Hour
	// positionRetention is how long Kafka keeps a position that is not stored again.
	positionRetention = 10 * 365 * 24 * time.Hour
	// maxPositionDelay bounds the waits for stored positions at the start and end of a session.
	maxPositionDelay = 3 * time.Second
	lostMessages     = "lost"
)

// PositionGroup returns the group that has the positions of a consumer group. The dot makes its name
// differ from every region's consumer group: these end with the region, which has no dot.
func PositionGroup(group string) string { return group + ".index" }

type partition struct {
	topic string
	id    int32
}

type position struct {
	from        int64      // the offset of the first message whose updates this session has made or repeated
	offset      int64      // the position
	topic       string     // the metadata of the position: the topic's id, or lostMessages
	stored      int64      // the position in Kafka, or -1
	storedTopic string     // its metadata
	storedAt    time.Time  // when this process last stored the position
	known       bool       // whether stored has been read
	caughtUp    bool       // whether the index has the updates of all messages before this session's first message
	reported    int64      // the offset after the last message whose outcome is in Kafka; -1 until begin or advance sets it
	applying    sync.Mutex // held while a batch of the partition is applied
}

type positions struct {
	gaps gapUsers
	mu   sync.Mutex
	all  map[partition]*position
}

func (ps *positions) reset(claims map[string][]int32, maxUsers int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.gaps.max = maxUsers
	ps.all = map[partition]*position{}
	for topic, ids := range claims {
		for _, id := range ids {
			ps.all[partition{topic, id}] = &position{stored: -1, reported: -1}
		}
	}
}

// advance records that all messages before offset are reported. If synced is true, the index has
// this session's updates. advance reports whether the consumer may commit offset.
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

// begin sets the position at the start of a session. stored is the position in Kafka, or -1. start is
// the offset of the session's first message.
func (ps *positions) begin(p partition, offset, stored, start int64, topicID string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := ps.all[p]
	s.from, s.offset, s.topic, s.stored, s.known, s.reported = offset, offset, topicID, stored, true, max(s.reported, start)
}

// catchUp records that the index has the updates of all messages before offset.
func (ps *positions) catchUp(p partition, offset int64, topicID string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := ps.all[p]
	if s.topic == lostMessages { // the session has dropped all seasons, and repeated no updates
		s.from = offset
	}
	s.offset, s.topic, s.caughtUp = offset, topicID, true
}

// due returns the positions to store now.
func (ps *positions) due(now time.Time) map[string]map[int32]sarama.OffsetAndMetadata {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	request := map[string]map[int32]sarama.OffsetAndMetadata{}
	for p, s := range ps.all {
		if !s.known || s.offset == s.stored && s.topic == s.storedTopic && now.Sub(s.storedAt) < positionAge {
			continue
		}
		if request[p.topic] == nil {
			request[p.topic] = map[int32]sarama.OffsetAndMetadata{}
		}
		request[p.topic][p.id] = sarama.OffsetAndMetadata{Offset: s.offset, LeaderEpoch: -1, Metadata: s.topic}
	}
	return request
}

// recorded returns the positions for Index.Advance, and their partitions.
func (ps *positions) recorded() (all []leaderboard.LogPosition, partitions []partition) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p, s := range ps.all {
		if s.caughtUp && s.topic != lostMessages {
			all = append(all, leaderboard.LogPosition{Partition: fmt.Sprintf("%s/%d", cmp.Or(s.topic, p.topic), p.id), From: s.from, Offset: s.offset})
			partitions = append(partitions, p)
		}
	}
	return all, partitions
}

// apply calls f while no other batch of the partition is applied.
func (ps *positions) apply(p partition, f func() error) error {
	ps.mu.Lock()
	s := ps.all[p]
	ps.mu.Unlock()
	s.applying.Lock()
	defer s.applying.Unlock()
	return f()
}

// lags returns, by topic, the number of reported messages after the positions.
func (ps *positions) lags() map[string]int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	lags := map[string]int64{}
	for p, s := range ps.all {
		lags[p.topic] += max(0, s.reported-s.offset)
	}
	return lags
}

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
			h.o.Log.Warn("cannot store positions of the rank index; partitions without a stored position commit offsets only while the index is up to date", "group", PositionGroup(h.o.Group), "err", err)
		}
		failed = err != nil
	}
}

func (h handler) storePositions() error {
	now := time.Now()
	request := h.positions.due(now)
	if len(request) == 0 {
		return nil
	}
	response, err := h.sendPositions(request)
	if err != nil {
		return err
	}
	var errs []error
	h.positions.mu.Lock()
	defer h.positions.mu.Unlock()
	for topic, offsets := range request {
		for id, stored := range offsets {
			if err := positionError(response, topic, id); err != nil {
				errs = append(errs, err)
				continue
			}
			state := h.positions.all[partition{topic, id}]
			state.stored, state.storedTopic, state.storedAt = stored.Offset, stored.Metadata, now
		}
	}
	return errors.Join(errs...)
}

// sendPositions uses version 4 of the request, the last version with a retention.
func (c *Consumer) sendPositions(positions map[string]map[int32]sarama.OffsetAndMetadata) (*sarama.OffsetCommitResponse, error) {
	group := PositionGroup(c.o.Group)
	request := &sarama.OffsetCommitRequest{
		Version: 4, ConsumerGroup: group, ConsumerGroupGeneration: sarama.GroupGenerationUndefined,
		RetentionTime: positionRetention.Milliseconds(),
	}
	for topic, offsets := range positions {
		for id, o := range offsets {
			request.AddBlock(topic, id, o.Offset, 0, o.Metadata)
		}
	}
	coordinator, err := c.client.Coordinator(group)
	if err != nil {
		return nil, err
	}
	response, err := coordinator.CommitOffset(request)
	moved := err != nil
	if err == nil {
		for _, partitions := range response.Errors {
			for _, err := range partitions {
				moved = moved || errors.Is(err, sarama.ErrNotCoordinatorForConsumer) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable)
			}
		}
	}
	if moved {
		err = errors.Join(err, c.client.RefreshCoordinator(group)) // the next attempt uses the new coordinator
	}
	return response, err
}

func positionError(response *sarama.OffsetCommitResponse, topic string, id int32) error {
	switch err, ok := response.Errors[topic][id]; {
	case !ok:
		return sarama.ErrIncompleteResponse
	case !errors.Is(err, sarama.ErrNoError):
		return err
	}
	return nil
}

// storeLastPositions stores the positions, so that the next owners read fewer messages again. A
// rebalance waits for storeLastPositions, so it gives up after maxPositionDelay.
func (h handler) storeLastPositions() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.storePositions()
	}()
	select {
	case <-done:
	case <-time.After(maxPositionDelay):
	}
}
