package consumer

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
)

// measureLag sets the lag metrics until the session ends.
func (h handler) measureLag(s sarama.ConsumerGroupSession) {
	ticker := time.NewTicker(h.o.lagPoll)
	defer ticker.Stop()
	for len(s.Claims()) > 0 {
		for topic, messages := range h.positions.lags() {
			h.metrics.indexLag.WithLabelValues(topic).Set(float64(messages))
		}
		if lag, err := h.lag(s); err == nil && s.Context().Err() == nil { // Cleanup resets the metrics at the end
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

// lag returns the number of uncommitted messages by topic.
func (h handler) lag(s sarama.ConsumerGroupSession) (map[string]int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(h.client) // closing it would close the client
	if err != nil {
		return nil, err
	}
	committed, err := admin.ListConsumerGroupOffsets(h.o.Group, s.Claims())
	if err != nil {
		return nil, err
	}
	oldest, err := admin.ListOffsets(offsetRequest(s, sarama.OffsetOldest), nil)
	if err != nil {
		return nil, err
	}
	newest, err := admin.ListOffsets(offsetRequest(s, sarama.OffsetNewest), nil)
	if err != nil {
		return nil, err
	}
	lag := map[string]int64{}
	for topic, partitions := range s.Claims() {
		for _, p := range partitions {
			block, first, end := committed.GetBlock(topic, p), oldest[topic][p], newest[topic][p]
			if !known(first) || !known(end) {
				continue
			}
			from := first.Offset
			if block != nil && block.Err == sarama.ErrNoError {
				from = max(from, block.Offset) // block.Offset is -1 if no offset is committed
			}
			lag[topic] += max(0, end.Offset-from)
		}
	}
	return lag, nil
}

func offsetRequest(s sarama.ConsumerGroupSession, offset int64) map[string]map[int32]int64 {
	request := map[string]map[int32]int64{}
	for topic, partitions := range s.Claims() {
		request[topic] = map[int32]int64{}
		for _, p := range partitions {
			request[topic][p] = offset
		}
	}
	return request
}

// measureVisible skips duplicates, because a replay produces duplicates. It skips notifications,
// because their time of receipt is unknown.
func (h handler) measureVisible(items []*item) {
	now := time.Now()
	for _, i := range items {
		if i.cause == "" && !i.covered && i.outcome.Status == leaderboard.Applied && !i.record.GetNotification() {
			h.metrics.visible.Observe(max(0, now.Sub(i.result.ReceivedAt).Seconds()))
		}
	}
}
