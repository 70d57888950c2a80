//go:build amd64 || arm64

package memory

import "unsafe"

// prefetch advises the processor to load at least one line and at most lines cache lines from p on.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines int)
