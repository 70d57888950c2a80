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
	d := decoder{b: b}
	r.Tag, r.Value = []byte(d.string()), bytes.Clone(d.b)
	if d.bad {
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
		err = batch.Set(registerKey(list, r.Key), append(appendString(nil, r.Tag), r.Value...), nil)
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
	d := decoder{b: b}
	version := d.uvarint()
	if d.bad {
		return cell{}, errFormat("row")
	}
	c := cell{version: int64(version)}
	if len(d.b) > 0 {
		c.value = d.b
	}
	return c, nil
}

func (c *cell) beats(o *cell) bool {
	if c.version != o.version {
		return c.version > o.version
	}
	return o.value != nil && (c.value == nil || bytes.Compare(c.value, o.value) > 0)
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
	for i := range writes {
		w := &writes[i]
		key, next, wins := rowKey(w.List, w.Key), cell{w.Version, w.Value}, true
		_, err := s.get(key, func(b []byte) error {
			stored, err := decodeCell(b)
			wins = next.beats(&stored)
			return err
		})
		if err == nil && wins {
			err = batch.Set(key, append(binary.AppendUvarint(nil, uint64(w.Version)), w.Value...), nil)
		}
		if err != nil {
			unlock()
			return err
		}
	}
	return s.commit(ctx, batch, unlock)
}

// Rows implements [storage.Rows].
func (s *Store) Rows(ctx context.Context, list string, after []byte) iter.Seq2[storage.Row, error] {
	prefix := rowKey(list, nil)
	lower := append(slices.Clone(prefix), after...)
	if len(after) > 0 {
		lower = append(lower, 0)
	}
	return scanRows(ctx, s, lower, keyAfter(prefix), func(key, value []byte) (storage.Row, bool, error) {
		c, err := decodeCell(value)
		return storage.Row{Key: bytes.Clone(key[len(prefix):]), Value: bytes.Clone(c.value)}, c.value != nil, err
	})
}
