package ranking_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

type sweepHooks struct {
	leaderboard.Store
	afterSeal   func(leaderboard.BoardID)
	afterAppend func()
}

func (s *sweepHooks) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (leaderboard.SeasonRecord, error) {
	record, err := s.Store.Seal(ctx, b, season, at)
	s.afterSeal(b.ID)
	return record, err
}

func (s *sweepHooks) AppendAct(ctx context.Context, act leaderboard.Act) error {
	err := s.Store.AppendAct(ctx, act)
	s.afterAppend()
	return err
}

// orphanStore has orphan rows. Its first removal finds three of them, and then fails.
type orphanStore struct {
	leaderboard.Store
	limits []time.Duration
}

func (s *orphanStore) RemoveOrphanRows(_ context.Context, limit time.Duration) (int64, error) {
	if s.limits = append(s.limits, limit); len(s.limits) == 1 {
		return 3, leaderboard.ErrUnavailable
	}
	return 2, nil
}

func TestSweepsRemoveOrphanRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, index := embedded.Open(t)
		orphans := &orphanStore{Store: store}
		reg := prometheus.NewRegistry()
		var log strings.Builder
		s := ranking.New(orphans, index, ranking.Options{Registerer: reg, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var sweeping sync.WaitGroup
		sweeping.Go(func() { s.SweepEvery(ctx, time.Hour) })
		time.Sleep(90 * time.Minute) // of the fake clock
		cancel()
		sweeping.Wait()
		s.Close()
		if n := metrics(t, reg)["leaderboard_sweep_orphan_rows_removed_total"]; n != 5 {
			t.Errorf("two sweeps that removed 3 and 2 rows count %v rows, want 5", n)
		}
		if want := []time.Duration{2 * time.Minute, 2 * time.Minute}; !slices.Equal(orphans.limits, want) {
			t.Errorf("RemoveOrphanRows was called with the limits %v, want %v", orphans.limits, want)
		}
		for _, want := range []string{`msg="orphan rows removed" rows=3`, `msg="ladders not searched for orphan rows; the next sweep continues"`, `msg="orphan rows removed" rows=2`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s:\n%s", want, log.String())
			}
		}
	})
}

func TestASweepObeysSettingsThatChangeMeanwhile(t *testing.T) {
	retention := func(d time.Duration) func(*leaderboard.Board) error {
		return func(b *leaderboard.Board) error { b.Retention = d; return nil }
	}
	for _, tt := range []struct {
		name   string
		sealed bool // the season of the board "b" is sealed before the sweep
		amend  func(*leaderboard.Board) error
		want   string // the season of "b" after the sweep
	}{
		{"an open season, and no change", false, retention(48 * time.Hour), "sealed"},
		{"a sealed season, and no change", true, retention(48 * time.Hour), "deleted"},
		{"the retention is removed", true, retention(0), "sealed"},
		{"the retention grows", true, retention(1000 * time.Hour), "sealed"},
		{"the grace grows", false, func(b *leaderboard.Board) error { b.Season.Grace = 1000 * time.Hour; return nil }, "open"},
		{"a recount begins", true, func(b *leaderboard.Board) error { b.RecountDue = start; return nil }, "sealed"},
		{"the season ends early", false, func(b *leaderboard.Board) error {
			return b.Season.EndEarly(leaderboard.EarlyEnd{ID: day, At: start.Add(-time.Minute), DecidedAt: start.AddDate(0, 0, 7)})
		}, "open"}, // it closes a grace period after DecidedAt
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, moment := range []string{"the seal of another board", "the append to the audit log"} {
				f := open(t)
				daily := leaderboard.Board{Policy: leaderboard.Sum, Season: dailyBoard.Season, Retention: 48 * time.Hour}
				for _, id := range []leaderboard.BoardID{"a", "b"} {
					daily.ID = id
					f.create(daily)
					f.submit(id, points("ann", "m", 5))
				}
				if tt.sealed {
					f.seal()
				}
				f.clock.set(start.AddDate(0, 0, 7))
				amended := false
				amend := func() {
					if amended {
						return
					}
					amended = true
					if _, err := f.store.AmendBoard(t.Context(), "b", tt.amend); err != nil {
						t.Error(err)
					}
				}
				hooks := &sweepHooks{Store: f.store, afterSeal: func(leaderboard.BoardID) {}, afterAppend: func() {}}
				if moment == "the append to the audit log" { // the first append must be about "b"
					if _, err := f.store.AmendBoard(t.Context(), "a", retention(0)); err != nil {
						t.Fatal(err)
					}
					if err := f.Seal(t.Context(), "a", day); err != nil {
						t.Fatal(err)
					}
					hooks.afterAppend = amend
				} else {
					hooks.afterSeal = func(id leaderboard.BoardID) {
						if id == "a" {
							amend()
						}
					}
				}
				s := serviceOver(t, hooks, f.index)
				s.clock.set(f.clock.now())
				if err := s.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !amended {
					t.Fatalf("the sweep did not reach %s", moment)
				}
				if got := stateOf(t, f.store, "b"); got != tt.want {
					t.Errorf("the board was changed after %s: the season is %s, want %s", moment, got, tt.want)
				}
			}
		})
	}
}

func stateOf(t *testing.T, store leaderboard.Store, id leaderboard.BoardID) string {
	t.Helper()
	seasons, err := store.Seasons(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case len(seasons) == 0:
		return "deleted"
	case seasons[0].SealedAt.IsZero():
		return "open"
	}
	return "sealed"
}

func TestASweepRecountsASeasonThatEndsMeanwhile(t *testing.T) {
	f := open(t)
	for _, id := range []leaderboard.BoardID{"a", "b"} {
		f.create(leaderboard.Board{ID: id, Policy: leaderboard.Sum, Season: dailyBoard.Season})
		f.submit(id, withTime(points("ann", "1", 5), start.Add(-time.Hour)))
		f.submit(id, withTime(points("ann", "2", 7), start))
	}
	f.clock.set(start.AddDate(0, 0, 7))
	s := serviceOver(t, &sweepHooks{f.store, func(id leaderboard.BoardID) {
		if id != "a" {
			return
		}
		if _, err := f.store.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error {
			return b.Season.EndEarly(leaderboard.EarlyEnd{ID: day, At: start.Add(-time.Minute), DecidedAt: start})
		}); err != nil {
			t.Error(err)
		}
	}, func() {}}, f.index)
	s.clock.set(f.clock.now())
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, f.store, "b"); got != "sealed" {
		t.Errorf("the season is %s, want sealed", got)
	}
	f.wantList(ranking.Query{Board: "b", Season: day}, "ann 5 1")
}
