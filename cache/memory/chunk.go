package memory

import "unsafe"

type allocator struct {
	// loading is true while Rebuild fills the table. Only then may chunks get huge pages: later,
	// readers would wait while the kernel provides a huge page.
	loading bool
}

// grown returns a copy of chunk with at least n elements. Every chunk has full elements, except that
// the first chunk of a list starts smaller and grows.
func grown[T any](a *allocator, chunk []T, first bool, n, full int) []T {
	length := full
	if first {
		length = min(full, max(2*len(chunk), n))
	}
	larger := make([]T, length)
	if a.loading && !first {
		adviseHugePages(unsafe.Pointer(&larger[0]), uintptr(length)*unsafe.Sizeof(larger[0]))
	}
	copy(larger, chunk)
	return larger
}
