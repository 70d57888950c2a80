package engine_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// A stepper lets its caller decide when each read and each write of one row begins. Two steppers are two
// processes, so the backend must not forget removed rows.
type stepper struct {
	storage.Backend
	turn chan struct{} // receives before each step
	idle chan bool     // sent when the call waits for its turn, and true when it has ended
}

func (s *stepper) wait() {
	s.idle <- false
	<-s.turn
}

func (s *stepper) WriteRows(ctx context.Context, writes ...storage.RowWrite) error {
	for _, w := range writes {
		s.wait()
		w.Forget = false
		if err := s.Backend.WriteRows(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (s *stepper) Rows(ctx context.Context, list string, after []byte) iter.Seq2[storage.Row, error] {
	s.wait()
	return s.Backend.Rows(ctx, list, after)
}

func (s *stepper) RowRanges(ctx context.Context, ranges ...storage.RowRange) ([][]storage.Row, error) {
	s.wait()
	return s.Backend.RowRanges(ctx, ranges...)
}

func (s *stepper) ChangeAccount(ctx context.Context, c *storage.AccountChange) ([]leaderboard.Change, error) {
	s.wait()
	return s.Backend.ChangeAccount(ctx, c)
}

// start begins a call, and returns when it waits for its first step.
func start(t *testing.T, backend storage.Backend, call func(*engine.Store) error) (step func() (ended bool)) {
	s := &stepper{backend, make(chan struct{}), make(chan bool)}
	go func() {
		if err := call(engine.New(s)); err != nil {
			t.Error(err)
		}
		s.idle <- true
	}()
	ended := <-s.idle
	return func() bool {
		if !ended {
			s.turn <- struct{}{}
			ended = <-s.idle
		}
		return ended
	}
}

// In each order of the steps of AppendAct and Erase, the erasure removes the detail.
func TestEraseAndAppendActRemoveTheDetail(t *testing.T) {
	store := embedded.Store(t)
	erasedAt := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const steps = 11 // of both calls together, without the steps about the profile
	for order := range 1 << steps {
		user := leaderboard.UserID(fmt.Sprint("user ", order))
		act := leaderboard.Act{ID: fmt.Sprint(order), At: erasedAt, Action: "ban", ActDetail: leaderboard.ActDetail{User: user}}
		appendStep := start(t, store.Backend, func(s *engine.Store) error { return s.AppendAct(t.Context(), act) })
		eraseStep := start(t, store.Backend, func(s *engine.Store) error {
			_, err := s.Erase(t.Context(), user, erasedAt)
			return err
		})
		for i := range steps {
			if order>>i&1 == 0 {
				appendStep()
			} else {
				eraseStep()
			}
		}
		for !appendStep() || !eraseStep() {
		}
		for a, err := range store.UserActs(t.Context(), user, leaderboard.ActKey{}) {
			t.Fatalf("order %011b: UserActs yields %+v, error %v; want nothing", order, a, err)
		}
	}
	n := 0
	for a, err := range store.Acts(t.Context(), leaderboard.ActKey{}) {
		if n++; err != nil || !a.Erased || a.ActDetail != (leaderboard.ActDetail{}) {
			t.Fatalf("Acts yields %+v, error %v; want an act without detail", a, err)
		}
	}
	if n != 1<<steps {
		t.Errorf("Acts yields %d acts, want %d", n, 1<<steps)
	}
}
