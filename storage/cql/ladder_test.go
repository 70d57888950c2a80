package cql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

func TestResultsLeaveFewTombstones(t *testing.T) {
	rec := &recorder{conn: newModel(nil)}
	s := openTest(rec, Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 10})
	b := stepsBoard(leaderboard.Best)
	w := &writers{clock: stepsEpoch, board: &b, user: "u"}
	ctx := t.Context()
	if err := s.CreateBoard(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := w.apply(ctx, s, "first 1"); err != nil {
		t.Fatal(err)
	}
	deletedRows := func() (n int) {
		n = strings.Count(rec.text.String(), "DELETE FROM leaderboard")
		rec.text.Reset()
		return n
	}
	deletedRows()
	for batch := range 3 {
		var results []leaderboard.MatchResult
		for i := range 100 {
			results = append(results, w.result(fmt.Sprintf("m%d-%d %d", batch, i, 2+100*batch+i)))
		}
		if err := w.send(ctx, s, results); err != nil {
			t.Fatal(err)
		}
		if n := deletedRows(); n != 1 {
			t.Errorf("100 improvements in one Apply deleted %d rows, want 1", n)
		}
	}
	for i := range 100 {
		if err := w.apply(ctx, s, fmt.Sprintf("worse%d 1", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := deletedRows(); n != 0 {
		t.Errorf("100 results without improvement deleted %d rows, want 0", n)
	}
}

// A twoPageSession splits the first read of a user's results into two pages. Between the
// pages, it waits until the store has read the entry, and calls betweenPages. The second
// read of the results fails, as if the process died.
type twoPageSession struct {
	conn
	secondPage   string        // the first match of the second page
	entryRead    chan struct{} // closed when the store has read the user's entry
	betweenPages func()
	once         sync.Once
	reads        int
}

func (c *twoPageSession) read(ctx context.Context, q op, dest []any, row func() bool) error {
	page := func(second bool) error {
		return c.conn.read(ctx, q, dest, func() bool { return (*dest[0].(*string) >= c.secondPage) != second || row() })
	}
	if q.stmt == selectEntry {
		defer c.once.Do(func() { close(c.entryRead) })
	}
	if q.stmt != selectUser {
		return c.conn.read(ctx, q, dest, row)
	}
	if c.reads++; c.reads > 1 {
		return errDied
	}
	if err := page(false); err != nil {
		return err
	}
	<-c.entryRead
	c.betweenPages()
	return page(true)
}

// A Recount misses the best result, a, but reads the later results x, y and z. So it deletes
// the row of a, at a greater version than a's. The row remains only because Apply wrote it
// again with x, y and z.
func TestModelOfARowThatStays(t *testing.T) {
	m := newModel(nil)
	w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Best), "u")
	ctx := t.Context()
	results := []string{"b 5"}
	for i := range headRows { // so many that readHead does not read them all
		results = append(results, fmt.Sprintf("c%d 1", i))
	}
	if err := w.apply(ctx, w.stores[0], results...); err != nil {
		t.Fatal(err)
	}
	c := &twoPageSession{conn: m, secondPage: "m", entryRead: make(chan struct{})}
	s := openTest(c, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: -1})
	c.betweenPages = func() {
		for _, r := range []string{"a 100", "x 1", "y 1", "z 1"} {
			if err := w.apply(ctx, w.stores[0], r); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := s.Recount(ctx, w.board, leaderboard.SeasonAll, "u"); !errors.Is(err, errDied) {
		t.Fatalf("Recount: error %v, want %v", err, errDied)
	}
	if err := w.check(ctx); err != nil {
		t.Error(err)
	}
}
