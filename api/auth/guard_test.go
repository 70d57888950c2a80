package auth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/secret"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func FuzzAuthorization(f *testing.F) {
	store := embedded.Store(f)
	key, stored := NewKey("read", []string{"read"}, time.Now())
	if err := store.PutAPIKey(f.Context(), stored); err != nil {
		f.Fatal(err)
	}
	g, err := NewGuard(f.Context(), store, Options{
		JWT: JWT{Algorithm: "HS256", Secret: secret.Text(strings.Repeat("s", 32)), Issuer: "i", Audience: "a"}, Now: time.Now,
	})
	if err != nil {
		f.Fatal(err)
	}
	valid := "Bearer " + string(key)
	for _, seed := range []string{valid, "Bearer x", "Basic eDp5", "", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", "bearer\t" + valid} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		c, err := g.authenticate(t.Context(), nil, []string{header})
		if err == nil && (c.Scope != Read || !strings.HasSuffix(strings.TrimSpace(header), string(key))) {
			t.Errorf("header %q is accepted as %+v; want only the valid key, with scope read", header, c)
		}
		if err != nil && !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("header %q: error %v, want ErrUnauthenticated", header, err)
		}
	})
}

func TestTheSameSecretGivesTheSameKey(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	first, again := KeyFrom("chosen", "first", []string{"admin"}, now), KeyFrom("chosen", "first", []string{"admin"}, now)
	if again.ID != first.ID || again.Hash != first.Hash {
		t.Errorf("KeyFrom with the same secret returns %+v and %+v, want equal ids and hashes", first, again)
	}
}

// noted is a store that records the times of uses, and may fail to store them.
type noted struct {
	leaderboard.APIKeyStore
	times []time.Time
	err   error
}

func (n *noted) NoteAPIKeyUse(_ context.Context, _ string, at time.Time) error {
	n.times = append(n.times, at)
	return n.err
}

func TestUsesOfKeysAreNotedOncePerHour(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := start
	store := &noted{APIKeyStore: embedded.Store(t)}
	g, err := NewGuard(t.Context(), store, Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	valid, key := NewKey("valid", []string{"read"}, start)
	expiring, old := NewKey("expired", []string{"read"}, start)
	old.ExpiresAt = start
	insecure, local := NewKey("insecure", []string{"read"}, start)
	local.Insecure = true
	for _, k := range []leaderboard.APIKey{key, old, local} {
		if err := store.PutAPIKey(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	for _, refused := range []secret.Text{expiring, insecure, "lbk_unknown"} {
		if _, err := g.authenticate(t.Context(), nil, []string{"Bearer " + string(refused)}); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("key %s: error %v, want ErrUnauthenticated", refused, err)
		}
	}
	store.err = leaderboard.ErrUnavailable // a call proceeds though its note fails, and the note is repeated
	for ; now.Before(start.Add(3 * useInterval)); now = now.Add(keyTTL) {
		if _, err := g.authenticate(t.Context(), nil, []string{"Bearer " + string(valid)}); err != nil {
			t.Fatalf("the valid key at %v: %v", now, err)
		}
		store.err = nil
	}
	want := []time.Time{start, start.Add(keyTTL), start.Add(keyTTL + useInterval), start.Add(keyTTL + 2*useInterval)}
	if !slices.Equal(store.times, want) {
		t.Errorf("uses were noted at %v, want %v", store.times, want)
	}
}

func TestCheckLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:8080", "127.8.9.1:0", "[::1]:8080", "localhost:80"} {
		if err := CheckLoopback(address); err != nil {
			t.Errorf("CheckLoopback(%q): %v, want nil", address, err)
		}
	}
	for _, address := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "192.168.0.1:80", "example.com:80", "127.0.0.1", "localhost.example.com:80", ""} {
		if err := CheckLoopback("127.0.0.1:1", address); err == nil {
			t.Errorf("CheckLoopback(127.0.0.1:1, %q) returns nil, want an error", address)
		}
	}
}
