package pebble

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard/internal/observe"
)

const (
	metricsNamespace = "leaderboard"
	metricsSubsystem = "embedded"
)

func newSyncSeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "sync_seconds",
		Help:    "Time to sync the log of the embedded store to disk. A write is acknowledged after a sync.",
		Buckets: observe.SecondsBuckets(),
	})
}

type engineMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*pebble.Metrics) float64
}

type collector struct {
	store  *Store
	dir    string
	engine []engineMetric
	failed *prometheus.Desc
	free   *prometheus.Desc
	size   *prometheus.Desc
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(metricsNamespace, metricsSubsystem, name), help, nil, nil)
}

func newCollector(s *Store, dir string) *collector {
	const counter, level = prometheus.CounterValue, prometheus.GaugeValue
	return &collector{
		store: s, dir: dir,
		engine: []engineMetric{
			{describe("memtable_bytes", "Memory of the memtables of the embedded store, in bytes."), level,
				func(m *pebble.Metrics) float64 { return float64(m.MemTable.Size) }},
			{describe("flushes_total", "Memtables that the embedded store has written to tables."), counter,
				func(m *pebble.Metrics) float64 { return float64(m.Flush.Count) }},
			{describe("compactions_total", "Compactions of the embedded store."), counter,
				func(m *pebble.Metrics) float64 { return float64(m.Compact.Count) }},
			{describe("compaction_seconds_total", "Time spent in compactions of the embedded store."), counter,
				func(m *pebble.Metrics) float64 { return m.Compact.Duration.Seconds() }},
			{describe("compaction_debt_bytes", "Estimate of the bytes that compactions still have to rewrite."), level,
				func(m *pebble.Metrics) float64 { return float64(m.Compact.EstimatedDebt) }},
			{describe("read_amplification", "Tables that a read of the embedded store may have to search."), level,
				func(m *pebble.Metrics) float64 { return float64(m.ReadAmp()) }},
			{describe("disk_used_bytes", "Disk space of the files of the embedded store, in bytes, without backups."), level,
				func(m *pebble.Metrics) float64 { return float64(m.DiskSpaceUsage()) }},
		},
		failed: describe("failed", "1 if the embedded store has stopped writing after an error of the disk, otherwise 0."),
		free:   describe("disk_free_bytes", "Free space of the file system of the data folder, in bytes."),
		size:   describe("disk_size_bytes", "Size of the file system of the data folder, in bytes."),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, descs) }

// Collect implements [prometheus.Collector]. A failed engine may hold its locks forever. So after a
// failure, Collect sends only metrics that need no lock.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
		metrics <- prometheus.MustNewConstMetric(d, kind, value)
	}
	c.store.fs.syncSeconds.Collect(metrics)
	if u, err := c.store.fs.GetDiskUsage(c.dir); err == nil { // a file system in memory returns an error
		send(c.free, prometheus.GaugeValue, float64(u.AvailBytes))
		send(c.size, prometheus.GaugeValue, float64(u.TotalBytes))
	}
	if c.store.failure() != nil {
		send(c.failed, prometheus.GaugeValue, 1)
		return
	}
	send(c.failed, prometheus.GaugeValue, 0)
	m := c.store.db.Metrics()
	for _, metric := range c.engine {
		send(metric.desc, metric.kind, metric.read(m))
	}
}

func (f *guardFile) timeSync(sync func() error) error {
	if !f.log {
		return sync()
	}
	start := time.Now()
	err := sync()
	f.g.syncSeconds.Observe(time.Since(start).Seconds())
	return err
}
