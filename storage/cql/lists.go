package cql

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
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
// centers. Swap creates registers by an UPDATE too: the row that an INSERT makes has a TTL of its own, so it
// would remain after a value with a shorter TTL expires.
func (s *Store) Swap(ctx context.Context, list string, old []byte, r storage.Register) (bool, error) {
	ttl := int(r.TTL / time.Second)
	q := op{changeRegister, []any{ttl, r.Tag, r.Value, list, r.Key, old}}
	if r.Value == nil {
		q = op{removeRegister, []any{list, r.Key, old}}
	}
	return s.conn.swap(ctx, q, map[string]any{})
}

// rowStatements are the statements of a table of rows.
type rowStatements struct{ selectAfter, selectAll, selectFrom, insert, remove, removeAll string }

var (
	rowTable       = rowStatements{selectListRows, selectAllRows, selectRowsFrom, insertListRow, deleteListRow, deleteListRows}
	transientTable = rowStatements{selectTransientRows, selectAllTransientRows, selectTransientRowsFrom, insertTransientRow, deleteTransientRow, deleteTransientRows}
)

func tableOf(list string) *rowStatements {
	if strings.HasPrefix(list, storage.Transient) {
		return &transientTable
	}
	return &rowTable
}

// WriteRows writes consecutive rows of one list in batches.
func (s *Store) WriteRows(ctx context.Context, writes ...storage.RowWrite) error {
	for len(writes) > 0 {
		list := writes[0].List
		var ops []op
		for len(writes) > 0 && writes[0].List == list {
			ops = append(ops, rowWrite(&writes[0]))
			writes = writes[1:]
		}
		if err := s.writeBatches(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

func rowWrite(w *storage.RowWrite) op {
	if w.Value == nil {
		return op{tableOf(w.List).remove, []any{w.Version, w.List, w.Key}}
	}
	return op{tableOf(w.List).insert, []any{w.List, w.Key, w.Value, w.Version}}
}

func timestampOf(version int64) int64 { return min(version, sweepTime) }

// WriteAll writes the rows of different lists concurrently.
func (s *Store) WriteAll(ctx context.Context, writes ...storage.RowWrite) error {
	byList := map[string][]op{}
	for i := range writes {
		w := &writes[i]
		byList[w.List] = append(byList[w.List], rowWrite(w))
	}
	lists := slices.Sorted(maps.Keys(byList))
	return s.forEach(ctx, len(lists), func(ctx context.Context, i int) error { return s.writeBatches(ctx, byList[lists[i]]) })
}

// RemoveRows removes the rows of each list by one deletion.
func (s *Store) RemoveRows(ctx context.Context, version int64, lists ...string) error {
	return s.forEach(ctx, len(lists), func(ctx context.Context, i int) error {
		return s.conn.write(ctx, op{tableOf(lists[i]).removeAll, []any{timestampOf(version), lists[i]}})
	})
}

// ListRows yields the rows of lists.
func (s *Store) ListRows(ctx context.Context, lists []string, prefix []byte) iter.Seq2[storage.ListRow, error] {
	return func(yield func(storage.ListRow, error) bool) {
		if len(lists) == 0 {
			return
		}
		q := op{tableOf(lists[0]).selectAll, []any{lists}}
		if len(prefix) > 0 {
			q = op{tableOf(lists[0]).selectFrom, []any{lists, prefix, keyAfter(prefix)}}
		}
		var row storage.ListRow
		stopped := false
		err := s.conn.read(ctx, q, []any{&row.List, &row.Key, &row.Value}, func() bool {
			stopped = !yield(storage.ListRow{List: row.List, Row: storage.Row{Key: take(&row.Key), Value: take(&row.Value)}}, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(storage.ListRow{}, err)
		}
	}
}

// RowValues reads the rows of each list by one statement.
func (s *Store) RowValues(ctx context.Context, keys ...storage.RowKey) ([][]byte, error) {
	values := make([][]byte, len(keys))
	var lists []string
	indexes := map[string]map[string][]int{} // by list and key
	for i, k := range keys {
		if indexes[k.List] == nil {
			indexes[k.List], lists = map[string][]int{}, append(lists, k.List)
		}
		indexes[k.List][string(k.Key)] = append(indexes[k.List][string(k.Key)], i)
	}
	return values, s.forEach(ctx, len(lists), func(ctx context.Context, n int) error {
		byKey := indexes[lists[n]]
		var asked [][]byte
		for _, key := range slices.Sorted(maps.Keys(byKey)) {
			asked = append(asked, []byte(key))
		}
		var row storage.Row
		return s.conn.read(ctx, op{selectListKeys, []any{lists[n], asked}}, []any{&row.Key, &row.Value}, func() bool {
			value := take(&row.Value)
			for _, i := range byKey[string(row.Key)] {
				values[i] = value
			}
			return true
		})
	})
}

// RowRanges reads each range by one statement.
func (s *Store) RowRanges(ctx context.Context, ranges ...storage.RowRange) ([][]storage.Row, error) {
	rows := make([][]storage.Row, len(ranges))
	return rows, s.forEach(ctx, len(ranges), func(ctx context.Context, i int) (err error) {
		r := &ranges[i]
		lower := r.Prefix
		if after := slices.Concat(r.After, []byte{0}); len(r.After) > 0 && bytes.Compare(after, lower) > 0 {
			lower = after
		}
		var row storage.Row
		rows[i], err = gather(ctx, s.conn, op{selectListRange, []any{r.List, lower, keyAfter(r.Prefix), r.Limit}}, []any{&row.Key, &row.Value}, func() (storage.Row, error) {
			return storage.Row{Key: take(&row.Key), Value: take(&row.Value)}, nil
		})
		return err
	})
}

// keyAfter returns the least key that is greater than all keys with the prefix.
func keyAfter(prefix []byte) []byte {
	end := slices.Clone(prefix)
	for end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return end
}

// Rows yields the rows of a list.
func (s *Store) Rows(ctx context.Context, list string, after []byte) iter.Seq2[storage.Row, error] {
	return func(yield func(storage.Row, error) bool) {
		if after == nil {
			after = []byte{} // the driver sends nil as null
		}
		var row storage.Row
		stopped := false
		err := s.conn.read(ctx, op{tableOf(list).selectAfter, []any{list, after}}, []any{&row.Key, &row.Value}, func() bool {
			stopped = !yield(storage.Row{Key: take(&row.Key), Value: take(&row.Value)}, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(storage.Row{}, err)
		}
	}
}
