package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// The registers of list apiKeys have the keys as JSON. A register's key is the key's id, and its
// tag is the hash.
const apiKeys = "api keys"

// PutAPIKey stores a key, or replaces the key with the same id.
func (s *Store) PutAPIKey(ctx context.Context, k leaderboard.APIKey) error {
	k.CreatedAt = leaderboard.Truncate(k.CreatedAt)
	if !k.ExpiresAt.IsZero() {
		k.ExpiresAt = leaderboard.Truncate(k.ExpiresAt)
	}
	text, err := json.Marshal(&k)
	if err != nil {
		return fmt.Errorf("engine: API key: %w", err)
	}
	r := storage.Register{Key: k.ID, Tag: k.Hash[:], Value: text}
	var old []byte
	for {
		if ok, err := s.Swap(ctx, apiKeys, old, r); ok || err != nil {
			return err
		}
		if old, err = s.Register(ctx, apiKeys, k.ID); err != nil || bytes.Equal(old, text) {
			return err
		}
	}
}

// APIKey returns the key with the given hash.
func (s *Store) APIKey(ctx context.Context, hash [32]byte) (leaderboard.APIKey, error) {
	keys, err := s.apiKeys(ctx, hash[:])
	if err != nil {
		return leaderboard.APIKey{}, err
	}
	for _, k := range keys {
		if k.Hash == hash { // the tag of a replaced key may still find the register
			return k, nil
		}
	}
	return leaderboard.APIKey{}, fmt.Errorf("engine: %w", leaderboard.ErrAPIKeyNotFound)
}

// APIKeys returns all keys, ordered by id.
func (s *Store) APIKeys(ctx context.Context) ([]leaderboard.APIKey, error) {
	return s.apiKeys(ctx, nil)
}

func (s *Store) apiKeys(ctx context.Context, tag []byte) ([]leaderboard.APIKey, error) {
	registers, err := s.Registers(ctx, apiKeys, tag)
	if err != nil {
		return nil, err
	}
	var keys []leaderboard.APIKey
	for _, r := range registers {
		var k leaderboard.APIKey
		if err := decode("API key", r.Value, &k); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// apiKeyUses is a list of rows. A row's key is the id of an API key, and its value the time of a call with it.
const apiKeyUses = "api key uses"

// NoteAPIKeyUse writes a row whose version is the time, so a note that arrives late has no effect.
func (s *Store) NoteAPIKeyUse(ctx context.Context, id string, at time.Time) error {
	at = leaderboard.Truncate(at)
	value, err := json.Marshal(at)
	if err != nil {
		return fmt.Errorf("engine: use of an API key: %w", err)
	}
	return s.WriteRows(ctx, storage.RowWrite{List: apiKeyUses, Row: storage.Row{Key: []byte(id), Value: value}, Version: at.UnixMicro()})
}

// APIKeyUses returns the times of the latest noted uses.
func (s *Store) APIKeyUses(ctx context.Context) (map[string]time.Time, error) {
	uses := map[string]time.Time{}
	for row, err := range s.Rows(ctx, apiKeyUses, nil) {
		if err != nil {
			return nil, err
		}
		var at time.Time
		if err := decode("use of an API key", row.Value, &at); err != nil {
			return nil, err
		}
		uses[string(row.Key)] = at
	}
	return uses, nil
}

// DeleteAPIKey removes a key. It leaves the time of the key's last use, which another process may store at the same time.
func (s *Store) DeleteAPIKey(ctx context.Context, id string) error {
	for {
		old, err := s.Register(ctx, apiKeys, id)
		if err != nil {
			return err
		}
		if old == nil {
			return fmt.Errorf("engine: API key %q: %w", id, leaderboard.ErrAPIKeyNotFound)
		}
		if ok, err := s.Swap(ctx, apiKeys, old, storage.Register{Key: id}); ok || err != nil {
			return err
		}
	}
}
