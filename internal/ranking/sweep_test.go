package ranking_test

import (
	"context"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// sweepHooks is a store that calls a function after some calls of a sweep.
type sweepHooks struct {
	leaderboard.Store
	sealed   func(leaderboard.BoardID) // after Seal
	appended func()                    // after AppendAct
}

func (s *sweepHooks) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	record, err := s.Store.Seal(ctx, b, season, a)
	s.sealed(b.ID)
	return record, err
}

func (s *sweepHooks) AppendAct(ctx context.Context, act leaderboard.Act) error {
	err := s.Store.AppendAct(ctx, act)
	s.appended()
	return err
}

// A sweep of many boards can take long. It decides about a season by the settings that the
// board has at that moment.
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
		{"no change", false, retention(48 * time.Hour), "sealed"},
		{"no change of a sealed season", true, retention(48 * time.Hour), "deleted"},
		{"no retention", true, retention(0), "sealed"},
		{"a longer retention", true, retention(1000 * time.Hour), "sealed"},
		{"a longer grace", false, func(b *leaderboard.Board) error { b.Season.Grace = 1000 * time.Hour; return nil }, "open"},
		{"a recount", true, func(b *leaderboard.Board) error { b.RecountLease = start; return nil }, "sealed"},
		{"an early end", false, func(b *leaderboard.Board) error {
			return b.Season.EndEarly(leaderboard.EarlyEnd{ID: day, At: start.Add(-time.Minute), DecidedAt: start.AddDate(0, 0, 7)})
		}, "open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, moment := range []string{"the seal of another board", "the record of the act"} {
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
				hooks := &sweepHooks{Store: f.store, sealed: func(leaderboard.BoardID) {}, appended: func() {}}
				if moment == "the record of the act" {
					if _, err := f.store.AmendBoard(t.Context(), "a", retention(0)); err != nil {
						t.Fatal(err)
					}
					if err := f.Seal(t.Context(), "a", day); err != nil {
						t.Fatal(err)
					}
					hooks.appended = amend
				} else {
					hooks.sealed = func(id leaderboard.BoardID) {
						if id == "a" {
							amend()
						}
					}
				}
				s := over(t, hooks, f.index)
				s.clock.set(f.clock.now())
				if err := s.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !amended {
					t.Fatalf("the sweep did not reach %s", moment)
				}
				if got := stateOf(t, f.store, "b"); got != tt.want {
					t.Errorf("changed after %s: the season is %s, want %s", moment, got, tt.want)
				}
			}
		})
	}
}

// stateOf returns the state of the season with the id day: deleted, sealed or open.
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

// A season may end early during the sweep, and close again before its turn. The sweep then
// recounts it before the seal.
func TestASweepRecountsASeasonThatEndsMeanwhile(t *testing.T) {
	f := open(t)
	for _, id := range []leaderboard.BoardID{"a", "b"} {
		f.create(leaderboard.Board{ID: id, Policy: leaderboard.Sum, Season: dailyBoard.Season})
		f.submit(id, timed(points("ann", "1", 5), start.Add(-time.Hour)))
		f.submit(id, timed(points("ann", "2", 7), start))
	}
	f.clock.set(start.AddDate(0, 0, 7))
	s := over(t, &sweepHooks{f.store, func(id leaderboard.BoardID) {
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
