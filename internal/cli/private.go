package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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

// ReadableByAll reports whether every user of the machine may read a file, and returns its
// permissions. It returns false on Windows.
func ReadableByAll(path string) (permissions string, open bool) {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" {
		return "", false
	}
	mode := info.Mode().Perm()
	return fmt.Sprintf("%04o", mode), mode&0o004 != 0
}

// CreatePrivate creates a file that only its owner may read and write. It replaces an
// existing file or symbolic link. It returns an error for a device, a pipe or a folder.
func CreatePrivate(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return nil, notRegularError(path)
	case err == nil:
		err = os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// AppendPrivate opens a file for appending, or creates it like [CreatePrivate]. It returns an
// error if path is a symbolic link or not a regular file.
func AppendPrivate(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return CreatePrivate(path)
	}
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, notRegularError(path)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	// A link may have replaced the file since Lstat.
	if opened, err := file.Stat(); err != nil || !os.SameFile(before, opened) {
		return nil, errors.Join(notRegularError(path), err, file.Close())
	}
	return file, nil
}

// WritePrivate replaces a file, and creates its folder. Only the owner can read the new file.
func WritePrivate(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-") // with mode 0600
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func notRegularError(path string) error {
	return fmt.Errorf("%s is not a regular file", path)
}

// Defuse puts an apostrophe before a field of CSV if a spreadsheet would run the field as a
// formula. Whole numbers stay.
func Defuse(field string) string {
	// Some spreadsheets ignore leading spaces, and accept the fullwidth forms of =, +, - and @.
	const formulaStarts = "=+-@\uff1d\uff0b\uff0d\uff20"
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(field, unicode.IsSpace))
	if _, err := strconv.ParseInt(field, 10, 64); err == nil || !strings.ContainsRune(formulaStarts, first) {
		return field
	}
	return "'" + field
}
