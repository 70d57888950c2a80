package ranking

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/open-leaderboard/leaderboard"
)

// Times are in Unix seconds; 0 means never.
type metrics struct {
	boards        *prometheus.GaugeVec
	entries       *prometheus.GaugeVec
	lastChange    prometheus.Gauge
	filled        prometheus.Gauge
	swept         prometheus.Gauge
	verified      prometheus.Gauge
	differences   *prometheus.GaugeVec
	degradedReads prometheus.Counter
	orphans       prometheus.Counter
	damagedCopies prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, running *fills) *metrics {
	const namespace = "leaderboard"
	f := promauto.With(reg)
	gauge := func(subsystem, name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	}
	m := &metrics{
		boards: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "boards",
			Help: "Boards when the rank index was last found complete, by policy."}, []string{"policy"}),
		entries: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: "index", Name: "entries",
			Help: "Ranked users of all seasons that are not sealed, when the rank index was last found complete, by the board's policy."}, []string{"policy"}),
		lastChange: gauge("index", "last_change_timestamp_seconds", "Time of the newest change of an entry in the rank index, when the index was last found complete."),
		filled:     gauge("index", "filled_timestamp_seconds", "Time when the rank index was last found complete: it contained every season that has users and is not sealed."),
		swept:      gauge("sweep", "last_success_timestamp_seconds", "Time of the last sweep without an error."),
		verified:   gauge("verify", "last_timestamp_seconds", "Time when the last verify on this process ended without an error."),
		differences: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: "verify", Name: "last_differences",
			Help: "Differences that the last verify on this process found and did not repair, by kind."}, []string{"kind"}),
		degradedReads: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "degraded_reads_total",
			Help: "Answers from the store, without ranks, because the rank index was unavailable."}),
		orphans: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: "sweep", Name: "orphan_rows_removed_total",
			Help: "Rows of ladders in Cassandra that matched no entry, and that this process has removed."}),
		damagedCopies: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: "linked", Name: "damaged_total",
			Help: "Times that a linked board did not get results of a user, because the stored data of the user on the linked board are damaged. Run verify."}),
	}
	m.setDifferences(nil)
	f.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Subsystem: "index", Name: "filled_users_total",
		Help: "Users that this process has read from the store to fill the rank index."}, func() float64 { return float64(running.users.Load()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: "index", Name: "fills",
		Help: "Seasons of the rank index that this process is filling."}, func() float64 { return float64(running.state().Seasons) })
	return m
}

type census struct {
	boards, entries map[leaderboard.Policy]int64
	lastChange      time.Time
}

func newCensus() *census {
	return &census{boards: map[leaderboard.Policy]int64{}, entries: map[leaderboard.Policy]int64{}}
}

func (c *census) add(b *leaderboard.Board, view leaderboard.View) {
	c.entries[b.Policy] += view.Size
	if view.AsOf.After(c.lastChange) {
		c.lastChange = view.AsOf
	}
}

func (m *metrics) setFilled(c *census) {
	for _, p := range leaderboard.Policies() {
		m.boards.WithLabelValues(p.String()).Set(float64(c.boards[p]))
		m.entries.WithLabelValues(p.String()).Set(float64(c.entries[p]))
	}
	if !c.lastChange.IsZero() {
		m.lastChange.Set(float64(c.lastChange.UnixMilli()) / 1000)
	}
	m.filled.SetToCurrentTime()
}

func (m *metrics) setDifferences(unrepaired map[DifferenceKind]int64) {
	for _, kind := range []DifferenceKind{DataDamaged, ResultMissing, VoidsWrong, EntryWrong, RowMissing, RowOrphan, IndexWrong, IndexSize, FinalWrong} {
		m.differences.WithLabelValues(string(kind)).Set(float64(unrepaired[kind]))
	}
}
