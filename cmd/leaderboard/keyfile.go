package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

// keepNewKey writes the new admin key to a file that only this user can read, unless the
// key will be printed on a terminal. Standard output that is no terminal often ends in a
// log that others can read. It must be called before the key is stored: a key that is
// stored and not shown would be lost.
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

// writePrivate replaces a file by one that only this user can read.
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

// carried names what is in the folder of the data and is no part of the store.
var carried = []string{config.DefaultBackups, config.DefaultKeyFile}
