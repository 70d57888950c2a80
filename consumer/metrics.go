package consumer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/open-leaderboard/leaderboard/api/canonical"
	"github.com/open-leaderboard/leaderboard/internal/observe"
)

type metrics struct {
	results      *prometheus.CounterVec
	deadLetters  *prometheus.CounterVec
	retries      prometheus.Counter
	stuck        prometheus.Counter
	sessions     prometheus.Counter
	misplaced    prometheus.Counter
	offsetResets prometheus.Counter
	applyTime    prometheus.Histogram
	visible      prometheus.Histogram
	batch        prometheus.Histogram
	delay        *prometheus.GaugeVec
	lag          *prometheus.GaugeVec
	indexLag     *prometheus.GaugeVec
	partitions   prometheus.Gauge

	fetches        *prometheus.CounterVec
	fetchTime      prometheus.Histogram
	parkedFetches  *prometheus.CounterVec
	pendingFetches prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := promauto.With(reg)
	const namespace, subsystem = "leaderboard", "consumer"
	m := metrics{
		results: f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "results_total",
			Help: "Results applied and reported, by status."}, []string{"status"}),
		deadLetters: f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "dead_letters_total",
			Help: "Messages moved to the dead-letter topic, by cause."}, []string{"cause"}),
		retries: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "retries_total",
			Help: "Retries of a batch after a failed attempt to apply or report it."}),
		stuck: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "stuck_total",
			Help: "Times that the consumer rejoined the group because a batch made no progress while all servers were available."}),
		sessions: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "sessions_total",
			Help: "Sessions of the consumer group that this consumer has joined; each rebalance starts one."}),
		misplaced: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "misplaced_total",
			Help: "Messages that are not on the partition that the murmur2 hash of their user id selects. Their producer uses another partitioner."}),
		offsetResets: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "offset_resets_total",
			Help: "Partitions whose offset was reset to the oldest message because the committed offset was not in the log or the topic was recreated."}),
		applyTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "apply_seconds",
			Help: "Time from reading a batch until its outcomes are reported.", Buckets: observe.SecondsBuckets()}),
		visible: f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "visible_seconds",
			Help: "Time from receiving a result to its rank being visible, for results that this consumer applied. It compares the clocks of two machines.", Buckets: observe.SecondsBuckets()}),
		batch: f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "batch_results",
			Help: "Messages in a batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 12)}),
		delay: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "delay_seconds",
			Help: "Age of the first message of the last batch when the batch was read, by topic."}, []string{"topic"}),
		lag: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "lag_messages",
			Help: "Messages of this consumer's partitions whose offsets are not committed yet, by topic."}, []string{"topic"}),
		indexLag: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "index_lag_messages",
			Help: "Applied messages of this consumer's partitions whose updates the rank index may lack, by topic."}, []string{"topic"}),
		partitions: f.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "partitions",
			Help: "Partitions of all topics that the group has assigned to this consumer."}),
		fetches: f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "fetches_total",
			Help: "Calls of the game's own store, by outcome: fetched, not_found, unavailable or invalid."}, []string{"outcome"}),
		fetchTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "fetch_seconds",
			Help: "Time of a call of the game's own store.", Buckets: observe.SecondsBuckets()}),
		parkedFetches: f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "parked_fetches_total",
			Help: "Fetches that were parked in Kafka for canonical.retry_interval, by reason: failed, breaker, cooldown or full."}, []string{"reason"}),
		pendingFetches: f.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "pending_fetches",
			Help: "Fetches in the memory of this consumer."}),
	}
	// If a counter first appeared with the value 1, Prometheus would see no increase. So begin with 0.
	for _, c := range []cause{causeForm, causeInvalid, causeBoard, causeSeason, causeDamaged, causeFetch} {
		m.deadLetters.WithLabelValues(string(c))
	}
	for _, outcome := range []string{outcomeFetched, string(canonical.NotFound), string(canonical.Unavailable), string(canonical.Invalid)} {
		m.fetches.WithLabelValues(outcome)
	}
	for _, reason := range []parkReason{parkFailed, parkBreaker, parkCooldown, parkFull} {
		m.parkedFetches.WithLabelValues(string(reason))
	}
	return m
}
