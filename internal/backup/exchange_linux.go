package backup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exchange replaces the folder b with a, on the same file system. It returns the new path of
// the former content of b. If the file system supports atomic swaps, exchange swaps the two folders
// atomically.
func exchange(a, b string) (former string, err error) {
	err = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return swapByRenames(a, b)
	}
	return a, err
}
