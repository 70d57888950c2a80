package cql

import (
	"context"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard/schema"
)

// Inspection is the state of a keyspace, for operators.
type Inspection struct {
	Migrations []schema.Migration
	// Replication has the replicas of each data center, and the class, as Cassandra names them.
	Replication map[string]string
	// Clock is the time of a node at an instant during the call.
	Clock time.Time
}

// Inspect reads the state of the keyspace. Errors: those of [Open], except for an old schema.
func Inspect(ctx context.Context, o Options) (Inspection, error) {
	if err := o.complete(); err != nil {
		return Inspection{}, err
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		return Inspection{}, err
	}
	defer gs.Close()
	var i Inspection
	if i.Migrations, err = schema.Status(ctx, gs); err != nil {
		return Inspection{}, err
	}
	if err := gs.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", o.Keyspace).WithContext(ctx).Scan(&i.Replication); err != nil {
		return Inspection{}, fmt.Errorf("cql: replication of keyspace %q: %w", o.Keyspace, err)
	}
	if err := gs.Query("SELECT toTimestamp(now()) FROM system.local").WithContext(ctx).Scan(&i.Clock); err != nil {
		return Inspection{}, fmt.Errorf("cql: clock of a node: %w", err)
	}
	return i, nil
}
