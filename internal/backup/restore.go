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
	From string
	Data string
	// Replace allows Data to have content. Restore moves it to a folder beside Data.
	Replace bool
	// Carry lists files and folders in Data that are not part of the store. They stay in Data.
	Carry []string
	// Drop lists files and folders in the backup that are not restored.
	Drop []string
	// Check returns an error if a store is damaged.
	Check func(ctx context.Context, dir string) error
	// Lock returns an error if another process uses the folder.
	Lock func(dir string) (io.Closer, error)
	Now  func() time.Time
}

var (
	// ErrNotEmpty means that the folder has content and Replace is false.
	ErrNotEmpty = errors.New("backup: the folder is not empty")
	// ErrInUse means that another process uses the folder.
	ErrInUse = errors.New("backup: another process uses the folder")
)

// Restore copies the backup, checks the copy, and swaps the copy with Data, atomically if
// the file system supports it. Data does not change before the swap. Restore moves the former
// content, except Carry, to a folder beside Data. It returns the folder's path, or "" if Data
// had no content. After the swap, it returns the path also with an error.
// Errors: [ErrNotEmpty], [ErrInUse].
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
	swapped := false // after the swap, staged contains the former content
	defer func() {
		if err != nil && !swapped {
			err = errors.Join(err, os.RemoveAll(staged))
		}
	}()
	if err := r.fill(ctx, staged); err != nil {
		return "", err
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
	oldDir, err := exchange(staged, data)
	if err != nil {
		return "", mountAdvice(err, data)
	}
	swapped = true
	return r.finish(oldDir, data)
}

func (r *Restoration) fill(ctx context.Context, staged string) error {
	if err := copyFolder(ctx, r.From, staged); err != nil {
		return fmt.Errorf("copy the backup: %w", err)
	}
	if err := r.Check(ctx, staged); err != nil {
		return fmt.Errorf("the backup %s is damaged: %w", r.From, err)
	}
	for _, name := range r.Drop {
		if err := os.RemoveAll(filepath.Join(staged, name)); err != nil {
			return err
		}
	}
	return nil
}

// finish gives oldDir, which has the former content, its final name if possible. It moves
// Carry back to data, and makes the swap durable.
func (r *Restoration) finish(oldDir, data string) (former string, err error) {
	former = data + ".replaced-" + r.Now().UTC().Format("20060102T150405Z")
	if err := os.Rename(oldDir, former); err != nil {
		former = oldDir
	}
	for _, name := range r.Carry {
		// A file that cannot be moved stays in former, whose path the caller reports.
		_ = os.Rename(filepath.Join(former, name), filepath.Join(data, name))
	}
	return former, errors.Join(syncFolder(data), syncFolder(filepath.Dir(data)))
}

// A mount point cannot be renamed.
func mountAdvice(err error, data string) error {
	return fmt.Errorf("%w; if %s is a mount point, restore to a folder inside it with --data", err, data)
}

// swapByRenames replaces the folder b with a in two steps. It returns the new path of the
// former content of b. If the second rename fails, it undoes the first.
func swapByRenames(a, b string) (former string, err error) {
	former = a + ".swap"
	if err := os.Rename(b, former); err != nil {
		return "", err
	}
	if err := os.Rename(a, b); err != nil {
		if undo := os.Rename(former, b); undo != nil {
			return "", fmt.Errorf("%w; moving the content back failed too: %w; move %s to %s", err, undo, former, b)
		}
		return "", err
	}
	return former, nil
}

// copyFolder makes no hard links, because a store may append to its files.
func copyFolder(ctx context.Context, src, dst string) error {
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		source, target := filepath.Join(src, e.Name()), filepath.Join(dst, e.Name())
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
	return syncFolder(dst)
}

func copyFile(src, dst string) (err error) {
	source, err := os.Open(src)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(target, source); err == nil {
		err = target.Sync()
	}
	return errors.Join(err, target.Close())
}
