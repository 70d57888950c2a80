package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// JWT describes the accepted JSON web tokens. Exactly one of Secret, PublicKey and JWKS is
// set. Tokens must expire. Their scopes are in the claim "scope", separated by spaces, or
// in the list "scopes". Without both claims, a token has the scope "read". The claims
// "boards" and "board_prefixes" limit a token to boards.
type JWT struct {
	// HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or
	// EdDSA
	Algorithm string
	Secret    secret.Text // for HS…, at least 32 bytes
	PublicKey string      // a file with a PEM public key or certificate
	JWKS      string      // an https URL, or a file, with a JSON web key set
	Issuer    string      // the required iss claim
	Audience  string      // the required value in the aud claim
	// Leeway is the tolerated difference of the clocks. Default 30 s.
	Leeway time.Duration
	// Refresh is how often JWKS is reloaded. Default 10 minutes. An unknown key id causes
	// an immediate reload, at most every 10 s.
	Refresh time.Duration
	// MaxLifetime is the longest allowed time from a token's issue (iat) to its expiry (exp), and
	// from now to its expiry. 0 means no bound.
	MaxLifetime time.Duration
}

const (
	defaultLeeway  = 30 * time.Second
	defaultRefresh = 10 * time.Minute
	minRefresh     = 10 * time.Second
	jwksTimeout    = 10 * time.Second
	maxJWKSBytes   = 1 << 20
	minSecretBytes = 32
)

type verifier struct {
	alg    jwa.SignatureAlgorithm
	key    any // nil with JWKS
	o      JWT
	now    func() time.Time
	client *http.Client

	mu       sync.Mutex
	set      jwk.Set
	loadedAt time.Time
	triedAt  time.Time // when the latest load began
}

// newVerifier reads the keys, so that the server does not start with an invalid setting.
func newVerifier(ctx context.Context, o JWT, now func() time.Time) (*verifier, error) {
	alg, ok := jwa.LookupSignatureAlgorithm(o.Algorithm)
	if !ok || alg == jwa.NoSignature() {
		return nil, fmt.Errorf("auth: jwt.algorithm: %q is unknown: use HS256, RS256, ES256, EdDSA or another algorithm from the documentation", o.Algorithm)
	}
	if o.Leeway == 0 {
		o.Leeway = defaultLeeway
	}
	if o.Refresh == 0 {
		o.Refresh = defaultRefresh
	}
	v := &verifier{alg: alg, o: o, now: now, client: &http.Client{Timeout: jwksTimeout, CheckRedirect: onlyHTTPS}}
	sources := 0
	for _, s := range []string{string(o.Secret), o.PublicKey, o.JWKS} {
		if s != "" {
			sources++
		}
	}
	switch {
	case sources != 1:
		return nil, errors.New("auth: jwt needs exactly one of a secret, a public key and a JWKS")
	case o.Issuer == "" || o.Audience == "":
		return nil, errors.New("auth: jwt needs an issuer and an audience: without them, tokens of other services would be accepted")
	case alg.IsSymmetric() != (o.Secret != ""):
		return nil, fmt.Errorf("auth: jwt.algorithm: %s cannot be used with the configured kind of key: HS… needs a secret, the others need a public key or a JWKS", alg)
	case o.Secret != "" && len(o.Secret) < minSecretBytes:
		return nil, fmt.Errorf("auth: jwt.secret: has %d bytes, at least %d are required", len(o.Secret), minSecretBytes)
	case o.Secret != "":
		v.key = []byte(o.Secret)
	case o.PublicKey != "":
		key, err := readPublicKey(o.PublicKey)
		if err != nil {
			return nil, err
		}
		if !verifiesWith(o.Algorithm, key) {
			return nil, fmt.Errorf("auth: jwt.public_key: algorithm %s cannot be used with the public key in %s, a %T", alg, o.PublicKey, key)
		}
		v.key = key
	case strings.Contains(o.JWKS, "://") && !strings.HasPrefix(o.JWKS, "https://"):
		return nil, fmt.Errorf("auth: jwt.jwks: %q: use an https URL or the path of a file; only https is allowed in URLs", o.JWKS)
	default:
		if _, err := v.keySet(ctx, false); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func verifiesWith(algorithm string, key crypto.PublicKey) bool {
	switch key.(type) {
	case *rsa.PublicKey:
		return algorithm[0] == 'R' || algorithm[0] == 'P'
	case *ecdsa.PublicKey:
		return strings.HasPrefix(algorithm, "ES")
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

func onlyHTTPS(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" || len(via) > 3 {
		return fmt.Errorf("auth: jwt.jwks: redirected to %s", req.URL.Redacted())
	}
	return nil
}

func readPublicKey(file string) (crypto.PublicKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("auth: jwt.public_key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("auth: jwt.public_key: %s: no PEM block", file)
	}
	switch block.Type {
	case "PUBLIC KEY":
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("auth: jwt.public_key: %s: %w", file, err)
		}
		return key, nil
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("auth: jwt.public_key: %s: %w", file, err)
		}
		return cert.PublicKey, nil
	}
	return nil, fmt.Errorf("auth: jwt.public_key: %s: the PEM block is a %s; a PUBLIC KEY or CERTIFICATE is needed", file, block.Type)
}

// looksLikeJWT reports whether token has three parts separated by dots, and begins with
// eyJ. A JSON object has this beginning in base64. API keys contain no dots.
func looksLikeJWT(token string) bool {
	return strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 2
}

func (v *verifier) verify(ctx context.Context, token string) (Caller, error) {
	if err := checkForm(token); err != nil {
		return Caller{}, err
	}
	t, err := jwt.Parse([]byte(token), jwt.WithContext(ctx), jwt.WithKeyProvider(v), jwt.WithValidate(true),
		jwt.WithIssuer(v.o.Issuer), jwt.WithAudience(v.o.Audience), jwt.WithRequiredClaim(jwt.ExpirationKey),
		jwt.WithAcceptableSkew(v.o.Leeway), jwt.WithClock(jwt.ClockFunc(v.now)))
	if err != nil {
		return Caller{}, err
	}
	if !v.shortLived(t) {
		return Caller{}, errors.New("auth: the jwt is valid for longer than jwt.max_lifetime")
	}
	subject, _ := t.Subject()
	if subject == "" {
		return Caller{}, errors.New("auth: jwt without subject")
	}
	bound, err := boundClaims(t)
	if err != nil {
		return Caller{}, err
	}
	expires, _ := t.Expiration()
	c := Caller{ID: "jwt:" + subject, Scope: Read, Bound: bound, ExpiresAt: expires.Add(v.o.Leeway)}
	if scopes, ok := scopesClaim(t); ok {
		c.Scope = highestScope(scopes)
	}
	return c, nil
}

func (v *verifier) shortLived(t jwt.Token) bool {
	if v.o.MaxLifetime == 0 {
		return true
	}
	expires, _ := t.Expiration()
	if issued, ok := t.IssuedAt(); ok && expires.Sub(issued) > v.o.MaxLifetime {
		return false
	}
	return expires.Sub(v.now()) <= v.o.MaxLifetime+v.o.Leeway
}

// checkForm returns an error unless:
//   - every part of the token is base64url;
//   - the header and the claims are one JSON object each;
//   - the header has no critical extensions;
//   - the times in the claims are numbers.
func checkForm(token string) error {
	for i, part := range strings.Split(token, ".") {
		data, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || strings.ContainsAny(part, "\r\n") {
			return fmt.Errorf("auth: part %d of the jwt is not base64url", i)
		}
		if i == 2 {
			continue // the signature
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			return fmt.Errorf("auth: part %d of the jwt is not one JSON object: %w", i, err)
		}
		if _, ok := fields["crit"]; ok && i == 0 {
			return errors.New("auth: the jwt has critical extensions, and none is supported")
		}
		for _, name := range []string{"exp", "nbf", "iat"} {
			var n json.Number
			if raw, ok := fields[name]; ok && i == 1 && (raw[0] == '"' || json.Unmarshal(raw, &n) != nil || n == "") {
				return fmt.Errorf("auth: the claim %s of the jwt is not a number", name)
			}
		}
	}
	return nil
}

// scopesClaim returns false if the token has neither claim.
func scopesClaim(t jwt.Token) ([]string, bool) {
	for _, name := range []string{"scope", "scopes"} {
		var claim any
		if t.Get(name, &claim) != nil {
			continue
		}
		switch claim := claim.(type) {
		case string:
			return strings.Fields(claim), true
		case []any:
			var scopes []string
			for _, s := range claim {
				if s, ok := s.(string); ok {
					scopes = append(scopes, s)
				}
			}
			return scopes, true
		}
		return nil, true
	}
	return nil, false
}

// FetchKeys implements [jws.KeyProvider]. It gives sink each key that may have made the
// signature sig.
func (v *verifier) FetchKeys(ctx context.Context, sink jws.KeySink, sig *jws.Signature, _ *jws.Message) error {
	if alg, ok := sig.ProtectedHeaders().Algorithm(); !ok || alg != v.alg {
		return fmt.Errorf("auth: the jwt is not signed by %s", v.alg)
	}
	if v.key != nil {
		sink.Key(v.alg, v.key)
		return nil
	}
	kid, _ := sig.ProtectedHeaders().KeyID()
	set, err := v.keySet(ctx, false)
	if err != nil {
		return err
	}
	if _, known := set.LookupKeyID(kid); kid != "" && !known {
		if set, err = v.keySet(ctx, true); err != nil {
			return err
		}
	}
	for i := range set.Len() {
		key, _ := set.Key(i)
		if id, _ := key.KeyID(); kid != "" && id != kid {
			continue
		}
		if alg, ok := key.Algorithm(); ok && alg.String() != v.alg.String() {
			continue
		}
		if use, ok := key.KeyUsage(); ok && use != string(jwk.ForSignature) {
			continue
		}
		if ops, ok := key.KeyOps(); ok && !slices.Contains(ops, jwk.KeyOpVerify) {
			continue
		}
		sink.Key(v.alg, key)
	}
	return nil
}

// keySet returns the keys of the JWKS. If the keys are older than Refresh, keySet returns
// them and reloads them in the background. If urgent is set, keySet reloads keys of any age,
// and waits. Reloads begin at least minRefresh apart, even after failures.
func (v *verifier) keySet(ctx context.Context, urgent bool) (jwk.Set, error) {
	v.mu.Lock()
	set, now := v.set, v.now()
	due := set == nil || now.Sub(v.triedAt) >= minRefresh && (urgent || now.Sub(v.loadedAt) >= v.o.Refresh)
	if due {
		v.triedAt = now // so that concurrent callers do not reload too
	}
	v.mu.Unlock()
	switch {
	case !due:
		return set, nil
	case set == nil || urgent:
		return v.refresh(ctx)
	}
	go func() { _, _ = v.refresh(ctx) }()
	return set, nil
}

// refresh reloads the keys. If it cannot read the JWKS, it returns the old keys.
func (v *verifier) refresh(ctx context.Context) (jwk.Set, error) {
	set, err := v.readJWKS(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.set, v.loadedAt = set, v.now()
		return set, nil
	}
	if v.set != nil {
		return v.set, nil
	}
	return nil, err
}

func (v *verifier) readJWKS(ctx context.Context) (jwk.Set, error) {
	var data []byte
	var err error
	if strings.HasPrefix(v.o.JWKS, "https://") {
		data, err = v.fetch(context.WithoutCancel(ctx))
	} else {
		data, err = os.ReadFile(v.o.JWKS)
	}
	if err != nil {
		return nil, fmt.Errorf("auth: jwt.jwks: %w", err)
	}
	set, err := jwk.ParseReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("auth: jwt.jwks: %s is not a JSON Web Key Set: %w", v.o.JWKS, err)
	}
	return set, nil
}

func (v *verifier) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.o.JWKS, nil)
	if err != nil {
		return nil, err
	}
	res, err := v.client.Do(req)
	if err != nil {
		if verification := (*tls.CertificateVerificationError)(nil); errors.As(err, &verification) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, err)
	}
	defer res.Body.Close()
	switch code := res.StatusCode; {
	case code >= 500 || code == http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w: %s answered %s", leaderboard.ErrUnavailable, v.o.JWKS, res.Status)
	case code != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s", v.o.JWKS, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxJWKSBytes))
}
