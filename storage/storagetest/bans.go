package storagetest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var banTests = []test{
	{"UserBans returns the bans of a user, first the ban on every board", func(f *fixture) {
		bans, err := f.UserBans(f.ctx, "u")
		f.ok("UserBans", err)
		f.equal("bans of an unknown user", 0, len(bans))
		everywhere := leaderboard.Ban{User: "u", Revision: 7, Banned: true, Reason: "cheats, \"<é>\"", Actor: "key:1", At: epoch}
		onA := leaderboard.Ban{User: "u", Board: "a", Revision: 3, Banned: true, Until: epoch.Add(time.Hour), At: epoch}
		onB := leaderboard.Ban{User: "u", Board: "b", Revision: 2, At: epoch}
		for _, b := range []leaderboard.Ban{onB, everywhere, onA, {User: "uu", Banned: true, Revision: 1, At: epoch}} {
			f.setBan(b)
		}
		bans, err = f.UserBans(f.ctx, "u")
		f.ok("UserBans", err)
		f.equal("UserBans", []leaderboard.Ban{everywhere, onA, onB}, bans)
	}},
	{"a ban on a board hides the user on that board only", func(f *fixture) {
		a, b := f.create(bestBoard("a")), f.create(bestBoard("ab"))
		f.apply(a, f.result(a, "u", "m", 0, 5), f.result(a, "v", "m", 0, 4))
		f.apply(b, f.result(b, "u", "m", 0, 7))
		changes := f.setBan(leaderboard.Ban{User: "u", Board: "a", Banned: true, At: f.clock})
		f.equal("changes", 1, len(changes))
		f.equal("hidden", true, changes[0].After.Hidden)
		f.apply(a, inSeason("s2", f.result(a, "u", "m", 0, 6)))
		f.apply(b, inSeason("s2", f.result(b, "u", "m", 0, 8)))
		f.equal("ladder", users("v"), f.ladder(firstSeason(a), ""))
		f.equal("later season", users(), f.ladder(secondSeason(a), ""))
		f.equal("other board", users("u"), f.ladder(firstSeason(b), ""))
		f.equal("later season of the other board", users("u"), f.ladder(secondSeason(b), ""))
		f.setBan(leaderboard.Ban{User: "u", Board: "a", At: f.clock})
		f.equal("ladder after the ban", users("u", "v"), f.ladder(firstSeason(a), ""))
		f.equal("later season after the ban", users("u"), f.ladder(secondSeason(a), ""))
	}},
	{"a ban on the source of a linked board hides the user on the linked board too", func(f *fixture) {
		source, other := f.create(bestBoard("a")), f.create(bestBoard("c"))
		linked := bestBoard("b")
		linked.Source = &leaderboard.Source{Board: "a"}
		b := f.create(linked)
		for _, board := range []*leaderboard.Board{source, b, other} {
			f.apply(board, f.result(board, "u", "m", 0, 5))
		}
		f.equal("changes", 2, len(f.setBan(leaderboard.Ban{User: "u", Board: "a", Banned: true, At: f.clock})))
		f.apply(b, inSeason("s2", inSecondSeason(f.result(b, "u", "m", 0, 6))))
		f.equal("linked board", users(), f.ladder(firstSeason(b), ""))
		f.equal("later season of the linked board", users(), f.ladder(secondSeason(b), ""))
		f.equal("other board", users("u"), f.ladder(firstSeason(other), ""))
		f.setBan(leaderboard.Ban{User: "u", Board: "b", Banned: true, At: f.clock})
		f.setBan(leaderboard.Ban{User: "u", Board: "a", At: f.clock})
		f.equal("source after its ban", users("u"), f.ladder(firstSeason(source), ""))
		f.equal("linked board after the ban of the source", users(), f.ladder(firstSeason(b), ""))
		f.setBan(leaderboard.Ban{User: "u", Board: "b", At: f.clock})
		f.equal("linked board after its ban", users("u"), f.ladder(firstSeason(b), ""))
		f.equal("later season of the linked board after its ban", users("u"), f.ladder(secondSeason(b), ""))
	}},
	{"a user is hidden while a ban on the board, or the ban on every board, is in force", func(f *fixture) {
		a, b := f.create(bestBoard("a")), f.create(sumBoard("b"))
		f.apply(a, f.result(a, "u", "m", 0, 5))
		f.apply(b, f.result(b, "u", "m", 0, 7))
		for _, step := range []struct {
			board    leaderboard.BoardID
			banned   bool
			onA, onB []leaderboard.UserID
		}{
			{"a", true, users(), users("u")},
			{"", true, users(), users()},
			{"a", false, users(), users()},
			{"a", true, users(), users()},
			{"", false, users(), users("u")},
			{"a", false, users("u"), users("u")},
		} {
			f.setBan(leaderboard.Ban{User: "u", Board: step.board, Banned: step.banned, At: f.clock})
			f.equal("ladder of the board", step.onA, f.ladder(firstSeason(a), ""))
			f.equal("ladder of the other board", step.onB, f.ladder(firstSeason(b), ""))
		}
	}},
	{"the order of calls of SetBan does not matter", func(f *fixture) {
		var states []leaderboard.Ban
		for i, banned := range []bool{true, false, true, false} {
			states = append(states, leaderboard.Ban{User: "u", Board: "b", Revision: int64(1 + i/2), Banned: banned, At: epoch.Add(time.Duration(i))},
				leaderboard.Ban{User: "u", Revision: int64(4 - i), Banned: banned, Until: epoch.AddDate(0, 0, 1+i), At: epoch})
		}
		b := f.create(bestBoard("b"))
		f.apply(b, f.result(b, "u", "m", 0, 5))
		rng := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			rng.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
			for _, s := range states {
				f.setBan(s)
			}
			f.equal("on the board", true, f.banOn("u", "b").Banned)
			f.equal("revision on the board", int64(2), f.banOn("u", "b").Revision)
			f.equal("everywhere", leaderboard.Ban{User: "u", Revision: 4, Banned: true, Until: epoch.AddDate(0, 0, 1), At: epoch}, f.banOn("u", ""))
			f.equal("ladder", users(), f.ladder(firstSeason(b), ""))
			f.erase("u", epoch.AddDate(0, 0, -1))
			f.apply(b, f.result(b, "u", "m", 0, 5))
		}
	}},
	{"repeating a ban with its old revision, after a newer revision lifted it, has no effect", func(f *fixture) {
		ban := leaderboard.Ban{User: "u", Revision: 5, Banned: true, At: epoch}
		unban := leaderboard.Ban{User: "u", Revision: 6, At: epoch}
		for _, s := range []leaderboard.Ban{ban, unban, ban, unban, ban} {
			f.setBan(s)
		}
		f.equal("ban", unban, f.banOn("u", ""))
	}},
	{"SetBan assigns a revision, higher than the stored one, to a ban without a revision", func(f *fixture) {
		f.setBan(leaderboard.Ban{User: "u", Revision: 1 << 52, Banned: true, At: epoch})
		f.setBan(leaderboard.Ban{User: "u", At: epoch})
		f.equal("lifted", leaderboard.Ban{User: "u", Revision: 1<<52 + 1, At: epoch}, f.banOn("u", ""))
		f.setBan(leaderboard.Ban{User: "v", Banned: true, At: epoch})
		f.equal("revision", epoch.UnixMicro(), f.banOn("v", "").Revision)
		f.setBan(leaderboard.Ban{User: "w", At: epoch})
		bans, err := f.UserBans(f.ctx, "w")
		f.ok("UserBans", err)
		f.equal("bans after lifting a ban that does not exist", 0, len(bans))
	}},
	{"after Erase, SetBan ignores a ban that has a revision and was set at the time of the erasure or earlier", func(f *fixture) {
		ban := leaderboard.Ban{User: "u", Board: "b", Revision: 5, Banned: true, Until: banEnd(1), At: f.clock}
		f.setBan(ban)
		f.erase("u", f.clock)
		f.setBan(ban)
		f.equal("ban", leaderboard.Ban{User: "u", Board: "b"}, f.banOn("u", "b"))
		all, err := collect(f.Bans(f.ctx, leaderboard.BanKey{}))
		f.ok("Bans", err)
		f.equal("Bans", 0, len(all))
		ending, err := collect(f.BansEnding(f.ctx, banEnd(9)))
		f.ok("BansEnding", err)
		f.equal("BansEnding", 0, len(ending))
		ban.At = f.clock.Add(time.Microsecond)
		f.setBan(ban)
		f.equal("a later ban", ban, f.banOn("u", "b"))
	}},
	{"BansEnding yields the bans whose Until is before a time, lifted or not, ordered by Until", func(f *fixture) {
		b := func(user leaderboard.UserID, board leaderboard.BoardID, revision int64, end int) leaderboard.Ban {
			return leaderboard.Ban{User: user, Board: board, Revision: revision, Banned: true, Until: banEnd(end), At: epoch}
		}
		second, first, third := b("u", "b", 1, 2), b("v", "", 1, 1), b("u", "", 1, 3)
		first.Banned = false
		for _, s := range []leaderboard.Ban{
			second, b("w", "", 1, 1), first, third, {User: "x", Revision: 1, Banned: true, At: epoch},
			{User: "w", Revision: 2, At: epoch}, b("z", "", 1, 1), b("z", "", 2, 8),
		} {
			f.setBan(s)
		}
		for n, want := range [][]leaderboard.Ban{nil, nil, {first}, {first, second}, {first, second, third}} {
			got, err := collect(f.BansEnding(f.ctx, banEnd(n)))
			f.ok("BansEnding", err)
			if d := diff("BansEnding", want, got); d != nil {
				f.Error(d)
			}
		}
	}},
	{"BansEnding yields a ban without a revision that is set again after its user was erased", func(f *fixture) {
		first := leaderboard.Ban{User: "u", Board: "b", Banned: true, Until: banEnd(1), At: epoch}
		permanent := first
		permanent.Until = time.Time{}
		f.setBan(first)
		f.setBan(permanent)
		f.erase("u", f.clock)
		f.setBan(first)
		ending, err := collect(f.BansEnding(f.ctx, banEnd(9)))
		f.ok("BansEnding", err)
		first.Revision = epoch.UnixMicro()
		f.equal("BansEnding", []leaderboard.Ban{first}, ending)
	}},
}

// BansEnding returns the users of the bans that [leaderboard.UserStore].BansEnding yields, and the
// errors that it yields in place of damaged bans.
func BansEnding(ctx context.Context, s leaderboard.UserStore, before time.Time) (users []leaderboard.UserID, faults []error) {
	for b, err := range s.BansEnding(ctx, before) {
		if err != nil {
			faults = append(faults, err)
		} else {
			users = append(users, b.User)
		}
	}
	return users, faults
}
