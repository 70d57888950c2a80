package cql

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// A cutConn cannot reach the other data centers. A swap needs a quorum of each, so it fails.
type cutConn struct{ conn }

func (c cutConn) swap(ctx context.Context, _ op, _ map[string]any) (bool, error) {
	return false, wrapError(ctx, "swap", errors.New("no quorum of all data centers"))
}

func TestModelOfAccountsWhileADataCenterIsLost(t *testing.T) {
	m := newModel(nil)
	w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Sum), "u")
	ctx := t.Context()
	if err := w.apply(ctx, w.stores[0], "m 5 red"); err != nil {
		t.Fatal(err)
	}
	cut := openTest(cutConn{m}, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: 10})
	for i, change := range []func(context.Context, *writers, *testStore) error{ban, unban, erase} {
		if err := errors.Join(change(ctx, w, cut), w.check(ctx), w.checkIndex(ctx)); err != nil {
			t.Errorf("%s: %v", []string{"ban", "unban", "erase"}[i], err)
		}
	}
}

// In each round, a process dies before a different statement of the ban or erasure. After a
// Recount by another process, the entry must agree with the account.
func TestModelOfInterruptedAccountChanges(t *testing.T) {
	for _, e := range []struct {
		name    string
		earlier []func(context.Context, *writers, *testStore) error
		call    func(context.Context, *writers, *testStore) error
	}{
		{"a ban", nil, ban},
		{"the end of a ban", []func(context.Context, *writers, *testStore) error{ban}, unban},
		{"an erasure", nil, erase},
		{"an erasure of a banned user", []func(context.Context, *writers, *testStore) error{ban}, erase},
	} {
		t.Run(e.name, func(t *testing.T) {
			for statement, more := 0, true; more; statement++ {
				w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Sum), "u")
				if err := recountAfterDeath(t.Context(), w, e.earlier, e.call, statement, &more); err != nil {
					t.Fatalf("the process died before statement %d: %v", statement, err)
				}
			}
		})
	}
}

// recountAfterDeath runs one round. It sets *more if the function call has more statements.
func recountAfterDeath(ctx context.Context, w *writers, earlier []func(context.Context, *writers, *testStore) error, call func(context.Context, *writers, *testStore) error, statement int, more *bool) error {
	err := w.apply(ctx, w.stores[0], "m 5 red", "n 3 blue")
	for _, f := range earlier {
		err = errors.Join(err, f(ctx, w, w.stores[1]))
	}
	if err != nil {
		return err
	}
	step, die := w.conns[0].walk(func() { _ = call(ctx, w, w.stores[0]) })
	*more = step(statement)
	die()
	if err := errors.Join(recount(ctx, w, w.stores[1]), w.check(ctx), w.checkIndex(ctx)); err != nil {
		return err
	}
	acc, err := w.third.readAccount(ctx, w.user, w.board)
	if err != nil {
		return err
	}
	for r, err := range w.third.Results(ctx, leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}, w.user) {
		if err != nil || acc.Epoch > 0 {
			return fmt.Errorf("after %d erasures of the user, Results yields %+v, error %w; want no error, and no results after an erasure", acc.Epoch, r, err)
		}
	}
	return nil
}
