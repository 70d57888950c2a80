package redis

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// censusInterval is the time between two passes. A census reads the shards of all seasons, in one or
	// more passes.
	censusInterval = 30 * time.Second
	censusTimeout  = 5 * time.Second
	// censusShards is about the greatest number of shards that a pass reads.
	censusShards = 2000
	// censusChunk is the number of seasons that a census reads in one round trip.
	censusChunk = 100
)

type shardCounts struct {
	live, inDoubt, notLoaded, unknown float64 // shards by state

	building   float64 // shards of generations that are being built
	users      float64 // records in shards that are live or in doubt
	generation float64 // the greatest fence: see lua/base.lua
	lag        float64 // the greatest number of messages between a newest position and a shard's position
}

// census counts the shards of all seasons that Redis lists (see listKey). Each process that exposes
// metrics makes its own census.
type census struct {
	seasons []string         // names of the seasons in the last list that Redis returned
	newest  map[string]int64 // partition of the log -> position at the beginning of the pass: see positionsKey
	pending []string         // names of the seasons that the present census has not read yet
	sum     shardCounts
	// identities are the identities of the servers in the present pass, by address.
	identities map[string]string
}

func (x *Index) pollShards() {
	var c census
	x.poll(censusInterval, func() { x.countShards(&c, censusShards) })
}

// countShards makes a pass, which reads about limit shards. At the end of a census, it sets the metrics.
// If Redis does not answer in time, the census ends, and counts each remaining season as one unknown shard.
func (x *Index) countShards(c *census, limit int) {
	ctx, cancel := context.WithTimeout(x.ctx, censusTimeout)
	defer cancel()
	x.beginPass(ctx, c)
	for limit > 0 && len(c.pending) > 0 && ctx.Err() == nil {
		chunk := c.pending[:min(len(c.pending), censusChunk)]
		c.pending = c.pending[len(chunk):]
		limit -= x.countSeasons(ctx, c, chunk)
	}
	if ctx.Err() != nil {
		c.sum.unknown += float64(len(c.pending))
		c.pending = nil
	}
	if len(c.pending) == 0 {
		x.metrics.mu.Lock()
		defer x.metrics.mu.Unlock()
		x.metrics.shards = c.sum
	}
}

// beginPass reads the newest positions before the pass reads the shards. So a shard that advances during
// the pass has no lag. If no census is under way, beginPass begins one. If Redis does not answer, the
// previous answers remain.
func (x *Index) beginPass(ctx context.Context, c *census) {
	c.identities = map[string]string{}
	if pairs, err := x.client().HGetAll(ctx, x.positionsKey()).Result(); err == nil {
		c.newest = map[string]int64{}
		for partition, offset := range pairs {
			c.newest[partition], _ = strconv.ParseInt(offset, 10, 64) // 0 if it is not a number
		}
	}
	if len(c.pending) > 0 {
		return
	}
	if names, err := x.client().SMembers(ctx, x.listKey()).Result(); err == nil {
		c.seasons = names
	}
	c.pending, c.sum = c.seasons, shardCounts{}
}

// A census reads each shard by plain commands, because a script would take three times as much of the
// server's time.
type countedShard struct {
	key           string
	shard, shards int // the number of this shard, and of all shards of the season
	answer        *goredis.SliceCmd
	control       struct { // see lua/base.lua
		Shards     int     `redis:"S"`
		NextShards int     `redis:"nS"`
		Live       string  `redis:"live"`
		Next       string  `redis:"next"`
		Busy       string  `redis:"busy"`
		ID         string  `redis:"id"`
		Fence      float64 `redis:"fence"`
	}
	counters *goredis.SliceCmd           // nil if the shard is not loaded
	at       *goredis.MapStringStringCmd // the shard's positions; nil if the shard is not loaded
}

// countSeasons adds the shards of seasons to the sum, and returns the number of these shards. It ignores the
// errors of pipelines, because add counts a shard without an answer as unknown.
func (x *Index) countSeasons(ctx context.Context, c *census, names []string) int {
	pipe, seasons := x.client().Pipeline(), make([][]*countedShard, len(names))
	for i, name := range names {
		seasons[i] = readControls(ctx, pipe, x.likelyControl(seasonNamed(name)))
	}
	_, _ = pipe.Exec(ctx)
	for i, name := range names {
		_ = seasons[i][0].answer.Scan(&seasons[i][0].control)
		if n := seasons[i][0].control.Shards; n > 0 && n <= leaderboard.MaxShards && n != len(seasons[i]) {
			seasons[i] = readControls(ctx, pipe, x.controlKeys(seasonNamed(name), n))
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
	shards := slices.Concat(seasons...)
	for _, s := range shards {
		if s.answer.Scan(&s.control) == nil && s.isLoaded() {
			s.counters = pipe.HMGet(ctx, s.key+":"+s.control.Live+":w", "users")
			s.at = pipe.HGetAll(ctx, s.key+":at")
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
	for _, s := range shards {
		c.add(s, x.identityOf(ctx, c, s.key))
	}
	return len(shards)
}

func readControls(ctx context.Context, pipe goredis.Pipeliner, control []string) (shards []*countedShard) {
	for i, key := range control {
		answer := pipe.HMGet(ctx, key, "S", "nS", "live", "next", "busy", "id", "fence")
		shards = append(shards, &countedShard{key: key, shard: i, shards: len(control), answer: answer})
	}
	return shards
}

// isLoaded reports whether the shard is live or in doubt. Unlike scripts, it does not check the number of the
// layout (see lua/server.lua). The next reader empties a shard with another layout.
func (s *countedShard) isLoaded() bool {
	return s.control.Live != "" && s.control.Busy == "0" && s.control.Shards == s.shards && len(s.control.ID) > layoutBytes
}

// layoutBytes is the length of the layout's number at the start of the field id.
const layoutBytes = 2

// identityOf returns the identity (see lua/server.lua) of the server that has a key, or "" if the server does
// not answer. It asks each server once in a pass.
func (x *Index) identityOf(ctx context.Context, c *census, key string) string {
	client, server, err := x.master(ctx, key)
	if err != nil {
		return ""
	}
	if _, ok := c.identities[server]; !ok {
		c.identities[server] = ""
		if id, err := identity(ctx, client); err == nil {
			c.identities[server] = id
		}
	}
	return c.identities[server]
}

// likelyControl returns the control keys of a season, for the last number of shards that this process
// has seen, or for 1 shard. Unlike peek, it caches nothing: a census may read more seasons than the
// cache holds.
func (x *Index) likelyControl(key leaderboard.SeasonKey) []string {
	if season, ok := x.seasons.Load(key); ok {
		return *season.(*seasonIndex).control.Load()
	}
	if season, ok := x.queried.Peek(key); ok {
		return *season.control.Load()
	}
	return x.controlKeys(key, 1)
}

// server is the identity of the shard's server, or "".
func (c *census) add(s *countedShard, server string) {
	loaded := s.counters != nil
	switch {
	case s.answer.Err() != nil, server == "", loaded && (s.counters.Err() != nil || s.at.Err() != nil):
		c.sum.unknown++
		return
	case !loaded:
		c.sum.notLoaded++
	case s.control.ID[layoutBytes:] == server:
		c.sum.live++
	default:
		c.sum.inDoubt++
	}
	c.sum.generation = max(c.sum.generation, s.control.Fence)
	if s.shard == 0 && s.control.Next != "" && s.control.Busy != "" { // only shard 0, so that each Rebuild counts once
		c.sum.building += float64(s.control.NextShards)
	}
	if !loaded {
		return
	}
	var counters struct {
		Users float64 `redis:"users"`
	}
	_ = s.counters.Scan(&counters) // 0 if it is not a number
	c.sum.users += counters.Users
	for partition, text := range s.at.Val() {
		newest, ok := c.newest[partition]
		if offset, err := strconv.ParseInt(text, 10, 64); ok && err == nil {
			c.sum.lag = max(c.sum.lag, float64(newest-offset))
		}
	}
}

// No metric has the bytes of a shard, because Redis would have to measure each key.
func (x *Index) registerShards(reg prometheus.Registerer) {
	f := promauto.With(reg)
	for _, g := range []struct {
		name, help, state string
		read              func(*shardCounts) float64
	}{
		{"shards", shardsHelp, "live", func(s *shardCounts) float64 { return s.live }},
		{"shards", shardsHelp, "in_doubt", func(s *shardCounts) float64 { return s.inDoubt }},
		{"shards", shardsHelp, "not_loaded", func(s *shardCounts) float64 { return s.notLoaded }},
		{"shards", shardsHelp, "unknown", func(s *shardCounts) float64 { return s.unknown }},
		{"building_shards", "Shards of all rebuilds that have begun and not ended, also if their process has ended.", "", func(s *shardCounts) float64 { return s.building }},
		{"users", "Users with a record in shards that are live or in doubt, also users without a rank.", "", func(s *shardCounts) float64 { return s.users }},
		{"newest_generation", "Largest number of rebuilds of one season since its keys were created.", "", func(s *shardCounts) float64 { return s.generation }},
		{"position_lag_messages", "Messages of a partition between the newest recorded position and that of the shard furthest behind. Idle shards follow every 30 seconds.", "", func(s *shardCounts) float64 { return s.lag }},
	} {
		o := prometheus.GaugeOpts{Namespace: "leaderboard", Subsystem: "redis", Name: g.name, Help: g.help}
		if g.state != "" {
			o.ConstLabels = prometheus.Labels{"state": g.state}
		}
		f.NewGaugeFunc(o, x.metrics.reader(func(m *metrics) float64 { return g.read(&m.shards) }))
	}
}

const shardsHelp = "Shards of all seasons that Redis lists, by state, at the last census: live, in_doubt (the server has changed, and updates may be missing), not_loaded, or unknown (no answer)."
