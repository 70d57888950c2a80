package cql

import (
	"context"
	"iter"
	"time"

	"github.com/open-leaderboard/leaderboard/storage"
)

// Register returns the value of a register.
func (s *Store) Register(ctx context.Context, list, key string) (value []byte, err error) {
	err = s.conn.read(ctx, op{selectRegister, []any{list, key}}, []any{&value}, func() bool { return true })
	return value, err
}

// Registers returns the registers of a list.
func (s *Store) Registers(ctx context.Context, list string, tag []byte) ([]storage.Register, error) {
	q := op{selectRegisters, []any{list}}
	if tag != nil {
		q = op{selectTagged, []any{list, tag}}
	}
	var r storage.Register
	return gather(ctx, s.conn, q, []any{&r.Key, &r.Value}, func() (storage.Register, error) {
		return storage.Register{Key: r.Key, Value: take(&r.Value)}, nil
	})
}

// Swap replaces a register by a lightweight transaction. The transaction needs a quorum of all data
// centers.
func (s *Store) Swap(ctx context.Context, list string, old []byte, r storage.Register) (bool, error) {
	ttl := int(r.TTL / time.Second)
	q := op{changeRegister, []any{ttl, r.Tag, r.Value, list, r.Key, old}}
	switch {
	case r.Value == nil:
		q = op{removeRegister, []any{list, r.Key, old}}
	case old == nil:
		q = op{createRegister, []any{list, r.Key, r.Tag, r.Value, ttl}}
	}
	return s.conn.swap(ctx, q, map[string]any{})
}

// WriteRows writes consecutive rows of one list in batches.
func (s *Store) WriteRows(ctx context.Context, writes ...storage.RowWrite) error {
	for len(writes) > 0 {
		list := writes[0].List
		var ops []op
		for len(writes) > 0 && writes[0].List == list {
			w := &writes[0]
			if w.Value == nil {
				ops = append(ops, op{deleteListRow, []any{w.Version, list, w.Key}})
			} else {
				ops = append(ops, op{insertListRow, []any{list, w.Key, w.Value, w.Version}})
			}
			writes = writes[1:]
		}
		if err := s.writeBatches(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

// Rows yields the rows of a list.
func (s *Store) Rows(ctx context.Context, list string, after []byte) iter.Seq2[storage.Row, error] {
	return func(yield func(storage.Row, error) bool) {
		if after == nil {
			after = []byte{} // the driver sends nil as null
		}
		var row storage.Row
		stopped := false
		err := s.conn.read(ctx, op{selectListRows, []any{list, after}}, []any{&row.Key, &row.Value}, func() bool {
			stopped = !yield(storage.Row{Key: take(&row.Key), Value: take(&row.Value)}, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(storage.Row{}, err)
		}
	}
}
