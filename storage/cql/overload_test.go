package cql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// On a slowServer, a statement is in flight for ten seconds, even if its context ends
// earlier.
type slowServer struct {
	conn
	mu                sync.Mutex
	inFlight, highest int
}

func (c *slowServer) do(ctx context.Context, statement func() error) error {
	c.count(1)
	done := make(chan error, 1)
	abandoned := make(chan struct{})
	go func() {
		time.Sleep(10 * time.Second)
		var err error
		select {
		case <-abandoned:
			// no effect: the caller may already use the statement's variables again
		default:
			err = statement()
		}
		c.count(-1)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		close(abandoned)
		return wrapError(ctx, "statement", ctx.Err())
	}
}

func (c *slowServer) count(n int) (inFlight, highest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight += n
	c.highest = max(c.highest, c.inFlight)
	return c.inFlight, c.highest
}

func (c *slowServer) read(ctx context.Context, q op, dest []any, row func() bool) error {
	return c.do(ctx, func() error { return c.conn.read(ctx, q, dest, row) })
}

func (c *slowServer) write(ctx context.Context, ops ...op) error {
	return c.do(ctx, func() error { return c.conn.write(ctx, ops...) })
}

func openSlow(t *testing.T) (*slowServer, *testStore, leaderboard.Board) {
	t.Helper()
	c := &slowServer{conn: newModel(nil)}
	s := openTest(c, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: 10})
	b := stepsBoard(leaderboard.Sum)
	if err := s.CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return c, s, b
}

// When its context ends, Apply finishes the users that it has started. The results of all
// other users fail, and the test applies them again.
func TestApplyOutOfTimeLeavesNoWorkBehind(t *testing.T) {
	needs.Race(t)
	synctest.Test(t, func(t *testing.T) {
		c, s, b := openSlow(t)
		const users = 3 * defaultParallel
		var pending []leaderboard.MatchResult
		for i := range users {
			w := &writers{user: leaderboard.UserID(fmt.Sprint("u", i)), board: &b, clock: stepsEpoch}
			pending = append(pending, w.result("m 5"))
		}
		attempts, applied := 0, 0
		for ; len(pending) > 0; attempts++ {
			if attempts > users {
				t.Fatalf("%d results are pending after %d attempts, want none", len(pending), attempts)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			report, err := s.Apply(ctx, &b, pending)
			cancel()
			if err != nil {
				t.Fatalf("attempt %d: Apply returns error %v, want errors in outcomes only", attempts, err)
			}
			if inFlight, _ := c.count(0); inFlight > 0 {
				t.Fatalf("%d statements run after Apply has returned, want none", inFlight)
			}
			var rest []leaderboard.MatchResult
			for i, o := range report.Outcomes {
				switch {
				case errors.Is(o.Err, context.DeadlineExceeded) && errors.Is(o.Err, leaderboard.ErrUnavailable):
					rest = append(rest, pending[i])
				case o.Err == nil && o.Status == leaderboard.Applied:
					applied++
				default:
					t.Fatalf("outcome %+v, want APPLIED or a timeout", o)
				}
			}
			pending = rest
		}
		if attempts < 2 || applied != users {
			t.Errorf("%d attempts applied %d results, want at least 2 attempts and %d results", attempts, applied, users)
		}
		for i := range users {
			user := leaderboard.UserID(fmt.Sprint("u", i))
			if e, err := s.Entry(t.Context(), leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, user); err != nil || b.ScoreOf(e.Key, stepsEpoch) != 5 {
				t.Errorf("entry of %s: %+v, %v, want a score of 5", user, e, err)
			}
		}
	})
}

// maxApplying bounds the users that all calls of Apply together process at a time.
func TestConcurrentAppliesAreBounded(t *testing.T) {
	needs.Race(t)
	synctest.Test(t, func(t *testing.T) {
		c, s, b := openSlow(t)
		const calls = 3 * maxApplying / defaultParallel
		var group errgroup.Group
		for call := range calls {
			group.Go(func() error {
				var results []leaderboard.MatchResult
				for i := range defaultParallel {
					w := &writers{user: leaderboard.UserID(fmt.Sprint("u", call, "-", i)), board: &b, clock: stepsEpoch}
					results = append(results, w.result("m 5"))
				}
				_, err := s.Apply(t.Context(), &b, results)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		// For a new user without divisions, Apply runs at most two statements at a time.
		if _, highest := c.count(0); highest > 2*maxApplying || highest < maxApplying {
			t.Errorf("up to %d statements ran at a time, want %d to %d", highest, maxApplying, 2*maxApplying)
		}
	})
}
