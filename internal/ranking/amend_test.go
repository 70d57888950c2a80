package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

type failingAmends struct {
	leaderboard.Store
	works bool
	calls int
}

func (s *failingAmends) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	if !s.works {
		return leaderboard.SeasonRecord{}, errDied
	}
	s.calls++
	return s.Store.Amend(ctx, b, season, a, users)
}

func retraction(f *fixture, key leaderboard.ResultKey) leaderboard.MatchResult {
	return leaderboard.MatchResult{ResultKey: key, Revision: 1, Retracted: true, ReceivedAt: f.clock.now()}
}

// A process applies a batch with 50 retractions, and dies. Another process amends the sealed
// season once, for all retractions.
func TestABatchDoesNotWaitForAmendments(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	const n = 50
	for i := range n {
		f.submit("b", points(fmt.Sprint("u", i), "m", int64(i)))
	}
	f.submit("b", points("ann", "m", 5))
	f.seal()
	store := &failingAmends{Store: f.store}
	first := serviceOver(t, store, f.index)
	first.clock.set(f.clock.now())
	var batch []leaderboard.MatchResult
	for i := range n {
		batch = append(batch, retraction(f, dayResult(fmt.Sprint("u", i), "m")))
	}
	other, err := first.Complete(t.Context(), first.board("b"), points("bob", "m", 7))
	if err != nil {
		t.Fatal(err)
	}
	report, err := first.Apply(t.Context(), first.board("b"), append(batch, other))
	if err != nil || report.Outcomes[n].Status != leaderboard.Applied {
		t.Fatalf("Apply while Amend fails: error %v, outcome of the last result %+v; want no error and the last result applied", err, report.Outcomes[n:])
	}
	for _, repair := range []bool{false, true} {
		var found int
		_, err := first.Verify(t.Context(), ranking.Selection{}, repair, nil, func(d ranking.Difference) error {
			if d.Detail == "a change of the user's entry is not in the final standings yet" {
				found++
			}
			return nil
		})
		if repair && !errors.Is(err, errDied) || !repair && (err != nil || found != n) {
			t.Errorf("Verify with repair=%v: error %v, %d changes that are not in the final standings; with repair=true, want the error of Amend; otherwise want no error and %d changes", repair, err, found, n)
		}
	}
	if err := first.AmendMarked(t.Context()); !errors.Is(err, errDied) {
		t.Fatalf("AmendMarked while Amend fails: %v, want the error of Amend", err)
	}
	first.Close()

	store.works = true
	second := serviceOver(t, store, f.index)
	second.clock.set(f.clock.now())
	for range 2 {
		if err := second.AmendMarked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	second.wantList(dayQuery, "ann 5 1")
	record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "b", Season: day})
	if err != nil || len(record.Amendments) != 1 || record.Amendments[0].Reason != "late correction" || store.calls != 1 {
		t.Errorf("%d calls of Amend, amendments %+v, error %v; want one call, and one amendment with the reason \"late correction\"", store.calls, record.Amendments, err)
	}
	for m, err := range f.store.FinalMarks(t.Context()) {
		t.Errorf("after the amendment, the store has the mark %+v, error %v; want none", m, err)
	}
}

type countedAmends struct {
	leaderboard.Store
	calls int
}

func (s *countedAmends) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	s.calls++
	return s.Store.Amend(ctx, b, season, a, users)
}

// The final standings already contain a repeated retraction, so Apply writes no mark. Apply calls
// Amend, because an amendment in another process may have read an older entry.
func TestARepeatedChangeOfASealedSeasonIsAmendedAgain(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("bob", "m", 4))
	f.seal()
	store := &countedAmends{Store: f.store}
	s := serviceOver(t, store, f.index)
	s.clock.set(f.clock.now())
	for i := range 3 {
		if _, err := s.Apply(t.Context(), s.board("b"), []leaderboard.MatchResult{retraction(f, dayResult("ann", "m"))}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := s.AmendMarked(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if store.calls != i+1 {
			t.Errorf("the retraction was applied %d times, and Amend was called %d times; want the same number", i+1, store.calls)
		}
		for m, err := range f.store.FinalMarks(t.Context()) {
			t.Errorf("after the retraction was applied %d times, the store has the mark %+v, error %v; want none", i+1, m, err)
		}
		s.wantList(dayQuery, "bob 4 1")
	}
	record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "b", Season: day})
	if err != nil || len(record.Amendments) != 1 {
		t.Errorf("the amendments are %+v, error %v; want one amendment", record.Amendments, err)
	}
}

// After an amendment by a process whose clock is ahead, another process can amend the season at
// once.
func TestAnEndedLeaseHasEndedForSlowClocksToo(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	for i, user := range []string{"ann", "bob", "cyd"} {
		f.submit("b", points(user, "m", int64(9-i)))
	}
	f.seal()
	ahead := serviceOver(t, f.store, f.index)
	ahead.clock.set(f.clock.now().Add(59 * time.Minute))
	for _, retracted := range []struct {
		service *fixture
		user    string
	}{{ahead, "ann"}, {f, "bob"}} {
		s := retracted.service
		if _, err := s.Apply(t.Context(), s.board("b"), []leaderboard.MatchResult{retraction(f, dayResult(retracted.user, "m"))}); err != nil {
			t.Fatal(err)
		}
		if err := s.AmendMarked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.wantList(dayQuery, "cyd 7 1")
}

type failingBoardAmends struct {
	leaderboard.Store
	board leaderboard.BoardID
}

func (s failingBoardAmends) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	if b.ID == s.board {
		return leaderboard.SeasonRecord{}, errDied
	}
	return s.Store.Amend(ctx, b, season, a, users)
}

func TestASeasonThatFailsDoesNotStopAmendments(t *testing.T) {
	f := open(t)
	const n = 50
	board := func(i int) leaderboard.BoardID { return leaderboard.BoardID(fmt.Sprint("b", i)) }
	for i := range n {
		b := dailyBoard
		b.ID = board(i)
		f.create(b)
		f.submit(b.ID, points("ann", "m", 5))
	}
	f.afterDay()
	for i := range n {
		if err := f.Seal(t.Context(), board(i), day); err != nil {
			t.Fatal(err)
		}
	}
	s := serviceOver(t, failingBoardAmends{f.store, board(0)}, f.index)
	s.clock.set(f.clock.now())
	for i := range n {
		key := dayResult("ann", "m")
		key.Board = board(i)
		if _, err := s.Apply(t.Context(), s.board(board(i)), []leaderboard.MatchResult{retraction(f, key)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AmendMarked(t.Context()); !errors.Is(err, errDied) {
		t.Errorf("AmendMarked: error %v, want the error of Amend", err)
	}
	var left []leaderboard.BoardID
	for m, err := range s.store.FinalMarks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, m.Board)
	}
	if !slices.Equal(left, []leaderboard.BoardID{board(0)}) {
		t.Errorf("marks of the boards %q remain, want only those of %q", left, board(0))
	}
}

func TestMarksOfADeletedBoardAreRemoved(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	f.submit("b", points("ann", "m", 5))
	f.seal()
	if _, err := f.Apply(t.Context(), f.board("b"), []leaderboard.MatchResult{retraction(f, dayResult("ann", "m"))}); err != nil {
		t.Fatal(err)
	}
	if err := f.DeleteBoard(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := f.AmendMarked(t.Context()); err != nil {
		t.Fatal(err)
	}
	for m, err := range f.store.FinalMarks(t.Context()) {
		t.Errorf("the store has the mark %+v, error %v; want none", m, err)
	}
}

type damagedAmends struct{ leaderboard.Store }

func (s damagedAmends) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	if slices.Contains(users, "bad") {
		return leaderboard.SeasonRecord{}, leaderboard.ErrFormat
	}
	return s.Store.Amend(ctx, b, season, a, users)
}

// Amend fails for user "bad". A retraction, a ban and an erasure of other users succeed.
func TestADamagedUserDoesNotStopAmendments(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	for i, user := range []string{"ann", "bad", "bob", "cyd", "dan"} {
		f.submit("b", points(user, "m", int64(9-i)))
	}
	f.seal()
	s := serviceOver(t, damagedAmends{f.store}, f.index)
	s.clock.set(f.clock.now())
	batch := []leaderboard.MatchResult{retraction(f, dayResult("bad", "m")), retraction(f, dayResult("ann", "m"))}
	if _, err := s.Apply(t.Context(), s.board("b"), batch); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetBan(t.Context(), leaderboard.Ban{Board: "b", User: "bob", Banned: true, Reason: "test"}); err != nil {
		t.Errorf("SetBan: %v", err)
	}
	if err := s.Erase(t.Context(), "cyd"); err != nil {
		t.Errorf("Erase: %v", err)
	}
	s.wantList(dayQuery, "bad 8 1", "dan 5 2")
	for m, err := range f.store.FinalMarks(t.Context()) {
		if err != nil || m.User != "bad" {
			t.Errorf("a mark of %s remains, error %v; want only the mark of user bad", m.User, err)
		}
	}
}

// cutStore rejects calls that need a quorum of all data centers while cut is true.
type cutStore struct {
	leaderboard.Store
	cut        bool
	incomplete bool // while cut is true, FinalLookup fails too
}

func (s *cutStore) Reserve(ctx context.Context, r leaderboard.Reservation) (bool, error) {
	if s.cut {
		return false, fmt.Errorf("test: reserve: %w", leaderboard.ErrUnavailable)
	}
	return s.Store.Reserve(ctx, r)
}

func (s *cutStore) FinalLookup(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) ([]leaderboard.Standing, int64, error) {
	if s.cut && s.incomplete {
		return nil, 0, fmt.Errorf("test: final standings have not arrived: %w", leaderboard.ErrUnavailable)
	}
	return s.Store.FinalLookup(ctx, l, users)
}

func (s *cutStore) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	if s.cut {
		return leaderboard.SeasonRecord{}, fmt.Errorf("test: amend: %w", leaderboard.ErrUnavailable)
	}
	return s.Store.Amend(ctx, b, season, a, users)
}

// The consumer reads the log again while the other data center is lost. The final standings
// already contain the retraction, but Amend fails. So Apply must write a mark and succeed.
func TestARepeatedChangeDoesNotWaitForALostDataCenter(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("bob", "m", 4))
	f.seal()
	store := &cutStore{Store: f.store}
	s := serviceOver(t, store, f.index)
	s.clock.set(f.clock.now())
	apply := func() error {
		_, err := s.Apply(t.Context(), s.board("b"), []leaderboard.MatchResult{retraction(f, dayResult("ann", "m"))})
		return err
	}
	marks := func() (n int) {
		t.Helper()
		for _, err := range f.store.FinalMarks(t.Context()) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	if err := errors.Join(apply(), s.AmendMarked(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, store.incomplete = range []bool{false, true} {
		store.cut = true
		if err := apply(); err != nil || marks() != 1 {
			t.Errorf("incomplete=%v: Apply of the repeated retraction: error %v, %d marks; want no error and one mark", store.incomplete, err, marks())
		}
		store.cut = false
		if err := s.AmendMarked(t.Context()); err != nil || marks() != 0 {
			t.Errorf("incomplete=%v: AmendMarked: error %v, %d marks; want no error and no marks", store.incomplete, err, marks())
		}
	}
	s.wantList(dayQuery, "bob 4 1")
}

// While the other data center is lost, bans, unbans and erasures change only the open season.
// When this data center is back, AmendMarked amends the sealed season.
func TestBansDoNotWaitForAmendments(t *testing.T) {
	embeddedStore, index := embedded.Open(t)
	store := &cutStore{Store: embeddedStore}
	f := serviceOver(t, store, index)
	f.create(dailyBoard)
	for i, user := range []string{"ann", "bob", "cyd", "dan"} {
		f.submit(dailyBoard.ID, points(user, "m", int64(9-i)))
	}
	f.afterDay()
	f.sweep()
	for i, user := range []string{"ann", "bob", "cyd", "dan"} {
		f.submit(dailyBoard.ID, points(user, "n", int64(9-i)))
	}
	store.cut = true
	for _, ban := range []leaderboard.Ban{{User: "ann", Banned: true}, {User: "bob", Banned: true}, {User: "bob"}} {
		if _, err := f.SetBan(t.Context(), ban); err != nil {
			t.Errorf("SetBan of %s to %v: %v", ban.User, ban.Banned, err)
		}
	}
	if err := f.Erase(t.Context(), "cyd"); err != nil {
		t.Errorf("Erase: %v", err)
	}
	f.wantList(ranking.Query{Board: dailyBoard.ID}, "bob 8 1", "dan 6 2")
	store.cut = false
	if err := f.AmendMarked(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantList(dayQuery, "bob 8 1", "dan 6 2")
}
