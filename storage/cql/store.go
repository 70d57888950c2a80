// Package cql keeps boards, match results and entries in a Cassandra cluster,
// for any number of processes at once. README.md tells the layout; state.go, why
// it needs no locks.
package cql

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/schema"
)

// parallel bounds the statements that one call has under way.
const parallel = 32

// Store is a [leaderboard.Store] in a keyspace. Calls on one user of one Store
// follow one another; those of several stores need not.
type Store struct {
	conn conn
	dc   string
	// name tells this store's claims from those of others.
	name    [8]byte
	buckets int // of boards made by this store

	editions editions
	stripes  [stripes]chan struct{}       // each held by who works on a user of it
	cache    *lru.Cache[userKey, summary] // nil is none
}

var _ leaderboard.Store = (*Store)(nil)

// Open connects to a keyspace, whose schema must be that of this program. Errors
// are those of [schema.Check], and [leaderboard.ErrUnavailable].
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		return nil, err
	}
	if err := schema.Check(ctx, gs); err != nil {
		gs.Close()
		return nil, fmt.Errorf("cql: keyspace %q: %w", o.Keyspace, err)
	}
	return open(session{gs}, o), nil
}

func open(c conn, o Options) *Store {
	s := &Store{conn: c, dc: o.DataCenter, buckets: o.Buckets}
	if _, err := rand.Read(s.name[:]); err != nil {
		panic(err) // it never fails
	}
	for i := range s.stripes {
		s.stripes[i] = make(chan struct{}, 1)
	}
	s.editions.read = s.readEdition
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

const stripes = 4096

var seed = maphash.MakeSeed()

// lock waits until nobody else of this store works on the user.
func (s *Store) lock(ctx context.Context, user leaderboard.UserID) (unlock func(), err error) {
	stripe := s.stripes[maphash.String(seed, string(user))%stripes]
	select {
	case stripe <- struct{}{}:
		return func() { <-stripe }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cql: user %q: %w", user, ctx.Err())
	}
}

// each runs f for every index below n, some at a time, and returns the first
// error, after which it begins no more.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if n == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
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
