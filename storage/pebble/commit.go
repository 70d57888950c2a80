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

// A gate is a lock, free while the channel is empty. Store.lock stops waiting if ctx is done or
// the store has failed.
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

// stripes is the number of locks that the users and the lists of package storage share. Each lock
// is a stripe. A change of a user holds stripeOf(user), and a change of a list the list's stripe. All stripes are held during the removal of a board or season, and a change
// of a board's divisions.
//
// To prevent deadlocks, locks are taken in this order: the store's lock admin, stripes by ascending
// number.
const stripes = 1024

var seed = maphash.MakeSeed()

func stripeOf[S ~string](userOrList S) int {
	return int(maphash.String(seed, string(userOrList)) % stripes)
}

// lockStripes sorts numbers, which may contain duplicates.
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

func (s *Store) lockAdmin(ctx context.Context) (unlock func(), err error) {
	if err := s.lock(ctx, s.admin); err != nil {
		return nil, err
	}
	return s.admin.unlock, nil
}

// commit writes b and returns nil once b is durable. As soon as readers see b, it calls onVisible,
// which releases the caller's locks.
//
// If the store fails, or ctx is done before b is durable, commit returns
// [leaderboard.ErrUnavailable], and b may or may not be written. If the store fails before readers
// see b, commit never calls onVisible, and other callers that wait for the locks get the error.
//
// The write has its own goroutine, because a failed write blocks its goroutine forever: see
// guardFS.
func (s *Store) commit(ctx context.Context, b *pebble.Batch, onVisible func()) error {
	return s.waitForCommit(ctx, s.startCommit(b, onVisible))
}

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

func (s *Store) write(b *pebble.Batch, onVisible func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = s.fail(fmt.Errorf("panic: %v", r))
		}
	}()
	s.unsynced.Add(1)
	err = s.db.ApplyNoSyncWait(b, pebble.Sync)
	if failure := s.failure(); failure != nil {
		return failure // after a fatal error, Pebble may return nil
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

// syncVisible makes every visible write durable. A method that finds its data already stored must
// call syncVisible before it returns nil.
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

// fail makes the store reject all further writes with the returned error, because memory and disk
// may differ after a failed write.
func (s *Store) fail(err error) error {
	s.failOnce.Do(func() {
		s.failErr = fmt.Errorf("pebble: a write to the data directory failed, and the store accepts no more writes; free disk space or repair the disk, then restart: %w: %w",
			leaderboard.ErrUnavailable, err)
		close(s.failed)
	})
	return s.failErr
}

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

// quietLogger discards Pebble's messages. After a fatal error, the store fails and the process
// continues.
type quietLogger struct{ fail func(error) error }

func (quietLogger) Infof(string, ...any)  {}
func (quietLogger) Errorf(string, ...any) {}
func (q quietLogger) Fatalf(format string, args ...any) {
	_ = q.fail(fmt.Errorf(format, args...))
}
