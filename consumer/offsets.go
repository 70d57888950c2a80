package consumer

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// mendOffsets moves the offsets of s that the log does not have, because their
// messages expired, and those of a topic that was made again since, to the oldest
// message there is. What expired before it was read is lost to the service, so it is told
// loudly; and it must not stop the session, with all its other partitions. An
// offset that cannot be looked at now is left: if it is none to read at, sarama
// ends the session, and the next one looks again.
func (h handler) mendOffsets(s sarama.ConsumerGroupSession) error {
	if len(s.Claims()) == 0 {
		return nil
	}
	admin, err := sarama.NewClusterAdminFromClient(h.client) // not closed: it would close the client
	if err != nil {
		return fmt.Errorf("consumer: offsets: %w", err)
	}
	at := func(where int64) map[string]map[int32]int64 {
		ask := map[string]map[int32]int64{}
		for topic, partitions := range s.Claims() {
			ask[topic] = map[int32]int64{}
			for _, p := range partitions {
				ask[topic][p] = where
			}
		}
		return ask
	}
	committed, err := admin.ListConsumerGroupOffsets(h.o.Group, s.Claims())
	if err != nil {
		return fmt.Errorf("consumer: committed offsets: %w", err)
	}
	oldest, err := admin.ListOffsets(at(sarama.OffsetOldest), nil)
	newest, nerr := admin.ListOffsets(at(sarama.OffsetNewest), nil)
	for topic, partitions := range s.Claims() {
		for _, p := range partitions {
			id := h.topics[topic]
			was, first, end := committed.GetBlock(topic, p), oldest[topic][p], newest[topic][p]
			if was == nil || was.Err != sarama.ErrNoError || was.Offset < 0 || !known(first) || !known(end) {
				continue
			}
			again := was.Metadata != "" && id != "" && was.Metadata != id
			if !again && first.Offset <= was.Offset && was.Offset <= end.Offset {
				continue
			}
			h.metrics.offsetResets.Inc()
			h.o.Log.Error("committed offset not in the log", "topic", topic, "partition", p,
				"committed", was.Offset, "oldest", first.Offset, "newest", end.Offset, "made_again", again)
			s.ResetOffset(topic, p, first.Offset, id) // which only goes back,
			s.MarkOffset(topic, p, first.Offset, id)  // and this only forth
		}
	}
	if err := errors.Join(err, nerr); err != nil {
		return fmt.Errorf("consumer: offsets in the log: %w", err)
	}
	return nil
}

func known(o *sarama.OffsetResult) bool { return o != nil && errors.Is(o.Err, sarama.ErrNoError) }
