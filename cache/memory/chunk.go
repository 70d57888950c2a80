package memory

import "unsafe"

// allocator makes the chunks of one table.
type allocator struct {
	// loading says that nobody waits for the table, so that a chunk may be
	// backed by huge pages: a random read then rarely has to look for its page in
	// far memory before it looks for the word. Making a huge page takes the kernel
	// a fraction of a millisecond or, where memory is scattered, longer, which a
	// reader should not wait for.
	loading bool
}

// grown returns a copy of chunk that has at least need elements, for a table
// that gives full chunks a length of full, and only its first chunk less.
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
