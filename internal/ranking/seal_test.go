package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/faults"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

var dailyBoard = leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}}

const day = leaderboard.SeasonID("20261120")

var dayQuery = ranking.Query{Board: "b", Season: day}

func (f *fixture) afterDay() {
	f.clock.set(start.AddDate(0, 0, 1))
}

func (f *fixture) seal() {
	f.t.Helper()
	f.afterDay()
	if err := f.Seal(f.t.Context(), "b", day); err != nil {
		f.t.Fatal(err)
	}
}

func dayResult(user, match string) leaderboard.ResultKey {
	return leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: day}, User: leaderboard.UserID(user), Match: leaderboard.MatchID(match)}
}

type hookedContext struct {
	context.Context
	hook func()
}

func (c hookedContext) Err() error {
	c.hook()
	return c.Context.Err()
}

// A seal calls ctx.Err many times. In each round, a ban and a retraction begin during a
// different call.
func TestChangesDuringASealAreInTheFinalStandings(t *testing.T) {
	needs.Also(t, "histories")
	step := 223
	if needs.Running("histories") {
		step = 41
	}
	first := rand.New(rand.NewPCG(seed.New(t), 0)).IntN(step)
	for call, more := 1+first, true; more; call += step {
		f := open(t)
		f.create(dailyBoard)
		var batch []leaderboard.MatchResult
		for i := range 600 {
			batch = append(batch, points(fmt.Sprintf("u%03d", i), "m", int64(10_000-i)))
		}
		if _, err := f.Submit(t.Context(), f.board("b"), batch); err != nil {
			t.Fatal(err)
		}
		f.afterDay()
		var wg sync.WaitGroup
		calls := 0
		hook := func() {
			if calls++; calls != call {
				return
			}
			done := make(chan struct{})
			wg.Go(func() {
				defer close(done)
				if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "u000", Banned: true, Reason: "cheat"}); err != nil {
					t.Error(err)
				}
				if _, err := f.Retract(t.Context(), f.board("b"), dayResult("u001", "m"), nil); err != nil {
					t.Error(err)
				}
			})
			select {
			case <-done:
			case <-time.After(5 * time.Millisecond): // the changes wait for the seal
			}
		}
		if err := f.Seal(hookedContext{t.Context(), hook}, "b", day); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		more = calls >= call
		if !more {
			break
		}
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: dayQuery, Limit: 2})
		if err != nil || !page.Sealed {
			t.Fatalf("a page after the seal has Sealed %v, error %v; want true", page.Sealed, err)
		}
		if page.Total != 598 || page.Lines[0].User != "u002" {
			t.Errorf("changes at call %d of ctx.Err: %d users and %s first, want 598 and u002", call, page.Total, page.Lines[0].User)
		}
		f.Close()
	}
}

// Every reader sees the reasons of amendments.
func TestAmendmentsDoNotNameUsers(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	for _, user := range []string{"erin", "bob", "cyd"} {
		f.submit("b", points(user, "match-of-"+user, 5))
	}
	f.seal()
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f.clock.set(f.clock.now().Add(time.Second))
	}
	step(nil)
	_, err := f.Retract(t.Context(), f.board("b"), dayResult("erin", "match-of-erin"), nil)
	step(err)
	_, err = f.SetBan(t.Context(), leaderboard.Ban{User: "bob", Banned: true, Reason: "erin said so"})
	step(err)
	_, err = f.SetBan(t.Context(), leaderboard.Ban{User: "bob", Banned: false, Reason: ""})
	step(err)
	step(f.Erase(t.Context(), "cyd"))
	seasons := f.seasons("b")
	sealed := seasons[len(seasons)-1]
	if sealed.ID != day || len(sealed.Amendments) != 4 {
		t.Fatalf("seasons %+v, want season %s last, with 4 amendments", seasons, day)
	}
	for _, a := range sealed.Amendments {
		for _, name := range []string{"erin", "bob", "cyd"} {
			if strings.Contains(a.Reason, name) {
				t.Errorf("the reason of an amendment is %q, want no name of a user", a.Reason)
			}
		}
	}
}

// Readers in another process see a seal or amendment when the cached season record expires.
func TestReadersSeeSealsOfAnotherProcess(t *testing.T) {
	f := open(t)
	other := serviceOver(t, f.store, f.index)
	advance := func() {
		f.clock.set(f.clock.now().Add(2 * time.Second))
		other.clock.set(f.clock.now())
	}
	b := f.create(dailyBoard)
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("bob", "m", 3))
	f.afterDay()
	advance()
	page := func() ranking.Page {
		t.Helper()
		p, err := other.Page(t.Context(), ranking.PageQuery{Query: dayQuery, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := page(); p.Sealed {
		t.Fatal("a page before the seal has Sealed true, want false")
	}
	f.seal()
	if p := page(); p.Total != 2 {
		t.Errorf("another process reads %d users right after the seal, want 2", p.Total)
	}
	other.clock.set(f.clock.now())
	advance()
	if p := page(); !p.Sealed {
		t.Error("a page after the cached record has expired has Sealed false, want true")
	}
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true, Reason: "cheat"}); err != nil {
		t.Fatal(err)
	}
	banned := f.clock.now()
	advance()
	if p := page(); !p.AsOf.Equal(banned) || p.Lines[0].User != "bob" {
		t.Errorf("a page after the ban has AsOf %v and %s first, want %v and bob first", p.AsOf, p.Lines[0].User, banned)
	}
	if loaded, _ := f.index.Loaded(t.Context(), leaderboard.SeasonKey{Board: "b", Season: day}); loaded {
		t.Error("a sealed season was loaded into the index, want no load")
	}

	f.clock.set(start)
	if err := f.DeleteBoard(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start.Add(time.Second))
	b.Title = "again"
	f.create(b)
	f.submit("b", points("dan", "m", 1))
	if p := page(); p.Sealed || p.Total != 1 {
		t.Errorf("a new board with the same id: sealed %v, %d users; want an open season with 1 user", p.Sealed, p.Total)
	}
}

func TestSeasonInItsGraceIsReadWithoutTheStore(t *testing.T) {
	f := openOutage(t)
	f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Sum, Season: dailyBoard.Season})
	f.submit("d", points("ann", "m", 5))
	q := ranking.Query{Board: "d", Season: day}
	f.clock.set(start.Add(12*time.Hour + 30*time.Minute))
	f.store.Set(faults.Refuse)
	f.wantList(q, "ann 5 1") // no season record is cached
	f.store.Set(faults.Up)
	f.clock.set(f.clock.now().Add(time.Minute))
	f.wantList(q, "ann 5 1")
	f.store.Set(faults.Refuse)
	f.clock.set(f.clock.now().Add(time.Minute))
	f.wantList(q, "ann 5 1") // the cached record has expired
}

type slowAmends struct {
	leaderboard.Store
	calls   atomic.Int64
	reasons string // of all calls, which do not overlap
}

func (s *slowAmends) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	s.calls.Add(1)
	s.reasons += a.Reason + "; "
	time.Sleep(time.Minute)
	return s.Store.Amend(ctx, b, season, a, users)
}

// Changes during an amendment share the next amendment, whose reason contains their reasons.
func TestConcurrentChangesShareAnAmendment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Sum, Season: dailyBoard.Season})
		const n = 10
		for i := range n {
			f.submit("d", points(fmt.Sprint("u", i), "m", int64(i)))
		}
		f.afterDay()
		if err := f.Seal(t.Context(), "d", day); err != nil {
			t.Fatal(err)
		}
		slow := &slowAmends{Store: f.fixture.store}
		s := serviceOver(t, slow, f.index)
		s.clock.set(f.clock.now().Add(time.Minute))
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if i%2 == 0 {
					if _, err := s.SetBan(t.Context(), leaderboard.Ban{User: leaderboard.UserID(fmt.Sprint("u", i)), Banned: true, Reason: ""}); err != nil {
						t.Error(err)
					}
					return
				}
				key := dayResult(fmt.Sprint("u", i), "m")
				key.Board = "d"
				receipt, err := s.Retract(t.Context(), s.board("d"), key, nil)
				if err != nil || receipt.Status != leaderboard.Applied {
					t.Errorf("Retract = %v, %v, want APPLIED", receipt.Status, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * time.Minute) // a retraction does not wait for an amendment that takes longer than a few seconds
		if calls := slow.calls.Load(); calls > 2 {
			t.Errorf("%d changes took %d amendments, want at most 2", n, calls)
		}
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "d", Season: day}, Limit: 1})
		if err != nil || page.Total != 0 {
			t.Errorf("the season has %d users, %v; want none", page.Total, err)
		}
		season, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "d", Season: day})
		if err != nil || len(season.Amendments) == 0 {
			t.Errorf("the season has the amendments %+v, error %v; want at least one", season.Amendments, err)
		}
		for _, reason := range []string{"retraction", "ban a user"} {
			if !strings.Contains(slow.reasons, reason) {
				t.Errorf("the calls of Amend have the reasons %q, want also %q", slow.reasons, reason)
			}
		}
	})
}

func TestSealedSeasonStaysClosed(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}})
	f.submit("b", points("ann", "m", 9))
	season, err := b.Season.ByID("20261120")
	if err != nil {
		t.Fatal(err)
	}
	f.clock.set(b.ClosesAt(season).Add(2 * time.Minute))
	grace := func(d time.Duration) error {
		_, err := f.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error {
			b.Season.Grace = d
			return nil
		})
		return err
	}
	if err := grace(90 * time.Minute); err != nil {
		t.Errorf("a longer grace while the season is closed but not sealed: %v, want no error", err)
	}
	f.clock.set(b.ClosesAt(season).Add(time.Hour))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wrong *leaderboard.FieldError
	if err := grace(1000 * time.Hour); !errors.As(err, &wrong) || wrong.Field != "season" || !strings.Contains(err.Error(), "20261120") {
		t.Errorf("a grace that reopens a sealed season: %v, want an error for field season that names the season", err)
	}
	if err := grace(100 * time.Minute); err != nil {
		t.Errorf("a longer grace that has also passed: %v, want no error", err)
	}
}

// A ban that is lifted does not change the answers.
func TestSealedSeasonGivesTheSameAnswers(t *testing.T) {
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
	readAnswers := func() map[string]any {
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
	before := readAnswers()
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, readAnswers()); diff != "" {
		t.Fatalf("answers before and after a sweep of an open season differ, want equal answers (-before +after):\n%s", diff)
	}
	window, err := b.Season.ByID(season)
	if err != nil {
		t.Fatal(err)
	}
	f.clock.set(b.ClosesAt(window).Add(2 * time.Minute))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b", Season: season}, Limit: 1})
	if err != nil || !page.Sealed {
		t.Fatalf("page after the sweep: %+v, %v; want a sealed season", page, err)
	}
	if loaded, _ := f.index.Loaded(t.Context(), leaderboard.SeasonKey{Board: "b", Season: season}); loaded {
		t.Error("the index contains a sealed season, want none")
	}
	if diff := gocmp.Diff(before, readAnswers()); diff != "" {
		t.Fatalf("answers before and after the seal differ, want equal answers (-before +after):\n%s", diff)
	}

	advance := func() { f.clock.set(f.clock.now().Add(time.Second)) }
	top := page.Lines[0]
	advance()
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: top.User, Banned: true, Reason: "cheat"}); err != nil {
		t.Fatal(err)
	}
	advance()
	if _, err := f.User(t.Context(), ranking.Query{Board: "b", Season: season}, top.User, 0, false); !errors.Is(err, leaderboard.ErrEntryNotFound) {
		t.Errorf("read of a banned user in a sealed season: %v, want ErrEntryNotFound", err)
	}
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: top.User, Banned: false, Reason: ""}); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, readAnswers()); diff != "" {
		t.Fatalf("answers before a ban and after it was lifted differ, want equal answers (-before +after):\n%s", diff)
	}
	advance()
	if err := f.Erase(t.Context(), top.User); err != nil {
		t.Fatal(err)
	}
	seasons := f.seasons("b")
	i := slices.IndexFunc(seasons, func(s ranking.SeasonInfo) bool { return s.ID == season })
	if s := seasons[i]; s.Phase != ranking.Sealed || len(s.Amendments) < 3 || s.Total == nil || *s.Total != 39 {
		t.Errorf("season %+v, want a sealed season with at least 3 amendments and 39 users", s)
	}
	f.clock.set(f.clock.now().Add(48 * time.Hour))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b", Season: season})
}

// A consumer that reads its log again may apply results that were received before their season
// was deleted. The season must reject these results.
func TestRetentionIsFinal(t *testing.T) {
	f := open(t)
	b := dailyBoard
	b.Retention = 48 * time.Hour
	b = f.create(b)
	r := points("ann", "m", 5)
	r.Board, r.Season, r.AchievedAt, r.ReceivedAt = "b", day, start, start
	apply := func() leaderboard.Outcome {
		t.Helper()
		report, err := f.Apply(t.Context(), &b, []leaderboard.MatchResult{r})
		if err != nil {
			t.Fatal(err)
		}
		return report.Outcomes[0]
	}
	if o := apply(); o.Status != leaderboard.Applied {
		t.Fatalf("Apply before the seal: %+v, want APPLIED", o)
	}
	f.seal()
	f.clock.set(start.AddDate(0, 0, 7))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := apply(); o.Status != leaderboard.Rejected || o.Reason != leaderboard.ReasonDeleted {
		t.Errorf("Apply after the deletion: %+v, want a rejection with %s", o, leaderboard.ReasonDeleted)
	}
	f.wantList(dayQuery)
}

// failingSweeps is a store. If died is not nil, Seal and DeleteSeason return the error died. If
// hook is not nil, each read of a season calls hook.
type failingSweeps struct {
	leaderboard.Store
	died error
	hook func()
}

func (s *failingSweeps) Season(ctx context.Context, key leaderboard.SeasonKey) (leaderboard.SeasonRecord, error) {
	record, err := s.Store.Season(ctx, key)
	if s.hook != nil {
		s.hook()
	}
	return record, err
}

func (s *failingSweeps) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (leaderboard.SeasonRecord, error) {
	if s.died != nil {
		return leaderboard.SeasonRecord{}, s.died
	}
	return s.Store.Seal(ctx, b, season, at)
}

func (s *failingSweeps) DeleteSeason(ctx context.Context, key leaderboard.SeasonKey, at time.Time) error {
	if s.died != nil {
		return s.died
	}
	return s.Store.DeleteSeason(ctx, key, at)
}

// A process dies during a sweep, or two processes sweep concurrently.
func TestSweepsAppendEachActOnce(t *testing.T) {
	f := open(t)
	b := dailyBoard
	b.Retention = 48 * time.Hour
	b = f.create(b)
	f.submit("b", points("ann", "m", 9))
	season, err := b.Season.ByID(day)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func() {
		t.Helper()
		if err := f.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
	}
	otherSweeps := func(died error, hook func()) {
		t.Helper()
		other := serviceOver(t, &failingSweeps{f.store, died, hook}, f.index)
		other.clock.set(f.clock.now().Add(time.Second))
		if err := other.Sweep(t.Context()); !errors.Is(err, died) {
			t.Fatalf("Sweep: %v, want %v", err, died)
		}
	}
	want := []leaderboard.Act{}
	checkAct := func(action string, actTime time.Time, reason string) {
		t.Helper()
		otherSweeps(errDied, nil)
		f.clock.set(f.clock.now().Add(time.Minute))
		otherSweeps(nil, sweep)
		f.clock.set(f.clock.now().Add(time.Minute))
		sweep()
		want = append([]leaderboard.Act{{
			At: actTime, Actor: "system", Action: action, Board: "b", Season: day, ActDetail: leaderboard.ActDetail{Reason: reason},
		}}, want...)
		page, err := f.Acts(t.Context(), ranking.ActQuery{Action: "season", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Acts {
			page.Acts[i].ID = ""
		}
		if d := gocmp.Diff(want, page.Acts); d != "" {
			t.Errorf("acts of the sweeps (-want +got):\n%s", d)
		}
	}
	sweep() // the season is open
	due := b.ClosesAt(season).Add(time.Minute)
	f.clock.set(due.Add(time.Hour))
	checkAct("season.seal", due, "the season closed")
	sealed, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "b", Season: day})
	if err != nil || sealed.SealedAt.IsZero() {
		t.Fatalf("the season after the sweeps: %+v, %v; want a sealed season", sealed, err)
	}
	f.clock.set(sealed.SealedAt.Add(50 * time.Hour))
	checkAct("season.delete", sealed.SealedAt.Add(48*time.Hour), "the retention of the board is 48h0m0s")
	f.wantList(dayQuery)
}
