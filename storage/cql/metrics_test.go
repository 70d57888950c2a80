package cql

import (
	"context"
	"errors"
	"testing"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
)

// A failedQuery is the number of attempts of a query that has failed.
type failedQuery int

func (q failedQuery) Attempts() int                   { return int(q) }
func (failedQuery) SetConsistency(gocql.Consistency)  {}
func (failedQuery) GetConsistency() gocql.Consistency { return gocql.LocalQuorum }
func (failedQuery) Context() context.Context          { return context.Background() }

// If label is not empty, it is the value of the counter's first label.
func counter(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no counter %s with the label value %q", name, label)
	return 0
}

func TestRetriesAreCounted(t *testing.T) {
	reg, cfg := prometheus.NewRegistry(), gocql.NewCluster()
	cfg.RetryPolicy, cfg.PoolConfig.HostSelectionPolicy = retryPolicy{}, gocql.RoundRobinHostPolicy()
	newMetrics(reg).observe(cfg)
	previous := 0.0
	for _, tt := range []struct {
		name    string
		query   failedQuery
		err     error
		retries float64
	}{
		{"a node does not answer", 1, gocql.ErrTimeoutNoResponse, 1},
		{"too few replicas are up", 1, &gocql.RequestErrUnavailable{}, 1},
		{"the last attempt fails", maxRetries + 1, gocql.ErrTimeoutNoResponse, 0},
		{"the statement is not valid", 1, invalid{}, 0},
	} {
		if cfg.RetryPolicy.Attempt(tt.query) { // as the driver does after a failure
			cfg.RetryPolicy.GetRetryType(tt.err)
		}
		total := counter(t, reg, "leaderboard_cassandra_retries_total", "")
		if total-previous != tt.retries {
			t.Errorf("%s: counted %v retries, want %v", tt.name, total-previous, tt.retries)
		}
		previous = total
	}
}

type invalid struct{}

func (invalid) Code() int       { return gocql.ErrCodeInvalid }
func (invalid) Message() string { return "invalid" }
func (invalid) Error() string   { return "invalid" }

func TestConnectsAreCounted(t *testing.T) {
	reg, cfg := prometheus.NewRegistry(), gocql.NewCluster()
	cfg.PoolConfig.HostSelectionPolicy = gocql.RoundRobinHostPolicy()
	var earlier connectCount
	cfg.ConnectObserver = &earlier
	newMetrics(reg).observe(cfg)
	for _, err := range []error{nil, errors.New("refused"), nil} {
		cfg.ConnectObserver.ObserveConnect(gocql.ObservedConnect{Err: err})
	}
	for outcome, want := range map[string]float64{"ok": 2, "failed": 1} {
		if got := counter(t, reg, "leaderboard_cassandra_connects_total", outcome); got != want {
			t.Errorf("connects with the outcome %s: %v, want %v", outcome, got, want)
		}
	}
	if earlier != 3 {
		t.Errorf("the observer that cfg had before was called %d times, want 3", earlier)
	}
}

type connectCount int

func (s *connectCount) ObserveConnect(gocql.ObservedConnect) { *s++ }
