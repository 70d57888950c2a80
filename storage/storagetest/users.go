package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var userTests = []test{
	{"SetBan hides a user's entries on every board, and returns the changes", func(f *fixture) {
		a, b := f.create(bestBoard("a")), f.create(sumBoard("b"))
		f.apply(a, withAttributes(f.result(a, "u", "m", 0, 5), "gender", "F"), withAttributes(f.result(a, "v", "m", 0, 4), "gender", "F"), inSeason("s2", f.result(a, "u", "m", 0, 6)))
		f.apply(b, f.result(b, "u", "m", 0, 7))
		seasons := []leaderboard.SeasonKey{firstSeason(a), secondSeason(a), firstSeason(b)}
		var want []leaderboard.Change
		for _, s := range seasons {
			want = append(want, leaderboard.Change{Before: f.entry(s, "u")})
		}
		changes := f.setBanned("u", true)
		for i, s := range seasons {
			want[i].After = f.entry(s, "u")
			hidden := want[i].Before
			hidden.Hidden, hidden.Version = true, want[i].After.Version
			f.equal("entry", hidden, want[i].After)
			if want[i].After.Version <= want[i].Before.Version {
				f.Errorf("the version is %d before the call and %d after it, want a higher version after it", want[i].Before.Version, want[i].After.Version)
			}
		}
		f.equal("changes", want, changes)
		f.equal("overall", users("v"), f.ladder(seasons[0], ""))
		f.equal("division", users("v"), f.ladder(seasons[0], "gender:F"))
		f.equal("other season", users(), f.ladder(seasons[1], ""))
		f.equal("other board", users(), f.ladder(seasons[2], ""))
	}},
	{"SetBan hides later entries too, and the store still keeps and counts the user's results", func(f *fixture) {
		f.setBanned("u", true)
		b := f.create(sumBoard("b"))
		report := f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 1))
		f.equal("status", leaderboard.Applied, report.Outcomes[0].Status)
		f.equal("hidden", true, report.Outcomes[0].Entry.Hidden)
		f.apply(b, f.result(b, "u", "n", 0, 2))
		f.equal("ladder", users("v"), f.ladder(firstSeason(b), ""))
		f.equal("score", "7", f.score(b, firstSeason(b), "u"))
	}},
	{"if SetBan lifts a ban, the user's entries are not hidden", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, withAttributes(f.result(b, "u", "m", 0, 5), "gender", "F"), f.result(b, "v", "m", 0, 4))
		f.setBanned("u", true)
		f.apply(b, withAttributes(f.result(b, "u", "n", 0, 6), "gender", "X"))
		changes := f.setBanned("u", false)
		if len(changes) != 1 || changes[0].After.Hidden || changes[0].After.Key == "" {
			f.Errorf("lifting the ban returned the changes %+v, want one change, whose After is not hidden", changes)
		}
		f.equal("overall", users("u", "v"), f.ladder(firstSeason(b), ""))
		f.equal("division", users("u"), f.ladder(firstSeason(b), "gender:X"))
		f.equal("old division", users(), f.ladder(firstSeason(b), "gender:F"))
	}},
	{"SetBan may be repeated", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		f.setBanned("u", true)
		f.equal("changes of a repeated ban", 0, len(f.setBanned("u", true)))
		f.equal("changes of lifting the ban", 1, len(f.setBanned("u", false)))
		f.equal("changes of lifting a ban again", 0, len(f.setBanned("u", false)))
	}},
	{"SetBan concurrent with Apply hides every entry", func(f *fixture) {
		b := f.create(sumBoard("b"))
		var results []leaderboard.MatchResult
		for i := range f.rows(100) {
			results = append(results, f.result(b, "u", leaderboard.MatchID(fmt.Sprint(i)), 0, 1))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, r := range results {
				if _, err := f.Apply(f.ctx, b, []leaderboard.MatchResult{r}); err != nil {
					f.Errorf("Apply: %v", err)
				}
			}
		})
		for i := range 21 {
			f.setBanned("u", i%2 == 0)
		}
		wg.Wait()
		f.equal("ladder", users(), f.ladder(firstSeason(b), ""))
		f.equal("score", fmt.Sprint(len(results)), f.score(b, firstSeason(b), "u"))
		f.setBanned("u", false)
		f.equal("ladder", users("u"), f.ladder(firstSeason(b), ""))
	}},
	{"Erase removes all data of a user", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.populate(b)
		s := firstSeason(b)
		f.apply(b, withAttributes(f.result(b, "u", "x", 0, 9), "gender", "F", "country", "KEN"), f.result(b, "uu", "m", 0, 1), inSeason("s2", f.result(b, "u", "m", 0, 1)))
		_, err := f.Seal(f.ctx, b, s.Season, f.clock)
		f.ok("Seal", err)
		f.setBanned("u", true)
		previous := []leaderboard.Entry{f.entry(s, "u"), f.entry(secondSeason(b), "u")}
		changes := f.erase("u", f.clock)
		for _, match := range []leaderboard.MatchID{"m", "late", "x"} {
			_, err := f.Result(f.ctx, leaderboard.ResultKey{SeasonKey: s, User: "u", Match: match})
			f.wantErr("Result", err, leaderboard.ErrResultNotFound)
		}
		results, err := collect(f.Results(f.ctx, s, "u"))
		f.ok("Results", err)
		f.equal("Results", 0, len(results))
		_, err = f.Entry(f.ctx, s, "u")
		f.wantErr("Entry", err, leaderboard.ErrEntryNotFound)
		scanned, err := collect(f.Scan(f.ctx, s, leaderboard.Part{}))
		f.ok("Scan", err)
		f.equal("Scan", 2, len(scanned))
		f.equal("ladder", users("v", "uu"), f.ladder(s, ""))
		f.equal("division", users("v"), f.ladder(s, "gender:F"))
		all, err := collect(f.Users(f.ctx, s))
		f.ok("Users", err)
		slices.Sort(all)
		f.equal("Users", users("uu", "v"), all)
		keys, err := f.UserSeasons(f.ctx, "u")
		f.ok("UserSeasons", err)
		f.equal("UserSeasons", 0, len(keys))
		f.equal("bans", leaderboard.Ban{User: "u"}, f.banOn("u", ""))
		_, err = f.finalStanding(leaderboard.Ladder{SeasonKey: s}, "u")
		f.wantErr("final standing", err, leaderboard.ErrEntryNotFound)
		seasons, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", 1, len(seasons))

		f.equal("changes", 2, len(changes))
		for i, c := range changes {
			f.equal("Before", previous[i], c.Before)
			f.equal("After", leaderboard.Entry{SeasonKey: previous[i].SeasonKey, User: "u", Version: c.After.Version}, c.After)
			if c.After.Version <= c.Before.Version {
				f.Errorf("the version is %d before the call and %d after it, want a higher version after it", c.Before.Version, c.After.Version)
			}
		}
	}},
	{"after Erase, the other users keep their ranks in final standings", func(f *fixture) {
		b := f.create(bestBoard("b"))
		for i, user := range users("a", "b", "c", "d") {
			f.apply(b, withAttributes(f.result(b, user, "m", 0, leaderboard.Score(-i)), "gender", "F"))
		}
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		f.erase("b", f.clock)
		for _, division := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}} {
			l := leaderboard.Ladder{SeasonKey: firstSeason(b), Division: division}
			got, total, err := f.FinalStandings(f.ctx, l, 1, 10)
			f.ok("FinalStandings", err)
			var ranks []string
			for _, st := range got {
				ranks = append(ranks, fmt.Sprint(st.User, st.Ranks.Competition))
			}
			f.equal("standings", []string{"a1", "c3", "d4"}, ranks)
			f.equal("total", int64(3), total)
		}
	}},
	{"after Erase, a result received at the time of the erasure or earlier is rejected", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 5)
		f.apply(b, r)
		at := f.clock.Add(time.Minute + 999*time.Nanosecond)
		f.erase("u", at)
		f.equal("a replay", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
		r.ReceivedAt = f.clock.Add(time.Minute)
		f.equal("a result received at the time of the erasure", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
		_, err := f.Result(f.ctx, r.ResultKey)
		f.wantErr("Result", err, leaderboard.ErrResultNotFound)
		all, err := collect(f.Users(f.ctx, firstSeason(b)))
		f.ok("Users", err)
		f.equal("Users", 0, len(all))
		r.ReceivedAt = r.ReceivedAt.Add(time.Microsecond)
		f.equal("a result received after the erasure", leaderboard.Applied, f.apply(b, r).Outcomes[0].Status)
		r.ReceivedAt, r.Match = f.clock.Add(time.Minute), "n"
		f.equal("a result received at the time of the erasure, after a later result", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
		f.equal("score", "5", f.score(b, firstSeason(b), "u"))
		f.equal("a result of another user", leaderboard.Applied, f.apply(b, f.result(b, "v", "m", 0, 1)).Outcomes[0].Status)
	}},
	{"Erase may be repeated, also with an earlier time", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 5)
		f.apply(b, r)
		f.erase("u", f.clock)
		f.equal("changes", 0, len(f.erase("u", f.clock)))
		f.erase("u", epoch)
		f.equal("a replay", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
	}},
	{"after Erase, new entries have greater versions than the erased entries", func(f *fixture) {
		b := f.create(sumBoard("b"))
		for i := range 5 {
			f.apply(b, f.result(b, "u", leaderboard.MatchID(fmt.Sprint(i)), 3, 5))
		}
		c := f.erase("u", f.clock)
		e := f.apply(b, f.result(b, "u", "m", 0, 1)).Outcomes[0].Entry
		if e.Version <= c[0].After.Version {
			f.Errorf("the version is %d after Erase and %d after a later result, want a higher version after the result", c[0].After.Version, e.Version)
		}
	}},
	{"FinishRankChange passes the user's entries to update, and then RankChanges does not yield the change", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), inSeason("s2", f.result(b, "u", "m", 0, 6)), f.result(b, "v", "m", 0, 5))
		updateErr := errors.New("the index fails")
		finish := func(failure error) (n int) {
			changes, err := collect(f.RankChanges(f.ctx))
			f.ok("RankChanges", err)
			for _, c := range changes {
				err := f.FinishRankChange(f.ctx, c, func(entries []leaderboard.Entry) error {
					for _, e := range entries {
						stored, err := f.Entry(f.ctx, e.SeasonKey, e.User)
						if errors.Is(err, leaderboard.ErrEntryNotFound) {
							stored, err = leaderboard.Entry{SeasonKey: e.SeasonKey, User: e.User, Version: e.Version}, nil
						}
						f.ok("Entry", err)
						f.equal("entry", stored, e)
					}
					return failure
				})
				if !errors.Is(err, failure) {
					f.Errorf("FinishRankChange: %v, want %v", err, failure)
				}
			}
			return len(changes)
		}
		for i, change := range []func(){
			func() { f.setBanned("u", true) }, func() { f.setBanned("u", false) }, func() { f.erase("u", f.clock) },
			func() { f.ok("DeleteSeason", f.DeleteSeason(f.ctx, firstSeason(b), time.Time{})) },
		} {
			change()
			pending := finish(updateErr)
			f.equal(fmt.Sprintf("step %d has changes", i), f.limits.NoRankChanges == "", pending > 0)
			f.equal(fmt.Sprintf("changes after a failure in step %d", i), pending, finish(nil))
			f.equal(fmt.Sprintf("changes at the end of step %d", i), 0, finish(nil))
		}
		unknown := leaderboard.RankChange{ID: "unknown"}
		f.ok("FinishRankChange of an unknown change", f.FinishRankChange(f.ctx, unknown, func(entries []leaderboard.Entry) error {
			f.equal("entries", 0, len(entries))
			return nil
		}))
	}},
	{"UserSeasons returns the seasons in which a user has a Record, ordered by board and season", func(f *fixture) {
		b, a, ab := f.create(bestBoard("b")), f.create(bestBoard("a")), f.create(sumBoard("ab"))
		f.apply(b, inSeason("s2", f.result(b, "u", "m", 0, 1)), f.retraction(b, "u", "m", 0), f.result(b, "v", "m", 0, 1))
		f.apply(a, inSeason("s2", f.retraction(a, "u", "m", 0)), inSeason("s1", f.result(a, "u", "m", 0, 1<<60)), f.result(a, "v", "m", 0, 1))
		f.apply(ab, f.result(ab, "u", "m", 0, 1), f.result(ab, "uu", "m", 0, 1))
		got, err := f.UserSeasons(f.ctx, "u")
		f.ok("UserSeasons", err)
		f.equal("UserSeasons", []leaderboard.SeasonKey{secondSeason(a), firstSeason(ab), firstSeason(b), secondSeason(b)}, got)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "ab", time.Time{}))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, secondSeason(b), time.Time{}))
		got, err = f.UserSeasons(f.ctx, "u")
		f.ok("UserSeasons", err)
		f.equal("UserSeasons after deletions", []leaderboard.SeasonKey{secondSeason(a), firstSeason(b)}, got)
	}},
}
