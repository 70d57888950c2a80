package storagetest

import (
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var apiKeyTests = []test{
	{"PutAPIKey stores a key, and replaces a key with the same id", func(f *fixture) {
		old := leaderboard.APIKey{ID: "k", Name: "game é", Hash: [32]byte{1, 0, 255}, Scopes: []string{"read", "submit"}, CreatedAt: epoch}
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, old))
		got, err := f.APIKey(f.ctx, old.Hash)
		f.ok("APIKey", err)
		f.equal("APIKey", old, got)
		if !got.ExpiresAt.IsZero() {
			f.Errorf("ExpiresAt is %v, want the zero time", got.ExpiresAt)
		}
		replacement := leaderboard.APIKey{ID: "k", Hash: [32]byte{2}, Scopes: []string{"admin"}, CreatedAt: epoch, ExpiresAt: epoch.AddDate(1, 0, 0)}
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, replacement))
		f.ok("PutAPIKey again", f.PutAPIKey(f.ctx, replacement))
		_, err = f.APIKey(f.ctx, old.Hash)
		f.wantErr("APIKey by the old hash", err, leaderboard.ErrAPIKeyNotFound)
		got, err = f.APIKey(f.ctx, replacement.Hash)
		f.ok("APIKey", err)
		f.equal("APIKey", replacement, got)
	}},
	{"PutAPIKey keeps the boards of a key and its Insecure flag", func(f *fixture) {
		old := leaderboard.APIKey{ID: "k", Hash: [32]byte{1}, Scopes: []string{"admin"}, CreatedAt: epoch}
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, old))
		restricted := old
		restricted.Boards = []leaderboard.BoardID{"a board: 100% é/", "..", "*", "\"quoted\", <b>&", leaderboard.BoardID(strings.Repeat("\u2028é", 25))}
		restricted.BoardPrefixes, restricted.Insecure = []string{"eu-", " ", "\\", "e\u0301"}, true
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, restricted))
		got, err := f.APIKey(f.ctx, old.Hash)
		f.ok("APIKey", err)
		f.equal("APIKey", restricted, got)
		keys, err := f.APIKeys(f.ctx)
		f.ok("APIKeys", err)
		f.equal("APIKeys", []leaderboard.APIKey{restricted}, keys)
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, old))
		got, err = f.APIKey(f.ctx, old.Hash)
		f.ok("APIKey", err)
		f.equal("APIKey without boards", old, got)
	}},
	{"APIKey returns ErrAPIKeyNotFound if no key has the hash", func(f *fixture) {
		_, err := f.APIKey(f.ctx, [32]byte{})
		f.wantErr("APIKey", err, leaderboard.ErrAPIKeyNotFound)
	}},
	{"APIKeys returns all keys, ordered by id", func(f *fixture) {
		for i, id := range []string{"b", "a", "aa"} {
			f.ok("PutAPIKey", f.PutAPIKey(f.ctx, leaderboard.APIKey{ID: id, Hash: [32]byte{byte(i)}}))
		}
		keys, err := f.APIKeys(f.ctx)
		f.ok("APIKeys", err)
		var ids []string
		for _, k := range keys {
			ids = append(ids, k.ID)
		}
		f.equal("ids", []string{"a", "aa", "b"}, ids)
	}},
	{"APIKeyUses returns the latest time that NoteAPIKeyUse stored", func(f *fixture) {
		uses, err := f.APIKeyUses(f.ctx)
		f.ok("APIKeyUses", err)
		f.equal("APIKeyUses without uses", 0, len(uses))
		for _, use := range []struct {
			id    string
			after time.Duration
		}{{"a", time.Hour}, {"b", 0}, {"a", 0}, {"b", time.Microsecond}, {"b", time.Microsecond + 1}} {
			f.ok("NoteAPIKeyUse", f.NoteAPIKeyUse(f.ctx, use.id, epoch.Add(use.after)))
		}
		uses, err = f.APIKeyUses(f.ctx)
		f.ok("APIKeyUses", err)
		f.equal("APIKeyUses", map[string]time.Time{"a": epoch.Add(time.Hour), "b": epoch.Add(time.Microsecond)}, uses)
	}},
	{"DeleteAPIKey removes a key, or returns ErrAPIKeyNotFound", func(f *fixture) {
		f.ok("PutAPIKey", f.PutAPIKey(f.ctx, leaderboard.APIKey{ID: "k", Hash: [32]byte{1}}))
		f.ok("DeleteAPIKey", f.DeleteAPIKey(f.ctx, "k"))
		_, err := f.APIKey(f.ctx, [32]byte{1})
		f.wantErr("APIKey", err, leaderboard.ErrAPIKeyNotFound)
		keys, err := f.APIKeys(f.ctx)
		f.ok("APIKeys", err)
		f.equal("APIKeys", 0, len(keys))
		f.wantErr("DeleteAPIKey", f.DeleteAPIKey(f.ctx, "k"), leaderboard.ErrAPIKeyNotFound)
	}},
}
