package cql

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// finalRows returns the number of rows that a model has of each generation.
func finalRows(m *model) map[string]int {
	found := map[string]int{}
	for _, table := range []string{"final_ladders", "final_standings", "final_positions"} {
		for key, p := range m.replicas[0][table] {
			for _, r := range p.rows {
				if _, ok := r.visible(p.deleted); ok {
					found[strings.Split(key, ";")[2]]++
				}
			}
		}
	}
	return found
}

// If a process dies during Seal, the rows that it wrote remain. A Seal one day later
// removes these rows, and so does a deletion of the season. If a Seal ends while another
// Seal waits, the other Seal removes its own rows when it continues.
func TestModelOfAnInterruptedSeal(t *testing.T) {
	const dies, sleeps = false, true
	for _, wakes := range []bool{dies, sleeps} {
		for at, more := 0, true; more; at++ {
			m := newModel(nil)
			w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Best), "u")
			ctx := t.Context()
			seasonKey := leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}
			for i := range 3 {
				w.user = leaderboard.UserID(fmt.Sprint("u", i))
				if err := w.apply(ctx, w.third, "m 5 red"); err != nil {
					t.Fatal(err)
				}
			}
			seal := func(s *Store, reason string) error {
				_, err := s.Seal(ctx, w.board, seasonKey.Season, leaderboard.Amendment{At: w.clock.AddDate(0, 0, len(reason)), Reason: reason})
				return err
			}
			if at%2 == 0 {
				if err := seal(w.third, "first"); err != nil {
					t.Fatal(err)
				}
			}
			var failed error
			next, die := w.conns[0].walk(func() { failed = seal(w.stores[0], "dies") })
			more = next(at)
			if !wakes {
				die()
			}
			if !wakes {
				w.third.now = func() time.Time { return time.Now().Add(pendingTimeout + time.Minute) }
			}
			if err := w.apply(ctx, w.third, "n 50 blue"); err != nil {
				t.Fatal(err)
			}
			if err := seal(w.third, "again"); err != nil {
				t.Fatal(err)
			}
			if wakes {
				for next(1000) {
				}
				if failed != nil {
					t.Fatalf("Seal waited before statement %d: %v", at, failed)
				}
			}
			x, err := w.third.readSeal(ctx, seasonKey, incarnation{})
			if err != nil {
				t.Fatal(err)
			}
			name, err := json.Marshal(x.Generation)
			if err != nil {
				t.Fatal(err)
			}
			found := finalRows(m)
			if found[string(name)] == 0 || len(found) != 1 || len(x.Pending) > 0 {
				t.Errorf("Seal continues: %v, waited before statement %d: rows of generations %v, pending %v, want those of %s", wakes, at, found, x.Pending, name)
			}
			top, total, err := w.third.FinalStandings(ctx, leaderboard.Ladder{SeasonKey: seasonKey}, 1, 10)
			if err != nil || total != 3 || top[0].User != w.user || w.board.ScoreOf(top[0].Key, w.clock) != 50 {
				t.Errorf("FinalStandings returns %+v and the total %d, error %v; want user %q first, with score 50, and the total 3", top, total, err, w.user)
			}
			if err := w.third.DeleteSeason(ctx, seasonKey, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if found := finalRows(m); len(found) > 0 {
				t.Errorf("the deleted season has rows of the generations %v, want none", found)
			}
		}
	}
}
