package schema

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/gocql/gocql"
)

// The column realm is always 0, so each table is one partition.
const (
	createLock = `CREATE TABLE IF NOT EXISTS schema_lock (realm tinyint PRIMARY KEY, owner text) WITH id = %s`
	takeLock   = `INSERT INTO schema_lock (realm, owner) VALUES (0, ?) IF NOT EXISTS USING TTL ?`
	renewLock  = `UPDATE schema_lock USING TTL ? SET owner = ? WHERE realm = 0 IF owner = ?`
	freeLock   = `DELETE FROM schema_lock WHERE realm = 0 IF owner = ?`

	createMigrations = `CREATE TABLE IF NOT EXISTS schema_migrations (realm tinyint, version int, name text, checksum text, applied_at timestamp, PRIMARY KEY ((realm), version))`
	selectMigrations = `SELECT version, name, checksum, applied_at FROM schema_migrations WHERE realm = 0`
	insertMigration  = `INSERT INTO schema_migrations (realm, version, name, checksum, applied_at) VALUES (0, ?, ?, ?, ?)`
)

const (
	// leaseTime is the time after which the lock of a dead process expires.
	leaseTime = 2 * time.Minute
	lockPoll  = 250 * time.Millisecond
	// spreadTime bounds the time until every node knows a new keyspace or table. Until a
	// node knows it, statements on this node fail and are retried.
	spreadTime = time.Minute
)

// retry calls f until it succeeds, for up to spreadTime.
func retry[T any](ctx context.Context, f func() (T, error)) (T, error) {
	return backoff.Retry(ctx, f, backoff.WithBackOff(backoff.NewConstantBackOff(lockPoll)), backoff.WithMaxElapsedTime(spreadTime))
}

// fromLateNode reports whether an error may come from a node that does not know the lock's table
// yet. A retry is safe even after the lock was taken: its row names the owner.
func fromLateNode(err error) bool {
	var request gocql.RequestError
	if !errors.As(err, &request) {
		return false
	}
	switch request.Code() {
	case gocql.ErrCodeInvalid, gocql.ErrCodeReadFailure, gocql.ErrCodeWriteFailure,
		gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteTimeout, gocql.ErrCodeCASWriteUnknown:
		return true
	}
	return false
}

// Apply applies the migrations that a keyspace lacks. It creates a missing keyspace with the given
// replicas per data center. The function connect opens a session in a keyspace, or in none if the
// name is empty. Apply calls progress, if not nil, after each migration. Concurrent calls wait. An
// interrupted Apply can be called again. Errors: [ErrNewer], [ErrUnreleased], [ErrChanged].
func Apply(ctx context.Context, connect func(keyspace string) (*gocql.Session, error), keyspace string, replicas map[string]int, progress func(Migration)) error {
	all, err := ownMigrations()
	if err != nil {
		return err
	}
	return apply(ctx, connect, keyspace, replicas, all, progress)
}

func apply(ctx context.Context, connect func(keyspace string) (*gocql.Session, error), keyspace string, replicas map[string]int, all []Migration, progress func(Migration)) error {
	stmt, err := createKeyspace(keyspace, replicas)
	if err != nil {
		return err
	}
	bare, err := connect("")
	if err != nil {
		return fmt.Errorf("schema: connect: %w", err)
	}
	defer bare.Close()
	if err := ddl(ctx, bare, stmt); err != nil {
		return err
	}
	session, err := retry(ctx, func() (*gocql.Session, error) { return connect(keyspace) })
	if err != nil {
		return fmt.Errorf("schema: connect: %w", err)
	}
	defer session.Close()
	l := lease{session: session, owner: rand.Text(), duration: leaseTime}
	if err := l.take(ctx, keyspace); err != nil {
		return err
	}
	return errors.Join(l.migrate(ctx, all, progress), l.free(ctx))
}

var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// CheckReplicas checks that the keyspace has exactly the given replicas in each data center.
// Errors: [ErrReplicas], with the statement that changes the replication.
func CheckReplicas(ctx context.Context, session *gocql.Session, keyspace string, replicas map[string]int) error {
	var current map[string]string
	err := session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).WithContext(ctx).Scan(&current)
	if err != nil {
		return fmt.Errorf("schema: replication of keyspace %q: %w", keyspace, err)
	}
	want := map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy"}
	for dc, n := range replicas {
		want[dc] = strconv.Itoa(n)
	}
	if maps.Equal(want, current) {
		return nil
	}
	options, err := replication(replicas)
	if err != nil {
		return err
	}
	return fmt.Errorf("schema: keyspace %q has the replication %v; to change it, run ALTER KEYSPACE %s WITH replication = %s, and then nodetool rebuild or repair: %w",
		keyspace, current, keyspace, options, ErrReplicas)
}

// CheckDataCenter checks that the data center has a node. Errors: [ErrDataCenter], with the existing
// data centers.
func CheckDataCenter(ctx context.Context, session *gocql.Session, name string) error {
	existing := map[string]bool{}
	for _, table := range []string{"system.local", "system.peers"} {
		rows := session.Query("SELECT data_center FROM " + table).WithContext(ctx).Iter()
		for dc := ""; rows.Scan(&dc); {
			existing[dc] = true
		}
		if err := rows.Close(); err != nil {
			return fmt.Errorf("schema: data centers: %w", err)
		}
	}
	if existing[name] {
		return nil
	}
	return fmt.Errorf("schema: data center %q does not exist, the cluster has %v: %w", name, slices.Sorted(maps.Keys(existing)), ErrDataCenter)
}

func createKeyspace(name string, replicas map[string]int) (string, error) {
	if !keyspaceName.MatchString(name) {
		return "", fmt.Errorf("schema: keyspace %q must be a lower-case letter followed by at most 47 lower-case letters, digits or underscores", name)
	}
	options, err := replication(replicas)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = %s", name, options), nil
}

func replication(replicas map[string]int) (string, error) {
	if len(replicas) == 0 {
		return "", errors.New("schema: no data center is given for the replicas")
	}
	options := []string{"'class': 'NetworkTopologyStrategy'"}
	for _, dc := range slices.Sorted(maps.Keys(replicas)) {
		if dc == "" || strings.ContainsAny(dc, "'\\") || replicas[dc] < 1 {
			return "", fmt.Errorf("schema: %d replicas in data center %q: the number must be at least 1, and the name must not be empty or contain ' or \\", replicas[dc], dc)
		}
		options = append(options, fmt.Sprintf("'%s': %d", dc, replicas[dc]))
	}
	return "{" + strings.Join(options, ", ") + "}", nil
}

func ddl(ctx context.Context, session *gocql.Session, stmt string) error {
	first, _, _ := strings.Cut(stmt, "\n")
	if err := session.Query(stmt).WithContext(ctx).RetryPolicy(nil).Exec(); err != nil {
		return fmt.Errorf("schema: %s: %w", first, err)
	}
	if err := session.AwaitSchemaAgreement(ctx); err != nil {
		return fmt.Errorf("schema: the nodes do not agree on the schema after %s: %w", first, err)
	}
	return nil
}

// lease is Apply's lock. It expires unless the holder renews it.
type lease struct {
	session  *gocql.Session
	owner    string
	duration time.Duration
}

func (l *lease) take(ctx context.Context, keyspace string) error {
	// Two nodes that create a table concurrently with different ids never agree on the schema
	// again. So the statement names the id.
	sum := sha256.Sum256([]byte("leaderboard schema_lock of " + keyspace))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // a UUID of version 8
	id, err := gocql.UUIDFromBytes(sum[:16])
	if err != nil {
		return err
	}
	if err := ddl(ctx, l.session, fmt.Sprintf(createLock, id)); err != nil {
		return err
	}
	return l.wait(ctx)
}

var errLocked = errors.New("another process holds the lock")

func (l *lease) wait(ctx context.Context) error {
	var takeErr error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		taken, err := retry(ctx, func() (bool, error) { return l.tryTake(ctx) })
		switch {
		case err != nil:
			takeErr = err
			err = backoff.Permanent(err)
		case !taken:
			err = errLocked
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(lockPoll)), backoff.WithMaxElapsedTime(0))
	switch {
	case takeErr != nil:
		return fmt.Errorf("schema: take the lock: %w", takeErr)
	case err != nil:
		return fmt.Errorf("schema: another process is applying migrations; wait until it ends, then run the command again: %w", err)
	}
	return nil
}

// tryTake takes the lock if it is free, and reports whether l holds it. Errors that a retry
// cannot fix are [backoff.PermanentError].
func (l *lease) tryTake(ctx context.Context) (bool, error) {
	row := map[string]any{}
	taken, err := l.cas(ctx, row, takeLock, l.owner, int(l.duration.Seconds()))
	if err != nil && !fromLateNode(err) {
		err = backoff.Permanent(err)
	}
	// An earlier attempt may have taken the lock.
	return taken || row["owner"] == l.owner, err
}

// cas reports whether a statement's condition was true. If not, row gets the current columns.
func (l *lease) cas(ctx context.Context, row map[string]any, stmt string, args ...any) (bool, error) {
	return l.session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCAS(row)
}

func (l *lease) renew(ctx context.Context) error {
	ok, err := l.cas(ctx, map[string]any{}, renewLock, int(l.duration.Seconds()), l.owner, l.owner)
	if err == nil && !ok {
		err = errors.New("the lock has expired; run the command again")
	}
	if err != nil {
		return fmt.Errorf("schema: renew the lock: %w", err)
	}
	return nil
}

func (l *lease) free(ctx context.Context) error {
	if _, err := l.cas(context.WithoutCancel(ctx), map[string]any{}, freeLock, l.owner); err != nil {
		return fmt.Errorf("schema: free the lock, which expires after %v: %w", l.duration, err)
	}
	return nil
}

func (l *lease) migrate(ctx context.Context, all []Migration, progress func(Migration)) error {
	if err := ddl(ctx, l.session, createMigrations); err != nil {
		return err
	}
	applied, err := appliedMigrations(ctx, l.session)
	if err != nil {
		return err
	}
	if err := checkApplied(all, applied); err != nil {
		return err
	}
	for _, m := range all[len(applied):] {
		for _, stmt := range m.statements {
			if err := l.renew(ctx); err != nil {
				return err
			}
			if err := ddl(ctx, l.session, stmt); err != nil {
				return fmt.Errorf("version %d: %w", m.Version, err)
			}
		}
		m.AppliedAt = time.Now().UTC().Truncate(time.Millisecond)
		if err := l.session.Query(insertMigration, m.Version, m.Name, m.Checksum, m.AppliedAt).
			WithContext(ctx).Consistency(gocql.Quorum).Exec(); err != nil {
			return fmt.Errorf("schema: record version %d: %w", m.Version, err)
		}
		if progress != nil {
			progress(m)
		}
	}
	return nil
}
