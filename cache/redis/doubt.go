package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
)

// # After the loss of a server
//
// Redis acknowledges a write before the write is on its replicas or on disk. So a promoted replica, or a
// restarted server, may lack the last Updates. Its state is older but consistent, because Redis
// replicates and stores the writes of each script together and in order. For each partition of the log,
// each shard also stores its position, an offset: the shard has the Updates of all messages before
// this offset.
//
// If a script finds its shard on another server than before, the shard is in doubt, and the script
// answers DOUBT (see lua/server.lua). Reads then fail. Updates are still written: the index ignores older
// versions of an entry, so the order of Updates does not matter. A partition's owner is the consumer that
// applies its messages. Each owner repeats the Updates of all messages at and after the recorded
// position, with the users' entries in the store. The owner then confirms the partition (see
// lua/confirm.lua). After all confirmations, no Update is missing, as the following cases show.
//
// Take an Update of a message at offset n of a partition. Before the owner repeats Updates, the owner
// finds the shard on the new server, then reads the end offset of the log, and then waits until its
// present batch of messages is applied.
//
//   - n is before the recorded position. An owner recorded the position after the Update, on the same
//     server. The new server has the position, so it also has all earlier writes, such as the Update.
//   - n is between the position and the end of the log, and the result was in the store when the owner
//     read the user's entry. Then the repeated Update contains the result.
//   - n is in the same range, but the result was not in the store yet. A consumer commits a message only
//     if its result is in the store, so the message was not committed. So the owner applies the message
//     after the wait. The resulting Update goes to the new server.
//   - n is after the end of the log. The owner reads the message after it has found the new server, and
//     sends the Update there.
//
// In the last two cases, the owner's Redis client may still send the Update to the former server. So
// every Update returns the server that made it, and Advance compares these servers with the server of the
// shard. If they differ, the shard is in doubt for this process, and the process repeats its Updates.
//
// A process that ends before it notices the new server cannot repeat its Updates, but may have committed
// their messages. So a position also has the field From: the first message whose Update the present owner
// has made or repeated. If the recorded position is before From, the owner repeats the Updates of the
// messages between the two (see lua/advance.lua).
//
// After a Rebuild on a new server has read the store, Updates may still go to the former server. So the
// Rebuild begins with positions that were recorded before it read the store (see positionsKey), and
// owners can repeat these Updates.
//
// A process without partitions may update the index too, for example after a ban. Afterwards it writes a
// message about the Update into the log (see Journal of package ranking), so that owners can repeat it.
//
// A session of the consumer group ends with the next rebalance. Only confirmations of one session count
// together, because a suspended process may have lost its partitions without knowing it.
//
// A position stays true if a Rebuild replaces the data: the data was read from the store, and the store
// has the results of all messages before the position.
//
// The rules of the board may change, and a board may be deleted and created again. Such changes are not
// in the log. So each generation has a tag (see tagOf). If the tag of a shard in doubt differs from the
// board's tag, Confirm empties the shard, and the service rebuilds the season.
//
// # Several shards
//
// Each shard has its own users, so the doubt of each shard ends alone. But a shard may also have lost the
// end of a Rebuild, and have an older live generation than the other shards. Confirm then empties the shard.

const (
	// doubtTimeout is the time after which a season in doubt counts as not loaded, so that the service rebuilds
	// the season.
	doubtTimeout = 30 * time.Second
	// idleInterval is the interval at which positions are recorded for seasons without Updates.
	idleInterval = 30 * time.Second
	// advanceChunk is the number of seasons whose positions are recorded in one round trip.
	advanceChunk = 256
)

// errInDoubt is the error of reads of a season in doubt.
var errInDoubt = fmt.Errorf("a Redis server was restarted or replaced, and consumers have not yet confirmed the season: %w", leaderboard.ErrRankUnavailable)

// logState is a process's knowledge of a season for Advance and Confirm.
type logState struct {
	// servers has, for each shard, the servers that made this process's Updates. If the process finds the
	// season in doubt, only the shard's present server remains.
	servers   [][]string
	shards    int    // the season's number of shards when servers was recorded
	repeating bool   // whether this process has found the season in doubt, and has not confirmed it yet
	confirmed string // the servers on which this process last confirmed the season, as in Doubt.Server
	changed   bool   // whether the season had an Update since its positions were recorded
}

// severalServers stands for several servers. No server has this name.
const severalServers = "several"

// server returns the server that made all of this process's Updates of a shard, or "" if there were none.
// If several servers made Updates, or if Updates must be repeated, it returns severalServers. The parameter
// shards is the season's number of shards.
func (l *logState) server(shard, shards int) string {
	switch {
	case l.shards != shards && !l.repeating:
		return ""
	case l.repeating || shard < len(l.servers) && len(l.servers[shard]) > 1:
		return severalServers
	case shard < len(l.servers) && len(l.servers[shard]) == 1:
		return l.servers[shard][0]
	}
	return ""
}

// madeOn reports whether all Updates of each shard were made on the shard's server in servers.
func (l *logState) madeOn(servers []string) bool {
	for shard, server := range servers {
		if shard >= len(l.servers) || len(l.servers[shard]) != 1 || l.servers[shard][0] != server {
			return false
		}
	}
	return true
}

// noteUpdate records that an Update of a shard was made on a server. The parameter shards is the number of
// shards of the generation.
func (s *seasonIndex) noteUpdate(shard, shards int, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.changed = true
	if shards != len(*s.control.Load()) {
		return // the Update was of a generation that is being built
	}
	if s.log.shards != shards {
		s.log.servers, s.log.shards = nil, shards
	}
	for len(s.log.servers) <= shard {
		s.log.servers = append(s.log.servers, nil)
	}
	if !slices.Contains(s.log.servers[shard], server) {
		s.log.servers[shard] = append(s.log.servers[shard], server)
	}
}

// inDoubt returns the error of a reader that has found the season in doubt.
func (s *seasonIndex) inDoubt() error {
	if s.doubtIsOver() {
		return errNotLoaded
	}
	return errInDoubt
}

// doubtIsOver reports whether the season has been in doubt for doubtTimeout. The caller must have
// found the season in doubt.
func (s *seasonIndex) doubtIsOver() bool {
	now := time.Now().UnixNano()
	s.doubtSince.CompareAndSwap(0, now)
	return now-s.doubtSince.Load() >= int64(doubtTimeout)
}

// trust records that the season is not in doubt.
func (s *seasonIndex) trust() {
	if s.doubtSince.Load() != 0 {
		s.doubtSince.Store(0)
	}
}

// tagOf returns a text that changes if the rules of a board change, or if the board is deleted
// and created again.
func tagOf(b *leaderboard.Board) string {
	return fmt.Sprintf("%d/%d", b.CreatedAt.UnixMicro(), b.Rules())
}

// passes describes the last pass of Advance over all seasons.
type passes struct {
	mu      sync.Mutex
	servers string // the result of serverNames
	at      time.Time
}

// Advance implements [leaderboard.Index]. Seasons without Updates are checked every idleInterval,
// whenever a server has changed, and if all is true.
func (x *Index) Advance(ctx context.Context, positions []leaderboard.LogPosition, all bool) ([]leaderboard.Doubt, error) {
	x.passes.mu.Lock()
	defer x.passes.mu.Unlock()
	servers, now := x.serverNames(ctx), time.Now()
	all = all || servers != x.passes.servers || now.Sub(x.passes.at) >= idleInterval
	seasons, err := x.toAdvance(ctx, all)
	errs := []error{err, x.notePositions(ctx, positions)}
	var doubts []leaderboard.Doubt
	for chunk := range slices.Chunk(seasons, advanceChunk) {
		found, err := x.advance(ctx, chunk, positions)
		doubts, errs = append(doubts, found...), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return doubts, fmt.Errorf("redis: advance: %w", err)
	}
	if all {
		x.passes.servers, x.passes.at = servers, now
	}
	return doubts, nil
}

// advance records positions for seasons, in one round trip. It returns the seasons in doubt.
func (x *Index) advance(ctx context.Context, seasons []*seasonIndex, positions []leaderboard.LogPosition) ([]leaderboard.Doubt, error) {
	calls, all := make([][]*call, len(seasons)), []*call(nil)
	for i, s := range seasons {
		control := *s.control.Load()
		s.mu.Lock()
		for shard := range control {
			args := []any{s.log.server(shard, len(control))}
			for _, p := range positions {
				args = append(args, p.Partition, p.From, p.Offset)
			}
			calls[i] = append(calls[i], newCall(advanceScript, control, shard, args...))
		}
		s.log.changed = false
		s.mu.Unlock()
		all = append(all, calls[i]...)
	}
	err := x.run(ctx, all)
	var doubts []leaderboard.Doubt
	for i, s := range seasons {
		if d := x.readDoubt(s, calls[i], positions); d != nil {
			doubts = append(doubts, *d)
		}
	}
	return doubts, err
}

// readDoubt reads the answers of the advance script for all shards of a season. It returns nil if the
// season is not loaded, or is not in doubt.
func (x *Index) readDoubt(s *seasonIndex, calls []*call, positions []leaderboard.LogPosition) *leaderboard.Doubt {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, servers, loaded, gap := leaderboard.Doubt{SeasonKey: s.key}, make([]string, len(calls)), true, false
	for shard, c := range calls {
		s.log.changed = s.log.changed || c.err != nil
		if loaded = loaded && c.err == nil && (c.status == statusOK || c.status == statusDoubt); !loaded {
			if c.status == statusShards {
				x.setShards(s, int(c.int()))
				s.log.changed = true
			}
			continue
		}
		servers[shard] = c.str()
		if c.status == statusDoubt {
			gap = c.int() == 1 || gap
			found := slices.Clone(positions)
			for p := range found {
				if found[p].Offset = c.int(); d.Positions != nil {
					found[p].Offset = min(found[p].Offset, d.Positions[p].Offset)
				}
			}
			d.Positions = found
		}
		loaded = !c.fault
	}
	if !loaded {
		return nil
	}
	if d.Positions == nil {
		s.trust()
		return nil
	}
	d.Server = strings.Join(servers, serverSeparator)
	if d.Confirmed = !gap && !s.log.repeating && s.log.confirmed == d.Server && s.log.madeOn(servers); !d.Confirmed {
		s.log.servers, s.log.shards, s.log.repeating = make([][]string, len(servers)), len(servers), true
		for shard, server := range servers {
			s.log.servers[shard] = []string{server}
		}
	}
	return &d
}

// serverSeparator separates the servers in Doubt.Server.
const serverSeparator = "\n"

func positionArgs(positions []leaderboard.LogPosition) (args []any) {
	for _, p := range positions {
		args = append(args, p.Partition, p.Offset)
	}
	return args
}

// Confirm implements [leaderboard.Index].
func (x *Index) Confirm(ctx context.Context, b *leaderboard.Board, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) error {
	season, servers := x.season(d.SeasonKey), strings.Split(d.Server, serverSeparator)
	control := *season.control.Load()
	season.mu.Lock()
	moved := len(servers) != len(control) || !season.log.madeOn(servers)
	season.mu.Unlock()
	if moved { // an Update has gone to another server since Advance; the next Advance returns the season again
		return nil
	}
	newest := ""
	if len(control) > 1 {
		var err error
		if newest, err = x.newestLive(ctx, control); err != nil {
			return fmt.Errorf("redis: confirm %v: %w", d.SeasonKey, err)
		}
	}
	calls := make([]*call, len(control))
	for shard := range control {
		args := []any{servers[shard], session.Generation, session.Partitions, tagOf(b), newest}
		calls[shard] = newCall(confirmScript, control, shard, append(args, positionArgs(positions)...)...)
	}
	if err := retry(ctx, func() error { return x.run(ctx, calls) }); err != nil {
		return fmt.Errorf("redis: confirm %v: %w", d.SeasonKey, err)
	}
	confirmed, trusted := true, true
	for _, c := range calls {
		trusted = trusted && c.status == statusOK
		confirmed = confirmed && (c.status == statusOK || c.status == statusDoubt && c.int() == 1)
	}
	if trusted {
		season.trust()
	}
	if confirmed {
		season.mu.Lock()
		defer season.mu.Unlock()
		season.log.repeating, season.log.confirmed = false, d.Server
	}
	return nil
}

// newestLive returns the newest live generation of all shards, or "" if there is none.
func (x *Index) newestLive(ctx context.Context, control []string) (newest string, err error) {
	calls := callEach(ownerScript, control)
	if err := retry(ctx, func() error { return x.run(ctx, calls) }); err != nil {
		return "", err
	}
	for _, c := range calls {
		c.int()
		if live := c.str(); fenceOf(live) > fenceOf(newest) {
			newest = live
		}
	}
	return newest, fault(calls)
}

// fenceOf returns the fence of a generation: see lua/base.lua.
func fenceOf(generation string) int64 {
	text, _, _ := strings.Cut(generation, "-")
	fence, _ := strconv.ParseInt(text, 10, 64) // 0 if there is no generation
	return fence
}

// toAdvance returns the seasons whose positions Advance records. If all is false, these are only the
// seasons with Updates and the seasons in doubt.
func (x *Index) toAdvance(ctx context.Context, all bool) (seasons []*seasonIndex, err error) {
	found := map[leaderboard.SeasonKey]*seasonIndex{}
	x.seasons.Range(func(key, value any) bool {
		s := value.(*seasonIndex)
		s.mu.Lock()
		defer s.mu.Unlock()
		if all || s.log.changed || s.doubtSince.Load() != 0 {
			found[s.key] = s
		}
		return true
	})
	if all {
		var names []string
		names, err = x.client().SMembers(ctx, x.listKey()).Result()
		if err != nil {
			err = fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
		}
		for _, name := range names {
			if key := seasonNamed(name); found[key] == nil {
				found[key] = x.peek(key)
			}
		}
	}
	return slices.Collect(maps.Values(found)), err
}

// positionsKey is the key of a hash: partition of the log -> offset. The store has the results of all
// messages before this offset. A Rebuild records these positions in shards without a live generation.
func (x *Index) positionsKey() string { return x.o.Prefix + "positions" }

// notePositions writes to the hash positionsKey. Processes may write in any order, because a smaller
// offset is also true.
func (x *Index) notePositions(ctx context.Context, positions []leaderboard.LogPosition) error {
	if len(positions) == 0 {
		return nil
	}
	return x.client().HSet(ctx, x.positionsKey(), positionArgs(positions)...).Err()
}

// notedPositions returns the hash positionsKey as pairs of a partition and an offset.
func (x *Index) notedPositions(ctx context.Context) (pairs []any, _ error) {
	all, err := x.client().HGetAll(ctx, x.positionsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
	}
	for partition, offset := range all {
		pairs = append(pairs, partition, offset)
	}
	return pairs, nil
}

// listKey is the key of the list of seasons that may be in the index.
func (x *Index) listKey() string { return x.o.Prefix + "seasons" }

// listName returns the name of a season in the list. Ids have no zero byte.
func listName(key leaderboard.SeasonKey) string {
	return string(key.Board) + "\x00" + string(key.Season)
}

func seasonNamed(name string) leaderboard.SeasonKey {
	board, season, _ := strings.Cut(name, "\x00")
	return leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}
}

func (x *Index) enlist(ctx context.Context, key leaderboard.SeasonKey) error {
	if err := x.client().SAdd(ctx, x.listKey(), listName(key)).Err(); err != nil {
		return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
	}
	return nil
}

func (x *Index) delist(ctx context.Context, key leaderboard.SeasonKey) error {
	if err := x.client().SRem(ctx, x.listKey(), listName(key)).Err(); err != nil {
		return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
	}
	return nil
}

// serverNames returns a text that changes if a server restarts or becomes a master, or if slots
// move.
func (x *Index) serverNames(ctx context.Context) string {
	name := func(ctx context.Context, c goredis.Cmdable) string {
		id, err := identity(ctx, c)
		if err != nil {
			return "unreachable"
		}
		return id
	}
	c, ok := x.client().(*goredis.ClusterClient)
	if !ok {
		return name(ctx, x.client())
	}
	var mu sync.Mutex
	var names []string
	err := c.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error {
		n := m.Options().Addr + " " + name(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		names = append(names, n)
		return nil
	})
	ranges, slotsErr := x.client().ClusterSlots(ctx).Result()
	for _, r := range ranges {
		if len(r.Nodes) > 0 {
			names = append(names, fmt.Sprintf("%d-%d %s", r.Start, r.End, r.Nodes[0].ID))
		}
	}
	if err != nil || slotsErr != nil {
		c.ReloadState(ctx)
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}
