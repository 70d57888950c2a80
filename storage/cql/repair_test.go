package cql

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// damage is something wrong in the tables, and what a verification says of it.
type damage struct {
	name  string
	plant func(p *planter)
	kinds []ranking.DifferenceKind
}

// planter writes what the store would not.
type planter struct {
	t   *testing.T
	c   conn
	key userKey
	e   edition
	// entry is the user's.
	entry leaderboard.Entry
}

func (p *planter) write(ops ...op) {
	p.t.Helper()
	if err := p.c.write(p.t.Context(), ops...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *planter) row(division string, score leaderboard.Score, timestamp int64) op {
	b := stepsBoard(leaderboard.Best)
	ghost := p.entry
	ghost.Key = b.ScorePrefix(score, stepsEpoch)
	return op{insertRow, append(p.key.ladder(p.e, division), standingOf(&ghost), string(p.key.user), int64(1), timestamp)}
}

func (p *planter) put(e leaderboard.Entry, timestamp int64) op {
	return op{insertEntry, []any{string(p.key.Board), string(p.key.Season), p.key.edition, bucketOf(p.key.user, p.e.buckets), string(p.key.user),
		appendEntry(nil, &e), timestamp}}
}

// unlist deletes the user's row in the list of users, with the entry.
func (p *planter) unlist() op {
	return op{deleteEntry, []any{clock(), string(p.key.Board), string(p.key.Season), p.key.edition, bucketOf(p.key.user, p.e.buckets), string(p.key.user)}}
}

// clock is the timestamp of what somebody writes by hand.
func clock() int64 { return time.Now().UnixMicro() }

var damages = []damage{
	{"a row of a writer that slept", func(p *planter) {
		p.write(p.row("", 400, insertTime(1)))
		p.write(p.row("team:red", 400, insertTime(1)))
	}, []ranking.DifferenceKind{ranking.RowGhost, ranking.RowGhost}},
	{"a row in a division that the user has left", func(p *planter) { p.write(p.row("team:blue", 50, insertTime(1))) },
		[]ranking.DifferenceKind{ranking.RowGhost}},
	{"a row written by hand", func(p *planter) { p.write(p.row("", 400, clock())) }, []ranking.DifferenceKind{ranking.RowGhost}},
	{"a row deleted by hand", func(p *planter) {
		p.write(op{deleteRow, append(p.key.ladder(p.e, "", clock()), standingOf(&p.entry), string(p.key.user))})
	}, []ranking.DifferenceKind{ranking.RowMissing}},
	{"a user deleted by hand", func(p *planter) { p.write(p.unlist()) },
		[]ranking.DifferenceKind{ranking.EntryWrong, ranking.RowGhost, ranking.RowGhost}},
	{"a user deleted by hand, with all rows", func(p *planter) {
		p.write(p.unlist())
		for _, division := range []string{"", "team:red"} {
			p.write(op{deleteRow, append(p.key.ladder(p.e, division, clock()), standingOf(&p.entry), string(p.key.user))})
		}
	}, []ranking.DifferenceKind{ranking.EntryWrong}},
	{"an entry deleted by hand", func(p *planter) {
		p.write(p.unlist(),
			op{registerUser, []any{string(p.key.Board), string(p.key.Season), p.key.edition, bucketOf(p.key.user, p.e.buckets), string(p.key.user), clock() + 1000}})
	}, []ranking.DifferenceKind{ranking.EntryWrong, ranking.RowGhost, ranking.RowGhost}},
	{"a wrong score written by hand", func(p *planter) {
		b := stepsBoard(leaderboard.Best)
		p.entry.Key = b.ScorePrefix(77, stepsEpoch)
		p.write(p.put(p.entry, clock()))
	}, []ranking.DifferenceKind{ranking.EntryWrong, ranking.RowGhost, ranking.RowGhost, ranking.RowMissing, ranking.RowMissing}},
}

// Verify finds what is wrong in the tables, and mends it when asked.
func testDamages(t *testing.T, connect func(t *testing.T) conn) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			c := connect(t)
			w := newWriters(t, func() conn { return c }, stepsBoard(leaderboard.Best), "u")
			ctx := t.Context()
			for _, results := range [][]string{{"m 20 blue"}, {"n 30 red"}, {"o 50 red"}} {
				if err := w.apply(ctx, w.third, results...); err != nil {
					t.Fatal(err)
				}
			}
			w.user = "other"
			if err := w.apply(ctx, w.third, "m 40 red"); err != nil {
				t.Fatal(err)
			}
			w.user = "u"
			scope := leaderboard.Scope{Board: w.board.ID, Season: leaderboard.SeasonAll}
			entry, err := w.third.Entry(ctx, scope, "u")
			if err != nil {
				t.Fatal(err)
			}
			e, err := w.third.readEdition(ctx, scope)
			if err != nil {
				t.Fatal(err)
			}
			service := ranking.New(w.third, memory.New(), ranking.Options{})
			t.Cleanup(service.Close)
			verify := func(repair bool) (kinds []ranking.DifferenceKind) {
				_, err := service.Verify(ctx, ranking.Selection{}, repair, nil, func(d ranking.Difference) error {
					if d.Kind == ranking.EntryWrong || d.Kind == ranking.RowGhost || d.Kind == ranking.RowMissing {
						kinds = append(kinds, d.Kind)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return kinds
			}
			if kinds := verify(false); len(kinds) > 0 {
				t.Fatalf("before the damage: %v", kinds)
			}
			d.plant(&planter{t, c, userKey{scope, e.number, "u"}, e, entry})
			kinds := verify(false)
			slices.Sort(kinds)
			if diff := cmp.Diff(d.kinds, kinds); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			if len(verify(true)) == 0 {
				t.Error("nothing found to repair")
			}
			if kinds := verify(false); len(kinds) > 0 {
				t.Errorf("after the repair: %v", kinds)
			}
			if err := w.check(ctx); err != nil {
				t.Error(err)
			}
			for _, r := range []string{"later 60 blue", "last 1 red"} {
				if err := w.apply(ctx, w.stores[0], r); err != nil {
					t.Fatal(err)
				}
				if err := w.check(ctx); err != nil {
					t.Errorf("after %q: %v", r, err)
				}
			}
		})
	}
}

func TestModelOfDamage(t *testing.T) {
	testDamages(t, func(*testing.T) conn { return newModel(nil) })
}

func TestVerifyFindsDamage(t *testing.T) {
	b := real.on(t)
	testDamages(t, func(t *testing.T) conn { return b.tenant(t) })
}

// What a writer leaves that slept while its user was erased is found, and goes:
// in every ladder, with the user's name.
func TestModelOfAGhostOfAnErasedUser(t *testing.T) {
	for at, more := 0, true; more; at++ {
		w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Best), "u")
		ctx := t.Context()
		for _, user := range []leaderboard.UserID{"u", "other"} {
			w.user = user
			if err := w.apply(ctx, w.third, "m 20 red", "n 10 blue"); err != nil {
				t.Fatal(err)
			}
		}
		w.user = "u"
		next, _ := w.conns[0].walk(func() { _ = w.apply(ctx, w.stores[0], "o 50 blue") })
		more = next(at)
		if err := erase(ctx, w, w.third); err != nil {
			t.Fatal(err)
		}
		for next(1000) {
		}
		scope := leaderboard.Scope{Board: w.board.ID, Season: leaderboard.SeasonAll}
		strays := func() (n int) {
			for s, err := range w.third.Strays(ctx, scope) {
				if err != nil {
					t.Fatal(err)
				}
				if s.User == "u" {
					n++
				}
			}
			return n
		}
		n := strays()
		if _, err := w.third.Recount(ctx, w.board, scope.Season, "u"); err != nil {
			t.Fatal(err)
		}
		if left := strays(); left > 0 {
			t.Errorf("asleep before statement %d: %d rows of the erased user, after Recount %d", at, n, left)
		}
	}
}
