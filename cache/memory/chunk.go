package memory

import "unsafe"

// allocator allocates the chunks of one table.
type allocator struct {
	// loading is true while Rebuild fills the table. No reader uses the table then, so
	// its chunks may get huge pages. With huge pages the processor translates addresses
	// faster. But the kernel needs a fraction of a millisecond to provide a huge page, or
	// longer if memory is fragmented. Readers should not wait for the kernel.
	loading bool
}

// grown returns a copy of chunk that has at least n elements. Parameter first reports whether
// chunk is the first chunk of its table. The first chunk may have fewer than full elements. Every
// other chunk has exactly full elements.
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
