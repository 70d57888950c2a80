package consumer

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// beginPositions reads the committed offsets of the claims, and sets the positions of the rank index.
// If an offset is outside the log, or belongs to a deleted topic of the same name, the session starts
// at the oldest message.
//
// If the bounds of a partition's log are unknown, beginPosition sets its position later.
func (h handler) beginPositions(s sarama.ConsumerGroupSession) error {
	if len(s.Claims()) == 0 {
		return nil
	}
	admin, err := sarama.NewClusterAdminFromClient(h.client) // closing it would close the client
	if err != nil {
		return fmt.Errorf("consumer: offsets: %w", err)
	}
	committed, err := h.committed(admin, s.Claims())
	if err != nil {
		return err
	}
	oldest, oldestErr := admin.ListOffsets(offsetRequest(s, sarama.OffsetOldest), nil)
	newest, newestErr := admin.ListOffsets(offsetRequest(s, sarama.OffsetNewest), nil)
	for p, stored := range committed {
		first, end := oldest[p.topic][p.id], newest[p.topic][p.id]
		if known(first) && known(end) && h.begin(p, stored, first.Offset, end.Offset) {
			c, _ := h.positions.advance(p, first.Offset, h.topics[p.topic], false)
			c.mark(s, p)
		}
	}
	if err := errors.Join(oldestErr, newestErr); err != nil {
		h.o.Log.Warn("cannot compare committed offsets with the log", "err", err)
	}
	return nil
}

// beginPosition sets the position of a partition whose claim has begun. sarama has just read the bounds
// of its log, so an error is rare. It ends the session.
func (h handler) beginPosition(p partition) error {
	admin, err := sarama.NewClusterAdminFromClient(h.client) // closing it would close the client
	if err != nil {
		return fmt.Errorf("consumer: offsets: %w", err)
	}
	committed, err := h.committed(admin, map[string][]int32{p.topic: {p.id}})
	if err != nil {
		return err
	}
	oldest, err := h.client.GetOffset(p.topic, p.id, sarama.OffsetOldest)
	if err != nil {
		return fmt.Errorf("consumer: oldest offset of partition %d of %s: %w", p.id, p.topic, err)
	}
	newest, err := h.client.GetOffset(p.topic, p.id, sarama.OffsetNewest)
	if err != nil {
		return fmt.Errorf("consumer: newest offset of partition %d of %s: %w", p.id, p.topic, err)
	}
	if h.begin(p, committed[p], oldest, newest) {
		return fmt.Errorf("consumer: partition %d of %s: the next session resets the committed offset", p.id, p.topic)
	}
	return nil
}

func (h handler) begin(p partition, stored commit, oldest, newest int64) (reset bool) {
	id := h.topics[p.topic]
	m, _ := parseMetadata(stored.metadata)
	if stored.offset < 0 { // Kafka removes a topic's offsets with the topic
		m.topic = h.firstTopics[p.topic]
	}
	recreated := m.topic != "" && id != "" && m.topic != id
	reset = h.positions.begin(p, stored, oldest, newest, recreated)
	if reset {
		h.metrics.offsetResets.Inc()
		h.o.Log.Error("committed offset not in the log", "topic", p.topic, "partition", p.id,
			"committed", stored.offset, "oldest", oldest, "newest", newest, "recreated", recreated)
	}
	return reset
}

// committed returns the committed offsets of partitions, or -1.
func (c *Consumer) committed(admin sarama.ClusterAdmin, partitions map[string][]int32) (map[partition]commit, error) {
	response, err := admin.ListConsumerGroupOffsets(c.o.Group, partitions)
	if err != nil {
		return nil, fmt.Errorf("consumer: committed offsets: %w", err)
	}
	all := map[partition]commit{}
	for topic, ids := range partitions {
		for _, id := range ids {
			block := response.GetBlock(topic, id)
			err := sarama.ErrIncompleteResponse
			if block != nil {
				err = block.Err
			}
			if !errors.Is(err, sarama.ErrNoError) {
				return nil, fmt.Errorf("consumer: committed offset of partition %d of %s: %w", id, topic, err)
			}
			all[partition{topic, id}] = commit{block.Offset, block.Metadata}
		}
	}
	return all, nil
}

func known(o *sarama.OffsetResult) bool { return o != nil && errors.Is(o.Err, sarama.ErrNoError) }
