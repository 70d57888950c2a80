package memory

import (
	"syscall"
	"unsafe"
)

const hugePageBytes = 2 << 20

// adviseHugePages asks the kernel to back the n bytes at p with huge pages. The range is extended
// to whole huge pages.
//
// syscall.Madvise takes a []byte, and a slice must not extend beyond one object.
func adviseHugePages(p unsafe.Pointer, n uintptr) {
	start := uintptr(p) &^ (hugePageBytes - 1)
	end := (uintptr(p) + n + hugePageBytes - 1) &^ (hugePageBytes - 1)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_HUGEPAGE)
}
