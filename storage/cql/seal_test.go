package cql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// listOf returns the list of a partition of the tables rows and registers.
func listOf(key string) string {
	list, err := strconv.Unquote(strings.TrimSuffix(key, ";"))
	if err != nil {
		panic(err)
	}
	return list
}

// rowsOf returns the numbers of rows of the lists whose names begin with prefix.
func rowsOf(m *model, prefix string) map[string]int {
	lists := map[string]int{}
	for key, p := range m.replicas[0]["rows"] {
		list := listOf(key)
		if !strings.HasPrefix(list, prefix) {
			continue
		}
		for _, r := range p.rows {
			if _, ok := r.visible(p.deleted); ok {
				lists[list]++
			}
		}
	}
	return lists
}

// finalRows returns the numbers of rows by generation.
func finalRows(m *model) map[string]int {
	rows := map[string]int{}
	for list, n := range rowsOf(m, "final page/") {
		rows[strings.Split(list, "/")[1]] += n
	}
	for key, p := range m.replicas[0]["rows"] {
		if strings.HasPrefix(listOf(key), "final directories/") {
			for _, r := range p.rows {
				if _, ok := r.visible(p.deleted); ok {
					item := r.key[0].([]byte)
					rows[string(item[1+item[0]:])]++ // after the division, with its length
				}
			}
		}
	}
	return rows
}

func placeRows(m *model) (n int) {
	for _, rows := range rowsOf(m, "final places/") {
		n += rows
	}
	return n
}

// A storedSeal is the part of a seal that tests need.
type storedSeal struct {
	Generation string
	Base       string
	Ladders    map[string]string
	Pending    []any
}

func readSeal(ctx context.Context, s *testStore, key leaderboard.SeasonKey) (x storedSeal, err error) {
	inc, err := s.Incarnation(ctx, key, false)
	if err != nil {
		return x, err
	}
	body, err := s.Register(ctx, "seal/"+inc.ID, "")
	if err != nil {
		return x, err
	}
	return x, json.Unmarshal(body, &x)
}

// pendingTimeout is longer than the time after which a pending generation is removed.
const pendingTimeout = 25 * time.Hour

// A process stops before a statement of Seal or Amend, and dies or continues later. Meanwhile,
// another process calls Seal and Amend. In the end, only the valid generation must have rows.
func TestModelOfAnInterruptedSeal(t *testing.T) {
	for _, resumes := range []bool{false, true} { // false: the process dies
		for index, more := 0, true; more; index++ {
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
			seal := func(s *testStore, day int) error {
				_, err := s.Seal(ctx, w.board, seasonKey.Season, w.clock)
				if err == nil {
					_, err = s.Amend(ctx, w.board, seasonKey.Season, leaderboard.Amendment{At: w.clock.AddDate(0, 0, day)}, nil)
				}
				return err
			}
			if index%2 == 0 {
				if err := seal(w.third, 1); err != nil {
					t.Fatal(err)
				}
			}
			var sealErr error
			step, die := w.conns[0].walk(func() { sealErr = seal(w.stores[0], 2) })
			more = step(index)
			if !resumes {
				die()
				w.third.now = func() time.Time { return time.Now().Add(pendingTimeout) }
			}
			if err := w.apply(ctx, w.third, "n 50 blue"); err != nil {
				t.Fatal(err)
			}
			if err := seal(w.third, 3); err != nil {
				t.Fatal(err)
			}
			if resumes {
				for step(1000) {
				}
				if sealErr != nil {
					t.Fatalf("Seal or Amend waited before statement %d and returned error %v, want none", index, sealErr)
				}
			}
			x, err := readSeal(ctx, w.third, seasonKey)
			if err != nil {
				t.Fatal(err)
			}
			rows := finalRows(m)
			if rows[x.Generation] == 0 || len(rows) != 1 || len(x.Pending) > 0 {
				t.Errorf("the process stopped before statement %d (continued: %v): rows by generation are %v and pending generations %+v, want rows of %s only and none pending", index, resumes, rows, x.Pending, x.Generation)
			}
			top, total, err := w.third.FinalStandings(ctx, leaderboard.Ladder{SeasonKey: seasonKey}, 1, 10)
			if err != nil || total != 3 || top[0].User != w.user || w.board.ScoreOf(top[0].Key, w.clock) != 50 {
				t.Errorf("FinalStandings returns %+v and the total %d, error %v; want user %q first, with score 50, and the total 3", top, total, err, w.user)
			}
			if err := w.third.DeleteSeason(ctx, seasonKey, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if rows, places := finalRows(m), placeRows(m); len(rows) > 0 || places > 0 {
				t.Errorf("the deleted season has rows of the generations %v and %d places, want none", rows, places)
			}
		}
	}
}

// After two concurrent calls of Seal, the season has no amendment, one generation remains,
// and both calls have returned the same record.
func TestModelOfTwoSeals(t *testing.T) {
	const longest = 40 // approximately the number of statements of one Seal
	for _, order := range insideOrders(t, longest, needs.More(t, longest/8)) {
		w := newSeason(t)
		ctx := t.Context()
		var errs [2]error
		var records [2]leaderboard.SeasonRecord
		var turns [2]func(int) bool
		for i := range turns {
			turns[i], _ = w.conns[i].walk(func() {
				records[i], errs[i] = w.stores[i].Seal(ctx, w.board, leaderboard.SeasonAll, stepsEpoch.AddDate(0, 0, i))
			})
		}
		order.run(turns[0], turns[1])
		if err := errors.Join(errs[0], errs[1], w.checkFinal(ctx)); err != nil {
			t.Fatalf("the calls take turns of %v statements: %v", order, err)
		}
		if d := cmp.Diff(records[0], records[1]); d != "" || len(records[0].Amendments) > 0 {
			t.Fatalf("the calls take turns of %v statements: the records are %+v, want equal records without amendments", order, records)
		}
		if rows := finalRows(w.third.conn.(*model)); len(rows) != 1 {
			t.Fatalf("the calls take turns of %v statements: rows of generations %v, want one generation", order, rows)
		}
	}
}
