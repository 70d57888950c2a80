//go:build amd64 || arm64

package memory

import "unsafe"

// prefetch prefetches max(lines, 1) cache lines, beginning at p.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines int)
