package ranking_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// finalReads is a store that counts the calls of FinalStandings for more than one standing.
type finalReads struct {
	leaderboard.Store
	n atomic.Int64
}

func (s *finalReads) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) ([]leaderboard.Standing, int64, error) {
	if n > 1 {
		s.n.Add(1)
	}
	return s.Store.FinalStandings(ctx, l, position, n)
}

func TestChecksumOfASealedSeason(t *testing.T) {
	store, index := embedded.Open(t)
	reads := &finalReads{Store: store}
	f := serviceOver(t, reads, index)
	f.clock.set(start.AddDate(0, 0, -1))
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Best, Season: leaderboard.Schedule{Kind: leaderboard.Daily},
		TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}, {Name: "falls", Order: leaderboard.LowerFirst}}})
	achieved := start.AddDate(0, 0, -1)
	for i, user := range []string{"ann", "b o", "日本"} {
		r := withTime(points(user, "m", int64(i-1)), achieved.Add(-time.Duration(i)*1500*time.Microsecond))
		r.TieBreakers = []int64{int64(i), 7}
		f.submit("b", r)
	}
	if _, err := f.Checksum(t.Context(), &b, "20261119"); !errors.Is(err, leaderboard.ErrNotSealed) {
		t.Errorf("checksum of an open season: %v, want ErrNotSealed", err)
	}
	f.clock.set(start)
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(what, text string) {
		t.Helper()
		got, err := f.Checksum(t.Context(), &b, "20261119")
		if want := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); err != nil || got != want {
			t.Errorf("checksum %s: %s, %v; want %s", what, got, err, want)
		}
	}
	ann, bo := "ann\t-1\t0,7\t2026-11-19T12:00:00Z\n", "b o\t0\t1,7\t2026-11-19T11:59:59.9985Z\n"
	jp := "日本\t1\t2,7\t2026-11-19T11:59:59.997Z\n"
	check("after the seal", jp+bo+ann)
	firstReads := reads.n.Load()
	check("of the second call", jp+bo+ann)
	if n := reads.n.Load(); firstReads == 0 || n != firstReads {
		t.Errorf("the first call made %d reads of final standings, both calls made %d; want reads in the first call only", firstReads, n)
	}
	f.clock.set(start.Add(time.Minute))
	if _, err := f.Retract(t.Context(), &b, leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Season: "20261119"}, User: "b o", Match: "m"}, nil); err != nil {
		t.Fatal(err)
	}
	check("after an amendment", jp+ann)
	if err := f.Erase(t.Context(), "日本"); err != nil {
		t.Fatal(err)
	}
	check("after an erasure", ann)
}

func TestChecksumOfManyUsersAndWithoutUsers(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	f := open(t)
	f.clock.set(start.AddDate(0, 0, -1))
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Best, Season: leaderboard.Schedule{Kind: leaderboard.Daily}})
	achieved := start.AddDate(0, 0, -1)
	var results []leaderboard.MatchResult
	for i := range 2500 {
		results = append(results, withTime(points(fmt.Sprintf("u%04d", i), "m", int64(-i)), achieved))
	}
	if _, err := f.Submit(t.Context(), &b, results); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start)
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for i := range 2500 {
		fmt.Fprintf(h, "u%04d\t%d\t\t2026-11-19T12:00:00Z\n", i, -i)
	}
	if got, err := f.Checksum(t.Context(), &b, "20261119"); err != nil || got != fmt.Sprintf("%x", h.Sum(nil)) {
		t.Errorf("checksum of 2,500 users: %s, %v; want %x", got, err, h.Sum(nil))
	}
	for i := range results {
		results[i] = leaderboard.MatchResult{ResultKey: results[i].ResultKey, Revision: 1, Retracted: true, ReceivedAt: start}
		results[i].Board, results[i].Season = "b", "20261119"
	}
	f.clock.set(start.Add(time.Minute))
	if _, err := f.Apply(t.Context(), &b, results); err != nil {
		t.Fatal(err)
	}
	if err := f.AmendMarked(t.Context()); err != nil {
		t.Fatal(err)
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got, err := f.Checksum(t.Context(), &b, "20261119"); err != nil || got != empty {
		t.Errorf("checksum without users: %s, %v; want %s", got, err, empty)
	}
}
