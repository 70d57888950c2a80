// Package redis is a rank index in Redis: on one server, behind Sentinel, or in
// a Redis Cluster. It is exact, shared by any number of processes, and filled
// anew from the store whenever what Redis holds is gone or may be old.
//
// A scope is split into shards by the hash of the user, each with a hash slot of
// its own. README.md says what a shard holds, what each question costs, and what
// is noticed when Redis loses data.
package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
)

// Options are the settings of an [Index].
type Options struct {
	// Redis says where Redis is: one address for a server, several for a cluster,
	// a master's name for Sentinel; with password, TLS, timeouts and pool. Reads
	// always go to masters.
	Redis *goredis.UniversalOptions
	// Shards is the number of shards of scopes to come, 1 to 256; it is recorded
	// with a scope, and stays while the scope is there. A scope of one shard
	// answers every question in one trip, about one moment; one of several uses
	// several servers. Default 1, in a cluster 8.
	Shards int
	// Prefix begins the name of every key. Default "leaderboard:".
	Prefix string
	// UpdateTimeout bounds an Update with its retries. An update that is not done
	// by then makes its scope unavailable until it is rebuilt. Default 5 s.
	UpdateTimeout time.Duration
	// LeaseTTL is after how long a Rebuild whose process has died may be followed
	// by another. Default 15 s.
	LeaseTTL time.Duration
	// Hints is how many users' sort keys a process remembers, to spare a trip
	// where there are several shards. Default 65,536.
	Hints int
}

const (
	defaultPrefix        = "leaderboard:"
	defaultClusterShards = 8
	maxShards            = 256
	defaultUpdateTimeout = 5 * time.Second
	defaultLeaseTTL      = 15 * time.Second
	defaultHints         = 1 << 16
	// namedScopes bounds the scopes that are remembered for readers alone.
	namedScopes = 1 << 10
)

// Index is a [leaderboard.Index] in Redis.
type Index struct {
	client goredis.UniversalClient
	o      Options
	scopes sync.Map // leaderboard.Scope -> *scope, of those that are there
	// named has scopes that readers named, so that what is known of one is not
	// made anew by each.
	named *lru.Cache[leaderboard.Scope, *scope]
	hints *lru.Cache[hint, string]
	trips atomic.Int64
	// unfit is why Redis may not be asked; nil if it was inspected and found fit.
	unfit atomic.Pointer[error]
	// unsettled is how many scopes lack an Update, in Redis and in what others know.
	unsettled atomic.Int64

	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	background sync.WaitGroup
}

var _ leaderboard.Index = (*Index)(nil)

type hint struct {
	scope *scope
	user  leaderboard.UserID
}

// Open returns an index in Redis. It refuses servers that would evict keys, and
// those that do not say who they are. Where Redis does not answer, the index is
// not available until it does.
func Open(ctx context.Context, o Options) (*Index, error) {
	x, err := newIndex(o)
	if err != nil {
		return nil, err
	}
	if err := x.inspect(ctx); isAway(err) {
		x.unfit.Store(&err)
		x.background.Go(x.inspectLater)
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("redis: open: %w", err), x.Close())
	}
	return x, nil
}

// inspectLater inspects Redis as soon as it answers. What it finds unfit then is
// not used; every question says why.
func (x *Index) inspectLater() {
	_ = retry(x.ctx, func() error {
		ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
		defer cancel()
		err := x.inspect(ctx)
		if err == nil {
			x.unfit.Store(nil)
			return nil
		}
		x.unfit.Store(&err)
		return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
	})
}

// isAway says whether err is that of a Redis which may answer later.
func isAway(err error) bool {
	var reply goredis.Error
	if err == nil || errors.Is(err, errUnfit) {
		return false
	}
	return !errors.As(err, &reply) || slices.ContainsFunc([]string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"}, func(prefix string) bool {
		return goredis.HasErrorPrefix(err, prefix)
	})
}

var errUnfit = errors.New("this Redis is not fit to hold a ranking")

func newIndex(o Options) (*Index, error) {
	if o.Redis == nil {
		return nil, errors.New("redis: open: Options.Redis is missing")
	}
	r := *o.Redis
	// A deadline is kept, and no replica is asked, which may be behind.
	r.ContextTimeoutEnabled, r.ReadOnly, r.RouteByLatency, r.RouteRandomly = true, false, false, false
	client := goredis.NewUniversalClient(&r)
	if _, cluster := client.(*goredis.ClusterClient); o.Shards == 0 {
		if o.Shards = 1; cluster {
			o.Shards = defaultClusterShards
		}
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Shards < 1 || o.Shards > maxShards || strings.ContainsAny(o.Prefix, "{}") {
		return nil, errors.Join(fmt.Errorf("redis: open: %d shards, want 1 to %d, or prefix %q, want one without braces", o.Shards, maxShards, o.Prefix), client.Close())
	}
	if o.UpdateTimeout == 0 {
		o.UpdateTimeout = defaultUpdateTimeout
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = defaultLeaseTTL
	}
	if o.Hints == 0 {
		o.Hints = defaultHints
	}
	hints, err := lru.New[hint, string](o.Hints)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redis: open: %d hints: %w", o.Hints, err), client.Close())
	}
	named, err := lru.New[leaderboard.Scope, *scope](namedScopes)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	x := &Index{client: client, o: o, hints: hints, named: named}
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x, nil
}

// inspect checks every master.
func (x *Index) inspect(ctx context.Context) error {
	if c, ok := x.client.(*goredis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error { return inspect(ctx, m) })
	}
	return inspect(ctx, x.client)
}

func inspect(ctx context.Context, c goredis.Cmdable) error {
	info, err := c.Info(ctx, "server", "replication", "memory").Result()
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	if fields["run_id"] == "" || fields["master_replid2"] == "" {
		return fmt.Errorf("%w: INFO names no run_id and master_replid2: a server that restarts or fails over could not be told from one that did not; Redis 7 or later is needed", errUnfit)
	}
	if policy := fields["maxmemory_policy"]; fields["maxmemory"] != "0" && strings.HasPrefix(policy, "allkeys") {
		return fmt.Errorf("%w: maxmemory-policy %s may evict a part of it: set it to noeviction or to one of volatile", errUnfit, policy)
	}
	return nil
}

// Close implements [leaderboard.Index]. It waits for what was begun.
func (x *Index) Close() error {
	x.stop()
	x.background.Wait()
	return x.client.Close()
}

// scope is what a process knows of a scope.
type scope struct {
	id      leaderboard.Scope
	control atomic.Pointer[[]string] // the shards' control keys
	rebuild chan struct{}            // holds a token while no Rebuild runs here

	mu        sync.Mutex
	told      map[telling]int64 // what is to be acknowledged, and how far
	flushing  bool
	failures  int // Updates that failed, of which
	settled   int // so many are made up for
	settling  bool
	lastSwept time.Time
}

// telling is what one shard says to another.
type telling struct {
	generation string
	from, to   int
}

// scope returns what is known of a scope, for one that changes it.
func (x *Index) scope(s leaderboard.Scope) *scope { return x.keep(x.peek(s)) }

// peek returns what is known of a scope, for a reader, who may name any number of
// scopes that there are not.
func (x *Index) peek(s leaderboard.Scope) *scope {
	if sc, ok := x.scopes.Load(s); ok {
		return sc.(*scope)
	}
	if sc, ok := x.named.Get(s); ok {
		return sc
	}
	sc := &scope{id: s, rebuild: make(chan struct{}, 1), told: map[telling]int64{}}
	sc.rebuild <- struct{}{}
	x.setShards(sc, x.o.Shards)
	x.named.Add(s, sc)
	return sc
}

// keep keeps a scope, unless another came first, and returns the one that is kept.
func (x *Index) keep(sc *scope) *scope {
	have, _ := x.scopes.LoadOrStore(sc.id, sc)
	return have.(*scope)
}

// setShards notes the number of shards that a scope turned out to have.
func (x *Index) setShards(sc *scope, n int) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = controlKey(x.o.Prefix, sc.id, i, n)
	}
	sc.control.Store(&keys)
}

func (x *Index) leaseKey(sc *scope) string { return (*sc.control.Load())[0] + ":lease" }

// each returns a call of a script for each shard.
func each(s *script, control []string, args ...any) []*call {
	calls := make([]*call, len(control))
	for i := range control {
		calls[i] = newCall(s, control, i, args...)
	}
	return calls
}

func newCall(s *script, control []string, shard int, args ...any) *call {
	all := make([]any, 2, 2+len(args))
	all[0], all[1] = len(control), shard
	return &call{script: s, shard: shard, keys: control[shard : shard+1 : shard+1], args: append(all, args...)}
}

func shardOf(user leaderboard.UserID, shards int) int {
	if shards == 1 {
		return 0
	}
	return int(hash(string(user)) % uint32(shards))
}

// suspect says whether an Update failed that was not made up for.
func (sc *scope) suspect() bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.failures > sc.settled
}

// Settled implements [leaderboard.Index].
func (x *Index) Settled() bool { return x.unsettled.Load() == 0 }

// Loaded implements [leaderboard.Index]. A scope of which any shard is gone, or
// may have lost updates, is not loaded.
func (x *Index) Loaded(ctx context.Context, s leaderboard.Scope) (bool, error) {
	_, _, err := x.Standings(ctx, leaderboard.Ladder{Scope: s}, nil)
	if errors.Is(err, errNotLoaded) {
		return false, nil
	}
	return err == nil, err
}

// Drop implements [leaderboard.Index].
func (x *Index) Drop(ctx context.Context, s leaderboard.Scope) error {
	sc := x.scope(s)
	if err := x.drop(ctx, sc); err != nil {
		return fmt.Errorf("redis: drop %v: %w", s, err)
	}
	return nil
}

func (x *Index) drop(ctx context.Context, sc *scope) error {
	// Shard 0 first, and alone: from then on the scope is not loaded, and no
	// Rebuild can finish. It also knows how many others there are.
	first := newCall(dropScript, *sc.control.Load(), 0, "all")
	first.keys = append(first.keys, x.leaseKey(sc))
	if err := x.run(ctx, []*call{first}); err != nil {
		return err
	}
	if n := int(first.int()); n > 0 && n != len(*sc.control.Load()) {
		x.setShards(sc, n)
	}
	if err := x.run(ctx, each(dropScript, *sc.control.Load(), "all")); err != nil {
		return err
	}
	x.setShards(sc, x.o.Shards)
	return nil
}

// instant returns t as bytes that compare as instants do.
func instant(t time.Time) string { return bigEndian(uint64(t.UnixMicro()) ^ 1<<63) }

func instantOf(b string) time.Time {
	var v uint64
	for i := range len(b) {
		v = v<<8 | uint64(b[i])
	}
	return time.UnixMicro(int64(v ^ 1<<63)).UTC()
}

func bigEndian(v uint64) string {
	var b [8]byte
	for i := range b {
		b[i] = byte(v >> (56 - 8*i))
	}
	return string(b[:])
}

// maxPosition is far behind the end of every ladder, and exact as a number of Lua.
const maxPosition = math.MaxInt64 >> 12
