package observe_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("other packages run the contracts under the detector")

type registries struct {
	mu  sync.Mutex
	all []*prometheus.Registry
}

func (r *registries) open() *prometheus.Registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, prometheus.NewRegistry())
	return r.all[len(r.all)-1]
}

// series returns the values of a metric. The keys are the values of its labels, joined
// with a space. The value of a histogram is its count.
func series(t *testing.T, reg prometheus.Gatherer, metric string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for i, l := range m.GetLabel() {
				if i > 0 {
					key += " "
				}
				key += l.GetValue()
			}
			values[key] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// check fails if a method that is not in unmeasured has no successful measured call, or if
// a call is running.
func (r *registries) check(t *testing.T, contract reflect.Type, subsystem string, unmeasured ...string) {
	t.Helper()
	measured := map[string]bool{}
	for _, reg := range r.all {
		for key, n := range series(t, reg, "leaderboard_"+subsystem+"_call_seconds") {
			measured[key] = measured[key] || n > 0
		}
		for method, n := range series(t, reg, "leaderboard_"+subsystem+"_running_calls") {
			if n != 0 {
				t.Errorf("%v calls of %s are counted as running after their end, want none", n, method)
			}
		}
	}
	for method := range contract.Methods() {
		if !measured[method.Name+" ok"] && !slices.Contains(unmeasured, method.Name) {
			t.Errorf("%s has no series with the outcome ok, want one", method.Name)
		}
	}
}

func TestStoreKeepsItsContract(t *testing.T) {
	limits := storagetest.Limits{NoRankChanges: "an embedded store has no index in another process to update"}
	var r registries
	open := func(t testing.TB) leaderboard.Store { return observe.Store(embedded.New(t), r.open()) }
	storagetest.Run(t, open, limits, storagetest.Sizes{RowsDivisor: 5, RoundsDivisor: 10})
	r.check(t, reflect.TypeFor[leaderboard.Store](), "store", "Close")
}

func TestIndexKeepsItsContract(t *testing.T) {
	var r registries
	open := func(testing.TB) leaderboard.Index { return observe.Index(memory.New(), r.open()) }
	cachetest.Run(t, open, cachetest.Limits{}, cachetest.Sizes{Moves: 200, Positions: 3})
	r.check(t, reflect.TypeFor[leaderboard.Index](), "index", "Fits", "Synced", "Invalidate", "Close")
}

type failingStore struct {
	leaderboard.Store
	err error
}

func (b failingStore) Board(context.Context, leaderboard.BoardID) (leaderboard.Board, error) {
	return leaderboard.Board{}, b.err
}

func (b failingStore) Scan(context.Context, leaderboard.SeasonKey, leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		if yield(leaderboard.Entry{}, nil) {
			yield(leaderboard.Entry{}, b.err)
		}
	}
}

func (b failingStore) Apply(context.Context, *leaderboard.Board, []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	return leaderboard.ApplyReport{Outcomes: []leaderboard.Outcome{{}, {Err: b.err}}}, nil
}

func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{leaderboard.ErrBoardNotFound, "refused"},
		{&leaderboard.FieldError{Field: "id"}, "refused"},
		{context.Canceled, "canceled"},
		{fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, context.DeadlineExceeded), "timeout"},
		{fmt.Errorf("cql: %w", leaderboard.ErrUnavailable), "unavailable"},
		{leaderboard.ErrRankUnavailable, "unavailable"},
		{errors.New("disk"), "failed"},
	} {
		reg := prometheus.NewRegistry()
		s := observe.Store(failingStore{err: tt.err}, reg)
		if _, err := s.Board(t.Context(), "b"); !errors.Is(err, tt.err) {
			t.Errorf("Board returned %v, want %v", err, tt.err)
		}
		if _, err := s.Apply(t.Context(), &leaderboard.Board{}, nil); err != nil {
			t.Errorf("Apply returned %v, want no error, because only one of its results failed", err)
		}
		for range s.Scan(t.Context(), leaderboard.SeasonKey{}, leaderboard.Part{}) { // reads to the error
		}
		for range s.Scan(t.Context(), leaderboard.SeasonKey{}, leaderboard.Part{}) { // stops before the error
			if got := series(t, reg, "leaderboard_store_running_calls")["Scan"]; got != 1 {
				t.Errorf("%v running calls while a sequence is read, want 1", got)
			}
			break
		}
		got := series(t, reg, "leaderboard_store_call_seconds")
		for _, key := range []string{"Board " + tt.want, "Apply " + tt.want, "Scan " + tt.want, "Scan ok"} {
			if got[key] != 1 {
				t.Errorf("after the error %v the counts of calls are %v, want 1 for %q", tt.err, got, key)
			}
		}
	}
}

func BenchmarkIndex(b *testing.B) {
	x := memory.New()
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	for _, bb := range []struct {
		name  string
		index leaderboard.Index
	}{{"plain", x}, {"measured", observe.Index(x, prometheus.NewRegistry())}} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := bb.index.Loaded(b.Context(), key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
