package cql

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

// pageRows is the number of rows that the driver fetches at a time. One fetch returns the two
// pages of final standings that one statement reads: see finalRead.
const pageRows = 2 * finalPage

// An op is a statement with its arguments.
type op struct {
	stmt string
	args []any
}

// A conn is the part of a session that the store uses. Tests wrap a conn to inject faults,
// and to stop the store between two statements.
type conn interface {
	// read runs a SELECT. It scans each row into dest and then calls visit. It stops when
	// visit returns false.
	read(ctx context.Context, q op, dest []any, visit func() bool) error
	// write runs statements atomically. They must have the same partition key, possibly in
	// several tables. write returns nil once a quorum of the replicas has stored the changes.
	write(ctx context.Context, ops ...op) error
	// swap runs a conditional statement and reports whether the condition held.
	// If the condition did not hold, swap puts the current columns into row.
	swap(ctx context.Context, q op, row map[string]any) (bool, error)
	close()
}

// session is the conn to a Cassandra cluster.
type session struct{ *gocql.Session }

func (s session) read(ctx context.Context, q op, dest []any, visit func() bool) error {
	iter := s.Query(q.stmt, q.args...).WithContext(ctx).Iter()
	for iter.Scan(dest...) {
		if !visit() {
			break
		}
	}
	return wrapError(ctx, "read", iter.Close())
}

func (s session) write(ctx context.Context, ops ...op) error {
	if len(ops) == 1 {
		return wrapError(ctx, "write", s.Query(ops[0].stmt, ops[0].args...).WithContext(ctx).Exec())
	}
	return wrapError(ctx, "write", s.ExecuteBatch(s.batch(ops).WithContext(ctx)))
}

// batch returns an unlogged batch of the statements. It marks each statement as
// idempotent, because DefaultIdempotence in the driver's configuration does not apply
// to batches.
func (s session) batch(ops []op) *gocql.Batch {
	b := s.NewBatch(gocql.UnloggedBatch)
	for _, o := range ops {
		b.Query(o.stmt, o.args...)
	}
	for i := range b.Entries {
		b.Entries[i].Idempotent = true
	}
	return b
}

func (s session) swap(ctx context.Context, q op, row map[string]any) (bool, error) {
	ok, err := s.Query(q.stmt, q.args...).WithContext(ctx).Idempotent(false).RetryPolicy(nil).MapScanCAS(row)
	return ok, wrapError(ctx, "swap", err)
}

func (s session) close() { s.Close() }

// wrapError wraps an error of the driver. The text names the operation, such as "read". If a
// retry may succeed, or if the outcome of a write is unknown, the returned error also wraps
// [leaderboard.ErrUnavailable]. If err is nil, wrapError returns nil.
func wrapError(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	var request gocql.RequestError
	if errors.As(err, &request) && !isTransient(request.Code()) {
		return fmt.Errorf("cql: %s: %w", operation, err)
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("cql: %s: %w: %w", operation, leaderboard.ErrUnavailable, err)
}
