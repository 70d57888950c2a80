//go:build !amd64 && !arm64

package memory

import "unsafe"

// prefetch does nothing on this architecture. The package has assembly for amd64 and
// arm64 only.
func prefetch(p unsafe.Pointer, lines int) {}
