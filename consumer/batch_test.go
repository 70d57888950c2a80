package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// blockingService counts calls. Refresh, Complete and Apply block until release is closed.
type blockingService struct {
	service
	mu      sync.Mutex
	calls   map[string]int
	release chan struct{}
}

func newBlocking() *blockingService {
	return &blockingService{calls: map[string]int{}, release: make(chan struct{})}
}

func (s *blockingService) wait(call string) {
	s.mu.Lock()
	s.calls[call]++
	s.mu.Unlock()
	<-s.release
}

func (s *blockingService) Refresh(_ context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	s.wait("refresh " + string(user))
	switch user {
	case "gone":
		return leaderboard.Change{}, leaderboard.ErrBoardNotFound
	case "down":
		return leaderboard.Change{}, leaderboard.ErrUnavailable
	}
	return leaderboard.Change{}, nil
}

func (s *blockingService) Board(_ context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["board "+string(id)]++
	switch id {
	case "nowhere":
		return leaderboard.Board{}, leaderboard.ErrBoardNotFound
	case "down":
		return leaderboard.Board{}, leaderboard.ErrUnavailable
	}
	return leaderboard.Board{ID: id}, nil
}

func (s *blockingService) BoardSince(ctx context.Context, id leaderboard.BoardID, _ time.Time) (leaderboard.Board, error) {
	return s.Board(ctx, "fresh "+id)
}

func (s *blockingService) Complete(_ context.Context, b *leaderboard.Board, r leaderboard.MatchResult) (leaderboard.MatchResult, error) {
	s.wait("complete " + string(b.ID) + " " + string(r.Match))
	r.Board = b.ID
	return r, nil
}

func (s *blockingService) Apply(_ context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	s.wait(fmt.Sprintf("apply %d on %s", len(results), b.ID))
	if b.ID == "down" {
		return leaderboard.ApplyReport{}, leaderboard.ErrUnavailable
	}
	return leaderboard.ApplyReport{Outcomes: make([]leaderboard.Outcome, len(results))}, nil
}

// concurrentCalls returns how often f makes each call until all its calls block. It then lets them return.
func (s *blockingService) concurrentCalls(f func()) map[string]int {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	synctest.Wait()
	s.mu.Lock()
	calls := s.calls
	s.calls = map[string]int{}
	s.mu.Unlock()
	close(s.release)
	<-done
	return calls
}

func recordItem(t *testing.T, r *pb.MatchResultRecord) *item {
	t.Helper()
	value, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return &item{message: &sarama.ConsumerMessage{Value: value}, readAt: time.Now(), record: r}
}

// For user "gone", Refresh reports a deleted board. The items of "gone" stay pending without a board,
// so that resolve looks for a new board.
func TestNotificationsAreRefreshedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBlocking()
		c := &Consumer{service: s}
		var items []*item
		for range 2 {
			for _, user := range []string{"u0", "u1", "u2", "gone", "down"} {
				i := recordItem(t, &pb.MatchResultRecord{Notification: true, Result: &pb.Result{UserId: user, MatchId: "m"}})
				i.board, i.result.User = &leaderboard.Board{ID: "b"}, leaderboard.UserID(user)
				items = append(items, i)
			}
		}
		var pending []*item
		var err error
		calls := s.concurrentCalls(func() { pending, err = c.apply(t.Context(), items) })
		if len(calls) != 5 || calls["refresh u0"] != 1 {
			t.Errorf("concurrent calls %v, want one for each user", calls)
		}
		if !errors.Is(err, leaderboard.ErrUnavailable) || len(pending) != 4 {
			t.Errorf("%d items are pending, with error %v; want the four items of users \"down\" and \"gone\"", len(pending), err)
		}
		for _, i := range pending {
			if resolved := i.board != nil; resolved != (i.result.User == "down") || !resolved && i.boardSince.IsZero() {
				t.Errorf("pending item of user %q: it has a board: %v, boardSince: %v; want a board only for \"down\", and a boardSince for \"gone\"", i.result.User, resolved, i.boardSince)
			}
		}
		got := ""
		for _, i := range items {
			got += fmt.Sprintf("%s %v %s; ", i.result.User, i.covered, i.cause)
		}
		want := "u0 false ; u1 false ; u2 false ; gone false ; down false ; u0 true ; u1 true ; u2 true ; gone false ; down false ; "
		if got != want {
			t.Errorf("user, covered and cause of each item:\ngot  %s\nwant %s", got, want)
		}
	})
}

func TestBoardsAreAppliedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBlocking()
		c := &Consumer{service: s}
		var items []*item
		for n := range 3 {
			for _, board := range []leaderboard.BoardID{"a", "b", "c", "down"} {
				i := recordItem(t, &pb.MatchResultRecord{Result: &pb.Result{UserId: "u"}})
				i.board, i.result.Match = &leaderboard.Board{ID: board}, leaderboard.MatchID(fmt.Sprint(board, n))
				items = append(items, i)
			}
		}
		var pending []*item
		var err error
		calls := s.concurrentCalls(func() { pending, err = c.apply(t.Context(), items) })
		want := map[string]int{"apply 3 on a": 1, "apply 3 on b": 1, "apply 3 on c": 1, "apply 3 on down": 1}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("concurrent calls (-want +got):\n%s", diff)
		}
		var got []leaderboard.MatchID
		for _, i := range pending {
			got = append(got, i.result.Match)
		}
		if diff := cmp.Diff([]leaderboard.MatchID{"down0", "down1", "down2"}, got); diff != "" || !errors.Is(err, leaderboard.ErrUnavailable) {
			t.Errorf("pending results, with error %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestResolveLoadsEachBoardOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBlocking()
		c := &Consumer{service: s}
		var items []*item
		for n := range 3 {
			for _, board := range []string{"b", "nowhere", "down"} {
				items = append(items, recordItem(t, &pb.MatchResultRecord{BoardId: board, Result: &pb.Result{UserId: "u", MatchId: fmt.Sprint("m", n), Score: new(int64)}}))
			}
		}
		items = append(items, &item{message: &sarama.ConsumerMessage{Value: []byte{0xff}}})
		var err error
		calls := s.concurrentCalls(func() { err = c.resolve(t.Context(), items) })
		want := map[string]int{"board b": 1, "board nowhere": 1, "board down": 1, "complete b m0": 1, "complete b m1": 1, "complete b m2": 1}
		if diff := cmp.Diff(want, calls); diff != "" || !errors.Is(err, leaderboard.ErrUnavailable) {
			t.Errorf("concurrent calls, with error %v (-want +got):\n%s", err, diff)
		}
		if err := c.resolve(t.Context(), items); !errors.Is(err, leaderboard.ErrUnavailable) {
			t.Errorf("the second attempt: %v, want ErrUnavailable", err)
		}
		if diff := cmp.Diff(map[string]int{"board down": 1}, s.calls); diff != "" {
			t.Errorf("calls of the second attempt (-want +got):\n%s", diff)
		}
		got := ""
		for _, i := range items {
			board := leaderboard.BoardID("none")
			if i.board != nil {
				board = i.board.ID
			}
			got += fmt.Sprintf("%s %s; ", board, i.cause)
		}
		if want := strings.Repeat("b ; none board; none ; ", 3) + "none form; "; got != want {
			t.Errorf("board and cause of each item:\ngot  %s\nwant %s", got, want)
		}
	})
}

// staleService is a service whose cached board has a smaller MaxScore than the stored board.
type staleService struct{ service }

func (staleService) Board(context.Context, leaderboard.BoardID) (leaderboard.Board, error) {
	return leaderboard.Board{ID: "b", MaxScore: new(leaderboard.Score(10))}, nil
}

func (staleService) BoardSince(context.Context, leaderboard.BoardID, time.Time) (leaderboard.Board, error) {
	return leaderboard.Board{ID: "b", MaxScore: new(leaderboard.Score(100))}, nil
}

func (staleService) Complete(_ context.Context, _ *leaderboard.Board, r leaderboard.MatchResult) (leaderboard.MatchResult, error) {
	return r, nil
}

// The stored board refuses the score 500 too. resolve leaves this rejection to Apply.
func TestResolveReloadsABoardThatRefusesAResult(t *testing.T) {
	c := &Consumer{service: staleService{}}
	var items []*item
	for n, score := range []int64{5, 50, 500} {
		items = append(items, recordItem(t, &pb.MatchResultRecord{Result: &pb.Result{UserId: "u", MatchId: fmt.Sprint("m", n), Score: &score}}))
	}
	if err := c.resolve(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	for n, want := range []leaderboard.Score{10, 100, 100} {
		if i := items[n]; i.cause != "" || *i.board.MaxScore != want {
			t.Errorf("item %d: cause %q, board %+v, want no cause and MaxScore %d", n, i.cause, i.board, want)
		}
	}
}
