package consumer

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
)

// measureLag measures the lag of the session's partitions once per lagPoll, until the
// session ends. Cleanup does not wait for it, because a request may take long. While
// Kafka does not answer, the metric keeps the last value.
func (h handler) measureLag(s sarama.ConsumerGroupSession) {
	ticker := time.NewTicker(h.o.lagPoll)
	defer ticker.Stop()
	for len(s.Claims()) > 0 {
		if lag, err := h.lag(s); err == nil && s.Context().Err() == nil {
			for topic, messages := range lag {
				h.metrics.lag.WithLabelValues(topic).Set(float64(messages))
			}
		}
		select {
		case <-ticker.C:
		case <-s.Context().Done():
			return
		}
	}
}

// lag returns the number of messages of each topic in the session's partitions after
// the committed offset, or after the oldest message if no offset is committed.
func (h handler) lag(s sarama.ConsumerGroupSession) (map[string]int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(h.client) // not closed: that would close the client
	if err != nil {
		return nil, err
	}
	committed, err := admin.ListConsumerGroupOffsets(h.o.Group, s.Claims())
	if err != nil {
		return nil, err
	}
	oldest, err := admin.ListOffsets(claimsAt(s, sarama.OffsetOldest), nil)
	if err != nil {
		return nil, err
	}
	newest, err := admin.ListOffsets(claimsAt(s, sarama.OffsetNewest), nil)
	if err != nil {
		return nil, err
	}
	lag := map[string]int64{}
	for topic, partitions := range s.Claims() {
		for _, p := range partitions {
			at, first, end := committed.GetBlock(topic, p), oldest[topic][p], newest[topic][p]
			if !known(first) || !known(end) {
				continue
			}
			from := first.Offset
			if at != nil && at.Err == sarama.ErrNoError {
				from = max(from, at.Offset) // -1 if no offset is committed
			}
			lag[topic] += max(0, end.Offset-from)
		}
	}
	return lag, nil
}

// claimsAt returns a request for the offset of each of the session's partitions.
func claimsAt(s sarama.ConsumerGroupSession, offset int64) map[string]map[int32]int64 {
	request := map[string]map[int32]int64{}
	for topic, partitions := range s.Claims() {
		request[topic] = map[int32]int64{}
		for _, p := range partitions {
			request[topic][p] = offset
		}
	}
	return request
}

// measureVisible measures applied items. It leaves out replayed messages, which are
// duplicates, and notifications, because nobody knows when their results were received.
func (h handler) measureVisible(items []*item) {
	now := time.Now()
	for _, i := range items {
		if i.cause == "" && !i.covered && i.outcome.Status == leaderboard.Applied && !i.record.GetNotification() {
			h.metrics.visible.Observe(max(0, now.Sub(i.result.ReceivedAt).Seconds()))
		}
	}
}
