package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

var applyTests = []test{
	{"merges results into what is known by Merge", func(f *fixture) {
		b := sumBoard("b")
		floor := leaderboard.Score(0)
		b.Floor = &floor
		board := f.create(b)
		first := f.result(board, "u", "m", 1, 5)
		again := first
		again.ReceivedAt = first.ReceivedAt.Add(time.Hour)
		for i, step := range []struct {
			r      leaderboard.MatchResult
			status leaderboard.Status
			reason leaderboard.Reason
			score  string
		}{
			{first, leaderboard.Applied, "", "5"},
			{again, leaderboard.Duplicate, "", "5"},
			{f.result(board, "u", "m", 0, 9), leaderboard.Superseded, "", "5"},
			{f.result(board, "u", "m", 1, 6), leaderboard.Conflict, "", "6"},
			{f.result(board, "u", "m", 1, 4), leaderboard.Conflict, "", "6"},
			{f.result(board, "u", "n", 0, -7), leaderboard.Rejected, leaderboard.ReasonFloor, "6"},
			{f.result(board, "u", "o", 0, 1<<53), leaderboard.Rejected, leaderboard.ReasonRange, "6"},
			{f.result(board, "u", "p", 0, 1<<60), leaderboard.Rejected, leaderboard.ReasonInvalid, "6"},
			{f.retraction(board, "u", "m", 2), leaderboard.Applied, "", "-"},
			{f.result(board, "u", "m", 3, 2), leaderboard.Applied, "", "2"},
		} {
			o := f.apply(board, step.r).Outcomes[0]
			got := fmt.Sprint(o.Status, o.Reason, f.score(board, scopeOf(board), "u"))
			f.equal(fmt.Sprintf("step %d", i), fmt.Sprint(step.status, step.reason, step.score), got)
		}
	}},
	{"what was refused stays refused", func(f *fixture) {
		b := sumBoard("b")
		floor := leaderboard.Score(0)
		b.Floor = &floor
		board := f.create(b)
		spend := f.result(board, "u", "spend", 0, -5)
		f.equal("at first", leaderboard.ReasonFloor, f.apply(board, spend).Outcomes[0].Reason)
		f.apply(board, f.result(board, "u", "earn", 0, 100))
		f.equal("when there is enough", leaderboard.ReasonFloor, f.apply(board, spend).Outcomes[0].Reason)
		f.equal("score", "100", f.score(board, scopeOf(board), "u"))
	}},
	{"a result is late by when it was received", func(f *fixture) {
		b := f.create(bestBoard("b"))
		closes := b.Season.Windows[0].End.Add(grace)
		inTime, late := f.result(b, "u", "m", 0, 1), f.result(b, "u", "n", 0, 2)
		inTime.ReceivedAt, late.ReceivedAt = closes.Add(-time.Microsecond), closes
		report := f.apply(b, late, inTime)
		f.equal("late", leaderboard.ReasonClosed, report.Outcomes[0].Reason)
		f.equal("in time", leaderboard.Applied, report.Outcomes[1].Status)
	}},
	{"brings the entries of users up to date in every ladder", func(f *fixture) {
		b := f.create(bestBoard("b"))
		s := scopeOf(b)
		f.apply(b, with(f.result(b, "u", "m", 0, 5), "gender", "F", "country", "KEN"), with(f.result(b, "v", "m", 0, 7), "gender", "F"))
		f.equal("overall", users("v", "u"), f.ladder(s, ""))
		f.equal("F", users("v", "u"), f.ladder(s, "gender:F"))
		f.equal("KEN", users("u"), f.ladder(s, "country:KEN"))
		f.apply(b, with(f.result(b, "u", "n", 0, 9), "gender", "X"))
		f.equal("overall", users("u", "v"), f.ladder(s, ""))
		f.equal("F", users("v"), f.ladder(s, "gender:F"))
		f.equal("X", users("u"), f.ladder(s, "gender:X"))
		f.equal("KEN", users("u"), f.ladder(s, "country:KEN"))
	}},
	{"a retraction brings the next best back in every ladder", func(f *fixture) {
		b := f.create(bestBoard("b"))
		s := scopeOf(b)
		f.apply(b, with(f.result(b, "u", "m", 0, 5), "gender", "F"), with(f.result(b, "v", "m", 0, 7), "gender", "F"))
		before := f.entry(s, "u")
		f.apply(b, with(f.result(b, "u", "n", 0, 9), "gender", "X"), f.retraction(b, "u", "n", 1))
		after := f.entry(s, "u")
		after.Version = before.Version
		f.equal("entry", before, after)
		f.equal("overall", users("v", "u"), f.ladder(s, ""))
		f.equal("F", users("v", "u"), f.ladder(s, "gender:F"))
		f.equal("X", users(), f.ladder(s, "gender:X"))
	}},
	{"takes results of many users and seasons", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(1250)
		var results []leaderboard.MatchResult
		for i := range 2 * n {
			user := leaderboard.UserID(fmt.Sprintf("u%04d", i%n))
			results = append(results, in([]leaderboard.SeasonID{"s1", "s2"}[i/n], f.result(b, user, "m", 0, leaderboard.Score(i))))
		}
		report := f.apply(b, results...)
		f.equal("changes", 2*n, len(report.Changes))
		f.equal("first season", n, len(f.ladder(scopeOf(b), "")))
		f.equal("top of the second season", users(results[2*n-1].User, results[2*n-2].User), f.ladder(second(b), "")[:2])
	}},
	{"takes no results", func(f *fixture) {
		b := f.create(sumBoard("b"))
		report := f.apply(b)
		f.equal("changes", 0, len(report.Changes))
	}},
	{"results of one user are applied in their order", func(f *fixture) {
		b := sumBoard("b")
		floor := leaderboard.Score(0)
		b.Floor = &floor
		board := f.create(b)
		report := f.apply(board, f.result(board, "u", "1", 0, -5), f.result(board, "v", "1", 0, 5), f.result(board, "u", "2", 0, 5),
			f.result(board, "v", "2", 0, -5))
		var got []leaderboard.Status
		for _, o := range report.Outcomes {
			got = append(got, o.Status)
		}
		f.equal("statuses", []leaderboard.Status{leaderboard.Rejected, leaderboard.Applied, leaderboard.Applied, leaderboard.Applied}, got)
	}},
	{"the Entry of an outcome is that once all is done", func(f *fixture) {
		b := f.create(bestBoard("b"))
		report := f.apply(b, f.result(b, "u", "1", 0, 1), in("s2", f.result(b, "u", "1", 0, 3)), f.result(b, "u", "2", 0, 2))
		f.equal("first", f.entry(scopeOf(b), "u"), report.Outcomes[0].Entry)
		f.equal("third", report.Outcomes[0].Entry, report.Outcomes[2].Entry)
		f.equal("second", f.entry(second(b), "u"), report.Outcomes[1].Entry)
		f.equal("score", leaderboard.Score(2), b.ScoreOf(report.Outcomes[0].Entry.Key, epoch))
	}},
	{"the Key of an outcome is empty if no result stands", func(f *fixture) {
		b := f.create(sumBoard("b"))
		report := f.apply(b, f.result(b, "u", "m", 0, 1), f.retraction(b, "u", "m", 1))
		for _, o := range report.Outcomes {
			f.equal("Key", leaderboard.RankKey(""), o.Entry.Key)
			f.equal("User", leaderboard.UserID("u"), o.Entry.User)
			f.equal("Scope", scopeOf(b), o.Entry.Scope)
		}
	}},
	{"Changes are one for each user and scope whose Version changed", func(f *fixture) {
		b := f.create(bestBoard("b"))
		first := f.apply(b, f.result(b, "u", "1", 0, 1))
		if len(first.Changes) != 1 || first.Changes[0].Before.Key != "" {
			f.Fatalf("changes %+v", first.Changes)
		}
		duplicate := f.result(b, "v", "1", 0, 1)
		f.apply(b, duplicate)
		report := f.apply(b, f.result(b, "u", "2", 0, 2), duplicate, f.result(b, "u", "3", 0, 3), in("s2", f.result(b, "u", "3", 0, 3)))
		slices.SortFunc(report.Changes, func(x, y leaderboard.Change) int { return compareScopes(x.After.Scope, y.After.Scope) })
		f.equal("changes", []leaderboard.Change{
			{Before: first.Changes[0].After, After: f.entry(scopeOf(b), "u")},
			{Before: leaderboard.Entry{Scope: second(b), User: "u"}, After: f.entry(second(b), "u")},
		}, report.Changes)
		if c := report.Changes[0]; c.After.Version <= c.Before.Version {
			f.Errorf("version went from %d to %d", c.Before.Version, c.After.Version)
		}
	}},
	{"results and entries of one user change together", func(f *fixture) {
		b := f.create(sumBoard("b"))
		s := scopeOf(b)
		ctx, stop := context.WithCancel(f.ctx)
		var batches [][]leaderboard.MatchResult
		for i := range f.rows(150) {
			batches = append(batches, []leaderboard.MatchResult{
				f.result(b, "u", leaderboard.MatchID(fmt.Sprint(2*i)), 0, 1), f.result(b, "u", leaderboard.MatchID(fmt.Sprint(2*i+1)), 0, 1)})
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			defer stop()
			for _, batch := range batches {
				if _, err := f.Apply(f.ctx, b, batch); err != nil {
					f.Errorf("Apply: %v", err)
					return
				}
			}
		})
		for ctx.Err() == nil {
			before := f.entry(s, "u")
			results, err := collect(f.Results(f.ctx, s, "u"))
			f.ok("Results", err)
			after := f.entry(s, "u")
			torn := before.Version == after.Version && before.Results != int64(len(results))
			if torn && !f.lim.EntriesFollow || len(results)%2 != 0 {
				f.Errorf("entry of %d results, then %d results, then %d", before.Results, len(results), after.Results)
			}
			n := 0
			for e, err := range f.Entries(f.ctx, leaderboard.Ladder{Scope: s}, "") {
				f.ok("Entries", err)
				if n++; e.Results%2 != 0 || int64(b.ScoreOf(e.Key, epoch)) != e.Results {
					f.Errorf("ladder row of %d results and score %d", e.Results, b.ScoreOf(e.Key, epoch))
				}
			}
			if n > 1 {
				f.Errorf("%d rows of one user", n)
			}
		}
		wg.Wait()
		f.equal("score", fmt.Sprint(2*len(batches)), f.score(b, s, "u"))
	}},
	{"returns ErrBoardNotFound if the board was deleted, even if there is a new one of its id", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 1)
		_, err := f.Apply(f.ctx, &leaderboard.Board{ID: "none"}, []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{
			Scope: leaderboard.Scope{Board: "none", Season: leaderboard.SeasonAll}, User: "u", Match: "m"}, ReceivedAt: epoch}})
		f.is("Apply to no board", err, leaderboard.ErrBoardNotFound)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b"))
		_, err = f.Apply(f.ctx, b, []leaderboard.MatchResult{r})
		f.is("Apply to a deleted board", err, leaderboard.ErrBoardNotFound)
		again := sumBoard("b")
		again.CreatedAt = f.clock
		now := f.create(again)
		_, err = f.Apply(f.ctx, b, []leaderboard.MatchResult{r})
		f.is("Apply to the board before", err, leaderboard.ErrBoardNotFound)
		_, err = f.Recount(f.ctx, b, r.Season, "u")
		f.is("Recount", err, leaderboard.ErrBoardNotFound)
		_, err = f.Seal(f.ctx, b, r.Season, leaderboard.Amendment{At: f.clock})
		f.is("Seal", err, leaderboard.ErrBoardNotFound)
		f.apply(now, r)
		f.equal("score", "1", f.score(now, scopeOf(now), "u"))
	}},
	{"many corrections of one user in one Apply", func(f *fixture) {
		for _, b := range []*leaderboard.Board{f.create(sumBoard("sum")), f.create(bestBoard("best"))} {
			var results []leaderboard.MatchResult
			for revision := range int64(4) {
				for i := range 50 {
					results = append(results, f.result(b, "u", leaderboard.MatchID(fmt.Sprint(i)), revision, leaderboard.Score(100*(4-revision)+int64(i))))
				}
			}
			f.apply(b, results...)
			want := "149"
			if b.AddsUp() {
				want = "6225"
			}
			f.equal("score", want, f.score(b, scopeOf(b), "u"))
			f.equal("results", int64(50), f.entry(scopeOf(b), "u").Results)
		}
	}},
}

var resultTests = []test{
	{"Result returns what is known of a match result", func(f *fixture) {
		b := sumBoard("b")
		b.TieBreakers = []leaderboard.TieBreaker{{Name: "x"}, {Name: "y"}}
		board := f.create(b)
		r := with(f.result(board, "u", "m/é %", 3, -5), "gender", "F", "other", "x:y")
		r.TieBreakers, r.Metadata, r.Assigned = []int64{1, -2}, `{"a":[1,"é"]}`, true
		f.apply(board, r)
		rec, err := f.Result(f.ctx, r.ResultKey)
		f.ok("Result", err)
		f.equal("Result", leaderboard.Record{Result: &r}, rec)
		gone := f.retraction(board, "u", r.Match, 4)
		f.apply(board, gone)
		rec, err = f.Result(f.ctx, r.ResultKey)
		f.ok("Result", err)
		gone = plain(gone)
		f.equal("Result when retracted", leaderboard.Record{Result: &gone}, rec)
	}},
	{"Result returns ErrResultNotFound", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 1)
		_, err := f.Result(f.ctx, r.ResultKey)
		f.is("Result", err, leaderboard.ErrResultNotFound)
		f.apply(b, r)
		r.Match = "n"
		_, err = f.Result(f.ctx, r.ResultKey)
		f.is("Result of another match", err, leaderboard.ErrResultNotFound)
		r.Match, r.Board = "m", "c"
		_, err = f.Result(f.ctx, r.ResultKey)
		f.is("Result of another board", err, leaderboard.ErrResultNotFound)
	}},
	{"a Record has no Result if all that came were refused, and refusals by revision and time", func(f *fixture) {
		b := sumBoard("b")
		floor := leaderboard.Score(0)
		b.Floor = &floor
		board := f.create(b)
		refused := []leaderboard.MatchResult{f.result(board, "u", "m", 2, -1), f.result(board, "u", "m", 0, -2), f.result(board, "u", "m", 0, -3)}
		f.apply(board, refused...)
		f.apply(board, refused...)
		rec, err := f.Result(f.ctx, refused[0].ResultKey)
		f.ok("Result", err)
		var want []leaderboard.Refusal
		for _, i := range []int{1, 2, 0} {
			want = append(want, leaderboard.Refusal{Revision: refused[i].Revision, Reason: leaderboard.ReasonFloor,
				Content: refused[i].ContentID(), ReceivedAt: refused[i].ReceivedAt})
		}
		f.equal("Record", leaderboard.Record{Refusals: want}, rec)
		_, err = f.Entry(f.ctx, scopeOf(board), "u")
		f.is("Entry", err, leaderboard.ErrEntryNotFound)
		stands := f.result(board, "u", "m", 3, 1)
		f.apply(board, stands)
		rec, err = f.Result(f.ctx, stands.ResultKey)
		f.ok("Result", err)
		f.equal("Record with a result", leaderboard.Record{Result: &stands, Refusals: want}, rec)
	}},
	{"Results yields results that stand or are retracted, by match id", func(f *fixture) {
		b := f.create(sumBoard("b"))
		refused := f.result(b, "u", "0", 0, 1<<60)
		ten, two, gone := f.result(b, "u", "10", 0, 1), f.result(b, "u", "2", 0, 1), f.retraction(b, "u", "1", 0)
		f.apply(b, two, refused, ten, gone, f.result(b, "v", "1", 0, 1), f.result(b, "uu", "1", 0, 1))
		got, err := collect(f.Results(f.ctx, scopeOf(b), "u"))
		f.ok("Results", err)
		f.equal("Results", []leaderboard.MatchResult{plain(gone), ten, two}, got)
		got, err = collect(f.Results(f.ctx, scopeOf(b), "nobody"))
		f.ok("Results", err)
		f.equal("Results of nobody", 0, len(got))
	}},
	{"Users yields each user with a Record once", func(f *fixture) {
		b := f.create(bestBoard("b"))
		want := users("refused", "retracted")
		results := []leaderboard.MatchResult{f.result(b, "refused", "m", 0, 1<<60), f.retraction(b, "retracted", "m", 0), in("s2", f.result(b, "elsewhere", "m", 0, 0))}
		for i := range f.rows(1500) {
			user := leaderboard.UserID(fmt.Sprintf("u%04d", i))
			want = append(want, user)
			results = append(results, f.result(b, user, "1", 0, 1), f.result(b, user, "2", 0, 1))
		}
		f.apply(b, results...)
		got, err := collect(f.Users(f.ctx, scopeOf(b)))
		f.ok("Users", err)
		slices.Sort(got)
		f.equal("Users", want, got)
	}},
}

var entryTests = []test{
	{"Entry returns a user's entry", func(f *fixture) {
		b := bestBoard("b")
		b.TieBreakers = []leaderboard.TieBreaker{{Name: "x", Order: leaderboard.LowerFirst}}
		board := f.create(b)
		r := with(f.result(board, "u", "m", 0, 5), "country", "KEN", "gender", "F", "other", "x")
		r.TieBreakers, r.Metadata = []int64{-7}, `{"car":1}`
		f.apply(board, f.result(board, "u", "low", 0, 1), r)
		e := f.entry(r.Scope, "u")
		f.equal("score", leaderboard.Score(5), board.ScoreOf(e.Key, epoch))
		f.equal("tie-breakers", []int64{-7}, board.TieBreakersOf(e.Key))
		f.equal("Entry", leaderboard.Entry{Scope: r.Scope, User: "u", Key: e.Key, AchievedAt: r.AchievedAt, Match: "m", Metadata: r.Metadata,
			Divisions: []leaderboard.Division{{Attribute: "gender", Value: "F"}, {Attribute: "country", Value: "KEN"}}, Results: 2, Version: e.Version}, e)
	}},
	{"Entry returns a hidden one", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true})
		f.ok("SetBan", err)
		e := f.entry(scopeOf(b), "u")
		if !e.Hidden || e.Key == "" {
			f.Errorf("entry %+v", e)
		}
	}},
	{"Entry returns ErrEntryNotFound if no result stands", func(f *fixture) {
		b := f.create(sumBoard("b"))
		_, err := f.Entry(f.ctx, scopeOf(b), "u")
		f.is("Entry of nobody", err, leaderboard.ErrEntryNotFound)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.retraction(b, "u", "m", 1))
		_, err = f.Entry(f.ctx, scopeOf(b), "u")
		f.is("Entry of who was retracted", err, leaderboard.ErrEntryNotFound)
		_, err = f.Entry(f.ctx, leaderboard.Scope{Board: "none", Season: "all"}, "u")
		f.is("Entry on no board", err, leaderboard.ErrEntryNotFound)
	}},
	{"Entries yields the ranked entries of a ladder in standing order", func(f *fixture) {
		for _, order := range []leaderboard.Order{leaderboard.HigherFirst, leaderboard.LowerFirst} {
			b := bestBoard(leaderboard.BoardID(order.String()))
			b.Order = order
			board := f.create(b)
			tie := f.result(board, "tie, later", "m", 0, 0)
			first := f.result(board, "tie, first", "m", 0, 0)
			first.AchievedAt = epoch
			second := f.result(board, "tie, same time, greater id", "m", 0, 0)
			second.AchievedAt = epoch
			f.apply(board, tie, second, first, f.result(board, "small", "m", 0, -1<<53), f.result(board, "great", "m", 0, 1<<53), f.result(board, "minus", "m", 0, -1),
				f.result(board, "banned", "m", 0, 3), with(f.result(board, "other", "m", 0, 4), "gender", "F"))
			_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "banned", Banned: true})
			f.ok("SetBan", err)
			want := users("great", "other", "tie, first", "tie, same time, greater id", "tie, later", "minus", "small")
			if order == leaderboard.LowerFirst {
				want = users("small", "minus", "tie, first", "tie, same time, greater id", "tie, later", "other", "great")
			}
			f.equal("ladder", want, f.ladder(scopeOf(board), ""))
			f.equal("division", users("other"), f.ladder(scopeOf(board), "gender:F"))
			f.equal("division by a value that begins alike", users(), f.ladder(scopeOf(board), "gender:FF"))
			f.equal("division by another attribute", users(), f.ladder(scopeOf(board), "country:F"))
			f.equal("division that the board does not have", users(), f.ladder(scopeOf(board), "team:F"))
			entries, err := collect(f.Entries(f.ctx, leaderboard.Ladder{Scope: scopeOf(board), Division: leaderboard.Division{Attribute: "gender", Value: "F"}}, ""))
			f.ok("Entries", err)
			f.equal("the whole entry", []leaderboard.Entry{f.entry(scopeOf(board), "other")}, entries)
		}
	}},
	{"Entries begins after the given sort key", func(f *fixture) {
		b := f.create(sumBoard("b"))
		n := f.rows(2100)
		var results []leaderboard.MatchResult
		for i := range n {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprintf("u%04d", i)), "m", 0, leaderboard.Score(i/2)))
		}
		f.apply(b, results...)
		l := leaderboard.Ladder{Scope: scopeOf(b)}
		all, err := collect(f.Entries(f.ctx, l, ""))
		f.ok("Entries", err)
		f.equal("all", n, len(all))
		if !slices.IsSortedFunc(all, func(x, y leaderboard.Entry) int { return strings.Compare(string(x.SortKey()), string(y.SortKey())) }) {
			f.Error("entries out of order")
		}
		for _, i := range []int{0, 1, 15, 16, 17, n/2 - 50, n - 2, n - 1} {
			got, err := collect(f.Entries(f.ctx, l, all[i].SortKey()))
			f.ok("Entries", err)
			f.equal(fmt.Sprintf("after entry %d", i), all[i+1:], got)
			between := all[i]
			between.User += "\x00"
			got, err = collect(f.Entries(f.ctx, l, between.SortKey()))
			f.ok("Entries", err)
			f.equal(fmt.Sprintf("after a key behind entry %d", i), len(all)-i-1, len(got))
			got, err = collect(f.Entries(f.ctx, l, leaderboard.SortKey(all[i].Key)))
			f.ok("Entries", err)
			f.equal(fmt.Sprintf("from a rank key, of entry %d", i), len(all)-i/2*2, len(got))
		}
	}},
	{"Entries yields entries that do not move once, whatever moves meanwhile", func(f *fixture) {
		b := f.create(sumBoard("b"))
		still := f.rows(300)
		var results []leaderboard.MatchResult
		for i := range still {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprintf("still%03d", i)), "m", 0, leaderboard.Score(10*i)))
		}
		results = append(results, f.result(b, "moves", "m", 0, 0))
		f.apply(b, results...)
		times := map[leaderboard.UserID]int{}
		n := int64(0)
		for e, err := range f.Entries(f.ctx, leaderboard.Ladder{Scope: scopeOf(b)}, "") {
			f.ok("Entries", err)
			times[e.User]++
			n++
			f.apply(b, f.result(b, "moves", "m", n, leaderboard.Score((n*997)%int64(10*still))))
		}
		delete(times, "moves")
		f.equal("entries that stood still", still, len(times))
		for user, n := range times {
			f.equal("times "+string(user), 1, n)
		}
	}},
	{"Strays yields nothing of what Apply, SetBan and Erase leave", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.fill(b)
		for i, gender := range []string{"F", "M", "X", "F"} {
			f.apply(b, with(f.result(b, "moves", leaderboard.MatchID(fmt.Sprint(i)), 0, leaderboard.Score(i)), "gender", gender, "country", fmt.Sprint("c", i)))
		}
		f.ban("v", true)
		f.eraseUser("u", f.clock)
		for _, s := range []leaderboard.Scope{scopeOf(b), second(b), {Board: "none", Season: "s1"}} {
			strays, err := collect(f.Strays(f.ctx, s))
			f.ok("Strays", err)
			f.equal("strays", 0, len(strays))
		}
	}},
	{"Scan yields every entry, hidden ones too", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), with(f.result(b, "v", "m", 0, 7), "gender", "F"), f.retraction(b, "gone", "m", 0),
			with(f.result(b, "banned", "m", 0, 9), "gender", "F"), in("s2", f.result(b, "elsewhere", "m", 0, 1)))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "banned", Banned: true})
		f.ok("SetBan", err)
		got, err := collect(f.Scan(f.ctx, scopeOf(b)))
		f.ok("Scan", err)
		slices.SortFunc(got, func(x, y leaderboard.Entry) int { return strings.Compare(string(x.User), string(y.User)) })
		f.equal("Scan", []leaderboard.Entry{f.entry(scopeOf(b), "banned"), f.entry(scopeOf(b), "u"), f.entry(scopeOf(b), "v")}, got)
	}},
	{"Scan yields an entry that changes meanwhile once", func(f *fixture) {
		b := f.create(sumBoard("b"))
		many := int64(f.rows(300))
		var results []leaderboard.MatchResult
		for i := range many {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprintf("u%03d", i)), "m", 0, leaderboard.Score(10*i)))
		}
		f.apply(b, results...)
		times := map[leaderboard.UserID]int{}
		n := int64(0)
		for e, err := range f.Scan(f.ctx, scopeOf(b)) {
			f.ok("Scan", err)
			times[e.User]++
			n++
			f.apply(b, f.result(b, leaderboard.UserID(fmt.Sprintf("u%03d", n*7%many)), "m", n, leaderboard.Score((n*997)%(10*many))))
			if n%10 == 0 {
				_, err := f.SetBan(f.ctx, leaderboard.Ban{User: leaderboard.UserID(fmt.Sprintf("u%03d", n*3%many)), Banned: n%20 == 0})
				f.ok("SetBan", err)
			}
		}
		f.equal("users", int(many), len(times))
		for user, n := range times {
			f.equal("times "+string(user), 1, n)
		}
	}},
}

var recountTests = []test{
	{"returns an entry that is whole as it is", func(f *fixture) {
		for policy := range leaderboard.Decay + 1 {
			b := bestBoard(leaderboard.BoardID(policy.String()))
			b.Policy = policy
			if policy == leaderboard.Decay {
				b.HalfLife = time.Hour
			}
			board := f.create(b)
			f.apply(board, with(f.result(board, "u", "1", 0, 5), "gender", "F"), f.result(board, "u", "2", 0, 7), f.retraction(board, "u", "2", 1), f.result(board, "u", "3", 0, 1))
			e := f.entry(scopeOf(board), "u")
			c, err := f.Recount(f.ctx, board, "s1", "u")
			f.ok("Recount", err)
			f.equal("change", leaderboard.Change{Before: e, After: e}, c)
			f.equal("entry", e, f.entry(scopeOf(board), "u"))
			f.equal("division", users("u"), f.ladder(scopeOf(board), "gender:F"))
		}
	}},
	{"of a user without results is of no entry", func(f *fixture) {
		b := f.create(sumBoard("b"))
		c, err := f.Recount(f.ctx, b, "all", "nobody")
		f.ok("Recount", err)
		f.equal("Key", leaderboard.RankKey(""), c.After.Key)
		_, err = f.Entry(f.ctx, scopeOf(b), "nobody")
		f.is("Entry", err, leaderboard.ErrEntryNotFound)
		all, err := collect(f.Users(f.ctx, scopeOf(b)))
		f.ok("Users", err)
		f.equal("Users", 0, len(all))
	}},
	{"keeps a banned user hidden", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true})
		f.ok("SetBan", err)
		c, err := f.Recount(f.ctx, b, "all", "u")
		f.ok("Recount", err)
		f.equal("Hidden", true, c.After.Hidden)
		f.equal("ladder", users(), f.ladder(scopeOf(b), ""))
	}},
	{"beside results that come changes nothing", func(f *fixture) {
		b := f.create(sumBoard("b"))
		var results []leaderboard.MatchResult
		for i := range f.rows(100) {
			results = append(results, f.result(b, "u", leaderboard.MatchID(fmt.Sprint(i)), 0, 1))
		}
		done := make(chan error, 1)
		go func() {
			for _, r := range results {
				if _, err := f.Apply(f.ctx, b, []leaderboard.MatchResult{r}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		var err error
		for running := true; running; {
			select {
			case err = <-done:
				running = false
			default:
			}
			_, rerr := f.Recount(f.ctx, b, "all", "u")
			err = errors.Join(err, rerr)
			f.ok("Recount or Apply", err)
		}
		f.equal("score", fmt.Sprint(len(results)), f.score(b, scopeOf(b), "u"))
		f.equal("ladder", users("u"), f.ladder(scopeOf(b), ""))
	}},
}
