package config

import (
	"math"
	"time"
)

// JWT says which JSON Web Tokens are accepted beside API keys. Without an
// algorithm none is.
type JWT struct {
	Algorithm string        `key:"algorithm" unit:"HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA" help:"The one algorithm of accepted tokens. Empty accepts no token, API keys only."`
	Secret    Secret        `key:"secret" unit:"text" help:"Secret of tokens signed with HS256, HS384 or HS512, at least 32 bytes."`
	PublicKey string        `key:"public_key" unit:"path" help:"Public key or certificate in PEM of tokens signed with another algorithm."`
	JWKS      string        `key:"jwks" unit:"https URL or path" help:"JSON Web Key Set with the public keys, in place of jwt.public_key."`
	Issuer    string        `key:"issuer" unit:"text" help:"The iss that a token must have. Required for tokens."`
	Audience  string        `key:"audience" unit:"text" help:"An aud that a token must have. Required for tokens."`
	Leeway    time.Duration `key:"leeway" unit:"duration" help:"How far the clocks of the issuer and this server may be apart."`
	Refresh   time.Duration `key:"refresh" unit:"duration" help:"How often jwt.jwks is read again."`
}

// Limits are what callers are held to. Rates are those of token buckets: how
// many a second for long, and how many at once.
type Limits struct {
	KeyRate   float64 `key:"key_rate" unit:"calls a second" help:"Calls with one API key, or of one token's subject. 0 is no limit."`
	KeyBurst  int     `key:"key_burst" unit:"calls" help:"Calls with one API key at once. 0 is one second's worth."`
	UserRate  float64 `key:"user_rate" unit:"results a second" help:"Results submitted for one user, whoever sends them. 0 is no limit."`
	UserBurst int     `key:"user_burst" unit:"results" help:"Results submitted for one user at once. 0 is one second's worth."`
	PeerRate  float64 `key:"peer_rate" unit:"calls a second" help:"Calls without valid credentials from one address. 0 is no limit."`
	PeerBurst int     `key:"peer_burst" unit:"calls" help:"Calls without valid credentials from one address at once. 0 is one second's worth."`
	Streams   int     `key:"streams" unit:"calls" help:"Calls under way on one gRPC connection."`
	Watchers  int     `key:"watchers" unit:"calls" help:"Calls under way that watch a ranking, on all connections."`
}

func (j *JWT) validate(v *validator) {
	v.readable("jwt.public_key", j.PublicKey)
	v.positive("jwt.leeway", j.Leeway)
	v.positive("jwt.refresh", j.Refresh)
	sources := 0
	for _, s := range []string{string(j.Secret), j.PublicKey, j.JWKS} {
		if s != "" {
			sources++
		}
	}
	if j.Algorithm == "" {
		if sources > 0 {
			v.fault("jwt.algorithm", "is empty; name the algorithm that tokens are signed with")
		}
		return
	}
	if sources != 1 {
		v.fault("jwt.algorithm", "needs exactly one of jwt.secret, jwt.public_key and jwt.jwks, %d are set", sources)
	}
	for key, value := range map[string]string{"jwt.issuer": j.Issuer, "jwt.audience": j.Audience} {
		if value == "" {
			v.fault(key, "is empty; without it another service's tokens would be accepted")
		}
	}
}

func (l *Limits) validate(v *validator) {
	for key, n := range map[string]int{"limits.streams": l.Streams, "limits.watchers": l.Watchers} {
		if n < 1 || n > math.MaxInt32 {
			v.fault(key, "%d is not 1 to %d", n, math.MaxInt32)
		}
	}
	for _, b := range []struct {
		name  string
		rate  float64
		burst int
	}{{"key", l.KeyRate, l.KeyBurst}, {"user", l.UserRate, l.UserBurst}, {"peer", l.PeerRate, l.PeerBurst}} {
		if b.rate < 0 || math.IsInf(b.rate, 0) || math.IsNaN(b.rate) {
			v.fault("limits."+b.name+"_rate", "%v is not 0 or more", b.rate)
		}
		if b.burst < 0 {
			v.fault("limits."+b.name+"_burst", "%d is not 0 or more", b.burst)
		}
	}
}
