package pebble_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

func metricValues(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return values
}

func TestMetricsOfAStoreOnDisk(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, err := pebble.Open(t.TempDir(), pebble.Options{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	before := metricValues(t, reg)["leaderboard_embedded_sync_seconds"]
	if err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	got := metricValues(t, reg)
	if got["leaderboard_embedded_sync_seconds"] <= before {
		t.Errorf("the metric counts %v syncs before a durable write and %v after it, want more after it", before, got["leaderboard_embedded_sync_seconds"])
	}
	for _, name := range []string{"memtable_bytes", "disk_used_bytes", "disk_free_bytes", "disk_size_bytes"} {
		if got["leaderboard_embedded_"+name] <= 0 {
			t.Errorf("%s is %v, want more than 0", name, got["leaderboard_embedded_"+name])
		}
	}
	if free, size := got["leaderboard_embedded_disk_free_bytes"], got["leaderboard_embedded_disk_size_bytes"]; free > size {
		t.Errorf("%v bytes of the disk are free, want at most its size, %v bytes", free, size)
	}
	for _, name := range []string{"failed", "flushes_total", "compactions_total", "compaction_seconds_total", "compaction_debt_bytes", "read_amplification"} {
		if v, ok := got["leaderboard_embedded_"+name]; !ok || name == "failed" && v != 0 {
			t.Errorf("the metric %s has the value %v, exported: %v; want every metric exported, and failed at 0", name, v, ok)
		}
	}
}

// The engine of a failed store may hold its locks forever, so Collect must not wait for them.
func TestMetricsOfAFailedStore(t *testing.T) {
	var toggle errorfs.Toggle
	toggle.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	})
	reg := prometheus.NewRegistry()
	s, err := pebble.Open("data", pebble.Options{FS: errorfs.Wrap(vfs.NewMem(), &toggle), Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	toggle.On()
	if err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "b"}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Fatalf("CreateBoard on a broken disk: error %v, want ErrUnavailable", err)
	}
	if got := metricValues(t, reg)["leaderboard_embedded_failed"]; got != 1 {
		t.Errorf("leaderboard_embedded_failed is %v after a failed write, want 1", got)
	}
}
