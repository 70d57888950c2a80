// Package pebble keeps boards, match results and entries durably in a directory
// of one machine, in a log-structured merge tree (github.com/cockroachdb/pebble).
// On an in-memory file system it is the store of tests.
package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// formatVersion is the version of the key layout and the rows. A store of a
// higher one is refused.
const formatVersion = 1

const (
	defaultCacheBytes = 64 << 20
	memTableBytes     = 32 << 20
	bloomBits         = 10
)

// Options are the settings of a store. The zero Options are fit for use.
type Options struct {
	// FS holds the directory: vfs.NewMem() in tests, the machine's if nil.
	FS vfs.FS
	// CacheBytes bounds the blocks held in memory. Default 64 MiB.
	CacheBytes int64
}

// Store is a [leaderboard.Store] in a directory that no other process uses.
//
// When a write to its files fails, or a flush or compaction behind the writes,
// the store stops writing: from then on every write returns
// [leaderboard.ErrUnavailable], and reads go on, until it is opened again.
type Store struct {
	db *pebble.DB

	boards  atomic.Pointer[catalog] // replaced under admin, by removal under all stripes too
	admin   gate                    // held by who changes boards, API keys, erasures
	stripes [stripes]gate

	commits  sync.WaitGroup // goroutines of commit
	unsynced atomic.Int64   // writes that may be visible and not yet durable
	failOnce sync.Once
	failed   chan struct{} // closed when the store has failed
	failErr  error

	sealMu sync.Mutex
	seals  map[leaderboard.Scope]*seal // under way

	strayMu sync.Mutex
	strays  map[leaderboard.Scope]strays // of scopes that were looked through
}

var _ leaderboard.Store = (*Store)(nil)

// Open opens the store in dir, and makes it if dir is empty or missing. It
// returns [leaderboard.ErrFormat] for the store of a newer version and for what
// is no store of this service, and another error if dir is in use.
func Open(dir string, opts Options) (*Store, error) {
	if dir == "" {
		return nil, fmt.Errorf("pebble: open: no directory is named: %w", leaderboard.ErrInvalid)
	}
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.CacheBytes <= 0 {
		opts.CacheBytes = defaultCacheBytes
	}
	s := &Store{
		admin:  newGate(),
		failed: make(chan struct{}),
		seals:  map[leaderboard.Scope]*seal{},
		strays: map[leaderboard.Scope]strays{},
	}
	for i := range s.stripes {
		s.stripes[i] = newGate()
	}
	var err error
	if s.db, err = s.open(dir, opts); err != nil {
		return nil, fmt.Errorf("pebble: open %q: %w", dir, openError(dir, opts.FS, err))
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("pebble: open %q: %w", dir, err), s.Close())
	}
	return s, nil
}

func (s *Store) open(dir string, opts Options) (db *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic: %v", leaderboard.ErrUnavailable, r)
		}
	}()
	guard := newGuardFS(opts.FS, dir, func(err error) { _ = s.fail(err) })
	cache := pebble.NewCache(opts.CacheBytes)
	defer cache.Unref()
	o := &pebble.Options{
		FS:                          guard,
		Cache:                       cache,
		Logger:                      quiet{s.fail},
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                memTableBytes,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       1000,
		MemTableStopWritesThreshold: 4,
		EventListener: &pebble.EventListener{
			CompactionEnd: func(info pebble.CompactionInfo) {
				// What fails there by reading, as of a damaged file.
				if info.Err != nil && !errors.Is(info.Err, pebble.ErrCancelledCompaction) {
					_ = s.fail(fmt.Errorf("compaction: %w", info.Err)) // whoever writes next returns it
				}
			},
			// The reader that comes upon damaged data gets an error; unset, the
			// engine calls Fatalf besides.
			DataCorruption: func(pebble.DataCorruptionInfo) {},
		},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
	}
	if db, err = pebble.Open(dir, o); err != nil {
		return nil, err
	}
	guard.armed.Store(true)
	return db, s.failure()
}

// openError says what to do about an error of opening dir.
func openError(dir string, fs vfs.FS, err error) error {
	if strings.Contains(err.Error(), "unknown format major version") {
		return fmt.Errorf("it was written by a newer version of this program; start that version or a later one: %w: %w",
			leaderboard.ErrFormat, err)
	}
	if errors.Is(err, leaderboard.ErrUnavailable) {
		return err
	}
	lock, lockErr := pebble.LockDirectory(dir, fs)
	if lockErr != nil {
		return fmt.Errorf("another process uses it, or it may not be written to; stop that process or name another directory: %w", lockErr)
	}
	return errors.Join(err, lock.Close())
}

// load reads the format version and the boards, or marks an empty store as one
// of this format.
func (s *Store) load() error {
	var version uint64
	found, err := s.get(keyFormat, func(b []byte) (err error) {
		version, err = decodeUvarint(b)
		return err
	})
	switch {
	case err != nil:
		return err
	case found && version > formatVersion:
		return fmt.Errorf("it is of storage format %d, and this program reads up to %d; start a newer version of it: %w",
			version, formatVersion, leaderboard.ErrFormat)
	case !found:
		empty := true
		if err := s.scan(context.Background(), nil, nil, func(_, _ []byte) (bool, error) {
			empty = false
			return false, nil
		}); err != nil {
			return err
		}
		if !empty {
			return fmt.Errorf("it holds a database that is not of this program; name another directory: %w", leaderboard.ErrFormat)
		}
		b := s.db.NewBatch()
		if err := b.Set(keyFormat, binary.AppendUvarint(nil, formatVersion), nil); err != nil {
			return unavailable("write", err)
		}
		if err := s.commit(context.Background(), b, func() {}); err != nil {
			return err
		}
	}
	return s.loadBoards()
}

// Close releases the directory. After a failure it leaves that to the end of
// the process, because the engine cannot be closed in every state.
func (s *Store) Close() error {
	if err := s.failure(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		s.commits.Wait()
		done <- s.db.Close()
	}()
	select {
	case err := <-done:
		if err != nil {
			return unavailable("close", err)
		}
		return nil
	case <-s.failed:
		return s.failErr
	}
}

// Backup makes a copy of the store in dir, which must not exist: all that was
// durable when it began, and of what is written meanwhile, each write whole or
// not at all. Where it can, it links files rather than copy them. The copy is
// opened like any store.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("pebble: backup to %q: %w", dir, err)
	}
	return nil
}

// get reads a key, if it is there, by decode, which must not keep its argument.
func (s *Store) get(key []byte, decode func([]byte) error) (found bool, err error) {
	return get(s.db, key, decode)
}

func get(r pebble.Reader, key []byte, decode func([]byte) error) (found bool, err error) {
	value, closer, err := r.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return false, nil
	case err != nil:
		return false, unavailable("read", err)
	}
	return true, errors.Join(decode(value), closer.Close())
}

func (s *Store) has(key []byte) (bool, error) {
	return s.get(key, func([]byte) error { return nil })
}

// getJSON reads a key, if it is there, into dst.
func (s *Store) getJSON(key []byte, dst any) (bool, error) {
	return s.get(key, func(b []byte) error { return decodeJSON(b, dst) })
}

func decodeJSON(b []byte, dst any) error {
	if err := json.Unmarshal(b, dst); err != nil {
		return fmt.Errorf("pebble: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}

// setJSON adds src to b, under key.
func setJSON(b *pebble.Batch, key []byte, src any) error {
	value, err := json.Marshal(src)
	if err != nil {
		return fmt.Errorf("pebble: encode: %w", err)
	}
	return b.Set(key, value, nil)
}

// ctxRows is how many rows are read between looks at the context.
const ctxRows = 256

// scan calls visit with the rows from lower on and before upper, until it
// returns false or an error. It reads the state of one moment.
func (s *Store) scan(ctx context.Context, lower, upper []byte, visit func(key, value []byte) (bool, error)) error {
	return scan(ctx, s.db, lower, upper, visit)
}

func scan(ctx context.Context, r pebble.Reader, lower, upper []byte, visit func(key, value []byte) (bool, error)) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pebble: read: %w", err)
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return unavailable("read", err)
	}
	defer func() {
		if closeErr := it.Close(); err == nil && closeErr != nil {
			err = unavailable("read", closeErr)
		}
	}()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%ctxRows == 0 && ctx.Err() != nil {
			return fmt.Errorf("pebble: read: %w", ctx.Err())
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return unavailable("read", err)
		}
		if more, err := visit(it.Key(), value); !more || err != nil {
			return err
		}
	}
	return nil
}

// rows returns what decode makes of the rows from lower on and before upper, of
// one moment; ok is false for a row to leave out.
func rows[T any](ctx context.Context, s *Store, lower, upper []byte, decode func(key, value []byte) (row T, ok bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped := false
		err := s.scan(ctx, lower, upper, func(key, value []byte) (bool, error) {
			row, ok, err := decode(key, value)
			if err != nil || !ok {
				return true, err
			}
			stopped = !yield(row, nil)
			return !stopped, nil
		})
		if err != nil && !stopped {
			var none T
			yield(none, err)
		}
	}
}

const firstPage, lastPage = 32, 1024

// pages is rows, but holds on to no state of the store while the consumer is at
// work: it reads a page, then yields it, then reads on from where that ended.
func pages[T any](ctx context.Context, s *Store, lower, upper []byte, decode func(key, value []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var page []T
		for size := firstPage; ; size = min(4*size, lastPage) {
			page = page[:0]
			err := s.scan(ctx, lower, upper, func(key, value []byte) (bool, error) {
				row, err := decode(key, value)
				if err != nil {
					return false, err
				}
				page = append(page, row)
				if len(page) < size {
					return true, nil
				}
				lower = append(bytes.Clone(key), 0)
				return false, nil
			})
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if len(page) < size {
				return
			}
		}
	}
}
