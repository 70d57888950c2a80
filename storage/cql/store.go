// Package cql is the [storage.Backend] on Cassandra. Any number of processes may use one
// keyspace concurrently. README.md has the guarantees and caveats. state.go explains why no
// locks are needed.
//
// The migrations in schema/cql define the tables. In addition:
//
//   - The column `standing` is the sort key without the user id.
//   - The table match_results has static cells: the user's account, stored summaries
//     (adopt.go), and the divisions in whose ladders the user may have rows. The column
//     `owners` has claims (summary.go), adoptions (adopt.go) and elements that noteRaise
//     added (state.go).
//   - A row of user_entries without an entry registers a user: the user has data in the
//     season, or will soon have data.
//   - The column `changed` of table seasons has the time of the season's last change
//     (NoteChange).
//   - The tables registers, rows and transient_rows have the registers and rows of package
//     storage.
//   - If the column `season` of table seasons begins with a tab, the row records deletions
//     (deletionRow).
package cql

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
	"github.com/open-leaderboard/leaderboard/schema"
	"github.com/open-leaderboard/leaderboard/storage"
)

const (
	defaultParallel   = 32
	defaultMaxMatches = 1_000_000
)

// Store is a [storage.Backend] in a keyspace. Calls that change the same user run one after
// another.
type Store struct {
	conn conn
	dc   string // the local data center
	// data centers that have replicas of the keyspace
	dataCenters func(context.Context) ([]string, error)
	// random; identifies this store in its claims
	name     [8]byte
	buckets  int // of each ladder of a new board
	parallel int
	// see state.go and adopt.go; tests lower both
	headRows, storedFrom int
	// bounds a user's matches in a season: one call must be able to read all of them
	maxMatches int64
	maxSeasons int // of a board: see checkSeasons
	now        func() time.Time

	incarnations incarnations
	boards       coalesce.Group[leaderboard.BoardID, *storedBoard] // see liveBoard
	writes       coalesce.Group[bucket, []op]                      // see writeBuckets
	users        userLocks
	applying     chan struct{}                // has an element for each user whom Apply processes
	sequence     atomic.Int64                 // number of the last stored summary
	cache        *lru.Cache[userKey, summary] // nil disables caching
	engine       storage.Engine
	walk         ladderWalk // see RemoveOrphanRows
	full         sync.Map   // until when checkSeasons regards a board as full, as time.Time by board id
}

var _ storage.Backend = (*Store)(nil)

// Open connects to a keyspace. Its schema must not be older than this program. Errors:
// those of [schema.Check] and [schema.CheckDataCenter]; [leaderboard.ErrUnavailable] if no
// node of the data center answers.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry() // registered after a success, so that the caller can call Open again
	if o.Registerer != nil {
		o.metrics = newMetrics(registry)
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		return nil, err
	}
	err = schema.Check(ctx, gs)
	switch {
	case errors.Is(err, schema.ErrOlder), errors.Is(err, schema.ErrChanged):
		err = fmt.Errorf("cql: keyspace %q: %w", o.Keyspace, err)
	case err != nil:
		err = wrapError(ctx, "check the schema", err)
	case o.Registerer != nil:
		err = o.Registerer.Register(registry)
	}
	if err != nil {
		gs.Close()
		return nil, err
	}
	s := open(session{gs}, o)
	s.dataCenters = replicatedTo(gs, o.Keyspace)
	return s, nil
}

func open(c conn, o Options) *Store {
	s := &Store{conn: c, applying: make(chan struct{}, maxApplying), dc: o.DataCenter, buckets: o.Buckets, parallel: defaultParallel, headRows: headRows, storedFrom: storedFrom, maxMatches: defaultMaxMatches, maxSeasons: leaderboard.MaxBoardSeasons, now: time.Now}
	if _, err := rand.Read(s.name[:]); err != nil {
		panic(err)
	}
	s.walk.last.division = hex.EncodeToString(s.name[:]) // random
	s.dataCenters = func(context.Context) ([]string, error) { return []string{s.dc}, nil }
	s.incarnations.reads.Call = s.readIncarnations
	s.boards.Call = s.readBoards
	s.writes.Call, s.writes.MaxBatch = s.writeBucket, mostWrites
	if o.CacheUsers > 0 {
		s.cache, _ = lru.New[userKey, summary](o.CacheUsers)
	}
	return s
}

// Close ends the session.
func (s *Store) Close() error {
	s.conn.close()
	return nil
}

type userLocks struct {
	mu    sync.Mutex
	locks map[leaderboard.UserID]*userLock
}

type userLock struct {
	held  chan struct{}
	calls int // that hold or wait for the lock
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

// Environment implements [storage.Backend].
func (s *Store) Environment() storage.Environment {
	return storage.Environment{Region: s.dc, Regions: s.dataCenters, Parallel: s.parallel, Now: s.now}
}

func (s *Store) forEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	return storage.Environment{Parallel: s.parallel}.ForEach(ctx, n, f)
}

// replicatedTo returns a function that reads which data centers have replicas of a keyspace.
func replicatedTo(gs *gocql.Session, keyspace string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var replication map[string]string
		err := gs.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).WithContext(ctx).Scan(&replication)
		delete(replication, "class")
		return slices.Sorted(maps.Keys(replication)), wrapError(ctx, "read", err)
	}
}

// gather scans each row of q into dest, and calls the function value after each row. It
// returns the results of these calls.
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

// take returns *b and sets *b to nil. Otherwise the next row would overwrite the bytes.
func take(b *[]byte) []byte {
	out := slices.Clip(*b)
	*b = nil
	return out
}
