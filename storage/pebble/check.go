package pebble

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// ChecksumsFile is the name of a file of backups. It has the SHA-256 of the files that
// have no checksums of their own that show every damage: a log with a damaged end looks
// like the log of a process that was killed. The command sha256sum -c reads the file.
const ChecksumsFile = "checksums.sha256"

func writeChecksums(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	var lines strings.Builder
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			continue
		}
		sum, err := sumOf(fs, fs.PathJoin(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sum, name)
	}
	f, err := fs.Create(fs.PathJoin(dir, ChecksumsFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = io.WriteString(f, lines.String()); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func sumOf(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// compareChecksums returns an error unless the files that [ChecksumsFile] names have
// their sums. A folder without the file is older or no backup, and has nothing to compare.
func compareChecksums(fs vfs.FS, dir string) error {
	f, err := fs.Open(fs.PathJoin(dir, ChecksumsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		want, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		sum, err := sumOf(fs, fs.PathJoin(dir, fs.PathBase(name)))
		if err == nil && fmt.Sprintf("%x", sum) != want {
			err = fmt.Errorf("the file %s is damaged: %w", name, leaderboard.ErrFormat)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Check reads every row of the store in dir and compares the checksums of its blocks, and
// those of [ChecksumsFile] if dir is a backup. It
// writes nothing but a lock file. It returns the number of rows, or an error if dir holds
// no store, a damaged one, or one in use.
func Check(ctx context.Context, dir string) (rows int64, err error) {
	if err := compareChecksums(vfs.Default, dir); err != nil {
		return 0, fmt.Errorf("pebble: check %q: %w", dir, err)
	}
	s, err := Open(dir, Options{CacheBytes: 8 << 20, readOnly: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	err = s.scan(ctx, nil, nil, func(_, _ []byte) (bool, error) {
		rows++
		return true, nil
	})
	if err == nil && rows == 0 {
		err = fmt.Errorf("the store is empty: %w", leaderboard.ErrFormat)
	}
	if err != nil {
		err = fmt.Errorf("pebble: check %q: %w", dir, err)
	}
	return rows, err
}

// Lock keeps other processes from opening a store in dir until the result is closed. It
// returns an error if one has opened it.
func Lock(dir string) (io.Closer, error) {
	return pebble.LockDirectory(dir, vfs.Default)
}
