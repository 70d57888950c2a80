package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"github.com/open-leaderboard/leaderboard/internal/secret"
)

var tokenNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func sign(t testing.TB, alg jwa.SignatureAlgorithm, key any) string {
	t.Helper()
	token, err := jwt.NewBuilder().Issuer("https://id.example").Audience([]string{"leaderboard"}).Subject("player-7").
		Expiration(tokenNow.Add(time.Hour)).NotBefore(tokenNow.Add(-time.Hour)).Build()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jwt.Sign(token, jwt.WithKey(alg, key))
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}

func writePublicPEM(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// settings returns settings that accept the tokens of sign.
func settings(change func(*JWT)) JWT {
	o := JWT{Issuer: "https://id.example", Audience: "leaderboard"}
	change(&o)
	return o
}

func TestJWTAlgorithms(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	shared := []byte(strings.Repeat("s", 64))
	for _, tt := range []struct {
		alg    jwa.SignatureAlgorithm
		key    any
		public any
	}{
		{jwa.HS256(), shared, nil}, {jwa.HS512(), shared, nil},
		{jwa.RS256(), rsaKey, &rsaKey.PublicKey}, {jwa.PS384(), rsaKey, &rsaKey.PublicKey},
		{jwa.ES256(), ecKey, &ecKey.PublicKey}, {jwa.EdDSA(), edKey, edPublic},
	} {
		t.Run(tt.alg.String(), func(t *testing.T) {
			o := settings(func(o *JWT) { o.Algorithm = tt.alg.String() })
			if tt.public == nil {
				o.Secret = secret.Text(shared)
			} else {
				o.PublicKey = writePublicPEM(t, tt.public)
			}
			v, err := newVerifier(t.Context(), o, func() time.Time { return tokenNow })
			if err != nil {
				t.Fatal(err)
			}
			c, err := v.verify(t.Context(), sign(t, tt.alg, tt.key))
			if err != nil || c.ID != "jwt:player-7" || c.Scope != Read {
				t.Errorf("a player's token: caller %+v, error %v; want jwt:player-7 with scope read", c, err)
			}
			// The verifier must refuse a wrong key, and a wrong algorithm even with the right key.
			other := []byte(strings.Repeat("x", 64))
			for _, wrong := range []struct {
				alg jwa.SignatureAlgorithm
				key any
			}{{jwa.HS256(), other}, {jwa.HS384(), shared}, {jwa.RS512(), rsaKey}, {jwa.ES256(), newECKey(t)}} {
				if c, err := v.verify(t.Context(), sign(t, wrong.alg, wrong.key)); err == nil {
					t.Errorf("a token signed with %v is accepted as %+v, want an error", wrong.alg, c)
				}
			}
		})
	}
	// The public key must not be accepted as an HMAC secret.
	o := settings(func(o *JWT) { o.Algorithm, o.PublicKey = "RS256", writePublicPEM(t, &rsaKey.PublicKey) })
	v, err := newVerifier(t.Context(), o, func() time.Time { return tokenNow })
	if err != nil {
		t.Fatal(err)
	}
	pemBytes, _ := os.ReadFile(o.PublicKey)
	if c, err := v.verify(t.Context(), sign(t, jwa.HS256(), pemBytes)); err == nil {
		t.Errorf("an HS256 token with the public key as its secret is accepted as %+v, want an error", c)
	}
}

func newECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestJWTSettings(t *testing.T) {
	long := secret.Text(strings.Repeat("s", 32))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := writePublicPEM(t, &rsaKey.PublicKey)
	private := writeFile(t, "private.pem", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}))
	for name, tt := range map[string]struct {
		o    JWT
		text string // part of the error
	}{
		"the algorithm none":        {settings(func(o *JWT) { o.Algorithm, o.Secret = "none", long }), "unknown"},
		"an unknown algorithm":      {settings(func(o *JWT) { o.Algorithm, o.Secret = "HS1", long }), "unknown"},
		"no key":                    {settings(func(o *JWT) { o.Algorithm = "HS256" }), "exactly one"},
		"two keys":                  {settings(func(o *JWT) { o.Algorithm, o.Secret, o.PublicKey = "HS256", long, public }), "exactly one"},
		"a short secret":            {settings(func(o *JWT) { o.Algorithm, o.Secret = "HS256", "short" }), "jwt.secret: has 5 bytes, at least 32"},
		"a secret for RS256":        {settings(func(o *JWT) { o.Algorithm, o.Secret = "RS256", long }), "cannot be used with"},
		"a public key for HS256":    {settings(func(o *JWT) { o.Algorithm, o.PublicKey = "HS256", public }), "cannot be used with"},
		"an RSA key for ES256":      {settings(func(o *JWT) { o.Algorithm, o.PublicKey = "ES256", public }), "jwt.public_key: algorithm ES256 cannot be used with"},
		"a private key":             {settings(func(o *JWT) { o.Algorithm, o.PublicKey = "RS256", private }), "jwt.public_key: "},
		"a missing key file":        {settings(func(o *JWT) { o.Algorithm, o.PublicKey = "RS256", "missing.pem" }), "jwt.public_key: open missing.pem"},
		"a key file without PEM":    {settings(func(o *JWT) { o.Algorithm, o.PublicKey = "RS256", writeFile(t, "x", []byte("x")) }), "no PEM"},
		"a JWKS over http":          {settings(func(o *JWT) { o.Algorithm, o.JWKS = "RS256", "http://id.example/keys" }), "jwt.jwks: \"http://id.example/keys\""},
		"a missing JWKS file":       {settings(func(o *JWT) { o.Algorithm, o.JWKS = "RS256", "missing.json" }), "jwt.jwks: open missing.json"},
		"a file that is not a JWKS": {settings(func(o *JWT) { o.Algorithm, o.JWKS = "RS256", writeFile(t, "x", []byte("x")) }), "is not a JSON Web Key Set"},
		"no issuer":                 {JWT{Algorithm: "HS256", Secret: long, Audience: "a"}, "issuer"},
		"no audience":               {JWT{Algorithm: "HS256", Secret: long, Issuer: "i"}, "audience"},
	} {
		if _, err := newVerifier(t.Context(), tt.o, time.Now); err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), string(long)) {
			t.Errorf("%s: error %v; want one that contains %q and not the secret", name, err, tt.text)
		}
	}
}

func keySetJSON(t testing.TB, keys map[string]*ecdsa.PrivateKey) []byte {
	t.Helper()
	set := jwk.NewSet()
	for id, key := range keys {
		k, err := jwk.Import(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Set(jwk.KeyIDKey, id); err != nil {
			t.Fatal(err)
		}
		if err := set.AddKey(k); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func signWithID(t testing.TB, id string, key *ecdsa.PrivateKey) string {
	t.Helper()
	token, err := jwt.NewBuilder().Issuer("https://id.example").Audience([]string{"leaderboard"}).Subject("p").Expiration(tokenNow.Add(10 * time.Hour)).Build()
	if err != nil {
		t.Fatal(err)
	}
	headers := jws.NewHeaders()
	if id != "" {
		if err := headers.Set(jws.KeyIDKey, id); err != nil {
			t.Fatal(err)
		}
	}
	signed, err := jwt.Sign(token, jwt.WithKey(jwa.ES256(), key, jws.WithProtectedHeaders(headers)))
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}

func TestJWKSRefresh(t *testing.T) {
	oldKey, newKey := newECKey(t), newECKey(t)
	var served atomic.Value
	served.Store(keySetJSON(t, map[string]*ecdsa.PrivateKey{"old": oldKey}))
	var reads atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reads.Add(1)
		if data := served.Load().([]byte); data != nil {
			w.Write(data)
		} else {
			http.Error(w, "down", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	now := tokenNow
	v := &verifier{alg: jwa.ES256(), o: settings(func(o *JWT) { o.JWKS, o.Refresh, o.Leeway = server.URL, 10*time.Minute, time.Second }), now: func() time.Time { return now }, client: server.Client()}
	check := func(what string, token string, want bool, wantReads int64) {
		t.Helper()
		if _, err := v.verify(t.Context(), token); (err == nil) != want {
			t.Errorf("%s: the token is accepted: %t (%v), want %t", what, err == nil, err, want)
		}
		if got := reads.Load(); got != wantReads {
			t.Errorf("%s: the key set was requested %d times, want %d", what, got, wantReads)
		}
	}
	check("the first token", signWithID(t, "old", oldKey), true, 1)
	check("a known key", signWithID(t, "old", oldKey), true, 1)
	check("no key id", signWithID(t, "", oldKey), true, 1)
	check("another key under a known id", signWithID(t, "old", newKey), false, 1)
	check("an unknown key id, less than minRefresh after the last load", signWithID(t, "next", newKey), false, 1)
	served.Store(keySetJSON(t, map[string]*ecdsa.PrivateKey{"old": oldKey, "next": newKey}))
	now = now.Add(minRefresh)
	check("an unknown key id, minRefresh after the last load", signWithID(t, "next", newKey), true, 2)
	served.Store([]byte(nil))
	now = now.Add(minRefresh)
	check("an unknown key while the server is down", signWithID(t, "other", newECKey(t)), false, 3)
	check("a known key while the server is down", signWithID(t, "next", newKey), true, 3)
	for i := range 10 {
		check("another unknown key while the server is down", signWithID(t, fmt.Sprint(i), newKey), false, 3)
	}
	now = now.Add(minRefresh)
	check("an unknown key while the server is still down", signWithID(t, "other", newKey), false, 4)
	served.Store(keySetJSON(t, map[string]*ecdsa.PrivateKey{"next": newKey}))
	now = now.Add(time.Hour)
	if _, err := v.verify(t.Context(), signWithID(t, "next", newKey)); err != nil {
		t.Errorf("a known key, after the key set became older than Refresh: error %v, want the token accepted", err)
	}
	waitFor(t, "a background reload, which drops the key \"old\"", func() bool {
		_, err := v.verify(t.Context(), signWithID(t, "old", oldKey))
		return err != nil
	})
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited a minute for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func signRaw(secret []byte, header, claims string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	signed := b64([]byte(header)) + "." + b64([]byte(claims))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + b64(mac.Sum(nil))
}

func TestJWTForm(t *testing.T) {
	key := []byte(strings.Repeat("s", 32))
	o := settings(func(o *JWT) { o.Algorithm, o.Secret, o.MaxLifetime = "HS256", secret.Text(key), 24*time.Hour })
	v, err := newVerifier(t.Context(), o, func() time.Time { return tokenNow })
	if err != nil {
		t.Fatal(err)
	}
	const header = `{"alg":"HS256","typ":"JWT"}`
	claims := func(rest string) string {
		return `{"iss":"https://id.example","aud":"leaderboard","sub":"u"` + rest + `}`
	}
	unix := func(d time.Duration) string { return fmt.Sprint(tokenNow.Add(d).Unix()) }
	good := claims(`,"exp":` + unix(time.Hour))
	for _, tt := range []struct {
		name, header, claims, suffix string
		want                         bool
	}{
		{"a good token", header, good, "", true},
		{"exp with a fraction of a second", header, claims(`,"exp":` + unix(time.Hour) + `.5`), "", true},
		{"unknown critical extensions", `{"alg":"HS256","crit":["b64"],"b64":true}`, good, "", false},
		{"an empty list of critical extensions", `{"alg":"HS256","crit":[]}`, good, "", false},
		{"bytes after the claims", header, good + "{}", "", false},
		{"bytes after the header", header + "x", good, "", false},
		{"bytes after the token", header, good, "A", false},
		{"a line feed after the token", header, good, "\n", false},
		{"padding", header, good, "=", false},
		{"exp as a string", header, claims(`,"exp":"` + unix(time.Hour) + `"`), "", false},
		{"exp that is null", header, claims(`,"exp":null`), "", false},
		{"iat as a string", header, claims(`,"iat":"1","exp":` + unix(time.Hour)), "", false},
		{"exactly the maximum lifetime", header, claims(`,"iat":` + unix(-time.Hour) + `,"exp":` + unix(23*time.Hour)), "", true},
		{"a longer lifetime from iat", header, claims(`,"iat":` + unix(-24*time.Hour) + `,"exp":` + unix(time.Hour)), "", false},
		{"a longer lifetime from now, without iat", header, claims(`,"exp":` + unix(25*time.Hour)), "", false},
	} {
		if c, err := v.verify(t.Context(), signRaw(key, tt.header, tt.claims)+tt.suffix); (err == nil) != tt.want {
			t.Errorf("%s: the token is accepted: %t (caller %+v, error %v), want %t", tt.name, err == nil, c, err, tt.want)
		}
	}
}

func TestJWKSKeysForEncryption(t *testing.T) {
	key := newECKey(t)
	for use, want := range map[string]bool{"sig": true, "enc": false, "": true} {
		public, err := jwk.Import(&key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if use != "" {
			if err := public.Set(jwk.KeyUsageKey, use); err != nil {
				t.Fatal(err)
			}
		}
		set := jwk.NewSet()
		if err := set.AddKey(public); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		o := settings(func(o *JWT) { o.Algorithm, o.JWKS = "ES256", writeFile(t, "set.json", data) })
		v, err := newVerifier(t.Context(), o, func() time.Time { return tokenNow })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.verify(t.Context(), sign(t, jwa.ES256(), key)); (err == nil) != want {
			t.Errorf("a key with use %q: the token is accepted: %t (%v), want %t", use, err == nil, err, want)
		}
	}
}

func TestJWKSFile(t *testing.T) {
	key := newECKey(t)
	o := settings(func(o *JWT) {
		o.Algorithm = "ES256"
		o.JWKS = writeFile(t, "jwks.json", keySetJSON(t, map[string]*ecdsa.PrivateKey{"k": key}))
	})
	v, err := newVerifier(t.Context(), o, func() time.Time { return tokenNow })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.verify(t.Context(), signWithID(t, "k", key)); err != nil {
		t.Errorf("a token signed with a key of the JWKS file: %v, want it accepted", err)
	}
}

func TestJWKSRedirect(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(keySetJSON(t, map[string]*ecdsa.PrivateKey{"k": newECKey(t)}))
	}))
	defer plain.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer server.Close()
	client := server.Client()
	client.CheckRedirect = onlyHTTPS
	v := &verifier{alg: jwa.ES256(), o: settings(func(o *JWT) { o.JWKS = server.URL }), now: time.Now, client: client}
	if _, err := v.keySet(t.Context(), false); err == nil || !strings.Contains(err.Error(), "redirected") {
		t.Errorf("keySet with a redirect to http: error %v, want one that contains \"redirected\"", err)
	}
}
