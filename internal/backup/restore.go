package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Restoration describes how to restore a backup.
type Restoration struct {
	From string // the backup
	Data string // the folder that becomes a copy of the backup
	// Replace allows Data to have content. Restore moves the content to a folder beside
	// Data.
	Replace bool
	// Carry lists the names of files and folders in Data that are not part of the store.
	// They stay in Data.
	Carry []string
	// Drop lists the names of files in the backup that are not part of the store. They
	// are not restored.
	Drop []string
	// Check reads a whole store. It returns an error if the store is damaged.
	Check func(ctx context.Context, dir string) error
	// Lock locks a folder. It returns an error if another process uses the folder.
	Lock func(dir string) (io.Closer, error)
	// Now is the clock.
	Now func() time.Time
}

var (
	// ErrNotEmpty means that the folder has content and may not be replaced.
	ErrNotEmpty = errors.New("backup: the folder is not empty")
	// ErrInUse means that another process uses the folder.
	ErrInUse = errors.New("backup: another process uses the folder")
)

// Restore copies the backup, checks the copy, and then swaps the copy with Data. Before
// the swap, Data does not change. The swap is atomic if the file system supports it.
// Restore returns the path of the former content, or "" if there was none. Errors:
// [ErrNotEmpty], [ErrInUse]. After an error, Data is unchanged.
func (r *Restoration) Restore(ctx context.Context) (former string, err error) {
	data, err := filepath.Abs(r.Data)
	if err != nil {
		return "", err
	}
	if target, err := filepath.EvalSymlinks(data); err == nil {
		data = target // replace the folder, not the symbolic link
	}
	content, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(content) > 0 {
		lock, err := r.Lock(data)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrInUse, err)
		}
		defer lock.Close()
		if !r.Replace {
			return "", ErrNotEmpty
		}
	}
	parent := filepath.Dir(data)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	staged, err := os.MkdirTemp(parent, filepath.Base(data)+".restoring-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(staged))
		}
	}()
	if err := copyFolder(ctx, r.From, staged); err != nil {
		return "", fmt.Errorf("copy the backup: %w", err)
	}
	if err := r.Check(ctx, staged); err != nil {
		return "", fmt.Errorf("the backup %s is damaged: %w", r.From, err)
	}
	for _, name := range r.Drop {
		if err := os.RemoveAll(filepath.Join(staged, name)); err != nil {
			return "", err
		}
	}
	if len(content) == 0 {
		if err := os.Remove(data); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", mountAdvice(err, data)
		}
		if err := os.Rename(staged, data); err != nil {
			return "", mountAdvice(err, data)
		}
		return "", syncFolder(parent)
	}
	return r.replace(staged, data)
}

// replace swaps staged with data, and renames the folder with the former content.
func (r *Restoration) replace(staged, data string) (former string, err error) {
	if err := exchange(staged, data); err != nil {
		return "", mountAdvice(err, data)
	}
	// The restoration has succeeded now, and staged contains the former content.
	former = data + ".replaced-" + r.Now().UTC().Format("20060102T150405Z")
	if err := os.Rename(staged, former); err != nil {
		former = staged
	}
	for _, name := range r.Carry {
		// A file that cannot be moved stays in former. The caller reports that path.
		_ = os.Rename(filepath.Join(former, name), filepath.Join(data, name))
	}
	return former, errors.Join(syncFolder(data), syncFolder(filepath.Dir(data)))
}

func mountAdvice(err error, data string) error {
	return fmt.Errorf("%w; if %s is a mount point, restore to a folder inside it with --data", err, data)
}

// swapByTwo swaps two folders by renaming them one after another, for systems without
// an atomic swap.
func swapByTwo(a, b string) error {
	aside := a + ".swap"
	if err := os.Rename(b, aside); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return errors.Join(err, os.Rename(aside, b))
	}
	return os.Rename(aside, a)
}

// copyFolder copies the content of a folder durably to an existing empty folder. It
// makes no hard links, because a store may append to its files.
func copyFolder(ctx context.Context, from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.IsDir():
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			err = copyFolder(ctx, source, target)
		case e.Type().IsRegular():
			err = copyFile(source, target)
		default:
			err = fmt.Errorf("%s is neither a file nor a folder", source)
		}
		if err != nil {
			return err
		}
	}
	return syncFolder(to)
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // nothing was written to source
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(target, source); err == nil {
		err = target.Sync()
	}
	return errors.Join(err, target.Close())
}
