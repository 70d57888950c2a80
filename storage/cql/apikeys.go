package cql

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// PutAPIKey stores a key, or replaces the key with the same id.
func (s *Store) PutAPIKey(ctx context.Context, key leaderboard.APIKey) error {
	key.CreatedAt = leaderboard.Truncate(key.CreatedAt)
	if !key.ExpiresAt.IsZero() {
		key.ExpiresAt = leaderboard.Truncate(key.ExpiresAt)
	}
	text, err := json.Marshal(&key)
	if err != nil {
		return fmt.Errorf("cql: api key: %w", err)
	}
	body, hash := string(text), key.Hash[:]
	for {
		ok, err := s.conn.swap(ctx, op{createKey, []any{key.ID, hash, body}}, map[string]any{})
		if ok || err != nil {
			return err
		}
		var old string
		if err := s.conn.read(ctx, op{selectKey, []any{key.ID}}, []any{&old}, func() bool { return true }); err != nil || old == body {
			return err
		}
		if old == "" {
			continue // another call deleted the key between the two statements
		}
		if ok, err = s.conn.swap(ctx, op{changeKey, []any{hash, body, key.ID, old}}, map[string]any{}); ok || err != nil {
			return err
		}
	}
}

func decodeKey(body string) (leaderboard.APIKey, error) {
	var key leaderboard.APIKey
	if err := json.Unmarshal([]byte(body), &key); err != nil {
		return leaderboard.APIKey{}, fmt.Errorf("cql: api key: %w: %w", leaderboard.ErrFormat, err)
	}
	return key, nil
}

// APIKey returns the key with the given hash.
func (s *Store) APIKey(ctx context.Context, hash [32]byte) (leaderboard.APIKey, error) {
	var body string
	keys, err := gather(ctx, s.conn, op{selectKeyHash, []any{hash[:]}}, []any{&body}, func() (leaderboard.APIKey, error) { return decodeKey(body) })
	if err != nil {
		return leaderboard.APIKey{}, err
	}
	for _, key := range keys {
		// a replica that lacks a change of the key may find the row by the old hash
		if key.Hash == hash {
			return key, nil
		}
	}
	return leaderboard.APIKey{}, fmt.Errorf("cql: %w", leaderboard.ErrAPIKeyNotFound)
}

// APIKeys returns all keys, ordered by id.
func (s *Store) APIKeys(ctx context.Context) ([]leaderboard.APIKey, error) {
	var id, body string
	return gather(ctx, s.conn, op{stmt: selectKeys}, []any{&id, &body}, func() (leaderboard.APIKey, error) { return decodeKey(body) })
}

// DeleteAPIKey removes a key.
func (s *Store) DeleteAPIKey(ctx context.Context, id string) error {
	ok, err := s.conn.swap(ctx, op{removeKey, []any{id}}, map[string]any{})
	if err == nil && !ok {
		err = fmt.Errorf("cql: api key %q: %w", id, leaderboard.ErrAPIKeyNotFound)
	}
	return err
}
