package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

func (f *fixture) appendAct(id string, at time.Time, user leaderboard.UserID) leaderboard.Act {
	f.Helper()
	a := leaderboard.Act{
		ID: id, At: at, Actor: "key:1", RequestID: "r" + id, Action: "ban", Board: "b", Season: "s1",
		ActDetail: leaderboard.ActDetail{User: user, Reason: "cheats \"<é>\"", Before: `{"a":1}`, After: fmt.Sprintf(`{"user":%q}`, user)},
	}
	f.ok("AppendAct", f.AppendAct(f.ctx, a))
	return a
}

func (f *fixture) actsAfter(after leaderboard.ActKey) []leaderboard.Act {
	f.Helper()
	acts, err := collect(f.Acts(f.ctx, after))
	f.ok("Acts", err)
	return acts
}

var auditTests = []test{
	{"Acts yields the acts after a key, the newest first", func(f *fixture) {
		f.equal("acts of a new store", 0, len(f.actsAfter(leaderboard.ActKey{})))
		var want []leaderboard.Act
		for i, after := range []time.Duration{0, time.Microsecond, time.Hour, 24 * time.Hour, 24 * time.Hour, 400 * 24 * time.Hour, -1} {
			at := epoch.Add(after)
			if after < 0 {
				at = time.Date(1969, 7, 20, 1, 2, 3, 4000, time.UTC)
			}
			user := leaderboard.UserID("")
			if i%2 == 0 {
				user = "u"
			}
			want = append(want, f.appendAct(fmt.Sprintf("id%d", 9-i), at, user))
		}
		slices.SortFunc(want, func(x, y leaderboard.Act) int { return x.Key().Compare(y.Key()) })
		f.equal("Acts", want, f.actsAfter(leaderboard.ActKey{}))
		for i := range want {
			if d := diff("Acts after a key", want[i+1:], f.actsAfter(want[i].Key())); d != nil {
				f.Error(d)
			}
		}
		if d := diff("Acts after a key between two acts", want[1:], f.actsAfter(leaderboard.ActKey{At: want[0].At.Add(-time.Second), ID: "x"})); d != nil {
			f.Error(d)
		}
	}},
	{"AppendAct may be repeated", func(f *fixture) {
		a := f.appendAct("1", epoch, "u")
		f.appendAct("1", epoch, "u")
		f.equal("Acts", []leaderboard.Act{a}, f.actsAfter(leaderboard.ActKey{}))
	}},
	{"Erase removes the detail of the acts that concern the user", func(f *fixture) {
		concerned := f.appendAct("1", epoch, "u")
		other := f.appendAct("2", epoch.Add(time.Second), "uu")
		unconcerned := f.appendAct("3", epoch.Add(2*time.Second), "")
		redacted := concerned
		redacted.ActDetail, redacted.Erased = leaderboard.ActDetail{}, true
		for range 2 {
			f.erase("u", epoch.Add(time.Minute))
			f.equal("Acts", []leaderboard.Act{unconcerned, other, redacted}, f.actsAfter(leaderboard.ActKey{}))
		}
	}},
	{"after Erase, AppendAct removes the detail of an act that is not later than the erasure", func(f *fixture) {
		f.erase("u", epoch.Add(time.Minute))
		earlier := f.appendAct("1", epoch.Add(time.Minute), "u")
		later := f.appendAct("2", epoch.Add(time.Minute+time.Microsecond), "u")
		earlier.ActDetail, earlier.Erased = leaderboard.ActDetail{}, true
		f.equal("Acts", []leaderboard.Act{later, earlier}, f.actsAfter(leaderboard.ActKey{}))
		later.ActDetail, later.Erased = leaderboard.ActDetail{}, true
		f.erase("u", epoch.Add(time.Hour))
		f.equal("Acts", []leaderboard.Act{later, earlier}, f.actsAfter(leaderboard.ActKey{}))
	}},
}
