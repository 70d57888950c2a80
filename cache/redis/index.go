// Package redis is a rank index in Redis: on one server, behind Sentinel, or in a Redis
// Cluster. The index is exact, and any number of processes share it. The service rebuilds
// the index from the store when Redis has lost data or may hold old data.
//
// # Shards
//
// A season is split into shards by the hash of the user. The keys of a shard share a hash tag,
// so one script changes a user in all ladders atomically. lua/base.lua lists the keys, and
// lua/tree.lua describes the trees of sort keys. Every int64 score is exact. If a user is no
// longer ranked, a record with the version remains, until a Rebuild reads a store without the
// user. If a season's keys have another layout, the season is not loaded.
//
// With several shards, a season has competition and ordinal ranks, but no dense ranks: a rank key that several
// shards have would count several times.
//
// # Round trips
//
// In a round trip, the process sends one pipeline to each server of the season, concurrently. A
// question about a season waits for the round trip that is under way, and shares the next one
// with all questions that wait. With one shard, every call takes one round trip. With several
// shards, most calls take one or two. A page from a deep position takes at most about 28 round
// trips for a million users, and 38 for 500 million. Survey reads a page for each position. The
// first use of a script on a server, or a Rebuild that finishes during the call, adds one or two
// round trips.
//
// # Detection of losses
//
// Each shard records its server's identity, which changes if the server restarts or becomes a
// master. Every script that reads or changes standings first checks that the identity is
// unchanged (see lua/server.lua). The result of a check is valid for 100 ms.
//   - No answer, a timeout, no memory, a server that is still starting:
//     [leaderboard.ErrRankUnavailable]. The caller retries.
//   - A restart with data, a promoted replica, a moved slot: the season is in doubt, until the
//     consumers have repeated the updates that may be missing (see doubt.go).
//   - A slot that is being moved: scripts fail before they change anything (see moving.go).
//   - A flush, a restart without data, a lost server: the season is not loaded. If other servers
//     still have shards, Restore reads only the users of the lost shards from the store.
//   - An Update that Redis does not take within [Options].UpdateTimeout: the season is
//     unavailable in this process. As soon as Redis answers, the process repeats the Update. If
//     three repetitions fail on servers that answer pings, the process empties the shards. While
//     a server does not answer, Updates fail at once (see gates).
//   - A script that failed half-way: the next script empties the shard.
//   - A process that ends during Rebuild: the next Rebuild, Drop or Update frees the new keys.
//     But if readers already use the new keys of shard 0, the next call makes readers use those
//     of the other shards too.
//
// README.md lists the losses that are not detected.
package redis

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

// Options are the settings of an [Index].
type Options struct {
	// Redis configures the client: one address for a server, one or several for a cluster,
	// a master's name for Sentinel; password, TLS, timeouts and pool. Reads always
	// go to masters.
	Redis *goredis.UniversalOptions
	// Shards is the number of shards, 1 to 256, of a season that a Rebuild fills for the first
	// time, if the board sets no number. Redis records the season's number of shards. This number
	// stays the same until Drop, or until a Rebuild of a board that sets another number. With one
	// shard, every read takes one round trip. Several shards can use several servers. Default 1.
	Shards int
	// Prefix is the start of every key's name. Default "leaderboard:".
	Prefix string
	// UpdateTimeout bounds an Update and its retries. If an Update fails for that long, its
	// season is unavailable in this process until the Update is repeated. If the server does not
	// answer a ping either, further Updates fail at once until the server answers. Each step of a
	// Rebuild may take six times as long. Default 5 s.
	UpdateTimeout time.Duration
	// LeaseTTL is the lifetime of a lease, which allows one process at a time to
	// rebuild a season. The process extends its lease during Rebuild. If the process
	// dies, another process may take over after LeaseTTL. Default 15 s.
	LeaseTTL time.Duration
	// Hints is the number of users' sort keys that a process caches. With several
	// shards, a cached sort key saves a round trip. Default 65,536.
	Hints int
	// Registerer receives the metrics of the servers and the connections. If it is nil,
	// the index has no metrics.
	Registerer prometheus.Registerer
	// Log receives messages about unsuitable settings of Redis. If Log is nil, the index
	// logs nothing.
	Log *slog.Logger
	// Traces makes the index record a span of each command, below the caller's span, if
	// the caller's span is sampled.
	Traces bool
}

const (
	defaultPrefix        = "leaderboard:"
	defaultUpdateTimeout = 5 * time.Second
	defaultLeaseTTL      = 15 * time.Second
	defaultHints         = 1 << 16
	inspectInterval      = time.Minute
	// maxQueried bounds the cache of seasons that only readers asked about.
	maxQueried = 1 << 10
)

// Index is a [leaderboard.Index] in Redis.
type Index struct {
	// connection is the client. If the only address in Options.Redis belongs to a Redis Cluster,
	// inspect replaces the client.
	connection atomic.Pointer[goredis.UniversalClient]
	o          Options
	seasons    sync.Map // leaderboard.SeasonKey -> *seasonIndex, of seasons that were written or found in Redis
	// queried caches the state of seasons that readers asked about, so that
	// concurrent readers share it.
	queried *lru.Cache[leaderboard.SeasonKey, *seasonIndex]
	hints   *lru.Cache[hint, string]
	// Concurrent questions about a season share round trips. Equal pages, and questions about users
	// of one ladder, also share scripts.
	questions coalesce.Group[*seasonIndex, []*call]
	pages     coalesce.Group[pageQuery, *pageAnswer]
	ranks     coalesce.Group[rankQuery, *rankAnswer]
	arounds   coalesce.Group[aroundQuery, *aroundAnswer]
	// unfit is the reason why this Redis must not be used; nil after Redis passed inspection.
	unfit atomic.Pointer[error]
	gates gates
	// unsynced is the number of seasons with a failed Update that is not repaired.
	unsynced atomic.Int64
	// missedEntries is the number of entries of failed Updates that this process keeps.
	missedEntries atomic.Int64
	repeats       *semaphore.Weighted // of repetitions of failed Updates: see repeat
	// held is the size, in bytes, of the entries that Rebuilds hold for bulk loads.
	held atomic.Int64

	ctx        context.Context // done after Close
	stop       context.CancelFunc
	background sync.WaitGroup // goroutines that end by themselves
	periodic   sync.WaitGroup // goroutines that end with ctx
	passes     passes         // see doubt.go
	metrics    metrics
}

var _ leaderboard.Index = (*Index)(nil)

// hint is a key of the cache of users' sort keys: see [Options].Hints.
type hint struct {
	season *seasonIndex
	user   leaderboard.UserID
}

// Open returns an index in Redis. It returns an error if a server refuses the
// credentials, would evict keys, or does not report its identity. If Redis does not
// answer, Open succeeds, and the index is unavailable until Redis answers and passes
// inspection.
func Open(ctx context.Context, o Options) (*Index, error) {
	x, err := newIndex(o)
	if err != nil {
		return nil, err
	}
	switch err := x.inspect(ctx); {
	case refusal(err) != nil:
		err = fmt.Errorf("redis: servers %s: %w", strings.Join(o.Redis.Addrs, ","), refusal(err))
		return nil, errors.Join(err, x.Close())
	case isUnreachable(err):
		x.unfit.Store(&err)
		x.background.Go(x.inspectUntilFit)
	case err != nil:
		return nil, errors.Join(fmt.Errorf("redis: open: %w", err), x.Close())
	default:
		x.probe(ctx)
	}
	x.periodic.Go(func() { x.inspectEvery(inspectInterval) })
	if o.Registerer != nil {
		x.register(o.Registerer)
		x.registerShards(o.Registerer)
		x.periodic.Go(x.pollServers)
		x.periodic.Go(x.pollShards)
	}
	return x, nil
}

// probe warns if Redis does not store leaves (see lua/tree.lua) and buckets (see lua/base.lua) in
// its packed encoding, listpack. The index is then correct, but larger. A managed server may
// refuse to show its settings, so probe writes two keys and reads their encodings.
func (x *Index) probe(ctx context.Context) {
	const leaf, bucket = 95, 160 // the strings of a full leaf, and the users of a large bucket
	key := fmt.Sprintf("%s{probe/%s}", x.o.Prefix, rand.Text())
	got, err := x.client().Eval(ctx, probeScript.text, []string{key}, leaf, bucket).StringSlice()
	if err != nil {
		x.o.Log.WarnContext(ctx, "cannot test whether Redis packs the rank index", "err", err)
		return
	}
	for i, want := range []string{"zset-max-listpack-entries 128 and zset-max-listpack-value 64", "hash-max-listpack-entries 512 and hash-max-listpack-value 64"} {
		if got[i] != "listpack" {
			x.o.Log.WarnContext(ctx, "Redis does not pack the rank index, which takes two to four times the memory: raise the settings of Redis", "at_least", want, "encoding", got[i])
		}
	}
}

// refusal returns an error that names the settings to correct, if err means that Redis
// or Sentinel refuses the credentials or TLS. Otherwise it returns nil.
func refusal(err error) error {
	var reply goredis.Error
	verification, op := (*tls.CertificateVerificationError)(nil), (*net.OpError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &reply) && slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "ERR AUTH", "NOPERM"}, func(prefix string) bool {
		return strings.HasPrefix(reply.Error(), prefix)
	}):
		settings := "redis.username and redis.password"
		if strings.Contains(err.Error(), "sentinel") {
			settings = "redis.sentinel_username and redis.sentinel_password"
		}
		return fmt.Errorf("they reject this client: correct %s: %w", settings, reply)
	case errors.As(err, &verification), errors.As(err, &op) && op.Op == "remote error":
		line, _, _ := strings.Cut(err.Error(), "\n") // with Sentinel, the error has a line for each server
		return fmt.Errorf("they reject this client: %s", line)
	}
	return nil
}

// inspectUntilFit inspects Redis until Redis answers and passes inspection. Meanwhile, every
// call of a script fails with the reason.
func (x *Index) inspectUntilFit() {
	_ = retry(x.ctx, func() error {
		ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
		defer cancel()
		err := x.inspect(ctx)
		if err == nil {
			x.unfit.Store(nil)
			x.probe(ctx)
			return nil
		}
		x.unfit.Store(&err)
		return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
	})
}

// inspectEvery inspects Redis at every interval. If a server may evict keys, every call of a
// script fails until the server is fit again. inspectEvery also drops all seasons, because they
// may lack evicted keys. The service rebuilds the seasons later.
func (x *Index) inspectEvery(interval time.Duration) {
	for sleep(x.ctx, interval) == nil {
		ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
		err := x.inspect(ctx)
		cancel()
		if !errors.Is(err, errUnfit) {
			continue
		}
		x.o.Log.Error("Redis cannot hold the rank index, so ranks are unavailable: correct the settings of Redis", "err", err)
		x.unfit.Store(&err)
		x.seasons.Range(func(_, season any) bool {
			x.fail(season.(*seasonIndex), time.Time{}, nil)
			return true
		})
		x.inspectUntilFit()
	}
}

// isUnreachable reports whether err means that Redis may answer later.
func isUnreachable(err error) bool {
	var reply goredis.Error
	if err == nil || errors.Is(err, errUnfit) {
		return false
	}
	return !errors.As(err, &reply) || slices.ContainsFunc([]string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"}, func(prefix string) bool {
		return goredis.HasErrorPrefix(err, prefix)
	})
}

var errUnfit = errors.New("this Redis server cannot hold a rank index")

func newIndex(o Options) (*Index, error) {
	if o.Redis == nil {
		return nil, errors.New("redis: open: Options.Redis must be set")
	}
	x := &Index{o: o, repeats: semaphore.NewWeighted(concurrentRepeats)}
	x.connect(false)
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Shards < 0 || o.Shards > leaderboard.MaxShards || strings.ContainsAny(o.Prefix, "{}") {
		return nil, errors.Join(fmt.Errorf("redis: open: %d shards, prefix %q: shards must be 1 to %d and the prefix must not contain braces", o.Shards, o.Prefix, leaderboard.MaxShards), x.client().Close())
	}
	if o.UpdateTimeout == 0 {
		o.UpdateTimeout = defaultUpdateTimeout
	}
	if o.Shards == 0 {
		o.Shards = 1
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = defaultLeaseTTL
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Hints == 0 {
		o.Hints = defaultHints
	}
	hints, err := lru.New[hint, string](o.Hints)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redis: open: cache of %d hints: %w", o.Hints, err), x.client().Close())
	}
	queried, err := lru.New[leaderboard.SeasonKey, *seasonIndex](maxQueried)
	if err != nil {
		return nil, errors.Join(err, x.client().Close())
	}
	x.o, x.hints, x.queried = o, hints, queried
	x.questions.Call, x.questions.MaxBatch, x.questions.MaxWait = x.askTogether, maxQuestions, questionWait
	x.pages.Call, x.pages.MaxWait = x.readPages, questionWait
	x.ranks.Call, x.ranks.MaxBatch, x.ranks.MaxWait = x.readRanks, rankedUsers, questionWait
	x.arounds.Call, x.arounds.MaxBatch, x.arounds.MaxWait = x.readArounds, sharedUsers, questionWait
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x, nil
}

// connect replaces the client. If cluster is true, the new client is for a Redis Cluster, even
// if there is only one address.
func (x *Index) connect(cluster bool) {
	r := *x.o.Redis
	// Honor deadlines. Never read from a replica, because it may be behind.
	r.ContextTimeoutEnabled, r.ReadOnly, r.RouteByLatency, r.RouteRandomly = true, false, false, false
	r.IsClusterMode = r.IsClusterMode || cluster
	client := goredis.NewUniversalClient(&r)
	if c, ok := client.(*goredis.ClusterClient); ok {
		c.OnNewNode(func(node *goredis.Client) { node.AddHook(refuseMoving{}) })
	}
	if x.o.Traces {
		client.AddHook(tracer{})
	}
	if old := x.connection.Swap(&client); old != nil {
		_ = (*old).Close() // no caller waits for an answer from the old client
	}
}

func (x *Index) client() goredis.UniversalClient { return *x.connection.Load() }

// inspect inspects every master. If the single server belongs to a Redis Cluster, inspect
// first replaces the client with a client for the cluster.
func (x *Index) inspect(ctx context.Context) error {
	if c, ok := x.client().(*goredis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error {
			fields, err := serverInfo(ctx, m)
			if err != nil {
				return err
			}
			return checkFit(fields)
		})
	}
	fields, err := serverInfo(ctx, x.client())
	if err != nil {
		return err
	}
	if fields["redis_mode"] == "cluster" {
		x.connect(true)
		return x.inspect(ctx)
	}
	return checkFit(fields)
}

// identity returns a text that changes if a server restarts or becomes a master: see lua/server.lua.
func identity(ctx context.Context, c goredis.Cmdable) (string, error) {
	fields, err := serverInfo(ctx, c)
	return fields["run_id"] + "/" + fields["master_replid2"], err
}

func serverInfo(ctx context.Context, c goredis.Cmdable) (map[string]string, error) {
	info, err := c.Info(ctx, "server", "replication", "memory").Result()
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields, err
}

// checkFit returns an error if a server with the given answer to INFO cannot hold the index.
func checkFit(fields map[string]string) error {
	if fields["run_id"] == "" || fields["master_replid2"] == "" {
		return fmt.Errorf("%w: INFO lacks run_id or master_replid2, which detect restarts and failovers: use Redis 7 or later", errUnfit)
	}
	if policy := fields["maxmemory_policy"]; fields["maxmemory"] != "0" && strings.HasPrefix(policy, "allkeys") {
		return fmt.Errorf("%w: maxmemory-policy %s may evict keys of the index: set it to noeviction or to a volatile policy", errUnfit, policy)
	}
	return nil
}

// Close implements [leaderboard.Index]. It waits for background work.
func (x *Index) Close() error {
	x.stop()
	x.periodic.Wait()
	x.background.Wait()
	return x.client().Close()
}

// seasonIndex is the state that a process keeps about one season's index.
type seasonIndex struct {
	key     leaderboard.SeasonKey
	control atomic.Pointer[[]string] // the shards' control keys
	rebuild chan struct{}            // holds a token while no Rebuild of this process runs

	mu        sync.Mutex
	failures  int // the number of failed Updates
	repaired  int // the number of failed Updates that were repeated, or made irrelevant by a Rebuild or a drop
	missed    missed
	repairing bool
	lastFreed time.Time // when freeDead last ran
	log       logState

	doubtSince atomic.Int64 // when readers first found the season in doubt, in Unix nanoseconds; 0 if there is no doubt
}

// season returns the state of a season for a caller that changes it.
func (x *Index) season(s leaderboard.SeasonKey) *seasonIndex { return x.keep(x.peek(s)) }

// peek returns the state of a season for a reader. Readers may ask about any number
// of seasons that do not exist, so peek keeps new states in a bounded cache.
func (x *Index) peek(s leaderboard.SeasonKey) *seasonIndex {
	if season, ok := x.seasons.Load(s); ok {
		return season.(*seasonIndex)
	}
	if season, ok := x.queried.Get(s); ok {
		return season
	}
	season := &seasonIndex{key: s, rebuild: make(chan struct{}, 1)}
	season.rebuild <- struct{}{}
	x.setShards(season, 1) // if the season has another number, scripts return this number
	x.queried.Add(s, season)
	return season
}

// keep stores the state of a season permanently and returns it. If a concurrent call has
// stored another state first, keep returns the stored one.
func (x *Index) keep(season *seasonIndex) *seasonIndex {
	stored, _ := x.seasons.LoadOrStore(season.key, season)
	return stored.(*seasonIndex)
}

func (x *Index) setShards(season *seasonIndex, n int) {
	keys := x.controlKeys(season.key, n)
	season.control.Store(&keys)
}

func (x *Index) controlKeys(s leaderboard.SeasonKey, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = controlKey(x.o.Prefix, s, i, n)
	}
	return keys
}

// controlOf returns the control keys of a generation with n shards.
func (x *Index) controlOf(season *seasonIndex, n int) []string {
	if control := *season.control.Load(); len(control) == n {
		return control
	}
	return x.controlKeys(season.key, n)
}

// otherKeys returns the control keys of a season with any of the given numbers of shards, without
// the keys in control.
func (x *Index) otherKeys(s leaderboard.SeasonKey, control []string, shards ...int) (others []string) {
	for _, n := range shards {
		for _, key := range x.controlKeys(s, n) {
			if !slices.Contains(control, key) && !slices.Contains(others, key) {
				others = append(others, key)
			}
		}
	}
	return others
}

// Fits implements [leaderboard.Index].
func (x *Index) Fits(b *leaderboard.Board, s leaderboard.SeasonKey) bool {
	return b.Shards == 0 || len(*x.peek(s).control.Load()) == b.Shards
}

func (x *Index) leaseKey(season *seasonIndex) string { return (*season.control.Load())[0] + ":lease" }

func callEach(s *script, control []string, args ...any) []*call {
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

// shardOf returns the number of the shard that holds a user. The users of a shard are a
// [leaderboard.Part], so a store can scan them alone.
func shardOf(user leaderboard.UserID, shards int) int {
	if shards == 1 {
		return 0
	}
	return int(leaderboard.UserHash(user) % uint64(shards))
}

// unsynced reports whether an Update failed and no repair followed.
func (s *seasonIndex) unsynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures > s.repaired
}

// mustDrop reports whether the season lacks an Update that this process cannot repeat.
func (s *seasonIndex) mustDrop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missed.dropAt > s.repaired
}

// Synced implements [leaderboard.Index].
func (x *Index) Synced(seasons ...leaderboard.SeasonKey) bool {
	if len(seasons) == 0 || x.unsynced.Load() == 0 {
		return x.unsynced.Load() == 0
	}
	return !slices.ContainsFunc(seasons, func(s leaderboard.SeasonKey) bool { return x.peek(s).unsynced() })
}

// Invalidate implements [leaderboard.Index].
func (x *Index) Invalidate(s leaderboard.SeasonKey) { x.fail(x.season(s), time.Time{}, nil) }

// Loaded implements [leaderboard.Index]. A season is not loaded if any of its shards is gone. A season
// still counts as loaded if it lacks only Updates that this process will repeat, or has been in doubt for
// less than doubtTimeout. Loaded always asks Redis, so the caller learns whether Redis answers.
func (x *Index) Loaded(ctx context.Context, s leaderboard.SeasonKey) (bool, error) {
	if season := x.peek(s); season.unsynced() {
		calls := callEach(standingsScript, *season.control.Load(), "", "", 0)
		err := x.run(ctx, calls)
		if calls[0].status == statusShards {
			x.setShards(season, int(calls[0].int()))
			return x.Loaded(ctx, s)
		}
		complete := !slices.ContainsFunc(calls, func(c *call) bool {
			return c.status != statusOK && (c.status != statusDoubt || season.doubtIsOver())
		})
		return err == nil && complete && !season.mustDrop(), err
	}
	_, _, err := x.Standings(ctx, leaderboard.Ladder{SeasonKey: s}, nil, leaderboard.Ordinal)
	switch {
	case errors.Is(err, errNotLoaded):
		return false, nil
	case errors.Is(err, errInDoubt):
		return true, nil
	}
	return err == nil, err
}

// Drop implements [leaderboard.Index].
func (x *Index) Drop(ctx context.Context, s leaderboard.SeasonKey) error {
	season := x.season(s)
	if err := x.drop(ctx, season); err != nil {
		return fmt.Errorf("redis: drop %v: %w", s, err)
	}
	return nil
}

func (x *Index) drop(ctx context.Context, season *seasonIndex) error {
	// Empty shard 0 before the other shards. Once shard 0 is empty, the season is not loaded, and
	// no Rebuild can finish. Shard 0 also knows the numbers of shards.
	first := newCall(dropScript, *season.control.Load(), 0, "lose")
	if err := x.run(ctx, []*call{first}); err != nil {
		return err
	}
	control := *season.control.Load()
	others := x.otherKeys(season.key, control, x.o.Shards, int(first.int()), int(first.int()), int(first.int()))
	if err := x.dropShards(ctx, slices.Concat(control, others), x.leaseKey(season)); err != nil {
		return err
	}
	x.setShards(season, 1)
	return x.delist(ctx, season.key)
}

// dropShards empties and frees shards. Finally it removes the first shard and the keys in lease together.
func (x *Index) dropShards(ctx context.Context, control []string, lease ...string) error {
	if err := x.run(ctx, callEach(dropScript, control, "lose")); err != nil {
		return err
	}
	if err := x.free(ctx, control); err != nil {
		return err
	}
	last := callEach(dropScript, control, "all")
	last[0].keys = append(last[0].keys, lease...)
	return x.run(ctx, last)
}

const instantBytes = 8

// instant encodes t as 8 bytes, whose order is the order of time.
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

// maxPosition is beyond the end of every ladder and is exact as a number in Lua.
const maxPosition = math.MaxInt64 >> 12
