package ranking_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

// metrics returns the values of metrics. The key is "name", or "name label" with the value of the
// label.
func metrics(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	store, index := embedded.Open(t)
	broken := &faults.Index{Index: index}
	reg := prometheus.NewRegistry()
	f := serviceOver(t, store, broken)
	f.Service = ranking.New(store, broken, ranking.Options{Now: f.clock.now, Registerer: reg})
	t.Cleanup(f.Service.Close)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	f.create(leaderboard.Board{ID: "c", Policy: leaderboard.Best})
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("bob", "m", 3))
	if got := metrics(t, reg); got["leaderboard_index_filled_timestamp_seconds"] != 0 || got["leaderboard_boards SUM"] != 0 {
		t.Errorf("metrics before the first Load: %v, want 0 for filled_timestamp_seconds and boards SUM", got)
	}
	if err := f.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got := metrics(t, reg)
	for name, want := range map[string]float64{
		"leaderboard_boards SUM": 1, "leaderboard_boards BEST": 1, "leaderboard_boards LATEST": 0, "leaderboard_boards DECAY": 0, "leaderboard_boards COUNT": 0, "leaderboard_boards FIRST": 0, "leaderboard_boards AVERAGE": 0, "leaderboard_boards BEST_K": 0,
		"leaderboard_index_entries SUM": 2, "leaderboard_index_entries BEST": 0, "leaderboard_degraded_reads_total": 0,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (present: %v), want %v", name, value, ok, want)
		}
	}
	if age := time.Since(time.UnixMilli(int64(1000 * got["leaderboard_index_filled_timestamp_seconds"]))); age < -time.Second || age > time.Minute {
		t.Errorf("the index was filled %v ago, want less than a minute ago", age)
	}
	if got["leaderboard_index_last_change_timestamp_seconds"] == 0 {
		t.Error("last_change_timestamp_seconds is 0 after two submits, want a time")
	}

	broken.Set(faults.Refuse)
	if _, err := f.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 10}); err != nil {
		t.Fatal(err)
	}
	if n := metrics(t, reg)["leaderboard_degraded_reads_total"]; n != 1 {
		t.Errorf("%v degraded reads are counted, want 1", n)
	}
}

func TestVerifyMetrics(t *testing.T) {
	store, index := embedded.Open(t)
	reg := prometheus.NewRegistry()
	f := serviceOver(t, store, index)
	f.Service = ranking.New(store, index, ranking.Options{Now: f.clock.now, Registerer: reg})
	t.Cleanup(f.Service.Close)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	f.submit("b", points("ann", "m", 5))
	orphan := leaderboard.Entry{
		SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "nobody", Version: 9,
		Key: (&leaderboard.Board{}).ScorePrefix(1, start), AchievedAt: start,
	}
	if err := index.Update(t.Context(), orphan.SeasonKey, start, []leaderboard.Entry{orphan}); err != nil {
		t.Fatal(err)
	}
	for _, repair := range []bool{false, true} {
		unrepaired := map[string]float64{}
		if _, err := f.Verify(t.Context(), ranking.Selection{}, repair, nil, func(d ranking.Difference) error {
			if !d.Repaired {
				unrepaired["leaderboard_verify_last_differences "+string(d.Kind)]++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(unrepaired) == 0 != repair {
			t.Errorf("with repair=%v, Verify left the differences %v, want some only without repair", repair, unrepaired)
		}
		got := metrics(t, reg)
		if got["leaderboard_verify_last_timestamp_seconds"] == 0 {
			t.Error("verify_last_timestamp_seconds is 0 after a verify, want a time")
		}
		maps.DeleteFunc(got, func(name string, n float64) bool {
			return n == 0 || len(name) < 36 || name[:36] != "leaderboard_verify_last_differences "
		})
		if !maps.Equal(got, unrepaired) {
			t.Errorf("with repair=%v, the metrics show the differences %v, want the differences %v that Verify left", repair, got, unrepaired)
		}
	}
}

func TestSweepsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, index := embedded.Open(t)
		reg := prometheus.NewRegistry()
		s := ranking.New(store, index, ranking.Options{Registerer: reg})
		ctx, cancel := context.WithCancel(t.Context())
		var sweeping sync.WaitGroup
		sweeping.Go(func() { s.SweepEvery(ctx, time.Hour) })
		synctest.Wait()
		if metrics(t, reg)["leaderboard_sweep_last_success_timestamp_seconds"] == 0 {
			t.Error("sweep_last_success_timestamp_seconds is 0 after the first sweep, want a time")
		}
		cancel()
		sweeping.Wait()
		s.Close()
	})
}
