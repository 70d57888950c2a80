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
	// leaseTime is how long the lock outlives a process that died with it.
	leaseTime = 2 * time.Minute
	lockPoll  = 250 * time.Millisecond
	// spreadTime is how long a keyspace or table that another process made may
	// take to be known to every node: who finds it made does not hear of that.
	spreadTime = time.Minute
)

// soon repeats f until a node answers that knows what f needs.
func soon[T any](ctx context.Context, f func() (T, error)) (T, error) {
	return backoff.Retry(ctx, f, backoff.WithBackOff(backoff.NewConstantBackOff(lockPoll)), backoff.WithMaxElapsedTime(spreadTime))
}

// spreads says whether an error may be of a node that does not know the lock's
// table yet: the one that is asked, or a replica that it asks, which fails or is
// late. What that left done may be repeated, as the lock knows its owner.
func spreads(err error) bool {
	var refused gocql.RequestError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code() {
	case gocql.ErrCodeInvalid, gocql.ErrCodeReadFailure, gocql.ErrCodeWriteFailure,
		gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteTimeout, gocql.ErrCodeCASWriteUnknown:
		return true
	}
	return false
}

// Apply makes a keyspace, with the given number of replicas in each data center,
// unless it exists, and applies the migrations that it lacks. connect opens a
// session in a keyspace, or in none. One Apply works at a time, others wait until
// ctx is done; each statement may be repeated, so an Apply that was cut short is
// run again. progress is told of each migration once it is applied, and may be
// nil. Errors: [ErrNewer], [ErrChanged].
func Apply(ctx context.Context, connect func(keyspace string) (*gocql.Session, error), keyspace string, replicas map[string]int, progress func(Migration)) error {
	all, err := embedded()
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
	session, err := soon(ctx, func() (*gocql.Session, error) { return connect(keyspace) })
	if err != nil {
		return fmt.Errorf("schema: connect: %w", err)
	}
	defer session.Close()
	l := lease{session: session, owner: rand.Text(), time: leaseTime}
	if err := l.take(ctx, keyspace); err != nil {
		return err
	}
	return errors.Join(l.migrate(ctx, all, progress), l.free(ctx))
}

// keyspaceName is what needs no quotes in CQL.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// CheckReplicas returns [ErrReplicas], with the statement that would change it,
// unless a keyspace keeps as many replicas in each data center.
func CheckReplicas(ctx context.Context, session *gocql.Session, keyspace string, replicas map[string]int) error {
	var have map[string]string
	err := session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).WithContext(ctx).Scan(&have)
	if err != nil {
		return fmt.Errorf("schema: replication of keyspace %q: %w", keyspace, err)
	}
	want := map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy"}
	for dc, n := range replicas {
		want[dc] = strconv.Itoa(n)
	}
	if maps.Equal(want, have) {
		return nil
	}
	options, err := replication(replicas)
	if err != nil {
		return err
	}
	return fmt.Errorf("schema: keyspace %q has the replication %v; to change it run ALTER KEYSPACE %s WITH replication = %s, and then nodetool rebuild or repair: %w",
		keyspace, have, keyspace, options, ErrReplicas)
}

// CheckDataCenter returns [ErrDataCenter], with those that there are, unless a node
// is in the data center of the name. Drivers take the nodes of others instead, and
// so the quorum of any.
func CheckDataCenter(ctx context.Context, session *gocql.Session, name string) error {
	have := map[string]bool{}
	for _, table := range []string{"system.local", "system.peers"} {
		rows := session.Query("SELECT data_center FROM " + table).WithContext(ctx).Iter()
		for dc := ""; rows.Scan(&dc); {
			have[dc] = true
		}
		if err := rows.Close(); err != nil {
			return fmt.Errorf("schema: data centers: %w", err)
		}
	}
	if have[name] {
		return nil
	}
	return fmt.Errorf("schema: data center %q is none of %v: %w", name, slices.Sorted(maps.Keys(have)), ErrDataCenter)
}

func createKeyspace(name string, replicas map[string]int) (string, error) {
	if !keyspaceName.MatchString(name) {
		return "", fmt.Errorf("schema: keyspace %q is not a lower-case letter and then at most 47 letters, digits or underscores", name)
	}
	options, err := replication(replicas)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = %s", name, options), nil
}

func replication(replicas map[string]int) (string, error) {
	if len(replicas) == 0 {
		return "", errors.New("schema: no data center is named to keep replicas in")
	}
	options := []string{"'class': 'NetworkTopologyStrategy'"}
	for _, dc := range slices.Sorted(maps.Keys(replicas)) {
		if dc == "" || strings.ContainsAny(dc, "'\\") || replicas[dc] < 1 {
			return "", fmt.Errorf("schema: %d replicas in data center %q cannot be", replicas[dc], dc)
		}
		options = append(options, fmt.Sprintf("'%s': %d", dc, replicas[dc]))
	}
	return "{" + strings.Join(options, ", ") + "}", nil
}

// ddl runs a statement that changes the schema and returns once all nodes agree.
func ddl(ctx context.Context, session *gocql.Session, stmt string) error {
	first, _, _ := strings.Cut(stmt, "\n")
	if err := session.Query(stmt).WithContext(ctx).RetryPolicy(nil).Exec(); err != nil {
		return fmt.Errorf("schema: %s: %w", first, err)
	}
	if err := session.AwaitSchemaAgreement(ctx); err != nil {
		return fmt.Errorf("schema: agreement after %s: %w", first, err)
	}
	return nil
}

// A lease is the lock, held until it is freed or its time is over.
type lease struct {
	session *gocql.Session
	owner   string
	time    time.Duration
}

func (l *lease) take(ctx context.Context, keyspace string) error {
	// Two nodes that create one table at a time give it two ids, and do not
	// agree any more, unless the id is given. Everything after is done with the
	// lock held.
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

// wait takes the lock once nobody holds it.
func (l *lease) wait(ctx context.Context) error {
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		var have map[string]any
		ok, err := soon(ctx, func() (bool, error) {
			have = map[string]any{}
			ok, err := l.cas(ctx, have, takeLock, l.owner, int(l.time.Seconds()))
			if err != nil && !spreads(err) {
				err = backoff.Permanent(err)
			}
			return ok, err
		})
		if err != nil {
			return fmt.Errorf("schema: take the lock: %w", err)
		}
		if ok || have["owner"] == l.owner { // a try whose answer was lost
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("schema: another process is applying migrations: %w", ctx.Err())
		}
	}
}

func (l *lease) cas(ctx context.Context, have map[string]any, stmt string, args ...any) (bool, error) {
	return l.session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCAS(have)
}

// renew makes sure that the lock is still held, and for another while.
func (l *lease) renew(ctx context.Context) error {
	ok, err := l.cas(ctx, map[string]any{}, renewLock, int(l.time.Seconds()), l.owner, l.owner)
	if err == nil && !ok {
		err = errors.New("another process took it")
	}
	if err != nil {
		return fmt.Errorf("schema: renew the lock: %w", err)
	}
	return nil
}

func (l *lease) free(ctx context.Context) error {
	if _, err := l.cas(context.WithoutCancel(ctx), map[string]any{}, freeLock, l.owner); err != nil {
		return fmt.Errorf("schema: free the lock, which is held for %v more: %w", l.time, err)
	}
	return nil
}

func (l *lease) migrate(ctx context.Context, all []Migration, progress func(Migration)) error {
	if err := ddl(ctx, l.session, createMigrations); err != nil {
		return err
	}
	have, err := applied(ctx, l.session)
	if err != nil {
		return err
	}
	if err := compare(all, have); err != nil {
		return err
	}
	for _, m := range all[len(have):] {
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
