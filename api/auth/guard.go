// Package auth identifies callers by API key or JSON web token, checks their scopes, and
// limits their rates.
package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// Caller is the identity behind a call.
type Caller struct {
	ID    string // "key:" and the key's id, or "jwt:" and the token's subject; empty without credentials
	Name  string // the name of the key; empty without a key
	Scope Scope
	Bound Bound
	// ExpiresAt is zero if the credentials never expire.
	ExpiresAt time.Time

	key [32]byte // the hash of the API key, if any
}

// ErrUnauthenticated means that a call needs valid credentials and has none.
var ErrUnauthenticated = errors.New("valid credentials are required: Authorization: Bearer KEY")

// ScopeError means that a caller lacks the scope that the method needs.
type ScopeError struct{ Need Scope }

func (e *ScopeError) Error() string { return fmt.Sprintf("the %s scope is required", e.Need) }

const (
	// keyTTL is how long the guard uses a cached API key before it reads the key again. A
	// revoked key may stay valid for this time.
	keyTTL = 5 * time.Second
	// While the store is unavailable, a cached key stays valid for keyGrace after its last
	// read, even if it was revoked.
	keyGrace         = time.Hour
	cachedKeyTimeout = time.Second
	// useInterval is how often the guard notes that a key is used. So a note may be this much older than
	// the last call.
	useInterval = time.Hour

	maxCachedKeys = 10_000
)

type cachedKey struct {
	leaderboard.APIKey
	loadedAt    time.Time
	refreshFrom time.Time
	notedAt     time.Time // when this process noted a use; zero if it did not
}

// Options are the settings of a [Guard].
type Options struct {
	// Open is the scope of callers without credentials. If Open is [Admin], the guard
	// ignores credentials.
	Open Scope
	// If JWT.Algorithm is empty, the guard accepts no JSON web tokens.
	JWT    JWT
	Limits Limits
	Now    func() time.Time
}

// Guard identifies callers and decides whether their calls may proceed. Its methods are
// safe for concurrent use.
type Guard struct {
	keys       leaderboard.APIKeyStore
	options    Options
	cachedKeys *lru.Cache[[32]byte, cachedKey]
	jwt        *verifier
	byKey      *buckets
	byUser     *buckets
	byPeer     *buckets
	// failedByPeer counts calls from one address whose credentials are invalid or cannot be checked.
	// Above the limit, the guard looks up this address's keys in the list of all keys, which costs the
	// store the same for any number of calls. So the guard need not refuse valid credentials because of
	// others' invalid ones.
	failedByPeer *buckets
	listed       coalesce.Group[struct{}, *listedKey]
	listRate     *rate.Limiter
}

// listInterval is the shortest time between two lists of all keys.
const listInterval = 100 * time.Millisecond

// listedKey is a search in the list of all keys.
type listedKey struct {
	hash [32]byte
	key  leaderboard.APIKey
	err  error
}

// NewGuard returns an error if it cannot read the keys of o.JWT, or if a setting of o.JWT
// is invalid.
func NewGuard(ctx context.Context, keys leaderboard.APIKeyStore, o Options) (*Guard, error) {
	cached, err := lru.New[[32]byte, cachedKey](maxCachedKeys)
	if err != nil {
		panic(err) // the size is positive
	}
	g := &Guard{
		keys: keys, options: o, cachedKeys: cached,
		byKey: newBuckets(o.Limits.PerKey), byUser: newBuckets(o.Limits.PerUser), byPeer: newBuckets(o.Limits.PerPeer), failedByPeer: newBuckets(o.Limits.PerPeer),
		listRate: rate.NewLimiter(rate.Every(listInterval), 1),
	}
	g.listed.Call = g.findListed
	if o.JWT.Algorithm != "" {
		if g.jwt, err = newVerifier(ctx, o.JWT, o.Now); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Admit identifies the caller by the values of the Authorization header, checks that the
// caller has the required scope, and counts the call against the caller's rate. The server
// must call Admit once per call, before it reads the body. peer is the caller's address, if
// known. Errors: [ErrUnauthenticated], [*ScopeError], [*RateError], and errors of the store.
func (g *Guard) Admit(ctx context.Context, peer net.Addr, authorization []string, required Scope) (Caller, error) {
	c, err := g.authenticate(ctx, peer, authorization)
	return c, g.authorize(c, err, peer, required)
}

// authenticate refuses invalid credentials even for methods that need no credentials.
func (g *Guard) authenticate(ctx context.Context, peer net.Addr, authorization []string) (Caller, error) {
	if len(authorization) == 0 || g.options.Open == Admin {
		return Caller{Scope: g.options.Open}, nil
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	token = strings.TrimSpace(token)
	if len(authorization) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Caller{}, ErrUnauthenticated
	}
	if g.jwt != nil && looksLikeJWT(token) {
		c, err := g.jwt.verify(ctx, token)
		if err != nil {
			return Caller{}, ErrUnauthenticated
		}
		return c, nil
	}
	hash := hashKey(secret.Text(token))
	lookUp := g.key
	if !g.cachedKeys.Contains(hash) && g.failedByPeer.wait(PeerKey(peer), g.options.Now()) > 0 {
		lookUp = g.keyInList
	}
	key, err := lookUp(ctx, hash)
	if errors.Is(err, leaderboard.ErrAPIKeyNotFound) {
		return Caller{}, ErrUnauthenticated
	}
	if err != nil {
		return Caller{}, err
	}
	if key.Insecure || expired(&key, g.options.Now()) {
		return Caller{}, ErrUnauthenticated
	}
	return Caller{ID: "key:" + key.ID, Name: key.Name, Scope: highestScope(key.Scopes), Bound: boundOf(&key), ExpiresAt: key.ExpiresAt, key: hash}, nil
}

// Recheck returns [ErrUnauthenticated] if the credentials of an admitted caller have
// expired or were revoked. The server of a stream must call it from time to time. While the
// store is unavailable, Recheck finds no revocation.
func (g *Guard) Recheck(ctx context.Context, c Caller) error {
	if !c.ExpiresAt.IsZero() && !g.options.Now().Before(c.ExpiresAt) {
		return ErrUnauthenticated
	}
	if c.key == [32]byte{} {
		return nil
	}
	if _, err := g.key(ctx, c.key); errors.Is(err, leaderboard.ErrAPIKeyNotFound) {
		return ErrUnauthenticated
	}
	return nil
}

func (g *Guard) key(ctx context.Context, hash [32]byte) (leaderboard.APIKey, error) {
	cached, ok := g.cachedKeys.Get(hash)
	if ok && g.options.Now().Before(cached.refreshFrom) {
		return cached.APIKey, nil
	}
	lookupCtx := ctx
	if ok {
		limited, cancel := context.WithTimeout(ctx, cachedKeyTimeout)
		defer cancel()
		lookupCtx = limited
	}
	key, err := g.keys.APIKey(lookupCtx, hash)
	now := g.options.Now()
	switch {
	case err == nil:
		g.cachedKeys.Add(hash, cachedKey{key, now, now.Add(keyTTL), g.noteUse(ctx, &key, cached.notedAt)})
		return key, nil
	case ok && ctx.Err() == nil && now.Before(cached.loadedAt.Add(keyGrace)) && (errors.Is(err, leaderboard.ErrUnavailable) || lookupCtx.Err() != nil):
		cached.refreshFrom = now.Add(keyTTL)
		g.cachedKeys.Add(hash, cached)
		return cached.APIKey, nil
	case errors.Is(err, leaderboard.ErrAPIKeyNotFound):
		g.cachedKeys.Remove(hash)
	}
	return leaderboard.APIKey{}, err
}

// noteUse notes that a valid key is used, unless a use was noted recently. It returns the time of the last note. If the
// store cannot take it, the call proceeds, and the guard tries again when it reads the key again.
func (g *Guard) noteUse(ctx context.Context, k *leaderboard.APIKey, notedAt time.Time) time.Time {
	now := g.options.Now()
	if k.Insecure || expired(k, now) || now.Sub(notedAt) < useInterval {
		return notedAt
	}
	ctx, cancel := context.WithTimeout(ctx, cachedKeyTimeout)
	defer cancel()
	if err := g.keys.NoteAPIKeyUse(ctx, k.ID, now); err != nil {
		return notedAt
	}
	return now
}

// keyInList returns a key from the list of all keys. One list answers all calls that wait for it.
func (g *Guard) keyInList(ctx context.Context, hash [32]byte) (leaderboard.APIKey, error) {
	search := &listedKey{hash: hash}
	if err := g.listed.Do(ctx, struct{}{}, search); err != nil {
		return leaderboard.APIKey{}, err
	}
	return search.key, search.err
}

// findListed stores errors in the searches: a Group would repeat a failed call for each of them.
func (g *Guard) findListed(ctx context.Context, _ struct{}, searches []*listedKey) error {
	if err := g.listRate.Wait(ctx); err != nil {
		return err
	}
	keys, err := g.keys.APIKeys(ctx)
	byHash := make(map[[32]byte]leaderboard.APIKey, len(keys))
	for i := range keys {
		byHash[keys[i].Hash] = keys[i]
	}
	now := g.options.Now()
	for _, s := range searches {
		key, ok := byHash[s.hash]
		switch {
		case err != nil:
			s.err = err
		case !ok:
			s.err = fmt.Errorf("auth: %w", leaderboard.ErrAPIKeyNotFound)
		default:
			s.key = key
			g.cachedKeys.Add(s.hash, cachedKey{APIKey: key, loadedAt: now, refreshFrom: now.Add(keyTTL)})
		}
	}
	return nil
}

// Forget empties the cache of API keys. Call it after revoking a key.
func (g *Guard) Forget() { g.cachedKeys.Purge() }

func (g *Guard) authorize(c Caller, authErr error, peer net.Addr, required Scope) error {
	if authErr != nil {
		g.failedByPeer.take(PeerKey(peer), g.options.Now())
	}
	if authErr != nil && !errors.Is(authErr, ErrUnauthenticated) {
		return authErr // the store cannot tell whether the credentials are valid
	}
	if err := g.Count(c, peer); err != nil {
		return err
	}
	switch {
	case authErr != nil:
		return authErr
	case c.Scope >= required:
		return nil
	case c.ID == "":
		return ErrUnauthenticated
	}
	return &ScopeError{min(required, Admin)}
}

// Count counts one call or one further message of a stream against the rate of the caller's key, or,
// without valid credentials, of the address peer. It returns a [*RateError] if the rate is exceeded.
func (g *Guard) Count(c Caller, peer net.Addr) error {
	now := g.options.Now()
	if c.ID != "" {
		if wait := g.byKey.take(c.ID, now); wait > 0 {
			return &RateError{"calls with this key", g.options.Limits.PerKey, wait}
		}
	} else if wait := g.byPeer.take(PeerKey(peer), now); wait > 0 && g.options.Open != Admin {
		return &RateError{"calls without valid credentials", g.options.Limits.PerPeer, wait}
	}
	return nil
}

// TakeUsers counts results[id] against the rate of each user id. If any user exceeds
// the rate, TakeUsers counts nothing, and returns a [*RateError] about the user with the
// longest wait.
func (g *Guard) TakeUsers(results map[string]int) error {
	if user, wait := g.byUser.takeAll(results, g.options.Now()); wait > 0 {
		return &RateError{fmt.Sprintf("results of user %q", user), g.options.Limits.PerUser, wait}
	}
	return nil
}

// CheckLoopback returns an error unless every address is on the loopback interface.
func CheckLoopback(addresses ...string) error {
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("auth: address %q: %w", address, err)
		}
		ip := net.ParseIP(host)
		if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("auth: serving without keys is allowed on the loopback interface only: listen on 127.0.0.1 or [::1], not on %q", address)
		}
	}
	return nil
}
