//go:build !amd64 && !arm64

package memory

import "unsafe"

// prefetch does nothing on this architecture, because it has no assembly function here.
func prefetch(p unsafe.Pointer, lines int) {}
