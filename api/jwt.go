package api

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

// JWT says which JSON web tokens are accepted besides API keys. Exactly one of
// Secret, PublicKey and JWKS is set. A token must not be expired; what it may do
// is in its claim "scope" (words in one string) or "scopes" (a list), and to read
// rankings if it has neither: a player's token.
type JWT struct {
	// Algorithm is the only one accepted: HS256, HS384, HS512, RS256, RS384,
	// RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA.
	Algorithm string
	Secret    Secret // for HS…, at least 32 bytes
	PublicKey string // a file with a PEM public key or certificate
	JWKS      string // an https URL, or a file, with a JSON web key set
	Issuer    string // the iss claim, required
	Audience  string // one of the aud claim, required
	// Leeway is how far the clocks may be apart. Default 30 s.
	Leeway time.Duration
	// Refresh is how often JWKS is read again. Default 10 minutes; an unknown
	// key id reads it at once, at most every 10 s.
	Refresh time.Duration
}

const (
	defaultLeeway  = 30 * time.Second
	defaultRefresh = 10 * time.Minute
	minRefresh     = 10 * time.Second
	jwksTimeout    = 10 * time.Second
	maxJWKSBytes   = 1 << 20
	minSecretBytes = 32
)

// verifier checks tokens. It is the KeyProvider of their signatures.
type verifier struct {
	alg    jwa.SignatureAlgorithm
	key    any // nil if from JWKS
	o      JWT
	now    func() time.Time
	client *http.Client

	mu     sync.Mutex
	set    jwk.Set
	readAt time.Time
}

// newVerifier reads the keys once, so that a wrong setting is seen at start.
func newVerifier(ctx context.Context, o JWT, now func() time.Time) (*verifier, error) {
	alg, ok := jwa.LookupSignatureAlgorithm(o.Algorithm)
	if !ok || alg == jwa.NoSignature() {
		return nil, fmt.Errorf("api: jwt algorithm %q is unknown: name one such as HS256, RS256, ES256 or EdDSA", o.Algorithm)
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
		return nil, errors.New("api: jwt needs exactly one of a secret, a public key and a JWKS")
	case o.Issuer == "" || o.Audience == "":
		return nil, errors.New("api: jwt needs an issuer and an audience, or another service's tokens would be accepted")
	case alg.IsSymmetric() != (o.Secret != ""):
		return nil, fmt.Errorf("api: jwt algorithm %s does not go with that kind of key", alg)
	case o.Secret != "" && len(o.Secret) < minSecretBytes:
		return nil, fmt.Errorf("api: the jwt secret is %d bytes long, at least %d are required", len(o.Secret), minSecretBytes)
	case o.Secret != "":
		v.key = []byte(o.Secret)
	case o.PublicKey != "":
		key, err := readPublicKey(o.PublicKey)
		if err != nil {
			return nil, err
		}
		if !goesWith(o.Algorithm, key) {
			return nil, fmt.Errorf("api: jwt algorithm %s does not go with that kind of key, %T", alg, key)
		}
		v.key = key
	case strings.Contains(o.JWKS, "://") && !strings.HasPrefix(o.JWKS, "https://"):
		return nil, fmt.Errorf("api: jwks %q: only https URLs and files are read", o.JWKS)
	default:
		if _, err := v.keySet(ctx, false); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// goesWith says whether a public key is of the kind that an algorithm verifies with.
func goesWith(algorithm string, key crypto.PublicKey) bool {
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

// onlyHTTPS refuses to be led away from https.
func onlyHTTPS(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" || len(via) > 3 {
		return fmt.Errorf("api: jwks: redirected to %s", req.URL.Redacted())
	}
	return nil
}

func readPublicKey(file string) (crypto.PublicKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("api: jwt public key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("api: jwt public key %s: no PEM block", file)
	}
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("api: jwt public key %s: %w", file, err)
		}
		return cert.PublicKey, nil
	}
	return nil, fmt.Errorf("api: jwt public key %s: a PUBLIC KEY or CERTIFICATE is needed, this is %s", file, block.Type)
}

// looksLikeJWT tells a token from an API key: three parts, the first a JSON
// object in base64.
func looksLikeJWT(token string) bool {
	return strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 2
}

func (v *verifier) verify(ctx context.Context, token string) (caller, error) {
	t, err := jwt.Parse([]byte(token), jwt.WithContext(ctx), jwt.WithKeyProvider(v), jwt.WithValidate(true),
		jwt.WithIssuer(v.o.Issuer), jwt.WithAudience(v.o.Audience), jwt.WithRequiredClaim(jwt.ExpirationKey),
		jwt.WithAcceptableSkew(v.o.Leeway), jwt.WithClock(jwt.ClockFunc(v.now)))
	if err != nil {
		return caller{}, err
	}
	subject, _ := t.Subject()
	if subject == "" {
		return caller{}, errors.New("api: jwt without subject")
	}
	c := caller{"jwt:" + subject, read}
	if scopes, ok := scopesClaim(t); ok {
		c.scope = highest(scopes)
	}
	return c, nil
}

// scopesClaim returns the scopes that a token names, and false if it has no such claim.
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

// FetchKeys gives a signature the keys that may have made it: none if it was
// made by another algorithm than the one that is accepted.
func (v *verifier) FetchKeys(ctx context.Context, sink jws.KeySink, sig *jws.Signature, _ *jws.Message) error {
	if alg, ok := sig.ProtectedHeaders().Algorithm(); !ok || alg != v.alg {
		return fmt.Errorf("api: the jwt is not signed by %s", v.alg)
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
		sink.Key(v.alg, key)
	}
	return nil
}

// keySet returns the keys of the JWKS. If it is time they are read again behind
// the caller's back; if urgent, and not just done, before the answer. While they
// cannot be read, the old ones go on.
func (v *verifier) keySet(ctx context.Context, urgent bool) (jwk.Set, error) {
	v.mu.Lock()
	set, age := v.set, v.now().Sub(v.readAt)
	due := set == nil || age >= v.o.Refresh || urgent && age >= minRefresh
	if due {
		v.readAt = v.now() // so that nobody else reads them too
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

func (v *verifier) refresh(ctx context.Context) (jwk.Set, error) {
	set, err := v.readJWKS(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.set = set
		return set, nil
	}
	v.readAt = v.now().Add(minRefresh - v.o.Refresh)
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
		return nil, fmt.Errorf("api: jwks: %w", err)
	}
	set, err := jwk.ParseReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("api: jwks %s: %w", v.o.JWKS, err)
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
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", v.o.JWKS, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxJWKSBytes))
}
