//go:build amd64 || arm64

package memory

import "unsafe"

// prefetch advises the processor to load the given number of consecutive cache lines from
// p on. If lines is less than 1, it loads one line.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines int)
