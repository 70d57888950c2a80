package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
)

const (
	insecureKeysWarning  = "this server refuses the keys that an insecure server created: create new keys with `leaderboard key create`, and revoke the refused keys"
	configuredKeyWarning = "the key of an earlier admin_key setting is still valid: to revoke it, run `leaderboard key revoke " + auth.ConfiguredKeyID + "`"
)

// ensureAdminKey makes sure that the store has an admin key:
//
//  1. A key in admin_key replaces the stored key of an earlier value.
//  2. With --insecure, no call needs a key, so ensureAdminKey returns.
//  3. It logs warnings about keys of an insecure server. If admin_key is empty, it also warns about
//     the stored key of an earlier value.
//  4. If no admin key is valid, it creates one. keepNewKey writes this key to a file, or the method
//     welcome prints it.
func (s *server) ensureAdminKey(ctx context.Context) error {
	var keys []leaderboard.APIKey
	if err := s.retryStart(ctx, "store the admin key", func() (err error) {
		keys, err = s.store.APIKeys(ctx)
		if err == nil && s.config.AdminKey != "" {
			err = s.replaceConfiguredKey(ctx, keys)
		}
		return err
	}); err != nil {
		return err
	}
	if s.config.Insecure {
		return nil
	}
	var refused []string
	hasAdmin := s.config.AdminKey != ""
	for i := range keys {
		k := &keys[i]
		hasAdmin = hasAdmin || auth.IsAdmin(k, time.Now())
		if k.Insecure {
			refused = append(refused, k.Name)
		}
		if k.ID == auth.ConfiguredKeyID && s.config.AdminKey == "" {
			s.log.WarnContext(ctx, configuredKeyWarning, "created", k.CreatedAt)
		}
	}
	if len(refused) > 0 {
		s.log.WarnContext(ctx, insecureKeysWarning, "names", refused)
	}
	if hasAdmin {
		return nil
	}
	name := "first admin key"
	if len(keys) > 0 {
		name = "admin key created because none was valid"
	}
	secret, key := auth.NewKey(name, []string{auth.Admin.String()}, time.Now())
	s.newKey = secret
	if err := s.keepNewKey(); err != nil {
		return err
	}
	return s.retryStart(ctx, "store the admin key", func() error { return s.store.PutAPIKey(ctx, key) })
}

// replaceConfiguredKey stores the configured admin key under auth.ConfiguredKeyID. It deletes other
// keys with this secret.
func (s *server) replaceConfiguredKey(ctx context.Context, keys []leaderboard.APIKey) error {
	key := auth.KeyFrom(s.config.AdminKey, "admin_key of the configuration", []string{auth.Admin.String()}, time.Now())
	key.ID = auth.ConfiguredKeyID
	if !slices.ContainsFunc(keys, func(k leaderboard.APIKey) bool { return k.ID == key.ID && k.Hash == key.Hash }) {
		if err := s.store.PutAPIKey(ctx, key); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "stored the configured admin key", "key_id", key.ID)
	}
	for i := range keys {
		k := &keys[i]
		if k.ID == key.ID || k.Hash != key.Hash {
			continue
		}
		err := s.store.DeleteAPIKey(ctx, k.ID)
		if errors.Is(err, leaderboard.ErrAPIKeyNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s.log.InfoContext(ctx, "deleted a key that the configured admin key replaces", "key_id", k.ID, "name", k.Name)
	}
	return nil
}
