package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errLocked is returned when another process holds a lock.
var errLocked = errors.New("locked by another process")

// lockFile opens path, made if need be, and locks it for this process; the
// kernel unlocks it when the file is closed or the process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// waitLock is lockFile once no other process holds the lock.
func waitLock(ctx context.Context, path string) (f *os.File, err error) {
	err = poll(ctx, func(context.Context) error {
		f, err = lockFile(path)
		return err
	})
	return f, err
}
