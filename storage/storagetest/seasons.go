package storagetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var seasonTests = []test{
	{"Seasons returns the seasons that have a Record or are sealed, ordered by id", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, inSeason("s2", f.result(b, "u", "m", 0, 1)))
		record, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		got, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", []leaderboard.SeasonRecord{record, {SeasonKey: secondSeason(b)}}, got)
		got, err = f.Seasons(f.ctx, "none")
		f.ok("Seasons", err)
		f.equal("Seasons of an unknown board", 0, len(got))
	}},
	{"Season returns the SeasonRecord of a season; without a seal, only its SeasonKey is set", func(f *fixture) {
		b := f.create(bestBoard("b"))
		season := func(what string, want leaderboard.SeasonRecord) {
			f.Helper()
			got, err := f.Season(f.ctx, want.SeasonKey)
			f.ok("Season", err)
			f.equal("Season "+what, want, got)
		}
		none := leaderboard.SeasonRecord{SeasonKey: firstSeason(b)}
		season("without results", none)
		f.apply(b, f.result(b, "u", "m", 0, 1))
		season("with results", none)
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		record, err := f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock.Add(time.Second), Reason: "late"})
		f.ok("Amend", err)
		season("that is sealed", record)
		season("that is not sealed, on a board with a sealed one", leaderboard.SeasonRecord{SeasonKey: secondSeason(b)})
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, firstSeason(b), time.Time{}))
		season("that was deleted", none)
		season("of an unknown board", leaderboard.SeasonRecord{SeasonKey: leaderboard.SeasonKey{Board: "none", Season: "s1"}})
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
		f.ban(user(n/2), true)
		ladders := map[leaderboard.Ladder][]leaderboard.Standing{}
		for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}, {Attribute: "gender", Value: "M"}, {Attribute: "country", Value: "c3"}} {
			l := leaderboard.Ladder{SeasonKey: firstSeason(b), Division: d}
			entries, err := collect(f.Entries(f.ctx, l, ""))
			f.ok("Entries", err)
			ladders[l] = assignRanks(entries)
		}
		record, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		f.equal("record", leaderboard.SeasonRecord{SeasonKey: firstSeason(b), SealedAt: f.clock}, record)
		f.apply(b, f.result(b, user(0), "n", 0, 5000), f.retraction(b, user(n-1), "m", 1))
		for l, want := range ladders {
			got, total, err := f.FinalStandings(f.ctx, l, 1, 5000)
			f.ok("FinalStandings", err)
			f.equal("total", int64(len(want)), total)
			f.equal(fmt.Sprint("standings of ", l), want, got)
			st, err := f.FinalStanding(f.ctx, l, want[len(want)/12].User)
			f.ok("FinalStanding", err)
			f.equal("standing", want[len(want)/12], st)
		}
	}},
	{"ChangedAt is the time of the last result, ban or erasure that changed an entry of the season", func(f *fixture) {
		b := f.create(bestBoard("b"))
		s := firstSeason(b)
		want := func(what string, at time.Time) {
			f.Helper()
			if f.limits.NoChangedAt != "" {
				at = time.Time{}
			}
			got, err := f.ChangedAt(f.ctx, s)
			f.ok("ChangedAt", err)
			f.equal(what, at, got)
		}
		want("without results", time.Time{})
		first, last := f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 5)
		f.apply(b, last, first, inSeason("s2", inSecond(f.result(b, "u", "m", 0, 5))))
		want("after results", last.ReceivedAt)
		again := last
		again.ReceivedAt = f.clock.Add(time.Hour)
		f.apply(b, again)
		want("after a duplicate", last.ReceivedAt)
		f.apply(b, f.retraction(b, "u", "m", 1))
		want("after a retraction", f.clock)
		banned := f.clock.Add(time.Minute)
		f.setBan(leaderboard.Ban{User: "v", Banned: true, At: banned})
		want("after a ban", banned)
		f.erase("v", banned.Add(time.Minute))
		want("after an erasure", banned.Add(time.Minute))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, time.Time{}))
		want("after the deletion of the season", time.Time{})
	}},
	{"Seal of a sealed season replaces its final standings and appends the amendment", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), withAttributes(f.result(b, "v", "m", 0, 4), "gender", "F"))
		sealed := f.clock
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: sealed, Reason: "over"})
		f.ok("Seal", err)
		f.apply(b, f.retraction(b, "u", "m", 1))
		amendments := []leaderboard.Amendment{{At: f.clock, Reason: "retract"}, {At: f.clock.Add(time.Second), Reason: "é"}}
		for i, a := range amendments {
			record, err := f.Seal(f.ctx, b, "s1", a)
			f.ok("Seal", err)
			f.equal("record", leaderboard.SeasonRecord{SeasonKey: firstSeason(b), SealedAt: sealed, Amendments: amendments[:i+1]}, record)
		}
		got, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, 1, 10)
		f.ok("FinalStandings", err)
		if total != 1 || len(got) != 1 || got[0].User != "v" || got[0].Ranks != (leaderboard.Ranks{Competition: 1, Dense: 1, Ordinal: 1}) {
			f.Errorf("FinalStandings returned %+v and the total %d, want only user v, with rank 1", got, total)
		}
		_, err = f.FinalStanding(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, "u")
		f.wantErr("FinalStanding of a user whose result was retracted", err, leaderboard.ErrEntryNotFound)
		seasons, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", []leaderboard.SeasonRecord{{SeasonKey: firstSeason(b), SealedAt: sealed, Amendments: amendments}}, seasons)
	}},
	{"Seal may be repeated", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		seal, amend := leaderboard.Amendment{At: f.clock, Reason: "over"}, leaderboard.Amendment{At: f.clock.Add(time.Hour), Reason: "x"}
		for _, a := range []leaderboard.Amendment{seal, seal, amend, amend} {
			_, err := f.Seal(f.ctx, b, "s1", a)
			f.ok("Seal", err)
		}
		seasons, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", []leaderboard.SeasonRecord{{SeasonKey: firstSeason(b), SealedAt: seal.At, Amendments: []leaderboard.Amendment{amend}}}, seasons)
	}},
	{"while Seal runs, readers see either the old standings or the new ones", func(f *fixture) {
		b := f.create(bestBoard("b"))
		var results []leaderboard.MatchResult
		const n = 40
		for i := range n {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), "m", 0, 0))
		}
		f.apply(b, results...)
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
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
					if _, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: epoch.AddDate(1, 0, int(round))}); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
		for running := true; running; {
			select {
			case err := <-done:
				f.ok("Apply or Seal", err)
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
			if _, err := f.FinalStanding(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, "u7"); err != nil {
				f.Fatalf("FinalStanding: %v", err)
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
			f.apply(b, results...)
			var wg sync.WaitGroup
			at := f.clock
			wg.Go(func() {
				if _, err := f.Seal(f.ctx, b, season, leaderboard.Amendment{At: at}); err != nil {
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
				_, err = f.FinalStanding(f.ctx, l, "u15")
				f.wantErr("FinalStanding", err, leaderboard.ErrEntryNotFound)
			}
		}
	}},
	{"Amend replaces the final standings of a sealed season, and returns ErrNotSealed for others", func(f *fixture) {
		b := f.create(bestBoard("b"))
		amend := func(reason string) (leaderboard.SeasonRecord, error) {
			f.clock = f.clock.Add(time.Second)
			return f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock, Reason: reason})
		}
		_, err := amend("of nothing")
		f.wantErr("Amend of a season without results", err, leaderboard.ErrNotSealed)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 4))
		_, err = amend("of an open season")
		f.wantErr("Amend of a season that is not sealed", err, leaderboard.ErrNotSealed)
		sealed := f.clock
		_, err = f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: sealed, Reason: "over"})
		f.ok("Seal", err)
		f.apply(b, f.result(b, "v", "n", 0, 6))
		record, err := amend("late")
		f.ok("Amend", err)
		f.equal("record", leaderboard.SeasonRecord{SeasonKey: firstSeason(b), SealedAt: sealed, Amendments: []leaderboard.Amendment{{At: f.clock, Reason: "late"}}}, record)
		st, err := f.FinalStanding(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, "v")
		f.ok("FinalStanding", err)
		f.equal("rank", int64(1), st.Ranks.Ordinal)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		_, err = amend("of a deleted board")
		f.wantErr("Amend of a season of a deleted board", err, leaderboard.ErrNotSealed)
		next := bestBoard("b")
		next.CreatedAt = b.CreatedAt.Add(time.Hour)
		_, err = f.Seal(f.ctx, f.create(next), "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		_, err = amend("of a deleted board with a successor")
		f.wantErr("Amend of a season of the deleted board while a new board has its id", err, leaderboard.ErrNotSealed)
	}},
	{"a Seal that returns after Amend includes all changes made before Amend", func(f *fixture) {
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
				if _, err := f.Seal(f.ctx, b, season, leaderboard.Amendment{At: at}); err != nil {
					f.Errorf("Seal: %v", err)
				}
			})
			for i := range late {
				f.apply(b, late[i])
				_, err := f.Amend(f.ctx, b, season, leaderboard.Amendment{At: f.clock, Reason: "late"})
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
					f.Fatalf("round %d: the final standings of %q differ from the entries, want the same users and scores", round, d)
				}
			}
		}
	}},
	{"Seal of a season without entries writes empty final standings", func(f *fixture) {
		b := f.create(bestBoard("b"))
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
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
		_, err := f.Seal(f.ctx, b, "all", leaderboard.Amendment{At: f.clock})
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
		_, err = f.FinalStanding(f.ctx, l, "u0")
		f.wantErr("FinalStanding in that division", err, leaderboard.ErrEntryNotFound)
	}},
	{"before Seal, FinalStandings and FinalStanding return ErrNotSealed; for a user without a standing, FinalStanding returns ErrEntryNotFound", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1))
		l := leaderboard.Ladder{SeasonKey: firstSeason(b)}
		_, _, err := f.FinalStandings(f.ctx, l, 1, 1)
		f.wantErr("FinalStandings", err, leaderboard.ErrNotSealed)
		_, err = f.FinalStanding(f.ctx, l, "u")
		f.wantErr("FinalStanding", err, leaderboard.ErrNotSealed)
		_, err = f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		_, err = f.FinalStanding(f.ctx, l, "v")
		f.wantErr("FinalStanding of an unknown user", err, leaderboard.ErrEntryNotFound)
	}},
	{"DeleteSeason removes everything kept about a season", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.fill(b)
		f.apply(b, inSeason("s2", f.result(b, "u", "m", 0, 3)))
		f.ban("banned", true)
		f.apply(b, f.result(b, "banned", "m", 0, 3))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, firstSeason(b), time.Time{}))
		f.ok("FinishDeletions", f.FinishDeletions(f.ctx))
		f.keepsNothing(*b)
		f.equal("the other season", users("u"), f.ladder(secondSeason(b), ""))
		f.equal("score in the other season", "3", f.score(b, secondSeason(b), "u"))
		f.apply(b, f.result(b, "v", "m", 0, 1))
		f.equal("a later result", users("v"), f.ladder(firstSeason(b), ""))
		f.ok("DeleteSeason again", f.DeleteSeason(f.ctx, firstSeason(b), time.Time{}))
		f.ok("DeleteSeason of an unknown season", f.DeleteSeason(f.ctx, leaderboard.SeasonKey{Board: "none", Season: "all"}, time.Time{}))
	}},
}
