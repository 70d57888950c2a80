package cql

import (
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

type boundedStore struct {
	*testStore
	t     *testing.T
	board leaderboard.Board
	key   leaderboard.SeasonKey
}

func newBounded(t *testing.T, cacheUsers int) *boundedStore {
	t.Helper()
	b := &boundedStore{openTest(newModel(nil), Options{DataCenter: "dc1", Buckets: 1, CacheUsers: cacheUsers}), t, stepsBoard(leaderboard.Sum), leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}}
	if err := b.CreateBoard(t.Context(), b.board); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *boundedStore) applyOne(match leaderboard.MatchID, revision int64, retracted bool, want string) {
	b.t.Helper()
	r := leaderboard.MatchResult{Score: 1, AchievedAt: stepsEpoch, ReceivedAt: stepsEpoch, Revision: revision, Retracted: retracted}
	r.SeasonKey, r.User, r.Match = b.key, "u", match
	report, err := b.Apply(b.t.Context(), &b.board, []leaderboard.MatchResult{r})
	if err != nil {
		b.t.Errorf("Apply of match %s with revision %d: %v", match, revision, err)
		return
	}
	if got := fmt.Sprintf("%v %s", report.Outcomes[0].Status, report.Outcomes[0].Reason); got != want {
		b.t.Errorf("Apply of match %s with revision %d returns %q, want %q", match, revision, got, want)
	}
}

// Apply rejects a result that would raise the version above maxResultVersion, even if the
// result is repeated. A retraction still counts. The user can still be banned and erased.
func TestVersionsNearTheirBound(t *testing.T) {
	for _, cacheUsers := range []int{-1, 10} {
		t.Run(fmt.Sprintf("CacheUsers is %d", cacheUsers), func(t *testing.T) {
			b := newBounded(t, cacheUsers)
			millis := stepsEpoch.UnixMilli()
			b.applyOne("m0", millis, false, "APPLIED ")
			// raiseVersion has the effect of 1.1 million such results.
			inc, err := b.incarnations.readAgain(t.Context(), b.key)
			if err != nil {
				t.Fatal(err)
			}
			key := &userKey{b.key, inc.number, "u"}
			st, err := b.readWhole(t.Context(), &b.board, key)
			if err != nil {
				t.Fatal(err)
			}
			if n := maxResultVersion / uint64(millis); n < 1_100_000 {
				t.Errorf("the bound allows %d results with Unix milliseconds as revisions, want at least 1,100,000", n)
			}
			if err := b.raiseVersion(t.Context(), key, st, maxResultVersion-st.version()-uint64(millis)-1000); err != nil {
				t.Fatal(err)
			}
			b.applyOne("m1", millis, false, "APPLIED ")
			b.applyOne("m2", millis, false, "REJECTED OUT_OF_RANGE")
			b.applyOne("m2", millis, false, "REJECTED OUT_OF_RANGE")
			b.applyOne("m3", 5, false, "APPLIED ")
			b.applyOne("m1", millis, false, "DUPLICATE ")
			b.applyOne("m1", millis+10_000, true, "APPLIED ")
			e, err := b.Entry(t.Context(), b.key, "u")
			if err != nil || b.board.ScoreOf(e.Key, stepsEpoch) != 2 {
				t.Errorf("entry is %+v, error %v; want 2 points, of matches m0 and m3", e, err)
			}
			for n := range 300 {
				for _, banned := range []bool{true, false} {
					if _, err := b.SetBan(t.Context(), leaderboard.Ban{User: "u", Banned: banned, At: stepsEpoch}); err != nil {
						t.Fatalf("ban %d: %v", n, err)
					}
				}
				if _, err := b.Erase(t.Context(), "u", stepsEpoch.Add(time.Duration(n)*time.Second)); err != nil {
					t.Fatalf("erasure %d: %v", n, err)
				}
			}
			for r, err := range b.Results(t.Context(), b.key, "u") {
				t.Errorf("after the erasures, Results yields %v, error %v; want no results", r, err)
			}
		})
	}
}

// Apply rejects further matches, but applies corrections of stored matches.
func TestTooManyMatchesAreRefused(t *testing.T) {
	for _, cacheUsers := range []int{-1, 10} {
		t.Run(fmt.Sprintf("CacheUsers is %d", cacheUsers), func(t *testing.T) {
			b := newBounded(t, cacheUsers)
			b.maxMatches = 3
			for n := range 3 {
				b.applyOne(leaderboard.MatchID(fmt.Sprint("m", n)), 0, false, "APPLIED ")
			}
			b.applyOne("m3", 0, false, "REJECTED OUT_OF_RANGE")
			b.applyOne("m3", 0, false, "REJECTED OUT_OF_RANGE")
			b.applyOne("m2", 1, false, "APPLIED ")
			b.applyOne("m2", 2, true, "APPLIED ")
			b.applyOne("m4", 0, false, "REJECTED OUT_OF_RANGE")
			b.applyOne("m2", 3, false, "APPLIED ")
			b.applyOne("m1", 0, false, "DUPLICATE ")
		})
	}
}
