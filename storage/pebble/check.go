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

// ChecksumsFile is the name of a file in every backup. It has the SHA-256 of each file except the
// tables (.sst), in the format of sha256sum -c. Pebble's own checksums do not detect damage at the
// end of a log, because the log of a killed process looks the same.
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
	defer func() { _ = f.Close() }()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// Without a [ChecksumsFile], compareChecksums returns nil: dir is no backup.
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

// Check verifies Pebble's checksums of the store in dir and those in [ChecksumsFile]. It returns
// the number of rows. It writes only a lock file. It returns an error if there is no store, if the
// store is damaged, or if a process has opened it.
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

// Lock keeps processes from opening the store in dir until the caller closes the Closer. It returns
// an error if a process has opened the store.
func Lock(dir string) (io.Closer, error) {
	return pebble.LockDirectory(dir, vfs.Default)
}
