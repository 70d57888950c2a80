package compose

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// At the time of the last sample, the alert fires with the series in fires, and does not fire with
// the series in silent.
//
// Each line is a series in the notation of promtool's tests, with a sample a minute from 1970: 0x60
// is 0 for an hour, and 5+2x60 begins at 5 and grows by 2 a minute.
type alertTest struct{ fires, silent string }

// counterTest is for an alert that fires after any increase of a counter.
func counterTest(series string) alertTest {
	return alertTest{series + " 0x55 1x4", series + " 7x60"}
}

// visible returns two series: the submits that became visible within target seconds, with the given
// samples, and all submits.
func visible(target, inTime string) string {
	const series = `leaderboard_api_visible_seconds_`
	return series + `bucket{method="SubmitScore",le="` + target + `"} ` + inTime + "\n" + series + `count{method="SubmitScore"} 0+100x500`
}

// embedded makes the series those of an embedded server.
func embedded(series string) string { return series + "\nleaderboard_embedded_failed 0x500" }

var alertTests = map[string]alertTest{
	"Down": {`up{job="leaderboard",instance="a"} 0x60`, `
		up{job="leaderboard",instance="a"} 0x57 1x2
		up{job="leaderboard",instance="embedded"} 0x60
		leaderboard_embedded_failed{instance="embedded"} 0x30
		up{job="other"} 0x60`},
	"EmbeddedDown": {`
		up{job="leaderboard",instance="a"} 1x30 0x30
		leaderboard_embedded_failed{instance="a"} 0x30`, `
		up{job="leaderboard",instance="a"} 0x60
		up{job="leaderboard",instance="embedded"} 0x57 1x2
		leaderboard_embedded_failed{instance="embedded"} 0x60`},
	"CallsFail": {`
		leaderboard_api_call_seconds_count{code="OK"} 0+100x60
		leaderboard_api_call_seconds_count{code="Unavailable"} 0+1x60
		leaderboard_api_call_seconds_count{code="Internal"} 0+1x60`, `
		leaderboard_api_call_seconds_count{code="OK"} 0+200x60
		leaderboard_api_call_seconds_count{code="Unavailable"} 0+1x60
		leaderboard_api_call_seconds_count{code="NotFound"} 0+50x60`},
	"CallsAreSlow": {`
		leaderboard_api_call_seconds_bucket{method="TopScores",le="0.25"} 0+90x60
		leaderboard_api_call_seconds_bucket{method="TopScores",le="0.5"} 0+100x60
		leaderboard_api_call_seconds_bucket{method="TopScores",le="+Inf"} 0+100x60`, `
		leaderboard_api_call_seconds_bucket{method="TopScores",le="0.25"} 0+96x60
		leaderboard_api_call_seconds_bucket{method="TopScores",le="0.5"} 0+100x60
		leaderboard_api_call_seconds_bucket{method="TopScores",le="+Inf"} 0+100x60
		leaderboard_api_call_seconds_bucket{method="WatchScores",le="0.25"} 0x60
		leaderboard_api_call_seconds_bucket{method="WatchScores",le="+Inf"} 0+500x60`},
	// The silent samples miss the target over the rule's long window, and meet the target over its
	// short window.
	"SLOBurnsFast":           {visible("0.25", "0+20x500"), visible("0.25", "0x492 0+100x7")},
	"SLOBurnsSlowly":         {visible("0.25", "0+60x500"), visible("0.25", "0x459 0+100x40")},
	"EmbeddedSLOBurnsFast":   {embedded(visible("0.05", "0+20x500")), embedded(visible("0.05", "0x492 0+100x7"))},
	"EmbeddedSLOBurnsSlowly": {embedded(visible("0.05", "0+60x500")), embedded(visible("0.05", "0x459 0+100x40"))},
	"Panic":                  counterTest(`leaderboard_api_panics_total`),
	"ReadsAreDegraded":       {`leaderboard_degraded_reads_total 0+1x60`, `leaderboard_degraded_reads_total 7x60`},
	"IndexNotFilled": {`leaderboard_index_filled_timestamp_seconds 0+60x39 2340x20`, `
		leaderboard_index_filled_timestamp_seconds{instance="a"} 0+60x60
		leaderboard_index_filled_timestamp_seconds{instance="b"} 0+60x44 2640x15`},
	"SweepIsOld": {`leaderboard_sweep_last_success_timestamp_seconds 0+60x39 2340x20`, `
		leaderboard_sweep_last_success_timestamp_seconds{instance="a"} 0+60x60
		leaderboard_sweep_last_success_timestamp_seconds{instance="b"} 0+60x44 2640x15`},
	"VerifyFoundDifferences": {`leaderboard_verify_last_differences{kind="entry"} 1x60`, `leaderboard_verify_last_differences{kind="entry"} 1x59 0`},
	"StoreStopped":           {`leaderboard_embedded_failed 0x59 1`, `leaderboard_embedded_failed 0x60`},
	"DiskIsFull": {`
		leaderboard_embedded_disk_free_bytes 9x60
		leaderboard_embedded_disk_size_bytes 100x60`, `
		leaderboard_embedded_disk_free_bytes 11x60
		leaderboard_embedded_disk_size_bytes 100x60`},
	"SyncsAreSlow": {`
		leaderboard_embedded_sync_seconds_bucket{le="0.05"} 0+90x60
		leaderboard_embedded_sync_seconds_bucket{le="0.1"} 0+100x60
		leaderboard_embedded_sync_seconds_bucket{le="+Inf"} 0+100x60`, `
		leaderboard_embedded_sync_seconds_bucket{le="0.05"} 0+96x60
		leaderboard_embedded_sync_seconds_bucket{le="0.1"} 0+100x60
		leaderboard_embedded_sync_seconds_bucket{le="+Inf"} 0+100x60`},
	"CompactionsAreBehind": {`leaderboard_embedded_read_amplification 31x60`, `leaderboard_embedded_read_amplification 30x31 31x28`},
	"BackupIsOld": {`leaderboard_backup_last_success_timestamp_seconds 60x2900`, `
		leaderboard_backup_last_success_timestamp_seconds{instance="without"} 0x2900
		leaderboard_backup_last_success_timestamp_seconds{instance="daily"} 60x1439 86400x1460`},
	"BackupFails":  counterTest(`leaderboard_backup_failures_total`),
	"ArchiveFails": counterTest(`leaderboard_archive_failures_total`),
	"NoConsumer": {`
		leaderboard_consumer_partitions{instance="a"} 0x60
		leaderboard_consumer_partitions{instance="b"} 0x60`, `
		leaderboard_consumer_partitions{instance="a"} 0x60
		leaderboard_consumer_partitions{instance="b"} 48x60`},
	"ResultsAreLate": {`leaderboard_consumer_delay_seconds{topic="a"} 31x60`, `
		leaderboard_consumer_delay_seconds{topic="a"} 29x60
		leaderboard_consumer_delay_seconds{topic="b"} 0x57 90x2`},
	"LagGrows": {`
		leaderboard_consumer_lag_messages{topic="a",partition="0"} 9000+10x60
		leaderboard_consumer_lag_messages{topic="a",partition="1"} 2000x60`, `
		leaderboard_consumer_lag_messages{topic="falls",partition="0"} 90000-10x60
		leaderboard_consumer_lag_messages{topic="small",partition="0"} 0+100x60`},
	"IndexLags":                    {`leaderboard_consumer_index_lag_messages{topic="a"} 5x60`, `leaderboard_consumer_index_lag_messages{topic="a"} 5x50 0x9`},
	"BatchesAreRetried":            {`leaderboard_consumer_retries_total 0+7x60`, `leaderboard_consumer_retries_total 0+5x60`},
	"PartitionStuck":               counterTest(`leaderboard_consumer_stuck_total`),
	"RebalancesOften":              {`leaderboard_consumer_sessions_total 0x50 1+1x9`, `leaderboard_consumer_sessions_total 0x55 1+1x3`},
	"ResultsExpired":               counterTest(`leaderboard_consumer_offset_resets_total`),
	"DamagedData":                  {`leaderboard_consumer_dead_letters_total{cause="damaged"} 0x55 1x4`, `leaderboard_consumer_dead_letters_total{cause="invalid"} 0x55 1x4`},
	"GameStoreFails":               {`leaderboard_consumer_fetches_total{outcome="unavailable"} 0+1x60`, `leaderboard_consumer_fetches_total{outcome="not_found"} 0+1x60`},
	"DeadLetters":                  {`leaderboard_consumer_dead_letters_total{cause="invalid"} 0x55 1x4`, `leaderboard_consumer_dead_letters_total{cause="damaged"} 0x55 1x4`},
	"ProducerUsesOtherPartitioner": counterTest(`leaderboard_consumer_misplaced_total`),
	"CassandraNodeDown": {`leaderboard_cassandra_nodes{state="down"} 1x60`, `
		leaderboard_cassandra_nodes{state="up"} 3x60
		leaderboard_cassandra_nodes{state="down"} 0x57 1x2`},
	"CassandraIsRetried": {`leaderboard_cassandra_retries_total 0+70x60`, `leaderboard_cassandra_retries_total 0+50x60`},
	"RedisDown": {`
		leaderboard_redis_masters{instance="a"} 0x60
		leaderboard_redis_masters{instance="b"} 0x60`, `
		leaderboard_redis_masters{instance="a"} 0x60
		leaderboard_redis_masters{instance="b"} 1x60`},
	"ShardsInDoubt": {`leaderboard_redis_shards{state="in_doubt"} 3x60`, `
		leaderboard_redis_shards{state="live"} 3x60
		leaderboard_redis_shards{state="not_loaded"} 3x60
		leaderboard_redis_shards{state="in_doubt"} 0x58 3x1`},
	"RedisIsFull": {`
		leaderboard_redis_used_memory_bytes 86x60
		leaderboard_redis_max_memory_bytes 100x60`, `
		leaderboard_redis_used_memory_bytes{instance="without a limit"} 86x60
		leaderboard_redis_max_memory_bytes{instance="without a limit"} 0x60`},
	"RedisEvicts":          counterTest(`leaderboard_redis_evicted_keys`),
	"RedisIsSlow":          {`leaderboard_redis_slow_commands 0+2x60`, `leaderboard_redis_slow_commands 0+0.5x60`},
	"RedisReplicaBehind":   {`leaderboard_redis_replication_lag_bytes 17000000x60`, `leaderboard_redis_replication_lag_bytes 16000000x60`},
	"RedisPoolIsExhausted": {`leaderboard_redis_pool_timeouts_total 0+1x60`, `leaderboard_redis_pool_timeouts_total 7x60`},
}

func TestAlertsFire(t *testing.T) {
	groups, errs := rulefmt.ParseFile(filepath.Join(root, "deploy/prometheus/alerts.yml"), false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			seen[r.Alert] = true
			tt, ok := alertTests[r.Alert]
			if !ok {
				t.Errorf("alert %s has no test: add one to alertTests", r.Alert)
				continue
			}
			for text, want := range map[string]bool{tt.fires: true, tt.silent: false} {
				if got := isFiring(t, r, parse(t, text)); got != want {
					t.Errorf("%s fires: %v, want %v, with\n%s", r.Alert, got, want, text)
				}
			}
		}
	}
	for name := range alertTests {
		if !seen[name] {
			t.Errorf("alertTests has a test of %s, which is no alert: remove the test", name)
		}
	}
}

const step = time.Minute

func parse(t *testing.T, text string) samples {
	t.Helper()
	var all samples
	for line := range strings.Lines(strings.TrimSpace(text)) {
		metric, values, err := parser.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := promql.Series{Metric: metric}
		for i, v := range values {
			s.Floats = append(s.Floats, promql.FPoint{T: int64(i) * step.Milliseconds(), F: v.Value})
		}
		all = append(all, s)
	}
	return all
}

// As in Prometheus, r fires if one series is in the result of every evaluation during the last
// r.For.
func isFiring(t *testing.T, r rulefmt.Rule, all samples) bool {
	t.Helper()
	var last int64
	for _, s := range all {
		last = max(last, s.Floats[len(s.Floats)-1].T)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: math.MaxInt32, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	end := time.UnixMilli(last)
	start := end.Add(-time.Duration(r.For))
	q, err := engine.NewRangeQuery(t.Context(), all, nil, r.Expr, start, end, step)
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	defer q.Close()
	result, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	for _, s := range result {
		if len(s.Floats) == int(end.Sub(start)/step)+1 {
			return true
		}
	}
	return false
}

type samples []promql.Series

var _ storage.Queryable = samples{}

// Querier implements [storage.Queryable].
func (s samples) Querier(int64, int64) (storage.Querier, error) {
	return &querier{storage.NoopQuerier(), s}, nil
}

type querier struct {
	storage.Querier
	all samples
}

func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var selected samples
next:
	for _, s := range q.all {
		for _, m := range matchers {
			if !m.Matches(s.Metric.Get(m.Name)) {
				continue next
			}
		}
		selected = append(selected, s)
	}
	return &set{pending: selected}
}

type set struct {
	pending samples
	current promql.Series
}

var _ storage.SeriesSet = (*set)(nil)

// Next implements [storage.SeriesSet].
func (s *set) Next() bool {
	if len(s.pending) == 0 {
		return false
	}
	s.current, s.pending = s.pending[0], s.pending[1:]
	return true
}

// At implements [storage.SeriesSet].
func (s *set) At() storage.Series { return promql.NewStorageSeries(s.current) }

// Err implements [storage.SeriesSet].
func (s *set) Err() error { return nil }

// Warnings implements [storage.SeriesSet].
func (s *set) Warnings() annotations.Annotations { return nil }
