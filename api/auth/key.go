package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

const keyPrefix = "lbk_"

// NewKey creates an API key from 256 random bits. It returns the secret for the client, and
// the [leaderboard.APIKey] for the store. The caller must check scopes with [CheckScopes].
func NewKey(name string, scopes []string, now time.Time) (secret.Text, leaderboard.APIKey) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	text := secret.Text(keyPrefix + base64.RawURLEncoding.EncodeToString(b[:]))
	return text, KeyFrom(text, name, scopes, now)
}

// KeyFrom returns an API key for a given secret. Equal secrets give equal key ids.
func KeyFrom(text secret.Text, name string, scopes []string, now time.Time) leaderboard.APIKey {
	hash := hashKey(text)
	return leaderboard.APIKey{
		ID: hex.EncodeToString(hash[:8]), Name: name, Hash: hash, Scopes: scopes, CreatedAt: leaderboard.Truncate(now),
	}
}

// ConfiguredKeyID is the id of the admin key from the configuration.
const ConfiguredKeyID = "admin-key"

// IsAdmin reports whether k has not expired, and allows every call on a server that requires
// keys.
func IsAdmin(k *leaderboard.APIKey, now time.Time) bool {
	return highestScope(k.Scopes) == Admin && boundOf(k).AllBoards() && !k.Insecure && !expired(k, now)
}

func expired(k *leaderboard.APIKey, now time.Time) bool {
	return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt)
}

// A slow hash would not add security, because a key has 256 random bits.
func hashKey(text secret.Text) [32]byte {
	return sha256.Sum256([]byte(strings.TrimSpace(string(text))))
}
