package storagetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var storeTests = []test{
	{"methods stop when ctx is done", func(f *fixture) {
		b := f.create(sumBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 1))
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		s := firstSeason(b)
		l := leaderboard.Ladder{SeasonKey: s}
		r := f.result(b, "u", "n", 0, 1)
		for name, call := range map[string]func() error{
			"CreateBoard":    func() error { return f.CreateBoard(ctx, sumBoard("c")) },
			"Board":          func() error { _, err := f.Board(ctx, "b"); return err },
			"Boards":         func() error { _, err := f.Boards(ctx); return err },
			"AmendBoard":     func() error { _, err := f.AmendBoard(ctx, "b", replaceBy(*b)); return err },
			"DeleteBoard":    func() error { return f.DeleteBoard(ctx, "b", time.Time{}) },
			"Apply":          func() error { _, err := f.Apply(ctx, b, []leaderboard.MatchResult{r}); return err },
			"Result":         func() error { _, err := f.Result(ctx, r.ResultKey); return err },
			"RecentRefusals": func() error { _, err := f.RecentRefusals(ctx, b, r.ResultKey); return err },
			"Results":        func() error { _, err := collect(f.Results(ctx, s, "u")); return err },
			"Records":        func() error { _, err := collect(f.Records(ctx, s, "u", "")); return err },
			"SetMatch": func() error {
				_, err := f.SetMatch(ctx, b, leaderboard.MatchState{MatchKey: matchKey(&r), Voids: 1})
				return err
			},
			"Match":             func() error { _, err := f.Match(ctx, matchKey(&r)); return err },
			"Matches":           func() error { _, err := collect(f.Matches(ctx, s)); return err },
			"MatchIDs":          func() error { _, err := collect(f.MatchIDs(ctx, s, "", "")); return err },
			"ListMatches":       func() error { return f.ListMatches(ctx, b, s.Season, "u") },
			"MatchUsers":        func() error { _, err := collect(f.MatchUsers(ctx, matchKey(&r))); return err },
			"Users":             func() error { _, err := collect(f.Users(ctx, s)); return err },
			"HasUsers":          func() error { _, err := f.HasUsers(ctx, s); return err },
			"UnregisteredUsers": func() error { _, err := collect(f.UnregisteredUsers(ctx)); return err },
			"Entry":             func() error { _, err := f.Entry(ctx, s, "u"); return err },
			"Entries":           func() error { _, err := collect(f.Entries(ctx, l, "")); return err },
			"Scan":              func() error { _, err := collect(f.Scan(ctx, s, leaderboard.Part{})); return err },
			"OrphanRows":        func() error { _, err := collect(f.OrphanRows(ctx, s)); return err },
			"RemoveOrphanRows":  func() error { _, err := f.RemoveOrphanRows(ctx, time.Minute); return err },
			"StartRecount":      func() error { _, err := f.StartRecount(ctx, b); return err },
			"Reserve":           func() error { _, err := f.Reserve(ctx, leaderboard.Reservation{Key: r.ResultKey}); return err },
			"Recount":           func() error { _, err := f.Recount(ctx, b, s.Season, "u"); return err },
			"SetBan":            func() error { _, err := f.SetBan(ctx, leaderboard.Ban{User: "u", Banned: true}); return err },
			"UserBans":          func() error { _, err := f.UserBans(ctx, "u"); return err },
			"Bans":              func() error { _, err := collect(f.Bans(ctx, leaderboard.BanKey{})); return err },
			"BansEnding":        func() error { _, err := collect(f.BansEnding(ctx, epoch)); return err },
			"Erase":             func() error { _, err := f.Erase(ctx, "u", f.clock); return err },
			"UserSeasons":       func() error { _, err := f.UserSeasons(ctx, "u"); return err },
			"Seasons":           func() error { _, err := f.Seasons(ctx, "b"); return err },
			"SeasonIDs":         func() error { _, err := f.SeasonIDs(ctx, "b"); return err },
			"Season":            func() error { _, err := f.Season(ctx, s); return err },
			"DeletedAt":         func() error { _, err := f.DeletedAt(ctx, s); return err },
			"Amend":             func() error { _, err := f.Amend(ctx, b, s.Season, leaderboard.Amendment{At: f.clock}, nil); return err },
			"MarkFinal":         func() error { return f.MarkFinal(ctx, b, s.Season, users("u"), "") },
			"FinalMarks":        func() error { _, err := collect(f.FinalMarks(ctx)); return err },
			"RemoveFinalMarks": func() error {
				return f.RemoveFinalMarks(ctx, []leaderboard.FinalMark{{SeasonKey: s, User: "u", ID: "1"}})
			},
			"Seal":            func() error { _, err := f.Seal(ctx, b, s.Season, f.clock); return err },
			"FinalStandings":  func() error { _, _, err := f.FinalStandings(ctx, l, 1, 1); return err },
			"FinalLookup":     func() error { _, _, err := f.FinalLookup(ctx, l, users("u")); return err },
			"FinalAround":     func() error { _, _, err := f.FinalAround(ctx, l, "u", 1, 1); return err },
			"FinalAfter":      func() error { _, _, _, err := f.FinalAfter(ctx, l, "", 1); return err },
			"DeleteSeason":    func() error { return f.DeleteSeason(ctx, s, time.Time{}) },
			"PutAPIKey":       func() error { return f.PutAPIKey(ctx, leaderboard.APIKey{ID: "k"}) },
			"APIKey":          func() error { _, err := f.APIKey(ctx, [32]byte{}); return err },
			"AppendAct":       func() error { return f.AppendAct(ctx, leaderboard.Act{ID: "1"}) },
			"Acts":            func() error { _, err := collect(f.Acts(ctx, leaderboard.ActKey{})); return err },
			"UserActs":        func() error { _, err := collect(f.UserActs(ctx, "u", leaderboard.ActKey{})); return err },
			"APIKeys":         func() error { _, err := f.APIKeys(ctx); return err },
			"DeleteAPIKey":    func() error { return f.DeleteAPIKey(ctx, "k") },
			"NoteAPIKeyUse":   func() error { return f.NoteAPIKeyUse(ctx, "k", epoch) },
			"APIKeyUses":      func() error { _, err := f.APIKeyUses(ctx); return err },
			"FinishDeletions": func() error { return f.FinishDeletions(ctx) },
			"RankChanges":     func() error { _, err := collect(f.RankChanges(ctx)); return err },
			"FinishRankChange": func() error {
				return f.FinishRankChange(ctx, leaderboard.RankChange{ID: "1", User: "u"}, func([]leaderboard.Entry) error { return nil })
			},
			"NoteChange": func() error { return f.NoteChange(ctx, s, f.clock) },
			"ChangedAt":  func() error { _, err := f.ChangedAt(ctx, s); return err },
		} {
			f.wantErr(name, call(), context.Canceled)
		}
		f.equal("score after canceled calls", "1", f.score(b, s, "u"))
	}},
	{"a sequence stops when ctx is done and yields one error, as its last element", func(f *fixture) {
		b := f.create(sumBoard("b"))
		var results []leaderboard.MatchResult
		many := f.rows(3000)
		for i := range many {
			results = append(results, f.result(b, leaderboard.UserID(fmt.Sprint("u", i)), "m", 0, 1),
				f.result(b, "many", leaderboard.MatchID(fmt.Sprint(i)), 0, 1))
		}
		f.apply(b, results...)
		s := firstSeason(b)
		for name, run := range map[string]func(context.Context, func(error) bool){
			"Results": func(ctx context.Context, visit func(error) bool) {
				for _, err := range f.Results(ctx, s, "many") {
					if !visit(err) {
						return
					}
				}
			},
			"Records": func(ctx context.Context, visit func(error) bool) {
				for _, err := range f.Records(ctx, s, "many", "") {
					if !visit(err) {
						return
					}
				}
			},
			"Users": func(ctx context.Context, visit func(error) bool) {
				for _, err := range f.Users(ctx, s) {
					if !visit(err) {
						return
					}
				}
			},
			"Entries": func(ctx context.Context, visit func(error) bool) {
				for _, err := range f.Entries(ctx, leaderboard.Ladder{SeasonKey: s}, "") {
					if !visit(err) {
						return
					}
				}
			},
			"Scan": func(ctx context.Context, visit func(error) bool) {
				for _, err := range f.Scan(ctx, s, leaderboard.Part{}) {
					if !visit(err) {
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
					f.Errorf("%s yields another element after the error %v, want the error as the last element", name, last)
				}
				if n++; n == 10 {
					cancel()
				}
				last = err
				return true
			})
			cancel()
			f.wantErr(name+" after ctx is done", last, context.Canceled)
			if n >= many {
				f.Errorf("%s yields all %d elements although ctx is done, want fewer", name, n)
			}
			n = 0
			run(f.ctx, func(error) bool { n++; return n < 5 })
			if n != 5 {
				f.Errorf("%s yields %d elements to a caller that stops at the fifth, want 5", name, n)
			}
		}
	}},
	{"methods are safe for concurrent use", func(f *fixture) {
		b := f.create(sumBoard("b"))
		writers, perWriter := 8, f.rounds(25)
		var wg sync.WaitGroup
		errs := make(chan error, writers)
		for w := range writers {
			var batches [][]leaderboard.MatchResult
			for i := range perWriter {
				// Several writers send each result. The store must count each result once.
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
			f.equal("sum", fmt.Sprint(perWriter*(perWriter-1)/2), f.score(b, firstSeason(b), leaderboard.UserID(fmt.Sprint("u", u))))
		}
		f.equal("ladder", users("u0", "u1", "u2", "u3"), f.ladder(firstSeason(b), ""))
	}},
	{"stored instants have a resolution of one microsecond", func(f *fixture) {
		instant := epoch.Add(1234567*time.Nanosecond + 1)
		b := sumBoard("b")
		b.CreatedAt = instant.In(time.FixedZone("", 3600))
		stored := f.create(b)
		f.equal("CreatedAt", micros(instant), stored.CreatedAt)
		r := f.result(stored, "u", "m", 0, 1)
		r.AchievedAt, r.ReceivedAt = instant, instant
		f.apply(stored, r)
		rec, err := f.Result(f.ctx, r.ResultKey)
		f.ok("Result", err)
		f.equal("AchievedAt", micros(instant), rec.Result.AchievedAt)
		f.equal("ReceivedAt", micros(instant), rec.Result.ReceivedAt)
		f.equal("AchievedAt of the entry", micros(instant), f.entry(r.SeasonKey, "u").AchievedAt)
		_, err = f.SetBan(f.ctx, leaderboard.Ban{User: "u", Banned: true, At: instant})
		f.ok("SetBan", err)
		f.equal("At", micros(instant), f.banOn("u", "").At)
		record, err := f.Seal(f.ctx, stored, r.Season, instant)
		f.ok("Seal", err)
		f.equal("SealedAt", micros(instant), record.SealedAt)
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, leaderboard.APIKey{ID: "k", CreatedAt: instant, ExpiresAt: instant}))
		keys, err := f.APIKeys(f.ctx)
		f.ok("APIKeys", err)
		f.equal("keys", []leaderboard.APIKey{{ID: "k", CreatedAt: micros(instant), ExpiresAt: micros(instant)}}, keys)
	}},
	{"data of boards, users and matches with similar ids are never mixed", func(f *fixture) {
		// If two of these ids are concatenated, different pairs can give the same text.
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
				got[id+" of "+user] = f.score(&b, firstSeason(&b), leaderboard.UserID(user))
				results, err := collect(f.Results(f.ctx, firstSeason(&b), leaderboard.UserID(user)))
				f.ok("Results", err)
				f.equal("results", len(texts), len(results))
			}
		}
		f.equal("sums", want, got)
		f.ok("DeleteBoard", f.DeleteBoard(f.ctx, "a", time.Time{}))
		for _, id := range texts[1:] {
			b, err := f.Board(f.ctx, leaderboard.BoardID(id))
			f.ok("Board", err)
			f.equal("score after another board was deleted", want[id+" of a"], f.score(&b, firstSeason(&b), "a"))
		}
	}},
}
