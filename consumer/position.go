package consumer

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

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
// The metadata of each committed offset has the position, so no offset is ever committed without one.
//
// If the log lacks messages whose updates the index may lack, the position is lost: any season may
// lack an update. So the owner drops all seasons from the index. Until then, each commit states that
// the position is lost. If the owner dies, the next owner drops the seasons. A position is lost if
//
//   - the log begins after the position, or ends before the committed offset, or
//   - the topic was recreated, or
//   - no offset is committed, and old messages are gone: Kafka may have removed the offset too, or
//   - another program has committed an offset other than 0.
//
// Why no update is lost if a process dies:
//
//   - A message before the committed offset is applied, so the store has its result.
//   - The next owner applies the messages at and after the committed offset. This updates the index,
//     even if the results are in the store already.
//   - The index keeps the updates before a position, except in a season that Redis loses. Every
//     process notices such a loss. Kafka refuses commits of former owners.
//
// The consumers do not notice two kinds of loss. Then an operator must run `leaderboard verify --repair`.
//
//   - An unclean leader election loses messages, and the log grows beyond the committed offset before
//     a session begins.
//   - A topic is recreated while no consumer runs. Kafka removes the offsets of a deleted topic.

// metadata is the metadata of a committed offset. Its text is "topic@position", or "topic@lost".
type metadata struct {
	topic    string // the topic's id, or "" if the broker has none
	position int64  // or lostPosition
}

const (
	lostPosition = -1
	lostText     = "lost"
	topicIDBytes = 16
)

func (m metadata) String() string {
	if m.position == lostPosition {
		return m.topic + "@" + lostText
	}
	return m.topic + "@" + strconv.FormatInt(m.position, 10)
}

// parseMetadata reports whether this package has written text. Otherwise, the position is lost.
func parseMetadata(text string) (m metadata, ok bool) {
	topic, rest, _ := strings.Cut(text, "@")
	m = metadata{topic, lostPosition}
	if rest != lostText {
		m.position, _ = strconv.ParseInt(rest, 10, 64)
	}
	id, _ := hex.DecodeString(topic)
	if hex.EncodeToString(id) != topic || len(id) != 0 && len(id) != topicIDBytes || m.position < lostPosition || m.String() != text {
		return metadata{position: lostPosition}, false
	}
	return m, true
}

type partition struct {
	topic string
	id    int32
}

type position struct {
	start    int64      // the offset of the session's first message
	from     int64      // the offset of the first message whose updates this session has made or repeated
	offset   int64      // the position; if lost, the offset of the log's oldest message
	lost     bool       // see above
	caughtUp bool       // whether the index has the updates of all messages before start
	reported int64      // the offset after the last message whose outcome is in Kafka
	marked   commit     // the last commit, also of an earlier session
	applying sync.Mutex // held while a batch of the partition is applied
}

// commit is an offset to commit, and its metadata.
type commit struct {
	offset   int64
	metadata string
}

type positions struct {
	gaps gapUsers
	mu   sync.Mutex
	all  map[partition]*position
}

func newPositions(maxGapUsers int) *positions {
	return &positions{gaps: gapUsers{max: maxGapUsers}, all: map[partition]*position{}}
}

// begin sets the position at the start of a session. reset reports whether the session must start at
// the log's oldest message, because the stored offset is not in the log.
func (ps *positions) begin(p partition, stored commit, oldest, newest int64, recreated bool) (reset bool) {
	m, ok := parseMetadata(stored.metadata)
	if !ok && stored.offset == 0 { // no messages precede the offset
		m.position = 0
	}
	s := &position{start: oldest, offset: oldest, marked: stored}
	if stored.offset < 0 {
		s.lost = oldest > 0 || recreated
	} else if reset = recreated || stored.offset < oldest || stored.offset > newest; reset {
		s.lost = true
	} else {
		s.start = stored.offset
		known := min(m.position, stored.offset)
		s.offset, s.lost = max(known, oldest), known < oldest
	}
	s.from, s.reported = s.offset, s.start
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.all[p] = s
	return reset
}

// advance records that all messages before offset are reported. If synced is true, the index has
// this session's updates. advance returns the offset to commit. changed reports whether the commit
// differs from the last one.
func (ps *positions) advance(p partition, offset int64, topicID string, synced bool) (c commit, changed bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := ps.all[p]
	s.reported = max(s.reported, offset)
	if synced && s.caughtUp {
		s.offset = s.reported
	}
	m := metadata{topicID, s.offset}
	if s.lost {
		m.position = lostPosition
	}
	c = commit{s.reported, m.String()}
	changed = c != s.marked
	s.marked = c
	return c, changed
}

// gap returns the gap at the start of the session. begun is false before begin.
func (ps *positions) gap(p partition) (g gap, begun bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s, begun := ps.all[p]
	if !begun {
		return gap{}, false
	}
	return gap{from: s.offset, to: s.start, lost: s.lost}, true
}

// catchUp records that the index has the updates of all messages before offset.
func (ps *positions) catchUp(p partition, offset int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := ps.all[p]
	if s.lost { // the session has dropped all seasons, and repeated no updates
		s.from = offset
	}
	s.offset, s.lost, s.caughtUp = offset, false, true
}

// recorded returns the positions for Index.Advance, and their partitions. topics has the topics' ids.
func (ps *positions) recorded(topics map[string]string) (all []leaderboard.LogPosition, partitions []partition) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p, s := range ps.all {
		if s.caughtUp {
			all = append(all, leaderboard.LogPosition{Partition: fmt.Sprintf("%s/%d", cmp.Or(topics[p.topic], p.topic), p.id), From: s.from, Offset: s.offset})
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

// mark marks c for commit. sarama's MarkOffset only moves forward, and its ResetOffset only backward or
// in the metadata alone.
func (c commit) mark(s sarama.ConsumerGroupSession, p partition) {
	s.MarkOffset(p.topic, p.id, c.offset, c.metadata)
	s.ResetOffset(p.topic, p.id, c.offset, c.metadata)
}
