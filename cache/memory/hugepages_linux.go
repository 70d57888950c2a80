package memory

import (
	"syscall"
	"unsafe"
)

const hugePageBytes = 2 << 20

// adviseHugePages advises huge pages for n bytes at p, extended to whole huge pages. This range may
// extend beyond the Go object at p, which the []byte of syscall.Madvise must not do. So
// adviseHugePages makes the system call directly.
func adviseHugePages(p unsafe.Pointer, n uintptr) {
	start := uintptr(p) &^ (hugePageBytes - 1)
	end := (uintptr(p) + n + hugePageBytes - 1) &^ (hugePageBytes - 1)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_HUGEPAGE)
}
