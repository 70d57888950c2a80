package cql

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

// pageRows is the number of rows that the driver fetches at a time.
const pageRows = 2000

type op struct {
	stmt string
	args []any
}

// A conn is the part of a session that the store uses. Tests replace it to inject faults
// and to order statements.
type conn interface {
	// read runs a SELECT. It scans each row into dest and calls visit, until visit returns
	// false.
	read(ctx context.Context, q op, dest []any, visit func() bool) error
	// write runs statements with the same partition key atomically, possibly on several
	// tables. It returns nil once a quorum has the changes.
	write(ctx context.Context, ops ...op) error
	// swap runs a conditional statement and reports whether the condition held. If not, it
	// puts the current columns into row.
	swap(ctx context.Context, q op, row map[string]any) (bool, error)
	close()
}

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

// The driver does not apply DefaultIdempotence to batches.
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

// wrapError wraps an error of the driver. If a retry may succeed, or if the outcome of a
// write is unknown, the result also wraps [leaderboard.ErrUnavailable].
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
