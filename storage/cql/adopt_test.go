package cql

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// Two new processes, one after the other, adopt the stored summary of a user with many
// results (see adopt.go). So each process must read few rows.
func TestModelOfAnAdoptionByANewProcess(t *testing.T) {
	testAdoptionByANewProcess(t, newModel(nil))
}

func TestAdoptionByANewProcess(t *testing.T) {
	needs.Also(t, "clusters")
	testAdoptionByANewProcess(t, shared.createOnce(t).tenant())
}

func testAdoptionByANewProcess(t *testing.T, c conn) {
	rec := &recorder{conn: c}
	b := stepsBoard(leaderboard.Sum)
	w := newRecordedWriters(t, rec, &b)
	w.user = "u"
	ctx := t.Context()
	openStore := func() *testStore {
		s := openTest(rec, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: 10})
		if _, err := s.openIncarnation(ctx, &b, leaderboard.SeasonAll, nil); err != nil {
			t.Fatal(err)
		}
		return s
	}
	const earlier = storedFrom + 100
	var results []leaderboard.MatchResult
	for i := range earlier {
		results = append(results, w.result(fmt.Sprintf("m%d 1 red", i)))
	}
	if err := w.send(ctx, openStore(), results); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"second 1000 blue", "third 10000 red"} {
		s := openStore()
		rec.cost = cost{}
		rec.text.Reset()
		if err := w.apply(ctx, s, text); err != nil {
			t.Fatal(err)
		}
		t.Logf("a result by a new process costs %+v", rec.cost)
		if !strings.Contains(rec.text.String(), adoptionText) || rec.cost.rows > headRows+20 {
			t.Errorf("store %d has read %d rows, want at most %d; an adoption was written: %v, want true", i+2, rec.cost.rows, headRows+20, strings.Contains(rec.text.String(), adoptionText))
		}
		if err := errors.Join(w.check(ctx), w.checkIndex(ctx)); err != nil {
			t.Errorf("after the result of store %d: %v", i+2, err)
		}
	}
	e, err := w.third.Entry(ctx, leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, "u")
	if err != nil || e.Results != earlier+2 || b.ScoreOf(e.Key, stepsEpoch) != earlier+11000 {
		t.Errorf("the entry has %d results and the score %d, error %v; want %d results and the score %d", e.Results, b.ScoreOf(e.Key, stepsEpoch), err, earlier+2, earlier+11000)
	}
}

var adoptionText = fmt.Sprintf("%q", "dc1"+adoptionSuffix)
