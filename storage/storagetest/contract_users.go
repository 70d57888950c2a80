package storagetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

func (f *fixture) ban(user leaderboard.UserID, banned bool) []leaderboard.Change {
	f.Helper()
	changes, err := f.SetBan(f.ctx, leaderboard.Ban{User: user, Banned: banned, Reason: "cheats", At: f.clock})
	f.ok("SetBan", err)
	slices.SortFunc(changes, func(x, y leaderboard.Change) int { return compareScopes(x.After.Scope, y.After.Scope) })
	return changes
}

func (f *fixture) eraseUser(user leaderboard.UserID, at time.Time) []leaderboard.Change {
	f.Helper()
	changes, err := f.Erase(f.ctx, user, at)
	f.ok("Erase", err)
	slices.SortFunc(changes, func(x, y leaderboard.Change) int { return compareScopes(x.After.Scope, y.After.Scope) })
	return changes
}

var userTests = []test{
	{"SetBan hides a user's entries on every board, and returns the changes", func(f *fixture) {
		a, b := f.create(bestBoard("a")), f.create(sumBoard("b"))
		f.apply(a, with(f.result(a, "u", "m", 0, 5), "gender", "F"), with(f.result(a, "v", "m", 0, 4), "gender", "F"), in("s2", f.result(a, "u", "m", 0, 6)))
		f.apply(b, f.result(b, "u", "m", 0, 7))
		scopes := []leaderboard.Scope{scopeOf(a), second(a), scopeOf(b)}
		var want []leaderboard.Change
		for _, s := range scopes {
			want = append(want, leaderboard.Change{Before: f.entry(s, "u")})
		}
		changes := f.ban("u", true)
		for i, s := range scopes {
			want[i].After = f.entry(s, "u")
			hidden := want[i].Before
			hidden.Hidden, hidden.Version = true, want[i].After.Version
			f.equal("entry", hidden, want[i].After)
			if want[i].After.Version <= want[i].Before.Version {
				f.Errorf("version went from %d to %d", want[i].Before.Version, want[i].After.Version)
			}
		}
		f.equal("changes", want, changes)
		f.equal("overall", users("v"), f.ladder(scopes[0], ""))
		f.equal("division", users("v"), f.ladder(scopes[0], "gender:F"))
		f.equal("other season", users(), f.ladder(scopes[1], ""))
		f.equal("other board", users(), f.ladder(scopes[2], ""))
	}},
	{"SetBan hides future entries, and results go on being kept and counted", func(f *fixture) {
		f.ban("u", true)
		b := f.create(sumBoard("b"))
		report := f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 1))
		f.equal("status", leaderboard.Applied, report.Outcomes[0].Status)
		f.equal("hidden", true, report.Outcomes[0].Entry.Hidden)
		f.apply(b, f.result(b, "u", "n", 0, 2))
		f.equal("ladder", users("v"), f.ladder(scopeOf(b), ""))
		f.equal("score", "7", f.score(b, scopeOf(b), "u"))
	}},
	{"SetBan brings entries back", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, with(f.result(b, "u", "m", 0, 5), "gender", "F"), f.result(b, "v", "m", 0, 4))
		f.ban("u", true)
		f.apply(b, with(f.result(b, "u", "n", 0, 6), "gender", "X"))
		changes := f.ban("u", false)
		if len(changes) != 1 || changes[0].After.Hidden || changes[0].After.Key == "" {
			f.Errorf("changes %+v", changes)
		}
		f.equal("overall", users("u", "v"), f.ladder(scopeOf(b), ""))
		f.equal("division", users("u"), f.ladder(scopeOf(b), "gender:X"))
		f.equal("old division", users(), f.ladder(scopeOf(b), "gender:F"))
	}},
	{"SetBan may be repeated", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		f.ban("u", true)
		f.equal("changes of the same ban", 0, len(f.ban("u", true)))
		f.equal("changes of lifting it", 1, len(f.ban("u", false)))
		f.equal("changes of lifting none", 0, len(f.ban("u", false)))
	}},
	{"Ban returns a user's ban, Banned false if there is none", func(f *fixture) {
		got, err := f.Ban(f.ctx, "u")
		f.ok("Ban", err)
		f.equal("Ban of nobody", leaderboard.Ban{User: "u"}, got)
		want := leaderboard.Ban{User: "u", Banned: true, Reason: "cheats, \"<é>\"", At: epoch}
		_, err = f.SetBan(f.ctx, want)
		f.ok("SetBan", err)
		got, err = f.Ban(f.ctx, "u")
		f.ok("Ban", err)
		f.equal("Ban", want, got)
		f.ban("u", false)
		got, err = f.Ban(f.ctx, "u")
		f.ok("Ban", err)
		f.equal("Banned", false, got.Banned)
	}},
	{"SetBan beside results leaves nothing shown", func(f *fixture) {
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
			f.ban("u", i%2 == 0)
		}
		wg.Wait()
		f.equal("ladder", users(), f.ladder(scopeOf(b), ""))
		f.equal("score", fmt.Sprint(len(results)), f.score(b, scopeOf(b), "u"))
		f.ban("u", false)
		f.equal("ladder", users("u"), f.ladder(scopeOf(b), ""))
	}},
	{"Erase removes all that is kept of a user", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.fill(b)
		s := scopeOf(b)
		f.apply(b, with(f.result(b, "u", "x", 0, 9), "gender", "F", "country", "KEN"), f.result(b, "uu", "m", 0, 1), in("s2", f.result(b, "u", "m", 0, 1)))
		_, err := f.Seal(f.ctx, b, s.Season, leaderboard.Amendment{At: f.clock, Reason: "again"})
		f.ok("Seal", err)
		f.ban("u", true)
		before := []leaderboard.Entry{f.entry(s, "u"), f.entry(second(b), "u")}
		changes := f.eraseUser("u", f.clock)
		for _, match := range []leaderboard.MatchID{"m", "late", "x"} {
			_, err := f.Result(f.ctx, leaderboard.ResultKey{Scope: s, User: "u", Match: match})
			f.is("Result", err, leaderboard.ErrResultNotFound)
		}
		results, err := collect(f.Results(f.ctx, s, "u"))
		f.ok("Results", err)
		f.equal("Results", 0, len(results))
		_, err = f.Entry(f.ctx, s, "u")
		f.is("Entry", err, leaderboard.ErrEntryNotFound)
		scanned, err := collect(f.Scan(f.ctx, s))
		f.ok("Scan", err)
		f.equal("Scan", 2, len(scanned))
		f.equal("ladder", users("v", "uu"), f.ladder(s, ""))
		f.equal("division", users("v"), f.ladder(s, "gender:F"))
		all, err := collect(f.Users(f.ctx, s))
		f.ok("Users", err)
		slices.Sort(all)
		f.equal("Users", users("uu", "v"), all)
		scopes, err := f.UserScopes(f.ctx, "u")
		f.ok("UserScopes", err)
		f.equal("UserScopes", 0, len(scopes))
		ban, err := f.Ban(f.ctx, "u")
		f.ok("Ban", err)
		f.equal("Banned", false, ban.Banned)
		_, err = f.FinalStanding(f.ctx, leaderboard.Ladder{Scope: s}, "u")
		f.is("FinalStanding", err, leaderboard.ErrEntryNotFound)
		seasons, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", 1, len(seasons))

		f.equal("changes", 2, len(changes))
		for i, c := range changes {
			f.equal("Before", before[i], c.Before)
			f.equal("After", leaderboard.Entry{Scope: before[i].Scope, User: "u", Version: c.After.Version}, c.After)
			if c.After.Version <= c.Before.Version {
				f.Errorf("version went from %d to %d", c.Before.Version, c.After.Version)
			}
		}
	}},
	{"after Erase the others keep their final ranks", func(f *fixture) {
		b := f.create(bestBoard("b"))
		for i, user := range users("a", "b", "c", "d") {
			f.apply(b, with(f.result(b, user, "m", 0, leaderboard.Score(-i)), "gender", "F"))
		}
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		f.eraseUser("b", f.clock)
		for _, division := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}} {
			l := leaderboard.Ladder{Scope: scopeOf(b), Division: division}
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
	{"Erase rejects results received at or before", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 5)
		f.apply(b, r)
		at := f.clock.Add(time.Minute + 999*time.Nanosecond)
		f.eraseUser("u", at)
		f.equal("a replay", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
		r.ReceivedAt = f.clock.Add(time.Minute)
		f.equal("one received at the time", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
		_, err := f.Result(f.ctx, r.ResultKey)
		f.is("Result", err, leaderboard.ErrResultNotFound)
		all, err := collect(f.Users(f.ctx, scopeOf(b)))
		f.ok("Users", err)
		f.equal("Users", 0, len(all))
		r.ReceivedAt = r.ReceivedAt.Add(time.Microsecond)
		f.equal("one received after", leaderboard.Applied, f.apply(b, r).Outcomes[0].Status)
		r.ReceivedAt, r.Match = f.clock.Add(time.Minute), "n"
		f.equal("a replay when the user is back", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
		f.equal("score", "5", f.score(b, scopeOf(b), "u"))
		f.equal("somebody else", leaderboard.Applied, f.apply(b, f.result(b, "v", "m", 0, 1)).Outcomes[0].Status)
	}},
	{"Erase may be repeated, and with an earlier time forgets nothing", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 5)
		f.apply(b, r)
		f.eraseUser("u", f.clock)
		f.equal("changes", 0, len(f.eraseUser("u", f.clock)))
		f.eraseUser("u", epoch)
		f.equal("a replay", leaderboard.ReasonErased, f.apply(b, r).Outcomes[0].Reason)
	}},
	{"after Erase versions go on growing", func(f *fixture) {
		b := f.create(sumBoard("b"))
		for i := range 5 {
			f.apply(b, f.result(b, "u", leaderboard.MatchID(fmt.Sprint(i)), 3, 5))
		}
		c := f.eraseUser("u", f.clock)
		e := f.apply(b, f.result(b, "u", "m", 0, 1)).Outcomes[0].Entry
		if e.Version <= c[0].After.Version {
			f.Errorf("version went from %d to %d", c[0].After.Version, e.Version)
		}
	}},
	{"UserScopes returns the scopes in which a user has a Record, by board and season", func(f *fixture) {
		b, a, ab := f.create(bestBoard("b")), f.create(bestBoard("a")), f.create(sumBoard("ab"))
		f.apply(b, in("s2", f.result(b, "u", "m", 0, 1)), f.retraction(b, "u", "m", 0), f.result(b, "v", "m", 0, 1))
		f.apply(a, in("s2", f.result(a, "u", "m", 0, 1<<60)), f.result(a, "v", "m", 0, 1))
		f.apply(ab, f.result(ab, "u", "m", 0, 1), f.result(ab, "uu", "m", 0, 1))
		got, err := f.UserScopes(f.ctx, "u")
		f.ok("UserScopes", err)
		f.equal("UserScopes", []leaderboard.Scope{second(a), scopeOf(ab), scopeOf(b), second(b)}, got)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "ab"))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, second(b)))
		got, err = f.UserScopes(f.ctx, "u")
		f.ok("UserScopes", err)
		f.equal("UserScopes after deletions", []leaderboard.Scope{second(a), scopeOf(b)}, got)
	}},
}

var seasonTests = []test{
	{"Seasons returns seasons in which there is a Record or that are sealed, by id", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, in("s2", f.result(b, "u", "m", 0, 1)))
		record, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		got, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", []leaderboard.SeasonRecord{record, {Scope: second(b)}}, got)
		got, err = f.Seasons(f.ctx, "none")
		f.ok("Seasons", err)
		f.equal("Seasons of no board", 0, len(got))
	}},
	{"Season returns what is known of a season", func(f *fixture) {
		b := f.create(bestBoard("b"))
		season := func(what string, want leaderboard.SeasonRecord) {
			f.Helper()
			got, err := f.Season(f.ctx, want.Scope)
			f.ok("Season", err)
			f.equal("Season "+what, want, got)
		}
		none := leaderboard.SeasonRecord{Scope: scopeOf(b)}
		season("without results", none)
		f.apply(b, f.result(b, "u", "m", 0, 1))
		season("with results", none)
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		record, err := f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock.Add(time.Second), Reason: "late"})
		f.ok("Amend", err)
		season("that is sealed", record)
		season("beside it", leaderboard.SeasonRecord{Scope: second(b)})
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, scopeOf(b)))
		season("that was deleted", none)
		season("of no board", leaderboard.SeasonRecord{Scope: leaderboard.Scope{Board: "none", Season: "s1"}})
	}},
	{"Seal makes the final standings of each ladder from the entries as they are", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(1200)
		user := func(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprintf("u%04d", i)) }
		var results []leaderboard.MatchResult
		for i := range n {
			results = append(results, with(f.result(b, user(i), "m", 0, leaderboard.Score(i/3)), "gender", []string{"F", "M"}[i%2], "country", fmt.Sprint("c", i%7)))
		}
		f.apply(b, results...)
		f.ban(user(n/2), true)
		ladders := map[leaderboard.Ladder][]leaderboard.Standing{}
		for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}, {Attribute: "gender", Value: "M"}, {Attribute: "country", Value: "c3"}} {
			l := leaderboard.Ladder{Scope: scopeOf(b), Division: d}
			entries, err := collect(f.Entries(f.ctx, l, ""))
			f.ok("Entries", err)
			ladders[l] = number(entries)
		}
		record, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		f.equal("record", leaderboard.SeasonRecord{Scope: scopeOf(b), SealedAt: f.clock}, record)
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
	{"Seal of a sealed season makes them again and appends the amendment", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), with(f.result(b, "v", "m", 0, 4), "gender", "F"))
		sealed := f.clock
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: sealed, Reason: "over"})
		f.ok("Seal", err)
		f.apply(b, f.retraction(b, "u", "m", 1))
		amendments := []leaderboard.Amendment{{At: f.clock, Reason: "retract"}, {At: f.clock.Add(time.Second), Reason: "é"}}
		for i, a := range amendments {
			record, err := f.Seal(f.ctx, b, "s1", a)
			f.ok("Seal", err)
			f.equal("record", leaderboard.SeasonRecord{Scope: scopeOf(b), SealedAt: sealed, Amendments: amendments[:i+1]}, record)
		}
		got, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{Scope: scopeOf(b)}, 1, 10)
		f.ok("FinalStandings", err)
		if total != 1 || len(got) != 1 || got[0].User != "v" || got[0].Ranks != (leaderboard.Ranks{Competition: 1, Dense: 1, Ordinal: 1}) {
			f.Errorf("%d in all: %+v", total, got)
		}
		_, err = f.FinalStanding(f.ctx, leaderboard.Ladder{Scope: scopeOf(b)}, "u")
		f.is("FinalStanding of who is no longer there", err, leaderboard.ErrEntryNotFound)
		seasons, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", []leaderboard.SeasonRecord{{Scope: scopeOf(b), SealedAt: sealed, Amendments: amendments}}, seasons)
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
		f.equal("Seasons", []leaderboard.SeasonRecord{{Scope: scopeOf(b), SealedAt: seal.At, Amendments: []leaderboard.Amendment{amend}}}, seasons)
	}},
	{"readers see the old standings or the new ones whole", func(f *fixture) {
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
			got, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{Scope: scopeOf(b)}, 1, 100)
			f.ok("FinalStandings", err)
			if len(got) != n || total != n {
				f.Fatalf("%d standings, %d in all", len(got), total)
			}
			for _, st := range got {
				if st.Key != got[0].Key {
					f.Fatalf("scores %d and %d", b.ScoreOf(st.Key, epoch), b.ScoreOf(got[0].Key, epoch))
				}
			}
			if _, err := f.FinalStanding(f.ctx, leaderboard.Ladder{Scope: scopeOf(b)}, "u7"); err != nil {
				f.Fatalf("FinalStanding: %v", err)
			}
		}
	}},
	{"Erase beside Seal leaves nobody in the final standings", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(300)
		for round := range f.rounds(5) {
			season := []leaderboard.SeasonID{"s1", "s2"}[round%2]
			var results []leaderboard.MatchResult
			for i := range n {
				results = append(results, in(season, with(f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), leaderboard.MatchID(fmt.Sprint(round)), 0, 0), "gender", "F")))
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
				f.eraseUser(leaderboard.UserID(fmt.Sprint("u", i*15)), f.clock)
			}
			wg.Wait()
			for _, d := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}} {
				l := leaderboard.Ladder{Scope: leaderboard.Scope{Board: "b", Season: season}, Division: d}
				got, total, err := f.FinalStandings(f.ctx, l, 1, 1000)
				f.ok("FinalStandings", err)
				f.equal("standings", n-n/15, len(got))
				f.equal("total", int64(n-n/15), total)
				_, err = f.FinalStanding(f.ctx, l, "u15")
				f.is("FinalStanding", err, leaderboard.ErrEntryNotFound)
			}
		}
	}},
	{"Amend makes the final standings of a sealed season again, and of no other", func(f *fixture) {
		b := f.create(bestBoard("b"))
		amend := func(reason string) (leaderboard.SeasonRecord, error) {
			f.clock = f.clock.Add(time.Second)
			return f.Amend(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock, Reason: reason})
		}
		_, err := amend("of nothing")
		f.is("Amend of a season without results", err, leaderboard.ErrNotSealed)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 4))
		_, err = amend("of an open season")
		f.is("Amend of a season that is not sealed", err, leaderboard.ErrNotSealed)
		sealed := f.clock
		_, err = f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: sealed, Reason: "over"})
		f.ok("Seal", err)
		f.apply(b, f.result(b, "v", "n", 0, 6))
		record, err := amend("late")
		f.ok("Amend", err)
		f.equal("record", leaderboard.SeasonRecord{Scope: scopeOf(b), SealedAt: sealed, Amendments: []leaderboard.Amendment{{At: f.clock, Reason: "late"}}}, record)
		st, err := f.FinalStanding(f.ctx, leaderboard.Ladder{Scope: scopeOf(b)}, "v")
		f.ok("FinalStanding", err)
		f.equal("rank", int64(1), st.Ranks.Ordinal)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b"))
		_, err = amend("of a deleted board")
		f.is("Amend of a season of a deleted board", err, leaderboard.ErrNotSealed)
		next := bestBoard("b")
		next.CreatedAt = b.CreatedAt.Add(time.Hour)
		_, err = f.Seal(f.ctx, f.create(next), "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		_, err = amend("of the board before")
		f.is("Amend of a season of the board before", err, leaderboard.ErrNotSealed)
	}},
	{"Amend beside Seal leaves out nothing that was changed before", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(300)
		user := func(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprint("u", i)) }
		for round := range f.rounds(6) {
			season := []leaderboard.SeasonID{"s1", "s2"}[round%2]
			scope := leaderboard.Scope{Board: "b", Season: season}
			f.ok("DeleteSeason", f.DeleteSeason(f.ctx, scope))
			var results, late []leaderboard.MatchResult
			for i := range n {
				results = append(results, in(season, with(f.result(b, user(i), "m", 0, leaderboard.Score(i)), "gender", "F")))
			}
			for i := 0; i < n; i += n / 10 {
				late = append(late, in(season, with(f.result(b, user(i), "late", 0, leaderboard.Score(1000+i)), "gender", "F")))
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
				l := leaderboard.Ladder{Scope: scope, Division: d}
				entries, err := collect(f.Entries(f.ctx, l, ""))
				f.ok("Entries", err)
				got, _, err := f.FinalStandings(f.ctx, l, 1, 1000)
				f.ok("FinalStandings", err)
				if !reflect.DeepEqual(number(entries), got) {
					f.Fatalf("round %d: the final standings of %q are not of the entries", round, d)
				}
			}
		}
	}},
	{"Seal of a season without entries makes empty standings", func(f *fixture) {
		b := f.create(bestBoard("b"))
		_, err := f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		got, total, err := f.FinalStandings(f.ctx, leaderboard.Ladder{Scope: scopeOf(b)}, 1, 10)
		f.ok("FinalStandings", err)
		f.equal("standings", 0, len(got))
		f.equal("total", int64(0), total)
	}},
	{"FinalStandings returns up to n from a position on, and the number of all", func(f *fixture) {
		b := f.create(sumBoard("b"))
		for i := range 10 {
			f.apply(b, f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), "m", 0, leaderboard.Score(-i/2)))
		}
		_, err := f.Seal(f.ctx, b, "all", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		l := leaderboard.Ladder{Scope: scopeOf(b)}
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
		f.ok("FinalStandings of a division that nobody is in", err)
		f.equal("total", int64(0), total)
		_, err = f.FinalStanding(f.ctx, l, "u0")
		f.is("FinalStanding in it", err, leaderboard.ErrEntryNotFound)
	}},
	{"FinalStandings and FinalStanding return ErrNotSealed and ErrEntryNotFound", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1))
		l := leaderboard.Ladder{Scope: scopeOf(b)}
		_, _, err := f.FinalStandings(f.ctx, l, 1, 1)
		f.is("FinalStandings", err, leaderboard.ErrNotSealed)
		_, err = f.FinalStanding(f.ctx, l, "u")
		f.is("FinalStanding", err, leaderboard.ErrNotSealed)
		_, err = f.Seal(f.ctx, b, "s1", leaderboard.Amendment{At: f.clock})
		f.ok("Seal", err)
		_, err = f.FinalStanding(f.ctx, l, "v")
		f.is("FinalStanding of nobody", err, leaderboard.ErrEntryNotFound)
	}},
	{"DeleteSeason removes all that is kept of a scope", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.fill(b)
		f.apply(b, in("s2", f.result(b, "u", "m", 0, 3)))
		f.ban("banned", true)
		f.apply(b, f.result(b, "banned", "m", 0, 3))
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, scopeOf(b)))
		ladderless(f, *b)
		f.equal("the other season", users("u"), f.ladder(second(b), ""))
		f.equal("its result", "3", f.score(b, second(b), "u"))
		f.apply(b, f.result(b, "v", "m", 0, 1))
		f.equal("a result that comes later", users("v"), f.ladder(scopeOf(b), ""))
		f.ok("DeleteSeason again", f.DeleteSeason(f.ctx, scopeOf(b)))
		f.ok("DeleteSeason of none", f.DeleteSeason(f.ctx, leaderboard.Scope{Board: "none", Season: "all"}))
	}},
}

var apiKeyTests = []test{
	{"PutAPIKey keeps a key, replacing one of the same id", func(f *fixture) {
		old := leaderboard.APIKey{ID: "k", Name: "game é", Hash: [32]byte{1, 0, 255}, Scopes: []string{"read", "submit"}, CreatedAt: epoch}
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, old))
		got, err := f.APIKey(f.ctx, old.Hash)
		f.ok("APIKey", err)
		f.equal("APIKey", old, got)
		if !got.ExpiresAt.IsZero() {
			f.Errorf("ExpiresAt %v", got.ExpiresAt)
		}
		next := leaderboard.APIKey{ID: "k", Hash: [32]byte{2}, Scopes: []string{"admin"}, CreatedAt: epoch, ExpiresAt: epoch.AddDate(1, 0, 0)}
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, next))
		f.ok("PutAPIKey again", f.PutAPIKey(f.ctx, next))
		_, err = f.APIKey(f.ctx, old.Hash)
		f.is("APIKey by the old hash", err, leaderboard.ErrAPIKeyNotFound)
		got, err = f.APIKey(f.ctx, next.Hash)
		f.ok("APIKey", err)
		f.equal("APIKey", next, got)
	}},
	{"APIKey returns ErrAPIKeyNotFound", func(f *fixture) {
		_, err := f.APIKey(f.ctx, [32]byte{})
		f.is("APIKey", err, leaderboard.ErrAPIKeyNotFound)
	}},
	{"APIKeys returns all keys by id", func(f *fixture) {
		for i, id := range []string{"b", "a", "aa"} {
			f.ok("PutAPIKey", f.PutAPIKey(f.ctx, leaderboard.APIKey{ID: id, Hash: [32]byte{byte(i)}}))
		}
		keys, err := f.APIKeys(f.ctx)
		f.ok("APIKeys", err)
		var ids []string
		for _, k := range keys {
			ids = append(ids, k.ID)
		}
		f.equal("ids", []string{"a", "aa", "b"}, ids)
	}},
	{"DeleteAPIKey removes a key, or returns ErrAPIKeyNotFound", func(f *fixture) {
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, leaderboard.APIKey{ID: "k", Hash: [32]byte{1}}))
		f.ok("DeleteAPIKey", f.DeleteAPIKey(f.ctx, "k"))
		_, err := f.APIKey(f.ctx, [32]byte{1})
		f.is("APIKey", err, leaderboard.ErrAPIKeyNotFound)
		keys, err := f.APIKeys(f.ctx)
		f.ok("APIKeys", err)
		f.equal("APIKeys", 0, len(keys))
		f.is("DeleteAPIKey", f.DeleteAPIKey(f.ctx, "k"), leaderboard.ErrAPIKeyNotFound)
	}},
}
