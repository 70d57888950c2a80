// Package cql is the [leaderboard.Store] on Cassandra. Any number of processes may use
// one keyspace concurrently. README.md states the guarantees and caveats. state.go
// explains why the store needs no locks.
//
// The migrations in schema/cql describe the tables. In addition:
//   - accounts has the sets bans and erasures. Older versions of the store wrote body and ban.
//   - The column edition is the number of a season's incarnation. The column standing is
//     the sort key without the user id.
//   - match_results has static cells: a copy of the user's account, summaries (adopt.go), and all
//     divisions in which the user may have rows. The column owners contains claims (summary.go),
//     adoptions (adopt.go) and the elements of noteRaise (state.go).
//   - match_users lists the users of a match, spread over the buckets. A paused writer may
//     add a user after an erasure of the user. The next writer of the result removes the
//     user again (matches.go).
//   - match_states has the states of matches that were voided. Its column applied_in has the
//     Voids that each data center has applied ([leaderboard.MatchState]); the column applied is
//     unused. A row without a match id marks an incarnation with rows in match_users.
//   - final_standings has static cells: the size of the ladder, and the position at which the
//     last tie of the page ends. final_fences has the first standing of each page. not_worse
//     of final_positions is the position at which the user's tie ends (finalread.go).
//   - rank_changes has the bans, erasures, deletions and changes of divisions that the index
//     of each data center may lack (changes.go).
//   - final_marks has the users whose changes the final standings may lack, for each data center
//     (marks.go).
//   - A row of user_entries without an entry means that a writer has registered the user, but
//     has not written the entry yet.
//   - A row of seasons whose season begins with a tab has the time of a deletion (see
//     deletionRow). The column rules counts the changes of the board's divisions that the
//     season's entries follow (state.go).
package cql

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
	"github.com/open-leaderboard/leaderboard/schema"
)

const (
	defaultParallel   = 32
	defaultMaxMatches = 1_000_000
)

// Store is a [leaderboard.Store] in a keyspace. Calls of one Store that change the same
// user run one after another. Calls of different Stores may run concurrently.
type Store struct {
	conn conn
	dc   string // the name of the local data center
	// dataCenters returns the data centers with replicas of the tables.
	dataCenters func(context.Context) ([]string, error)
	// name is random. It distinguishes this store's claims from those of other stores.
	name    [8]byte
	buckets int // the number of partitions of each ladder of a new board
	// parallel bounds the calls that one forEach runs concurrently.
	parallel int
	// headRows is the greatest number of rows that readHead reads. storedFrom is the number of
	// matches from which on a user has a stored summary. Tests lower both.
	headRows, storedFrom int
	// maxMatches bounds the number of matches of one user in one season, so that the
	// store can read all of them within the timeout of a call.
	maxMatches int64
	// now is the clock for the ages of pending generations, of ends of bans and of deletions.
	// If an interrupted deletion has not written its time, FinishDeletions writes the time
	// that now returns.
	now func() time.Time

	incarnations incarnations
	boards       coalesce.Group[leaderboard.BoardID, *storedBoard] // concurrent reads of one board: see liveBoard
	writes       coalesce.Group[bucket, []op]                      // concurrent writes to one bucket: see writeBuckets
	users        userLocks
	applying     chan struct{}                      // has an element for each user to whom Apply applies results: see maxApplying
	sequence     atomic.Int64                       // the greatest number of a summary that this store has stored
	cache        *lru.Cache[userKey, summary]       // nil disables caching
	pages        *pageCache                         // pages of final standings
	announced    *lru.Cache[announcement, struct{}] // see announce
	marked       sync.Map                           // the incarnations that have a row with markMatch, each as a userKey without a user
}

var _ leaderboard.Store = (*Store)(nil)

// Open connects to a keyspace. The schema of the keyspace must not be older than this
// program. Errors: those of [schema.Check] and [schema.CheckDataCenter];
// [leaderboard.ErrUnavailable] if no node of the data center answers.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		o.metrics = newMetrics(o.Registerer)
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		return nil, err
	}
	if err := schema.Check(ctx, gs); err != nil {
		gs.Close()
		return nil, fmt.Errorf("cql: keyspace %q: %w", o.Keyspace, err)
	}
	s := open(session{gs}, o)
	s.dataCenters = replicatedTo(gs, o.Keyspace)
	return s, nil
}

// open returns a store that uses the connection c. The options must be complete.
func open(c conn, o Options) *Store {
	s := &Store{conn: c, applying: make(chan struct{}, maxApplying), dc: o.DataCenter, buckets: o.Buckets, parallel: defaultParallel, headRows: headRows, storedFrom: storedFrom, maxMatches: defaultMaxMatches, now: time.Now, pages: newPageCache()}
	if _, err := rand.Read(s.name[:]); err != nil {
		panic(err) // rand.Read never returns an error
	}
	s.dataCenters = func(context.Context) ([]string, error) { return []string{s.dc}, nil }
	s.announced, _ = lru.New[announcement, struct{}](maxAnnounced) // New only fails if the size is below 1
	s.incarnations.reads.Call = s.readIncarnations
	s.boards.Call = s.readBoards
	s.writes.Call, s.writes.MaxBatch = s.writeBucket, mostWrites
	if o.CacheUsers > 0 {
		s.cache, _ = lru.New[userKey, summary](o.CacheUsers) // New only fails if the size is below 1
	}
	return s
}

// Close ends the session.
func (s *Store) Close() error {
	s.conn.close()
	return nil
}

// userLocks makes the calls of one store that change the same user run one after another.
type userLocks struct {
	mu    sync.Mutex
	locks map[leaderboard.UserID]*userLock
}

// userLock is the lock of one user.
type userLock struct {
	held  chan struct{} // full while the lock is held
	calls int           // number of calls that hold the lock or wait for it
}

// lock waits until no other call of this store works on the user. Other calls of lock for
// the user then wait until the caller calls unlock.
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
	l.calls++
	u.mu.Unlock()
	leave := func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if l.calls--; l.calls == 0 {
			delete(u.locks, user)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("cql: wait for other calls on user %q: %w", user, ctx.Err())
	}
}

// forEach calls f with every index from 0 to n-1. Up to s.parallel calls run concurrently.
// After the first error, forEach cancels the ctx of the running calls and starts no more calls.
// It waits for the running calls, and returns the first error.
func (s *Store) forEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	return forEach(ctx, n, s.parallel, f)
}

// forEach calls f for 0 to n-1. At most the given number of calls run at a time. If one fails,
// forEach cancels the context of the others, and returns the first error.
func forEach(ctx context.Context, n, parallel int, f func(ctx context.Context, i int) error) error {
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

// gather reads each row of q into dest and then calls value. It returns the values of
// these calls, in the order of the rows. With an error, the values may be incomplete.
func gather[T any](ctx context.Context, c conn, q op, dest []any, value func() (T, error)) ([]T, error) {
	var out []T
	var valueErr error
	err := c.read(ctx, q, dest, func() bool {
		v, err := value()
		if err != nil {
			valueErr = err
			return false
		}
		out = append(out, v)
		return true
	})
	if err == nil {
		err = valueErr
	}
	return out, err
}

// take returns a scanned blob and clears the variable, so that the next row does
// not overwrite the blob.
func take(b *[]byte) []byte {
	out := slices.Clip(*b)
	*b = nil
	return out
}
