//go:build amd64 || arm64

package memory

import "unsafe"

// prefetch advises the processor to load a number of cache lines, at least one, that
// begin at p.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines int)
