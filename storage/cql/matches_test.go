package cql

import (
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// A match of many users, such as a mass start, is spread over the partitions of
// match_users, and its void reaches all users. LEADERBOARD_MATCH_USERS sets their number.
func TestAVoidReachesAllUsersOfAMatch(t *testing.T) {
	const buckets = 64
	users := envInt("LEADERBOARD_MATCH_USERS", 1000)
	m := newModel(nil)
	s := open(m, Options{DataCenter: "dc1", Buckets: buckets, CacheUsers: 10})
	b := stepsBoard(leaderboard.Best)
	b.Matches = true
	ctx := t.Context()
	if err := s.CreateBoard(ctx, b); err != nil {
		t.Fatal(err)
	}
	w := &writers{board: &b, clock: stepsEpoch}
	var batch []leaderboard.MatchResult
	for i := range users {
		w.user = leaderboard.UserID(fmt.Sprintf("user-%d", i))
		batch = append(batch, w.result("race 5 red"))
		if len(batch) == 1000 || i == users-1 {
			if err := w.send(ctx, s, batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
	most := 0
	for _, p := range m.replicas[0]["match_users"] {
		most = max(most, len(p.rows))
	}
	if mean := users / buckets; most > mean+mean/2+20 {
		t.Errorf("the largest partition of match_users has %d rows, want about %d", most, mean)
	}
	t.Logf("%d users: the largest of %d partitions has %d rows", users, len(m.replicas[0]["match_users"]), most)

	ladder := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}}
	for voids, want := range []int{users, 0, users} {
		if voids > 0 {
			if err := void("race", int64(voids))(ctx, w, s); err != nil {
				t.Fatal(err)
			}
		}
		ranked := 0
		for _, err := range s.Entries(ctx, ladder, "") {
			if err != nil {
				t.Fatal(err)
			}
			ranked++
		}
		if ranked != want {
			t.Errorf("%d users are ranked after %d voids and restores, want %d", ranked, voids, want)
		}
	}
}

// MatchUsers keeps the users of some partitions in memory, not those of the whole match.
func TestMatchUsersReadsSomePartitionsAtATime(t *testing.T) {
	rec := &recorder{conn: newModel(nil)}
	s := open(rec, Options{DataCenter: "dc1", Buckets: 100, CacheUsers: 10})
	b := stepsBoard(leaderboard.Best)
	b.Matches = true
	w := &writers{board: &b, clock: stepsEpoch}
	ctx := t.Context()
	if err := s.CreateBoard(ctx, b); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		w.user = leaderboard.UserID(fmt.Sprintf("user-%d", i))
		if err := w.apply(ctx, s, "race 5"); err != nil {
			t.Fatal(err)
		}
	}
	key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, Match: "race"}
	rec.cost = cost{}
	for _, err := range s.MatchUsers(ctx, key) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if got, want := rec.cost.statements, s.parallel+1; got > want {
		t.Errorf("the first user needs %d statements, want at most %d", got, want)
	}
	seen := map[leaderboard.UserID]bool{}
	for user, err := range s.MatchUsers(ctx, key) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[user] {
			t.Errorf("MatchUsers yields user %q twice", user)
		}
		seen[user] = true
	}
	if len(seen) != 500 {
		t.Errorf("MatchUsers yields %d users, want 500", len(seen))
	}
}
