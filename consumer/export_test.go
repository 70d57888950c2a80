package consumer

import "time"

// Service is the part of the ranking service that the consumer needs.
type Service = service

// WithTopicPoll returns o with another interval of the search for new and recreated topics.
func (o Options) WithTopicPoll(interval time.Duration) Options {
	o.topicPoll = interval
	return o
}

// WithLagPoll returns o with another interval of measuring the lag.
func (o Options) WithLagPoll(interval time.Duration) Options {
	o.lagPoll = interval
	return o
}

// WithAdvanceInterval returns o with another interval at which the index records positions.
func (o Options) WithAdvanceInterval(interval time.Duration) Options {
	o.advanceInterval = interval
	return o
}

// WithMaxGapUsers returns o with another limit of gapUsers (see gap.go).
func (o Options) WithMaxGapUsers(n int) Options {
	o.maxGapUsers = n
	return o
}

// MaxWaiting is the number of messages of a partition that may wait for their boards.
const MaxWaiting = maxWaiting

// PositionOf returns the position in the metadata of a committed offset, or -1. ok is false if another
// program has written the metadata.
func PositionOf(text string) (position int64, ok bool) {
	m, ok := parseMetadata(text)
	return m.position, ok
}

// FormatMetadata returns the metadata with a topic's id and a position. -1 means a lost position.
func FormatMetadata(topic string, position int64) string { return metadata{topic, position}.String() }
