// Package pebble is the embedded [storage.Backend]. It keeps all data durably in one directory,
// in a log-structured merge tree (github.com/cockroachdb/pebble).
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
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// Builds from before version 0.1.0 wrote lower format versions.
const formatVersion = 7

const (
	defaultCacheBytes = 64 << 20
	memTableBytes     = 32 << 20
	bloomBits         = 10
)

// Options are the settings of a store. The zero value is ready to use.
type Options struct {
	// FS is the file system that holds the directory: by default, the machine's.
	FS vfs.FS
	// CacheBytes bounds the memory for cached blocks. The default is 64 MiB.
	CacheBytes int64
	// Registerer receives the metrics of the store, unless it is nil.
	Registerer prometheus.Registerer
	// Now returns the time, which expires refusals. The default is time.Now.
	Now func() time.Time

	readOnly bool // the store writes nothing, and Open does not create a missing store
}

// Store is a [storage.Backend] in a directory, which only one process can open.
//
// After a failed write, flush or compaction, every write returns [leaderboard.ErrUnavailable], and
// reads continue. To write again, restart the process.
type Store struct {
	db  *pebble.DB
	fs  *guardFS
	now func() time.Time

	maxSeasons int // of a board: see isFull

	boards  atomic.Pointer[catalog] // replaced while admin is held; all stripes are also held if a board is removed or its divisions change
	admin   gate                    // held during a change of boards
	stripes [stripes]gate           // the locks of users: see commit.go

	commits  sync.WaitGroup // the goroutines that write batches
	unsynced atomic.Int64   // number of writes that readers may see, but that may not be durable yet
	failOnce sync.Once
	failed   chan struct{} // closed once the store has failed
	failErr  error         // set before failed is closed

	engine storage.Engine

	// deleted has the time.Time of each SeasonKey's last deletion. A key without a season stands
	// for its board.
	deleted sync.Map

	changesMu sync.Mutex
	changes   map[string]time.Time // the stored times of kindChange, by key

	expiringMu sync.Mutex
	expiring   map[string]expiringRegister // by registerKey
	purgedAt   time.Time

	orphanMu sync.Mutex
	orphans  map[leaderboard.SeasonKey]orphans // of each season that OrphanRows or Recount searched
}

var _ storage.Backend = (*Store)(nil)

// Open opens the store in the directory dir, or creates it if dir is missing or empty. Errors:
//   - [leaderboard.ErrInvalid] if dir is "".
//   - [leaderboard.ErrFormat] if a newer version of this program, or a build from before
//     version 0.1.0, wrote the store, or if dir contains another database.
//   - Another error if the store is already open.
func Open(dir string, opts Options) (*Store, error) {
	if dir == "" {
		return nil, fmt.Errorf("pebble: open: the name of the directory is empty: %w", leaderboard.ErrInvalid)
	}
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.CacheBytes <= 0 {
		opts.CacheBytes = defaultCacheBytes
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Store{
		now:        opts.Now,
		maxSeasons: leaderboard.MaxBoardSeasons,

		admin:    newGate(),
		failed:   make(chan struct{}),
		expiring: map[string]expiringRegister{},
		orphans:  map[leaderboard.SeasonKey]orphans{},
	}
	for i := range s.stripes {
		s.stripes[i] = newGate()
	}
	var err error
	if s.db, err = s.open(dir, opts); err != nil {
		return nil, fmt.Errorf("pebble: open %q: %w", dir, openError(dir, opts.FS, err))
	}
	if err := s.loadState(opts.readOnly); err != nil {
		return nil, errors.Join(fmt.Errorf("pebble: open %q: %w", dir, err), s.Close())
	}
	if opts.Registerer != nil {
		if err := opts.Registerer.Register(newCollector(s, dir)); err != nil {
			return nil, errors.Join(fmt.Errorf("pebble: open %q: %w", dir, err), s.Close())
		}
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
	s.fs = guard
	cache := pebble.NewCache(opts.CacheBytes)
	defer cache.Unref()
	o := &pebble.Options{
		FS:                          guard,
		ReadOnly:                    opts.readOnly,
		Cache:                       cache,
		Logger:                      quietLogger{s.fail},
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                memTableBytes,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       1000,
		MemTableStopWritesThreshold: 4,
		EventListener: &pebble.EventListener{
			CompactionEnd: func(info pebble.CompactionInfo) {
				// A compaction also fails if it reads damaged data, which guardFS does not detect.
				if info.Err != nil && !errors.Is(info.Err, pebble.ErrCancelledCompaction) {
					_ = s.fail(fmt.Errorf("compaction: %w", info.Err))
				}
			},
			// Without this function, a read of damaged data calls Fatalf, and the store fails.
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

func openError(dir string, fs vfs.FS, err error) error {
	if strings.Contains(err.Error(), "unknown format major version") {
		return fmt.Errorf("a newer version of this program wrote the directory; start that version or a later one: %w: %w",
			leaderboard.ErrFormat, err)
	}
	if errors.Is(err, leaderboard.ErrUnavailable) {
		return err
	}
	lock, lockErr := pebble.LockDirectory(dir, fs)
	if lockErr != nil {
		return fmt.Errorf("another process uses the directory, or this process has no permission to write to it; stop the other process, grant the permission, or name another directory: %w", lockErr)
	}
	return errors.Join(err, lock.Close())
}

// loadState writes the format version to an empty store. With readOnly, it writes nothing,
// and an empty store is an error.
func (s *Store) loadState(readOnly bool) error {
	var version uint64
	found, err := s.get(keyFormat, func(b []byte) (err error) {
		version, err = decodeUvarint(b)
		return err
	})
	switch {
	case err != nil:
		return err
	case found && version > formatVersion:
		return fmt.Errorf("the storage format is %d, and this program reads %d; start a newer version of the program: %w",
			version, formatVersion, leaderboard.ErrFormat)
	case found && version < formatVersion:
		return fmt.Errorf("a build from before version 0.1.0 wrote the storage format %d; export the results with that build, and import them with this one into another directory: %w",
			version, leaderboard.ErrFormat)
	case !found:
		empty := true
		if err := s.scan(context.Background(), nil, nil, func(_, _ []byte) (bool, error) {
			empty = false
			return false, nil
		}); err != nil {
			return err
		}
		if readOnly && empty {
			return fmt.Errorf("the directory holds no store: %w", leaderboard.ErrFormat)
		}
		if !empty {
			return fmt.Errorf("the directory holds a database of another program; name another directory: %w", leaderboard.ErrFormat)
		}
	}
	if !found && !readOnly {
		b := s.db.NewBatch()
		if err := b.Set(keyFormat, binary.AppendUvarint(nil, formatVersion), nil); err != nil {
			return errUnavailable("write", err)
		}
		if err := s.commit(context.Background(), b, func() {}); err != nil {
			return err
		}
	}
	return errors.Join(s.loadBoards(), s.loadDeletions(), s.loadChanges())
}

// Close closes the store and unlocks the directory. A failed engine cannot always be closed, so the
// directory of a failed store stays locked until the process ends.
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
			return errUnavailable("close", err)
		}
		return nil
	case <-s.failed:
		return s.failErr
	}
}

// Backup copies the store to dir, which must not exist, and adds the file [ChecksumsFile]. The copy
// contains every write that was durable at the call, and each concurrent write completely or not at
// all. Where possible, files are hard links. [Open] can open the copy.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.syncVisible(ctx); err != nil {
		return err
	}
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("pebble: backup to %q: %w", dir, err)
	}
	if err := writeChecksums(s.fs, dir); err != nil {
		return fmt.Errorf("pebble: backup to %q: %w", dir, err)
	}
	return nil
}

// decode must not keep its argument.
func (s *Store) get(key []byte, decode func([]byte) error) (found bool, err error) {
	return get(s.db, key, decode)
}

func get(r pebble.Reader, key []byte, decode func([]byte) error) (found bool, err error) {
	value, closer, err := r.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return false, nil
	case err != nil:
		return false, errUnavailable("read", err)
	}
	return true, errors.Join(decode(value), closer.Close())
}

func (s *Store) has(key []byte) (bool, error) {
	return s.get(key, func([]byte) error { return nil })
}

func decodeJSON(b []byte, dst any) error {
	if err := json.Unmarshal(b, dst); err != nil {
		return fmt.Errorf("pebble: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}

// The number of rows between two checks of ctx.
const ctxRows = 256

// visit returns whether to continue. All rows are of one consistent state of the store.
func (s *Store) scan(ctx context.Context, lower, upper []byte, visit func(key, value []byte) (bool, error)) error {
	return scan(ctx, s.db, lower, upper, visit)
}

func scan(ctx context.Context, r pebble.Reader, lower, upper []byte, visit func(key, value []byte) (bool, error)) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pebble: read: %w", err)
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return errUnavailable("read", err)
	}
	defer func() {
		if closeErr := it.Close(); err == nil && closeErr != nil {
			err = errUnavailable("read", closeErr)
		}
	}()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%ctxRows == 0 && ctx.Err() != nil {
			return fmt.Errorf("pebble: read: %w", ctx.Err())
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return errUnavailable("read", err)
		}
		if more, err := visit(it.Key(), value); !more || err != nil {
			return err
		}
	}
	return nil
}

// All rows are of one consistent state of the store. scanRows skips rows for which decode returns
// false.
func scanRows[T any](ctx context.Context, r pebble.Reader, lower, upper []byte, decode func(key, value []byte) (row T, ok bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped := false
		err := scan(ctx, r, lower, upper, func(key, value []byte) (bool, error) {
			row, ok, err := decode(key, value)
			if err != nil || !ok {
				return true, err
			}
			stopped = !yield(row, nil)
			return !stopped, nil
		})
		if err != nil && !stopped {
			var zero T
			yield(zero, err)
		}
	}
}

const firstPage, largestPage = 32, 1024

// pageRows reads each page of rows from the current state of the store. Unlike scanRows, it keeps
// no iterator open while the caller works.
func pageRows[T any](ctx context.Context, s *Store, lower, upper []byte, decode func(key, value []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var page []T
		for size := firstPage; ; size = min(4*size, largestPage) {
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
				var zero T
				yield(zero, err)
				return
			}
			if len(page) < size {
				return
			}
		}
	}
}
