package cachetest

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard"
)

// model is what an index is compared with: entries in a map, which every
// question sorts and counts afresh.
type model struct {
	entries map[leaderboard.UserID]leaderboard.Entry
	asOf    time.Time
}

func (m *model) update(at time.Time, entries ...leaderboard.Entry) {
	for _, e := range entries {
		if old, known := m.entries[e.User]; !known || e.Version > old.Version {
			m.entries[e.User] = e
		}
	}
	if at.After(m.asOf) {
		m.asOf = at
	}
}

// standings returns a whole ladder, ranked by the definitions of the methods.
func (m *model) standings(d leaderboard.Division) []leaderboard.Standing {
	var all []leaderboard.Standing
	for _, e := range m.entries {
		if e.Key != "" && !e.Hidden && (d.Overall() || slices.Contains(e.Divisions, d)) {
			all = append(all, leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt})
		}
	}
	slices.SortFunc(all, func(x, y leaderboard.Standing) int {
		if c := bytes.Compare([]byte(x.Key), []byte(y.Key)); c != 0 {
			return c
		}
		if c := x.AchievedAt.Compare(y.AchievedAt); c != 0 {
			return c
		}
		return bytes.Compare([]byte(x.User), []byte(y.User))
	})
	for i := range all {
		better := count(all, all[i].Key)
		all[i].Ranks = leaderboard.Ranks{
			Competition: better.Standings + 1, Dense: better.Distinct + 1, Ordinal: int64(i) + 1,
		}
	}
	return all
}

// count counts the standings whose rank keys are smaller than key.
func count(all []leaderboard.Standing, key leaderboard.RankKey) leaderboard.Counts {
	var c leaderboard.Counts
	distinct := map[leaderboard.RankKey]bool{}
	for _, s := range all {
		if s.Key < key {
			c.Standings++
			distinct[s.Key] = true
		}
	}
	c.Distinct = int64(len(distinct))
	return c
}

// fixture is an index with a board and a scope, and the model of what must be in it.
type fixture struct {
	t   *testing.T
	x   leaderboard.Index
	lim Limits
	b   *leaderboard.Board
	s   leaderboard.Scope
	m   *model
	now time.Time // of the last change
}

// start is the time that the results of entries are told from.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newFixture(t *testing.T, x leaderboard.Index, lim Limits) *fixture {
	b := &leaderboard.Board{ID: "board", Order: leaderboard.HigherFirst, Divisions: []string{"country", "gender"}}
	return &fixture{
		t: t, x: x, lim: lim, b: b,
		s:   leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll},
		m:   &model{entries: map[leaderboard.UserID]leaderboard.Entry{}},
		now: start,
	}
}

// with returns f for another board or scope of the same index.
func (f *fixture) with(b *leaderboard.Board, s leaderboard.Scope) *fixture {
	g := *f
	g.b, g.s, g.m = b, s, &model{entries: map[leaderboard.UserID]leaderboard.Entry{}}
	return &g
}

// entry returns the entry of a user with one result. divisions are "attribute:value".
func (f *fixture) entry(user leaderboard.UserID, version uint64, score leaderboard.Score, second int, divisions ...string) leaderboard.Entry {
	r := leaderboard.MatchResult{Score: score, AchievedAt: start.Add(time.Duration(second) * time.Second), Attributes: map[string]string{}}
	for _, d := range divisions {
		attribute, value, _ := strings.Cut(d, ":")
		r.Attributes[attribute] = value
	}
	return f.entryOf(user, version, &r)
}

func (f *fixture) entryOf(user leaderboard.UserID, version uint64, r *leaderboard.MatchResult) leaderboard.Entry {
	f.t.Helper()
	r.ResultKey = leaderboard.ResultKey{Scope: f.s, User: user, Match: "m"}
	tally := f.b.Add(leaderboard.Tally{}, r)
	e := f.b.Entry(&tally, f.s.Season, user)
	e.Version = version
	return e
}

// none returns the entry of a user of whom no result stands.
func (f *fixture) none(user leaderboard.UserID, version uint64) leaderboard.Entry {
	return f.entryOf(user, version, &leaderboard.MatchResult{Retracted: true})
}

func (f *fixture) ladder(division string) leaderboard.Ladder {
	f.t.Helper()
	d, err := leaderboard.ParseDivision(division)
	if err != nil {
		f.t.Fatal(err)
	}
	return leaderboard.Ladder{Scope: f.s, Division: d}
}

// tick returns a time later than all before.
func (f *fixture) tick() time.Time {
	f.now = f.now.Add(time.Second)
	return f.now
}

// update updates index and model.
func (f *fixture) update(entries ...leaderboard.Entry) {
	f.t.Helper()
	at := f.tick()
	f.must(f.x.Update(f.t.Context(), f.s, at, entries))
	f.m.update(at, entries...)
}

// rebuild rebuilds index and model.
func (f *fixture) rebuild(entries ...leaderboard.Entry) {
	f.t.Helper()
	at := f.tick()
	f.must(f.x.Rebuild(f.t.Context(), f.b, f.s, at, sequence(entries...)))
	f.m = &model{entries: map[leaderboard.UserID]leaderboard.Entry{}}
	f.m.update(at, entries...)
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func sequence(entries ...leaderboard.Entry) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return // which most are, and Diff is slow
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s: (-want +got)\n%s", what, d)
	}
}

// divisions returns every division that an entry of the model is in, overall,
// and one that nobody is in.
func (m *model) divisions() []leaderboard.Division {
	set := map[leaderboard.Division]bool{{}: true, {Attribute: "country", Value: "nobody's"}: true}
	for _, e := range m.entries {
		for _, d := range e.Divisions {
			set[d] = true
		}
	}
	return slices.Collect(maps.Keys(set))
}

// agrees compares every ladder of the index with the model, by every method of
// Ranker, for every position and user, and for users who do not stand.
func (f *fixture) agrees() {
	f.t.Helper()
	for _, d := range f.m.divisions() {
		f.agreesIn(d)
	}
}

func (f *fixture) agreesIn(d leaderboard.Division) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	l := leaderboard.Ladder{Scope: f.s, Division: d}
	all := f.m.standings(d)
	view := leaderboard.View{Size: int64(len(all)), AsOf: f.m.asOf}
	name := func(format string, args ...any) string { return fmt.Sprintf("%q: ", d) + fmt.Sprintf(format, args...) }
	page := func(from, n int) []leaderboard.Standing { // from 0
		from = min(from, len(all))
		return all[from:min(from+n, len(all))]
	}
	window := func(i, above, below int) []leaderboard.Standing {
		return all[max(i-above, 0):min(i+below+1, len(all))]
	}

	got, v, err := f.x.Page(ctx, l, 1, len(all)+1)
	f.must(err)
	diff(t, name("whole page"), all, got)
	diff(t, name("view of a page"), view, v)

	var users []leaderboard.UserID
	var standings []leaderboard.Standing
	where := map[leaderboard.UserID]int{}
	for i, s := range all {
		where[s.User] = i
	}
	for user := range f.m.entries {
		users = append(users, user)
	}
	users = append(users, "no such user")
	if len(users) > 1 {
		users = append(users, users[0]) // twice
	}
	for _, user := range users {
		if i, ok := where[user]; ok {
			standings = append(standings, all[i])
		} else {
			standings = append(standings, leaderboard.Standing{User: user})
		}
	}
	got, v, err = f.x.Standings(ctx, l, users)
	f.must(err)
	diff(t, name("standings"), standings, got)
	diff(t, name("view of standings"), view, v)

	for _, user := range users {
		i, ok := where[user]
		if !ok {
			if _, _, err := f.x.Around(ctx, l, user, 2, 2); !errors.Is(err, leaderboard.ErrEntryNotFound) {
				t.Fatalf("%s: error %v, want ErrEntryNotFound", name("around %q", user), err)
			}
			continue
		}
		for _, n := range [][2]int{{0, 0}, {1 + i%4, 4 - i%4}, {len(all), i % 2}} {
			got, v, err := f.x.Around(ctx, l, user, n[0], n[1])
			f.must(err)
			diff(t, name("around %q, %d above and %d below", user, n[0], n[1]), window(i, n[0], n[1]), got)
			diff(t, name("view of around"), view, v)
		}
	}

	keys := []leaderboard.RankKey{leaderboard.RankKey(strings.Repeat("\x00", f.b.RankKeyBytes())), leaderboard.RankKey(strings.Repeat("\xff", f.b.RankKeyBytes())), "\x80"}
	for i, s := range all {
		for _, n := range []int{1, 3} {
			got, v, err := f.x.Page(ctx, l, int64(i+1), n)
			f.must(err)
			diff(t, name("page of %d from %d", n, i+1), page(i, n), got)
			diff(t, name("view of a page"), view, v)
		}
		after, v, err := f.x.PageAfter(ctx, l, s.SortKey(), 1+i%3)
		f.must(err)
		diff(t, name("page of %d after the standing at %d", 1+i%3, i+1), page(i+1, 1+i%3), after)
		diff(t, name("view of a page"), view, v)
		// Keys that nobody has, right before and right behind.
		between := leaderboard.MakeSortKey(s.Key, s.AchievedAt, s.User+"!")
		after, _, err = f.x.PageAfter(ctx, l, between, 2)
		f.must(err)
		diff(t, name("page after a key behind the standing at %d", i+1), following(all, between, 2), after)
		between = leaderboard.MakeSortKey(s.Key, s.AchievedAt.Add(-time.Microsecond), s.User)
		after, _, err = f.x.PageAfter(ctx, l, between, 2)
		f.must(err)
		diff(t, name("page after a key before the standing at %d", i+1), following(all, between, 2), after)
		keys = append(keys, s.Key, s.Key[:len(s.Key)/2], s.Key[:min(len(s.Key), 8)])
	}
	got, v, err = f.x.Page(ctx, l, int64(len(all)+1), 3)
	f.must(err)
	diff(t, name("page behind the end"), []leaderboard.Standing(nil), got)
	diff(t, name("view of a page behind the end"), view, v)

	var counts []leaderboard.Counts
	for _, k := range keys {
		counts = append(counts, count(all, k))
	}
	gotCounts, v, err := f.x.Count(ctx, l, keys)
	f.must(err)
	diff(t, name("counts"), counts, gotCounts)
	diff(t, name("view of counts"), view, v)
}

// following returns up to n standings whose sort keys are greater than after.
func following(all []leaderboard.Standing, after leaderboard.SortKey, n int) []leaderboard.Standing {
	var out []leaderboard.Standing
	for _, s := range all {
		if s.SortKey() > after && len(out) < n {
			out = append(out, s)
		}
	}
	return out
}

func shuffled[T any](rng *rand.Rand, in []T) []T {
	out := slices.Clone(in)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
