//go:build amd64 || arm64

package memory

import "unsafe"

// prefetch prefetches at least one cache line and at most lines from p on.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines int)
