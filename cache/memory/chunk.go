package memory

import "unsafe"

type allocator struct {
	// loading is true while Rebuild fills the table. After Rebuild, chunks get no huge pages,
	// because readers would wait while the kernel provides a huge page.
	loading bool
}

// grown returns a longer copy of chunk, with at least n elements. The first chunk of a list starts
// small and grows. Every other chunk has maxLength elements.
func grown[T any](a *allocator, chunk []T, isFirst bool, n, maxLength int) []T {
	length := maxLength
	if isFirst {
		length = min(maxLength, max(2*len(chunk), n))
	}
	larger := make([]T, length)
	if a.loading && !isFirst {
		adviseHugePages(unsafe.Pointer(&larger[0]), uintptr(length)*unsafe.Sizeof(larger[0]))
	}
	copy(larger, chunk)
	return larger
}
