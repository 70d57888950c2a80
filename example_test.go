package leaderboard_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// laps ranks lap times: the lowest time wins. The most overtakes decide between equal times.
var laps = &leaderboard.Board{
	ID:          "laps",
	Order:       leaderboard.LowerFirst,
	Policy:      leaderboard.Best,
	Unit:        "s",
	Decimals:    3, // 78123 is displayed as 78.123 s
	TieBreakers: []leaderboard.TieBreaker{{Name: "overtakes", Order: leaderboard.HigherFirst}},
	Season:      leaderboard.Schedule{Kind: leaderboard.Monthly, Grace: time.Hour},
	Divisions:   []string{"country"},
	CreatedAt:   time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
}

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func lap(user leaderboard.UserID, match leaderboard.MatchID, ms leaderboard.Score, overtakes int64) leaderboard.MatchResult {
	return leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{
			SeasonKey: leaderboard.SeasonKey{Board: laps.ID, Season: "202611"},
			User:      user,
			Match:     match,
		},
		Score:       ms,
		TieBreakers: []int64{overtakes},
		AchievedAt:  start,
		ReceivedAt:  start.Add(time.Second),
		Attributes:  map[string]string{"country": "KEN"},
	}
}

func ExampleBoard_Validate() {
	board := leaderboard.Board{ID: "coins", Policy: leaderboard.Sum, HalfLife: time.Hour, Decimals: 12}
	err := board.Validate()
	fmt.Println(err)
	fmt.Println(errors.Is(err, leaderboard.ErrInvalid))

	board.HalfLife, board.Decimals = 0, 2
	fmt.Println(board.Validate())
	// Output:
	// decimals: 12 is not in the range 0 to 9
	// half_life: is allowed on DECAY boards only
	// true
	// <nil>
}

func ExampleSchedule_At() {
	season, err := laps.Season.At(start)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(season.ID, season.Start.Format(time.DateOnly), season.End.Format(time.DateOnly))
	fmt.Println("accepts late results until", laps.ClosesAt(season).Format(time.RFC3339))

	next, _ := laps.Season.At(season.End)
	fmt.Println("next:", next.ID)
	// Output:
	// 202611 2026-11-01 2026-12-01
	// accepts late results until 2026-12-01T01:00:00Z
	// next: 202612
}

func ExampleSchedule_At_explicit() {
	cups := leaderboard.Schedule{Kind: leaderboard.Explicit, Windows: []leaderboard.Season{
		{ID: "spring-cup", Start: start.AddDate(0, -8, 0), End: start.AddDate(0, -7, 0)},
	}}
	_, err := cups.At(start)
	fmt.Println(err)
	fmt.Println(errors.Is(err, leaderboard.ErrSeasonNotFound))
	// Output:
	// no season at 2026-11-20T10:00:00Z, the last season was "spring-cup", until 2026-04-20T10:00:00Z: season not found
	// true
}

// A store calls Merge with the user's stored data (Known) and the new result. The
// store then writes Decision.Put and Decision.Refuse, if they are set.
func ExampleBoard_Merge() {
	var known leaderboard.Known
	submit := func(r leaderboard.MatchResult) {
		d := laps.Merge(known, r)
		fmt.Printf("revision %d: %v", r.Revision, d.Status)
		if d.Put != nil {
			known.Result, known.Tally = d.Put, d.Tally // a store writes both in one batch
			if d.Recount {                             // the result replaced another result
				known.Tally, _ = laps.Count(sequence([]leaderboard.MatchResult{*d.Put}))
			}
			fmt.Printf(", %d stands", d.Put.Score)
		}
		fmt.Println()
	}
	first := lap("ada", "race-1", 78123, 2)
	submit(first)
	submit(first) // the network delivers the result again

	corrected := first
	corrected.Revision, corrected.Score = 1, 78321
	submit(corrected)
	submit(first) // a late copy of revision 0
	// Output:
	// revision 0: APPLIED, 78123 stands
	// revision 0: DUPLICATE
	// revision 1: APPLIED, 78321 stands
	// revision 0: SUPERSEDED
}

func ExampleBoard_Entry() {
	var tally leaderboard.Tally
	for _, r := range []leaderboard.MatchResult{lap("ada", "race-1", 78123, 2), lap("ada", "race-2", 77900, 0)} {
		tally = laps.Add(tally, &r)
	}
	entry := laps.Entry(&tally, "202611", "ada")

	fmt.Println("decided by", entry.Match, "of", entry.Results, "results")
	fmt.Println("stands in", entry.Divisions)
	fmt.Println("score", laps.ScoreOf(entry.Key, start), "and tie-breakers", laps.TieBreakersOf(entry.Key))
	fmt.Printf("rank key %x\n", entry.Key)
	// Output:
	// decided by race-2 of 2 results
	// stands in [country:KEN]
	// score 77900 and tie-breakers [0]
	// rank key 800000000001304c7fffffffffffffff
}

func ExampleRankKey() {
	key := func(ms leaderboard.Score, overtakes int64) leaderboard.RankKey {
		r := lap("ada", "race-1", ms, overtakes)
		tally := laps.Add(leaderboard.Tally{}, &r)
		entry := laps.Entry(&tally, "202611", "ada")
		return entry.Key
	}
	fmt.Println("a lower time is better:", key(77900, 0) < key(78123, 0))
	fmt.Println("more overtakes decide between equal times:", key(78123, 2) < key(78123, 1))
	fmt.Println("better than a time of 78123 with any number of overtakes:", key(77900, 0) < laps.ScorePrefix(78123, start))
	// Output:
	// a lower time is better: true
	// more overtakes decide between equal times: true
	// better than a time of 78123 with any number of overtakes: true
}

func ExampleAssignRanks() {
	var entries []leaderboard.Entry
	for _, r := range []leaderboard.MatchResult{
		lap("ada", "race-1", 78123, 1), lap("bea", "race-1", 78123, 1), lap("cleo", "race-1", 77900, 0), lap("dina", "race-1", 80001, 4),
	} {
		tally := laps.Add(leaderboard.Tally{}, &r)
		entries = append(entries, laps.Entry(&tally, "202611", r.User))
	}
	slices.SortFunc(entries, func(x, y leaderboard.Entry) int {
		return strings.Compare(string(x.SortKey()), string(y.SortKey()))
	})
	for standing, err := range leaderboard.AssignRanks(sequence(entries)) {
		if err != nil {
			fmt.Println(err)
			return
		}
		r := standing.Ranks
		fmt.Printf("%-4s  competition %d  dense %d  ordinal %d\n", standing.User, r.Competition, r.Dense, r.Ordinal)
	}
	// Output:
	// cleo  competition 1  dense 1  ordinal 1
	// ada   competition 2  dense 2  ordinal 2
	// bea   competition 2  dense 2  ordinal 3
	// dina  competition 4  dense 3  ordinal 4
}

func sequence[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// On a decay board, points lose half their value with every half-life.
func ExampleBoard_ScoreOf_decay() {
	trending := &leaderboard.Board{ID: "trending", Policy: leaderboard.Decay, HalfLife: 24 * time.Hour}
	r := leaderboard.MatchResult{Score: 1000, AchievedAt: start}
	tally := trending.Add(leaderboard.Tally{}, &r)
	entry := trending.Entry(&tally, leaderboard.SeasonAll, "ada")
	for days := range 4 {
		fmt.Println(trending.ScoreOf(entry.Key, start.AddDate(0, 0, days)))
	}
	// Output:
	// 1000
	// 500
	// 250
	// 125
}
