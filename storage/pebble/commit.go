package pebble

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// A gate is a lock that can be waited for until a context is done or the store
// has failed. It is open when empty.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) unlock() { <-g }

func (s *Store) lock(ctx context.Context, g gate) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pebble: wait for a lock: %w", ctx.Err())
	case <-s.failed:
		return s.failure()
	}
}

// Who changes anything of a user holds the user's stripe; who changes what all
// users' rows rest on (deletes a board or season, begins or ends a seal) holds
// all of them. Stripes are taken in order, after the gate of a seal and that of
// administration, so there is no deadlock.
const stripes = 1024

var seed = maphash.MakeSeed()

func stripeOf(user leaderboard.UserID) int {
	return int(maphash.String(seed, string(user)) % stripes)
}

// lockStripes takes stripes, in any order and more than once each if need be,
// and returns what lets go of them.
func (s *Store) lockStripes(ctx context.Context, numbers []int) (unlock func(), err error) {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	for i, n := range numbers {
		if err := s.lock(ctx, s.stripes[n]); err != nil {
			for _, n := range numbers[:i] {
				s.stripes[n].unlock()
			}
			return nil, err
		}
	}
	return func() {
		for _, n := range numbers {
			s.stripes[n].unlock()
		}
	}, nil
}

func (s *Store) lockUser(ctx context.Context, user leaderboard.UserID) (unlock func(), err error) {
	return s.lockStripes(ctx, []int{stripeOf(user)})
}

func (s *Store) lockAllUsers(ctx context.Context) (unlock func(), err error) {
	numbers := make([]int, stripes)
	for i := range numbers {
		numbers[i] = i
	}
	return s.lockStripes(ctx, numbers)
}

// lockAdmin takes the gate of administration.
func (s *Store) lockAdmin(ctx context.Context) (unlock func(), err error) {
	if err := s.lock(ctx, s.admin); err != nil {
		return nil, err
	}
	return s.admin.unlock, nil
}

// commit makes b durable. It calls applied, which lets go of locks, once b is
// visible; a store that fails before never calls it, and lets nobody wait for
// locks any more. If ctx is done first, or the store fails, b may or may not be
// applied, which the error says.
//
// A goroutine of its own does the work, because the engine waits without end
// while it cannot write (see guardFS).
func (s *Store) commit(ctx context.Context, b *pebble.Batch, applied func()) error {
	return s.wait(ctx, s.start(b, applied))
}

// start is commit without the wait; wait takes what it returns.
func (s *Store) start(b *pebble.Batch, applied func()) <-chan error {
	done := make(chan error, 1)
	s.commits.Add(1)
	go func() {
		defer s.commits.Done()
		done <- s.write(b, applied)
	}()
	return done
}

func (s *Store) wait(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return unavailable("write", ctx.Err())
	case <-s.failed:
		return s.failure()
	}
}

func (s *Store) write(b *pebble.Batch, applied func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = s.fail(fmt.Errorf("panic: %v", r))
		}
	}()
	s.unsynced.Add(1)
	err = s.db.ApplyNoSyncWait(b, pebble.Sync)
	if failure := s.failure(); failure != nil {
		return failure // the engine may have returned nil after a fatal error
	}
	if err != nil {
		return s.fail(err)
	}
	applied()
	if err := b.SyncWait(); err != nil {
		return s.fail(err)
	}
	s.unsynced.Add(-1)
	return b.Close()
}

// settle makes durable whatever the caller may have read. Who answers that
// there is nothing to write, because it is there already, calls it first: the
// write that put it there may not be synced yet.
func (s *Store) settle(ctx context.Context) error {
	if err := s.failure(); err != nil {
		return err
	}
	if s.unsynced.Load() == 0 {
		return nil
	}
	b := s.db.NewBatch()
	if err := b.LogData(nil, nil); err != nil {
		return unavailable("write", err)
	}
	return s.commit(ctx, b, func() {})
}

// fail makes the store refuse every write from now on. Once a write to its files
// has failed, what is in memory and what is on disk may differ, and only opening
// the store again tells what was kept.
func (s *Store) fail(err error) error {
	s.failOnce.Do(func() {
		s.failErr = fmt.Errorf("pebble: the store stopped writing; make room or mend the disk, then start again: %w: %w",
			leaderboard.ErrUnavailable, err)
		close(s.failed)
	})
	return s.failErr
}

// failure returns why the store stopped writing, or nil.
func (s *Store) failure() error {
	select {
	case <-s.failed:
		return s.failErr
	default:
		return nil
	}
}

func unavailable(what string, err error) error {
	if errors.Is(err, leaderboard.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("pebble: %s: %w: %w", what, leaderboard.ErrUnavailable, err)
}

// quiet is the engine's logger: stores do not log. What the engine takes for
// fatal makes the store fail instead of ending the process.
type quiet struct{ fail func(error) error }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (q quiet) Fatalf(format string, args ...any) {
	_ = q.fail(fmt.Errorf(format, args...)) // the caller of the failing write returns it
}
