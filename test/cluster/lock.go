package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

var errLocked = errors.New("already locked")

// lockFile takes a lock, which [unlock] or the end of this process releases. Errors: errLocked if the
// file is already locked.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		unlock(f)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// A close that fails also releases the lock.
func unlock(f *os.File) { _ = f.Close() }

func waitLock(ctx context.Context, path string) (f *os.File, err error) {
	err = poll(ctx, func(context.Context) error {
		f, err = lockFile(path)
		return err
	})
	return f, err
}
