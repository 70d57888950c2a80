package memory

import (
	"syscall"
	"unsafe"
)

const hugePageBytes = 2 << 20

// adviseHugePages asks the kernel for huge pages wherever memory of n bytes at
// p reaches, its neighbors' included. It is advice: if it is not taken, as where
// huge pages are switched off, nothing is lost but speed.
func adviseHugePages(p unsafe.Pointer, n uintptr) {
	from := uintptr(p) &^ (hugePageBytes - 1)
	to := (uintptr(p) + n + hugePageBytes - 1) &^ (hugePageBytes - 1)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
}
