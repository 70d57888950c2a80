//go:build linux || darwin || freebsd

package main

import (
	"math"

	"golang.org/x/sys/unix"
)

// openFileLimit returns how many files this process may open.
func openFileLimit() (limit uint64, ok bool) {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
	return uint64(r.Cur), err == nil //nolint:unconvert // the type differs between systems
}

// diskSpace returns the free and the total bytes of the disk with a folder.
func diskSpace(folder string) (free, total int64, ok bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil || s.Bsize <= 0 || uint64(s.Blocks) > math.MaxInt64/uint64(s.Bsize) { //nolint:unconvert // as above
		return 0, 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), true //nolint:unconvert // the types differ between systems
}
