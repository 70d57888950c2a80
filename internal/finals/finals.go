// Package finals keeps the final standings of sealed seasons, over the primitives of package
// storage.
//
// directory.go explains how standings are stored, seal.go which of them are valid, and open.go how
// they are read.
package finals

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// Backend is what Store needs from a storage.Backend.
type Backend interface {
	storage.Registers
	storage.Rows
	storage.Incarnations
	leaderboard.EntryStore
	HasUsers(ctx context.Context, s leaderboard.SeasonKey) (bool, error)
	Environment() storage.Environment
}

// Store keeps final standings. It has the methods of [leaderboard.SeasonStore] about them.
type Store struct {
	b     Backend
	cache *pageCache
}

// New returns the final standings in a backend, which must call their Hooks.
func New(b Backend) *Store { return &Store{b: b, cache: newPageCache()} }

// The lists. Each incarnation has a register, a list of directories, and a list of the places of
// each user. The name of a list may remain after an erasure, so it has no user id.
func sealList(id string) string { return "seal/" + id }

func directoryList(id string) string { return "final directories/" + id }

func placeList(id string, user leaderboard.UserID) string {
	hash := sha256.Sum256([]byte(user))
	return "final places/" + hex.EncodeToString(hash[:]) + "/" + id
}

// Names of pages and generations are unique, as each generation has a random name.
func pageList(page string) string { return "final page/" + page }

func generationList(generation string) string { return "final generation/" + generation }

// markBuckets is the number of lists of one region's marks.
const markBuckets = 16

func (f *Store) markList(bucket int) string {
	return storage.Transient + "final marks/" + strconv.Itoa(bucket) + "/" + f.region()
}

func (f *Store) region() string { return f.b.Environment().Region }

func bucketOf(user leaderboard.UserID) int {
	return int(leaderboard.UserHash(user) % markBuckets)
}

func errFormat(what string) error {
	return fmt.Errorf("final standings: %s: %w", what, leaderboard.ErrFormat)
}

func (f *Store) forEach(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	return f.b.Environment().ForEach(ctx, n, do)
}
