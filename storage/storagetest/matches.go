package storagetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

func matchBoard() leaderboard.Board {
	b := sumBoard("b")
	b.Matches = true
	return b
}

// setVoids voids the match m if voids is odd, and restores it otherwise.
func (f *fixture) setVoids(b *leaderboard.Board, voids int64) leaderboard.ApplyReport {
	f.Helper()
	key := leaderboard.MatchKey{SeasonKey: firstSeason(b), Match: "m"}
	_, err := f.SetMatch(f.ctx, b, leaderboard.MatchState{MatchKey: key, Voids: voids, At: f.clock})
	f.ok("SetMatch", err)
	users, err := collect(f.MatchUsers(f.ctx, key))
	f.ok("MatchUsers", err)
	slices.Sort(users)
	var results []leaderboard.MatchResult
	for _, user := range users {
		results = append(results, leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: key.SeasonKey, User: user, Match: "m"}, VoidOnly: true})
	}
	report, err := f.Apply(f.ctx, b, results)
	f.ok("Apply", err)
	return report
}

var matchTests = []test{
	{"SetMatch keeps the state with the greatest Voids and the greatest Applied", func(f *fixture) {
		board := matchBoard()
		b := f.create(board)
		s := firstSeason(b)
		state := func(match leaderboard.MatchID, voids, applied int64, at time.Time, actor string) leaderboard.MatchState {
			return leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: s, Match: match}, Voids: voids, Applied: applied, Reason: "r", Actor: actor, At: at}
		}
		none, err := f.Match(f.ctx, leaderboard.MatchKey{SeasonKey: s, Match: "m"})
		f.ok("Match", err)
		f.equal("a match that was never set", leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: s, Match: "m"}}, none)
		first, second := state("m", 1, 0, epoch, "ann"), state("m", 2, 2, epoch.Add(-time.Hour), "bob")
		// At equal Voids, the later At wins, then the greater Actor.
		for _, step := range []struct{ set, want leaderboard.MatchState }{
			{first, first},
			{second, second},
			{first, second},
			{state("m", 2, 1, epoch, "aa"), state("m", 2, 2, epoch, "aa")},
			{state("m", 2, 0, epoch, "bo"), state("m", 2, 2, epoch, "bo")},
			{state("m", 2, 0, epoch, "b"), state("m", 2, 2, epoch, "bo")},
			{state("é%", 1, 0, epoch, ""), state("é%", 1, 0, epoch, "")},
		} {
			got, err := f.SetMatch(f.ctx, b, step.set)
			f.ok("SetMatch", err)
			f.equal("SetMatch", step.want, got)
			got, err = f.Match(f.ctx, step.set.MatchKey)
			f.ok("Match", err)
			f.equal("Match", step.want, got)
		}
		all, err := collect(f.Matches(f.ctx, s))
		f.ok("Matches", err)
		f.equal("Matches", []leaderboard.MatchState{state("m", 2, 2, epoch, "bo"), state("é%", 1, 0, epoch, "")}, all)
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, time.Time{}))
		all, err = collect(f.Matches(f.ctx, s))
		f.ok("Matches", err)
		f.equal("Matches of a deleted season", 0, len(all))
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		_, err = f.SetMatch(f.ctx, b, first)
		f.wantErr("SetMatch", err, leaderboard.ErrBoardNotFound)
	}},
	{"SetMatch changes nothing if a deletion of the season deletes the state", func(f *fixture) {
		b := f.create(matchBoard())
		r := f.result(b, "u", "m", 0, 5)
		f.apply(b, r)
		state := leaderboard.MatchState{MatchKey: matchKey(&r), Voids: 1, Reason: "r", Actor: "ann", At: f.clock}
		_, err := f.SetMatch(f.ctx, b, state)
		f.ok("SetMatch", err)
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, r.SeasonKey, f.clock))
		none := leaderboard.MatchState{MatchKey: state.MatchKey}
		for _, applied := range []int64{0, 1} {
			state.Applied = applied
			got, err := f.SetMatch(f.ctx, b, state)
			f.ok("SetMatch after the deletion", err)
			f.equal("SetMatch after the deletion", none, got)
		}
		f.clock = f.clock.Add(time.Hour)
		later := f.result(b, "u", "m", 0, 7)
		later.ReceivedAt = f.clock
		f.apply(b, later)
		f.equal("score after the deletion", "7", f.score(b, r.SeasonKey, "u"))
		got, err := f.SetMatch(f.ctx, b, state)
		f.ok("SetMatch in the new season", err)
		f.equal("SetMatch in the new season", none, got)
		state.At = f.clock
		got, err = f.SetMatch(f.ctx, b, state)
		f.ok("SetMatch of a later void", err)
		f.equal("SetMatch of a later void", state, got)
	}},
	{"a VoidOnly result sets the Voids of the stored result, and changes the entry", func(f *fixture) {
		b := f.create(matchBoard())
		s := firstSeason(b)
		u := f.result(b, "u", "m", 0, 5)
		f.apply(b, u, f.result(b, "u", "n", 0, 2), f.result(b, "v", "m", 0, 7), f.retraction(b, "w", "m", 0), f.result(b, "x", "n", 0, 1))
		report := f.setVoids(b, 1)
		f.equal("outcomes", 3, len(report.Outcomes))
		slices.SortFunc(report.Changes, func(x, y leaderboard.Change) int { return cmp.Compare(x.After.User, y.After.User) })
		for i, user := range users("u", "v", "w") {
			f.equal("changed user", user, report.Changes[i].After.User)
		}
		scores := func() string {
			return strings.Join([]string{f.score(b, s, "u"), f.score(b, s, "v"), f.score(b, s, "w"), f.score(b, s, "x")}, " ")
		}
		f.equal("scores after the void", "2 - - 1", scores())
		f.equal("ladder after the void", users("u", "x"), f.ladder(s, ""))
		rec, err := f.Result(f.ctx, u.ResultKey)
		f.ok("Result", err)
		u.Voids = 1
		f.equal("Result", leaderboard.Record{Result: &u}, rec)
		change, err := f.Recount(f.ctx, b, s.Season, "u")
		f.ok("Recount", err)
		f.equal("Recount", change.Before, change.After)
		f.equal("changes of a repeated void", 0, len(f.setVoids(b, 1).Changes))
		f.setVoids(b, 2)
		f.equal("scores after the end of the void", "7 7 - 1", scores())
		report, err = f.Apply(f.ctx, b, []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{SeasonKey: s, User: "nobody", Match: "m"}, VoidOnly: true}})
		f.ok("Apply", err)
		f.equal("changes of a user without results", 0, len(report.Changes))
		ids, err := collect(f.Users(f.ctx, s))
		f.ok("Users", err)
		slices.Sort(ids)
		f.equal("Users", users("u", "v", "w", "x"), ids)
	}},
	{"a result that is stored after SetMatch has the Voids of its match", func(f *fixture) {
		b := f.create(matchBoard())
		s := firstSeason(b)
		f.setVoids(b, 1)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "u", "n", 0, 2))
		f.equal("score after a result of a void match", "2", f.score(b, s, "u"))
		f.apply(b, f.result(b, "u", "m", 1, 6))
		f.equal("score after a correction of the void result", "2", f.score(b, s, "u"))
		f.apply(b, f.retraction(b, "u", "m", 2), f.result(b, "u", "m", 3, 7), f.result(b, "u", "m", 1, 6))
		f.equal("score after a retraction and a later revision of the void result", "2", f.score(b, s, "u"))
		f.setVoids(b, 2)
		f.equal("score after the end of the void", "9", f.score(b, s, "u"))
		f.setVoids(b, 3)
		f.apply(b, f.retraction(b, "u", "m", 4))
		f.setVoids(b, 4)
		f.equal("score after a retraction during the void", "2", f.score(b, s, "u"))
		f.apply(b, f.result(b, "u", "m", 5, 1))
		f.equal("score after a revision that follows the retraction", "3", f.score(b, s, "u"))
	}},
	{"a repeated or older result gives the stored result the Voids of its match", func(f *fixture) {
		b := f.create(matchBoard())
		s := firstSeason(b)
		r := f.result(b, "u", "m", 1, 5)
		f.apply(b, r)
		_, err := f.SetMatch(f.ctx, b, leaderboard.MatchState{MatchKey: matchKey(&r), Voids: 1, At: f.clock})
		f.ok("SetMatch", err)
		report := f.apply(b, r)
		f.equal("status", leaderboard.Duplicate, report.Outcomes[0].Status)
		f.equal("score", "-", f.score(b, s, "u"))
		_, err = f.SetMatch(f.ctx, b, leaderboard.MatchState{MatchKey: matchKey(&r), Voids: 2, At: f.clock})
		f.ok("SetMatch", err)
		report = f.apply(b, f.result(b, "u", "m", 0, 9))
		f.equal("status of an older revision", leaderboard.Superseded, report.Outcomes[0].Status)
		f.equal("score", "5", f.score(b, s, "u"))
	}},
	{"results of a linked board keep the greatest Voids with which they were applied", func(f *fixture) {
		f.create(matchBoard())
		link := sumBoard("link")
		link.Source = &leaderboard.Source{Board: "b"}
		b := f.create(link)
		s := firstSeason(b)
		r := f.result(b, "u", "m", 0, 5)
		void := r
		void.Voids = 1
		f.apply(b, void, r)
		f.equal("score of a void result", "-", f.score(b, s, "u"))
		f.apply(b, r, f.result(b, "u", "m", 1, 6))
		f.equal("score after a correction of the void result", "-", f.score(b, s, "u"))
		void = f.result(b, "u", "m", 0, 5)
		void.Voids = 2
		f.apply(b, void)
		f.equal("score after the end of the void", "6", f.score(b, s, "u"))
	}},
	{"MatchIDs yields the matches with results or a state, in order, by prefix and after an id", func(f *fixture) {
		b := f.create(matchBoard())
		s := firstSeason(b)
		all := []leaderboard.MatchID{"a", "a b", "a%", "a/1", "aa", "ab", "b", "voided", "é"}
		for i, id := range all {
			if id == "voided" {
				_, err := f.SetMatch(f.ctx, b, leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: s, Match: id}, Voids: 1, At: f.clock})
				f.ok("SetMatch", err)
				continue
			}
			f.apply(b, f.result(b, leaderboard.UserID(fmt.Sprint("u", i%3)), id, 0, 5), f.result(b, "v", id, 0, 5))
		}
		n := f.rows(600)
		var many []leaderboard.MatchResult
		for i := range n {
			id := leaderboard.MatchID(fmt.Sprintf("m%04d", i))
			all, many = append(all, id), append(many, f.result(b, "v", id, 0, 1))
		}
		f.apply(b, many...)
		slices.Sort(all)
		for _, prefix := range []leaderboard.MatchID{"", "a", "aa", "m", "m00", "zz"} {
			for _, after := range []leaderboard.MatchID{"", "a", "aa", "ab1", "m0001", "zzz"} {
				var want []leaderboard.MatchID
				for _, id := range all {
					if strings.HasPrefix(string(id), string(prefix)) && id > after {
						want = append(want, id)
					}
				}
				got, err := collect(f.MatchIDs(f.ctx, s, prefix, after))
				f.ok("MatchIDs", err)
				f.equal(fmt.Sprintf("MatchIDs(%q, %q)", prefix, after), want, got)
			}
		}
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, time.Time{}))
		got, err := collect(f.MatchIDs(f.ctx, s, "", ""))
		f.ok("MatchIDs", err)
		f.equal("MatchIDs of a deleted season", 0, len(got))
	}},
	{"ListMatches adds results from before the board had Matches", func(f *fixture) {
		b := f.create(sumBoard("b"))
		s := firstSeason(b)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "u", "n", 0, 1), f.result(b, "v", "m", 0, 7))
		amended, err := f.AmendBoard(f.ctx, b.ID, func(b *leaderboard.Board) error {
			b.Matches = true
			return nil
		})
		f.ok("AmendBoard", err)
		f.equal("UnfilledMatches", true, amended.UnfilledMatches)
		_, err = f.StartRecount(f.ctx, &amended)
		f.ok("StartRecount", err)
		f.apply(b, f.result(b, "w", "m", 0, 1)) // b is older
		for range 2 {
			for _, user := range users("u", "v") {
				f.ok("ListMatches", f.ListMatches(f.ctx, &amended, s.Season, user))
			}
		}
		ids, err := collect(f.MatchIDs(f.ctx, s, "", ""))
		f.ok("MatchIDs", err)
		f.equal("MatchIDs", []leaderboard.MatchID{"m", "n"}, ids)
		got, err := collect(f.MatchUsers(f.ctx, leaderboard.MatchKey{SeasonKey: s, Match: "m"}))
		f.ok("MatchUsers", err)
		slices.Sort(got)
		f.equal("MatchUsers", users("u", "v", "w"), got)
		f.setVoids(&amended, 1)
		f.equal("score after a void", "1", f.score(b, s, "u"))
		f.equal("score after a void", "-", f.score(b, s, "w"))
		f.wantErr("ListMatches of an unknown board", f.ListMatches(f.ctx, &leaderboard.Board{ID: "none"}, s.Season, "u"), leaderboard.ErrBoardNotFound)
	}},
	{"voids reach the results of concurrent calls of Apply, and MatchUsers yields no user who is erased meanwhile", func(f *fixture) {
		b := f.create(matchBoard())
		s := firstSeason(b)
		const writers = 4
		var wg sync.WaitGroup
		var want []leaderboard.UserID // the users who are not erased
		var results [writers][]leaderboard.MatchResult
		for i := range writers * f.rounds(25) {
			user := leaderboard.UserID(fmt.Sprint("u", i))
			results[i%writers] = append(results[i%writers], f.result(b, user, "m", 0, 5), f.result(b, user, "m", 1, 6))
			if i%writers > 0 {
				want = append(want, user)
			}
		}
		for _, list := range results {
			wg.Go(func() {
				for _, r := range list {
					if _, err := f.Apply(f.ctx, b, []leaderboard.MatchResult{r}); err != nil {
						f.Errorf("Apply: %v", err)
					}
				}
			})
		}
		voids := int64(0)
		for i, r := range results[0] {
			if i%10 == 0 {
				voids++
				f.setVoids(b, voids)
			}
			f.erase(r.User, f.clock)
		}
		wg.Wait()
		for range 2 {
			for _, user := range want {
				score := map[bool]string{true: "-", false: "6"}[voids%2 == 1]
				f.equal(fmt.Sprintf("score of user %q after %d voids and restorations", user, voids), score, f.score(b, s, user))
			}
			voids++
			f.setVoids(b, voids)
		}
		got, err := collect(f.MatchUsers(f.ctx, leaderboard.MatchKey{SeasonKey: s, Match: "m"}))
		f.ok("MatchUsers", err)
		slices.Sort(got)
		slices.Sort(want)
		f.equal("MatchUsers", want, got)
	}},
	{"MatchUsers yields each user with a result of a match once", func(f *fixture) {
		b := f.create(matchBoard())
		s := firstSeason(b)
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "u", "mm", 0, 5), f.result(b, "v", "m", 0, 7), f.result(b, "w", "n", 0, 7), f.retraction(b, "x", "m", 0))
		f.apply(b, f.result(b, "u", "m", 1, 6))
		checkUsers := func(want ...leaderboard.UserID) {
			f.Helper()
			got, err := collect(f.MatchUsers(f.ctx, leaderboard.MatchKey{SeasonKey: s, Match: "m"}))
			f.ok("MatchUsers", err)
			slices.Sort(got)
			f.equal("MatchUsers", want, got)
		}
		checkUsers("u", "v", "x")
		f.erase("u", f.clock)
		checkUsers("v", "x")
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s, time.Time{}))
		checkUsers()
	}},
}
