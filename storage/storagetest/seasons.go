package storagetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var seasonTests = []test{
	{"Seasons returns the seasons that have results or are sealed, ordered by id", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, inSeason("s2", f.result(b, "u", "m", 0, 1)))
		record, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		got, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", []leaderboard.SeasonRecord{record, {SeasonKey: secondSeason(b)}}, got)
		ids, err := f.SeasonIDs(f.ctx, "b")
		f.ok("SeasonIDs", err)
		f.equal("SeasonIDs", []leaderboard.SeasonID{"s1", "s2"}, ids)
		got, err = f.Seasons(f.ctx, "none")
		f.ok("Seasons", err)
		f.equal("Seasons of an unknown board", 0, len(got))
	}},
	{"Season returns the SeasonRecord of a season; without a seal, only its SeasonKey is set", func(f *fixture) {
		b := f.create(bestBoard("b"))
		check := func(state string, want leaderboard.SeasonRecord) {
			f.Helper()
			got, err := f.Season(f.ctx, want.SeasonKey)
			f.ok("Season", err)
			f.equal("Season "+state, want, got)
		}
		none := leaderboard.SeasonRecord{SeasonKey: firstSeason(b)}
		check("without results", none)
		f.apply(b, f.result(b, "u", "m", 0, 1))
		check("with results", none)
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		record, err := f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock.Add(time.Second), Reason: "late"}, nil)
		f.ok("Amend", err)
		check("that is sealed", record)
		check("that is not sealed, on a board with a sealed season", leaderboard.SeasonRecord{SeasonKey: secondSeason(b)})
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, firstSeason(b), time.Time{}))
		check("that was deleted", none)
		check("of an unknown board", leaderboard.SeasonRecord{SeasonKey: leaderboard.SeasonKey{Board: "none", Season: "s1"}})
	}},
	{"Seal computes the final standings of each ladder from the present entries", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(1200)
		user := func(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprintf("u%04d", i)) }
		var results []leaderboard.MatchResult
		for i := range n {
			results = append(results, withAttributes(f.result(b, user(i), "m", 0, leaderboard.Score(i/3)), "gender", []string{"F", "M"}[i%2], "country", fmt.Sprint("c", i%7)))
		}
		f.apply(b, results...)
		f.setBanned(user(n/2), true)
		ladders := map[leaderboard.Ladder][]leaderboard.Standing{}
		for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}, {Attribute: "gender", Value: "M"}, {Attribute: "country", Value: "c3"}} {
			l := leaderboard.Ladder{SeasonKey: firstSeason(b), Division: d}
			entries, err := collect(f.Entries(f.ctx, l, ""))
			f.ok("Entries", err)
			ladders[l] = assignRanks(entries)
		}
		record, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		f.equal("record", leaderboard.SeasonRecord{SeasonKey: firstSeason(b), SealedAt: f.clock}, record)
		f.apply(b, f.result(b, user(0), "n", 0, 5000), f.retraction(b, user(n-1), "m", 1))
		for l, want := range ladders {
			got, total, err := f.FinalStandings(f.ctx, l, 1, 5000)
			f.ok("FinalStandings", err)
			f.equal("total", int64(len(want)), total)
			f.equal(fmt.Sprint("standings of ", l), want, got)
			i := len(want) / 12
			st, err := f.finalStanding(l, want[i].User)
			f.ok("final standing", err)
			f.equal("standing", want[i], st)
			after, _, _, err := f.FinalAfter(f.ctx, l, want[i].SortKey(), 2)
			f.ok("FinalAfter", err)
			f.equal("standings after a standing", want[i+1:i+3], after)
			around, _, err := f.FinalAround(f.ctx, l, want[i].User, 0, 2)
			f.ok("FinalAround", err)
			f.equal("a standing and the standings below it", want[i:i+3], around.Standings)
		}
	}},
	{"DeletedAt is the time of the last deletion of the season or its board", func(f *fixture) {
		b := f.create(sumBoard("b"))
		s := firstSeason(b)
		check := func(want time.Time) {
			f.Helper()
			got, err := f.DeletedAt(f.ctx, s)
			f.ok("DeletedAt", err)
			f.equal("DeletedAt", want, got)
		}
		check(time.Time{})
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, epoch.Add(2*time.Hour)))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, epoch.Add(time.Hour)))
		check(epoch.Add(2 * time.Hour))
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", epoch.Add(3*time.Hour)))
		check(epoch.Add(3 * time.Hour))
	}},
	{"ChangedAt is the time of the last result, ban or erasure that changed an entry of the season", func(f *fixture) {
		b := f.create(bestBoard("b"))
		s := firstSeason(b)
		check := func(moment string, at time.Time) {
			f.Helper()
			if !at.IsZero() {
				f.ok("NoteChange", f.NoteChange(f.ctx, s, at))
				f.ok("NoteChange", f.NoteChange(f.ctx, s, at.Add(-time.Hour)))
			}
			got, err := f.ChangedAt(f.ctx, s)
			f.ok("ChangedAt", err)
			f.equal(moment, at, got)
		}
		check("without results", time.Time{})
		first, last := f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 5)
		f.apply(b, last, first, inSeason("s2", inSecondSeason(f.result(b, "u", "m", 0, 5))))
		check("after results", last.ReceivedAt)
		repeated := last
		repeated.ReceivedAt = f.clock.Add(time.Hour)
		f.apply(b, repeated)
		check("after a duplicate", last.ReceivedAt)
		f.apply(b, f.retraction(b, "u", "m", 1))
		check("after a retraction", f.clock)
		bannedAt := f.clock.Add(time.Minute)
		f.setBan(leaderboard.Ban{User: "v", Banned: true, At: bannedAt})
		check("after a ban", bannedAt)
		f.erase("v", bannedAt.Add(time.Minute))
		check("after an erasure", bannedAt.Add(time.Minute))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, time.Time{}))
		check("after the deletion of the season", time.Time{})
	}},
	{"NoteChange does nothing without data of the season, or if the store keeps the times of changes", func(f *fixture) {
		b := f.create(bestBoard("b"))
		s := firstSeason(b)
		check := func(moment string, want time.Time) {
			f.Helper()
			got, err := f.ChangedAt(f.ctx, s)
			f.ok("ChangedAt", err)
			f.equal(moment, want, got)
		}
		later := f.clock.Add(time.Hour)
		f.ok("NoteChange", f.NoteChange(f.ctx, s, later))
		check("without results", time.Time{})
		ids, err := f.SeasonIDs(f.ctx, b.ID)
		f.ok("SeasonIDs", err)
		f.equal("seasons", 0, len(ids))
		r := f.result(b, "u", "m", 0, 5)
		f.apply(b, r)
		f.ok("NoteChange", f.NoteChange(f.ctx, s, later))
		if f.limits.NotedChanges != "" {
			check("after a note", later)
		} else {
			check("after a note that the store ignores", r.ReceivedAt)
		}
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, time.Time{}))
		f.apply(b, f.result(b, "u", "n", 0, 5))
		if f.limits.NotedChanges != "" {
			check("in a later incarnation of the season", time.Time{})
		}
	}},
	{"Amend replaces the final standings of a sealed season and appends the amendment", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), withAttributes(f.result(b, "v", "m", 0, 4), "gender", "F"))
		sealedAt := f.clock
		_, err := f.Seal(f.ctx, b, "s1", sealedAt)
		f.ok("Seal", err)
		f.apply(b, f.retraction(b, "u", "m", 1))
		amendments := []leaderboard.Amendment{{At: f.clock, Reason: "retract"}, {At: f.clock.Add(time.Second), Reason: "é"}}
		for i, a := range amendments {
			record, err := f.Amend(f.ctx, b, "s1", a, nil)
			f.ok("Amend", err)
			f.equal("record", leaderboard.SeasonRecord{SeasonKey: firstSeason(b), SealedAt: sealedAt, Amendments: amendments[:i+1]}, record)
		}
		got, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, 1, 10)
		f.ok("FinalStandings", err)
		if total != 1 || len(got) != 1 || got[0].User != "v" || got[0].Ranks != (leaderboard.Ranks{Competition: 1, Dense: 1, Ordinal: 1}) {
			f.Errorf("FinalStandings returned %+v and the total %d, want only user v, with rank 1", got, total)
		}
		_, err = f.finalStanding(leaderboard.Ladder{SeasonKey: firstSeason(b)}, "u")
		f.wantErr("final standing of a user whose result was retracted", err, leaderboard.ErrEntryNotFound)
		seasons, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", []leaderboard.SeasonRecord{{SeasonKey: firstSeason(b), SealedAt: sealedAt, Amendments: amendments}}, seasons)
	}},
	{"Seal of a sealed season changes nothing, and Amend may be repeated", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		sealedAt, amend := f.clock, leaderboard.Amendment{At: f.clock.Add(time.Hour), Reason: "x"}
		want := leaderboard.SeasonRecord{SeasonKey: firstSeason(b), SealedAt: sealedAt}
		for _, at := range []time.Time{sealedAt, f.clock.Add(time.Second)} {
			record, err := f.Seal(f.ctx, b, "s1", at)
			f.ok("Seal", err)
			f.equal("record", want, record)
			f.apply(b, f.result(b, "v", "m", 0, 6)) // without an Amend, the final standings stay as they are
		}
		_, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, 1, 10)
		f.ok("FinalStandings", err)
		f.equal("total", int64(1), total)
		want.Amendments = []leaderboard.Amendment{amend}
		for range 2 {
			record, err := f.Amend(f.ctx, b, "s1", amend, nil)
			f.ok("Amend", err)
			f.equal("record", want, record)
		}
	}},
	{"Amend for users whose final standings agree with their entries changes nothing", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), withAttributes(f.result(b, "v", "m", 0, 4), "gender", "F"), f.result(b, "w", "m", 0, 3))
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		amend := func(want int, reason string, users ...leaderboard.UserID) {
			f.Helper()
			f.clock = f.clock.Add(time.Second)
			record, err := f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock, Reason: reason}, users)
			f.ok("Amend "+reason, err)
			f.equal("amendments after "+reason, want, len(record.Amendments))
		}
		female := leaderboard.Ladder{SeasonKey: firstSeason(b), Division: leaderboard.Division{Attribute: "gender", Value: "F"}}
		overall := leaderboard.Ladder{SeasonKey: firstSeason(b)}
		ladder := func(l leaderboard.Ladder) (names []leaderboard.UserID) {
			f.Helper()
			got, total, err := f.FinalStandings(f.ctx, l, 1, 10)
			f.ok("FinalStandings", err)
			f.equal("total", int64(len(got)), total)
			for _, st := range got {
				names = append(names, st.User)
			}
			return names
		}
		amend(0, "no change", "u", "v", "w", "nobody")
		f.apply(b, f.result(b, "v", "n", 0, 6))
		amend(1, "a better result", "v")
		amend(1, "no change since the last amendment", "v", "v")
		f.equal("overall ladder", users("v", "u", "w"), ladder(overall))
		f.apply(b, withAttributes(f.result(b, "u", "n", 0, 7), "gender", "F"))
		amend(2, "a division that gains a user", "u")
		f.equal("division", users("u"), ladder(female)[:1])
		f.setBanned("u", true)
		amend(3, "a ban", "u", "w")
		f.equal("overall ladder after a ban", users("v", "w"), ladder(overall))
		f.setBanned("u", false)
		amend(4, "the end of a ban", "u")
		f.equal("overall ladder after the end of the ban", users("u", "v", "w"), ladder(overall))
		f.apply(b, f.retraction(b, "u", "m", 1), f.retraction(b, "u", "n", 1))
		amend(5, "a retraction", "u")
		f.equal("overall ladder after a retraction", users("v", "w"), ladder(overall))
		if slices.Contains(ladder(female), "u") {
			f.Errorf("the division has user u, whose results were retracted")
		}
	}},
	{"while Amend runs, readers see either the old or the new standings", func(f *fixture) {
		b := f.create(bestBoard("b"))
		var results []leaderboard.MatchResult
		const n = 40
		for i := range n {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), "m", 0, 0))
		}
		f.apply(b, results...)
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		done := make(chan error, 1)
		go func() {
			done <- func() error {
				for round := range int64(f.rounds(15)) {
					for i := range results {
						results[i].Revision, results[i].Score = round+1, leaderboard.Score(round+1)
					}
					if _, err := f.Apply(f.ctx, b, results); err != nil {
						return err
					}
					if _, err := f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: epoch.AddDate(1, 0, int(round))}, nil); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
		for running := true; running; {
			select {
			case err := <-done:
				f.ok("Apply or Amend", err)
				running = false
			default:
			}
			got, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, 1, 100)
			f.ok("FinalStandings", err)
			if len(got) != n || total != n {
				f.Fatalf("FinalStandings returned %d standings and the total %d, want %d for both", len(got), total, n)
			}
			for _, st := range got {
				if st.Key != got[0].Key {
					f.Fatalf("FinalStandings returned standings with the scores %d and %d, want equal scores", b.ScoreOf(st.Key, epoch), b.ScoreOf(got[0].Key, epoch))
				}
			}
			if _, err := f.finalStanding(leaderboard.Ladder{SeasonKey: firstSeason(b)}, "u7"); err != nil {
				f.Fatalf("final standing: %v", err)
			}
		}
	}},
	{"Erase concurrent with Seal removes the user from the final standings", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(300)
		for round := range f.rounds(5) {
			season := []leaderboard.SeasonID{"s1", "s2"}[round%2]
			var results []leaderboard.MatchResult
			for i := range n {
				results = append(results, inSeason(season, withAttributes(f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), leaderboard.MatchID(fmt.Sprint(round)), 0, 0), "gender", "F")))
			}
			f.ok("DeleteSeason", f.DeleteSeason(f.ctx, leaderboard.SeasonKey{Board: "b", Season: season}, time.Time{}))
			f.apply(b, results...)
			var wg sync.WaitGroup
			at := f.clock
			wg.Go(func() {
				if _, err := f.Seal(f.ctx, b, season, at); err != nil {
					f.Errorf("Seal: %v", err)
				}
			})
			for i := range n / 15 {
				f.erase(leaderboard.UserID(fmt.Sprint("u", i*15)), f.clock)
			}
			wg.Wait()
			for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}} {
				l := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: season}, Division: d}
				got, total, err := f.FinalStandings(f.ctx, l, 1, 1000)
				f.ok("FinalStandings", err)
				f.equal("standings", n-n/15, len(got))
				f.equal("total", int64(n-n/15), total)
				_, err = f.finalStanding(l, "u15")
				f.wantErr("final standing", err, leaderboard.ErrEntryNotFound)
			}
		}
	}},
	{"Amend replaces the final standings of a sealed season, and returns ErrNotSealed for other seasons", func(f *fixture) {
		b := f.create(bestBoard("b"))
		amend := func(reason string) (leaderboard.SeasonRecord, error) {
			f.clock = f.clock.Add(time.Second)
			return f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock, Reason: reason}, nil)
		}
		_, err := amend("a season without results")
		f.wantErr("Amend of a season without results", err, leaderboard.ErrNotSealed)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 4))
		_, err = amend("an open season")
		f.wantErr("Amend of a season that is not sealed", err, leaderboard.ErrNotSealed)
		sealedAt := f.clock
		_, err = f.Seal(f.ctx, b, "s1", sealedAt)
		f.ok("Seal", err)
		f.apply(b, f.result(b, "v", "n", 0, 6))
		record, err := amend("late")
		f.ok("Amend", err)
		f.equal("record", leaderboard.SeasonRecord{SeasonKey: firstSeason(b), SealedAt: sealedAt, Amendments: []leaderboard.Amendment{{At: f.clock, Reason: "late"}}}, record)
		st, err := f.finalStanding(leaderboard.Ladder{SeasonKey: firstSeason(b)}, "v")
		f.ok("final standing", err)
		f.equal("rank", int64(1), st.Ranks.Ordinal)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		_, err = amend("a deleted board")
		f.wantErr("Amend of a season of a deleted board", err, leaderboard.ErrNotSealed)
		recreated := bestBoard("b")
		recreated.CreatedAt = b.CreatedAt.Add(time.Hour)
		_, err = f.Seal(f.ctx, f.create(recreated), "s1", f.clock)
		f.ok("Seal", err)
		_, err = amend("a deleted board, after a new board was created with the same id")
		f.wantErr("Amend for a deleted board, after a new board was created with the same id", err, leaderboard.ErrNotSealed)
	}},
	{"if a concurrent Seal returns after Amend, its final standings include all changes made before the call of Amend", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(300)
		user := func(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprint("u", i)) }
		for round := range f.rounds(6) {
			season := []leaderboard.SeasonID{"s1", "s2"}[round%2]
			key := leaderboard.SeasonKey{Board: "b", Season: season}
			f.ok("DeleteSeason", f.DeleteSeason(f.ctx, key, time.Time{}))
			var results, late []leaderboard.MatchResult
			for i := range n {
				results = append(results, inSeason(season, withAttributes(f.result(b, user(i), "m", 0, leaderboard.Score(i)), "gender", "F")))
			}
			for i := 0; i < n; i += n / 10 {
				late = append(late, inSeason(season, withAttributes(f.result(b, user(i), "late", 0, leaderboard.Score(1000+i)), "gender", "F")))
			}
			f.apply(b, results...)
			at := f.clock
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := f.Seal(f.ctx, b, season, at); err != nil {
					f.Errorf("Seal: %v", err)
				}
			})
			for i := range late {
				f.apply(b, late[i])
				_, err := f.Amend(f.ctx, b, season, leaderboard.Amendment{At: f.clock, Reason: "late"}, []leaderboard.UserID{late[i].User})
				if err != nil && !errors.Is(err, leaderboard.ErrNotSealed) {
					f.Fatalf("Amend: %v", err)
				}
			}
			wg.Wait()
			for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}} {
				l := leaderboard.Ladder{SeasonKey: key, Division: d}
				entries, err := collect(f.Entries(f.ctx, l, ""))
				f.ok("Entries", err)
				got, _, err := f.FinalStandings(f.ctx, l, 1, 1000)
				f.ok("FinalStandings", err)
				if !reflect.DeepEqual(assignRanks(entries), got) {
					f.Fatalf("round %d: the final standings of %q differ from the entries, want equal users, keys and ranks", round, d)
				}
			}
		}
	}},
	{"Seal of a season without entries writes empty final standings", func(f *fixture) {
		b := f.create(bestBoard("b"))
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		got, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, 1, 10)
		f.ok("FinalStandings", err)
		f.equal("standings", 0, len(got))
		f.equal("total", int64(0), total)
	}},
	{"FinalStandings returns up to n standings from a position, and the total number of standings", func(f *fixture) {
		b := f.create(sumBoard("b"))
		for i := range 10 {
			f.apply(b, f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), "m", 0, leaderboard.Score(-i/2)))
		}
		_, err := f.Seal(f.ctx, b, "all", f.clock)
		f.ok("Seal", err)
		l := leaderboard.Ladder{SeasonKey: firstSeason(b)}
		for _, page := range []struct {
			position int64
			n        int
			want     string
		}{
			{1, 3, "[{1 1 1} {1 1 2} {3 2 3}]"}, {3, 2, "[{3 2 3} {3 2 4}]"}, {10, 5, "[{9 5 10}]"}, {11, 5, "[]"}, {1, 0, "[]"},
		} {
			got, total, err := f.FinalStandings(f.ctx, l, page.position, page.n)
			f.ok("FinalStandings", err)
			ranks := []leaderboard.Ranks{}
			for _, st := range got {
				ranks = append(ranks, st.Ranks)
			}
			f.equal("page", page.want, fmt.Sprint(ranks))
			f.equal("total", int64(10), total)
		}
		l.Division = leaderboard.Division{Attribute: "gender", Value: "F"}
		_, total, err := f.FinalStandings(f.ctx, l, 1, 10)
		f.ok("FinalStandings of a division without users", err)
		f.equal("total", int64(0), total)
		_, err = f.finalStanding(l, "u0")
		f.wantErr("final standing in that division", err, leaderboard.ErrEntryNotFound)
	}},
	{"before Seal, FinalStandings and FinalLookup return ErrNotSealed; after it, FinalLookup returns an empty Key for a user without a standing", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1))
		l := leaderboard.Ladder{SeasonKey: firstSeason(b)}
		_, _, err := f.FinalStandings(f.ctx, l, 1, 1)
		f.wantErr("FinalStandings", err, leaderboard.ErrNotSealed)
		_, err = f.finalStanding(l, "u")
		f.wantErr("final standing", err, leaderboard.ErrNotSealed)
		_, err = f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		_, err = f.finalStanding(l, "v")
		f.wantErr("final standing of an unknown user", err, leaderboard.ErrEntryNotFound)
	}},
	{"DeleteSeason removes all data of a season", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.populate(b)
		f.apply(b, inSeason("s2", f.result(b, "u", "m", 0, 3)))
		f.setBanned("banned", true)
		f.apply(b, f.result(b, "banned", "m", 0, 3))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, firstSeason(b), time.Time{}))
		f.ok("FinishDeletions", f.FinishDeletions(f.ctx))
		f.checkNoData(*b)
		f.equal("the other season", users("u"), f.ladder(secondSeason(b), ""))
		f.equal("score in the other season", "3", f.score(b, secondSeason(b), "u"))
		f.apply(b, f.result(b, "v", "m", 0, 1))
		f.equal("a later result", users("v"), f.ladder(firstSeason(b), ""))
		f.ok("DeleteSeason again", f.DeleteSeason(f.ctx, firstSeason(b), time.Time{}))
		f.ok("DeleteSeason of an unknown season", f.DeleteSeason(f.ctx, leaderboard.SeasonKey{Board: "none", Season: "all"}, time.Time{}))
	}},
}
