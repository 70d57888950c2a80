package redis

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	batchMoves   = 8    // maximum moves in ladders of one call, because a call blocks the server; an entry with more has a call of its own
	batchSorted  = 64   // maximum entries of one call of a Rebuild, if the entries are in standing order
	maxItems     = 1000 // maximum items of one outbox in an answer; equal to ITEMS in update.lua
	flushDelay   = 20 * time.Millisecond
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
	// unsyncedTimeout bounds an Update of a season in which an earlier Update is missing.
	unsyncedTimeout = 100 * time.Millisecond
)

// Update implements [leaderboard.Index]. The end of ctx does not stop it, because
// the store already has the entries.
//
// Errors: [leaderboard.ErrRankUnavailable] if Redis does not take the entries
// within [Options.UpdateTimeout]. The season is then unavailable to all processes
// until it is rebuilt.
func (x *Index) Update(ctx context.Context, s leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) error {
	season := x.season(s)
	args := make([][]any, len(entries))
	for i := range entries {
		args[i] = entryArgs(&entries[i])
	}
	timeout := x.o.UpdateTimeout
	if season.unsynced() { // a Rebuild will follow, so writers need not wait
		timeout = min(timeout, unsyncedTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err := retry(ctx, func() error { return x.update(ctx, season, instant(at), entries, args) })
	if err != nil {
		if !errors.Is(err, leaderboard.ErrFormat) {
			x.fail(season)
		}
		return fmt.Errorf("redis: update %v: %w", s, err)
	}
	if len(*season.control.Load()) > 1 {
		for i := range entries { // their ranks are likely to be read next
			if e := &entries[i]; e.Ranked() {
				x.hints.Add(hint{season, e.User}, string(e.SortKey()))
			}
		}
	}
	return nil
}

// retry calls f until it succeeds, fails for good, or ctx is done, with
// exponential backoff. Only [leaderboard.ErrRankUnavailable] is retried, but not
// errOvertaken, which wraps it. If ctx is done, retry returns the last error of f,
// not that of ctx.
func retry(ctx context.Context, f func() error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err := f()
		if err == nil || !errors.Is(err, leaderboard.ErrRankUnavailable) || errors.Is(err, errOvertaken) || sleep(ctx, backoff) != nil {
			return err
		}
	}
}

// entryArgs returns the arguments of the update script for an entry.
func entryArgs(e *leaderboard.Entry) []any {
	prefix, divisions := "", []byte(nil)
	if e.Ranked() {
		prefix = string(leaderboard.MakeSortKey(e.Key, e.AchievedAt, ""))
		for _, d := range e.Divisions {
			name := ladderName(d)
			divisions = append(append(divisions, byte(len(name))), name...)
		}
	}
	return []any{string(e.User), bucketHash(string(e.User)), strings.TrimLeft(bigEndian(e.Version), "\x00"), prefix, divisions}
}

// maxLadderName is the largest length of a ladder's name: update.lua reads it from a byte.
const maxLadderName = 255

// ladderName returns the name of a division's ladder in Redis. The name of a crossed
// division may be too long. A zero byte and a hash of the name then replace it. No other
// name has a zero byte, because names are printable.
func ladderName(d leaderboard.Division) string {
	name := d.String()
	if len(name) <= maxLadderName {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	return "\x00" + string(hash[:])
}

// moves returns about how many moves in ladders the entry with these arguments takes.
func moves(args []any) int {
	n := 1
	for d := args[4].([]byte); len(d) > 0; n++ {
		d = d[1+int(d[0]):]
	}
	return n
}

// updateCalls returns the calls that write entries to their shards.
func updateCalls(season *seasonIndex, control []string, at string, entries []leaderboard.Entry, args [][]any) []*call {
	groups := make([][]any, len(control)) // arguments of each shard's next call
	size := make([]int, len(control))     // moves in ladders of that call
	var calls []*call
	send := func(shard int, entries []any) {
		acks := season.acknowledgements(shard)
		head := append([]any{"", 0, at, len(acks) / 3}, acks...)
		calls = append(calls, newCall(updateScript, control, shard, append(head, entries...)...))
	}
	flush := func(shard int) {
		send(shard, groups[shard])
		groups[shard], size[shard] = nil, 0
	}
	for i := range entries {
		shard, n := shardOf(entries[i].User, len(control)), moves(args[i])
		if n == 1 && len(control) == 1 {
			send(shard, args[i]) // lua/fast.lua takes one move
			continue
		}
		if size[shard] > 0 && size[shard]+n > batchMoves {
			flush(shard)
		}
		groups[shard] = append(groups[shard], args[i]...)
		size[shard] += n
	}
	for shard := range groups {
		if len(groups[shard]) > 0 || len(entries) == 0 && shard == 0 {
			flush(shard)
		}
	}
	return calls
}

// update writes entries to their shards in one round trip. If homes of rank keys
// must be notified, it makes a second round trip.
func (x *Index) update(ctx context.Context, season *seasonIndex, at string, entries []leaderboard.Entry, args [][]any) error {
	control := *season.control.Load()
	calls := updateCalls(season, control, at, entries, args)
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	again := false
	for _, c := range calls {
		switch c.status {
		case statusShards:
			x.setShards(season, int(c.int()))
			again = true
		case statusFormat:
			return fmt.Errorf("a rank key of this board must have %d bytes: %w", c.int(), leaderboard.ErrFormat)
		case statusNone, statusLost:
			// There is nothing to update, unless the season has fewer shards than
			// expected and this shard does not exist.
			if c.shard != 0 && !again {
				first := newCall(standingsScript, control, 0, "", "", 0)
				if err := x.run(ctx, []*call{first}); err != nil {
					return err
				}
				if first.status == statusShards {
					x.setShards(season, int(first.int()))
					again = true
				}
			}
		}
	}
	if again {
		return x.update(ctx, season, at, entries, args)
	}
	outgoing, building, garbage := deliveries(calls)
	if err := x.deliver(ctx, season, control, outgoing); err != nil {
		return err
	}
	if building != "" || garbage {
		x.freeDead(season, control, building)
	}
	return nil
}

// delivery is a run of items from one shard's outbox for another shard. An item
// is a rank key that the sender gained or lost.
type delivery struct {
	channel
	before int64 // number of items that precede these in the outbox
	items  []string
}

// deliveries reads the outboxes from the answers of the update script, the name of
// the generation that is being built, and whether the free script has work.
func deliveries(calls []*call) (all []delivery, building string, garbage bool) {
	for _, c := range calls {
		if c.status != statusOK {
			continue
		}
		building = c.str()
		garbage = c.int() == 1 || garbage
		for len(c.rest) > 0 && !c.fault {
			r := reply{rest: c.list()}
			n := delivery{channel{r.str(), c.shard, int(r.int())}, r.int(), r.strings()}
			// Calls of one shard may return the same items; the last call returns all.
			if i := slices.IndexFunc(all, func(o delivery) bool { return o.channel == n.channel }); i >= 0 {
				all[i] = n
			} else {
				all = append(all, n)
			}
		}
	}
	return all, building, garbage
}

// deliver sends deliveries to the homes of their rank keys. It makes one round
// trip, unless an outbox has more than maxItems.
func (x *Index) deliver(ctx context.Context, season *seasonIndex, control []string, all []delivery) error {
	if len(all) == 0 {
		return nil
	}
	byShard := map[int]*call{}
	sent := map[int][]delivery{}
	var calls []*call
	more := map[int]bool{}
	for _, n := range all {
		c := byShard[n.to]
		if c == nil {
			c = newCall(deliverScript, control, n.to)
			byShard[n.to] = c
			calls = append(calls, c)
		}
		c.args = append(c.args, n.generation, n.from, n.before, len(n.items))
		for _, item := range n.items {
			c.args = append(c.args, item)
		}
		sent[n.to] = append(sent[n.to], n)
		more[n.from] = more[n.from] || len(n.items) == maxItems
	}
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	for _, c := range calls {
		if c.status != statusOK {
			continue // the shard is gone, so the season is not loaded and its items are obsolete
		}
		for _, n := range sent[c.shard] {
			x.acknowledge(season, n.channel, c.int())
		}
	}
	var from []int
	for shard, yes := range more {
		if yes {
			from = append(from, shard)
		}
	}
	if len(from) > 0 {
		return x.drain(ctx, season, control, "", from)
	}
	return nil
}

// drain delivers the outboxes of shards: of the given generation, which must be
// the one being built, or of all generations if generation is empty.
func (x *Index) drain(ctx context.Context, season *seasonIndex, control []string, generation string, shards []int) error {
	calls := make([]*call, len(shards))
	for i, shard := range shards {
		acks := season.acknowledgements(shard)
		calls[i] = newCall(updateScript, control, shard, append([]any{generation, 0, "", len(acks) / 3}, acks...)...)
	}
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	outgoing, _, _ := deliveries(calls)
	return x.deliver(ctx, season, control, outgoing)
}

// acknowledge records how many items of a channel were received. The next update
// of the sending shard, or a flush soon after, reports the number to that shard.
func (x *Index) acknowledge(season *seasonIndex, c channel, received int64) {
	if received < 0 {
		return
	}
	season.mu.Lock()
	defer season.mu.Unlock()
	season.acks[c] = max(season.acks[c], received)
	if !season.flushing && x.ctx.Err() == nil {
		season.flushing = true
		x.background.Go(func() { x.flush(season) })
	}
}

// The method acknowledgements removes and returns the acknowledgements for a sending
// shard, as arguments of the update script. Each has a channel and the number of items
// received from it.
func (s *seasonIndex) acknowledgements(shard int) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []any
	for c, received := range s.acks {
		if c.from == shard {
			out = append(out, c.generation, c.to, received)
			delete(s.acks, c)
		}
	}
	return out
}

// flush sends the acknowledgements that no update has sent. A lost acknowledgement
// is harmless: the items are delivered again, and their home ignores them.
func (x *Index) flush(season *seasonIndex) {
	_ = sleep(x.ctx, flushDelay) // ends early on Close
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), x.o.UpdateTimeout)
	defer cancel()
	season.mu.Lock()
	season.flushing = false
	shards := map[int]bool{}
	for c := range season.acks {
		shards[c.from] = true
	}
	season.mu.Unlock()
	var calls []*call
	for shard := range shards {
		if acks := season.acknowledgements(shard); len(acks) > 0 {
			calls = append(calls, newCall(updateScript, *season.control.Load(), shard, append([]any{"", 0, "", len(acks) / 3}, acks...)...))
		}
	}
	if len(calls) > 0 {
		_ = x.run(ctx, calls)
	}
}

// fail makes a season unavailable because Redis lacks an update of it: in this
// process at once, in others as soon as one of its shards can be reached.
func (x *Index) fail(season *seasonIndex) {
	season.mu.Lock()
	defer season.mu.Unlock()
	if season.failures++; season.failures == season.repaired+1 {
		x.unsynced.Add(1)
	}
	if !season.invalidating && x.ctx.Err() == nil {
		season.invalidating = true
		x.background.Go(func() { x.invalidate(season) })
	}
}

// invalidate drops what Redis holds of a season that lacks an update, unless a
// Rebuild repairs the season first.
func (x *Index) invalidate(season *seasonIndex) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		select {
		case <-season.rebuild: // not during a Rebuild of this process, which may repair the season
		case <-x.ctx.Done():
			return
		}
		done := x.invalidateOnce(season)
		season.rebuild <- struct{}{}
		if done || sleep(x.ctx, backoff) != nil {
			return
		}
	}
}

func (x *Index) invalidateOnce(season *seasonIndex) bool {
	season.mu.Lock()
	failures := season.failures
	if failures == season.repaired {
		season.invalidating = false
		season.mu.Unlock()
		return true
	}
	season.mu.Unlock()
	ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
	defer cancel()
	calls := each(dropScript, *season.control.Load(), "lose")
	_ = x.run(ctx, calls)
	// One empty shard makes the whole season unavailable.
	if slices.ContainsFunc(calls, func(c *call) bool { return !c.failed }) {
		x.markRepaired(season, failures)
	}
	return false // the next call ends the loop, unless another Update failed meanwhile
}

// markRepaired records that the season's failed Updates are repaired, up to the one
// with the number failures.
func (x *Index) markRepaired(season *seasonIndex, failures int) {
	season.mu.Lock()
	defer season.mu.Unlock()
	if failures > season.repaired {
		if season.repaired = failures; season.repaired == season.failures {
			x.unsynced.Add(-1)
		}
	}
}

// freeDead frees a generation whose Rebuild died, unless generation is empty, and all
// that the shards no longer need. If the generation is already live in shard 0,
// freeDead makes it live in the others. It runs at most once per LeaseTTL.
func (x *Index) freeDead(season *seasonIndex, control []string, generation string) {
	season.mu.Lock()
	defer season.mu.Unlock()
	if time.Since(season.lastFreed) < x.o.LeaseTTL || x.ctx.Err() != nil {
		return
	}
	season.lastFreed = time.Now()
	x.background.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
		defer cancel()
		owner := newCall(ownerScript, control, 0)
		owner.keys = append(owner.keys, x.leaseKey(season))
		if x.run(ctx, []*call{owner}) != nil || owner.int() != 0 {
			return
		}
		// If something fails, the next freeDead retries.
		if generation == "" || x.abandon(ctx, control, generation) == nil {
			_ = x.free(ctx, control)
		}
	})
}

// free frees what the shards no longer need, in pieces, each of which blocks its
// server for less than a millisecond.
func (x *Index) free(ctx context.Context, control []string) error {
	calls := each(freeScript, control, 0)
	for len(calls) > 0 {
		if err := x.run(ctx, calls); err != nil {
			return err
		}
		var rest []*call
		for _, c := range calls {
			if more, freed := c.int(), c.int(); more == 1 {
				rest = append(rest, newCall(freeScript, control, c.shard, freed))
			}
		}
		calls = rest
	}
	return nil
}
