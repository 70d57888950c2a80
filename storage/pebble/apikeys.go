package pebble

import (
	"context"
	"fmt"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// PutAPIKey implements [leaderboard.Store].
func (s *Store) PutAPIKey(ctx context.Context, k leaderboard.APIKey) error {
	unlock, err := s.lockAdmin(ctx)
	if err != nil {
		return err
	}
	k.CreatedAt, k.ExpiresAt = leaderboard.Truncate(k.CreatedAt), leaderboard.Truncate(k.ExpiresAt)
	var old leaderboard.APIKey
	found, err := s.getJSON(apiKeyKey(k.ID), &old)
	batch := s.db.NewBatch()
	if err == nil && found {
		err = batch.Delete(hashKey(old.Hash, k.ID), nil)
	}
	if err == nil {
		err = batch.Set(hashKey(k.Hash, k.ID), nil, nil)
	}
	if err == nil {
		err = setJSON(batch, apiKeyKey(k.ID), &k)
	}
	if err != nil {
		unlock()
		return err
	}
	return s.commit(ctx, batch, unlock)
}

// APIKey implements [leaderboard.Store].
func (s *Store) APIKey(ctx context.Context, hash [32]byte) (leaderboard.APIKey, error) {
	var k leaderboard.APIKey
	found := false
	prefix := hashKey(hash, "")
	if err := s.scan(ctx, prefix, keyAfter(prefix), func(key, _ []byte) (_ bool, err error) {
		found, err = s.getJSON(apiKeyKey(string(key[len(prefix):])), &k)
		return !found, err
	}); err != nil {
		return leaderboard.APIKey{}, err
	}
	if !found || k.Hash != hash {
		return leaderboard.APIKey{}, fmt.Errorf("pebble: %w", leaderboard.ErrAPIKeyNotFound)
	}
	return k, nil
}

// APIKeys implements [leaderboard.Store].
func (s *Store) APIKeys(ctx context.Context) ([]leaderboard.APIKey, error) {
	var keys []leaderboard.APIKey
	prefix := apiKeyKey("")
	err := s.scan(ctx, prefix, keyAfter(prefix), func(_, value []byte) (bool, error) {
		var k leaderboard.APIKey
		err := decodeJSON(value, &k)
		keys = append(keys, k)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// DeleteAPIKey implements [leaderboard.Store].
func (s *Store) DeleteAPIKey(ctx context.Context, id string) error {
	unlock, err := s.lockAdmin(ctx)
	if err != nil {
		return err
	}
	var k leaderboard.APIKey
	found, err := s.getJSON(apiKeyKey(id), &k)
	if err == nil && !found {
		err = fmt.Errorf("pebble: API key %q: %w", id, leaderboard.ErrAPIKeyNotFound)
	}
	batch := s.db.NewBatch()
	if err == nil {
		err = batch.Delete(apiKeyKey(id), nil)
	}
	if err == nil {
		err = batch.Delete(hashKey(k.Hash, id), nil)
	}
	if err != nil {
		unlock()
		return err
	}
	return s.commit(ctx, batch, unlock)
}
