package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// OpenToOthers reports whether users other than the owner may read, change or enter a file
// or folder, and returns its permissions, such as 0755. It returns false on Windows, where
// Go cannot read these permissions.
func OpenToOthers(path string) (permissions string, open bool) {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" {
		return "", false
	}
	mode := info.Mode().Perm()
	return fmt.Sprintf("%04o", mode), mode&0o077 != 0
}

// CreatePrivate creates a file that only its owner may read and write. It replaces an
// existing file or symbolic link.
func CreatePrivate(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}
