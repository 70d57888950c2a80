package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
)

// # After the loss of a server
//
// Redis acknowledges a write before its replicas have it. So a promoted replica, or a server that
// restarts from its files, may lack the last Updates. Such a server has an older but consistent state,
// because Redis replicates and stores the writes of each script together and in order. Each shard also
// stores its positions in the log of results. A position is an offset in a partition: the shard lacks
// no Update of a message before this offset.
//
// If a script finds its shard on another server than before, it answers DOUBT (see lua/server.lua):
// the shard is in doubt. Reads then fail. Updates are written as usual, because versions make their
// order irrelevant. A partition's owner is the consumer that applies its messages. Each owner repeats
// the Updates of all messages at and after the recorded position, and then confirms the partition
// (see lua/confirm.lua). After all confirmations, the shard is as complete as before the loss.
//
// Why no Update is missing afterwards. Take an Update of a message at offset n of a partition.
// Before the owner confirms the partition, it finds the shard on the new server, then reads the
// end of the log, and then waits until it has applied the messages that it has already read.
//
//   - n is below the recorded position. An owner recorded the position after the Update, on the same
//     server. So the new server, which has the position, also has the Update.
//   - n is between the position and the end of the log, and the result was in the store when the owner
//     read the user's entry. Then the repeated Update contains the result.
//   - n is between the position and the end of the log, but the result was not in the store yet. Then
//     the message was not committed, because a consumer commits a message only if its result is in the
//     store. So the present owner applies the message later, or was applying it and has waited. The
//     resulting Update goes to the new server.
//   - n is after the end of the log. The owner reads the message after it found the new server.
//
// In the last two cases, a client that has not noticed the change may still send the Update to the
// former server. So every Update returns the server that made it, and Advance compares these servers
// with the server of the shard. If they differ, the shard is in doubt for this process, and the
// process repeats its Updates.
//
// A process that ends before it notices the change cannot repeat its Updates, but may have
// committed their messages. So an owner also states the first message whose Update it has made: the
// field From of its position. If the recorded position is before From, the owner repeats the
// Updates of the messages between the two (see lua/advance.lua). After a Rebuild on a new server
// has read the store, Updates may also go to the former server. So a Rebuild begins with positions
// that were recorded before it read the store (see positionsKey).
//
// A process without partitions may update the index too, for example after a ban. Afterwards it
// writes a message about the Update into the log (see Journal of package ranking).
//
// Only confirmations of one session of the consumer group count together. A process that was
// suspended and lost its partitions meanwhile belongs to an older session. A position stays true even
// if a new generation replaces the shard's data: the generation was read from the store, and the
// store has the results of all messages before the position.
//
// The rules of the board may change, and a board may be deleted and created again. Such changes are
// not in the log. So each generation has a tag (see tagOf). If the tag of a shard in doubt differs
// from the board's tag, the shard is emptied, and the service rebuilds the season.
//
// If the shard stays in doubt, for example because no consumer runs, the service rebuilds
// the season after doubtTimeout.
//
// # Several shards
//
// If a season has several shards, each rank key has a home: a shard that records which shards hold the
// rank key. The other shards send items about it to the home, through channels (see lua/channel.lua).
// After the loss of writes, a home may lack items that it has acknowledged, or have items that the
// sender has lost. So a shard in doubt is confirmed only after complete has brought all channels up to
// date (see channels.go).
//
// An item is a state, not a change: the sender holds the rank key, or does not hold it. So the last
// item about a rank key decides, and repeated items are harmless. The rest of this comment shows
// that each home then has each sender's last item about each rank key.
//
//   - Terms. A sender begins a new term before it sends an item on another server. In one term, one
//     server has only one history of items. So if both sides have a term with the same name and start,
//     they have the same items before this term, and also within it until the term ends on one side.
//   - Order. A home accepts a delivery only if it has exactly the adopted terms, and no gap. So the
//     received items are always the beginning of one history of the sender. A process first reads the
//     home's terms, then the sender's terms. adopt.lua changes the home's terms only if they are still
//     unchanged. So the adopted terms never go back, and the home refuses late deliveries of former terms.
//     The sender ignores late acknowledgements of former terms.
//   - The home is older than the sender. Then it has received fewer items than the sender counts as
//     acknowledged. The sender has kept the missing items, and restate.lua makes it send them again.
//   - The sender is older than the home. adopt.lua finds the items that both have, and moves all later
//     items of the home to a list: the sender has lost these items. For each rank key in the list, the
//     sender states again whether it holds the rank key at the time of sending. If the state changes
//     afterwards, a later item follows.
//   - Both are older, or servers fail again at any step. A step needs only the keys of the shards, so
//     any process can repeat the step. If the sender loses its new statements, they are of a former
//     term, and the home moves the received ones to the list. Only an item behind all statements that
//     answer the list removes it. If the home loses its adoption, its terms differ from the sender's.
//
// complete ends when each home has adopted the sender's present terms, has no list, and has received all
// items that the sender had sent at the beginning. Then take a rank key. If the sender has changed the
// rank key's state after the common items, an item states the change, and the home has received this item,
// or will receive it as usual. Otherwise there are two cases. The home has received no later item about
// the rank key, so its record is right. Or the rank key was in the list, and was stated again.
//
// If a server fails while complete runs, its shards are in doubt too, and their channels in both
// directions are completed before their confirmation.
//
// Both sides keep items for at least KEEP (see lua/channel.lua), but at most LIMIT items of a channel. If a
// step needs older items, one of the two shards is emptied, and the service rebuilds it. A shard in doubt is
// also emptied if a Rebuild has replaced its generation in the other shards.

const (
	// doubtTimeout is the time after which readers treat a season in doubt as not loaded.
	doubtTimeout = 30 * time.Second
	// idleInterval is the interval at which positions are recorded for seasons without Updates.
	idleInterval = 30 * time.Second
	// advanceChunk is the number of seasons whose positions are recorded in one round trip.
	advanceChunk = 256
)

// errInDoubt means that the season may lack updates, because its server has changed.
var errInDoubt = fmt.Errorf("the server has changed, and the season is being brought up to date: %w", leaderboard.ErrRankUnavailable)

// logState is what a process knows about the positions of a season.
type logState struct {
	// servers has, for each shard, the servers that made this process's Updates since the process
	// last found the season in doubt.
	servers   [][]string
	shards    int    // the season's number of shards when servers was recorded
	repeating bool   // whether this process has found the season in doubt, and has not confirmed it yet
	confirmed string // the servers on which this process last confirmed the season, as in Doubt.Server
	changed   bool   // whether the season had an Update since its positions were recorded
}

// severalServers stands for several servers. No server has this name.
const severalServers = "several"

// server returns the server that made all Updates of a shard, or "" if there were no Updates. If several
// servers made them, or if some Updates must be repeated, it returns severalServers. shards is the season's
// number of shards.
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

// madeOn reports whether all Updates of each shard were made on the given server.
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

type passes struct {
	mu      sync.Mutex
	servers string    // the servers and their slots at the last pass over all seasons
	at      time.Time // the time of this pass
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
// season is not in doubt, or not loaded.
func (x *Index) readDoubt(s *seasonIndex, calls []*call, positions []leaderboard.LogPosition) *leaderboard.Doubt {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, servers, loaded, gap := leaderboard.Doubt{SeasonKey: s.key}, make([]string, len(calls)), true, false
	for shard, c := range calls {
		s.log.changed = s.log.changed || c.failed
		if loaded = loaded && !c.failed && (c.status == statusOK || c.status == statusDoubt); !loaded {
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

// serverSeparator separates the servers of the shards in the field Server of a Doubt.
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
	if moved { // an Update has gone to another server meanwhile, so the next Advance returns the season again
		return nil
	}
	state := channelState{complete: true}
	if len(control) > 1 {
		var err error
		if state, err = x.complete(ctx, season, control, servers); err != nil {
			return fmt.Errorf("redis: confirm %v: %w", d.SeasonKey, err)
		}
		if state.changed {
			return nil
		}
	}
	complete := 0
	if state.complete {
		complete = 1
	}
	calls := make([]*call, len(control))
	for shard := range control {
		args := []any{servers[shard], session.Generation, session.Partitions, tagOf(b), complete, state.live}
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

// toAdvance returns the seasons whose positions Advance records: all seasons, or only seasons
// with Updates or in doubt.
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

// notePositions writes positions to this hash. Processes may write in any order, because a smaller offset
// is also true.
func (x *Index) notePositions(ctx context.Context, positions []leaderboard.LogPosition) error {
	if len(positions) == 0 {
		return nil
	}
	return x.client().HSet(ctx, x.positionsKey(), positionArgs(positions)...).Err()
}

// notedPositions returns this hash as pairs of a partition and an offset.
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
