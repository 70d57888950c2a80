package ranking_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}

type fixture struct {
	*ranking.Service
	t     *testing.T
	store leaderboard.Store
	index leaderboard.Index
	clock *clock
}

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func open(t *testing.T) *fixture {
	t.Helper()
	store, err := pebble.Open("data", pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return over(t, store, memory.New())
}

func over(t *testing.T, store leaderboard.Store, index leaderboard.Index) *fixture {
	c := &clock{t: start}
	return &fixture{ranking.New(store, index, ranking.Options{Now: c.now}), t, store, index, c}
}

func (f *fixture) create(b leaderboard.Board) leaderboard.Board {
	f.t.Helper()
	b, err := f.CreateBoard(f.t.Context(), b)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func points(user, match string, n int64) leaderboard.MatchResult {
	return leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(user), Match: leaderboard.MatchID(match)},
		Score:     leaderboard.Score(n),
	}
}

// submit takes one result that must be applied, and returns its receipt.
func (f *fixture) submit(board leaderboard.BoardID, r leaderboard.MatchResult) ranking.Receipt {
	f.t.Helper()
	got := f.try(board, r)
	if got.Status != leaderboard.Applied || got.Err != nil {
		f.t.Fatalf("submit %+v: %v %v %v", r, got.Status, got.Reason, got.Err)
	}
	return got
}

func (f *fixture) try(board leaderboard.BoardID, r leaderboard.MatchResult) ranking.Receipt {
	f.t.Helper()
	receipts, err := f.Submit(f.t.Context(), board, []leaderboard.MatchResult{r})
	if err != nil {
		f.t.Fatal(err)
	}
	return receipts[0]
}

// list returns a whole ladder as "user score rank" lines, through pages of n.
func (f *fixture) list(q ranking.Query, n int) []string {
	f.t.Helper()
	lines := []string{}
	pq := ranking.PageQuery{Query: q, Limit: n}
	for {
		page, err := f.Page(f.t.Context(), pq)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, l := range page.Lines {
			lines = append(lines, fmt.Sprintf("%s %d %d", l.User, l.Score, l.Rank))
		}
		if pq.Token = page.Next; pq.Token == "" {
			if len(lines) != int(page.Total) {
				f.t.Errorf("%d lines of %d", len(lines), page.Total)
			}
			return lines
		}
	}
}

func (f *fixture) wantList(q ranking.Query, want ...string) {
	f.t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := gocmp.Diff(want, f.list(q, 2)); diff != "" {
		f.t.Errorf("%+v (-want +got):\n%s", q, diff)
	}
}

var sumBoard = leaderboard.Board{ID: "b", Policy: leaderboard.Sum}

func TestSubmitAnswersWithScoreAndRank(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m1", 5))
	f.submit("b", points("bob", "m1", 9))
	got := f.submit("b", points("ann", "m2", 6))
	if got.Score != 11 || got.Ranks != (leaderboard.Ranks{Competition: 1, Dense: 1, Ordinal: 1}) {
		t.Errorf("got %d %+v", got.Score, got.Ranks)
	}
	f.clock.set(start.Add(time.Minute))
	again := f.try("b", points("ann", "m2", 6))
	if again.Status != leaderboard.Duplicate || again.Score != 11 || again.Ranks.Competition != 1 || !again.AchievedAt.Equal(got.AchievedAt) {
		t.Errorf("sent again: %+v, first %+v", again, got)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10})
	if err != nil || page.Season.ID != leaderboard.SeasonAll || page.Total != 2 || !page.AsOf.Equal(start) {
		t.Errorf("page %+v, %v", page, err)
	}
	if r := f.submit("b", points("eve", "", 1)); r.Match == "" {
		t.Error("a result without match id was given none")
	}
}

func TestBatchOutcomesAreInOrderAndApart(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Floor: new(leaderboard.Score)})
	bad := points("u\x00", "m", 1)
	early := points("u", "m9", 1)
	early.AchievedAt = start.Add(25 * time.Hour)
	receipts, err := f.Submit(t.Context(), "b", []leaderboard.MatchResult{
		points("u", "m1", 5), bad, points("u", "m2", -6), points("u", "m1", 5), early, points("v", "m1", 7), points("u", "m1", 4),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range receipts {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%v %s", r.Status, r.Reason)))
	}
	want := []string{"APPLIED", "REJECTED INVALID", "REJECTED FLOOR", "DUPLICATE", "REJECTED INVALID", "APPLIED", "CONFLICT"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if fe := (*leaderboard.FieldError)(nil); !errors.As(receipts[1].Err, &fe) || fe.Field != "user_id" {
		t.Errorf("the fault of the second is %v", receipts[1].Err)
	}
	if receipts[0].Ranks.Competition != 2 || receipts[5].Ranks.Competition != 1 {
		t.Errorf("ranks %+v and %+v", receipts[0].Ranks, receipts[5].Ranks)
	}
}

func TestSubmitInOrderBreaksTiesByArrival(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Order: leaderboard.LowerFirst})
	var batch []leaderboard.MatchResult
	for _, user := range []string{"zoe", "ann", "mia"} { // all at one moment of the clock
		batch = append(batch, points(user, "m", 7717))
	}
	if _, err := f.Submit(t.Context(), "b", batch); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b", Method: leaderboard.Ordinal}, "zoe 7717 1", "ann 7717 2", "mia 7717 3")
}

func TestMethodsAndPages(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b"})
	for user, score := range map[string]int64{"a": 9, "b": 7, "c": 7, "d": 7, "e": 5} {
		r := points(user, "m", score)
		r.AchievedAt = start
		f.submit("b", r)
	}
	q := ranking.Query{Board: "b"}
	f.wantList(q, "a 9 1", "b 7 2", "c 7 2", "d 7 2", "e 5 5")
	q.Method = leaderboard.Dense
	f.wantList(q, "a 9 1", "b 7 2", "c 7 2", "d 7 2", "e 5 3")
	q.Method = leaderboard.Ordinal
	f.wantList(q, "a 9 1", "b 7 2", "c 7 3", "d 7 4", "e 5 5")

	page, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 2, Start: 4})
	if err != nil || len(page.Lines) != 2 || page.Lines[0].User != "d" || page.Next != "" {
		t.Errorf("from 4: %+v, %v", page, err)
	}
	// A page does not repeat those who were seen, when others rise past them.
	first, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	f.submit("b", points("e", "m2", 10))
	second, err := f.Page(t.Context(), ranking.PageQuery{Query: q, Limit: 2, Token: first.Next})
	if err != nil || second.Lines[0].User != "c" || second.Lines[0].Rank != 4 || second.Next != "" {
		t.Errorf("second page %+v, %v", second, err)
	}
}

func TestReadsRefuseBadInput(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Divisions: []string{"gender"}, Season: leaderboard.Schedule{Kind: leaderboard.Monthly}})
	f.create(leaderboard.Board{ID: "c"})
	for i := range 3 {
		f.submit("b", points(fmt.Sprint("u", i), "m", 1))
		f.submit("c", points(fmt.Sprint("u", i), "m", 1))
	}
	other, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "c"}, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := ranking.Query{Board: "b"}
	tests := []struct {
		name string
		q    ranking.PageQuery
		want error
	}{
		{"limit 0", ranking.PageQuery{Query: b}, leaderboard.ErrInvalid},
		{"limit 1001", ranking.PageQuery{Query: b, Limit: 1001}, leaderboard.ErrInvalid},
		{"negative start", ranking.PageQuery{Query: b, Limit: 1, Start: -1}, leaderboard.ErrInvalid},
		{"start and token", ranking.PageQuery{Query: b, Limit: 1, Start: 1, Token: "x"}, leaderboard.ErrInvalid},
		{"no token", ranking.PageQuery{Query: b, Limit: 1, Token: "x"}, leaderboard.ErrInvalid},
		{"not base64", ranking.PageQuery{Query: b, Limit: 1, Token: "***"}, leaderboard.ErrInvalid},
		{"long token", ranking.PageQuery{Query: b, Limit: 1, Token: strings.Repeat("A", 5000)}, leaderboard.ErrInvalid},
		{"another board's token", ranking.PageQuery{Query: b, Limit: 1, Token: other.Next}, leaderboard.ErrInvalid},
		{"unknown division", ranking.PageQuery{Query: ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "country", Value: "KEN"}}, Limit: 1}, leaderboard.ErrInvalid},
		{"unknown season", ranking.PageQuery{Query: ranking.Query{Board: "b", Season: "202613"}, Limit: 1}, leaderboard.ErrSeasonNotFound},
		{"unknown board", ranking.PageQuery{Query: ranking.Query{Board: "x"}, Limit: 1}, leaderboard.ErrBoardNotFound},
		{"hostile board", ranking.PageQuery{Query: ranking.Query{Board: "\x00"}, Limit: 1}, leaderboard.ErrInvalid},
		{"no board", ranking.PageQuery{Limit: 1}, leaderboard.ErrInvalid},
	}
	for _, tt := range tests {
		if _, err := f.Page(t.Context(), tt.q); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	for _, neighbors := range []int{-1, 51} {
		if _, err := f.User(t.Context(), b, "u1", neighbors, false); !errors.Is(err, leaderboard.ErrInvalid) {
			t.Errorf("%d neighbors: %v", neighbors, err)
		}
	}
	if _, err := f.User(t.Context(), b, "nobody", 4, false); !errors.Is(err, leaderboard.ErrEntryNotFound) {
		t.Errorf("a user without entry: %v", err)
	}
	if _, err := f.Lookup(t.Context(), b, nil); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("an empty lookup: %v", err)
	}
	if _, err := f.Lookup(t.Context(), b, []leaderboard.UserID{"a", ""}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a lookup of no id: %v", err)
	}
	if _, err := f.Submit(t.Context(), "b", nil); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("an empty batch: %v", err)
	}
	if _, err := f.Submit(t.Context(), "b", make([]leaderboard.MatchResult, 5001)); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a large batch: %v", err)
	}
	// A season that nobody played is empty, and is not kept in the index.
	f.wantList(ranking.Query{Board: "b", Season: "999912"})
	if loaded, _ := f.index.Loaded(t.Context(), leaderboard.Scope{Board: "b", Season: "999912"}); loaded {
		t.Error("asking for an empty season keeps it in memory")
	}
	// Nor are those that ended long ago remembered, of which readers may name any number.
	f.create(leaderboard.Board{ID: "daily", Season: leaderboard.Schedule{Kind: leaderboard.Daily}})
	before := f.Remembered()
	for day := range 28 {
		f.wantList(ranking.Query{Board: "daily", Season: leaderboard.SeasonID(fmt.Sprintf("199902%02d", day+1))})
	}
	if n := f.Remembered() - before; n != 0 {
		t.Errorf("%d seasons are remembered that nobody played", n)
	}
}

func TestNeighbors(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b"})
	for i := range 20 {
		f.submit("b", points(fmt.Sprintf("u%02d", i), "m", int64(100-i)))
	}
	for _, tt := range []struct {
		user         string
		first, last  string
		above, below bool
	}{{"u10", "u06", "u14", false, false}, {"u00", "u00", "u04", true, false}, {"u02", "u00", "u06", true, false}, {"u19", "u15", "u19", false, true}} {
		page, err := f.User(t.Context(), ranking.Query{Board: "b"}, leaderboard.UserID(tt.user), 4, true)
		if err != nil {
			t.Fatal(err)
		}
		n := page.Neighbors
		if string(n[0].User) != tt.first || string(n[len(n)-1].User) != tt.last || page.ClippedAbove != tt.above || page.ClippedBelow != tt.below {
			t.Errorf("%s: %+v", tt.user, page)
		}
		for _, line := range n {
			if line.Current != (string(line.User) == tt.user) {
				t.Errorf("%s: %s current: %v", tt.user, line.User, line.Current)
			}
		}
		if page.Entry == nil || page.Entry.Match != "m" {
			t.Errorf("%s: no details: %+v", tt.user, page.Line)
		}
	}
	page, err := f.User(t.Context(), ranking.Query{Board: "b"}, "u05", 0, false)
	if err != nil || page.Percentile != 70 || page.Rank != 6 || len(page.Neighbors) != 1 {
		t.Errorf("u05: %+v, %v", page, err)
	}
}

func TestLookup(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b"})
	for user, score := range map[string]int64{"a": 9, "b": 7, "c": 7, "d": 6} {
		f.submit("b", points(user, "m", score))
	}
	got, err := f.Lookup(t.Context(), ranking.Query{Board: "b"}, []leaderboard.UserID{"d", "x", "c", "b", "d"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i, l := range got.Lines {
		lines = append(lines, fmt.Sprintf("%s %d of list %d", l.User, l.Rank, got.ListRanks[i]))
	}
	slices.Sort(lines)
	if diff := gocmp.Diff([]string{"b 2 of list 1", "c 2 of list 1", "d 4 of list 3"}, lines); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(got.Missing, []leaderboard.UserID{"x"}) {
		t.Errorf("missing %v", got.Missing)
	}
}

func TestRetractBringsTheNextBestBack(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Divisions: []string{"team"}})
	r := points("ann", "m1", 5)
	r.Attributes = map[string]string{"team": "red"}
	r.AchievedAt = start.Add(-2 * time.Hour)
	f.submit("b", r)
	r = points("ann", "m2", 8)
	r.Attributes = map[string]string{"team": "blue"}
	r.AchievedAt = start.Add(-time.Hour)
	f.submit("b", r)
	red := ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "team", Value: "red"}}
	blue := ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "team", Value: "blue"}}
	f.wantList(red)
	f.wantList(blue, "ann 8 1")
	key := leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "ann", Match: "m2"}
	got, err := f.Retract(t.Context(), key, nil)
	if err != nil || got.Status != leaderboard.Applied || got.Revision != 1 || got.Score != 5 || got.Ranks.Competition != 1 {
		t.Errorf("retract: %+v, %v", got, err)
	}
	f.wantList(red, "ann 5 1")
	f.wantList(blue)
	if got, err = f.Retract(t.Context(), key, nil); err != nil || got.Status != leaderboard.Duplicate {
		t.Errorf("retract again: %+v, %v", got, err)
	}
	if got := f.try("b", r); got.Status != leaderboard.Superseded {
		t.Errorf("the retracted result again: %+v", got)
	}
	r.Revision = 2
	f.submit("b", r)
	f.wantList(blue, "ann 8 1")

	key.Match = "unknown"
	if _, err := f.Retract(t.Context(), key, nil); !errors.Is(err, leaderboard.ErrResultNotFound) {
		t.Errorf("retract what is not known: %v", err)
	}
	revision := int64(1)
	if got, err = f.Retract(t.Context(), key, &revision); err != nil || got.Status != leaderboard.Applied {
		t.Errorf("retract before it came: %+v, %v", got, err)
	}
	if got := f.try("b", points("ann", "unknown", 100)); got.Status != leaderboard.Superseded {
		t.Errorf("it came: %+v", got)
	}
	revision = -1
	if _, err := f.Retract(t.Context(), key, &revision); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("retract at revision -1: %v", err)
	}
}

func TestResultStatus(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Floor: new(leaderboard.Score)})
	f.submit("b", points("u", "m", 5))
	fix := points("u", "m", 6)
	fix.Revision = 2
	f.submit("b", fix)
	f.try("b", points("u", "n", -50))
	key := leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "u", Match: "m"}
	status := func(match leaderboard.MatchID, revision int64) string {
		k := key
		k.Match = match
		rev := &revision
		if revision < 0 {
			rev = nil
		}
		got, err := f.Result(t.Context(), k, rev)
		if err != nil {
			if !errors.Is(err, leaderboard.ErrResultNotFound) {
				t.Fatal(err)
			}
			return "not found"
		}
		return strings.TrimSpace(fmt.Sprintf("%d %v %s", got.Revision, got.Status, got.Reason))
	}
	for _, tt := range []struct {
		match    leaderboard.MatchID
		revision int64
		want     string
	}{
		{"m", -1, "2 APPLIED"}, {"m", 2, "2 APPLIED"}, {"m", 0, "0 SUPERSEDED"}, {"m", 3, "not found"},
		{"n", -1, "0 REJECTED FLOOR"}, {"n", 0, "0 REJECTED FLOOR"}, {"n", 1, "not found"}, {"x", -1, "not found"},
	} {
		if got := status(tt.match, tt.revision); got != tt.want {
			t.Errorf("%s revision %d: %s, want %s", tt.match, tt.revision, got, tt.want)
		}
	}
	if _, err := f.Retract(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	if got := status("m", -1); got != "3 RETRACTED" {
		t.Errorf("retracted: %s", got)
	}
}

// A result without a time of its own that is sent again just after midnight
// counts once, in the season of its first try.
func TestRetryAcrossTheSeasonsEnd(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly, Grace: time.Hour}})
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	f.clock.set(end.Add(-time.Second))
	f.submit("b", points("u", "m", 5))
	f.clock.set(end.Add(time.Second))
	got := f.try("b", points("u", "m", 5))
	if got.Status != leaderboard.Duplicate || got.Season != "202611" || got.Score != 5 {
		t.Errorf("sent again: %+v", got)
	}
	corrected := points("u", "m", 7)
	corrected.Revision = 1
	if got := f.submit("b", corrected); got.Season != "202611" || got.Score != 7 {
		t.Errorf("corrected: %+v", got)
	}
	corrected.Revision, corrected.Score = 2, 5
	f.submit("b", corrected)
	got = f.submit("b", points("u", "m2", 3))
	if got.Season != "202612" || got.Score != 3 {
		t.Errorf("the first of December: %+v", got)
	}
	late := points("u", "m3", 1)
	late.AchievedAt = end.Add(-time.Minute)
	if got := f.submit("b", late); got.Season != "202611" || got.Score != 6 {
		t.Errorf("late: %+v", got)
	}
	f.clock.set(end.Add(time.Hour))
	late.Match = "m4"
	if got := f.try("b", late); got.Reason != leaderboard.ReasonClosed {
		t.Errorf("too late: %+v", got)
	}
}

// A sealed season cannot be opened again by its board's settings.
func TestSealedSeasonStaysClosed(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}})
	f.submit("b", points("ann", "m", 9))
	in, err := b.Season.ByID("20261120")
	if err != nil {
		t.Fatal(err)
	}
	f.clock.set(b.ClosesAt(in).Add(2 * time.Minute))
	grace := func(d time.Duration) error {
		_, err := f.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error {
			b.Season.Grace = d
			return nil
		})
		return err
	}
	if err := grace(90 * time.Minute); err != nil {
		t.Errorf("a season that is closed, and not sealed yet: %v", err)
	}
	f.clock.set(b.ClosesAt(in).Add(time.Hour))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wrong *leaderboard.FieldError
	if err := grace(1000 * time.Hour); !errors.As(err, &wrong) || wrong.Field != "season" || !strings.Contains(err.Error(), "20261120") {
		t.Errorf("a sealed season: %v", err)
	}
	if err := grace(100 * time.Minute); err != nil {
		t.Errorf("a grace that is over: %v", err)
	}
}

// A sealed season answers every question as its index did, and a retraction, a
// ban and an erasure amend it on the record.
func TestSealedSeasonAnswersAsBefore(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{
		ID: "b", Policy: leaderboard.Sum, Divisions: []string{"team"}, Retention: 48 * time.Hour,
		Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour},
	})
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		r := points(fmt.Sprintf("u%d", i%40), fmt.Sprint("m", i), rng.Int64N(8))
		r.Attributes = map[string]string{"team": string(rune('a' + i%3))}
		f.submit("b", r)
	}
	season := leaderboard.SeasonID("20261120")
	ask := func() map[string]any {
		answers := map[string]any{}
		for _, division := range []string{"", "team:a", "team:none"} {
			d, _ := leaderboard.ParseDivision(division)
			for _, m := range []leaderboard.Method{leaderboard.Competition, leaderboard.Dense, leaderboard.Ordinal} {
				q := ranking.Query{Board: "b", Season: season, Division: d, Method: m}
				name := fmt.Sprintf("%s %v", division, m)
				answers[name+" list"] = f.list(q, 7)
				for i := range 40 {
					u, err := f.User(t.Context(), q, leaderboard.UserID(fmt.Sprint("u", i)), 2, false)
					if err == nil {
						answers[fmt.Sprintf("%s u%d", name, i)] = []any{u.Neighbors, u.Percentile, u.Total, u.ClippedAbove, u.ClippedBelow}
					} else if !errors.Is(err, leaderboard.ErrEntryNotFound) {
						t.Fatal(err)
					}
				}
				l, err := f.Lookup(t.Context(), q, []leaderboard.UserID{"u1", "zz", "u7"})
				if err != nil {
					t.Fatal(err)
				}
				answers[name+" lookup"] = []any{l.Lines, l.ListRanks, l.Missing}
				score := leaderboard.Score(4)
				s, err := f.Stats(t.Context(), ranking.StatsQuery{Query: q, Buckets: 4, Score: &score, Rank: 3})
				if err != nil {
					t.Fatal(err)
				}
				answers[name+" stats"] = []any{s.Best, s.Worst, s.Histogram, s.Percentiles, s.RankOfScore, s.ScoreAtRank}
			}
		}
		return answers
	}
	before := ask()
	if err := f.Seal(t.Context(), "b", season); !errors.Is(err, leaderboard.ErrSeasonOpen) {
		t.Errorf("sealing an open season: %v", err)
	}
	in, err := b.Season.ByID(season)
	if err != nil {
		t.Fatal(err)
	}
	f.clock.set(b.ClosesAt(in).Add(2 * time.Minute))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b", Season: season}, Limit: 1})
	if err != nil || !page.Sealed {
		t.Fatalf("not sealed: %+v, %v", page, err)
	}
	if loaded, _ := f.index.Loaded(t.Context(), leaderboard.Scope{Board: "b", Season: season}); loaded {
		t.Error("a sealed season stays in the index")
	}
	if diff := gocmp.Diff(before, ask()); diff != "" {
		t.Fatalf("the sealed season answers differently (-before +after):\n%s", diff)
	}

	later := func() { f.clock.set(f.clock.now().Add(time.Second)) }
	top := page.Lines[0]
	later()
	if _, err := f.SetBan(t.Context(), top.User, true, "cheat"); err != nil {
		t.Fatal(err)
	}
	later()
	if _, err := f.User(t.Context(), ranking.Query{Board: "b", Season: season}, top.User, 0, false); !errors.Is(err, leaderboard.ErrEntryNotFound) {
		t.Errorf("banned, in the sealed season: %v", err)
	}
	if _, err := f.SetBan(t.Context(), top.User, false, ""); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, ask()); diff != "" {
		t.Fatalf("after ban and unban (-before +after):\n%s", diff)
	}
	later()
	if err := f.Erase(t.Context(), top.User); err != nil {
		t.Fatal(err)
	}
	seasons, err := f.Seasons(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(seasons, func(s ranking.SeasonInfo) bool { return s.ID == season })
	if s := seasons[i]; s.Phase != ranking.Sealed || len(s.Amendments) < 3 || s.Total == nil || *s.Total != 39 {
		t.Errorf("season %+v", s)
	}
	f.clock.set(f.clock.now().Add(48 * time.Hour))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b", Season: season})
}

func TestBanHidesAndBringsBack(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.create(leaderboard.Board{ID: "c"})
	f.submit("b", points("ann", "m", 5))
	f.submit("c", points("ann", "m", 6))
	f.submit("b", points("bob", "m", 1))
	if _, err := f.SetBan(t.Context(), "ann", true, "cheat"); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b"}, "bob 1 1")
	f.wantList(ranking.Query{Board: "c"})
	if got := f.submit("b", points("ann", "m2", 5)); got.Ranks.Competition != 0 || got.Score != 10 {
		t.Errorf("a submit while banned: %+v", got)
	}
	if scores, err := f.UserScores(t.Context(), "ann", leaderboard.Competition); err != nil || len(scores) != 0 {
		t.Errorf("scores while banned: %+v, %v", scores, err)
	}
	if _, err := f.SetBan(t.Context(), "ann", false, ""); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 10 1", "bob 1 2")
	scores, err := f.UserScores(t.Context(), "ann", leaderboard.Competition)
	if err != nil || len(scores) != 2 || scores[0].Score != 10 || scores[1].Score != 6 || scores[1].Rank != 1 {
		t.Errorf("scores: %+v, %v", scores, err)
	}
	if ban, err := f.Ban(t.Context(), "ann"); err != nil || ban.Banned {
		t.Errorf("ban: %+v, %v", ban, err)
	}
	if err := f.Erase(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b"}, "bob 1 1")
	if got := f.try("b", points("ann", "m", 5)); got.Reason != leaderboard.ReasonErased {
		t.Errorf("received in the moment of the erasure: %+v", got)
	}
	f.clock.set(start.Add(time.Second))
	if got := f.submit("b", points("ann", "m", 3)); got.Score != 3 || got.Ranks.Competition != 1 {
		t.Errorf("back after the erasure: %+v", got)
	}
}

func TestStatsEqualARecount(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	t.Logf("seed %d", seed)
	for _, order := range []leaderboard.Order{leaderboard.HigherFirst, leaderboard.LowerFirst} {
		f := open(t)
		f.create(leaderboard.Board{ID: "b", Order: order})
		var scores []int64
		for i := range 200 {
			score := rng.Int64N(90) - 30
			scores = append(scores, score)
			f.submit("b", points(fmt.Sprint("u", i), "m", score))
		}
		slices.SortFunc(scores, func(x, y int64) int {
			if order == leaderboard.HigherFirst {
				return cmp.Compare(y, x)
			}
			return cmp.Compare(x, y)
		})
		asked := leaderboard.Score(rng.Int64N(100) - 35)
		for _, method := range []leaderboard.Method{leaderboard.Competition, leaderboard.Dense} {
			got, err := f.Stats(t.Context(), ranking.StatsQuery{
				Query: ranking.Query{Board: "b", Method: method}, Buckets: 7, Score: &asked, Rank: 17,
			})
			if err != nil {
				t.Fatal(err)
			}
			if int64(*got.Best) != scores[0] || int64(*got.Worst) != scores[199] || int64(*got.ScoreAtRank) != scores[16] || got.Total != 200 {
				t.Errorf("seed %d: %+v", seed, got)
			}
			better := map[int64]bool{}
			n := int64(1)
			for _, s := range scores {
				if s > int64(asked) == (order == leaderboard.HigherFirst) && s != int64(asked) {
					better[s] = true
					n++
				}
			}
			if method == leaderboard.Dense {
				n = int64(len(better)) + 1
			}
			if got.RankOfScore != n {
				t.Errorf("seed %d, %v: %d would rank %d, want %d", seed, order, asked, got.RankOfScore, n)
			}
			sum := int64(0)
			for _, bucket := range got.Histogram {
				count := int64(0)
				for _, s := range scores {
					if s >= int64(bucket.From) && s <= int64(bucket.To) {
						count++
					}
				}
				if bucket.Count != count {
					t.Errorf("seed %d, %v: bucket %+v, want %d", seed, order, bucket, count)
				}
				sum += bucket.Count
			}
			if sum != 200 || len(got.Histogram) > 7 {
				t.Errorf("seed %d, %v: %d in %d buckets", seed, order, sum, len(got.Histogram))
			}
		}
	}
}

// Each of many submitters reads the score it was answered, or more if others
// wrote for its user, and a rank that fits.
func TestReadYourWrites(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			user := leaderboard.UserID(fmt.Sprint("u", g))
			sum := leaderboard.Score(0)
			for i := range 40 {
				n := leaderboard.Score(g*i%7 + 1)
				sum += n
				receipts, err := f.Submit(context.Background(), "b", []leaderboard.MatchResult{points(string(user), fmt.Sprint("m", i), int64(n))})
				if err != nil || receipts[0].Score != sum || receipts[0].Ranks.Competition == 0 {
					t.Errorf("answered %+v, %v; want %d", receipts, err, sum)
					return
				}
				page, err := f.User(context.Background(), ranking.Query{Board: "b"}, user, 2, false)
				if err != nil || page.Score != sum || page.Rank < 1 || page.Rank > 16 {
					t.Errorf("read %+v, %v; want %d", page.Line, err, sum)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestLoadMakesTheSameRanks(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Divisions: []string{"team"}})
	for i := range 100 {
		r := points(fmt.Sprint("u", i%30), fmt.Sprint("m", i), int64(i%5))
		r.Attributes = map[string]string{"team": string(rune('a' + i%3))}
		f.submit("b", r)
	}
	want := f.list(ranking.Query{Board: "b"}, 100)
	again := over(t, f.store, memory.New())
	if again.Ready() {
		t.Error("ready before it is loaded")
	}
	seen := int64(0)
	if err := again.Load(t.Context(), func(_ leaderboard.Scope, done int64) { seen = done }); err != nil {
		t.Fatal(err)
	}
	if !again.Ready() || seen != 30 {
		t.Errorf("ready %v after %d entries", again.Ready(), seen)
	}
	if diff := gocmp.Diff(want, again.list(ranking.Query{Board: "b"}, 100)); diff != "" {
		t.Error(diff)
	}
	lazy := over(t, f.store, memory.New()) // nobody called Load: the first question does
	if diff := gocmp.Diff(want, lazy.list(ranking.Query{Board: "b"}, 100)); diff != "" {
		t.Error(diff)
	}
}

func TestWatchSendsChanges(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	ctx, cancel := context.WithCancel(t.Context())
	pages := make(chan ranking.Page)
	done := make(chan error, 1)
	go func() {
		done <- f.Watch(ctx, ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10}, func(p ranking.Page) error {
			select {
			case pages <- p:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	if p := <-pages; len(p.Lines) != 1 {
		t.Errorf("first %+v", p)
	}
	f.submit("b", points("bob", "m", 7))
	if p := <-pages; len(p.Lines) != 2 || p.Lines[0].User != "bob" {
		t.Errorf("then %+v", p)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if err := f.Watch(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "x"}, Limit: 1}, nil); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("watching no board: %v", err)
	}
}

// verify runs Verify and returns the differences as "kind user".
func (f *fixture) verify(repair bool) []string {
	f.t.Helper()
	found := []string{}
	_, err := f.Verify(f.t.Context(), ranking.Selection{}, repair, nil, func(d ranking.Difference) error {
		found = append(found, fmt.Sprintf("%s %s", d.Kind, d.User))
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestVerifyFindsAndMendsTheIndex(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i := range 10 {
		f.submit("b", points(fmt.Sprint("u", i), "m", int64(i)))
	}
	if got := f.verify(false); len(got) != 0 {
		t.Fatalf("differences in a whole board: %v", got)
	}
	want := f.list(ranking.Query{Board: "b"}, 10)
	scope := leaderboard.Scope{Board: "b", Season: leaderboard.SeasonAll}
	plant := func(user leaderboard.UserID, change func(*leaderboard.Entry)) {
		e, err := f.store.Entry(t.Context(), scope, user)
		if err != nil {
			t.Fatal(err)
		}
		e.Version += 100
		change(&e)
		if err := f.index.Update(t.Context(), scope, start, []leaderboard.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	plant("u3", func(e *leaderboard.Entry) { e.AchievedAt = e.AchievedAt.Add(time.Hour) })
	plant("u4", func(e *leaderboard.Entry) { e.Hidden = true })
	plant("u5", func(e *leaderboard.Entry) { e.User = "ghost" })
	plant("u6", func(e *leaderboard.Entry) { e.User = "ghost2" })
	if diff := gocmp.Diff([]string{"INDEX_SIZE ", "INDEX_WRONG u3", "INDEX_WRONG u4"}, f.verify(false)); diff != "" {
		t.Error(diff)
	}
	f.verify(true)
	if got := f.verify(false); len(got) != 0 {
		t.Errorf("after the repair: %v", got)
	}
	if diff := gocmp.Diff(want, f.list(ranking.Query{Board: "b"}, 10)); diff != "" {
		t.Error(diff)
	}
	users, err := f.Rebuild(t.Context(), ranking.Selection{Board: "b"}, nil)
	if err != nil || users != 10 {
		t.Errorf("rebuilt %d, %v", users, err)
	}
	if diff := gocmp.Diff(want, f.list(ranking.Query{Board: "b"}, 10)); diff != "" {
		t.Error(diff)
	}
}

// lyingStore says of some users what is not so.
type lyingStore struct {
	leaderboard.Store
	entry map[leaderboard.UserID]func(*leaderboard.Entry)
	row   func(leaderboard.Entry) (leaderboard.Entry, bool)
}

func (s *lyingStore) Entry(ctx context.Context, scope leaderboard.Scope, user leaderboard.UserID) (leaderboard.Entry, error) {
	e, err := s.Store.Entry(ctx, scope, user)
	if lie, ok := s.entry[user]; ok {
		lie(&e)
	}
	return e, err
}

func (s *lyingStore) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		for e, err := range s.Store.Entries(ctx, l, "") {
			if s.row != nil && err == nil {
				var ok bool
				if e, ok = s.row(e); !ok {
					continue
				}
			}
			if err == nil && e.SortKey() <= after {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func TestVerifyFindsWrongEntriesAndRows(t *testing.T) {
	f := open(t)
	lying := &lyingStore{Store: f.store}
	f = over(t, lying, memory.New())
	b := f.create(sumBoard)
	for i := range 5 {
		f.submit("b", points(fmt.Sprint("u", i), "m", int64(i)))
	}
	lying.entry = map[leaderboard.UserID]func(*leaderboard.Entry){
		"u1": func(e *leaderboard.Entry) { e.Key = b.ScorePrefix(77, start) },
	}
	if got := f.verify(false); !slices.Contains(got, "ENTRY_WRONG u1") {
		t.Errorf("a wrong score: %v", got)
	}
	lying.entry = nil
	lying.row = func(e leaderboard.Entry) (leaderboard.Entry, bool) { return e, e.User != "u2" && e.User != "u4" }
	want := []string{"ROW_MISSING u2", "ROW_MISSING u4"}
	if diff := gocmp.Diff(want, f.verify(false)); diff != "" {
		t.Errorf("missing rows: %v", diff)
	}
	ranking.MissingAtOnce(t, 2)
	if diff := gocmp.Diff(want, f.verify(false)); diff != "" {
		t.Errorf("missing rows, looked for in parts: %v", diff)
	}
	lying.row = func(e leaderboard.Entry) (leaderboard.Entry, bool) {
		if e.User == "u3" {
			e.AchievedAt = e.AchievedAt.Add(time.Hour)
		}
		return e, true
	}
	if got := f.verify(false); !slices.Contains(got, "ROW_GHOST u3") {
		t.Errorf("a ghost row: %v", got)
	}
}

func TestDefaultBoard(t *testing.T) {
	f := open(t)
	for range 2 {
		if err := f.EnsureDefaultBoard(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := f.Board(t.Context(), leaderboard.DefaultBoard)
	if err != nil || b.Policy != leaderboard.Sum || b.Order != leaderboard.HigherFirst || b.Season.Kind != leaderboard.Monthly {
		t.Errorf("default board %+v, %v", b, err)
	}
}

func TestBoards(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	if _, err := f.CreateBoard(t.Context(), sumBoard); err != nil {
		t.Errorf("the same board again: %v", err)
	}
	if _, err := f.CreateBoard(t.Context(), leaderboard.Board{ID: "b"}); !errors.Is(err, leaderboard.ErrBoardExists) {
		t.Errorf("a board with other rules: %v", err)
	}
	if _, err := f.CreateBoard(t.Context(), leaderboard.Board{ID: ""}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a board without id: %v", err)
	}
	amended, err := f.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error { b.Title = "New"; return nil })
	if err != nil || amended.Title != "New" {
		t.Errorf("amended %+v, %v", amended, err)
	}
	if b, err := f.Board(t.Context(), "b"); err != nil || b.Title != "New" {
		t.Errorf("read back %+v, %v", b, err)
	}
	f.submit("b", points("u", "m", 1))
	if err := f.DeleteBoard(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Board(t.Context(), "b"); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("a deleted board: %v", err)
	}
	f.create(sumBoard)
	f.wantList(ranking.Query{Board: "b"})
}

// lateStore is a store whose Apply does its work, and then holds the answer back
// until it is released; or says that it does not know.
type lateStore struct {
	leaderboard.Store
	applied, release chan struct{}
	unknown          bool
}

func (s *lateStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	report, err := s.Store.Apply(ctx, b, results)
	if s.unknown {
		s.unknown = false
		return leaderboard.ApplyReport{}, leaderboard.ErrUnavailable
	}
	if s.applied != nil {
		close(s.applied)
		s.applied = nil
		select {
		case <-s.release:
		case <-ctx.Done():
			return leaderboard.ApplyReport{}, ctx.Err()
		}
	}
	return report, err
}

// A caller that gives up does not leave the index behind the store.
func TestAbandonedSubmitReachesTheIndex(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	f.submit(b.ID, points("ada", "m1", 1))
	late := &lateStore{Store: f.store, applied: make(chan struct{}), release: make(chan struct{})}
	applied := late.applied
	g := over(t, late, f.index)
	ctx, giveUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g.Submit(ctx, b.ID, []leaderboard.MatchResult{points("ada", "m2", 5)})
		done <- err
	}()
	<-applied
	giveUp()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Submit = %v, want %v at once", err, context.Canceled)
	}
	close(late.release)
	g.Close()
	g.wantList(ranking.Query{Board: b.ID}, "ada 6 1")

	// A store that does not know whether it applied, did.
	late.unknown = true
	if _, err := g.Submit(t.Context(), b.ID, []leaderboard.MatchResult{points("ada", "m3", 2)}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Submit = %v, want %v", err, leaderboard.ErrUnavailable)
	}
	if got := g.try(b.ID, points("ada", "m3", 2)); got.Status != leaderboard.Duplicate || got.Score != 8 {
		t.Errorf("the second try is %v with %d, want a duplicate with 8", got.Status, got.Score)
	}
	g.wantList(ranking.Query{Board: b.ID}, "ada 8 1")
}

// A panic of a store reaches the caller, who recovers from it.
func TestPanicReachesTheCaller(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	g := over(t, panickingStore{f.store}, f.index)
	defer func() {
		if got := recover(); got != "boom" {
			t.Errorf("recovered %v, want boom", got)
		}
	}()
	_, err := g.Submit(t.Context(), b.ID, []leaderboard.MatchResult{points("ada", "m1", 1)})
	t.Errorf("Submit = %v, want a panic", err)
}

type panickingStore struct{ leaderboard.Store }

func (panickingStore) Apply(context.Context, *leaderboard.Board, []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	panic("boom")
}

// Decayed sums may be greater than a score can say; they are in a histogram all the same.
func TestHistogramOfSaturatedSums(t *testing.T) {
	for _, order := range []leaderboard.Order{leaderboard.HigherFirst, leaderboard.LowerFirst} {
		f := open(t)
		f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Decay, HalfLife: time.Hour, Order: order})
		for _, u := range []string{"a", "b"} {
			for _, m := range []string{"1", "2"} {
				f.submit("d", points(u, m, int64(leaderboard.MaxScore)))
			}
		}
		f.submit("d", points("c", "1", 5))
		s, err := f.Stats(t.Context(), ranking.StatsQuery{Query: ranking.Query{Board: "d"}, Buckets: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Histogram) != 2 || s.Histogram[0].Count != 1 || s.Histogram[1].Count != 2 {
			t.Errorf("%v: histogram %+v, want 1 and 2", order, s.Histogram)
		}
	}
}

// busyStore changes while its ladders are read.
type busyStore struct {
	leaderboard.Store
	atRow map[int]func() // of a reading from the top
	after func()         // one from the top
	look  func()         // before one from elsewhere

	scanned func()
}

func (s *busyStore) Scan(ctx context.Context, scope leaderboard.Scope) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		s.Store.Scan(ctx, scope)(yield)
		if s.scanned != nil {
			s.scanned()
		}
	}
}

func (s *busyStore) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	if after != "" {
		if s.look != nil {
			s.look()
		}
		return s.Store.Entries(ctx, l, after)
	}
	return func(yield func(leaderboard.Entry, error) bool) {
		var last leaderboard.SortKey
		for n, more := 0, true; more; n++ { // a row at a time, so that no change is missed
			more = false
			for e, err := range s.Store.Entries(ctx, l, last) {
				if change := s.atRow[n]; change != nil {
					change()
				}
				if !yield(e, err) {
					return
				}
				last, more = e.SortKey(), true
				break
			}
		}
		if s.after != nil {
			s.after()
		}
	}
}

// What changes while it is verified is no difference: users who pass the place
// that is read, in either direction, and those who come.
func TestVerifyBesideWriters(t *testing.T) {
	for name, changes := range map[string]func(*fixture, *busyStore){
		"up": func(f *fixture, s *busyStore) {
			s.atRow = map[int]func(){5: sync.OnceFunc(func() { f.submit("b", points("u9", "up", 200)) })}
		},
		"down": func(f *fixture, s *busyStore) {
			s.atRow = map[int]func(){5: sync.OnceFunc(func() { f.submit("b", points("u2", "down", -75)) })}
		},
		"when its row is read": func(f *fixture, s *busyStore) {
			s.atRow = map[int]func(){0: sync.OnceFunc(func() { f.submit("b", points("u0", "down", -1)) })}
		},
		"to and fro": func(f *fixture, s *busyStore) {
			move := sync.OnceFunc(func() { f.submit("b", points("u0", "down", -1)) })
			s.atRow = map[int]func(){0: move}
			s.look = func() {
				down := leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "u0", Match: "down"}
				if _, err := f.Retract(f.t.Context(), down, nil); err != nil {
					f.t.Error(err)
				}
			}
		},
		"past every reader": func(f *fixture, s *busyStore) {
			n := 0
			jump := func(by int64) func() {
				return func() {
					n++
					f.submit("b", points("u9", fmt.Sprint("jump", n), by))
				}
			}
			s.atRow, s.after = map[int]func(){5: jump(1000)}, jump(-1000)
		},
		"new users": func(f *fixture, s *busyStore) {
			n := 0
			s.scanned = func() {
				n++
				f.submit("b", points(fmt.Sprint("new", n), "m", 1))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			busy := &busyStore{Store: f.store}
			f = over(t, busy, memory.New())
			f.create(sumBoard)
			for i := range 10 {
				f.submit("b", points(fmt.Sprint("u", i), "m", int64(100-10*i)))
			}
			changes(f, busy)
			if got := f.verify(false); len(got) != 0 {
				t.Error(got)
			}
		})
	}
}
