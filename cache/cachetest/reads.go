package cachetest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var viewTests = []test{
	{"Size is the number of standings in the ladder", func(f *fixture) {
		f.loadFive()
		for ladder, want := range map[string]int64{"": 5, "gender:F": 2, "gender:M": 3, "country:KEN": 2, "country:NOR": 0} {
			_, v, err := f.Page(f.ctx, f.ladder(ladder), 1, 1)
			f.ok("Page", err)
			if v.Size != want {
				f.Errorf("ladder %q: size %d, want %d", ladder, v.Size, want)
			}
		}
	}},
	{"AsOf is the time of the season's last change", func(f *fixture) {
		asOf := func() time.Time {
			f.Helper()
			_, v, err := f.Count(f.ctx, f.ladder(""), nil)
			f.ok("Count", err)
			return v.AsOf
		}
		f.ok("Rebuild", f.Rebuild(f.ctx, f.board, f.key, time.Time{}, sequence()))
		if got := asOf(); !got.IsZero() {
			f.Errorf("AsOf is %v before any change, want the zero time", got)
		}
		first, second := f.tick(), f.tick()
		f.ok("Update", f.Update(f.ctx, f.key, second, []leaderboard.Entry{f.entry("ann", 1, 1, 0)}))
		if got := asOf(); !got.Equal(second) {
			f.Errorf("AsOf is %v after an Update, want the time of the Update, %v", got, second)
		}
		f.ok("Update", f.Update(f.ctx, f.key, first, []leaderboard.Entry{f.entry("bob", 1, 1, 0)}))
		if got := asOf(); !got.Equal(second) {
			f.Errorf("AsOf is %v after Updates at %v and then %v, want the later time", got, second, first)
		}
		third := f.tick()
		f.ok("Rebuild", f.Rebuild(f.ctx, f.board, f.key, third, sequence()))
		if got := asOf(); !got.Equal(third) {
			f.Errorf("AsOf is %v after a Rebuild, want the time of the Rebuild, %v", got, third)
		}
	}},
}

var readTests = []test{
	{"reads of a ladder without standings return no standings and no error", func(f *fixture) {
		f.rebuild()
		f.compareAll()
		f.loadFive()
		f.compareLadder(leaderboard.Division{Attribute: "gender", Value: "X"})
		f.compareLadder(leaderboard.Division{Attribute: "no_such_attribute", Value: "X"})
	}},
	{"methods return ErrRankUnavailable before the season is loaded", func(f *fixture) {
		f.checkUnavailable()
		f.loadFive()
		f.forSeason(f.board, leaderboard.SeasonKey{Board: f.board.ID, Season: "other"}).checkUnavailable()
	}},
	{"Standings returns the standings of users in the order given", func(f *fixture) {
		f.loadFive()
		all := f.model.standings(leaderboard.Division{})
		for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 2, 0}, {3}, {1, 1, 0, 1}, {}} {
			var users []leaderboard.UserID
			var want []leaderboard.Standing
			for _, i := range order {
				users, want = append(users, all[i].User), append(want, all[i])
			}
			got, _, err := f.Standings(f.ctx, f.ladder(""), users)
			f.ok("Standings", err)
			f.equal(fmt.Sprintf("Standings of %q", users), want, got)
		}
	}},
	{"Standings returns zero Ranks and an empty Key for a user without a standing", func(f *fixture) {
		f.loadFive()
		hidden := f.entry("fay", 1, 40, 0, "gender:F")
		hidden.Hidden = true
		f.update(hidden)
		got, _, err := f.Standings(f.ctx, f.ladder("gender:F"), []leaderboard.UserID{"bob", "fay", "eve", "nobody"})
		f.ok("Standings", err)
		f.equal("standings", []leaderboard.Standing{
			{User: "bob"}, {User: "fay"}, f.model.standings(f.ladder("gender:F").Division)[1], {User: "nobody"},
		}, got)
	}},
	{"each standing has its competition, dense and ordinal ranks", func(f *fixture) {
		f.loadFive()
		got, _, err := f.Page(f.ctx, f.ladder(""), 1, 5)
		f.ok("Page", err)
		want := []leaderboard.Ranks{
			{Competition: 1, Dense: 1, Ordinal: 1}, {Competition: 1, Dense: 1, Ordinal: 2}, {Competition: 3, Dense: 2, Ordinal: 3},
			{Competition: 4, Dense: 3, Ordinal: 4}, {Competition: 4, Dense: 3, Ordinal: 5},
		}
		var ranks []leaderboard.Ranks
		for _, s := range got {
			ranks = append(ranks, s.Ranks)
		}
		f.equal("ranks", want, ranks)
	}},
	{"tied standings are ordered by time, the earliest first, then by user id", func(f *fixture) {
		micro := func(user leaderboard.UserID, micros int64) leaderboard.Entry {
			return f.entryOf(user, 1, &leaderboard.MatchResult{Score: 7, AchievedAt: time.UnixMicro(micros).UTC()})
		}
		const now = 1_800_000_000_000_000
		first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()
		want := []leaderboard.Entry{
			micro("z", first), micro("y", -1), micro("x", 0), micro("w", 1),
			micro("a", now), micro("aa", now), micro("b", now), micro("A0", now+1), micro("Z", last),
		}
		f.rebuild(want...)
		got, _, err := f.Page(f.ctx, f.ladder(""), 1, 20)
		f.ok("Page", err)
		var users, gotUsers []leaderboard.UserID
		for _, e := range want {
			users = append(users, e.User)
		}
		for _, s := range got {
			gotUsers = append(gotUsers, s.User)
		}
		f.equal("order", users, gotUsers)
		f.compareAll()
	}},
	{"Page returns up to n standings, beginning at a position", func(f *fixture) {
		f.loadFive()
		all := f.model.standings(leaderboard.Division{})
		for _, c := range []struct {
			position int64
			n        int
			want     []leaderboard.Standing
		}{
			{1, 2, all[:2]}, {2, 2, all[1:3]}, {4, 100, all[3:]}, {5, 1, all[4:]}, {6, 1, nil},
			{1, 0, nil}, {3, math.MaxInt32, all[2:]}, {math.MaxInt64, 1, nil},
		} {
			got, _, err := f.Page(f.ctx, f.ladder(""), c.position, c.n)
			f.ok("Page", err)
			f.equal(fmt.Sprintf("Page of %d from position %d", c.n, c.position), c.want, got)
		}
	}},
	{"PageAfter returns up to n standings that follow a sort key", func(f *fixture) {
		f.loadFive()
		all := f.model.standings(leaderboard.Division{})
		after := leaderboard.SortKey("")
		for i := range all {
			got, _, err := f.PageAfter(f.ctx, f.ladder(""), after, 1)
			f.ok("PageAfter", err)
			f.equal(fmt.Sprintf("PageAfter the first %d standings", i), all[i:i+1], got)
			after = got[0].SortKey()
		}
		got, _, err := f.PageAfter(f.ctx, f.ladder(""), after, 1)
		f.ok("PageAfter", err)
		f.equal("PageAfter the last standing", []leaderboard.Standing(nil), got)
	}},
	{"PageAfter accepts a sort key that no standing has", func(f *fixture) {
		f.loadFive()
		all := f.model.standings(leaderboard.Division{})
		sortKey := func(score leaderboard.Score, second int, user leaderboard.UserID) leaderboard.SortKey {
			e := f.entry(user, 1, score, second)
			return e.SortKey()
		}
		removed := all[2].SortKey()
		f.update(f.unranked("cid", 2))
		all = f.model.standings(leaderboard.Division{})
		for _, c := range []struct {
			name  string
			after leaderboard.SortKey
			want  []leaderboard.Standing
		}{
			{"the key of a removed standing", removed, all[2:]},
			{"better than all standings", sortKey(31, 0, "a"), all},
			{"worse than all standings", sortKey(9, 0, "a"), nil},
			{"between two scores", sortKey(15, 0, "a"), all[2:]},
			{"between two times of tied standings", sortKey(30, 1, "zoe"), all[1:]},
			{"before a user with the same score and time", sortKey(30, 1, "an"), all},
			{"after a user with the same score and time", sortKey(30, 1, "ann "), all[1:]},
		} {
			got, _, err := f.PageAfter(f.ctx, f.ladder(""), c.after, 10)
			f.ok("PageAfter", err)
			f.equal("PageAfter a sort key: "+c.name, c.want, got)
		}
	}},
	{"Around returns fewer neighbors near an end of the ladder", func(f *fixture) {
		f.loadFive()
		all := f.model.standings(leaderboard.Division{})
		for _, c := range []struct {
			user         leaderboard.UserID
			above, below int
			want         []leaderboard.Standing
		}{
			{"ann", 4, 4, all}, {"ann", 2, 1, all[:2]}, {"cid", 1, 1, all[1:4]}, {"cid", 4, 4, all},
			{"eve", 1, 3, all[3:]}, {"eve", 0, 0, all[4:]}, {"dan", math.MaxInt32, math.MaxInt32, all},
		} {
			got, _, err := f.around(f.ladder(""), c.user, c.above, c.below)
			f.ok("Around", err)
			f.equal(fmt.Sprintf("Around %q, %d above and %d below", c.user, c.above, c.below), c.want, got)
		}
	}},
	{"Around returns ErrEntryNotFound if the user has no standing", func(f *fixture) {
		f.loadFive()
		f.update(f.unranked("eve", 2))
		for ladder, users := range map[string][]leaderboard.UserID{
			"": {"nobody", "eve"}, "gender:F": {"bob", "eve"}, "gender:X": {"ann"}, "country:KEN": {"bob"},
		} {
			for _, user := range users {
				_, _, err := f.Around(f.ctx, f.ladder(ladder), user, 1, 1)
				f.wantErr(fmt.Sprintf("Around %q in %q", user, ladder), err, leaderboard.ErrEntryNotFound)
			}
		}
	}},
	{"Count returns the number of standings that rank strictly better than each key", func(f *fixture) {
		f.loadFive()
		var keys []leaderboard.RankKey
		for _, score := range []leaderboard.Score{31, 30, 29, 20, 15, 10, 9} {
			keys = append(keys, f.board.ScorePrefix(score, f.now))
		}
		for ladder, want := range map[string][]leaderboard.Counts{
			"":         {{}, {}, {Standings: 2, Distinct: 1}, {Standings: 2, Distinct: 1}, {Standings: 3, Distinct: 2}, {Standings: 3, Distinct: 2}, {Standings: 5, Distinct: 3}},
			"gender:F": {{}, {}, {Standings: 1, Distinct: 1}, {Standings: 1, Distinct: 1}, {Standings: 1, Distinct: 1}, {Standings: 1, Distinct: 1}, {Standings: 2, Distinct: 2}},
			"gender:X": {{}, {}, {}, {}, {}, {}, {}},
		} {
			got, _, err := f.Count(f.ctx, f.ladder(ladder), keys)
			f.ok("Count", err)
			f.equal(fmt.Sprintf("Count in ladder %q", ladder), want, got)
		}
	}},
	{"Count accepts the first bytes of a rank key", func(f *fixture) {
		b := &leaderboard.Board{ID: "ties", TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}}}
		f = f.forSeason(b, leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll})
		entry := func(user leaderboard.UserID, score leaderboard.Score, wins int64) leaderboard.Entry {
			return f.entryOf(user, 1, &leaderboard.MatchResult{Score: score, TieBreakers: []int64{wins}, AchievedAt: start})
		}
		f.rebuild(entry("ann", 30, 2), entry("bob", 30, 1), entry("cid", 20, 9), entry("dan", 20, 0))
		keys := []leaderboard.RankKey{b.ScorePrefix(30, f.now), b.ScorePrefix(25, f.now), b.ScorePrefix(20, f.now), b.ScorePrefix(19, f.now), "\x00", "\xff"}
		got, _, err := f.Count(f.ctx, f.ladder(""), keys)
		f.ok("Count", err)
		f.equal("counts", []leaderboard.Counts{{}, {Standings: 2, Distinct: 2}, {Standings: 2, Distinct: 2}, {Standings: 4, Distinct: 4}, {}, {Standings: 4, Distinct: 4}}, got)
	}},
	{"Survey counts the standings of each bucket", func(f *fixture) {
		const limit = leaderboard.MaxScore
		for _, scores := range [][]leaderboard.Score{
			{7, 7}, {0, 1}, {-limit, limit}, {limit, limit - 1, limit - 1, -limit, 1 - limit, 0, -1, 1}, {1 << 32, 1<<32 - 1, 0, 1, 1 << 31, -1 << 32}, {99, 0, 50, 1, 33, 34},
		} {
			var entries []leaderboard.Entry
			for i, score := range scores {
				entries = append(entries, f.entry(leaderboard.UserID(fmt.Sprint("user ", i)), 1, score, i, fmt.Sprint("gender:", i%2)))
			}
			f.rebuild(entries...)
			f.compareAll()
		}
	}},
	{"users with similar ids are not confused", func(f *fixture) {
		ids := hostileIDs()
		for i, id := range ids {
			f.ok("Validate", id.Validate())
			if slices.Index(ids, id) < i {
				f.Fatalf("the test lists %q twice", id)
			}
		}
		for _, ties := range []bool{true, false} {
			var entries []leaderboard.Entry
			for i, id := range ids {
				score := leaderboard.Score(7)
				if !ties {
					score = leaderboard.Score(i / 3)
				}
				entries = append(entries, f.entry(id, 1, score, 0, "country:"+string(ids[i%7]), "gender:"+string(ids[len(ids)-1-i%5])))
			}
			f.rebuild(entries...)
			f.compareAll()
		}
		for i, id := range ids {
			switch i % 3 {
			case 0:
				f.update(f.unranked(id, 2))
			case 1:
				f.update(f.entry(id, 2, 7, 0, "country:"+string(ids[(i+1)%7])))
			}
		}
		f.compareAll()
	}},
}
