package memory

import "unsafe"

// allocator allocates the chunks of one table.
type allocator struct {
	// loading is true while Rebuild fills the table. No reader uses the table then, so
	// its chunks may get huge pages. With huge pages the processor translates addresses
	// faster. But the kernel needs a fraction of a millisecond to provide a huge page, or
	// longer if memory is fragmented. Readers should not wait for that.
	loading bool
}

// grown returns a copy of chunk that has at least need elements. The parameter full is
// the length of each chunk. Only the first chunk of a table may be shorter.
func grown[T any](a *allocator, chunk []T, first bool, need, full int) []T {
	length := full
	if first {
		length = min(full, max(2*len(chunk), need))
	}
	next := make([]T, length)
	if a.loading && !first {
		adviseHugePages(unsafe.Pointer(&next[0]), uintptr(length)*unsafe.Sizeof(next[0]))
	}
	copy(next, chunk)
	return next
}
