package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

// keepNewKey writes the new admin key to a file that only its owner can read. If standard
// output is a terminal, keepNewKey does nothing, because the function welcome prints the key.
// Any other output often becomes a log that more users can read.
//
// The caller must call keepNewKey before it stores the key: if the file cannot be written,
// the key must not be stored, because nobody would know it.
func (s *server) keepNewKey() error {
	if s.terminal {
		return nil
	}
	path := s.config.KeyFile()
	if err := writePrivate(path, string(s.newKey)+"\n"); err != nil {
		return fmt.Errorf("cannot write the first admin key to a file (%w); name another file with --first-key-file, or set LEADERBOARD_ADMIN_KEY", err)
	}
	s.newKeyFile = path
	return nil
}

// writePrivate replaces the content of a file with text. Only its owner can read the new
// file.
func writePrivate(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-") // CreateTemp sets the mode 0600
	if err != nil {
		return err
	}
	if _, err = f.WriteString(text); err == nil {
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

// carriedFiles contains the names of files and folders that are in the data folder, but are
// not part of the store. A restore moves them to the new data folder.
var carriedFiles = []string{config.DefaultBackups, config.DefaultKeyFile}
