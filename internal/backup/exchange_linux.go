package backup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exchange replaces the folder b with a, on the same file system, atomically if possible.
// It returns the new path of the former content of b.
func exchange(a, b string) (former string, err error) {
	err = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return swapByRenames(a, b)
	}
	return a, err
}
