//go:build amd64 || arm64

package memory

import "unsafe"

// prefetch asks the processor for some lines of memory, at least one, from p on.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines int)
