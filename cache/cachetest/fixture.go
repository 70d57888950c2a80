package cachetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// fixture tests one season of an index. model has the entries that the season should have.
type fixture struct {
	*testing.T
	leaderboard.Index
	limits Limits
	sizes  Sizes
	ctx    context.Context
	board  *leaderboard.Board
	key    leaderboard.SeasonKey
	model  *model
	now    time.Time

	samples int // calls of samplePositions
}

// start is the base of the event times of entries.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newFixture(t *testing.T, index leaderboard.Index, limits Limits, sizes Sizes) *fixture {
	b := &leaderboard.Board{ID: "board", Order: leaderboard.HigherFirst, Divisions: []string{"country", "gender"}}
	return &fixture{
		T: t, Index: index, limits: limits, sizes: sizes.withDefaults(), ctx: t.Context(), board: b,
		key:   leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll},
		model: newModel(),
		now:   start,
	}
}

func (f *fixture) forSeason(b *leaderboard.Board, key leaderboard.SeasonKey) *fixture {
	g := *f
	g.board, g.key, g.model = b, key, newModel()
	return &g
}

func (f *fixture) ok(subject string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", subject, err)
	}
}

func (f *fixture) wantErr(subject string, err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: error %v, want %v", subject, err, want)
	}
}

func (f *fixture) equal(subject string, want, got any) {
	f.Helper()
	if f.lacksDense() {
		want, got = withoutDense(want), withoutDense(got)
	}
	if reflect.DeepEqual(want, got) {
		return // DeepEqual is much faster than Diff
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		f.Fatalf("%s (-want +got):\n%s", subject, d)
	}
}

// around also checks that Of is the index of the user.
func (f *fixture) around(l leaderboard.Ladder, user leaderboard.UserID, above, below int) ([]leaderboard.Standing, leaderboard.View, error) {
	n, v, err := f.Around(f.ctx, l, user, above, below)
	if err == nil && n.Standings[n.Of].User != user {
		err = fmt.Errorf("Of is %d, which is the index of %q, not of %q", n.Of, n.Standings[n.Of].User, user)
	}
	return n.Standings, v, err
}

// entry returns the entry of a user with one result. The event time is start plus seconds. Divisions
// have the form "attribute:value".
func (f *fixture) entry(user leaderboard.UserID, version uint64, score leaderboard.Score, seconds int, divisions ...string) leaderboard.Entry {
	r := leaderboard.MatchResult{Score: score, AchievedAt: start.Add(time.Duration(seconds) * time.Second), Attributes: map[string]string{}}
	for _, d := range divisions {
		attribute, value, _ := strings.Cut(d, ":")
		r.Attributes[attribute] = value
	}
	return f.entryOf(user, version, &r)
}

func (f *fixture) entryOf(user leaderboard.UserID, version uint64, r *leaderboard.MatchResult) leaderboard.Entry {
	f.Helper()
	r.ResultKey = leaderboard.ResultKey{SeasonKey: f.key, User: user, Match: "m"}
	tally := f.board.Add(leaderboard.Tally{}, r)
	e := f.board.Entry(&tally, f.key.Season, user)
	e.Version = version
	return e
}

func (f *fixture) unranked(user leaderboard.UserID, version uint64) leaderboard.Entry {
	return f.entryOf(user, version, &leaderboard.MatchResult{Retracted: true})
}

// ladder returns the ladder of "attribute:value", or the overall ladder for "".
func (f *fixture) ladder(division string) leaderboard.Ladder {
	f.Helper()
	d, err := leaderboard.ParseDivision(division)
	f.ok("ParseDivision", err)
	return leaderboard.Ladder{SeasonKey: f.key, Division: d}
}

func (f *fixture) tick() time.Time {
	f.now = f.now.Add(time.Second)
	return f.now
}

func (f *fixture) update(entries ...leaderboard.Entry) {
	f.Helper()
	at := f.tick()
	f.ok("Update", f.Update(f.ctx, f.key, at, entries))
	f.model.update(at, entries...)
}

func (f *fixture) rebuild(entries ...leaderboard.Entry) {
	f.Helper()
	at := f.tick()
	f.ok("Rebuild", f.Rebuild(f.ctx, f.board, f.key, at, sequence(entries...)))
	f.model = newModel()
	f.model.update(at, entries...)
}

// restore calls Restore. The season must not be loaded.
func (f *fixture) restore(entries ...leaderboard.Entry) {
	f.Helper()
	at := f.tick()
	err := f.Restore(f.ctx, f.board, f.key, at, func(part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] { return scanOf(part, entries...) })
	f.ok("Restore", err)
	f.model = newModel()
	f.model.update(at, entries...)
}

func scanOf(part leaderboard.Part, entries ...leaderboard.Entry) iter.Seq2[leaderboard.Entry, error] {
	return sequence(slices.DeleteFunc(slices.Clone(entries), func(e leaderboard.Entry) bool { return !part.Contains(e.User) })...)
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

func shuffled[T any](rng *rand.Rand, list []T) []T {
	out := slices.Clone(list)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// loadFive loads two users who tie at the top, one user below, and two who tie at the end.
func (f *fixture) loadFive() {
	f.Helper()
	f.rebuild(
		f.entry("ann", 1, 30, 1, "gender:F", "country:KEN"),
		f.entry("bob", 1, 30, 2, "gender:M"),
		f.entry("cid", 1, 20, 0, "gender:M", "country:KEN"),
		f.entry("dan", 1, 10, 5, "gender:M"),
		f.entry("eve", 1, 10, 6, "gender:F"),
	)
}

func (f *fixture) manyEntries(rng *rand.Rand, n int) []leaderboard.Entry {
	var entries []leaderboard.Entry
	for i := range n {
		e := f.entry(leaderboard.UserID(fmt.Sprint("user ", i)), uint64(1+rng.IntN(5)), leaderboard.Score(rng.IntN(30)), rng.IntN(5),
			"gender:"+string("FMX"[rng.IntN(3)]), fmt.Sprint("country:", rng.IntN(4)))
		switch rng.IntN(10) {
		case 0:
			e.Hidden = true
		case 1:
			e = f.unranked(e.User, e.Version)
		}
		entries = append(entries, e)
	}
	return entries
}

func (f *fixture) checkUnavailable() {
	ctx, l := f.ctx, f.ladder("")
	f.Helper()
	errs := map[string]error{}
	_, _, errs["Standings"] = f.Standings(ctx, l, []leaderboard.UserID{"ann"})
	_, _, errs["Page"] = f.Page(ctx, l, 1, 10)
	_, _, errs["PageAfter"] = f.PageAfter(ctx, l, "", 10)
	_, _, errs["Around"] = f.Around(ctx, l, "ann", 1, 1)
	_, _, errs["Survey"] = f.Survey(ctx, l, leaderboard.SurveyQuery{Positions: []int64{1}})
	_, _, errs["Count"] = f.Count(ctx, l, []leaderboard.RankKey{"\x00"})
	for method, err := range errs {
		f.wantErr(method, err, leaderboard.ErrRankUnavailable)
	}
	if loaded, err := f.Loaded(ctx, f.key); loaded || err != nil {
		f.Errorf("Loaded = %v, %v, want false, nil", loaded, err)
	}
}

// hostileIDs returns ids that a faulty index could confuse.
func hostileIDs() []leaderboard.UserID {
	ids := []leaderboard.UserID{
		"a", "aa", "aaa", "aab", "a ", "a!", "a:", "a;", "a/", "a0", "a|", "a~", "A", " a", " ",
		"1", "10", "2", "-1", "0", "00", "1e3", "NaN", "nil", "null", "user", "{a}", "{", "}", "{}a", "*", "?", "[a-z]", "\\", "\"", "'", "%", "%00", "%s",
		"a\u00e4", "a\u0301", "\u00e1", "\u07ff", "\u0800", "\uffee", "\ufffd", "\U00010000", "\U0001f600", "\u6f22", "\u5b57",
	}
	long := strings.Repeat("x", leaderboard.MaxIDBytes-1)
	return append(ids, leaderboard.UserID(long), leaderboard.UserID(long+"x"), leaderboard.UserID(long+"y"), leaderboard.UserID(strings.Repeat("\U00010000", leaderboard.MaxIDBytes/4)))
}

func random(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seed.New(t), 0))
}
