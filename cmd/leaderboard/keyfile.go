package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

// keepNewKey writes the new admin key to a file that only its owner can read. On a terminal it does
// nothing, because welcome prints the key there. Other output often becomes a log, which must not
// contain the key.
//
// The caller must not store the key before keepNewKey succeeds: without the file, nobody would know
// the stored key.
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

// writePrivate replaces a file. Only its owner can read the new file.
func writePrivate(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-") // with mode 0600
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

// carriedFiles are in the data folder, but not part of the store. A restore keeps them.
var carriedFiles = []string{config.DefaultBackups, config.DefaultKeyFile}
