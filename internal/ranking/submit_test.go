package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

func TestSubmitReturnsScoreAndRank(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m1", 5))
	f.submit("b", points("bob", "m1", 9))
	got := f.submit("b", points("ann", "m2", 6))
	if got.Score != 11 || got.Rank != 1 {
		t.Errorf("score %d, rank %d; want 11 and rank 1", got.Score, got.Rank)
	}
	f.clock.set(start.Add(time.Minute))
	retry := f.trySubmit("b", points("ann", "m2", 6))
	if retry.Status != leaderboard.Duplicate || retry.Score != 11 || retry.Rank != 1 || !retry.AchievedAt.Equal(got.AchievedAt) {
		t.Errorf("retry: %+v, want a duplicate of %+v", retry, got)
	}
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10})
	if err != nil || page.Season.ID != leaderboard.SeasonAll || page.Total != 2 || !page.AsOf.Equal(start) {
		t.Errorf("page %+v, %v, want 2 users as of %v", page, err, start)
	}
	if r := f.submit("b", points("eve", "", 1)); r.Match == "" {
		t.Error("the receipt of a result without a match id has no match id, want a new id")
	}
}

func TestBatchReceiptsAreInOrderAndIndependent(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Floor: new(leaderboard.Score)})
	bad := points("u\x00", "m", 1)
	future := points("u", "m9", 1)
	future.AchievedAt = start.Add(25 * time.Hour)
	receipts, err := f.Submit(t.Context(), f.board("b"), []leaderboard.MatchResult{
		points("u", "m1", 5), bad, points("u", "m2", -6), points("u", "m1", 5), future, points("v", "m1", 7), points("u", "m1", 4),
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
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if fe := (*leaderboard.FieldError)(nil); !errors.As(receipts[1].Err, &fe) || fe.Field != "user_id" {
		t.Errorf("error of the second result: %v, want a FieldError of user_id", receipts[1].Err)
	}
	if receipts[0].Rank != 2 || receipts[5].Rank != 1 {
		t.Errorf("ranks %d and %d, want 2 and 1", receipts[0].Rank, receipts[5].Rank)
	}
}

func TestTiesOfABatchFollowItsOrder(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Order: leaderboard.LowerFirst})
	var batch []leaderboard.MatchResult
	for _, user := range []string{"zoe", "ann", "mia"} { // the clock does not advance between these results
		batch = append(batch, points(user, "m", 7717))
	}
	if _, err := f.Submit(t.Context(), f.board("b"), batch); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "b", Method: leaderboard.Ordinal}, "zoe 7717 1", "ann 7717 2", "mia 7717 3")
}

func TestRetractRestoresTheNextBestResult(t *testing.T) {
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
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m2"}
	got, err := f.Retract(t.Context(), f.board("b"), key, nil)
	if err != nil || got.Status != leaderboard.Applied || got.Revision != 1 || got.Score != 5 || got.Rank != 1 {
		t.Errorf("retract: %+v, %v, want revision 1 applied, and score 5 at rank 1", got, err)
	}
	f.wantList(red, "ann 5 1")
	f.wantList(blue)
	if got, err = f.Retract(t.Context(), f.board("b"), key, nil); err != nil || got.Status != leaderboard.Duplicate {
		t.Errorf("second retraction: %+v, %v, want a duplicate", got, err)
	}
	if got := f.trySubmit("b", r); got.Status != leaderboard.Superseded {
		t.Errorf("retry of the retracted result: %+v, want SUPERSEDED", got)
	}
	r.Revision = 2
	f.submit("b", r)
	f.wantList(blue, "ann 8 1")

	key.Match = "unknown"
	if _, err := f.Retract(t.Context(), f.board("b"), key, nil); !errors.Is(err, leaderboard.ErrResultNotFound) {
		t.Errorf("retraction of an unknown result: %v, want ErrResultNotFound", err)
	}
	revision := int64(1)
	if got, err = f.Retract(t.Context(), f.board("b"), key, &revision); err != nil || got.Status != leaderboard.Applied {
		t.Errorf("retraction before the result: %+v, %v, want APPLIED", got, err)
	}
	if got := f.trySubmit("b", points("ann", "unknown", 100)); got.Status != leaderboard.Superseded {
		t.Errorf("the result after its retraction: %+v, want SUPERSEDED", got)
	}
	revision = -1
	if _, err := f.Retract(t.Context(), f.board("b"), key, &revision); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("retraction at revision -1: %v, want ErrInvalid", err)
	}
}

func TestResultReturnsTheStatusOfARevision(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Floor: new(leaderboard.Score)})
	f.submit("b", points("u", "m", 5))
	correction := points("u", "m", 6)
	correction.Revision = 2
	f.submit("b", correction)
	f.trySubmit("b", points("u", "n", -50))
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "u", Match: "m"}
	status := func(match leaderboard.MatchID, revision int64) string {
		k := key
		k.Match = match
		rev := &revision
		if revision < 0 {
			rev = nil
		}
		got, err := f.Result(t.Context(), f.board("b"), k, rev)
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
			t.Errorf("match %s, revision %d: %s, want %s", tt.match, tt.revision, got, tt.want)
		}
	}
	if _, err := f.Retract(t.Context(), f.board("b"), key, nil); err != nil {
		t.Fatal(err)
	}
	if got := status("m", -1); got != "3 RETRACTED" {
		t.Errorf("status after the retraction: %s, want 3 RETRACTED", got)
	}
}

// A result without a timestamp is retried just after the season's end. It counts in the season
// of the first attempt.
func TestRetryAfterTheSeasonsEndCountsOnce(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly, Grace: time.Hour}})
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	f.clock.set(end.Add(-time.Second))
	f.submit("b", points("u", "m", 5))
	f.clock.set(end.Add(time.Second))
	got := f.trySubmit("b", points("u", "m", 5))
	if got.Status != leaderboard.Duplicate || got.Season != "202611" || got.Score != 5 {
		t.Errorf("retry: %+v, want a duplicate in season 202611 with score 5", got)
	}
	// Submit rejects a correction without a time, but Kafka's topic of results may contain
	// such a correction.
	for revision, score := range []leaderboard.Score{7, 5} {
		corrected := points("u", "m", int64(score))
		corrected.Revision = int64(revision) + 1
		if got := f.trySubmit("b", corrected); got.Reason != leaderboard.ReasonInvalid {
			t.Errorf("correction without a time: %+v, want a rejection as INVALID", got)
		}
		complete, err := f.Complete(t.Context(), f.board("b"), corrected)
		if err != nil {
			t.Fatal(err)
		}
		report, err := f.Apply(t.Context(), f.board("b"), []leaderboard.MatchResult{complete})
		if err != nil || complete.Season != "202611" || report.Outcomes[0].Status != leaderboard.Applied {
			t.Errorf("correction from the topic: season %s, %+v, %v; want APPLIED in season 202611", complete.Season, report.Outcomes, err)
		}
	}
	got = f.submit("b", points("u", "m2", 3))
	if got.Season != "202612" || got.Score != 3 {
		t.Errorf("first result of December: %+v, want season 202612 and score 3", got)
	}
	late := points("u", "m3", 1)
	late.AchievedAt = end.Add(-time.Minute)
	if got := f.submit("b", late); got.Season != "202611" || got.Score != 6 {
		t.Errorf("result within the grace period: %+v, want season 202611 and score 6", got)
	}
	f.clock.set(end.Add(time.Hour))
	late.Match = "m4"
	if got := f.trySubmit("b", late); got.Reason != leaderboard.ReasonClosed {
		t.Errorf("result after the grace period: %+v, want a rejection as SEASON_CLOSED", got)
	}
}

func TestReadYourWrites(t *testing.T) {
	f := open(t)
	b := f.create(sumBoard)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			user := leaderboard.UserID(fmt.Sprint("u", g))
			sum := leaderboard.Score(0)
			for i := range 40 {
				n := leaderboard.Score(g*i%7 + 1)
				sum += n
				receipts, err := f.Submit(context.Background(), &b, []leaderboard.MatchResult{points(string(user), fmt.Sprint("m", i), int64(n))})
				if err != nil || receipts[0].Score != sum || receipts[0].Rank == 0 {
					t.Errorf("submit: %+v, %v; want score %d", receipts, err, sum)
					return
				}
				page, err := f.User(context.Background(), ranking.Query{Board: "b"}, user, 2, false)
				if err != nil || page.Score != sum || page.Rank < 1 || page.Rank > 16 {
					t.Errorf("read: %+v, %v; want score %d", page.Line, err, sum)
					return
				}
			}
		})
	}
	wg.Wait()
}

// lateStore is a store whose first Apply applies the results, closes the channel applied, and
// waits for the channel release. If failNext is true, the next Apply applies the results, but
// returns an error.
type lateStore struct {
	leaderboard.Store
	applied, release chan struct{}
	failNext         bool
}

func (s *lateStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	report, err := s.Store.Apply(ctx, b, results)
	if s.failNext {
		s.failNext = false
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

func TestCancelledSubmitReachesTheIndex(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	f.submit(b.ID, points("ada", "m1", 1))
	late := &lateStore{Store: f.store, applied: make(chan struct{}), release: make(chan struct{})}
	applied := late.applied
	g := serviceOver(t, late, f.index)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g.Submit(ctx, &b, []leaderboard.MatchResult{points("ada", "m2", 5)})
		done <- err
	}()
	<-applied
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Submit with a canceled context = %v, want %v", err, context.Canceled)
	}
	close(late.release)
	g.Close()
	g.wantList(ranking.Query{Board: b.ID}, "ada 6 1")

	// The store applies the next result, but returns an error. So the retry is a duplicate.
	late.failNext = true
	if _, err := g.Submit(t.Context(), &b, []leaderboard.MatchResult{points("ada", "m3", 2)}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Submit = %v, want %v", err, leaderboard.ErrUnavailable)
	}
	if got := g.trySubmit(b.ID, points("ada", "m3", 2)); got.Status != leaderboard.Duplicate || got.Score != 8 {
		t.Errorf("retry: %v with score %d, want a duplicate with score 8", got.Status, got.Score)
	}
	g.wantList(ranking.Query{Board: b.ID}, "ada 8 1")
}

// The store's Apply panics. The caller of Submit must be able to recover.
func TestPanicReachesTheCaller(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	g := serviceOver(t, panickingStore{f.store}, f.index)
	defer func() {
		if got := recover(); got != "boom" {
			t.Errorf("recovered %v, want boom", got)
		}
	}()
	_, err := g.Submit(t.Context(), &b, []leaderboard.MatchResult{points("ada", "m1", 1)})
	t.Errorf("Submit = %v, want a panic", err)
}

type panickingStore struct{ leaderboard.Store }

func (panickingStore) Apply(context.Context, *leaderboard.Board, []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	panic("boom")
}

// storeOnlyLog is a ResultLog that does not update the index.
type storeOnlyLog struct {
	store      leaderboard.Store
	afterApply func()
}

func (l *storeOnlyLog) Submit(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	report, err := l.store.Apply(ctx, b, results)
	l.afterApply()
	return report.Outcomes, err
}

func (l *storeOnlyLog) Accept(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
	return l.Submit(ctx, b, results)
}

// Submit updates the index itself. If the index also has a later result, the receipt has the
// score and rank after the later result.
func TestASubmitIsVisibleAlthoughTheConsumerCannotReachTheIndex(t *testing.T) {
	f := open(t)
	b := f.create(sumBoard)
	f.submit("b", points("ann", "m1", 5))
	f.submit("b", points("bob", "m1", 7))
	log := &storeOnlyLog{store: f.store, afterApply: func() {}}
	api := ranking.New(f.store, f.index, ranking.Options{Now: f.clock.now, Results: log})
	submit := func(user, match string) ranking.Receipt {
		t.Helper()
		got, err := api.Submit(t.Context(), &b, []leaderboard.MatchResult{points(user, match, 5)})
		if err != nil || got[0].Err != nil {
			t.Fatal(err, got)
		}
		return got[0]
	}
	if got := submit("ann", "m2"); got.Status != leaderboard.Applied || got.Score != 10 || got.Rank != 1 {
		t.Errorf("submit: %v, score %d, rank %d; want 10 at rank 1", got.Status, got.Score, got.Rank)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 10 1", "bob 7 2")
	if got := submit("new", "m1"); got.Score != 5 || got.Rank != 3 {
		t.Errorf("submit of a new user: score %d, rank %d; want 5 at rank 3", got.Score, got.Rank)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 10 1", "bob 7 2", "new 5 3")
	revision := int64(1)
	if got, err := api.Retract(t.Context(), &b, leaderboard.ResultKey{User: "new", Match: "m1"}, &revision); err != nil || got.HasScore {
		t.Errorf("retraction of a user's only result: %+v, %v; want no score", got, err)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 10 1", "bob 7 2")
	log.afterApply = func() { f.submit("b", points("ann", "later", 100)) }
	if got := submit("ann", "m3"); got.Score != 115 || got.Rank != 1 {
		t.Errorf("submit before a later result: score %d, rank %d; want 115 at rank 1", got.Score, got.Rank)
	}
}

func TestASubmitWithoutTheIndexHasNoRank(t *testing.T) {
	f := open(t)
	b := f.create(sumBoard)
	f.submit("b", points("ann", "m1", 5))
	index := &faults.Index{Index: f.index}
	api := ranking.New(f.store, index, ranking.Options{Now: f.clock.now, Results: &storeOnlyLog{store: f.store, afterApply: func() { index.Set(faults.Refuse) }}})
	got, err := api.Submit(t.Context(), &b, []leaderboard.MatchResult{points("ann", "m2", 5)})
	if err != nil || got[0].Err != nil || got[0].Status != leaderboard.Applied || got[0].Score != 10 || got[0].Rank != 0 {
		t.Errorf("submit: %+v, %v; want score 10 without a rank", got, err)
	}
}

// meetingReads is a store whose first call of Result returns only after a second has begun.
type meetingReads struct {
	leaderboard.Store
	running atomic.Int64
	met     chan struct{}
}

func (s *meetingReads) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	if s.running.Add(1) == 2 {
		close(s.met)
	}
	select {
	case <-s.met:
	case <-time.After(30 * time.Second):
		return leaderboard.Record{}, errors.New("no second call of Result within 30 s")
	}
	return s.Store.Result(ctx, key)
}

// A correction without a time gets the time of the stored result.
func TestStoredTimesAreReadConcurrently(t *testing.T) {
	first := open(t)
	b := first.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	batch := []leaderboard.MatchResult{points("ann", "m", 3), points("bob", "m", 4)}
	for i := range batch {
		first.submit("b", batch[i])
		batch[i].Revision, batch[i].Season, batch[i].Score = 1, leaderboard.SeasonAll, 9
	}
	f := serviceOver(t, &meetingReads{Store: first.store, met: make(chan struct{})}, first.index)
	f.clock.set(start.Add(time.Hour))
	receipts, err := f.Submit(t.Context(), &b, batch)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		if r.Status != leaderboard.Applied || r.AchievedAt.After(start.Add(time.Minute)) {
			t.Errorf("receipt %+v, want status APPLIED and the time of the stored result", r)
		}
	}
}

// The calls of gatedStore.Apply begin once begin is closed.
type gatedStore struct {
	leaderboard.Store
	begin <-chan struct{}
	calls atomic.Int64
}

func (s *gatedStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	s.calls.Add(1)
	<-s.begin
	return s.Store.Apply(ctx, b, results)
}

// Requests of one result that arrive together share an Apply, and each gets the answer to its own result.
func TestConcurrentSubmitsShareAnApply(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	begin := make(chan struct{})
	store := &gatedStore{Store: f.store, begin: begin}
	g := serviceOver(t, store, f.index)
	board := g.board("b")

	const users, repeats = 40, 3
	var started, done sync.WaitGroup
	var duplicates atomic.Int64
	for i := range users * repeats {
		started.Add(1)
		done.Go(func() {
			started.Done()
			user := leaderboard.UserID(fmt.Sprint("user-", i%users))
			receipts, err := g.Submit(t.Context(), board, []leaderboard.MatchResult{points(string(user), "m", int64(i%users)+1)})
			if err != nil {
				t.Error(err)
				return
			}
			switch r := receipts[0]; {
			case r.Err != nil || r.Score != leaderboard.Score(i%users+1):
				t.Errorf("the receipt of %s has the score %d and the error %v, want %d", user, r.Score, r.Err, i%users+1)
			case r.Status == leaderboard.Duplicate:
				duplicates.Add(1)
			case r.Status != leaderboard.Applied:
				t.Errorf("the receipt of %s has the status %v", user, r.Status)
			}
		})
	}
	started.Wait()
	close(begin)
	done.Wait()
	if got, want := duplicates.Load(), int64(users*(repeats-1)); got != want {
		t.Errorf("%d results are duplicates, want %d", got, want)
	}
	if n := store.calls.Load(); n >= users*repeats {
		t.Errorf("%d requests made %d calls of Apply, want fewer", users*repeats, n)
	}
	want := make([]string, users)
	for i := range want {
		want[i] = fmt.Sprintf("user-%d %d %d", users-1-i, users-i, i+1)
	}
	if diff := gocmp.Diff(want, g.list(ranking.Query{Board: "b"}, 100)); diff != "" {
		t.Errorf("ladder (-want +got):\n%s", diff)
	}
}
