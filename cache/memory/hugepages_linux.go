package memory

import (
	"syscall"
	"unsafe"
)

const hugePageBytes = 2 << 20

// adviseHugePages asks the kernel to back the n bytes at p with huge pages. It rounds
// the range to whole huge pages, which also hold neighboring objects. The kernel may
// ignore the advice, for example if huge pages are disabled. Then only speed is lost: at
// 10 million users, ranks and updates take about a tenth longer (docs/benchmarks.md).
//
// The function makes the system call itself. syscall.Madvise takes a []byte, which must
// not extend beyond the object that it points to.
func adviseHugePages(p unsafe.Pointer, n uintptr) {
	from := uintptr(p) &^ (hugePageBytes - 1)
	to := (uintptr(p) + n + hugePageBytes - 1) &^ (hugePageBytes - 1)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
}
