//go:build !amd64 && !arm64

package memory

import "unsafe"

// prefetch asks for nothing here: Go has no word for it without assembly.
func prefetch(p unsafe.Pointer, lines int) {}
