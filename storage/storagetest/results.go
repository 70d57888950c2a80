package storagetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var applyTests = []test{
	{"a linked board counts a result only if the result has the required attributes and its time is in the season", func(f *fixture) {
		b := bestBoard("b")
		b.Policy, b.Source = leaderboard.Sum, &leaderboard.Source{Board: "a", Match: map[string]string{"mode": "ranked"}}
		linked := f.create(b)
		ranked := func(match leaderboard.MatchID, revision int64, score leaderboard.Score) leaderboard.MatchResult {
			return withAttributes(f.result(linked, "u", match, revision, score), "mode", "ranked")
		}
		f.apply(linked, ranked("m", 0, 5), ranked("n", 0, 2))
		f.equal("score", "7", f.score(linked, firstSeason(linked), "u"))
		f.apply(linked, withAttributes(f.result(linked, "u", "m", 1, 9), "mode", "casual"))
		f.equal("score after a revision that does not match", "2", f.score(linked, firstSeason(linked), "u"))
		f.apply(linked, ranked("m", 0, 5))
		f.equal("score after a repetition of the older revision", "2", f.score(linked, firstSeason(linked), "u"))
		f.apply(linked, inSecondSeason(ranked("n", 1, 3)))
		f.equal("ladder after a revision with a time in another season", users(), f.ladder(firstSeason(linked), ""))
		f.apply(linked, ranked("n", 2, 4))
		f.equal("score after a revision with a time in the season", "4", f.score(linked, firstSeason(linked), "u"))
		late := inSecondSeason(ranked("m", 2, 1))
		late.ReceivedAt = epoch.AddDate(1, 0, 0)
		f.equal("late revision that does not count", leaderboard.Applied, f.apply(linked, late).Outcomes[0].Status)
		late = ranked("m", 3, 1)
		late.ReceivedAt = epoch.AddDate(1, 0, 0)
		f.equal("late revision that would count", leaderboard.ReasonClosed, f.apply(linked, late).Outcomes[0].Reason)
	}},
	{"Apply merges results into the stored results by Board.Merge", func(f *fixture) {
		b := sumBoard("b")
		floor := leaderboard.Score(0)
		b.Floor = &floor
		board := f.create(b)
		first := f.result(board, "u", "m", 1, 5)
		repeated := first
		repeated.ReceivedAt = first.ReceivedAt.Add(time.Hour)
		for i, step := range []struct {
			r      leaderboard.MatchResult
			status leaderboard.Status
			reason leaderboard.Reason
			score  string
		}{
			{first, leaderboard.Applied, "", "5"},
			{repeated, leaderboard.Duplicate, "", "5"},
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
			got := fmt.Sprint(o.Status, o.Reason, f.score(board, firstSeason(board), "u"))
			f.equal(fmt.Sprintf("step %d", i), fmt.Sprint(step.status, step.reason, step.score), got)
		}
	}},
	{"a refused result stays refused", func(f *fixture) {
		b := sumBoard("b")
		floor := leaderboard.Score(0)
		b.Floor = &floor
		board := f.create(b)
		spend := f.result(board, "u", "spend", 0, -5)
		f.equal("reason at first", leaderboard.ReasonFloor, f.apply(board, spend).Outcomes[0].Reason)
		f.apply(board, f.result(board, "u", "earn", 0, 100))
		f.equal("reason of a replay after the sum has grown", leaderboard.ReasonFloor, f.apply(board, spend).Outcomes[0].Reason)
		f.equal("score", "100", f.score(board, firstSeason(board), "u"))
	}},
	{"a retraction or a void may lower a sum below the floor, and then only results that raise the sum are applied", func(f *fixture) {
		b := matchBoard()
		floor := leaderboard.Score(0)
		b.Floor = &floor
		board := f.create(b)
		s := firstSeason(board)
		submit := func(match leaderboard.MatchID, revision int64, points leaderboard.Score, want string) {
			f.Helper()
			o := f.apply(board, f.result(board, "u", match, revision, points)).Outcomes[0]
			f.equal(fmt.Sprintf("%d points in match %s", points, match), want, fmt.Sprint(o.Status, o.Reason, f.score(board, s, "u")))
		}
		submit("m", 0, 10, "APPLIED10")
		submit("prize", 0, 3, "APPLIED13")
		submit("spend", 0, -8, "APPLIED5")
		f.setVoids(board, 1)
		f.equal("score while the match is void", "-5", f.score(board, s, "u"))
		f.setVoids(board, 2)
		f.equal("score after the void", "5", f.score(board, s, "u"))
		f.equal("retraction", leaderboard.Applied, f.apply(board, f.retraction(board, "u", "m", 1)).Outcomes[0].Status)
		f.equal("score after the retraction", "-5", f.score(board, s, "u"))
		submit("more", 0, -1, "REJECTEDFLOOR-5")
		submit("prize", 1, 2, "REJECTEDFLOOR-5")
		submit("work", 0, 2, "APPLIED-3")
		submit("spend", 1, -6, "APPLIED-1")
		submit("work", 1, 9, "APPLIED6")
	}},
	{"ReceivedAt decides whether a result is too late", func(f *fixture) {
		b := f.create(bestBoard("b"))
		closes := b.Season.Windows[0].End.Add(grace)
		inTime, late := f.result(b, "u", "m", 0, 1), f.result(b, "u", "n", 0, 2)
		inTime.ReceivedAt, late.ReceivedAt = closes.Add(-time.Microsecond), closes
		report := f.apply(b, late, inTime)
		f.equal("late", leaderboard.ReasonClosed, report.Outcomes[0].Reason)
		f.equal("in time", leaderboard.Applied, report.Outcomes[1].Status)
	}},
	{"Apply updates the entries of users in every ladder", func(f *fixture) {
		b := f.create(bestBoard("b"))
		s := firstSeason(b)
		f.apply(b, withAttributes(f.result(b, "u", "m", 0, 5), "gender", "F", "country", "KEN"), withAttributes(f.result(b, "v", "m", 0, 7), "gender", "F"))
		f.equal("overall", users("v", "u"), f.ladder(s, ""))
		f.equal("F", users("v", "u"), f.ladder(s, "gender:F"))
		f.equal("KEN", users("u"), f.ladder(s, "country:KEN"))
		f.apply(b, withAttributes(f.result(b, "u", "n", 0, 9), "gender", "X"))
		f.equal("overall", users("u", "v"), f.ladder(s, ""))
		f.equal("F", users("v"), f.ladder(s, "gender:F"))
		f.equal("X", users("u"), f.ladder(s, "gender:X"))
		f.equal("KEN", users("u"), f.ladder(s, "country:KEN"))
	}},
	{"a retraction restores the next best result in every ladder", func(f *fixture) {
		b := f.create(bestBoard("b"))
		s := firstSeason(b)
		f.apply(b, withAttributes(f.result(b, "u", "m", 0, 5), "gender", "F"), withAttributes(f.result(b, "v", "m", 0, 7), "gender", "F"))
		before := f.entry(s, "u")
		f.apply(b, withAttributes(f.result(b, "u", "n", leaderboard.MaxRevision, 9), "gender", "X"), f.retraction(b, "u", "n", leaderboard.MaxRevision+1))
		after := f.entry(s, "u")
		after.Version = before.Version
		f.equal("entry", before, after)
		f.equal("overall", users("v", "u"), f.ladder(s, ""))
		f.equal("F", users("v", "u"), f.ladder(s, "gender:F"))
		f.equal("X", users(), f.ladder(s, "gender:X"))
	}},
	{"Apply accepts results of many users and seasons", func(f *fixture) {
		b := f.create(bestBoard("b"))
		n := f.rows(1250)
		var results []leaderboard.MatchResult
		for i := range 2 * n {
			user := leaderboard.UserID(fmt.Sprintf("u%04d", i%n))
			results = append(results, inSeason([]leaderboard.SeasonID{"s1", "s2"}[i/n], f.result(b, user, "m", 0, leaderboard.Score(i))))
		}
		report := f.apply(b, results...)
		f.equal("changes", 2*n, len(report.Changes))
		f.equal("first season", n, len(f.ladder(firstSeason(b), "")))
		f.equal("top of the second season", users(results[2*n-1].User, results[2*n-2].User), f.ladder(secondSeason(b), "")[:2])
	}},
	{"Apply of no results returns no error", func(f *fixture) {
		b := f.create(sumBoard("b"))
		report := f.apply(b)
		f.equal("changes", 0, len(report.Changes))
	}},
	{"results of one user are applied in the order given", func(f *fixture) {
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
	{"the Entry of an outcome is the entry after all results of the Apply", func(f *fixture) {
		b := f.create(bestBoard("b"))
		report := f.apply(b, f.result(b, "u", "1", 0, 1), inSeason("s2", f.result(b, "u", "1", 0, 3)), f.result(b, "u", "2", 0, 2))
		f.equal("Entry of the first outcome", f.entry(firstSeason(b), "u"), report.Outcomes[0].Entry)
		f.equal("Entry of the third outcome", report.Outcomes[0].Entry, report.Outcomes[2].Entry)
		f.equal("Entry of the second outcome", f.entry(secondSeason(b), "u"), report.Outcomes[1].Entry)
		f.equal("score", leaderboard.Score(2), b.ScoreOf(report.Outcomes[0].Entry.Key, epoch))
	}},
	{"the Key of an outcome's Entry is empty if no result of the user counts", func(f *fixture) {
		b := f.create(sumBoard("b"))
		report := f.apply(b, f.result(b, "u", "m", 0, 1), f.retraction(b, "u", "m", 1))
		for _, o := range report.Outcomes {
			f.equal("Key", leaderboard.RankKey(""), o.Entry.Key)
			f.equal("User", leaderboard.UserID("u"), o.Entry.User)
			f.equal("SeasonKey", firstSeason(b), o.Entry.SeasonKey)
		}
	}},
	{"Changes has one element for each user and season whose entry has a new Version", func(f *fixture) {
		b := f.create(bestBoard("b"))
		first := f.apply(b, f.result(b, "u", "1", 0, 1))
		if len(first.Changes) != 1 || first.Changes[0].Before.Key != "" {
			f.Fatalf("changes %+v, want one change with an empty Key in Before", first.Changes)
		}
		duplicate := f.result(b, "v", "1", 0, 1)
		f.apply(b, duplicate)
		report := f.apply(b, f.result(b, "u", "2", 0, 2), duplicate, f.result(b, "u", "3", 0, 3), inSeason("s2", f.result(b, "u", "3", 0, 3)))
		slices.SortFunc(report.Changes, func(x, y leaderboard.Change) int { return compareSeasonKeys(x.After.SeasonKey, y.After.SeasonKey) })
		f.equal("changes", []leaderboard.Change{
			{Before: first.Changes[0].After, After: f.entry(firstSeason(b), "u")},
			{Before: leaderboard.Entry{SeasonKey: secondSeason(b), User: "u"}, After: f.entry(secondSeason(b), "u")},
		}, report.Changes)
		if c := report.Changes[0]; c.After.Version <= c.Before.Version {
			f.Errorf("the version is %d before Apply and %d after it, want a higher version after it", c.Before.Version, c.After.Version)
		}
	}},
	{"results and entries of one user change together", func(f *fixture) {
		b := f.create(sumBoard("b"))
		s := firstSeason(b)
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
			inconsistent := before.Version == after.Version && before.Results != int64(len(results))
			// Each Apply has two results with the score 1.
			if inconsistent && f.limits.EntriesFollow == "" || len(results)%2 != 0 {
				f.Errorf("the entry counts %d results, then Results yields %d, then the entry counts %d; Results must yield an even number, and the numbers must be equal while the entry's version is the same", before.Results, len(results), after.Results)
			}
			n := 0
			for e, err := range f.Entries(f.ctx, leaderboard.Ladder{SeasonKey: s}, "") {
				f.ok("Entries", err)
				if n++; e.Results%2 != 0 || int64(b.ScoreOf(e.Key, epoch)) != e.Results {
					f.Errorf("a ladder row has %d results and the score %d, want an even number of results and an equal score", e.Results, b.ScoreOf(e.Key, epoch))
				}
			}
			if n > 1 {
				f.Errorf("one user has %d rows in the ladder, want at most 1", n)
			}
		}
		wg.Wait()
		f.equal("score", fmt.Sprint(2*len(batches)), f.score(b, s, "u"))
	}},
	{"Apply returns ErrBoardNotFound if the board was deleted, even if a new board has its id", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 1)
		_, err := f.Apply(f.ctx, &leaderboard.Board{ID: "none"}, []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{
			SeasonKey: leaderboard.SeasonKey{Board: "none", Season: leaderboard.SeasonAll}, User: "u", Match: "m"}, ReceivedAt: epoch}})
		f.wantErr("Apply to an unknown board", err, leaderboard.ErrBoardNotFound)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		_, err = f.Apply(f.ctx, b, []leaderboard.MatchResult{r})
		f.wantErr("Apply to a deleted board", err, leaderboard.ErrBoardNotFound)
		recreated := sumBoard("b")
		recreated.CreatedAt = f.clock
		newBoard := f.create(recreated)
		_, err = f.Apply(f.ctx, b, []leaderboard.MatchResult{r})
		f.wantErr("Apply to the deleted board while a new board has its id", err, leaderboard.ErrBoardNotFound)
		_, err = f.Recount(f.ctx, b, r.Season, "u")
		f.wantErr("Recount", err, leaderboard.ErrBoardNotFound)
		_, err = f.Seal(f.ctx, b, r.Season, f.clock)
		f.wantErr("Seal", err, leaderboard.ErrBoardNotFound)
		f.apply(newBoard, r)
		f.equal("score", "1", f.score(newBoard, firstSeason(newBoard), "u"))
	}},
	{"Apply accepts many corrections of one user", func(f *fixture) {
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
			f.equal("score", want, f.score(b, firstSeason(b), "u"))
			f.equal("results", int64(50), f.entry(firstSeason(b), "u").Results)
		}
	}},
}

var resultTests = []test{
	{"if several callers reserve a revision of a match result, exactly one succeeds", func(f *fixture) {
		b := f.create(sumBoard("b"))
		key := f.result(b, "u", "m", 0, 1).ResultKey
		reserve := func(key leaderboard.ResultKey, revision int64, holder string, after time.Duration) bool {
			at := epoch.Add(after)
			ok, err := f.Reserve(f.ctx, leaderboard.Reservation{Key: key, Revision: revision, Holder: holder, At: at, Until: at.Add(time.Minute)})
			f.ok("Reserve", err)
			return ok
		}
		for _, tt := range []struct {
			name     string
			revision int64
			holder   string
			after    time.Duration
			want     bool
		}{
			{"the first holder", 5, "a", 0, true},
			{"the holder repeats its call", 5, "a", time.Second, true},
			{"another holder with the same revision", 5, "b", 2 * time.Second, false},
			{"another holder with a lower revision", 4, "b", 2 * time.Second, false},
			{"the holder with a lower revision", 4, "a", 2 * time.Second, false},
			{"another holder with a higher revision", 6, "b", 3 * time.Second, true},
			{"the former holder", 6, "a", 4 * time.Second, false},
			{"another holder before the reservation ends", 6, "a", 63*time.Second - time.Microsecond, false},
			{"another holder when the reservation ends", 6, "a", 63 * time.Second, true},
			{"the former holder after the new reservation", 6, "b", 64 * time.Second, false},
		} {
			f.equal(tt.name, tt.want, reserve(key, tt.revision, tt.holder, tt.after))
		}
		ok, err := f.Reserve(f.ctx, leaderboard.Reservation{Key: key, Revision: 6, Holder: "a", At: epoch.Add(65 * time.Second)})
		f.ok("Reserve", err)
		f.equal("the holder ends its reservation", true, ok)
		f.equal("after the end of the reservation, another holder with a slower clock", true, reserve(key, 6, "b", -time.Hour))
		for _, other := range []leaderboard.ResultKey{
			{SeasonKey: key.SeasonKey, User: "um", Match: ""}, {SeasonKey: key.SeasonKey, User: "u", Match: "m2"},
			{SeasonKey: key.SeasonKey, User: "v", Match: "m"}, {SeasonKey: leaderboard.SeasonKey{Board: "c", Season: key.Season}, User: "u", Match: "m"},
			{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: "x"}, User: "u", Match: "m"},
		} {
			f.equal(fmt.Sprint("another match: ", other), true, reserve(other, 1, "c", 65*time.Second))
		}
		var wg sync.WaitGroup
		var successes atomic.Int64
		for i := range 8 {
			wg.Go(func() {
				if ok, err := f.Reserve(f.ctx, leaderboard.Reservation{Key: key, Revision: 9, Holder: fmt.Sprint(i), At: epoch, Until: epoch.Add(time.Hour)}); ok && err == nil {
					successes.Add(1)
				}
			})
		}
		wg.Wait()
		f.equal("concurrent callers that succeed", int64(1), successes.Load())
	}},
	{"a closed season accepts only results that amend it", func(f *fixture) {
		b := f.create(bestBoard("b"))
		late := f.result(b, "u", "m", 0, 7)
		late.AchievedAt, late.Season = b.Season.Windows[0].Start, b.Season.Windows[0].ID
		late.ReceivedAt = b.Season.Windows[0].End.AddDate(1, 0, 0)
		report, err := f.Apply(f.ctx, b, []leaderboard.MatchResult{late})
		f.ok("Apply", err)
		f.equal("reason without Amends", leaderboard.ReasonClosed, report.Outcomes[0].Reason)
		late.Revision, late.Amends = 1, true
		report, err = f.Apply(f.ctx, b, []leaderboard.MatchResult{late})
		f.ok("Apply", err)
		f.equal("status with Amends", leaderboard.Applied, report.Outcomes[0].Status)
		rec, err := f.Result(f.ctx, late.ResultKey)
		f.ok("Result", err)
		f.equal("Amends of the stored result", false, rec.Result.Amends)
		late.Amends = false
		report, err = f.Apply(f.ctx, b, []leaderboard.MatchResult{late})
		f.ok("Apply", err)
		f.equal("status of a repeated result", leaderboard.Duplicate, report.Outcomes[0].Status)
	}},
	{"Result returns the record of a match result", func(f *fixture) {
		b := sumBoard("b")
		b.TieBreakers = []leaderboard.TieBreaker{{Name: "x"}, {Name: "y"}}
		board := f.create(b)
		r := withAttributes(f.result(board, "u", "m/é %", 3, -5), "gender", "F", "other", "x:y")
		r.TieBreakers, r.Metadata, r.Assigned = []int64{1, -2}, `{"a":[1,"é"]}`, true
		f.apply(board, r)
		rec, err := f.Result(f.ctx, r.ResultKey)
		f.ok("Result", err)
		f.equal("Result", leaderboard.Record{Result: &r}, rec)
		retracted := f.retraction(board, "u", r.Match, 4)
		f.apply(board, retracted)
		rec, err = f.Result(f.ctx, r.ResultKey)
		f.ok("Result", err)
		retracted = normalize(retracted)
		f.equal("Result when retracted", leaderboard.Record{Result: &retracted}, rec)
	}},
	{"Result returns ErrResultNotFound if the store has no Record of the match result", func(f *fixture) {
		b := f.create(sumBoard("b"))
		r := f.result(b, "u", "m", 0, 1)
		_, err := f.Result(f.ctx, r.ResultKey)
		f.wantErr("Result", err, leaderboard.ErrResultNotFound)
		f.apply(b, r)
		r.Match = "n"
		_, err = f.Result(f.ctx, r.ResultKey)
		f.wantErr("Result of another match", err, leaderboard.ErrResultNotFound)
		r.Match, r.Board = "m", "c"
		_, err = f.Result(f.ctx, r.ResultKey)
		f.wantErr("Result of another board", err, leaderboard.ErrResultNotFound)
	}},
	{"a Record has no Result if all results were refused, and its Refusals are ordered by revision and time", func(f *fixture) {
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
		_, err = f.Entry(f.ctx, firstSeason(board), "u")
		f.wantErr("Entry", err, leaderboard.ErrEntryNotFound)
		accepted := f.result(board, "u", "m", 3, 1)
		f.apply(board, accepted)
		rec, err = f.Result(f.ctx, accepted.ResultKey)
		f.ok("Result", err)
		f.equal("Record with a result", leaderboard.Record{Result: &accepted, Refusals: want}, rec)
	}},
	{"a recent refusal makes no Record and begins no season", func(f *fixture) {
		daily := sumBoard("b")
		daily.Season = leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}
		daily.Matches, daily.Divisions = true, []string{"team"}
		b := f.create(daily)
		day := func(n int) leaderboard.SeasonID {
			return leaderboard.SeasonID(epoch.AddDate(0, 0, -n).Format("20060102"))
		}
		late := func(match leaderboard.MatchID, n int) leaderboard.MatchResult {
			r := inSeason(day(n), withAttributes(f.result(b, "u", match, 0, 1), "team", "red"))
			r.AchievedAt, r.ReceivedAt = epoch.AddDate(0, 0, -n), epoch.AddDate(0, 0, 2)
			return r
		}
		accepted := inSeason(day(0), f.result(b, "v", "m", 0, 1))
		f.apply(b, accepted)
		refused := []leaderboard.MatchResult{late("m", 0), late("n", 1), late("m", 1), late("m", 2)}
		invalid := inSeason(day(0), f.result(b, "u", "invalid", 0, 1<<60))
		for _, repeated := range []bool{false, true} {
			for i, o := range f.apply(b, append(refused, invalid)...).Outcomes {
				reason := leaderboard.ReasonClosed
				if i == len(refused) {
					reason = leaderboard.ReasonInvalid
				}
				if o.Status != leaderboard.Rejected || o.Reason != reason || o.Repeated != repeated || o.Entry.Key != "" {
					f.Errorf("outcome %d is %+v, want a rejection with %s, repeated: %v", i, o, reason, repeated)
				}
			}
		}
		for _, r := range append(refused, invalid) {
			_, err := f.Result(f.ctx, r.ResultKey)
			f.wantErr("Result of a refused result", err, leaderboard.ErrResultNotFound)
		}
		records, err := collect(f.Records(f.ctx, accepted.SeasonKey, "u", ""))
		f.ok("Records", err)
		f.equal("Records", 0, len(records))
		seasons, err := f.SeasonIDs(f.ctx, "b")
		f.ok("SeasonIDs", err)
		f.equal("SeasonIDs", []leaderboard.SeasonID{day(0)}, seasons)
		infos, err := f.Seasons(f.ctx, "b")
		f.ok("Seasons", err)
		f.equal("Seasons", 1, len(infos))
		got, err := collect(f.Users(f.ctx, accepted.SeasonKey))
		f.ok("Users", err)
		f.equal("Users", users("v"), got)
		keys, err := f.UserSeasons(f.ctx, "u")
		f.ok("UserSeasons", err)
		f.equal("UserSeasons", 0, len(keys))
		matches, err := collect(f.MatchIDs(f.ctx, refused[1].SeasonKey, "", ""))
		f.ok("MatchIDs", err)
		f.equal("MatchIDs", 0, len(matches))
		changed, err := f.ChangedAt(f.ctx, refused[1].SeasonKey)
		f.ok("ChangedAt", err)
		f.equal("ChangedAt", time.Time{}, changed)
	}},
	{"RecentRefusals returns the recent refusals of a match, ordered by season, revision and time", func(f *fixture) {
		b := f.create(bestBoard("b"))
		want := map[leaderboard.SeasonID][]leaderboard.RecentRefusal{}
		var results []leaderboard.MatchResult
		for _, season := range []leaderboard.SeasonID{"s2", "s1"} {
			for _, revision := range []int64{3, 1, 1} {
				r := inSeason(season, f.result(b, "u", "m", revision, leaderboard.Score(1<<60+len(results))))
				results = append(results, r)
				want[season] = append(want[season], leaderboard.RecentRefusal{Season: season, Refusal: leaderboard.Refusal{
					Revision: revision, Reason: leaderboard.ReasonInvalid, Content: r.ContentID(), ReceivedAt: r.ReceivedAt}})
			}
			n := len(want[season])
			want[season] = []leaderboard.RecentRefusal{want[season][n-2], want[season][n-1], want[season][n-3]}
		}
		f.apply(b, append(results, f.result(b, "u", "mm", 0, 1<<60), f.result(b, "uu", "m", 0, 1<<60), f.result(b, "u", "m", 4, 1))...)
		other := f.create(bestBoard("b2"))
		f.apply(other, f.result(other, "u", "m", 0, 1<<60))
		key := results[0].ResultKey
		for season, refusals := range map[leaderboard.SeasonID][]leaderboard.RecentRefusal{"s1": want["s1"], "s2": want["s2"], "": append(want["s1"], want["s2"]...), "s": nil} {
			key.Season = season
			got, err := f.RecentRefusals(f.ctx, b, key)
			f.ok("RecentRefusals", err)
			f.equal(fmt.Sprintf("RecentRefusals in season %q", season), refusals, got)
		}
		rec, err := f.Result(f.ctx, leaderboard.ResultKey{SeasonKey: firstSeason(b), User: "u", Match: "m"})
		f.ok("Result", err)
		f.equal("refusals in the Record", 0, len(rec.Refusals))
	}},
	{"if the season is deleted, a result that was refused recently may be refused again", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "v", "m", 0, 1))
		r := f.result(b, "u", "m", 0, 1<<60)
		for range 2 {
			r.ReceivedAt = r.ReceivedAt.Add(time.Second)
			f.equal("Apply", leaderboard.ReasonInvalid, f.apply(b, r).Outcomes[0].Reason)
			f.ok("DeleteSeason", f.DeleteSeason(f.ctx, r.SeasonKey, r.ReceivedAt))
			got, err := f.RecentRefusals(f.ctx, b, r.ResultKey)
			f.ok("RecentRefusals", err)
			f.equal("RecentRefusals of the deleted season", 0, len(got))
		}
		r.ReceivedAt = r.ReceivedAt.Add(time.Second)
		f.apply(b, r)
		got, err := f.RecentRefusals(f.ctx, b, r.ResultKey)
		f.ok("RecentRefusals", err)
		want := leaderboard.Refusal{Revision: r.Revision, Reason: leaderboard.ReasonInvalid, Content: r.ContentID(), ReceivedAt: r.ReceivedAt}
		f.equal("RecentRefusals after the deletions", []leaderboard.RecentRefusal{{Season: r.Season, Refusal: want}}, got)
	}},
	{"a result that was refused recently stays refused after an amendment, but its next revision is judged anew", func(f *fixture) {
		b := f.create(bestBoard("b"))
		late, next := f.result(b, "u", "m", 0, 7), f.result(b, "u", "n", 0, 8)
		for _, r := range []*leaderboard.MatchResult{&late, &next} {
			r.AchievedAt, r.ReceivedAt = b.Season.Windows[0].Start, b.Season.Windows[0].End.Add(grace+time.Hour)
		}
		f.equal("before the amendment", leaderboard.ReasonClosed, f.apply(b, late).Outcomes[0].Reason)
		amended, err := f.AmendBoard(f.ctx, "b", func(b *leaderboard.Board) error {
			b.Season.Grace += 24 * time.Hour
			b.WidenedAt = late.ReceivedAt
			return nil
		})
		f.ok("AmendBoard", err)
		f.equal("another result after the amendment", leaderboard.Applied, f.apply(&amended, next).Outcomes[0].Status)
		again := late
		again.ReceivedAt = again.ReceivedAt.Add(time.Minute)
		for _, r := range []leaderboard.MatchResult{late, again} {
			o := f.apply(&amended, r).Outcomes[0]
			f.equal("the refused result after the amendment", []any{leaderboard.Rejected, leaderboard.ReasonClosed, true}, []any{o.Status, o.Reason, o.Repeated})
		}
		again.Revision = 1
		f.equal("its next revision", leaderboard.Applied, f.apply(&amended, again).Outcomes[0].Status)
		f.equal("the refused result after the next revision", leaderboard.Superseded, f.apply(&amended, late).Outcomes[0].Status)
	}},
	{"Erase, DeleteSeason and DeleteBoard remove recent refusals", func(f *fixture) {
		key := leaderboard.ResultKey{User: "u", Match: "m"}
		refusals := func(b *leaderboard.Board) int {
			got, err := f.RecentRefusals(f.ctx, b, key)
			f.ok("RecentRefusals", err)
			return len(got)
		}
		b := f.create(bestBoard("b"))
		refuse := func() leaderboard.MatchResult {
			r := f.result(b, "u", "m", 0, 1<<60)
			f.equal("a refused result", leaderboard.Rejected, f.apply(b, r).Outcomes[0].Status)
			f.equal("refusals", 1, refusals(b))
			return r
		}
		refuse()
		f.apply(b, f.result(b, "v", "m", 0, 1<<60))
		f.erase("u", f.clock)
		f.equal("refusals after Erase", 0, refusals(b))
		key.User = "v"
		f.equal("another user's refusals after Erase", 1, refusals(b))
		key.User = "u"
		r := refuse()
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, r.SeasonKey, f.clock))
		f.equal("refusals after DeleteSeason", 0, refusals(b))
		again := f.result(b, "u", "m", 0, 1<<60)
		f.equal("the result after DeleteSeason is repeated", false, f.apply(b, again).Outcomes[0].Repeated)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", f.clock))
		f.equal("refusals after DeleteBoard", 0, refusals(b))
		recreated := bestBoard("b")
		recreated.CreatedAt = f.clock
		newBoard := f.create(recreated)
		f.equal("refusals of a new board with the id", 0, refusals(newBoard))
	}},
	{"Results yields the results that stand, retractions too, ordered by match id", func(f *fixture) {
		b := f.create(sumBoard("b"))
		refused := f.result(b, "u", "0", 0, 1<<60)
		ten, two, retracted := f.result(b, "u", "10", 0, 1), f.result(b, "u", "2", 0, 1), f.retraction(b, "u", "1", 0)
		f.apply(b, two, refused, ten, retracted, f.result(b, "v", "1", 0, 1), f.result(b, "uu", "1", 0, 1))
		got, err := collect(f.Results(f.ctx, firstSeason(b), "u"))
		f.ok("Results", err)
		f.equal("Results", []leaderboard.MatchResult{normalize(retracted), ten, two}, got)
		got, err = collect(f.Results(f.ctx, firstSeason(b), "nobody"))
		f.ok("Results", err)
		f.equal("Results of an unknown user", 0, len(got))
	}},
	{"Records yields the records after a match, including those of refused results, ordered by match id", func(f *fixture) {
		floored := sumBoard("b")
		floor := leaderboard.Score(0)
		floored.Floor = &floor
		b := f.create(floored)
		refused := f.result(b, "u", "1", 0, -9)
		ten, two, retracted := f.result(b, "u", "10", 0, 1), f.result(b, "u", "2", 0, 1), f.retraction(b, "u", "11", 0)
		f.apply(b, two, refused, ten, retracted, f.result(b, "v", "1", 0, 1), f.result(b, "uu", "1", 0, 1))
		retracted = normalize(retracted)
		all := []leaderboard.MatchRecord{
			{Match: "1", Record: leaderboard.Record{Refusals: []leaderboard.Refusal{
				{Reason: leaderboard.ReasonFloor, Content: refused.ContentID(), ReceivedAt: refused.ReceivedAt}}}},
			{Match: "10", Record: leaderboard.Record{Result: &ten}},
			{Match: "11", Record: leaderboard.Record{Result: &retracted}},
			{Match: "2", Record: leaderboard.Record{Result: &two}},
		}
		for after, want := range map[leaderboard.MatchID][]leaderboard.MatchRecord{"": all, "1": all[1:], "10": all[2:], "105": all[2:], "2": nil} {
			got, err := collect(f.Records(f.ctx, firstSeason(b), "u", after))
			f.ok("Records", err)
			f.equal(fmt.Sprintf("Records after %q", after), want, got)
		}
		got, err := collect(f.Records(f.ctx, firstSeason(b), "nobody", ""))
		f.ok("Records", err)
		f.equal("Records of an unknown user", 0, len(got))
	}},
	{"UnregisteredUsers yields nothing if no data is damaged", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.populate(b)
		f.apply(b, f.result(b, "refused", "m", 0, 1<<60), f.retraction(b, "retracted", "m", 0), inSeason("s2", f.result(b, "u", "m", 0, 0)))
		f.setBanned("v", true)
		f.erase("u", f.clock)
		unregistered, err := collect(f.UnregisteredUsers(f.ctx))
		f.ok("UnregisteredUsers", err)
		f.equal("unregistered users", 0, len(unregistered))
	}},
	{"Users yields each user with a Record exactly once", func(f *fixture) {
		b := f.create(bestBoard("b"))
		want := users("retracted")
		results := []leaderboard.MatchResult{f.result(b, "refused", "m", 0, 1<<60), f.retraction(b, "retracted", "m", 0), inSeason("s2", f.result(b, "elsewhere", "m", 0, 0))}
		for i := range f.rows(1500) {
			user := leaderboard.UserID(fmt.Sprintf("u%04d", i))
			want = append(want, user)
			results = append(results, f.result(b, user, "1", 0, 1), f.result(b, user, "2", 0, 1))
		}
		f.apply(b, results...)
		got, err := collect(f.Users(f.ctx, firstSeason(b)))
		f.ok("Users", err)
		slices.Sort(got)
		f.equal("Users", want, got)
	}},
	{"HasUsers reports whether Users yields anyone", func(f *fixture) {
		b := f.create(sumBoard("b"))
		s := firstSeason(b)
		check := func(when string, want bool) {
			got, err := f.HasUsers(f.ctx, s)
			f.ok("HasUsers "+when, err)
			f.equal("HasUsers "+when, want, got)
		}
		check("before the first result", false)
		for i := range 20 { // a store that spreads users over partitions must search all partitions
			user := leaderboard.UserID(fmt.Sprint("u", i))
			f.apply(b, f.result(b, user, "m", 0, 1))
			check("with "+string(user), true)
			f.erase(user, f.clock)
			check("after the erasure of "+string(user), false)
		}
		f.apply(b, f.retraction(b, "u", "m", 0))
		check("with a user whose result is retracted", true)
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, time.Time{}))
		check("after DeleteSeason", false)
	}},
}
