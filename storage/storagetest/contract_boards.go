package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

var storeTests = []test{
	{"methods stop when ctx is done", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1))
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		s := scopeOf(b)
		l := leaderboard.Ladder{Scope: s}
		r := f.result(b, "u", "n", 0, 1)
		for name, call := range map[string]func() error{
			"CreateBoard":    func() error { return f.CreateBoard(ctx, sumBoard("c")) },
			"Board":          func() error { _, err := f.Board(ctx, "b"); return err },
			"Boards":         func() error { _, err := f.Boards(ctx); return err },
			"AmendBoard":     func() error { _, err := f.AmendBoard(ctx, "b", become(*b)); return err },
			"DeleteBoard":    func() error { return f.DeleteBoard(ctx, "b") },
			"Apply":          func() error { _, err := f.Apply(ctx, b, []leaderboard.MatchResult{r}); return err },
			"Result":         func() error { _, err := f.Result(ctx, r.ResultKey); return err },
			"Results":        func() error { _, err := collect(f.Results(ctx, s, "u")); return err },
			"Users":          func() error { _, err := collect(f.Users(ctx, s)); return err },
			"Unlisted":       func() error { _, err := collect(f.Unlisted(ctx)); return err },
			"Entry":          func() error { _, err := f.Entry(ctx, s, "u"); return err },
			"Entries":        func() error { _, err := collect(f.Entries(ctx, l, "")); return err },
			"Scan":           func() error { _, err := collect(f.Scan(ctx, s)); return err },
			"Strays":         func() error { _, err := collect(f.Strays(ctx, s)); return err },
			"Recount":        func() error { _, err := f.Recount(ctx, b, s.Season, "u"); return err },
			"SetBan":         func() error { _, err := f.SetBan(ctx, leaderboard.Ban{User: "u", Banned: true}); return err },
			"Ban":            func() error { _, err := f.Ban(ctx, "u"); return err },
			"Erase":          func() error { _, err := f.Erase(ctx, "u", f.clock); return err },
			"UserScopes":     func() error { _, err := f.UserScopes(ctx, "u"); return err },
			"Seasons":        func() error { _, err := f.Seasons(ctx, "b"); return err },
			"Season":         func() error { _, err := f.Season(ctx, s); return err },
			"Amend":          func() error { _, err := f.Amend(ctx, b, s.Season, leaderboard.Amendment{At: f.clock}); return err },
			"Seal":           func() error { _, err := f.Seal(ctx, b, s.Season, leaderboard.Amendment{At: f.clock}); return err },
			"FinalStandings": func() error { _, _, err := f.FinalStandings(ctx, l, 1, 1); return err },
			"FinalStanding":  func() error { _, err := f.FinalStanding(ctx, l, "u"); return err },
			"DeleteSeason":   func() error { return f.DeleteSeason(ctx, s) },
			"PutAPIKey":      func() error { return f.PutAPIKey(ctx, leaderboard.APIKey{ID: "k"}) },
			"APIKey":         func() error { _, err := f.APIKey(ctx, [32]byte{}); return err },
			"APIKeys":        func() error { _, err := f.APIKeys(ctx); return err },
			"DeleteAPIKey":   func() error { return f.DeleteAPIKey(ctx, "k") },
		} {
			f.is(name, call(), context.Canceled)
		}
		f.equal("score after calls that were given up", "1", f.score(b, s, "u"))
	}},
	{"sequences stop when ctx is done and yield one error, as their last element", func(f *fixture) {
		b := f.create(sumBoard("b"))
		var results []leaderboard.MatchResult
		many := f.rows(3000)
		for i := range many {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), "m", 0, 1),
				f.result(b, "many", leaderboard.MatchID(fmt.Sprint(i)), 0, 1))
		}
		f.apply(b, results...)
		s := scopeOf(b)
		for name, run := range map[string]func(context.Context, func(error) bool){
			"Results": func(ctx context.Context, each func(error) bool) {
				for _, err := range f.Results(ctx, s, "many") {
					if !each(err) {
						return
					}
				}
			},
			"Users": func(ctx context.Context, each func(error) bool) {
				for _, err := range f.Users(ctx, s) {
					if !each(err) {
						return
					}
				}
			},
			"Entries": func(ctx context.Context, each func(error) bool) {
				for _, err := range f.Entries(ctx, leaderboard.Ladder{Scope: s}, "") {
					if !each(err) {
						return
					}
				}
			},
			"Scan": func(ctx context.Context, each func(error) bool) {
				for _, err := range f.Scan(ctx, s) {
					if !each(err) {
						return
					}
				}
			},
		} {
			ctx, cancel := context.WithCancel(f.ctx)
			n := 0
			var last error
			run(ctx, func(err error) bool {
				if last != nil {
					f.Errorf("%s goes on after error %v", name, last)
				}
				if n++; n == 10 {
					cancel()
				}
				last = err
				return true
			})
			cancel()
			f.is(name+" after ctx is done", last, context.Canceled)
			if n >= many {
				f.Errorf("%s yields all %d elements after ctx is done", name, n)
			}
			n = 0
			run(f.ctx, func(error) bool { n++; return n < 5 })
			if n != 5 {
				f.Errorf("%s yields %d elements to who stops at 5", name, n)
			}
		}
	}},
	{"methods are safe for concurrent use", func(f *fixture) {
		b := f.create(sumBoard("b"))
		writers, each := 8, f.rounds(25)
		var wg sync.WaitGroup
		errs := make(chan error, writers)
		for w := range writers {
			var batches [][]leaderboard.MatchResult
			for i := range each {
				// Every writer sends every match of a user, so all but one are duplicates.
				var batch []leaderboard.MatchResult
				for u := range 3 {
					r := f.result(b, leaderboard.UserID(fmt.Sprint("u", (w+u)%4)), leaderboard.MatchID(fmt.Sprint(i)), 0, leaderboard.Score(i))
					r.AchievedAt = epoch
					batch = append(batch, r)
				}
				batches = append(batches, batch)
			}
			wg.Go(func() {
				for _, batch := range batches {
					if _, err := f.Apply(f.ctx, b, batch); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			f.Fatalf("Apply: %v", err)
		}
		for u := range 4 {
			f.equal("sum", fmt.Sprint(each*(each-1)/2), f.score(b, scopeOf(b), leaderboard.UserID(fmt.Sprint("u", u))))
		}
		f.equal("ladder", users("u0", "u1", "u2", "u3"), f.ladder(scopeOf(b), ""))
	}},
	{"stored instants have a resolution of one microsecond", func(f *fixture) {
		odd := epoch.Add(1234567*time.Nanosecond + 1)
		b := sumBoard("b")
		b.CreatedAt = odd.In(time.FixedZone("", 3600))
		kept := f.create(b)
		f.equal("CreatedAt", micros(odd), kept.CreatedAt)
		r := f.result(kept, "u", "m", 0, 1)
		r.AchievedAt, r.ReceivedAt = odd, odd
		f.apply(kept, r)
		rec, err := f.Result(f.ctx, r.ResultKey)
		f.ok("Result", err)
		f.equal("AchievedAt", micros(odd), rec.Result.AchievedAt)
		f.equal("ReceivedAt", micros(odd), rec.Result.ReceivedAt)
		f.equal("AchievedAt of the entry", micros(odd), f.entry(r.Scope, "u").AchievedAt)
		_, err = f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true, At: odd})
		f.ok("SetBan", err)
		ban, err := f.Ban(f.ctx, "u")
		f.ok("Ban", err)
		f.equal("At", micros(odd), ban.At)
		record, err := f.Seal(f.ctx, kept, r.Season, leaderboard.Amendment{At: odd})
		f.ok("Seal", err)
		f.equal("SealedAt", micros(odd), record.SealedAt)
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, leaderboard.APIKey{ID: "k", CreatedAt: odd, ExpiresAt: odd}))
		keys, err := f.APIKeys(f.ctx)
		f.ok("APIKeys", err)
		f.equal("keys", []leaderboard.APIKey{{ID: "k", CreatedAt: micros(odd), ExpiresAt: micros(odd)}}, keys)
	}},
	{"ids of any printable bytes do not mix", func(f *fixture) {
		// As many ids as there are ways to cut and join the same texts.
		texts := []string{"a", "a\u00a7", "a:b", "b", ":", "aa", "a/b", "\uffee", "~~", "a~"}
		want := map[string]string{}
		n := 0
		for _, id := range texts {
			b := f.create(sumBoard(leaderboard.BoardID(id)))
			var results []leaderboard.MatchResult
			for _, user := range texts {
				for _, match := range texts {
					n++
					results = append(results, f.result(b, leaderboard.UserID(user), leaderboard.MatchID(match), 0, leaderboard.Score(n)))
				}
				want[id+" of "+user] = fmt.Sprint(10*n - 45)
			}
			f.apply(b, results...)
		}
		got := map[string]string{}
		for _, id := range texts {
			b, err := f.Board(f.ctx, leaderboard.BoardID(id))
			f.ok("Board", err)
			for _, user := range texts {
				got[id+" of "+user] = f.score(&b, scopeOf(&b), leaderboard.UserID(user))
				results, err := collect(f.Results(f.ctx, scopeOf(&b), leaderboard.UserID(user)))
				f.ok("Results", err)
				f.equal("results", len(texts), len(results))
			}
		}
		f.equal("sums", want, got)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "a"))
		for _, id := range texts[1:] {
			b, err := f.Board(f.ctx, leaderboard.BoardID(id))
			f.ok("Board", err)
			f.equal("score after another board was deleted", want[id+" of a"], f.score(&b, scopeOf(&b), "a"))
		}
	}},
}

func ladderless(f *fixture, b leaderboard.Board) {
	f.Helper()
	s := scopeOf(&b)
	f.equal("ladder", users(), f.ladder(s, ""))
	f.equal("division", users(), f.ladder(s, "gender:F"))
	entries, err := collect(f.Scan(f.ctx, s))
	f.ok("Scan", err)
	f.equal("Scan", 0, len(entries))
	ids, err := collect(f.Users(f.ctx, s))
	f.ok("Users", err)
	f.equal("Users", 0, len(ids))
	results, err := collect(f.Results(f.ctx, s, "u"))
	f.ok("Results", err)
	f.equal("Results", 0, len(results))
	_, err = f.Result(f.ctx, leaderboard.ResultKey{Scope: s, User: "u", Match: "m"})
	f.is("Result", err, leaderboard.ErrResultNotFound)
	_, err = f.Entry(f.ctx, s, "u")
	f.is("Entry", err, leaderboard.ErrEntryNotFound)
	_, _, err = f.FinalStandings(f.ctx, leaderboard.Ladder{Scope: s}, 1, 1)
	f.is("FinalStandings", err, leaderboard.ErrNotSealed)
	_, err = f.FinalStanding(f.ctx, leaderboard.Ladder{Scope: s}, "u")
	f.is("FinalStanding", err, leaderboard.ErrNotSealed)
	seasons, err := f.Seasons(f.ctx, b.ID)
	f.ok("Seasons", err)
	for _, r := range seasons {
		if r.Scope == s {
			f.Errorf("Seasons lists %v", s)
		}
	}
	scopes, err := f.UserScopes(f.ctx, "u")
	f.ok("UserScopes", err)
	for _, scope := range scopes {
		if scope == s {
			f.Errorf("UserScopes lists %v", s)
		}
	}
}

// fill gives b's first season one of everything.
func (f *fixture) fill(b *leaderboard.Board) {
	f.Helper()
	late := f.result(b, "u", "late", 0, 1)
	late.ReceivedAt = epoch.AddDate(1, 0, 0)
	f.apply(b, with(f.result(b, "u", "m", 0, 5), "gender", "F"), with(f.result(b, "v", "m", 0, 7), "gender", "F"), late)
	_, err := f.Seal(f.ctx, b, scopeOf(b).Season, leaderboard.Amendment{At: f.clock})
	f.ok("Seal", err)
}

var boardTests = []test{
	{"CreateBoard keeps a valid new board", func(f *fixture) {
		low, most, floor := leaderboard.Score(-5), leaderboard.Score(1<<53), leaderboard.Score(-3)
		b := bestBoard("a board: 100% é/")
		b.Title, b.Unit, b.Decimals = "A <title> & \"more\" é", "s", 3
		b.Order, b.Policy = leaderboard.LowerFirst, leaderboard.Sum
		b.TieBreakers = []leaderboard.TieBreaker{{Name: "wins", Order: leaderboard.HigherFirst}, {Name: "losses", Order: leaderboard.LowerFirst}}
		b.Season.TimeZone = "Europe/Berlin"
		b.MinScore, b.MaxScore, b.Floor, b.Retention = &low, &most, &floor, 365*24*time.Hour
		f.ok("CreateBoard", f.CreateBoard(f.ctx, b))
		got, err := f.Board(f.ctx, b.ID)
		f.ok("Board", err)
		f.equal("Board", b, got)
		d := sumBoard("d")
		d.Policy, d.HalfLife = leaderboard.Decay, 90*time.Minute+time.Microsecond
		f.equal("Board", &d, f.create(d))
	}},
	{"CreateBoard changes nothing if one of that id exists", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1))
		same := *b
		same.CreatedAt = epoch.AddDate(0, 0, 1)
		f.ok("CreateBoard of the same", f.CreateBoard(f.ctx, same))
		other := *b
		other.Policy = leaderboard.Best
		f.is("CreateBoard of another", f.CreateBoard(f.ctx, other), leaderboard.ErrBoardExists)
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("Board", *b, got)
		f.equal("score", "1", f.score(b, scopeOf(b), "u"))
	}},
	{"Board returns ErrBoardNotFound", func(f *fixture) {
		_, err := f.Board(f.ctx, "b")
		f.is("Board", err, leaderboard.ErrBoardNotFound)
	}},
	{"what Board returns is the caller's", func(f *fixture) {
		given := bestBoard("b")
		b := f.create(given)
		given.Divisions[0], b.Divisions[1], b.Season.Windows[0].ID = "x", "y", "z"
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("Board", bestBoard("b"), got)
	}},
	{"Boards returns all boards by id", func(f *fixture) {
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
	{"AmendBoard replaces settings and returns the board", func(f *fixture) {
		next := *f.create(bestBoard("b"))
		most := leaderboard.Score(10)
		next.Title, next.MaxScore, next.Season.Grace = "new", &most, time.Hour
		next.Season.Windows = append(next.Season.Windows, leaderboard.Season{ID: "s3", Start: epoch.AddDate(0, 0, 20), End: epoch.AddDate(0, 0, 30)})
		got, err := f.AmendBoard(f.ctx, "b", become(next))
		f.ok("AmendBoard", err)
		f.equal("returned", next, got)
		got, err = f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("kept", next, got)
		r := f.apply(&got, in("s3", f.result(&got, "u", "m", 0, 11))).Outcomes[0]
		f.equal("reason of a result beyond the new bound", leaderboard.ReasonInvalid, r.Reason)
	}},
	{"AmendBoard undoes nothing of another at the same time", func(f *fixture) {
		before := *f.create(sumBoard("b"))
		const each = 5
		// Each setting has one writer, whose amendments must find those before. They
		// may be made twice, as they are where the answer to one was lost.
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
				last := setting.get(&before)
				for i := range each {
					made := before
					setting.set(&made, i+1)
					next := setting.get(&made)
					_, err := f.AmendBoard(f.ctx, "b", func(b *leaderboard.Board) error {
						if have := setting.get(b); have != last && have != next {
							f.Errorf("found %q, want %q", have, last)
						}
						setting.set(b, i+1)
						return nil
					})
					if err != nil {
						f.Error(err)
					}
					last = next
				}
			})
		}
		wg.Wait()
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		want := before
		for _, setting := range settings {
			setting.set(&want, each)
		}
		f.equal("board", want, got)
	}},
	{"AmendBoard returns ErrBoardNotFound", func(f *fixture) {
		_, err := f.AmendBoard(f.ctx, "b", become(sumBoard("b")))
		f.is("AmendBoard", err, leaderboard.ErrBoardNotFound)
	}},
	{"AmendBoard returns the errors of Amend", func(f *fixture) {
		b := f.create(sumBoard("b"))
		next := *b
		next.Policy = leaderboard.Best
		_, err := f.AmendBoard(f.ctx, "b", become(next))
		f.is("AmendBoard", err, leaderboard.ErrInvalid)
		_, err = f.AmendBoard(f.ctx, "b", func(b *leaderboard.Board) error {
			b.Title = "not taken"
			return leaderboard.ErrInvalid
		})
		f.is("AmendBoard whose change fails", err, leaderboard.ErrInvalid)
		got, err := f.Board(f.ctx, "b")
		f.ok("Board", err)
		f.equal("Board", *b, got)
	}},
	{"DeleteBoard removes a board and all that is kept under it", func(f *fixture) {
		b := f.create(bestBoard("b"))
		other := f.create(bestBoard("b2"))
		f.fill(b)
		f.fill(other)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b"))
		_, err := f.Board(f.ctx, "b")
		f.is("Board", err, leaderboard.ErrBoardNotFound)
		ladderless(f, *b)
		f.equal("the other board", users("v", "u"), f.ladder(scopeOf(other), "gender:F"))
		_, n, err := f.FinalStandings(f.ctx, leaderboard.Ladder{Scope: scopeOf(other)}, 1, 1)
		f.ok("FinalStandings", err)
		f.equal("final standings of the other board", int64(2), n)
	}},
	{"a board made later starts empty", func(f *fixture) {
		b := f.create(bestBoard("b"))
		f.fill(b)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b"))
		again := bestBoard("b")
		again.CreatedAt, again.Order = epoch.Add(time.Minute), leaderboard.LowerFirst
		b = f.create(again)
		ladderless(f, again)
		f.apply(b, f.result(b, "w", "m", 0, 1))
		f.equal("ladder", users("w"), f.ladder(scopeOf(b), ""))
		_, err := f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true})
		f.ok("SetBan", err)
		f.equal("ladder", users("w"), f.ladder(scopeOf(b), ""))
	}},
	{"DeleteBoard returns ErrBoardNotFound", func(f *fixture) {
		f.is("DeleteBoard", f.DeleteBoard(f.ctx, "b"), leaderboard.ErrBoardNotFound)
		f.create(sumBoard("b"))
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b"))
		f.is("DeleteBoard", f.DeleteBoard(f.ctx, "b"), leaderboard.ErrBoardNotFound)
	}},
	{"DeleteBoard leaves nothing of an Apply under way", func(f *fixture) {
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
			f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b"))
			wg.Wait()
			again := sumBoard("b")
			again.CreatedAt = f.clock
			f.create(again)
			ladderless(f, again)
			f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "b"))
		}
	}},
}
