package cachetest

import (
	"fmt"
	"math"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

var updateTests = []test{
	{"Update moves users in the overall ladder and in the ladder of each division", func(f *fixture) {
		f.loadFive()
		f.update(f.entry("cid", 2, 35, 9, "gender:M", "country:NOR"))
		f.compareAll()
		f.update(f.entry("cid", 3, 35, 9, "gender:F"))
		f.compareAll()
		f.update(f.entry("cid", 4, 5, 9))
		f.compareAll()
		f.update(f.entry("fay", 1, 30, 2, "gender:F", "country:FIN")) // fay ties with ann and bob
		f.compareAll()
	}},
	{"each combination of values of a crossed division has a ladder", func(f *fixture) {
		b := *f.board
		b.Divisions = []string{"gender+country", "country"}
		f.board = &b
		long := "country:" + strings.Repeat("+", leaderboard.MaxIDBytes-1)
		f.rebuild(f.entry("ann", 1, 30, 1, "gender:F", long+"1"), f.entry("bob", 1, 40, 1, "gender:F", long+"1"), f.entry("cid", 1, 50, 1, "gender:F", long+"2"),
			f.entry("dan", 1, 60, 1, "gender:F"), f.entry("eve", 1, 70, 1, `gender:F+`, "country:KEN"), f.entry("fay", 1, 80, 1, `gender:F`, "country:+KEN"))
		f.compareAll()
		f.update(f.entry("ann", 2, 30, 1, "gender:F", long+"2"), f.entry("dan", 2, 60, 1, "gender:F", "country:+KEN"))
		f.compareAll()
		f.update(f.entry("cid", 2, 50, 1, long+"2"))
		f.compareAll()
	}},
	{"an entry that is not ranked is in no ladder", func(f *fixture) {
		f.loadFive()
		hidden := f.entry("ann", 2, 30, 1, "gender:F", "country:KEN")
		hidden.Hidden = true
		f.update(hidden)
		f.compareAll()
		f.update(f.unranked("eve", 2))
		f.compareAll()
		f.update(f.unranked("never seen", 5))
		f.compareAll()
		f.update(f.entry("ann", 3, 30, 1, "gender:F", "country:KEN"), f.entry("eve", 3, 50, 1, "gender:F"))
		f.compareAll()
		for _, user := range []leaderboard.UserID{"ann", "bob", "cid", "dan", "eve"} {
			f.update(f.unranked(user, 9))
			f.compareAll()
		}
	}},
	{"an entry whose Version is not greater changes nothing", func(f *fixture) {
		f.loadFive()
		f.update(f.entry("ann", 5, 15, 0))
		for _, stale := range []leaderboard.Entry{f.entry("ann", 4, 99, 0), f.unranked("ann", 3), f.entry("ann", 5, 15, 0), f.entry("ann", 1, 30, 1, "gender:F")} {
			f.update(stale)
			f.compareAll()
		}
		f.update(f.unranked("ann", 6)) // the index keeps the version of a user without a standing
		f.update(f.entry("ann", 5, 15, 0))
		f.compareAll()
		f.update(f.unranked("new", 2))
		f.update(f.entry("new", 1, 99, 0))
		f.compareAll()
		f.update(f.entry("ann", 7, 12, 0), f.entry("new", 3, 99, 0))
		f.compareAll()
		// Versions may be large: in storage/cql, they contain sums of revisions, which may be times
		// in milliseconds.
		f.update(f.entry("ann", math.MaxUint64, 13, 0))
		f.update(f.entry("ann", math.MaxUint64-1, 14, 0), f.entry("bob", 1<<53+1, 16, 0))
		f.update(f.entry("bob", 1<<53, 17, 0))
		f.compareAll()
	}},
	{"updates may be repeated, and may arrive in any order", func(f *fixture) {
		f.loadFive()
		rng := random(f.T)
		var updates []leaderboard.Entry
		for version := uint64(2); version < 12; version++ {
			for _, user := range []leaderboard.UserID{"ann", "bob", "fay"} {
				e := f.entry(user, version, leaderboard.Score(rng.IntN(40)), int(version), "gender:"+string("FMX"[rng.IntN(3)]))
				updates = append(updates, e, e)
			}
		}
		for _, e := range shuffled(rng, updates) {
			f.update(e)
		}
		f.compareAll()
	}},
	{"Update does nothing while the season is not loaded", func(f *fixture) {
		f.ok("Update", f.Update(f.ctx, f.key, f.tick(), []leaderboard.Entry{f.entry("ann", 9, 1, 0)}))
		f.checkUnavailable()
		f.rebuild(f.entry("bob", 1, 2, 0))
		f.compareAll()
	}},
	{"one Update applies many entries", func(f *fixture) {
		f.loadFive()
		rng := random(f.T)
		var entries []leaderboard.Entry
		for i := range 150 {
			entries = append(entries, f.entry(leaderboard.UserID(fmt.Sprint("user ", i)), uint64(1+rng.IntN(3)), leaderboard.Score(rng.IntN(20)), i, fmt.Sprint("gender:", i%3)))
		}
		entries = append(entries, f.entry("user 3", 9, 100, 0), f.entry("user 3", 7, 50, 0), f.entry("ann", 2, 100, 0))
		f.update(entries...)
		f.compareAll()
		f.update()
		f.compareAll()
	}},
	{"Synced reports true if every Update is in the index", func(f *fixture) {
		f.loadFive()
		f.update(f.entry("ann", 2, 31, 1), f.unranked("bob", 2))
		if !f.Synced() {
			f.Error("Synced = false after an Update that returned nil, want true")
		}
		f.compareAll()
	}},
	{"Advance returns no doubt while the index has lost nothing", func(f *fixture) {
		f.loadFive()
		for offset := range int64(3) {
			f.update(f.entry("ann", uint64(2+offset), leaderboard.Score(31+offset), 1))
			doubts, err := f.Advance(f.ctx, []leaderboard.LogPosition{{Partition: "p", From: max(offset-1, 0), Offset: offset}, {Partition: "q", Offset: 9}}, offset == 2)
			f.ok("Advance", err)
			if len(doubts) > 0 {
				f.Errorf("Advance returned the doubts %+v, want none", doubts)
			}
		}
		f.compareAll()
	}},
	{"Confirm does nothing if the season is on another server", func(f *fixture) {
		f.loadFive()
		d := leaderboard.Doubt{SeasonKey: f.key, Server: "no server"}
		f.ok("Confirm", f.Confirm(f.ctx, f.board, d, []leaderboard.LogPosition{{Partition: "p", Offset: 1}}, leaderboard.LogSession{Generation: 1, Partitions: 1}))
		f.compareAll()
		f.update(f.entry("ann", 2, 31, 1))
		f.compareAll()
	}},
	{"an invalid season is not loaded until a Rebuild", func(f *fixture) {
		f.loadFive()
		f.Invalidate(f.key)
		f.checkUnavailable()
		f.rebuild(f.entry("ann", 2, 7, 0))
		f.compareAll()
		if !f.Synced() || !f.Synced(f.key) {
			f.Errorf("Synced = %v, Synced of the season = %v after a Rebuild, want true, true", f.Synced(), f.Synced(f.key))
		}
	}},
	{"seasons with similar names are not confused", func(f *fixture) {
		seasons := []*fixture{f}
		for _, key := range []leaderboard.SeasonKey{{Board: "board", Season: "al"}, {Board: "board", Season: "all:"}, {Board: "boar", Season: "dall"}, {Board: "board:all", Season: "all"}} {
			b := *f.board
			b.ID = key.Board
			seasons = append(seasons, f.forSeason(&b, key))
		}
		for i, g := range seasons {
			g.rebuild(g.entry("ann", 1, leaderboard.Score(i), 0, "gender:F"), g.entry(leaderboard.UserID(fmt.Sprint("user ", i)), 1, 3, 0))
		}
		for i, g := range seasons {
			g.update(g.entry("ann", uint64(i), leaderboard.Score(10*i), 0, "gender:F"))
		}
		for _, g := range seasons {
			g.compareAll()
		}
		f.ok("Drop", f.Drop(f.ctx, seasons[1].key))
		seasons[1].checkUnavailable()
		for i, g := range seasons {
			if i != 1 {
				g.compareAll()
			}
		}
	}},
}
