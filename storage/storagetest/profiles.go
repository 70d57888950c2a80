package storagetest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

var profileTests = []test{
	{"PutProfiles stores profiles, and Profile, CachedProfiles and AllProfiles return them", func(f *fixture) {
		full := leaderboard.Profile{
			User: "a/é", DisplayName: "Zoë 🏳️‍🌈 \"<&>\"", AvatarURL: "https://example.org/a.png?x=1&y=2", Country: "GBR",
			Attributes: `{"bio":"<é> & \"x\"","price":12.5,"tags":["a",null]}`, UpdatedAt: epoch.Add(time.Hour + time.Microsecond), Revision: 7,
		}
		full.Attributes = strings.ReplaceAll(full.Attributes, " ", "\u00a0")
		empty := leaderboard.Profile{User: "b", UpdatedAt: epoch, Revision: 1}
		f.putProfiles(full, empty)
		for _, want := range []leaderboard.Profile{full, empty} {
			got, err := f.Profile(f.ctx, want.User)
			f.ok("Profile", err)
			f.equal("Profile", want, got)
		}
		f.equal("CachedProfiles", []leaderboard.Profile{empty, full, {User: "c"}, empty}, f.cachedProfiles("b", "a/é", "c", "b"))
		f.equal("AllProfiles", []leaderboard.Profile{full, empty}, f.allProfiles())
	}},
	{"Profile returns ErrProfileNotFound for a user without a profile", func(f *fixture) {
		_, err := f.Profile(f.ctx, "a")
		f.wantErr("Profile", err, leaderboard.ErrProfileNotFound)
		f.putProfiles(leaderboard.Profile{User: "a", UpdatedAt: epoch})
		f.putProfiles(leaderboard.Profile{User: "a", DisplayName: "ignored", UpdatedAt: epoch, Deleted: true})
		_, err = f.Profile(f.ctx, "a")
		f.wantErr("Profile of a deleted profile", err, leaderboard.ErrProfileNotFound)
		f.equal("AllProfiles", 0, len(f.allProfiles()))
	}},
	{"PutProfiles sets a missing revision to the time of the change, or above the stored revision", func(f *fixture) {
		first := f.putProfiles(leaderboard.Profile{User: "a", UpdatedAt: epoch})[0]
		f.equal("revision", epoch.UnixMicro(), first.Revision)
		changes, err := f.PutProfiles(f.ctx, []leaderboard.Profile{{User: "a", DisplayName: "x", UpdatedAt: epoch, Revision: 1}})
		f.ok("PutProfiles of a lower revision", err)
		f.equal("PutProfiles of a lower revision", []leaderboard.ProfileChange{{Before: first, After: first}}, changes)
		f.equal("revision of a change at an earlier time", epoch.UnixMicro()+1, f.putProfiles(leaderboard.Profile{User: "a", UpdatedAt: epoch.Add(-time.Hour)})[0].Revision)
		f.equal("revision of a removal", epoch.UnixMicro()+2, f.putProfiles(leaderboard.Profile{User: "a", UpdatedAt: epoch, Deleted: true})[0].Revision)
		f.equal("revision after the removal", epoch.UnixMicro()+3, f.putProfiles(leaderboard.Profile{User: "a", UpdatedAt: epoch})[0].Revision)
	}},
	{"PutProfiles does not store a profile of a user erased at its time or later", func(f *fixture) {
		old := leaderboard.Profile{User: "a", DisplayName: "x", UpdatedAt: epoch}
		f.putProfiles(old)
		_, err := f.Erase(f.ctx, "a", epoch.Add(time.Hour))
		f.ok("Erase", err)
		late := old
		late.UpdatedAt = epoch.Add(time.Hour)
		for _, p := range []leaderboard.Profile{old, late} {
			f.equal("PutProfiles after the erasure", []leaderboard.Profile{{User: "a"}}, f.putProfiles(p))
			f.equal("CachedProfiles", false, f.cachedProfiles("a")[0].Exists())
		}
		late.UpdatedAt = late.UpdatedAt.Add(time.Microsecond)
		f.equal("PutProfiles of a time after the erasure", true, f.putProfiles(late)[0].Exists())
		f.equal("names", "x", f.cachedProfiles("a")[0].DisplayName)
		_, err = f.Erase(f.ctx, "a", epoch.Add(time.Hour))
		f.ok("Erase again", err)
		f.equal("names after a repeated Erase", "x", f.cachedProfiles("a")[0].DisplayName)
	}},
	{"the profile with the highest revision counts, in any order of changes", profilesInAnyOrder},
	{"of two profiles with one revision, the same one counts in any order of changes", func(f *fixture) {
		var counts []leaderboard.Profile
		for i, names := range [][]string{{"x", "y", "x"}, {"y", "x", "y"}} {
			user := leaderboard.UserID(fmt.Sprint(i))
			for _, name := range names {
				f.putProfiles(leaderboard.Profile{User: user, DisplayName: name, UpdatedAt: epoch, Revision: 1})
			}
			p, err := f.Profile(f.ctx, user)
			f.ok("Profile", err)
			f.equal("CachedProfiles", []leaderboard.Profile{p}, f.cachedProfiles(user))
			p.User = ""
			counts = append(counts, p)
		}
		f.equal("the profile that counts", counts[0], counts[1])
	}},
}

func (f *fixture) putProfiles(profiles ...leaderboard.Profile) []leaderboard.Profile {
	f.Helper()
	changes, err := f.PutProfiles(f.ctx, profiles)
	f.ok("PutProfiles", err)
	standing := make([]leaderboard.Profile, len(changes))
	for i := range changes {
		standing[i] = changes[i].After
	}
	return standing
}

func (f *fixture) cachedProfiles(users ...leaderboard.UserID) []leaderboard.Profile {
	f.Helper()
	profiles, err := f.CachedProfiles(f.ctx, users)
	f.ok("CachedProfiles", err)
	return profiles
}

func (f *fixture) allProfiles() []leaderboard.Profile {
	f.Helper()
	all, err := collect(f.AllProfiles(f.ctx))
	f.ok("AllProfiles", err)
	slices.SortFunc(all, func(x, y leaderboard.Profile) int { return strings.Compare(string(x.User), string(y.User)) })
	return all
}

// profilesInAnyOrder compares random changes with a map.
func profilesInAnyOrder(f *fixture) {
	rng := rand.New(rand.NewPCG(seed.New(f.T), 0))
	users := make([]leaderboard.UserID, 20)
	for i := range users {
		users[i] = leaderboard.UserID(fmt.Sprint("user ", i))
	}
	stored := map[leaderboard.UserID]leaderboard.Profile{}
	for i := range f.rounds(200) {
		at := epoch.Add(time.Duration(i) * time.Second)
		if rng.IntN(8) == 0 {
			user := users[rng.IntN(len(users))]
			_, err := f.Erase(f.ctx, user, at)
			f.ok("Erase", err)
			old := stored[user]
			stored[user] = leaderboard.Profile{User: user, UpdatedAt: at, Revision: old.NextRevision(at), Deleted: true}
			continue
		}
		var batch, want []leaderboard.Profile
		for _, j := range rng.Perm(len(users))[:1+rng.IntN(5)] {
			old := stored[users[j]]
			p := leaderboard.Profile{User: users[j], DisplayName: fmt.Sprint("name ", i), UpdatedAt: at}
			switch rng.IntN(4) {
			case 0:
				if p.Revision = old.Revision + []int64{-1, 1, 5}[rng.IntN(3)]; p.Revision < 1 {
					p.Revision = old.Revision + 1
				}
			case 1:
				p.DisplayName, p.Deleted = "", true
			}
			batch = append(batch, p)
			if p.Revision == 0 {
				p.Revision = old.NextRevision(at)
			}
			if p.Revision < old.Revision {
				p = old
			}
			want, stored[p.User] = append(want, p), p
		}
		f.equal(fmt.Sprint("PutProfiles ", i), want, f.putProfiles(batch...))
	}
	var all []leaderboard.Profile
	for _, user := range slices.Sorted(maps.Keys(stored)) {
		if p := stored[user]; p.Exists() {
			all = append(all, p)
		}
	}
	f.equal("AllProfiles", all, f.allProfiles())
	var ids, names []leaderboard.NameMatch
	for _, p := range all {
		ids = append(ids, leaderboard.NameMatch{User: p.User, Folded: string(p.User), IsID: true})
		if p.DisplayName != "" {
			names = append(names, leaderboard.NameMatch{User: p.User, Folded: p.DisplayName})
		}
	}
	for prefix, want := range map[string][]leaderboard.NameMatch{"u": ids, "user 1": nil, "n": names, "name": names, "x": nil} {
		if prefix == "user 1" {
			for _, m := range ids {
				if strings.HasPrefix(m.Folded, prefix) {
					want = append(want, m)
				}
			}
		}
		slices.SortFunc(want, func(x, y leaderboard.NameMatch) int {
			return cmp.Or(strings.Compare(x.Folded, y.Folded), strings.Compare(string(x.User), string(y.User)))
		})
		for _, n := range []int{1, 1000} {
			var got []leaderboard.NameMatch
			for after, more := "", true; more; {
				var found []leaderboard.NameMatch
				var err error
				found, more, err = f.FindNames(f.ctx, prefix, after, n)
				f.ok("FindNames", err)
				for _, m := range found {
					after, m.Position = m.Position, ""
					got = append(got, m)
				}
			}
			f.equal(fmt.Sprintf("FindNames of %q", prefix), want, got)
		}
	}
}
