// Package cql keeps boards, match results and entries in a Cassandra cluster,
// for any number of processes at once. README.md tells the layout; state.go, why
// it needs no locks.
package cql

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/combine"
	"github.com/open-leaderboard/leaderboard/schema"
)

const defaultParallel = 32

// Store is a [leaderboard.Store] in a keyspace. Calls on one user of one Store
// follow one another; those of several stores need not.
type Store struct {
	conn conn
	dc   string
	// name tells this store's claims from those of others.
	name    [8]byte
	buckets int // of boards made by this store
	// parallel bounds the statements that one call has under way.
	parallel int
	now      func() time.Time // for what is left by those who died; nothing else goes by a clock

	editions editions
	writes   combine.Combiner[bucket, []op]
	users    userLocks
	cache    *lru.Cache[userKey, summary] // nil is none
}

var _ leaderboard.Store = (*Store)(nil)

// Open connects to a keyspace, whose schema must be that of this program. Errors
// are those of [schema.Check] and [schema.CheckDataCenter], and
// [leaderboard.ErrUnavailable].
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		return nil, err
	}
	err = schema.CheckDataCenter(ctx, gs, o.DataCenter)
	if err == nil {
		err = schema.Check(ctx, gs)
	}
	if err != nil {
		gs.Close()
		return nil, fmt.Errorf("cql: keyspace %q: %w", o.Keyspace, err)
	}
	return open(session{gs}, o), nil
}

func open(c conn, o Options) *Store {
	s := &Store{conn: c, dc: o.DataCenter, buckets: o.Buckets, parallel: defaultParallel, now: time.Now}
	if _, err := rand.Read(s.name[:]); err != nil {
		panic(err) // it never fails
	}
	s.editions.reads.Do = s.readEditions
	s.writes.Do, s.writes.Most = s.writeBucket, mostWrites
	if o.CacheUsers > 0 {
		s.cache, _ = lru.New[userKey, summary](o.CacheUsers) // fails for sizes below 1
	}
	return s
}

// Close ends the session.
func (s *Store) Close() error {
	s.conn.close()
	return nil
}

// userLocks lets one call of this store at a time work on a user.
type userLocks struct {
	mu    sync.Mutex
	locks map[leaderboard.UserID]*userLock
}

type userLock struct {
	held  chan struct{} // full while it is held
	users int           // who hold it or wait for it
}

func (s *Store) lock(ctx context.Context, user leaderboard.UserID) (unlock func(), err error) {
	u := &s.users
	u.mu.Lock()
	l := u.locks[user]
	if l == nil {
		l = &userLock{held: make(chan struct{}, 1)}
		if u.locks == nil {
			u.locks = map[leaderboard.UserID]*userLock{}
		}
		u.locks[user] = l
	}
	l.users++
	u.mu.Unlock()
	leave := func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(u.locks, user)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("cql: user %q: %w", user, ctx.Err())
	}
}

// each runs f for every index below n, some at a time, and returns the first
// error, after which it begins no more.
func (s *Store) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if n == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, s.parallel)
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// gather is read for statements whose rows are made into values.
func gather[T any](ctx context.Context, c conn, q op, dest []any, value func() (T, error)) ([]T, error) {
	var out []T
	var bad error
	err := c.read(ctx, q, dest, func() bool {
		v, err := value()
		if err != nil {
			bad = err
			return false
		}
		out = append(out, v)
		return true
	})
	if err == nil {
		err = bad
	}
	return out, err
}

// take empties a scanned blob, so that the next row does not overwrite it.
func take(b *[]byte) []byte {
	out := slices.Clip(*b)
	*b = nil
	return out
}
