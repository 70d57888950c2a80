package main

import (
	"fmt"

	"github.com/open-leaderboard/leaderboard/internal/cli"
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
	if err := cli.WritePrivate(path, []byte(string(s.newKey)+"\n")); err != nil {
		return fmt.Errorf("cannot write the first admin key to a file (%w); name another file with --first-key-file, or set LEADERBOARD_ADMIN_KEY", err)
	}
	s.newKeyFile = path
	return nil
}

// carriedFiles are in the data folder, but not part of the store. A restore keeps them.
var carriedFiles = []string{config.DefaultBackups, config.DefaultKeyFile}
