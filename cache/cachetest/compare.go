package cachetest

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// compareAll compares every ladder with the model, through every method of [leaderboard.Ranker].
func (f *fixture) compareAll() {
	f.Helper()
	for _, d := range f.model.divisions() {
		f.compareLadder(d)
	}
}

// If n is at most [Sizes].Positions, samplePositions returns all positions from 0 to n-1. Otherwise
// it returns both ends and a part of the other positions, which changes with each call.
func (f *fixture) samplePositions(n int) []int {
	limit := f.sizes.Positions
	k := (n + limit - 1) / limit
	f.samples++
	var positions []int
	for i := range n {
		if i == 0 || i == n-1 || i%k == f.samples%k {
			positions = append(positions, i)
		}
	}
	return positions
}

func (f *fixture) compareLadder(d leaderboard.Division) {
	ctx := f.ctx
	f.Helper()
	l := leaderboard.Ladder{SeasonKey: f.key, Division: d}
	all := f.model.standings(d)
	view := leaderboard.View{Size: int64(len(all)), AsOf: f.model.asOf}
	name := func(format string, args ...any) string { return fmt.Sprintf("%q: ", d) + fmt.Sprintf(format, args...) }
	page := func(first, n int) []leaderboard.Standing { // first is an index into all
		first = min(first, len(all))
		return all[first:min(first+n, len(all))]
	}
	neighbors := func(i, above, below int) []leaderboard.Standing {
		return all[max(i-above, 0):min(i+below+1, len(all))]
	}

	got, v, err := f.Page(ctx, l, 1, len(all)+1)
	f.ok("Page", err)
	f.equal(name("page of all standings"), all, got)
	f.equal(name("view of a page"), view, v)

	var users []leaderboard.UserID
	var standings []leaderboard.Standing
	indexOf := map[leaderboard.UserID]int{}
	for i, s := range all {
		indexOf[s.User] = i
	}
	for user := range f.model.entries {
		users = append(users, user)
	}
	users = append(users, "no such user")
	if len(users) > 1 {
		users = append(users, users[0]) // the same user twice
	}
	for _, user := range users {
		if i, ok := indexOf[user]; ok {
			standings = append(standings, all[i])
		} else {
			standings = append(standings, leaderboard.Standing{User: user})
		}
	}
	got, v, err = f.Standings(ctx, l, users)
	f.ok("Standings", err)
	f.equal(name("standings"), standings, got)
	f.equal(name("view of standings"), view, v)

	sample := f.samplePositions(len(all))
	absent := 0
	for _, user := range users { // in the random order of a map
		i, ok := indexOf[user]
		if !ok {
			if absent++; absent > f.sizes.Positions && user != "no such user" {
				continue
			}
			if _, _, err := f.Around(ctx, l, user, 2, 2); !errors.Is(err, leaderboard.ErrEntryNotFound) {
				f.Fatalf("%s: error %v, want ErrEntryNotFound", name("around %q", user), err)
			}
			continue
		}
		if _, sampled := slices.BinarySearch(sample, i); !sampled {
			continue
		}
		for _, n := range [][2]int{{0, 0}, {1 + i%4, 4 - i%4}, {len(all), i % 2}} {
			got, v, err := f.around(l, user, n[0], n[1])
			f.ok("Around", err)
			f.equal(name("around %q, %d above and %d below", user, n[0], n[1]), neighbors(i, n[0], n[1]), got)
			f.equal(name("view of around"), view, v)
		}
		around, _, err := f.Around(ctx, l, user, 0, i%3)
		f.ok("Around", err)
		notWorse := 0
		for notWorse < len(all) && all[notWorse].Key <= all[i].Key {
			notWorse++
		}
		f.equal(name("standings that are not worse than %q", user), int64(notWorse), around.NotWorse)
	}

	keys := []leaderboard.RankKey{leaderboard.RankKey(strings.Repeat("\x00", f.board.RankKeyBytes())), leaderboard.RankKey(strings.Repeat("\xff", f.board.RankKeyBytes())), "\x80"}
	for _, i := range sample {
		s := &all[i]
		for _, n := range []int{1, 3} {
			got, v, err := f.Page(ctx, l, int64(i+1), n)
			f.ok("Page", err)
			f.equal(name("page of %d from %d", n, i+1), page(i, n), got)
			f.equal(name("view of a page"), view, v)
		}
		after, v, err := f.PageAfter(ctx, l, s.SortKey(), 1+i%3)
		f.ok("PageAfter", err)
		f.equal(name("page of %d after the standing at %d", 1+i%3, i+1), page(i+1, 1+i%3), after)
		f.equal(name("view of a page"), view, v)
		// No standing has the next two sort keys: one follows s, and one precedes s.
		key := leaderboard.MakeSortKey(s.Key, s.AchievedAt, s.User+"!")
		after, _, err = f.PageAfter(ctx, l, key, 2)
		f.ok("PageAfter", err)
		f.equal(name("page after a key that follows the standing at %d", i+1), standingsAfter(all, key, 2), after)
		key = leaderboard.MakeSortKey(s.Key, s.AchievedAt.Add(-time.Microsecond), s.User)
		after, _, err = f.PageAfter(ctx, l, key, 2)
		f.ok("PageAfter", err)
		f.equal(name("page after a key that precedes the standing at %d", i+1), standingsAfter(all, key, 2), after)
		keys = append(keys, s.Key, s.Key[:len(s.Key)/2], s.Key[:min(len(s.Key), 8)])
	}
	got, v, err = f.Page(ctx, l, int64(len(all)+1), 3)
	f.ok("Page", err)
	f.equal(name("page after the end"), []leaderboard.Standing(nil), got)
	f.equal(name("view of a page after the end"), view, v)

	var counts []leaderboard.Counts
	for _, k := range keys {
		counts = append(counts, count(all, k))
	}
	gotCounts, v, err := f.Count(ctx, l, keys)
	f.ok("Count", err)
	f.equal(name("counts"), counts, gotCounts)
	f.equal(name("view of counts"), view, v)
	f.compareSurvey(l, all, keys, view)
	f.compareMethods(l, all, keys)
}

func (f *fixture) compareSurvey(l leaderboard.Ladder, all []leaderboard.Standing, keys []leaderboard.RankKey, view leaderboard.View) {
	f.Helper()
	q := leaderboard.SurveyQuery{Percents: []float64{100, 99, 50, 33.3, 1, 0}, Keys: keys}
	var want leaderboard.Survey
	keyAt := func(position int) leaderboard.RankKey {
		if position < 1 || position > len(all) {
			return ""
		}
		return all[position-1].Key
	}
	for position := range len(all) + 3 {
		q.Positions = append(q.Positions, int64(position))
		want.Positions = append(want.Positions, keyAt(position))
	}
	for _, p := range q.Percents {
		want.Percents = append(want.Percents, keyAt(max(len(all)-int(float64(len(all))*p/100), 1)))
	}
	for _, k := range keys {
		want.Counts = append(want.Counts, count(all, k))
	}
	for i, buckets := range []int{0, 1, 2, 7, 100} {
		if len(all) > f.sizes.Positions && i != f.samples%5 {
			continue
		}
		q.Buckets = buckets
		for _, q.FromWorst = range []bool{false, true} {
			want.Buckets = bucketCounts(all, q.Buckets, q.FromWorst)
			got, v, err := f.Survey(f.ctx, l, q)
			f.ok("Survey", err)
			f.equal(fmt.Sprintf("%q: survey with %d buckets", l.Division, q.Buckets), want, got)
			f.equal(fmt.Sprintf("%q: view of a survey", l.Division), view, v)
		}
	}
}

// bucketCounts counts the standings of each bucket of a [leaderboard.SurveyQuery] one by one.
func bucketCounts(all []leaderboard.Standing, buckets int, fromWorst bool) []int64 {
	if len(all) == 0 || buckets == 0 {
		return nil
	}
	number := func(st *leaderboard.Standing) *big.Int { return new(big.Int).SetBytes([]byte(st.Key[:8])) }
	best, worst := number(&all[0]), number(&all[len(all)-1])
	width := new(big.Int).Sub(worst, best)
	last := new(big.Int).Set(width)
	width.Div(width, big.NewInt(int64(buckets))).Add(width, big.NewInt(1))
	counts := make([]int64, last.Div(last, width).Int64()+1)
	for i := range all {
		distance := number(&all[i])
		if distance.Sub(distance, best); fromWorst {
			distance.Sub(worst, number(&all[i]))
		}
		counts[distance.Div(distance, width).Int64()]++
	}
	return counts
}

// compareMethods reads the ranks of one [leaderboard.Method] at a time.
func (f *fixture) compareMethods(l leaderboard.Ladder, all []leaderboard.Standing, keys []leaderboard.RankKey) {
	f.Helper()
	for _, m := range []leaderboard.Method{leaderboard.Competition, leaderboard.Dense, leaderboard.Ordinal} {
		if m == leaderboard.Dense && f.lacksDense() {
			f.checkNoDense(l)
			continue
		}
		sameRanks := func(answer string, want, got []leaderboard.Standing) {
			f.Helper()
			f.equal(answer, len(want), len(got))
			for i := range got {
				if got[i].User != want[i].User || got[i].Ranks.By(m) != want[i].Ranks.By(m) || got[i].Ranks.Ordinal != want[i].Ranks.Ordinal {
					f.Fatalf("%q, only %v ranks: %s: got %+v, want %+v", l.Division, m, answer, got[i], want[i])
				}
			}
		}
		for _, i := range f.samplePositions(len(all)) {
			got, _, err := f.Standings(f.ctx, l, []leaderboard.UserID{all[i].User}, m)
			f.ok("Standings", err)
			sameRanks("standings", all[i:i+1], got)
			got, _, err = f.Page(f.ctx, l, int64(i+1), 2, m)
			f.ok("Page", err)
			sameRanks("page", all[i:min(i+2, len(all))], got)
			got, _, err = f.PageAfter(f.ctx, l, all[i].SortKey(), 2, m)
			f.ok("PageAfter", err)
			sameRanks("page after a standing", all[i+1:min(i+3, len(all))], got)
			around, _, err := f.Around(f.ctx, l, all[i].User, 1, 1, m)
			f.ok("Around", err)
			sameRanks("neighborhood", all[max(i-1, 0):min(i+2, len(all))], around.Standings)
		}
		counts, _, err := f.Count(f.ctx, l, keys, m)
		f.ok("Count", err)
		for i, c := range counts {
			if want := count(all, keys[i]); m == leaderboard.Competition && c.Standings != want.Standings || m == leaderboard.Dense && c != want {
				f.Fatalf("%q, only %v ranks: counts of %q are %+v, want %+v", l.Division, m, keys[i], c, want)
			}
		}
	}
}

func standingsAfter(all []leaderboard.Standing, key leaderboard.SortKey, n int) []leaderboard.Standing {
	var out []leaderboard.Standing
	for _, s := range all {
		if s.SortKey() > key && len(out) < n {
			out = append(out, s)
		}
	}
	return out
}
