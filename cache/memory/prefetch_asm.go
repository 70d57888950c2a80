//go:build amd64 || arm64

package memory

import "unsafe"

// prefetch prefetches cache lines, beginning at p: at least one, and at most lines.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines int)
