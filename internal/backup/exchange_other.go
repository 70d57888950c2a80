//go:build !linux

package backup

// exchange replaces the folder b with a. It returns the new path of the former content of
// b.
func exchange(a, b string) (former string, err error) { return swapByRenames(a, b) }
