package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var boardTests = []test{
	{"CreateBoard keeps a valid new board", func(f *fixture) {
		low, highest, floor := leaderboard.Score(-5), leaderboard.Score(1<<53), leaderboard.Score(-3)
		b := bestBoard("a board: 100% é/")
		b.Title, b.Unit, b.Decimals = "A <title> & \"more\" é", "s", 3
		b.Order, b.Policy = leaderboard.LowerFirst, leaderboard.Sum
		b.TieBreakers = []leaderboard.TieBreaker{{Name: "wins", Order: leaderboard.HigherFirst}, {Name: "losses", Order: leaderboard.LowerFirst}}
		b.Season.TimeZone = "Europe/Berlin"
		b.MinScore, b.MaxScore, b.Floor, b.Retention = &low, &highest, &floor, 365*24*time.Hour
		f.ok("CreateBoard", f.CreateBoard(f.ctx, b))
		got, err := f.Board(f.ctx, b.ID)
		f.ok("Board", err)
		f.equal("Board", b, got)
		d := sumBoard("d")
		d.Policy, d.HalfLife = leaderboard.Decay, 90*time.Minute+time.Microsecond
		f.equal("Board", &d, f.create(d))
	}},
	{"CreateBoard changes nothing if a board with its id exists", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1))
		same := *b
		same.CreatedAt = epoch.AddDate(0, 0, 1)
		f.ok("CreateBoard of the same board", f.CreateBoard(f.ctx, same))
		other := *b
		other.Policy = leaderboard.Best
		f.wantErr("CreateBoard of a board with the same id and another policy", f.CreateBoard(f.ctx, other), leaderboard.ErrBoardExists)
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("Board", *b, got)
		f.equal("score", "1", f.score(b, firstSeason(b), "u"))
	}},
	{"Board returns ErrBoardNotFound if no board has the id", func(f *fixture) {
		_, err := f.Board(f.ctx, "b")
		f.wantErr("Board", err, leaderboard.ErrBoardNotFound)
	}},
	{"the caller may modify the board that Board returns", func(f *fixture) {
		given := bestBoard("b")
		b := f.create(given)
		given.Divisions[0], b.Divisions[1], b.Season.Windows[0].ID = "x", "y", "z"
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("Board", bestBoard("b"), got)
	}},
	{"Boards returns all boards, ordered by id", func(f *fixture) {
		for _, id := range []leaderboard.BoardID{"b", "a", "é", "aa", "B"} {
			f.create(sumBoard(id))
		}
		boards, err := f.Boards(f.ctx)
		f.ok("Boards", err)
		var ids []leaderboard.BoardID
		for _, b := range boards {
			ids = append(ids, b.ID)
		}
		f.equal("ids", []leaderboard.BoardID{"B", "a", "aa", "b", "é"}, ids)
		f.equal("board", sumBoard("a"), boards[1])
	}},
	{"AmendBoard replaces the board by the changed copy and returns it", func(f *fixture) {
		amended := *f.create(bestBoard("b"))
		highest := leaderboard.Score(10)
		amended.Title, amended.MaxScore, amended.Season.Grace = "new", &highest, time.Hour
		amended.Season.Windows = append(amended.Season.Windows, leaderboard.Season{ID: "s3", Start: epoch.AddDate(0, 0, 20), End: epoch.AddDate(0, 0, 30)})
		got, err := f.AmendBoard(f.ctx, "b", replaceBy(amended))
		f.ok("AmendBoard", err)
		f.equal("returned", amended, got)
		got, err = f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("kept", amended, got)
		r := f.apply(&got, inSeason("s3", f.result(&got, "u", "m", 0, 11))).Outcomes[0]
		f.equal("reason of a result beyond the new bound", leaderboard.ReasonInvalid, r.Reason)
	}},
	{"a board can become private and public again", func(f *fixture) {
		b := sumBoard("b")
		b.Private = true
		f.equal("created", &b, f.create(b))
		for _, private := range []bool{true, false, true} {
			amended := b
			amended.Private = private
			got, err := f.AmendBoard(f.ctx, "b", replaceBy(amended))
			f.ok("AmendBoard", err)
			f.equal("returned", amended, got)
			got, err = f.Board(f.ctx, "b")
			f.ok("Board", err)
			f.equal("kept", amended, got)
		}
		public := b
		public.Private = false
		f.wantErr("CreateBoard of the public board", f.CreateBoard(f.ctx, public), leaderboard.ErrBoardExists)
	}},
	{"concurrent amendments do not undo each other", func(f *fixture) {
		original := *f.create(sumBoard("b"))
		const amendments = 5
		// A store that does not know whether it stored an amendment may call the function again. So
		// the function finds the writer's previous or current value in the board.
		settings := []struct {
			get func(*leaderboard.Board) string
			set func(*leaderboard.Board, int)
		}{
			{func(b *leaderboard.Board) string { return b.Title }, func(b *leaderboard.Board, i int) { b.Title = fmt.Sprint("title ", i) }},
			{func(b *leaderboard.Board) string { return b.Unit }, func(b *leaderboard.Board, i int) { b.Unit = fmt.Sprint("unit ", i) }},
			{func(b *leaderboard.Board) string { return b.Season.Grace.String() }, func(b *leaderboard.Board, i int) { b.Season.Grace = time.Duration(i) * time.Second }},
		}
		var wg sync.WaitGroup
		for _, setting := range settings {
			wg.Go(func() {
				last := setting.get(&original)
				for i := range amendments {
					copied := original
					setting.set(&copied, i+1)
					amended := setting.get(&copied)
					_, err := f.AmendBoard(f.ctx, "b", func(b *leaderboard.Board) error {
						if current := setting.get(b); current != last && current != amended {
							f.Errorf("AmendBoard passes the setting %q to the function, want %q, which the writer's previous amendment has set", current, last)
						}
						setting.set(b, i+1)
						return nil
					})
					if err != nil {
						f.Error(err)
					}
					last = amended
				}
			})
		}
		wg.Wait()
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		want := original
		for _, setting := range settings {
			setting.set(&want, amendments)
		}
		f.equal("board", want, got)
	}},
	{"AmendBoard returns ErrBoardNotFound if no board has the id", func(f *fixture) {
		_, err := f.AmendBoard(f.ctx, "b", replaceBy(sumBoard("b")))
		f.wantErr("AmendBoard", err, leaderboard.ErrBoardNotFound)
	}},
	{"AmendBoard returns the error of the given function, and errors of Board.Amend", func(f *fixture) {
		b := f.create(sumBoard("b"))
		amended := *b
		amended.Policy = leaderboard.Best
		_, err := f.AmendBoard(f.ctx, "b", replaceBy(amended))
		f.wantErr("AmendBoard", err, leaderboard.ErrInvalid)
		_, err = f.AmendBoard(f.ctx, "b", func(b *leaderboard.Board) error {
			b.Title = "not stored"
			return leaderboard.ErrInvalid
		})
		f.wantErr("AmendBoard with a function that fails", err, leaderboard.ErrInvalid)
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("Board", *b, got)
	}},
	{"DeleteBoard removes a board and all its data", func(f *fixture) {
		b := f.create(bestBoard("b"))
		other := f.create(bestBoard("b2"))
		f.populate(b)
		f.populate(other)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		_, err := f.Board(f.ctx, "b")
		f.wantErr("Board", err, leaderboard.ErrBoardNotFound)
		f.checkNoData(*b)
		f.equal("the other board", users("v", "u"), f.ladder(firstSeason(other), "gender:F"))
		_, n, err := f.FinalStandings(f.ctx, leaderboard.Ladder{SeasonKey: firstSeason(other)}, 1, 1)
		f.ok("FinalStandings", err)
		f.equal("final standings of the other board", int64(2), n)
	}},
	{"a board created later with the same id starts empty", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.populate(b)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		recreated := bestBoard("b")
		recreated.CreatedAt, recreated.Order = epoch.Add(time.Minute), leaderboard.LowerFirst
		b = f.create(recreated)
		f.checkNoData(recreated)
		f.apply(b, f.result(b, "w", "m", 0, 1))
		f.equal("ladder", users("w"), f.ladder(firstSeason(b), ""))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true})
		f.ok("SetBan", err)
		f.equal("ladder", users("w"), f.ladder(firstSeason(b), ""))
	}},
	{"the store rejects results that were received at or before the time of a deletion", func(f *fixture) {
		b := f.create(bestBoard("b"))
		other := f.create(bestBoard("b2"))
		old := []leaderboard.MatchResult{
			inSeason("s1", f.result(b, "u", "m", 0, 1)), inSeason("s2", f.result(b, "u", "m", 0, 2)), inSeason("s3", f.result(b, "never", "m", 0, 3)),
		}
		f.apply(b, old[:2]...)
		deletedAt := f.clock
		check := func(moment string, b *leaderboard.Board, deleted ...leaderboard.SeasonID) {
			f.Helper()
			for _, r := range old {
				r.Board = b.ID
				report, err := f.Apply(f.ctx, b, []leaderboard.MatchResult{r})
				f.ok("Apply "+moment, err)
				want := leaderboard.Reason("")
				if slices.Contains(deleted, r.Season) {
					want = leaderboard.ReasonDeleted
				}
				f.equal("reason "+moment+" in "+string(r.Season), want, report.Outcomes[0].Reason)
			}
		}
		s1 := leaderboard.SeasonKey{Board: "b", Season: "s1"}
		f.ok("DeleteSeason", f.DeleteSeason(f.ctx, s1, deletedAt))
		check("after the deletion of a season", b, "s1")
		f.ok("DeleteSeason, at an earlier time", f.DeleteSeason(f.ctx, s1, deletedAt.Add(-time.Hour)))
		check("after a deletion at an earlier time", b, "s1")
		late := inSeason("s1", f.result(b, "u", "later", 0, 4))
		f.apply(b, late)
		f.equal("ladder", users("u"), f.ladder(s1, ""))
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", deletedAt))
		recreated := bestBoard("b")
		recreated.CreatedAt = deletedAt.Add(-time.Minute) // the deletion must cause the rejections, not the time of creation
		b = f.create(recreated)
		check("after the deletion of a board", b, "s1", "s2", "s3")
		f.checkNoData(recreated)
		f.apply(b, late)
		f.equal("ladder of the new board", users("u"), f.ladder(s1, ""))
		check("of another board", other)
		f.ok("DeleteSeason of an unknown board", f.DeleteSeason(f.ctx, leaderboard.SeasonKey{Board: "none", Season: "s1"}, f.clock))
		none := bestBoard("none")
		check("of a board created after the deletion of one of its seasons", f.create(none))
	}},
	{"DeleteBoard returns ErrBoardNotFound if no board has the id", func(f *fixture) {
		f.wantErr("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}), leaderboard.ErrBoardNotFound)
		f.create(sumBoard("b"))
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		f.wantErr("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}), leaderboard.ErrBoardNotFound)
	}},
	{"DeleteBoard leaves nothing of a concurrent Apply", func(f *fixture) {
		for range f.rounds(5) {
			b := f.create(sumBoard("b"))
			var wg sync.WaitGroup
			results := make([]leaderboard.MatchResult, 200)
			for i := range results {
				results[i] = f.result(b, leaderboard.UserID(fmt.Sprint(i%50)), leaderboard.MatchID(fmt.Sprint(i)), 0, 1)
			}
			for w := range 4 {
				wg.Go(func() {
					for _, r := range results[w*50:][:50] {
						if _, err := f.Apply(f.ctx, b, []leaderboard.MatchResult{r}); errors.Is(err, leaderboard.ErrBoardNotFound) {
							return
						} else if err != nil {
							f.Errorf("Apply: %v", err)
						}
					}
				})
			}
			f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
			wg.Wait()
			recreated := sumBoard("b")
			recreated.CreatedAt = f.clock
			f.create(recreated)
			f.checkNoData(recreated)
			f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b", time.Time{}))
		}
	}},
}
