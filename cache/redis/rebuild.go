package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// errOvertaken means that a Drop, a newer Rebuild or a loss of data interrupted a Rebuild.
var errOvertaken = fmt.Errorf("overtaken by a drop, a newer rebuild or a loss of data: %w", leaderboard.ErrRankUnavailable)

// leasePoll is the interval at which a Rebuild checks another process's lease.
const leasePoll = 50 * time.Millisecond

// Rebuild implements [leaderboard.Index]. Processes that share a Redis take turns: only
// the process with the lease rebuilds. If that process dies, another takes over after
// [Options.LeaseTTL].
//
// Rebuild sorts the entries and writes whole leaves of trees (see bulk.go). bulkSizes bound the
// memory that it uses. If the entries exceed this memory, Redis keeps sorted runs of them meanwhile:
// about 25 bytes a user, plus rank keys and ids.
//
// All processes read one store. Suppose that another process begins a Rebuild after this
// call, and finishes it while this call waits for the lease. Then this call succeeds without
// reading entries.
//
// Errors: [leaderboard.ErrRankUnavailable] if a Drop, a loss of data or a newer Rebuild
// overtakes this Rebuild. A newer Rebuild can do so once the lease has expired. An
// overtaken Rebuild changes nothing.
func (x *Index) Rebuild(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	return x.exclusively(ctx, b, &generation{season: x.season(s)}, at, func(ctx context.Context, g *generation) error {
		return g.fill(ctx, b, entries)
	})
}

// Restore implements [leaderboard.Index]. It is a Rebuild that reads from the store only the users
// of the shards that are lost. It copies the records of the other shards from their live generations.
// If no shard is left, or if a failed Update of this process is not repaired, it reads all users.
//
// All shards get a new generation, as in a Rebuild. Nothing but records is copied. The records of a copied shard
// are complete: the shard is not lost, so it has every Update that ended before the new generation
// began. Later Updates also go to the new generation, and versions make their order irrelevant.
func (x *Index) Restore(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	season := x.season(s)
	return x.exclusively(ctx, b, &generation{season: season, keep: !season.unsynced()}, at, func(ctx context.Context, g *generation) error {
		return g.restore(ctx, b, scan)
	})
}

// exclusively builds a generation. This process builds only one generation of a season at a
// time. The function fill writes the standings.
func (x *Index) exclusively(ctx context.Context, b *leaderboard.Board, g *generation, at time.Time, fill func(context.Context, *generation) error) error {
	s := g.season.key
	select {
	case <-g.season.rebuild:
		defer func() { g.season.rebuild <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("redis: rebuild %v: %w", s, ctx.Err())
	}
	if err := x.inspect(ctx); errors.Is(err, errUnfit) { // after a failover, the new master may have other settings
		return fmt.Errorf("redis: rebuild %v: %w: %w", s, leaderboard.ErrRankUnavailable, err)
	}
	if err := x.rebuild(ctx, b, g, at, fill); err != nil {
		return fmt.Errorf("redis: rebuild %v: %w", s, err)
	}
	return nil
}

// generation is a fill of a season that a Rebuild of this process is making. lua/base.lua
// describes generations and fences.
type generation struct {
	x       *Index
	season  *seasonIndex
	control []string // the shards' control keys
	leaving []string // control keys of shards that only the live generation has
	token   string   // identifies the owner of the lease
	name    string
	fence   int64
	// failures is the number of the season's failed Updates before the Rebuild.
	failures int

	keep   bool          // whether to copy the records of shards that are not lost
	copied bool          // whether such records were copied
	live   []liveInShard // by shard

	keyBytes int
	// During a bulk load, name receives the updates, and the bulk load writes the generation bulk.
	// Afterwards, name is equal to bulk, and aside is the former name: see lua/bulk.lua.
	bulk  string // empty before the bulk load
	aside string

	pending [][][]any // the arguments of entries to send, by shard: see entryArgs
	batches []int64   // number of batches sent, by shard
	queued  int       // number of entries in pending
}

// liveInShard is the live generation of a shard when a new one began.
type liveInShard struct {
	name     string // empty if the shard has none
	keyBytes int    // length of rank keys
}

func (x *Index) rebuild(ctx context.Context, b *leaderboard.Board, g *generation, at time.Time, fill func(context.Context, *generation) error) (err error) {
	g.x, g.token = x, rand.Text()
	season := g.season
	season.mu.Lock()
	g.failures = season.failures
	season.mu.Unlock()
	if err := x.enlist(ctx, season.key); err != nil {
		return err
	}
	if err := g.begin(ctx, b, at); err != nil || g.name == "" {
		return err
	}
	_ = x.free(ctx, g.allKeys()) // if this fails, the memory is freed after the Rebuild
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.background.Go(func() { g.prolong(ctx, cancel) })
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.o.UpdateTimeout)
		defer cancel()
		if err != nil {
			// If this fails too, the next Rebuild, Drop or Update frees the generation.
			_ = g.abandon(ctx)
		}
		_ = x.free(ctx, g.allKeys())
		_ = x.run(ctx, []*call{g.lease(0)}) // if this fails, the lease expires
	}()
	if err := fill(ctx, g); err != nil {
		return err
	}
	if err := g.verify(ctx); err != nil {
		return err
	}
	if err := g.flip(ctx); err != nil {
		return err
	}
	x.setShards(season, len(g.control))
	if err := g.leave(ctx); err != nil {
		return err
	}
	if !g.copied {
		x.markRepaired(season, g.failures)
	}
	return nil
}

// begin takes the lease and begins the generation in every shard. In two cases, it leaves the
// name empty and begins nothing: another process has finished a Rebuild that began after this
// call, or g is of a Restore and the season is loaded.
func (g *generation) begin(ctx context.Context, b *leaderboard.Board, at time.Time) error {
	x, nonce := g.x, rand.Text()[:8]
	var lastFence, recentFence int64 = 0, math.MaxInt64 >> 12 // see lua/acquire.lua
	for waited := false; ; {
		if g.keep {
			if loaded, err := x.Loaded(ctx, g.season.key); loaded && err == nil {
				return nil // another process has restored the season
			}
		}
		positions, err := x.notedPositions(ctx)
		if err != nil {
			return err
		}
		g.control = x.controlKeys(g.season.key, cmp.Or(b.Shards, x.o.Shards))
		acquire := newCall(acquireScript, g.control, 0, g.token, x.o.LeaseTTL.Milliseconds(), nonce, b.RankKeyBytes(), instant(at), lastFence, recentFence, tagOf(b), b.Shards)
		acquire.args, acquire.keys = append(acquire.args, positions...), append(acquire.keys, x.leaseKey(g.season))
		bounded, cancel := context.WithTimeout(ctx, x.o.UpdateTimeout)
		err = retry(bounded, func() error { return x.run(bounded, []*call{acquire}) })
		cancel()
		if err != nil {
			return err
		}
		if acquire.status == statusFenced {
			if fence := acquire.int(); !waited {
				waited, recentFence = true, fence
			}
			if err := sleep(ctx, leasePoll); err != nil {
				return err
			}
			continue
		}
		name, fence := acquire.str(), acquire.int()
		shards, live := int(acquire.int()), acquire.str()
		if acquire.status != statusOK || acquire.fault {
			return fmt.Errorf("acquire: unexpected answer: %w", leaderboard.ErrRankUnavailable)
		}
		if name == "" {
			x.markRepaired(g.season, g.failures) // the other process read the store after the failed Updates
			if loaded, err := x.Loaded(ctx, g.season.key); loaded || err != nil {
				return err
			}
			recentFence = math.MaxInt64 >> 12 // the other process's generation was lost meanwhile
			continue
		}
		oldShards := int(acquire.int())
		g.control = x.controlKeys(g.season.key, shards)
		g.name, g.fence = name, fence
		g.pending, g.batches = make([][][]any, shards), make([]int64, shards)
		g.live = append(make([]liveInShard, 0, shards), liveInShard{live, int(acquire.int())})
		g.keep = g.keep && oldShards == shards
		g.leaving = x.otherKeys(g.season.key, g.control, oldShards, int(acquire.int()))
		if lastFence, err = g.beginOthers(ctx, b, at, positions); err != nil {
			return err
		}
		if lastFence == 0 {
			return nil
		}
	}
}

// beginOthers begins the generation in the shards other than 0. If these have greater fences, it
// returns the greatest of them, otherwise 0.
func (g *generation) beginOthers(ctx context.Context, b *leaderboard.Board, at time.Time, positions []any) (lastFence int64, err error) {
	args := append([]any{g.name, g.fence, b.RankKeyBytes(), instant(at), g.live[0].name, tagOf(b)}, positions...)
	calls := append(callEach(beginScript, g.control, args...)[1:], g.callLeaving(beginScript, args...)...)
	if err := retry(ctx, func() error { return g.x.run(ctx, calls) }); err != nil {
		return 0, errors.Join(err, g.abandon(ctx))
	}
	for i, c := range calls {
		switch {
		case c.status == statusFenced:
			// Shard 0 lost its data, so its fences restarted at 1. This shard still has a greater fence.
			lastFence = max(lastFence, c.int())
		case i+1 < len(g.control):
			g.live = append(g.live, liveInShard{c.str(), int(c.int())})
		}
	}
	return lastFence, nil
}

// allKeys returns the control keys of the generation's shards and of the leaving ones.
func (g *generation) allKeys() []string { return slices.Concat(g.control, g.leaving) }

// firstName returns the name that begin gave the generation. In the leaving shards, the
// generation keeps this name. A bulk load changes the name in the other shards only.
func (g *generation) firstName() string { return cmp.Or(g.aside, g.name) }

// callLeaving returns one call of a script for each leaving shard.
func (g *generation) callLeaving(s *script, args ...any) []*call {
	calls := make([]*call, len(g.leaving))
	for i, key := range g.leaving {
		calls[i] = newCall(s, g.control, 0, args...)
		calls[i].keys = []string{key}
	}
	return calls
}

// stepTimeout bounds a step of the Rebuild and its retries. The bound is greater than the bound of an
// Update, because one failed step makes the whole Rebuild fail.
func (g *generation) stepTimeout() time.Duration { return 6 * g.x.o.UpdateTimeout }

func (g *generation) lease(ttl time.Duration) *call {
	c := newCall(leaseScript, g.control, 0, g.token, ttl.Milliseconds())
	c.keys = []string{g.x.leaseKey(g.season)}
	return c
}

// prolong extends the lease again and again until ctx is done. If the lease has expired,
// prolong cancels ctx.
func (g *generation) prolong(ctx context.Context, cancel context.CancelCauseFunc) {
	for sleep(ctx, g.x.o.LeaseTTL/3) == nil {
		c := g.lease(g.x.o.LeaseTTL)
		if err := g.x.run(ctx, []*call{c}); err == nil && c.status == statusFenced {
			cancel(fmt.Errorf("the lease expired: %w", errOvertaken))
		}
	}
}

func (g *generation) fill(ctx context.Context, b *leaderboard.Board, entries iter.Seq2[leaderboard.Entry, error]) error {
	return g.load(ctx, b, func(ctx context.Context, load *bulk) error { return load.addAll(ctx, entries) })
}

// restore reads the users of lost shards from the store, and copies the records of the other shards.
func (g *generation) restore(ctx context.Context, b *leaderboard.Board, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	lost := make([]bool, len(g.control)) // by shard
	for shard, live := range g.live {
		lost[shard] = !g.keep || live.name == "" || live.keyBytes != b.RankKeyBytes()
	}
	if !slices.Contains(lost, false) || !slices.Contains(lost, true) {
		return g.fill(ctx, b, scan(leaderboard.Part{}))
	}
	g.copied = true
	return g.load(ctx, b, func(ctx context.Context, load *bulk) error {
		for shard, lost := range lost {
			if lost {
				continue
			}
			if err := load.copyShard(ctx, shard, g.live[shard].name); err != nil {
				return fmt.Errorf("copy shard %d: %w", shard, err)
			}
		}
		for shard, lost := range lost {
			if !lost {
				continue
			}
			if err := load.addAll(ctx, scan(leaderboard.Part{Index: shard, Of: len(g.control)})); err != nil {
				return err
			}
		}
		return nil
	})
}

// load makes a bulk load. The function read adds the entries.
func (g *generation) load(ctx context.Context, b *leaderboard.Board, read func(context.Context, *bulk) error) error {
	g.keyBytes = b.RankKeyBytes()
	load, ctx := newBulk(ctx, g)
	defer load.release()
	err := read(ctx, load)
	if err == nil {
		err = load.finish(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

func (g *generation) send(ctx context.Context) error {
	var calls []*call
	for shard, entries := range g.pending {
		for len(entries) > 0 {
			g.batches[shard]++
			args := []any{g.name, g.batches[shard], ""}
			n := 0
			for size := 0; n < len(entries); n++ {
				if size += countMoves(entries[n]); n > 0 && size > batchMoves {
					break
				}
				args = append(args, entries[n]...)
			}
			calls = append(calls, newCall(updateScript, g.control, shard, args...))
			entries = entries[n:]
		}
		g.pending[shard] = g.pending[shard][:0]
	}
	g.queued = 0
	if len(calls) == 0 {
		return nil
	}
	return g.write(ctx, calls)
}

// write makes calls of the update script.
func (g *generation) write(ctx context.Context, calls []*call) error {
	bounded, cancel := context.WithTimeout(ctx, g.stepTimeout())
	defer cancel()
	return retry(bounded, func() error {
		if err := g.x.run(bounded, calls); err != nil {
			if ctx.Err() != nil {
				return errors.Join(err, context.Cause(ctx))
			}
			return err
		}
		for _, c := range calls {
			switch c.status {
			case statusOK:
			case statusGap: // an earlier call failed
				return fmt.Errorf("shard %d lacks a batch: %w", c.shard, leaderboard.ErrRankUnavailable)
			default:
				return errOvertaken
			}
		}
		return nil
	})
}

// verify makes two checks. Every shard must still be on the server on which its fill began, and hold all data
// that the Rebuild wrote. Every leaving shard must still know the generation, so that writers update the
// generation.
func (g *generation) verify(ctx context.Context) error {
	calls, leaving := callEach(checkScript, g.control, g.name), g.callLeaving(checkScript, g.firstName())
	if err := retry(ctx, func() error { return g.x.run(ctx, slices.Concat(calls, leaving)) }); err != nil {
		return err
	}
	if slices.ContainsFunc(leaving, func(c *call) bool { return c.status != statusOK }) {
		return errOvertaken
	}
	for i, c := range calls {
		if c.status != statusOK {
			return errOvertaken
		}
		if written, found := c.int(), c.int(); written != found {
			return fmt.Errorf("shard %d: wrote %d standings, found %d: %w", i, written, found, leaderboard.ErrRankUnavailable)
		}
		if batches := c.int(); batches != g.batches[i] {
			return fmt.Errorf("shard %d: sent %d batches, found %d: %w", i, g.batches[i], batches, leaderboard.ErrRankUnavailable)
		}
	}
	return fault(calls)
}

// flip makes the generation live, so that readers use it: first in shard 0, which decides,
// then in the other shards. If this process ends between the two steps, readers make it live
// in the other shards.
func (g *generation) flip(ctx context.Context) error {
	calls := callEach(flipScript, g.control, g.name)
	for _, part := range [][]*call{calls[:1], calls[1:]} {
		if len(part) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, g.stepTimeout())
		err := retry(bounded, func() error { return g.x.run(bounded, part) })
		cancel()
		if err != nil {
			return err
		}
		for _, c := range part {
			if c.status != statusOK {
				return errOvertaken
			}
		}
	}
	return nil
}

// leave drops the leaving shards. If a leaving shard no longer knows the generation, for example after
// a failover, writers may not have updated the generation since verify, so leave drops the generation.
func (g *generation) leave(ctx context.Context) error {
	if len(g.leaving) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, g.stepTimeout())
	defer cancel()
	checks := g.callLeaving(checkScript, g.firstName())
	err := retry(bounded, func() error { return g.x.run(bounded, checks) })
	if err != nil || slices.ContainsFunc(checks, func(c *call) bool { return c.status != statusOK }) {
		return errors.Join(errOvertaken, err, g.x.run(bounded, callEach(dropScript, g.control, "lose")))
	}
	return retry(bounded, func() error {
		if err := g.x.dropShards(bounded, g.leaving); err != nil {
			return err
		}
		return g.x.run(bounded, []*call{newCall(dropScript, g.control, 0, "left")})
	})
}

// abandon frees all generations of the Rebuild. If the end of the bulk load failed half-way, shards
// differ in which generation they are building. So abandon tries every name in each shard.
func (g *generation) abandon(ctx context.Context) error {
	err := g.x.abandon(ctx, g.control, g.name)
	if len(g.leaving) > 0 {
		err = errors.Join(err, g.x.run(ctx, g.callLeaving(dropScript, "abort", g.firstName())))
	}
	for _, other := range []string{g.bulk, g.aside} {
		if other != "" && other != g.name {
			err = errors.Join(err, g.x.abandon(ctx, g.control, other))
		}
	}
	return err
}

// abandon frees a generation that was being built. If the generation is already
// live in shard 0, abandon makes it live in the other shards instead.
func (x *Index) abandon(ctx context.Context, control []string, name string) error {
	first := newCall(dropScript, control, 0, "abort", name)
	if err := x.run(ctx, []*call{first}); err != nil || len(control) == 1 {
		return err
	}
	if first.int() == 1 {
		return x.run(ctx, callEach(flipScript, control, name)[1:])
	}
	return x.run(ctx, callEach(dropScript, control, "abort", name)[1:])
}
