package cql

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A heldLink is the connection of the first of two data centers. Its writes reach the
// second data center only through deliver.
type heldLink struct {
	conn
	second *model
	mu     sync.Mutex
	held   [][]op
}

func (l *heldLink) write(ctx context.Context, ops ...op) error {
	l.mu.Lock()
	l.held = append(l.held, ops)
	l.mu.Unlock()
	return l.conn.write(ctx, ops...)
}

// deliver sends to the second data center each held batch that contains one of the statements.
// Without statements, it sends all. It returns the number of sent batches.
func (l *heldLink) deliver(statements ...string) int {
	return l.deliverIf(func(o op) bool { return len(statements) == 0 || slices.Contains(statements, o.stmt) })
}

// deliverIf sends to the second data center each held batch with a statement that matches.
func (l *heldLink) deliverIf(matches func(op) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.held)
	l.held = slices.DeleteFunc(l.held, func(ops []op) bool {
		if !slices.ContainsFunc(ops, matches) {
			return false
		}
		l.second.mu.Lock()
		defer l.second.mu.Unlock()
		l.second.apply(ops, 0)
		return true
	})
	return before - len(l.held)
}

func newHeldLink(t *testing.T) (first, second *writers, l *heldLink) {
	t.Helper()
	l = &heldLink{conn: newModel(nil), second: newModel(nil)}
	b := stepsBoard(leaderboard.Sum)
	first, second = newWriters(t, func() conn { return l }, b, "u"), newWriters(t, func() conn { return l.second }, b, "u")
	for i := range second.stores {
		second.stores[i] = openWith(second.conns[i], "dc2", false, true)
		for _, s := range []*testStore{first.stores[i], second.stores[i]} {
			s.dataCenters = func(context.Context) ([]string, error) { return []string{"dc1", "dc2"}, nil }
		}
	}
	return first, second, l
}

// The second data center has a match's contender row (see match.go), but not yet the
// match's results. A writer there retracts the match. The index must be correct before and
// after the results arrive.
func TestModelOfAContenderThatArrivesBeforeItsResult(t *testing.T) {
	first, second, l := newHeldLink(t)
	ctx := t.Context()
	x2, x3, retraction := first.result("x 2"), first.result("x 3"), first.result("x 1 retracted")
	send := func(w *writers, r ...leaderboard.MatchResult) {
		t.Helper()
		for i := range r {
			if err := w.send(ctx, w.stores[0], r[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(second, second.result("y 10"))
	send(first, x2, x3)
	if n := l.deliver(insertItem); n != 1 {
		t.Fatalf("%d writes with contender rows were delivered, want 1", n)
	}
	send(second, second.result("z 100"), retraction)
	if err := errors.Join(second.check(ctx), second.checkIndex(ctx)); err != nil {
		t.Errorf("after the retraction: %v", err)
	}
	l.deliver()
	send(second, x2, x3)
	if err := errors.Join(second.check(ctx), second.checkIndex(ctx)); err != nil {
		t.Errorf("after all results: %v", err)
	}
}

// The second data center has the user's account and result, but the list of users there
// lacks the user. A writer there applies the result. In each round, another process changes
// the divisions before a different statement of the writer, and recounts all users in the
// list.
func TestModelOfARegistrationThatArrivesLate(t *testing.T) {
	ctx := t.Context()
	for statement, more := 0, true; more; statement++ {
		first, second, l := newHeldLink(t)
		r := []leaderboard.MatchResult{first.result("m 5 red")}
		if err := first.send(ctx, first.stores[0], r); err != nil {
			t.Fatal(err)
		}
		if n := l.deliver(openSeason, setAccount); n != 2 {
			t.Fatalf("%d writes were delivered, want 2: the season and the result with the account", n)
		}
		var sendErr error
		step, _ := second.conns[0].walk(func() { sendErr = second.send(ctx, second.stores[0], r) })
		more = step(statement)
		err := divide("club", "team")(ctx, second, second.stores[1])
		for step(1) {
		}
		l.deliver()
		if err := errors.Join(err, sendErr, second.check(ctx), second.checkIndex(ctx)); err != nil {
			t.Fatalf("the divisions change before statement %d: %v", statement, err)
		}
	}
}

// The first data center erases the user, then bans the user. The ban reaches the second
// data center before the erasure. The second data center then erases the user itself. The
// ban must remain in force.
func TestModelOfABanThatArrivesBeforeAnErasure(t *testing.T) {
	first, second, l := newHeldLink(t)
	ctx := t.Context()
	steps := []func() error{
		func() error { return erase(ctx, first, first.stores[0]) },
		func() error {
			_, err := first.stores[0].SetBan(ctx, leaderboard.Ban{User: "u", Banned: true, At: stepsEpoch.Add(2 * time.Minute)})
			l.deliverIf(func(o op) bool {
				return o.stmt == insertListRow && o.args[0] == accountList("u") && o.args[1].([]byte)[0] == 'b'
			})
			return err
		},
		func() error { return erase(ctx, second, second.stores[0]) },
		func() error { l.deliver(); return finishChanges(ctx, second, second.stores[0]) },
		func() error { return errors.Join(second.check(ctx), second.checkIndex(ctx)) },
		func() error {
			second.clock = stepsEpoch.Add(time.Hour)
			return second.apply(ctx, second.stores[0], "later 7 red")
		},
		func() error { return errors.Join(second.check(ctx), second.checkIndex(ctx)) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	// both data centers wrote the same erasure, so the account has one
	acc, err := second.third.readAccount(ctx, "u", second.board)
	if err != nil || !acc.Hidden || acc.Epoch != 1 {
		t.Errorf("the account is %+v, error %v; want one erasure, and a ban that hides the user", acc, err)
	}
}
