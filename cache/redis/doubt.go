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
// Redis acknowledges a write before its replicas have it. So a promoted replica may lack the last
// Updates, and so may a server that restarts from its files. Such a server has an older, but
// consistent state: Redis replicates and stores the writes of each script together and in order. Every
// shard records in the same way how far it is in the log of results. For each partition of the log,
// it has a position: the shard lacks no Update of a message before this offset.
//
// A script that finds its shard on another server than before answers DOUBT (see lua/server.lua).
// While a shard is in doubt, reads fail, and Updates are written as usual: versions make their order
// irrelevant. The owner of each partition then repeats the Updates of all messages from the recorded
// position on, and confirms the partition (see lua/confirm.lua). After all owners have done so, the
// shard is as complete as before the loss.
//
// Why no Update is missing afterwards. Take an Update of a message at offset n of a partition. The
// owner that confirms the partition has first found the shard on the new server, then read the end
// of the log, and then waited until it has applied the messages that it had read before.
//
//   - n is below the recorded position. An owner recorded the position after the Update, on the same
//     server, so the new server has both.
//   - n is between the position and the end of the log, and the result was in the store when the owner
//     read the user's entry. Then the repeated Update contains it.
//   - n is in that range, and the result was not in the store yet. Then the message was not committed,
//     because a consumer commits only what is in the store. The present owner will still apply it,
//     or was applying it, and has waited. The Update that follows goes to the new server.
//   - n is after the end of the log. The owner reads the message after it found the new server.
//
// In the last two cases, the Update could still go to the former server, if the client has not
// noticed the change. Every Update returns the server that made it. Advance compares these servers
// with the server of the shard. If they differ, the shard is in doubt for this process, which repeats
// its Updates.
//
// Processes that do not own partitions may update the index too, for example after a ban. They
// write a message about it into the log afterwards (see Journal of package ranking).
//
// A confirmation counts only together with those of the same session of the consumer group. A process
// that was paused, and has lost its partitions meanwhile, belongs to an older session. A position
// stays true for ever, also if another generation replaces the shard's data: the generation was read
// from the store, which has the results of all messages before the position.
//
// The rules of the board may change, and a board may be deleted and created again. Such changes are
// not in the log. So each generation has a tag (see tagOf). If the tag of a shard in doubt is not that
// of the board, the shard is emptied, and the service rebuilds the season.
//
// If the shard stays in doubt, for example because no consumer runs, the service rebuilds
// the season after doubtTimeout.

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
	// servers are the servers that made this process's Updates of the season, since the process last
	// found the season in doubt.
	servers   []string
	repeating bool   // whether this process has found the season in doubt, and has not confirmed it yet
	confirmed string // the server on which this process last confirmed the season
	changed   bool   // whether the season had an Update since its positions were recorded
}

// severalServers is the name of no server. It states that several servers made the Updates.
const severalServers = "several"

// server returns the server that made all Updates, or "" if there were no Updates. If several servers
// made them, or if some must be repeated, it returns severalServers.
func (l *logState) server() string {
	switch {
	case l.repeating || len(l.servers) > 1:
		return severalServers
	case len(l.servers) == 1:
		return l.servers[0]
	}
	return ""
}

// noteUpdate records that an Update was made on a server. An empty name means that the season
// is not loaded.
func (s *seasonIndex) noteUpdate(server string) {
	if server == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.changed = true
	if !slices.Contains(s.log.servers, server) {
		s.log.servers = append(s.log.servers, server)
	}
}

// inDoubt returns the error of a reader that has found the season in doubt.
func (s *seasonIndex) inDoubt() error {
	if s.doubtIsOver() {
		return errNotLoaded
	}
	return errInDoubt
}

// doubtIsOver reports whether the season has been in doubt for doubtTimeout. The caller has found
// the season in doubt.
func (s *seasonIndex) doubtIsOver() bool {
	now := time.Now().UnixNano()
	s.doubtSince.CompareAndSwap(0, now)
	return now-s.doubtSince.Load() >= int64(doubtTimeout)
}

// trust records that a reader has found the season on its server.
func (s *seasonIndex) trust() {
	if s.doubtSince.Load() != 0 {
		s.doubtSince.Store(0)
	}
}

// tagOf returns a text that changes with the rules of a board, and if the board is created again.
func tagOf(b *leaderboard.Board) string {
	return fmt.Sprintf("%d/%d", b.CreatedAt.UnixMicro(), b.Rules())
}

// passes is the state of Advance.
type passes struct {
	mu      sync.Mutex
	servers string    // the servers and their slots at the last pass over all seasons
	at      time.Time // the time of this pass
}

// Advance implements [leaderboard.Index]. Seasons without Updates are checked every idleInterval,
// and whenever a server has changed.
func (x *Index) Advance(ctx context.Context, positions []leaderboard.LogPosition) ([]leaderboard.Doubt, error) {
	x.passes.mu.Lock()
	defer x.passes.mu.Unlock()
	servers, now := x.serverNames(ctx), time.Now()
	all := servers != x.passes.servers || now.Sub(x.passes.at) >= idleInterval
	seasons, err := x.toAdvance(ctx, all)
	errs := []error{err}
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
	calls := make([]*call, len(seasons))
	for i, s := range seasons {
		s.mu.Lock()
		args := []any{s.log.server()}
		s.log.changed = false
		s.mu.Unlock()
		calls[i] = newCall(advanceScript, *s.control.Load(), 0, append(args, positionArgs(positions)...)...)
	}
	err := x.run(ctx, calls)
	var doubts []leaderboard.Doubt
	for i, c := range calls {
		if c.failed {
			seasons[i].mu.Lock()
			seasons[i].log.changed = true
			seasons[i].mu.Unlock()
		}
		if c.status == statusOK {
			seasons[i].trust()
		}
		if c.failed || c.status != statusDoubt {
			continue
		}
		d := leaderboard.Doubt{SeasonKey: seasons[i].key, Server: c.str(), Positions: slices.Clone(positions)}
		for p := range d.Positions {
			d.Positions[p].Offset = c.int()
		}
		seasons[i].mu.Lock()
		l := &seasons[i].log
		if d.Confirmed = l.confirmed == d.Server && l.server() == d.Server; !d.Confirmed {
			l.servers, l.repeating = []string{d.Server}, true
		}
		seasons[i].mu.Unlock()
		if !c.fault {
			doubts = append(doubts, d)
		}
	}
	return doubts, err
}

func positionArgs(positions []leaderboard.LogPosition) (args []any) {
	for _, p := range positions {
		args = append(args, p.Partition, p.Offset)
	}
	return args
}

// Confirm implements [leaderboard.Index].
func (x *Index) Confirm(ctx context.Context, b *leaderboard.Board, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) error {
	season := x.season(d.SeasonKey)
	season.mu.Lock()
	moved := len(season.log.servers) != 1 || season.log.servers[0] != d.Server
	season.mu.Unlock()
	if moved { // an Update has gone to another server meanwhile, so the next Advance returns the season again
		return nil
	}
	args := append([]any{d.Server, session.Generation, session.Partitions, tagOf(b)}, positionArgs(positions)...)
	c := newCall(confirmScript, *season.control.Load(), 0, args...)
	if err := retry(ctx, func() error { return x.run(ctx, []*call{c}) }); err != nil {
		return fmt.Errorf("redis: confirm %v: %w", d.SeasonKey, err)
	}
	if c.status == statusOK {
		season.trust()
	}
	if c.status == statusOK || c.status == statusDoubt && c.int() == 1 {
		season.mu.Lock()
		defer season.mu.Unlock()
		season.log.repeating, season.log.confirmed = false, d.Server
	}
	return nil
}

// toAdvance returns the seasons whose positions Advance records: those with Updates, or all. It
// omits seasons with several shards, which are never in doubt.
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
			board, season, _ := strings.Cut(name, "\x00")
			key := leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}
			if found[key] == nil {
				found[key] = x.peek(key)
			}
		}
	}
	return slices.DeleteFunc(slices.Collect(maps.Values(found)), func(s *seasonIndex) bool { return len(*s.control.Load()) > 1 }), err
}

// listKey is the key of the list of seasons that may be in the index.
func (x *Index) listKey() string { return x.o.Prefix + "seasons" }

// listName returns the name of a season in the list. Ids have no zero byte.
func listName(key leaderboard.SeasonKey) string {
	return string(key.Board) + "\x00" + string(key.Season)
}

// enlist adds a season to the list of seasons.
func (x *Index) enlist(ctx context.Context, key leaderboard.SeasonKey) error {
	if err := x.client().SAdd(ctx, x.listKey(), listName(key)).Err(); err != nil {
		return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
	}
	return nil
}

// delist removes a season from the list of seasons.
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
		fields, err := serverInfo(ctx, c)
		if err != nil {
			return "unreachable"
		}
		return fields["run_id"] + "/" + fields["master_replid2"]
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
