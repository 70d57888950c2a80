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

func (f *fixture) appendOutcome(intent leaderboard.Act) leaderboard.Act {
	f.Helper()
	outcome := intent
	outcome.CompletedAt, outcome.ActorName, outcome.Match = intent.At.Add(time.Hour), "ops", "m"
	outcome.After = `{"a":2}`
	f.ok("AppendAct", f.AppendAct(f.ctx, outcome))
	return outcome
}

func (f *fixture) userActsAfter(user leaderboard.UserID, after leaderboard.ActKey) []leaderboard.Act {
	f.Helper()
	acts, err := collect(f.UserActs(f.ctx, user, after))
	f.ok("UserActs", err)
	return acts
}

var auditTests = []test{
	{"Acts and UserActs yield the outcome of an act directly before its intent", func(f *fixture) {
		var want, ofUser []leaderboard.Act
		for i := range 5 {
			user := leaderboard.UserID([]string{"u", "v", "u", "", "u"}[i])
			// The outcome of an act is later than the next act. Ids may begin with another id.
			intent := f.appendAct([]string{"a", "ab", "abc", "b", "a"}[i], epoch.Add(time.Duration(i/2)*time.Minute), user)
			pair := []leaderboard.Act{intent}
			if i != 3 {
				outcome := f.appendOutcome(intent)
				f.appendOutcome(intent) // a repetition
				pair = []leaderboard.Act{outcome, intent}
			}
			want = append(want, pair...)
			if user == "u" {
				ofUser = append(ofUser, pair...)
			}
		}
		byKey := func(x, y leaderboard.Act) int { return x.Key().Compare(y.Key()) }
		slices.SortStableFunc(want, byKey)
		slices.SortStableFunc(ofUser, byKey)
		f.equal("Acts", want, f.actsAfter(leaderboard.ActKey{}))
		f.equal("UserActs", ofUser, f.userActsAfter("u", leaderboard.ActKey{}))
		f.equal("UserActs of an unknown user", 0, len(f.userActsAfter("uu", leaderboard.ActKey{})))
		for _, records := range []struct {
			all  []leaderboard.Act
			list func(leaderboard.ActKey) []leaderboard.Act
		}{{want, f.actsAfter}, {ofUser, func(k leaderboard.ActKey) []leaderboard.Act { return f.userActsAfter("u", k) }}} {
			for _, a := range records.all {
				later := slices.DeleteFunc(slices.Clone(records.all), func(o leaderboard.Act) bool { return o.Key().Compare(a.Key()) <= 0 })
				if d := diff("the acts after a key", len(later), len(records.list(a.Key()))); d != nil {
					f.Error(d)
				}
			}
		}
	}},
	{"Erase removes the detail of both records, and UserActs no longer yields them", func(f *fixture) {
		intent := f.appendAct("1", epoch, "u")
		outcome := f.appendOutcome(intent)
		f.erase("u", epoch.Add(time.Minute)) // before the outcome
		late := f.appendAct("2", epoch.Add(time.Second), "u")
		f.equal("Acts", []leaderboard.Act{late.Redacted(), outcome.Redacted(), intent.Redacted()}, f.actsAfter(leaderboard.ActKey{}))
		f.appendOutcome(late)
		f.equal("details", 0, len(slices.DeleteFunc(f.actsAfter(leaderboard.ActKey{}), func(a leaderboard.Act) bool { return a.ActDetail == (leaderboard.ActDetail{}) })))
		f.equal("UserActs", 0, len(f.userActsAfter("u", leaderboard.ActKey{})))
		later := f.appendAct("3", epoch.Add(time.Hour), "u")
		f.equal("UserActs of a later act", []leaderboard.Act{later}, f.userActsAfter("u", leaderboard.ActKey{}))
	}},
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
