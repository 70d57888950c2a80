package cql

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// While armed is true, a lackingConn leaves out one of the store's statements.
type lackingConn struct {
	conn
	armed bool
	// Writes with this statement are not executed.
	skip string
	// Reads with this statement return the previous answer again, if there is one.
	frozen string
	// The first read with this statement returns no rows.
	assumed string
	answer  [][]reflect.Value
}

func (c *lackingConn) write(ctx context.Context, ops ...op) error {
	if c.armed {
		ops = slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.stmt == c.skip })
	}
	if len(ops) == 0 {
		return nil
	}
	return c.conn.write(ctx, ops...)
}

func (c *lackingConn) read(ctx context.Context, q op, dest []any, row func() bool) error {
	if c.armed && q.stmt == c.assumed {
		c.assumed = ""
		return nil
	}
	if q.stmt != c.frozen {
		return c.conn.read(ctx, q, dest, row)
	}
	if c.armed && c.answer != nil {
		for _, values := range c.answer {
			for i := range values {
				reflect.ValueOf(dest[i]).Elem().Set(values[i])
			}
			row()
		}
		return nil
	}
	c.answer = [][]reflect.Value{}
	return c.conn.read(ctx, q, dest, func() bool {
		var values []reflect.Value
		for _, d := range dest {
			v := reflect.New(reflect.TypeOf(d).Elem()).Elem()
			v.Set(reflect.ValueOf(d).Elem())
			values = append(values, v)
		}
		c.answer = append(c.answer, values)
		return row()
	})
}

// If Apply leaves out one of its statements, some order of two concurrent calls gives a wrong
// outcome. The table omits the writes of the result and the entry, the reads of the state, and
// the rows of a division (see TestModelOfACompleteDivision).
func TestModelNeedsEachStatementOfAResult(t *testing.T) {
	needs.Slow(t, "mutants")
	nothing := func(context.Context, *writers) error { return nil }
	correct := func(ctx context.Context, w *writers) error { return errors.Join(w.check(ctx), w.checkIndex(ctx)) }
	for _, tt := range []struct {
		name    string
		lacks   lackingConn
		prepare func(context.Context, *writers) error
		result  string
		other   func(context.Context, *writers, *testStore) error
		check   func(context.Context, *writers) error
	}{
		{"the user is not registered before the rules are read", lackingConn{skip: registerUser}, nothing, "x 50 blue", divide("club", "team"), correct},
		{"the season is not added to the user's list before the account is read", lackingConn{skip: insertUserSeason}, nothing, "x 50 blue", ban, correct},
		{"the account is not read after the registration", lackingConn{frozen: selectListRows}, nothing, "x 50 blue", ban, correct},
		{"the account is not read before the registration", lackingConn{assumed: selectListRows},
			func(ctx context.Context, w *writers) error { return erase(ctx, w, w.stores[1]) }, "x 50 blue", recount,
			func(ctx context.Context, w *writers) error {
				if seasons, err := w.third.UserSeasons(ctx, w.user); err != nil || len(seasons) > 0 {
					return fmt.Errorf("the erased user has seasons %v, error %w; want none", seasons, err)
				}
				return nil
			}},
		{"the claim is not read after the result is written", lackingConn{frozen: selectStatics},
			func(ctx context.Context, w *writers) error {
				return errors.Join(w.apply(ctx, w.stores[0], "m 1"), w.apply(ctx, w.stores[0], "n 2"))
			}, "x 50 blue", applies("y 100 red"), correct},
		{"the season's row is not read after the result is written", lackingConn{frozen: selectSeason},
			func(ctx context.Context, w *writers) error {
				return errors.Join(w.apply(ctx, w.stores[0], "m 1"), w.apply(ctx, w.stores[0], "n 2 red"))
			}, "x 50 blue", divide("club", "team"), correct},
	} {
		t.Run(tt.name, func(t *testing.T) {
			try := func(armed bool) (wrong bool) {
				for i, order := range slices.Concat(schedules(1, 16), schedules(1, 16), schedules(2, 16)) {
					w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Sum), "u")
					c := tt.lacks
					c.conn = w.conns[0].conn
					w.conns[0].conn = &c
					ctx := t.Context()
					if err := tt.prepare(ctx, w); err != nil {
						t.Fatal(err)
					}
					c.armed = armed
					calls := [2]func() error{
						func() error { return w.apply(ctx, w.stores[0], tt.result) },
						func() error { return tt.other(ctx, w, w.stores[1]) },
					}
					if err := errors.Join(w.race(calls, i/16%2, order), tt.check(ctx, w)); err != nil {
						if !armed {
							t.Errorf("with all statements of Apply, in turns of %v statements: %v", order, err)
						}
						return true
					}
				}
				return false
			}
			if !try(false) && !try(true) {
				t.Error("without the statement, the outcome is correct in every order of the two calls, want a wrong one; if the store does not need the statement, remove it")
			}
		})
	}
}

// At any time, the overall ladder and the division's ladder have the user once. So the store
// inserts the division's new row before it writes the entry, and deletes the old row afterwards.
func TestModelOfACompleteDivision(t *testing.T) {
	for statement, more := 0, true; more; statement++ {
		w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Best), "u")
		ctx := t.Context()
		if err := w.apply(ctx, w.stores[0], "m 5 red"); err != nil {
			t.Fatal(err)
		}
		step, _ := w.conns[0].walk(func() {
			if err := w.apply(ctx, w.stores[0], "n 9 red"); err != nil {
				t.Error(err)
			}
		})
		more = step(statement)
		l := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}}
		for _, l.Division = range []leaderboard.Division{{}, {Attribute: "team", Value: "red"}} {
			n := 0
			for _, err := range w.third.Entries(ctx, l, "") {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != 1 {
				t.Errorf("after %d statements, the ladder %q has the user %d times, want once", statement, l.Division, n)
			}
		}
		for step(1) {
		}
	}
}
