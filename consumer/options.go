package consumer

import (
	"cmp"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// Options are the settings of a [Consumer].
type Options struct {
	Brokers    []string
	Connection kafka.Options
	Topics     kafka.Topics
	// Region is the consumer's own region. The consumer ignores copies of this region's topic.
	Region string
	// Group is the consumer group. Each region has its own. Default "leaderboard".
	Group string
	// InstanceID, if not empty, keeps the partitions of a process that restarts within
	// SessionTimeout.
	InstanceID string
	// SessionTimeout is how long a consumer may be silent before other consumers get its
	// partitions. Default 10s.
	SessionTimeout time.Duration
	// BatchResults is the largest number of messages in a batch. Default 512.
	BatchResults int
	// After ApplyTimeout, an attempt to apply a batch begins no further write. The next attempt
	// applies the rest. Default 30s.
	ApplyTimeout time.Duration
	// If a batch makes no progress for StuckAfter, although all servers are available, the consumer
	// rejoins the group. Default 2m.
	StuckAfter time.Duration
	// BoardWait is how long a result waits for a missing board before it becomes a dead letter.
	// Default 30s.
	BoardWait time.Duration
	// Canonical is the game's own store, or nil. Without it, messages with fetch set become dead letters.
	Canonical  *Canonical
	Log        *slog.Logger          // nil logs nothing
	Registerer prometheus.Registerer // nil means a private registry
	// TracerProvider, unless nil, records spans of each batch with a sampled message.
	TracerProvider trace.TracerProvider

	topicPoll       time.Duration
	lagPoll         time.Duration
	advanceInterval time.Duration
	maxGapUsers     int // see gapUsers
}

func (o Options) withDefaults() Options {
	o.Group = cmp.Or(o.Group, "leaderboard")
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 10*time.Second)
	o.BatchResults = cmp.Or(o.BatchResults, 512)
	o.ApplyTimeout = cmp.Or(o.ApplyTimeout, 30*time.Second)
	o.StuckAfter = cmp.Or(o.StuckAfter, 2*time.Minute)
	o.BoardWait = cmp.Or(o.BoardWait, 30*time.Second)
	o.Canonical = o.Canonical.withDefaults()
	o.topicPoll = cmp.Or(o.topicPoll, 30*time.Second)
	o.lagPoll = cmp.Or(o.lagPoll, 10*time.Second)
	o.advanceInterval = cmp.Or(o.advanceInterval, time.Second)
	o.maxGapUsers = cmp.Or(o.maxGapUsers, 1<<18)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return o
}

func (o *Options) isMirror(topic string) bool {
	region, ok := strings.CutSuffix(topic, "."+o.Topics.Results())
	return ok && region != "" && region != o.Region && !strings.Contains(region, ".")
}
