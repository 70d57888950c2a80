package consumer

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// resetInvalidOffsets moves a committed offset to the oldest message if the offset is outside the
// log, or belongs to a deleted topic of the same name.
//
// If the bounds of the log are unknown, the offset stays. If this offset is invalid, sarama ends
// the session, and the next session checks the offset again.
func (h handler) resetInvalidOffsets(s sarama.ConsumerGroupSession) error {
	if len(s.Claims()) == 0 {
		return nil
	}
	admin, err := sarama.NewClusterAdminFromClient(h.client) // closing it would close the client
	if err != nil {
		return fmt.Errorf("consumer: offsets: %w", err)
	}
	committed, err := admin.ListConsumerGroupOffsets(h.o.Group, s.Claims())
	if err != nil {
		return fmt.Errorf("consumer: committed offsets: %w", err)
	}
	oldest, oldestErr := admin.ListOffsets(offsetRequest(s, sarama.OffsetOldest), nil)
	newest, newestErr := admin.ListOffsets(offsetRequest(s, sarama.OffsetNewest), nil)
	truncated := map[partition]int64{} // committed offsets of partitions that lost their newest messages
	for topic, partitions := range s.Claims() {
		for _, p := range partitions {
			stored, end := committed.GetBlock(topic, p), newest[topic][p]
			if stored != nil && stored.Err == sarama.ErrNoError && known(end) && stored.Offset > end.Offset {
				truncated[partition{topic, p}] = stored.Offset
			}
		}
	}
	// Do this before the reset, which removes the sign of the loss: an offset beyond the log's end.
	if err := h.markLostMessages(admin, truncated); err != nil {
		return fmt.Errorf("consumer: positions of the rank index: %w", err)
	}
	for topic, partitions := range s.Claims() {
		for _, p := range partitions {
			id := h.topics[topic]
			stored, first, end := committed.GetBlock(topic, p), oldest[topic][p], newest[topic][p]
			if stored == nil || stored.Err != sarama.ErrNoError || stored.Offset < 0 || !known(first) || !known(end) {
				continue
			}
			recreated := stored.Metadata != "" && id != "" && stored.Metadata != id
			if !recreated && first.Offset <= stored.Offset && stored.Offset <= end.Offset {
				continue
			}
			h.metrics.offsetResets.Inc()
			h.o.Log.Error("committed offset not in the log", "topic", topic, "partition", p,
				"committed", stored.Offset, "oldest", first.Offset, "newest", end.Offset, "recreated", recreated)
			s.ResetOffset(topic, p, first.Offset, id) // moves only backward
			s.MarkOffset(topic, p, first.Offset, id)  // moves only forward
		}
	}
	if err := errors.Join(oldestErr, newestErr); err != nil {
		return fmt.Errorf("consumer: offsets in the log: %w", err)
	}
	return nil
}

func known(o *sarama.OffsetResult) bool { return o != nil && errors.Is(o.Err, sarama.ErrNoError) }
