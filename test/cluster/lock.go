package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

var errLocked = errors.New("locked by another process")

// The kernel releases the lock on [unlock], or when the process ends. Errors: errLocked if another
// process holds the lock.
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

// A failed close releases the lock too.
func unlock(f *os.File) { _ = f.Close() }

func waitLock(ctx context.Context, path string) (f *os.File, err error) {
	err = poll(ctx, func(context.Context) error {
		f, err = lockFile(path)
		return err
	})
	return f, err
}
