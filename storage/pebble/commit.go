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

// A gate is a lock. A caller stops waiting for the gate if its context is done or if the
// store has failed. The gate is unlocked while the channel is empty.
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

// stripes is the number of locks that users share. Each of these locks is a stripe, and
// each user belongs to one stripe. An operation that changes a user holds the user's
// stripe. An operation that concerns all users holds all stripes: the removal of a board or
// season, a change of a board's divisions, a change of a match's state, the start of a seal,
// and the end of a seal.
//
// To prevent deadlocks, locks are taken in this order: the board's lock sealing, the
// store's lock admin, then stripes by ascending number.
const stripes = 1024

var seed = maphash.MakeSeed()

func stripeOf(user leaderboard.UserID) int {
	return int(maphash.String(seed, string(user)) % stripes)
}

// lockStripes locks the given stripes and returns a function that unlocks them.
// The numbers may be in any order and contain duplicates. lockStripes sorts the slice.
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

// lockAdmin takes the lock admin and returns a function that unlocks it.
func (s *Store) lockAdmin(ctx context.Context) (unlock func(), err error) {
	if err := s.lock(ctx, s.admin); err != nil {
		return nil, err
	}
	return s.admin.unlock, nil
}

// commit writes b and returns nil once b is durable. As soon as readers see b, commit
// calls onVisible, which releases the locks of the caller.
//
// If the store fails, or if ctx is done before b is durable, commit returns
// [leaderboard.ErrUnavailable]. The caller then does not know whether b was written. If the
// store fails before readers see b, commit never calls onVisible. The locks stay locked, and
// callers that wait for them return the error of the failure.
//
// The write runs in a separate goroutine, because a failed write blocks its goroutine
// forever (see guardFS).
func (s *Store) commit(ctx context.Context, b *pebble.Batch, onVisible func()) error {
	return s.waitForCommit(ctx, s.startCommit(b, onVisible))
}

// startCommit starts a commit and does not wait for its end. It returns a channel that receives
// the result, for waitForCommit.
func (s *Store) startCommit(b *pebble.Batch, onVisible func()) <-chan error {
	done := make(chan error, 1)
	s.commits.Add(1)
	go func() {
		defer s.commits.Done()
		done <- s.write(b, onVisible)
	}()
	return done
}

func (s *Store) waitForCommit(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errUnavailable("write", ctx.Err())
	case <-s.failed:
		return s.failure()
	}
}

// write does the work of commit in the goroutine of the write.
func (s *Store) write(b *pebble.Batch, onVisible func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = s.fail(fmt.Errorf("panic: %v", r))
		}
	}()
	s.unsynced.Add(1)
	err = s.db.ApplyNoSyncWait(b, pebble.Sync)
	if failure := s.failure(); failure != nil {
		return failure // after a fatal error, the engine may return nil
	}
	if err != nil {
		return s.fail(err)
	}
	onVisible()
	if err := b.SyncWait(); err != nil {
		return s.fail(err)
	}
	s.unsynced.Add(-1)
	return b.Close()
}

// syncVisible makes every write durable that readers can see. If a method finds its data
// already stored, it must call syncVisible before it returns nil: the write that stored these
// data may still be visible only, and not durable.
func (s *Store) syncVisible(ctx context.Context) error {
	if err := s.failure(); err != nil {
		return err
	}
	if s.unsynced.Load() == 0 {
		return nil
	}
	b := s.db.NewBatch()
	if err := b.LogData(nil, nil); err != nil {
		return errUnavailable("write", err)
	}
	return s.commit(ctx, b, func() {})
}

// fail makes the store reject all further writes, and returns the error with which it
// rejects them. After a failed write to the store's files, memory and disk may differ. To
// learn which writes are on disk, the operator must open the store again.
func (s *Store) fail(err error) error {
	s.failOnce.Do(func() {
		s.failErr = fmt.Errorf("pebble: a write to the data directory failed, and the store accepts no more writes; free disk space or repair the disk, then restart: %w: %w",
			leaderboard.ErrUnavailable, err)
		close(s.failed)
	})
	return s.failErr
}

// failure returns the error that made the store fail, or nil.
func (s *Store) failure() error {
	select {
	case <-s.failed:
		return s.failErr
	default:
		return nil
	}
}

func errUnavailable(operation string, err error) error {
	if errors.Is(err, leaderboard.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("pebble: %s: %w: %w", operation, leaderboard.ErrUnavailable, err)
}

// quietLogger is the engine's logger. It discards messages, because stores do not log. On an
// error that the engine considers fatal, it makes the store fail and does not end the
// process.
type quietLogger struct{ fail func(error) error }

func (quietLogger) Infof(string, ...any)  {}
func (quietLogger) Errorf(string, ...any) {}
func (q quietLogger) Fatalf(format string, args ...any) {
	_ = q.fail(fmt.Errorf(format, args...)) // the failing write returns this error
}
