package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

var errDied = errors.New("the process died")

// process dies before or after a write to the store or index. Each write has a step before and
// a step after. Step failAt and all later steps fail.
type process struct{ failAt, steps int }

func (p *process) step() error {
	if p.steps++; p.steps >= p.failAt {
		return errDied
	}
	return nil
}

func write[T any](p *process, call func() (T, error)) (T, error) {
	var zero T
	if err := p.step(); err != nil {
		return zero, err
	}
	v, err := call()
	if died := p.step(); died != nil {
		return zero, died
	}
	return v, err
}

type processStore struct {
	leaderboard.Store
	*process
}

func (s processStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	return write(s.process, func() (leaderboard.ApplyReport, error) { return s.Store.Apply(ctx, b, results) })
}

func (s processStore) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	return write(s.process, func() (leaderboard.Change, error) { return s.Store.Recount(ctx, b, season, user) })
}

func (s processStore) SetBan(ctx context.Context, ban leaderboard.Ban) ([]leaderboard.Change, error) {
	return write(s.process, func() ([]leaderboard.Change, error) { return s.Store.SetBan(ctx, ban) })
}

func (s processStore) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) ([]leaderboard.Change, error) {
	return write(s.process, func() ([]leaderboard.Change, error) { return s.Store.Erase(ctx, user, at) })
}

func (s processStore) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	return write(s.process, func() (leaderboard.SeasonRecord, error) { return s.Store.Amend(ctx, b, season, a, users) })
}

type processIndex struct {
	leaderboard.Index
	*process
}

func (x processIndex) Update(ctx context.Context, s leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) error {
	_, err := write(x.process, func() (struct{}, error) { return struct{}{}, x.Index.Update(ctx, s, at, entries) })
	return err
}

// In each round, a process dies at another step of a call, and another process retries the call.
func TestRetryCompletesTheRanks(t *testing.T) {
	retract := func(ctx context.Context, s *ranking.Service, revision int64) error {
		b, err := s.Board(ctx, "b")
		if err == nil {
			_, err = s.Retract(ctx, &b, dayResult("ann", "m2"), &revision)
		}
		return err
	}
	ban := func(ctx context.Context, s *ranking.Service, banned bool) error {
		_, err := s.SetBan(ctx, leaderboard.Ban{User: "ann", Banned: banned, Reason: "cheat"})
		return err
	}
	for _, tt := range []struct {
		name   string
		before func(context.Context, *ranking.Service) error
		call   func(context.Context, *ranking.Service) error
		want   []string
	}{
		{"a retraction", nil,
			func(ctx context.Context, s *ranking.Service) error { return retract(ctx, s, 1) },
			[]string{"bob 3 1", "ann 1 2"}},
		{"a ban", nil,
			func(ctx context.Context, s *ranking.Service) error { return ban(ctx, s, true) },
			[]string{"bob 3 1"}},
		{"a ban that is lifted",
			func(ctx context.Context, s *ranking.Service) error { return ban(ctx, s, true) },
			func(ctx context.Context, s *ranking.Service) error { return ban(ctx, s, false) },
			[]string{"ann 6 1", "bob 3 2"}},
		{"an erasure", nil,
			func(ctx context.Context, s *ranking.Service) error { return s.Erase(ctx, "ann") },
			[]string{"bob 3 1"}},
		{"an erasure of a banned user",
			func(ctx context.Context, s *ranking.Service) error { return ban(ctx, s, true) },
			func(ctx context.Context, s *ranking.Service) error { return s.Erase(ctx, "ann") },
			[]string{"bob 3 1"}},
	} {
		for _, phase := range []ranking.SeasonPhase{ranking.Open, ranking.Closed, ranking.Sealed} {
			t.Run(fmt.Sprintf("%s, season %s", tt.name, phase), func(t *testing.T) {
				for failAt, died := 1, true; died; failAt++ {
					f := open(t)
					f.create(dailyBoard)
					for _, r := range []leaderboard.MatchResult{points("ann", "m1", 1), points("ann", "m2", 5), points("bob", "m1", 3)} {
						f.submit("b", r)
					}
					f.wantList(dayQuery, "ann 6 1", "bob 3 2")
					switch phase {
					case ranking.Closed:
						f.afterDay()
					case ranking.Sealed:
						f.seal()
					}
					if tt.before != nil {
						if err := tt.before(t.Context(), f.Service); err != nil {
							t.Fatal(err)
						}
					}
					p := &process{failAt: failAt}
					dying := serviceOver(t, processStore{f.store, p}, processIndex{f.index, p})
					dying.clock.set(f.clock.now())
					err := tt.call(t.Context(), dying.Service)
					died = err != nil
					if died && !errors.Is(err, errDied) {
						t.Fatal(err)
					}
					if err := tt.call(t.Context(), f.Service); err != nil {
						t.Fatal(err)
					}
					f.wantList(dayQuery, tt.want...)
					if t.Failed() {
						t.Fatalf("wrong ranks after a process died at step %d and another process retried the call", failAt)
					}
				}
			})
		}
	}
}

func TestCallsWithoutAChangeDoNotAmend(t *testing.T) {
	f := open(t)
	b := f.create(dailyBoard)
	r := points("ann", "m", 5)
	r.AchievedAt = start
	f.submit("b", r)
	f.seal()
	f.clock.set(f.clock.now().Add(time.Second))
	if got := f.trySubmit("b", r); got.Status != leaderboard.Duplicate {
		t.Fatalf("receipt %+v, want a duplicate", got)
	}
	if _, err := f.Refresh(t.Context(), &b, day, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Refresh(t.Context(), &b, day, "nobody"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: false, Reason: ""}); err != nil {
		t.Fatal(err)
	}
	seasons, err := f.store.Seasons(t.Context(), "b")
	if err != nil || len(seasons) != 1 || len(seasons[0].Amendments) > 0 {
		t.Errorf("seasons %+v, %v; want one season without amendments", seasons, err)
	}
}
