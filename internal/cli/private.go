package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// Wide reports whether users other than the owner may read, change or enter a file or
// folder, and returns its permissions, such as 0755. It reports false if nothing has that path, and
// on Windows, where Go does not see permissions.
func Wide(path string) (permissions string, wide bool) {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" {
		return "", false
	}
	mode := info.Mode().Perm()
	return fmt.Sprintf("%04o", mode), mode&0o077 != 0
}

// CreatePrivate creates a file that only its owner may read. It removes a file that
// has the path already, so that the new file has neither its permissions nor, if it is
// a link, its target.
func CreatePrivate(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}
