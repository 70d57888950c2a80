package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Secret is a key or password. However it is printed, logged or marshaled, it
// shows as asterisks; string(s) is the secret itself.
type Secret string

const hidden = "***"

// String hides s.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides s from %#v.
func (s Secret) GoString() string { return `api.Secret("` + s.String() + `")` }

// MarshalText hides s from JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the secret from configuration.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// LogValue hides s from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// keyPrefix begins every API key that the service makes, so that a key that was
// published by mistake is recognized as one.
const keyPrefix = "lbk_"

// NewKey makes an API key of 256 random bits. The secret is for its holder; of
// it only the hash is in the key. scopes are as checked by checkScopes.
func NewKey(name string, scopes []string, now time.Time) (Secret, leaderboard.APIKey) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return KeyFrom(Secret(keyPrefix+base64.RawURLEncoding.EncodeToString(b[:])), name, scopes, now)
}

// KeyFrom makes an API key of a secret that was chosen elsewhere. The same
// secret makes a key of the same id.
func KeyFrom(s Secret, name string, scopes []string, now time.Time) (Secret, leaderboard.APIKey) {
	hash := hashKey(s)
	return s, leaderboard.APIKey{
		ID: hex.EncodeToString(hash[:8]), Name: name, Hash: hash, Scopes: scopes, CreatedAt: leaderboard.Truncate(now),
	}
}

// hashKey returns what is kept of an API key: its SHA-256. A key has 256 random
// bits, so that a slow hash would add nothing.
func hashKey(s Secret) [32]byte { return sha256.Sum256([]byte(strings.TrimSpace(string(s)))) }
