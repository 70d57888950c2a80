//go:build !linux

package memory

import "unsafe"

func adviseHugePages(unsafe.Pointer, uintptr) {}
