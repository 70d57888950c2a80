package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

// lockLists takes the stripes of lists: see [stripes].
func (s *Store) lockLists(ctx context.Context, lists ...string) (unlock func(), err error) {
	var numbers []int
	for _, list := range lists {
		numbers = append(numbers, stripeOf(list))
	}
	return s.lockStripes(ctx, numbers)
}

// Register implements [storage.Registers].
func (s *Store) Register(ctx context.Context, list, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("pebble: %w", err)
	}
	s.expiringMu.Lock()
	expiring := s.expiring[string(registerKey(list, key))]
	s.expiringMu.Unlock()
	if s.now().Before(expiring.until) {
		return expiring.value, nil
	}
	r, err := s.register(list, key)
	if err != nil || r.Value == nil {
		return nil, err
	}
	return r.Value, s.syncVisible(ctx)
}

// An expiringRegister is kept in memory only, because no other process can open the store.
type expiringRegister struct {
	value []byte
	until time.Time
}

// purgeInterval is the shortest time between two removals of expired registers.
const purgeInterval = time.Second

func (s *Store) swapExpiring(ctx context.Context, list string, old []byte, r storage.Register) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("pebble: %w", err)
	}
	if err := s.failure(); err != nil {
		return false, err
	}
	s.expiringMu.Lock()
	defer s.expiringMu.Unlock()
	now := s.now()
	if now.Sub(s.purgedAt).Abs() >= purgeInterval {
		s.purgedAt = now
		maps.DeleteFunc(s.expiring, func(_ string, r expiringRegister) bool { return !now.Before(r.until) })
	}
	key := string(registerKey(list, r.Key))
	current := s.expiring[key]
	if !now.Before(current.until) {
		current.value = nil
	}
	if !bytes.Equal(current.value, old) {
		return false, nil
	}
	s.expiring[key] = expiringRegister{r.Value, now.Add(r.TTL)}
	return true, nil
}

// register returns a register without a value if the register does not exist.
func (s *Store) register(list, key string) (storage.Register, error) {
	r := storage.Register{Key: key}
	_, err := s.get(registerKey(list, key), func(b []byte) error { return decodeRegister(b, &r) })
	return r, err
}

func decodeRegister(b []byte, r *storage.Register) error {
	d := codec.Decoder{Rest: b}
	r.Tag, r.Value = []byte(d.Text()), bytes.Clone(d.Rest)
	if d.Bad {
		return errFormat("register")
	}
	return nil
}

// Registers implements [storage.Registers].
func (s *Store) Registers(ctx context.Context, list string, tag []byte) ([]storage.Register, error) {
	prefix := registerKey(list, "")
	if tag != nil {
		prefix = tagKey(list, &storage.Register{Tag: tag})
	}
	var out []storage.Register
	err := s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		r := storage.Register{Key: string(key[len(prefix):])}
		if tag == nil {
			err := decodeRegister(value, &r)
			out = append(out, storage.Register{Key: r.Key, Value: r.Value})
			return true, err
		}
		r, err := s.register(list, r.Key)
		if r.Value != nil {
			out = append(out, storage.Register{Key: r.Key, Value: r.Value})
		}
		return true, err
	})
	return out, err
}

// Swap implements [storage.Registers].
func (s *Store) Swap(ctx context.Context, list string, old []byte, r storage.Register) (bool, error) {
	if r.TTL > 0 {
		return s.swapExpiring(ctx, list, old, r)
	}
	unlock, err := s.lockLists(ctx, list)
	if err != nil {
		return false, err
	}
	current, err := s.register(list, r.Key)
	if err != nil || !bytes.Equal(current.Value, old) {
		unlock()
		return false, err
	}
	batch := s.db.NewBatch()
	if len(current.Tag) > 0 {
		err = batch.Delete(tagKey(list, &current), nil)
	}
	if err == nil && r.Value == nil {
		err = batch.Delete(registerKey(list, r.Key), nil)
	} else if err == nil {
		err = batch.Set(registerKey(list, r.Key), append(codec.AppendText(nil, r.Tag), r.Value...), nil)
	}
	if err == nil && r.Value != nil && r.Tag != nil {
		err = batch.Set(tagKey(list, &r), nil, nil)
	}
	if err != nil {
		unlock()
		return false, errUnavailable("write", err)
	}
	err = s.commit(ctx, batch, unlock)
	return err == nil, err
}

// A cell is the stored value of a row. A removed row remains as a cell without a value, because an
// older write may still follow.
type cell struct {
	version int64
	value   []byte // nil if the row was removed
}

func decodeCell(b []byte) (cell, error) {
	d := codec.Decoder{Rest: b}
	version := d.Uvarint()
	if d.Bad {
		return cell{}, errFormat("row")
	}
	c := cell{version: int64(version)}
	if len(d.Rest) > 0 {
		c.value = d.Rest
	}
	return c, nil
}

func (c *cell) beats(o *cell) bool {
	if c.version != o.version {
		return c.version > o.version
	}
	return o.value != nil && (c.value == nil || bytes.Compare(c.value, o.value) > 0)
}

// floorOf returns the version of RemoveRows, or -1.
func (s *Store) floorOf(list string) (floor int64, err error) {
	floor = -1
	_, err = s.get(rowKey(list, nil), func(b []byte) error {
		version, err := decodeUvarint(b)
		floor = int64(version)
		return err
	})
	return floor, err
}

// WriteAll implements [storage.Rows].
func (s *Store) WriteAll(ctx context.Context, writes ...storage.RowWrite) error {
	return s.WriteRows(ctx, writes...)
}

// WriteRows implements [storage.Rows]. The caller must not write one key twice.
func (s *Store) WriteRows(ctx context.Context, writes ...storage.RowWrite) error {
	var lists []string
	for i := range writes {
		lists = append(lists, writes[i].List)
	}
	unlock, err := s.lockLists(ctx, lists...)
	if err != nil {
		return err
	}
	batch := s.db.NewBatch()
	floors := map[string]int64{}
	for i := range writes {
		if err := s.addWrite(batch, &writes[i], floors); err != nil {
			unlock()
			return err
		}
	}
	if batch.Empty() {
		unlock()
		return s.syncVisible(ctx)
	}
	return s.commit(ctx, batch, unlock)
}

func (s *Store) addWrite(batch *pebble.Batch, w *storage.RowWrite, floors map[string]int64) error {
	key, next := rowKey(w.List, w.Key), cell{w.Version, w.Value}
	floor, known := floors[w.List]
	if !known {
		var err error
		if floor, err = s.floorOf(w.List); err != nil {
			return err
		}
		floors[w.List] = floor
	}
	wins := w.Version > floor
	if _, err := s.get(key, func(b []byte) error {
		stored, err := decodeCell(b)
		wins = wins && next.beats(&stored)
		return err
	}); err != nil || !wins {
		return err
	}
	if w.Value == nil && w.Forget {
		return batch.Delete(key, nil)
	}
	return batch.Set(key, append(binary.AppendUvarint(nil, uint64(w.Version)), w.Value...), nil)
}

// RemoveRows implements [storage.Rows].
func (s *Store) RemoveRows(ctx context.Context, version int64, lists ...string) error {
	unlock, err := s.lockLists(ctx, lists...)
	if err != nil {
		return err
	}
	batch := s.db.NewBatch()
	for _, list := range lists {
		if err := s.addRemoval(ctx, batch, list, version); err != nil {
			unlock()
			return err
		}
	}
	if batch.Empty() {
		unlock()
		return s.syncVisible(ctx)
	}
	return s.commit(ctx, batch, unlock)
}

func (s *Store) addRemoval(ctx context.Context, batch *pebble.Batch, list string, version int64) error {
	prefix := rowKey(list, nil)
	floor, err := s.floorOf(list)
	if err == nil && version != storage.Last && version > floor {
		err = batch.Set(prefix, binary.AppendUvarint(nil, uint64(version)), nil)
	}
	if err != nil {
		return err
	}
	return s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		if len(key) == len(prefix) {
			if version == storage.Last {
				return true, batch.Delete(key, nil)
			}
			return true, nil
		}
		c, err := decodeCell(value)
		if err == nil && c.version <= version {
			err = batch.Delete(key, nil)
		}
		return true, err
	})
}

// ListRows implements [storage.Rows].
func (s *Store) ListRows(ctx context.Context, lists []string, prefix []byte) iter.Seq2[storage.ListRow, error] {
	return func(yield func(storage.ListRow, error) bool) {
		for _, list := range lists {
			lower := rowKey(list, prefix)
			for row, err := range rowsFrom(ctx, s.db, list, lower, keyAfter(lower)) {
				if !yield(storage.ListRow{List: list, Row: row}, err) || err != nil {
					return
				}
			}
		}
	}
}

// RowValues implements [storage.Rows].
func (s *Store) RowValues(ctx context.Context, keys ...storage.RowKey) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("pebble: read: %w", err)
	}
	values := make([][]byte, len(keys))
	for i, k := range keys {
		_, err := s.get(rowKey(k.List, k.Key), func(b []byte) error {
			c, err := decodeCell(b)
			values[i] = bytes.Clone(c.value)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return values, nil
}

// RowRanges implements [storage.Rows].
func (s *Store) RowRanges(ctx context.Context, ranges ...storage.RowRange) ([][]storage.Row, error) {
	rows := make([][]storage.Row, len(ranges))
	for i := range ranges {
		r := &ranges[i]
		list := rowKey(r.List, nil)
		lower := slices.Concat(list, r.Prefix)
		if after := slices.Concat(list, r.After, []byte{0}); len(r.After) > 0 && bytes.Compare(after, lower) > 0 {
			lower = after
		}
		err := s.scan(ctx, lower, keyAfter(slices.Concat(list, r.Prefix)), func(key, value []byte) (bool, error) {
			c, err := decodeCell(value)
			if err == nil && c.value != nil {
				rows[i] = append(rows[i], storage.Row{Key: bytes.Clone(key[len(list):]), Value: bytes.Clone(c.value)})
			}
			return len(rows[i]) < r.Limit, err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Rows implements [storage.Rows].
func (s *Store) Rows(ctx context.Context, list string, after []byte) iter.Seq2[storage.Row, error] {
	prefix := rowKey(list, nil)
	lower := append(slices.Clone(prefix), after...)
	if len(after) > 0 {
		lower = append(lower, 0)
	}
	return rowsFrom(ctx, s.db, list, lower, keyAfter(prefix))
}

// rowsOf yields the rows of a list from r, which may be a batch.
func rowsOf(ctx context.Context, r pebble.Reader, list string) iter.Seq2[storage.Row, error] {
	prefix := rowKey(list, nil)
	return rowsFrom(ctx, r, list, prefix, keyAfter(prefix))
}

func rowsFrom(ctx context.Context, r pebble.Reader, list string, lower, upper []byte) iter.Seq2[storage.Row, error] {
	prefix := len(rowKey(list, nil))
	return scanRows(ctx, r, lower, upper, func(key, value []byte) (storage.Row, bool, error) {
		if len(key) == prefix { // see floorOf
			return storage.Row{}, false, nil
		}
		c, err := decodeCell(value)
		return storage.Row{Key: bytes.Clone(key[prefix:]), Value: bytes.Clone(c.value)}, c.value != nil, err
	})
}
