package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/open-leaderboard/leaderboard"
)

// caller is who calls.
type caller struct {
	id    string // of the key, or the JWT's subject; empty without credentials
	scope scope
}

const (
	// keyTTL is how long an API key is believed without asking the store: after so
	// long a revoked key is void on the other servers too.
	keyTTL = 5 * time.Second
	// keyGrace is how long, while the store does not answer; it could not take a
	// revocation either.
	keyGrace = time.Hour
	// keyPatience is how long the store is waited for about a key that is known.
	keyPatience = time.Second

	maxCachedKeys = 10_000
)

// knownKey is an API key as the store told it.
type knownKey struct {
	leaderboard.APIKey
	told time.Time // by the store
	next time.Time // when it is asked again
}

// guard tells who calls, and decides whether the call may go on.
type guard struct {
	keys   leaderboard.APIKeyStore
	cached *lru.Cache[[32]byte, knownKey]
	jwt    *verifier // nil: no JWT is accepted
	// open is what callers may do without credentials.
	open   scope
	now    func() time.Time
	limits Limits
	byKey  *buckets
	byUser *buckets
	byPeer *buckets
}

func newGuard(keys leaderboard.APIKeyStore, jwt *verifier, open scope, limits Limits, now func() time.Time) *guard {
	cached, err := lru.New[[32]byte, knownKey](maxCachedKeys)
	if err != nil {
		panic(err) // the size is positive
	}
	return &guard{
		keys: keys, jwt: jwt, open: open, now: now, limits: limits,
		cached: cached,
		byKey:  newBuckets(limits.PerKey), byUser: newBuckets(limits.PerUser), byPeer: newBuckets(limits.PerPeer),
	}
}

var errUnauthenticated = newStatus(codes.Unauthenticated,
	"valid credentials are required: Authorization: Bearer KEY", errorInfo("UNAUTHENTICATED"))

// authenticate tells the caller by the values of its Authorization header.
// Credentials that are not valid are refused even where none are needed.
func (g *guard) authenticate(ctx context.Context, authorization []string) (caller, error) {
	if len(authorization) == 0 || g.open == admin {
		return caller{scope: g.open}, nil
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	token = strings.TrimSpace(token)
	if len(authorization) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return caller{}, errUnauthenticated
	}
	if g.jwt != nil && looksLikeJWT(token) {
		c, err := g.jwt.verify(ctx, token)
		if err != nil {
			return caller{}, errUnauthenticated
		}
		return c, nil
	}
	key, err := g.key(ctx, hashKey(Secret(token)))
	if errors.Is(err, leaderboard.ErrAPIKeyNotFound) {
		return caller{}, errUnauthenticated
	}
	if err != nil {
		return caller{}, err
	}
	if !key.ExpiresAt.IsZero() && !g.now().Before(key.ExpiresAt) {
		return caller{}, errUnauthenticated
	}
	return caller{"key:" + key.ID, highest(key.Scopes)}, nil
}

// key returns the API key of a hash. While the store does not answer, a key that it
// told of is believed for keyGrace, so that what can be served without it is.
func (g *guard) key(ctx context.Context, hash [32]byte) (leaderboard.APIKey, error) {
	known, ok := g.cached.Get(hash)
	if ok && g.now().Before(known.next) {
		return known.APIKey, nil
	}
	asking := ctx
	if ok {
		limited, cancel := context.WithTimeout(ctx, keyPatience)
		defer cancel()
		asking = limited
	}
	key, err := g.keys.APIKey(asking, hash)
	now := g.now()
	switch {
	case err == nil:
		g.cached.Add(hash, knownKey{key, now, now.Add(keyTTL)})
		return key, nil
	case ok && ctx.Err() == nil && now.Before(known.told.Add(keyGrace)) && (errors.Is(err, leaderboard.ErrUnavailable) || asking.Err() != nil):
		known.next = now.Add(keyTTL)
		g.cached.Add(hash, known)
		return known.APIKey, nil
	case errors.Is(err, leaderboard.ErrAPIKeyNotFound):
		g.cached.Remove(hash)
	}
	return leaderboard.APIKey{}, err
}

// forget makes this server ask the store for every key again.
func (g *guard) forget() { g.cached.Purge() }

// authorize says whether a caller may use a method now, and takes the call's
// token. authErr is what authenticate said.
func (g *guard) authorize(ctx context.Context, c caller, authErr error, method string) error {
	if authErr != nil || c.id == "" {
		var addr net.Addr
		if p, ok := peer.FromContext(ctx); ok {
			addr = p.Addr
		}
		if wait := g.byPeer.take(peerKey(addr), g.now()); wait > 0 && g.open != admin {
			return limited("calls without valid credentials", g.limits.PerPeer, wait)
		}
	} else if wait := g.byKey.take(c.id, g.now()); wait > 0 {
		return limited("calls with this key", g.limits.PerKey, wait)
	}
	if authErr != nil {
		return authErr
	}
	need, ok := needs[method]
	switch {
	case ok && c.scope >= need:
		return nil
	case c.id == "":
		return errUnauthenticated
	case !ok:
		need = admin
	}
	return newStatus(codes.PermissionDenied, fmt.Sprintf("the %s scope is required", need), errorInfo("SCOPE_REQUIRED"))
}

// admission is what a call's headers say of it: who calls, and why it is
// refused, if it is. The REST gateway adds what is wrong with the request itself.
// The interceptors refuse the call then, so that it is counted and logged like
// any other.
type admission struct {
	caller  caller
	refusal error
}

// admit looks at the headers of a call, once, before its body is looked at.
func (g *guard) admit(ctx context.Context, authorization []string, method string) *admission {
	c, authErr := g.authenticate(ctx, authorization)
	return &admission{c, g.authorize(ctx, c, authErr, method)}
}

// enter is what every call, of gRPC and REST, passes first. The gateway has
// admitted its calls already.
func (g *guard) enter(ctx context.Context) (context.Context, error) {
	a, ok := ctx.Value(admissionKey{}).(*admission)
	if !ok {
		method, _ := grpc.Method(ctx)
		md, _ := metadata.FromIncomingContext(ctx)
		a = g.admit(ctx, md.Get("authorization"), method)
	}
	if info := callInfoFrom(ctx); info != nil {
		info.caller = a.caller.id
	}
	return ctx, a.refusal
}

type admissionKey struct{}

// takeUsers holds a submit to the rate of its users. If one of them has to wait,
// nothing is taken from the others.
func (g *guard) takeUsers(results map[string]int) error {
	if user, wait := g.byUser.takeAll(results, g.now()); wait > 0 {
		return limited(fmt.Sprintf("results of user %q", user), g.limits.PerUser, wait)
	}
	return nil
}

// CheckLoopback returns an error unless every address, as given to listen on, is
// of the loopback interface, where serving without credentials is tolerable.
func CheckLoopback(addresses ...string) error {
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("api: address %q: %w", address, err)
		}
		ip := net.ParseIP(host)
		if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("api: serving without keys is for the loopback interface only: listen on 127.0.0.1 or [::1], not on %q", address)
		}
	}
	return nil
}
