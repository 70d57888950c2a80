package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var entryTests = []test{
	{"Entry returns a user's entry", func(f *fixture) {
		b := bestBoard("b")
		b.TieBreakers = []leaderboard.TieBreaker{{Name: "x", Order: leaderboard.LowerFirst}}
		board := f.create(b)
		r := withAttributes(f.result(board, "u", "m", 0, 5), "country", "KEN", "gender", "F", "other", "x")
		r.TieBreakers, r.Metadata = []int64{-7}, `{"car":1}`
		f.apply(board, f.result(board, "u", "low", 0, 1), r)
		e := f.entry(r.SeasonKey, "u")
		f.equal("score", leaderboard.Score(5), board.ScoreOf(e.Key, epoch))
		f.equal("tie-breakers", []int64{-7}, board.TieBreakersOf(e.Key))
		f.equal("Entry", leaderboard.Entry{SeasonKey: r.SeasonKey, User: "u", Key: e.Key, AchievedAt: r.AchievedAt, Match: "m", Metadata: r.Metadata,
			Divisions: []leaderboard.Division{{Attribute: "gender", Value: "F"}, {Attribute: "country", Value: "KEN"}}, Results: 2, Version: e.Version}, e)
	}},
	{"Entry returns a hidden entry", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true})
		f.ok("SetBan", err)
		e := f.entry(firstSeason(b), "u")
		if !e.Hidden || e.Key == "" {
			f.Errorf("entry %+v, want a hidden entry with a key", e)
		}
	}},
	{"Entry returns ErrEntryNotFound if no result counts", func(f *fixture) {
		b := f.create(sumBoard("b"))
		_, err := f.Entry(f.ctx, firstSeason(b), "u")
		f.wantErr("Entry of an unknown user", err, leaderboard.ErrEntryNotFound)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.retraction(b, "u", "m", 1))
		_, err = f.Entry(f.ctx, firstSeason(b), "u")
		f.wantErr("Entry of a user whose results are retracted", err, leaderboard.ErrEntryNotFound)
		_, err = f.Entry(f.ctx, leaderboard.SeasonKey{Board: "none", Season: "all"}, "u")
		f.wantErr("Entry on an unknown board", err, leaderboard.ErrEntryNotFound)
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
				f.result(board, "banned", "m", 0, 3), withAttributes(f.result(board, "other", "m", 0, 4), "gender", "F"))
			_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "banned", Banned: true})
			f.ok("SetBan", err)
			want := users("great", "other", "tie, first", "tie, same time, greater id", "tie, later", "minus", "small")
			if order == leaderboard.LowerFirst {
				want = users("small", "minus", "tie, first", "tie, same time, greater id", "tie, later", "other", "great")
			}
			f.equal("ladder", want, f.ladder(firstSeason(board), ""))
			f.equal("division", users("other"), f.ladder(firstSeason(board), "gender:F"))
			f.equal("division by a value with the same beginning", users(), f.ladder(firstSeason(board), "gender:FF"))
			f.equal("division by another attribute", users(), f.ladder(firstSeason(board), "country:F"))
			f.equal("division that the board does not have", users(), f.ladder(firstSeason(board), "team:F"))
			entries, err := collect(f.Entries(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(board), Division: leaderboard.Division{Attribute: "gender", Value: "F"}}, ""))
			f.ok("Entries", err)
			f.equal("the whole entry", []leaderboard.Entry{f.entry(firstSeason(board), "other")}, entries)
		}
	}},
	{"Entries begins after the given sort key, or at the top", func(f *fixture) {
		b := f.create(sumBoard("b"))
		n := f.rows(2100)
		var results []leaderboard.MatchResult
		for i := range n {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprintf("u%04d", i)), "m", 0, leaderboard.Score(i/2)))
		}
		f.apply(b, results...)
		l := leaderboard.Ladder{SeasonKey: firstSeason(b)}
		all, err := collect(f.Entries(f.ctx, l, ""))
		f.ok("Entries", err)
		f.equal("number of entries", n, len(all))
		if !slices.IsSortedFunc(all, func(x, y leaderboard.Entry) int { return strings.Compare(string(x.SortKey()), string(y.SortKey())) }) {
			f.Error("Entries yields entries in another order, want standing order")
		}
		for _, i := range []int{0, 1, 15, 16, 17, n/2 - 50, n - 2, n - 1} {
			got, err := collect(f.Entries(f.ctx, l, all[i].SortKey()))
			f.ok("Entries", err)
			f.equal(fmt.Sprintf("after entry %d", i), all[i+1:], got)
			between := all[i]
			between.User += "\x00"
			got, err = collect(f.Entries(f.ctx, l, between.SortKey()))
			f.ok("Entries", err)
			f.equal(fmt.Sprintf("number of entries after a sort key between entry %d and the next", i), len(all)-i-1, len(got))
			got, err = collect(f.Entries(f.ctx, l, leaderboard.SortKey(all[i].Key)))
			f.ok("Entries", err)
			f.equal(fmt.Sprintf("number of entries after the rank key of entry %d", i), len(all)-i/2*2, len(got))
		}
	}},
	{"if entries move while Entries runs, Entries yields each of the other entries exactly once", func(f *fixture) {
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
		for e, err := range f.Entries(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(b)}, "") {
			f.ok("Entries", err)
			times[e.User]++
			n++
			f.apply(b, f.result(b, "moves", "m", n, leaderboard.Score((n*997)%int64(10*still))))
		}
		delete(times, "moves")
		f.equal("entries that did not move", still, len(times))
		for user, n := range times {
			f.equal("number of times that user "+string(user)+" is yielded", 1, n)
		}
	}},
	{"OrphanRows yields nothing, and RemoveOrphanRows removes nothing, if no data is damaged", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.populate(b)
		for i, gender := range []string{"F", "M", "X", "F"} {
			f.apply(b, withAttributes(f.result(b, "moves", leaderboard.MatchID(fmt.Sprint(i)), 0, leaderboard.Score(i)), "gender", gender, "country", fmt.Sprint("c", i)))
		}
		f.setBanned("v", true)
		f.erase("u", f.clock)
		for _, s := range []leaderboard.SeasonKey{firstSeason(b), secondSeason(b), {Board: "none", Season: "s1"}} {
			orphans, err := collect(f.OrphanRows(f.ctx, s))
			f.ok("OrphanRows", err)
			f.equal("orphan rows", 0, len(orphans))
		}
		for range 2 { // the first call may begin at any ladder
			removed, err := f.RemoveOrphanRows(f.ctx, time.Hour)
			f.ok("RemoveOrphanRows", err)
			f.equal("removed rows", int64(0), removed)
		}
	}},
	{"Scan yields every entry, including hidden entries", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), withAttributes(f.result(b, "v", "m", 0, 7), "gender", "F"), f.retraction(b, "gone", "m", 0),
			withAttributes(f.result(b, "banned", "m", 0, 9), "gender", "F"), inSeason("s2", f.result(b, "elsewhere", "m", 0, 1)))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "banned", Banned: true})
		f.ok("SetBan", err)
		got, err := collect(f.Scan(f.ctx, firstSeason(b), leaderboard.Part{}))
		f.ok("Scan", err)
		slices.SortFunc(got, func(x, y leaderboard.Entry) int { return strings.Compare(string(x.User), string(y.User)) })
		f.equal("Scan", []leaderboard.Entry{f.entry(firstSeason(b), "banned"), f.entry(firstSeason(b), "u"), f.entry(firstSeason(b), "v")}, got)
	}},
	{"Scan of a part yields the entries of its users", func(f *fixture) {
		b := f.create(sumBoard("b"))
		var results []leaderboard.MatchResult
		for i := range f.rows(100) {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), "m", 0, leaderboard.Score(i%7)))
		}
		f.apply(b, results...)
		f.setBanned("u5", true)
		all, err := collect(f.Scan(f.ctx, firstSeason(b), leaderboard.Part{}))
		f.ok("Scan", err)
		f.equal("entries of all users", len(results), len(all))
		for _, of := range []int{1, 2, 3, 8, 64, 1000} {
			n := 0
			for index := range of {
				part := leaderboard.Part{Index: index, Of: of}
				var want []leaderboard.Entry
				for _, e := range all {
					if part.Contains(e.User) {
						want = append(want, e)
					}
				}
				if of > 64 && want == nil && index%50 > 0 {
					continue
				}
				got, err := collect(f.Scan(f.ctx, firstSeason(b), part))
				f.ok("Scan", err)
				for _, list := range [][]leaderboard.Entry{want, got} {
					slices.SortFunc(list, func(x, y leaderboard.Entry) int { return strings.Compare(string(x.User), string(y.User)) })
				}
				f.equal(fmt.Sprintf("part %d of %d", index, of), want, got)
				n += len(got)
			}
			f.equal(fmt.Sprintf("entries of %d parts", of), len(all), n)
		}
	}},
	{"Scan stops if its caller stops", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1), f.result(b, "v", "m", 0, 2), f.result(b, "w", "m", 0, 3))
		for range 10 {
			for _, err := range f.Scan(f.ctx, firstSeason(b), leaderboard.Part{}) {
				f.ok("Scan", err)
				break
			}
		}
	}},
	{"Scan yields each entry exactly once, even if it changes while Scan runs", func(f *fixture) {
		b := f.create(sumBoard("b"))
		many := int64(f.rows(300))
		var results []leaderboard.MatchResult
		for i := range many {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprintf("u%03d", i)), "m", 0, leaderboard.Score(10*i)))
		}
		f.apply(b, results...)
		times := map[leaderboard.UserID]int{}
		n := int64(0)
		for e, err := range f.Scan(f.ctx, firstSeason(b), leaderboard.Part{}) {
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
			f.equal("number of times that user "+string(user)+" is yielded", 1, n)
		}
	}},
}

var recountTests = []test{
	{"Recount returns a change with equal Before and After if nothing was damaged", func(f *fixture) {
		for _, policy := range leaderboard.Policies() {
			b := bestBoard(leaderboard.BoardID(policy.String()))
			b.Policy = policy
			if policy == leaderboard.Decay {
				b.HalfLife = time.Hour
			}
			if policy == leaderboard.BestK {
				b.K = 2
			}
			board := f.create(b)
			f.apply(board, withAttributes(f.result(board, "u", "1", 0, 5), "gender", "F"), f.result(board, "u", "2", 0, 7), f.retraction(board, "u", "2", 1), f.result(board, "u", "3", 0, 1))
			e := f.entry(firstSeason(board), "u")
			c, err := f.Recount(f.ctx, board, "s1", "u")
			f.ok("Recount", err)
			f.equal("change", leaderboard.Change{Before: e, After: e}, c)
			f.equal("entry", e, f.entry(firstSeason(board), "u"))
			f.equal("division", users("u"), f.ladder(firstSeason(board), "gender:F"))
		}
	}},
	{"Recount of a user without results creates no entry", func(f *fixture) {
		b := f.create(sumBoard("b"))
		c, err := f.Recount(f.ctx, b, "all", "nobody")
		f.ok("Recount", err)
		f.equal("Key", leaderboard.RankKey(""), c.After.Key)
		_, err = f.Entry(f.ctx, firstSeason(b), "nobody")
		f.wantErr("Entry", err, leaderboard.ErrEntryNotFound)
		all, err := collect(f.Users(f.ctx, firstSeason(b)))
		f.ok("Users", err)
		f.equal("Users", 0, len(all))
	}},
	{"Recount excludes results after an early end of the season", func(f *fixture) {
		endless := sumBoard("b")
		endless.Season.Grace = grace
		old := f.create(endless)
		s := firstSeason(old)
		early, late := f.result(old, "u", "1", 0, 5), f.result(old, "u", "2", 0, 7)
		early.AchievedAt = late.AchievedAt.Add(-time.Hour)
		f.apply(old, early, late, f.result(old, "v", "1", 0, 6))
		b, err := f.AmendBoard(f.ctx, "b", func(b *leaderboard.Board) error {
			return b.Season.EndEarly(leaderboard.EarlyEnd{ID: s.Season, At: late.AchievedAt, DecidedAt: late.ReceivedAt})
		})
		f.ok("AmendBoard", err)
		recount := func(user leaderboard.UserID) leaderboard.Change {
			c, err := f.Recount(f.ctx, &b, s.Season, user)
			f.ok("Recount", err)
			return c
		}
		for _, user := range users("u", "v") {
			c := recount(user)
			f.equal("the version grows", true, c.After.Version > c.Before.Version)
		}
		f.equal("ladder", users("u"), f.ladder(s, ""))
		f.equal("score", "5", f.score(&b, s, "u"))
		another := f.result(old, "u", "3", 0, 1)
		another.AchievedAt = early.AchievedAt
		f.apply(&b, another)
		f.equal("score after another result", "6", f.score(&b, s, "u"))
		refused := f.result(old, "u", "4", 0, 1)
		for range 2 {
			f.equal("reason", leaderboard.ReasonEnded, f.apply(&b, refused).Outcomes[0].Reason)
		}
		f.apply(old, f.result(old, "u", "5", 0, 1)) // like a process that has not read the new version of the board
		recount("u")
		f.equal("score after a result that an older board accepts", "6", f.score(&b, s, "u"))
		c, err := f.Recount(f.ctx, old, s.Season, "u")
		f.ok("Recount with an older board", err)
		f.equal("entry after a Recount with an older board", c.Before, c.After)
		f.equal("score after a Recount with an older board", "6", f.score(&b, s, "u"))
		f.equal("ladder", users("u"), f.ladder(s, ""))
	}},
	{"Recount keeps a banned user hidden", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true})
		f.ok("SetBan", err)
		c, err := f.Recount(f.ctx, b, "all", "u")
		f.ok("Recount", err)
		f.equal("Hidden", true, c.After.Hidden)
		f.equal("ladder", users(), f.ladder(firstSeason(b), ""))
	}},
	{"a Recount concurrent with Apply does not change the outcome", func(f *fixture) {
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
			_, recountErr := f.Recount(f.ctx, b, "all", "u")
			err = errors.Join(err, recountErr)
			f.ok("Recount or Apply", err)
		}
		f.equal("score", fmt.Sprint(len(results)), f.score(b, firstSeason(b), "u"))
		f.equal("ladder", users("u"), f.ladder(firstSeason(b), ""))
	}},
	{"after StartRecount, new entries follow the changed divisions; an older entry follows them after its Recount", func(f *fixture) {
		old := f.create(bestBoard("b"))
		women := func(user leaderboard.UserID, match leaderboard.MatchID) leaderboard.MatchResult {
			return withAttributes(f.result(old, user, match, 0, 5), "gender", "F", "country", "KEN", "club", "x")
		}
		f.apply(old, women("u", "1"), women("v", "1"), inSeason("s2", women("u", "1")))
		_, err := f.Seal(f.ctx, old, "s2", f.clock)
		f.ok("Seal", err)
		amended := *old
		amended.Divisions = []string{"country", "club+gender"}
		b, err := f.AmendBoard(f.ctx, "b", replaceBy(amended))
		f.ok("AmendBoard", err)
		seasons, err := f.StartRecount(f.ctx, &b)
		f.ok("StartRecount", err)
		f.equal("seasons that are not sealed", []leaderboard.SeasonID{"s1"}, seasons)
		f.apply(old, women("w", "1")) // like a process that has not read the new divisions
		f.equal("new division before the Recounts", true, slices.Contains(f.ladder(firstSeason(old), "club+gender:x+F"), "w"))
		before := f.entry(firstSeason(old), "v")
		for _, user := range []leaderboard.UserID{"u", "v", "w"} {
			_, err := f.Recount(f.ctx, &b, "s1", user)
			f.ok("Recount", err)
		}
		after := f.entry(firstSeason(old), "v")
		f.equal("divisions", []leaderboard.Division{{Attribute: "country", Value: "KEN"}, {Attribute: "club+gender", Value: "x+F"}}, after.Divisions)
		f.equal("the version grew", true, after.Version > before.Version)
		f.apply(old, women("v", "2"))
		for division, want := range map[string][]leaderboard.UserID{"gender:F": users(), "club+gender:x+F": users("u", "v", "w"), "country:KEN": users("u", "v", "w")} {
			got := f.ladder(firstSeason(old), division)
			slices.Sort(got)
			f.equal("ladder "+division, want, got)
		}
		orphans, err := collect(f.OrphanRows(f.ctx, firstSeason(old)))
		f.ok("OrphanRows", err)
		f.equal("orphan rows", 0, len(orphans))

		late := inSeason("s2", women("w", "1"))
		f.apply(old, late)
		_, err = f.Recount(f.ctx, &b, "s2", "u")
		f.ok("Recount in a sealed season", err)
		f.equal("old division of the sealed season", 2, len(f.ladder(late.SeasonKey, "gender:F")))
		f.equal("new division of the sealed season", 0, len(f.ladder(late.SeasonKey, "club+gender:x+F")))
		_, err = f.Amend(f.ctx, &b, "s2", leaderboard.Amendment{At: f.clock, Reason: "late result"}, nil)
		f.ok("Amend", err)
		record, err := f.Season(f.ctx, late.SeasonKey)
		f.ok("Season", err)
		f.equal("rules of the sealed season", 0, record.Rules)
	}},
	{"Recount of a correct entry in a sealed season changes nothing, even if the divisions have changed", func(f *fixture) {
		old := f.create(bestBoard("b"))
		women := func(match leaderboard.MatchID) leaderboard.MatchResult {
			return withAttributes(f.result(old, "u", match, 0, 5), "gender", "F", "club", "x", "team", "y")
		}
		first := women("1")
		f.apply(old, first)
		_, err := f.Seal(f.ctx, old, first.Season, f.clock)
		f.ok("Seal", err)
		amended := *old
		amended.Divisions = []string{"club", "team"}
		b, err := f.AmendBoard(f.ctx, "b", replaceBy(amended))
		f.ok("AmendBoard", err)
		for _, r := range []leaderboard.MatchResult{{}, women("2")} {
			if r.Match != "" {
				f.apply(&b, r)
			}
			before := f.entry(first.SeasonKey, "u")
			c, err := f.Recount(f.ctx, &b, first.Season, "u")
			f.ok("Recount", err)
			f.equal("entry after the Recount", before, c.After)
		}
	}},
}
