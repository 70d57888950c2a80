//go:build !amd64 && !arm64

package memory

import "unsafe"

// prefetch does nothing: the package has no assembly for this architecture.
func prefetch(p unsafe.Pointer, lines int) {}
