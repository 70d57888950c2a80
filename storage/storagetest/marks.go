package storagetest

import (
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// count has the number of marks that differ only in their ids.
func (f *fixture) marks() (marks []leaderboard.FinalMark, count map[leaderboard.FinalMark]int) {
	f.Helper()
	marks, err := collect(f.FinalMarks(f.ctx))
	f.ok("FinalMarks", err)
	count = map[leaderboard.FinalMark]int{}
	for _, m := range marks {
		m.ID = ""
		count[m]++
	}
	return marks, count
}

var markTests = []test{
	{"MarkFinal writes a mark for each user of a sealed season, and returns ErrNotSealed for other seasons", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 4))
		f.wantErr("MarkFinal of an open season", f.MarkFinal(f.ctx, b, "s1", users("u"), "late"), leaderboard.ErrNotSealed)
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		f.ok("MarkFinal", f.MarkFinal(f.ctx, b, "s1", users("u", "v"), "late"))
		all, count := f.marks()
		f.equal("number of marks", 2, len(all))
		f.equal("marks", map[leaderboard.FinalMark]int{
			{SeasonKey: firstSeason(b), User: "u", Reason: "late"}: 1, {SeasonKey: firstSeason(b), User: "v", Reason: "late"}: 1,
		}, count)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		f.wantErr("MarkFinal of a deleted board", f.MarkFinal(f.ctx, b, "s1", users("u"), "late"), leaderboard.ErrNotSealed)
	}},
	{"RemoveFinalMarks removes marks that FinalMarks has yielded, and no later marks of the same users", func(f *fixture) {
		b := f.create(bestBoard("b"))
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		f.ok("MarkFinal", f.MarkFinal(f.ctx, b, "s1", users("u", "v"), "late"))
		seen, _ := f.marks()
		f.ok("MarkFinal", f.MarkFinal(f.ctx, b, "s1", users("u"), "late"))
		for range 2 {
			f.ok("RemoveFinalMarks", f.RemoveFinalMarks(f.ctx, seen))
			rest, _ := f.marks()
			f.equal("number of later marks", 1, len(rest))
			f.equal("user of the later mark", leaderboard.UserID("u"), rest[0].User)
		}
	}},
	{"Erase removes the marks of the user", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5), f.result(b, "v", "m", 0, 4))
		_, err := f.Seal(f.ctx, b, "s1", f.clock)
		f.ok("Seal", err)
		f.ok("MarkFinal", f.MarkFinal(f.ctx, b, "s1", users("u", "v"), "late"))
		f.erase("u", f.clock)
		rest, _ := f.marks()
		f.equal("number of marks", 1, len(rest))
		f.equal("user of the mark", leaderboard.UserID("v"), rest[0].User)
	}},
}
