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
	// Region is the name of the consumer's own region. The consumer ignores mirrors
	// of its own region's topic, because it reads the topic itself.
	Region string
	// Group is the consumer group. Each region has its own group. Default "leaderboard".
	Group string
	// If InstanceID is not empty, it makes the group membership static. A process that restarts with
	// the same id within SessionTimeout gets its partitions back without a rebalance.
	InstanceID string
	// SessionTimeout is how long a consumer may be silent before the group assigns its partitions to
	// other consumers. Default 10s.
	SessionTimeout time.Duration
	// BatchResults is the largest number of messages in a batch. Default 512.
	BatchResults int
	// ApplyTimeout is the time after which an attempt to apply a batch begins no further write.
	// The next attempt begins once the running writes have ended, and applies the rest. A consumer
	// waits for its present attempt before it leaves the group. Default 30s.
	ApplyTimeout time.Duration
	// StuckAfter is how long a batch may make no progress before its consumer gives
	// up its partitions and rejoins the group. The time during which a server is
	// unavailable does not count: a batch waits for servers without limit. Default 2m.
	StuckAfter time.Duration
	// BoardWait is how long a result waits for a board that does not exist yet, before the result
	// becomes a dead letter. A result from another region may arrive before its board. Default 30s.
	BoardWait  time.Duration
	Log        *slog.Logger          // nil logs nothing
	Registerer prometheus.Registerer // nil means a private registry
	// TracerProvider records spans of each batch in which the headers of a message name
	// a sampled span. If it is nil, there are no spans.
	TracerProvider trace.TracerProvider

	// topicPoll is the interval at which a session looks for new and recreated
	// topics. Default 30s; tests set less.
	topicPoll time.Duration
	// lagPoll is the interval at which a session measures its lag.
	lagPoll time.Duration
	// advanceInterval is the interval at which the index records positions.
	advanceInterval time.Duration
	// maxGapUsers is the limit of gapUsers.
	maxGapUsers int
}

func (o Options) withDefaults() Options {
	o.Group = cmp.Or(o.Group, "leaderboard")
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 10*time.Second)
	o.BatchResults = cmp.Or(o.BatchResults, 512)
	o.ApplyTimeout = cmp.Or(o.ApplyTimeout, 30*time.Second)
	o.StuckAfter = cmp.Or(o.StuckAfter, 2*time.Minute)
	o.BoardWait = cmp.Or(o.BoardWait, 30*time.Second)
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

// isMirror reports whether topic mirrors another region's results.
func (o *Options) isMirror(topic string) bool {
	region, ok := strings.CutSuffix(topic, "."+o.Topics.Results())
	return ok && region != "" && region != o.Region && !strings.Contains(region, ".")
}
