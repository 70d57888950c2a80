package memory

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func TestARemovedUsersRecordIsKeptForKeptRemovals(t *testing.T) {
	tb := newTable(layout{keyBytes: 8})
	put := func(e leaderboard.Entry) {
		if err := tb.apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	isRanked := func(user string) bool {
		_, leaf := tb.lookUp(tb.dict.hash(user), user)
		return leaf != 0
	}
	put(entry("erased", 1, 0, 5))
	put(unranked("erased", 6))
	for i := range keptRemovals - 1 {
		put(unranked(fmt.Sprint("other ", i), 1))
	}
	put(entry("erased", 1, 0, 5))
	if isRanked("erased") {
		t.Fatal("an update with an older version than the removal ranked the user again, want no effect")
	}
	if tb.users.count != keptRemovals {
		t.Fatalf("%d users have records, want %d", tb.users.count, keptRemovals)
	}
	put(unranked("one more", 1))
	if ref, _ := tb.lookUp(tb.dict.hash("erased"), "erased"); ref != 0 {
		t.Error("the user who was removed first still has a record, want none")
	}
	for _, chunk := range tb.users.chunks {
		if bytes.Contains(chunk, []byte("erased")) {
			t.Error("the id of an erased user is still in memory, want it overwritten")
		}
	}
	if err := tb.check(); err != nil {
		t.Fatal(err)
	}
}

func TestRemovalsAreBounded(t *testing.T) {
	needs.NoRace(t, "one change follows another")
	tb := newTable(layout{keyBytes: 8})
	version := uint64(0)
	put := func(e leaderboard.Entry) {
		version++
		e.Version = version
		if err := tb.apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 * keptRemovals {
		put(unranked("restless", 0))
		put(entry("restless", 1, 0, 0))
	}
	if got := tb.removals.len; got > 2*keptRemovals {
		t.Errorf("%d removals are queued for one user, want at most %d", got, 2*keptRemovals)
	}
	for i := range 3 * keptRemovals {
		put(entry(fmt.Sprint("user ", i), 1, 0, 0))
		put(unranked(fmt.Sprint("user ", i), 0))
	}
	if got := tb.users.count - tb.rankedUsers; got > keptRemovals {
		t.Errorf("%d removed users have records, want at most %d", got, keptRemovals)
	}
	if got, limit := tb.users.end, 2*keptRemovals*tb.users.size(maxID)/4; got > limit {
		t.Errorf("records take %d bytes, want at most %d", got, limit)
	}
	if err := tb.check(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * keptRemovals {
		put(entry(fmt.Sprint("ranked ", i), 1, 0, 0))
	}
	for i := range 2 * keptRemovals {
		put(unranked(fmt.Sprint("removed ", i), 0))
	}
	for i := range 2 * keptRemovals {
		id := fmt.Sprint("removed ", i)
		if ref, _ := tb.lookUp(tb.dict.hash(id), id); ref == 0 {
			t.Fatalf("the table has no record of the removed user %q, want it kept, because an equal number of users is ranked", id)
		}
	}
}
