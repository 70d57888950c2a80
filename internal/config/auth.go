package config

import (
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// JWT contains the settings of JSON Web Tokens. Without Algorithm, the server accepts API
// keys only.
type JWT struct {
	Algorithm   string        `key:"algorithm" unit:"HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA" help:"Algorithm of tokens. If empty, the server accepts API keys only."`
	Secret      secret.Text   `key:"secret" unit:"text" help:"Secret for HS256, HS384 or HS512, at least 32 bytes."`
	PublicKey   string        `key:"public_key" unit:"path" help:"Public key or certificate for the other algorithms."`
	JWKS        string        `key:"jwks" unit:"https URL or path" help:"JSON Web Key Set, instead of jwt.public_key."`
	Issuer      string        `key:"issuer" unit:"text" help:"Required value of the claim iss; required with jwt.algorithm."`
	Audience    string        `key:"audience" unit:"text" help:"Required value of the claim aud; required with jwt.algorithm."`
	Leeway      time.Duration `key:"leeway" unit:"duration" help:"Accepted difference from the issuer's clock."`
	Refresh     time.Duration `key:"refresh" unit:"duration" help:"How often the server reloads jwt.jwks, at least 10s."`
	MaxLifetime time.Duration `key:"max_lifetime" unit:"duration" help:"Maximum time from the claim iat (if missing, from now) to the claim exp. 0 is unlimited."`
}

// Limits contains the limits for callers. A rate and a burst with the same prefix form one
// token bucket.
type Limits struct {
	KeyRate          float64 `key:"key_rate" unit:"calls per second" help:"Rate limit of each API key, and each subject of tokens."`
	KeyBurst         int     `key:"key_burst" unit:"calls" help:"Calls that a key may make at once."`
	UserRate         float64 `key:"user_rate" unit:"results per second" help:"Rate limit of each user's results, from all callers together."`
	UserBurst        int     `key:"user_burst" unit:"results" help:"Results of a user that may arrive at once."`
	PeerRate         float64 `key:"peer_rate" unit:"calls per second" help:"Rate limit of each address without valid credentials. Public pages and metrics count, probes do not."`
	PeerBurst        int     `key:"peer_burst" unit:"calls" help:"Calls without valid credentials that an address may make at once."`
	Connections      int     `key:"connections" unit:"connections" help:"Maximum connections of each listener. Further connections wait."`
	Streams          int     `key:"streams" unit:"calls" help:"Maximum concurrent calls on a gRPC or HTTP/2 connection."`
	Watchers         int     `key:"watchers" unit:"calls" help:"Maximum concurrent calls with keys that watch; with --insecure, of all calls that watch."`
	CallerWatchers   int     `key:"caller_watchers" unit:"calls" help:"Maximum watchers of each key; unlimited with --insecure."`
	AnonymousStreams int     `key:"anonymous_streams" unit:"calls" help:"Maximum concurrent streams without keys: watches, health watches and reflection. Each ends after at most an hour."`
	PeerStreams      int     `key:"peer_streams" unit:"calls" help:"Maximum concurrent streams without keys of each address; unlimited with --insecure."`
}

// Profiles contains the settings of profiles.
type Profiles struct {
	SelfEdit bool   `key:"self_edit" unit:"boolean" help:"Let users with a JSON Web Token change their own profile: the claim sub is the user. Requires jwt.algorithm."`
	DenyList string `key:"deny_list" unit:"path" help:"File of names that profiles must not have, one per line. Case and accents are ignored. A * at the beginning or end of a line means any text. SIGHUP reloads it."`
}

func (p *Profiles) validate(v *validator, j *JWT) {
	if p.SelfEdit && j.Algorithm == "" {
		v.errorf("profiles.self_edit", "requires tokens; set jwt.algorithm")
	}
	v.checkReadable("profiles.deny_list", p.DenyList)
}

func (j *JWT) validate(v *validator) {
	v.checkReadable("jwt.public_key", j.PublicKey)
	j.validateJWKS(v)
	v.checkPositive("jwt.leeway", j.Leeway)
	if j.Refresh < minRefresh {
		v.errorf("jwt.refresh", "%v is less than %v", j.Refresh, minRefresh)
	}
	if j.MaxLifetime < 0 {
		v.errorf("jwt.max_lifetime", "%v is less than 0", j.MaxLifetime)
	}
	sources := 0
	for _, s := range []string{string(j.Secret), j.PublicKey, j.JWKS} {
		if s != "" {
			sources++
		}
	}
	if j.Algorithm == "" {
		if sources > 0 || j.Issuer != "" || j.Audience != "" {
			v.errorf("jwt.algorithm", "is empty; set it to the algorithm of the tokens")
		}
		return
	}
	if sources != 1 {
		v.errorf("jwt.algorithm", "requires exactly one of jwt.secret, jwt.public_key and jwt.jwks, but %d are set", sources)
	} else if symmetric := strings.HasPrefix(j.Algorithm, "HS"); symmetric != (j.Secret != "") {
		v.errorf("jwt.algorithm", "%s does not fit the kind of key: HS256, HS384 and HS512 require jwt.secret, and the others jwt.public_key or jwt.jwks", j.Algorithm)
	}
	if j.Secret != "" && len(j.Secret) < minSecretBytes {
		v.errorf("jwt.secret", "is shorter than %d bytes", minSecretBytes)
	}
	v.checkOneOf("jwt.algorithm", j.Algorithm, algorithms...)
	for key, value := range map[string]string{"jwt.issuer": j.Issuer, "jwt.audience": j.Audience} {
		if value == "" {
			v.errorf(key, "is empty; set it, because the server would otherwise accept the tokens of other services")
		}
	}
}

var algorithms = []string{"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

const (
	minSecretBytes = 32
	minRefresh     = 10 * time.Second
)

func (j *JWT) validateJWKS(v *validator) {
	if !strings.Contains(j.JWKS, "://") {
		v.checkReadable("jwt.jwks", j.JWKS)
		return
	}
	if u, err := url.Parse(j.JWKS); err != nil || u.Scheme != "https" || u.Host == "" {
		v.errorf("jwt.jwks", "%q is neither an https URL nor the path of a file", j.JWKS)
	}
}

func (l *Limits) validate(v *validator) {
	for key, n := range map[string]int{"limits.connections": l.Connections, "limits.streams": l.Streams, "limits.watchers": l.Watchers, "limits.caller_watchers": l.CallerWatchers,
		"limits.anonymous_streams": l.AnonymousStreams, "limits.peer_streams": l.PeerStreams} {
		v.checkRange(key, n, 1, math.MaxInt32)
	}
	for _, b := range []struct {
		name  string
		rate  float64
		burst int
	}{{"key", l.KeyRate, l.KeyBurst}, {"user", l.UserRate, l.UserBurst}, {"peer", l.PeerRate, l.PeerBurst}} {
		switch {
		case math.IsInf(b.rate, 0) || math.IsNaN(b.rate):
			v.errorf("limits."+b.name+"_rate", "%v is not a finite number", b.rate)
		case b.rate < 0:
			v.errorf("limits."+b.name+"_rate", "%v is less than 0", b.rate)
		}
		if b.burst < 0 {
			v.errorf("limits."+b.name+"_burst", "%d is less than 0", b.burst)
		}
	}
}
