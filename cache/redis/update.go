package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	batchEntries = 64   // that a script moves at a time, so that it is soon done
	mostItems    = 1000 // that a script hands out at a time for one shard; as in update.lua
	flushDelay   = 20 * time.Millisecond
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
	// shortPatience bounds an Update of a scope that lacks one already.
	shortPatience = 100 * time.Millisecond
)

// Update implements [leaderboard.Index]. The store has the entries already, so
// that the end of ctx does not stop it. Should Redis not take them in
// [Options.UpdateTimeout], it returns [leaderboard.ErrRankUnavailable], and the
// scope is made unavailable, for everyone, until it is rebuilt.
func (x *Index) Update(ctx context.Context, s leaderboard.Scope, at time.Time, entries []leaderboard.Entry) error {
	sc := x.scope(s)
	args := make([][]any, len(entries))
	for i := range entries {
		args[i] = entryArgs(&entries[i])
	}
	patience := x.o.UpdateTimeout
	if sc.suspect() { // it will be made anew, and writers need not wait for it
		patience = min(patience, shortPatience)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := retry(ctx, func() error { return x.update(ctx, sc, instant(at), entries, args) })
	if err != nil {
		if !errors.Is(err, leaderboard.ErrFormat) {
			x.fail(sc)
		}
		return fmt.Errorf("redis: update %v: %w", s, err)
	}
	if len(*sc.control.Load()) > 1 {
		for i := range entries { // whose ranks will be asked for next
			if e := &entries[i]; e.Ranked() {
				x.hints.Add(hint{sc, e.User}, string(e.SortKey()))
			}
		}
	}
	return nil
}

// retry calls f until it succeeds, for as long as Redis is not available.
func retry(ctx context.Context, f func() error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err := f()
		if err == nil || !errors.Is(err, leaderboard.ErrRankUnavailable) || errors.Is(err, errOvertaken) || sleep(ctx, backoff) != nil {
			return err
		}
	}
}

// entryArgs returns what a script is told of an entry.
func entryArgs(e *leaderboard.Entry) []any {
	prefix, divisions := "", []byte(nil)
	if e.Ranked() {
		prefix = string(leaderboard.MakeSortKey(e.Key, e.AchievedAt, ""))
		for _, d := range e.Divisions {
			name := d.String()
			divisions = append(append(divisions, byte(len(name))), name...)
		}
	}
	return []any{string(e.User), bigEndian(e.Version), prefix, divisions}
}

// update writes entries to their shards: in one trip, and another if homes of
// rank keys must be told.
func (x *Index) update(ctx context.Context, sc *scope, at string, entries []leaderboard.Entry, args [][]any) error {
	control := *sc.control.Load()
	groups := make([][]any, len(control)) // of the shard's call to come
	var calls []*call
	flush := func(shard int) {
		acks := sc.acknowledgements(shard)
		head := append([]any{"", 0, at, len(acks) / 3}, acks...)
		calls = append(calls, newCall(updateScript, control, shard, append(head, groups[shard]...)...))
		groups[shard] = nil
	}
	for i := range entries {
		shard := shardOf(entries[i].User, len(control))
		if groups[shard] = append(groups[shard], args[i]...); len(groups[shard]) == batchEntries*len(args[i]) {
			flush(shard)
		}
	}
	for shard := range groups {
		if len(groups[shard]) > 0 || len(entries) == 0 && shard == 0 {
			flush(shard)
		}
	}
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	again := false
	for _, c := range calls {
		switch c.status {
		case statusShards:
			x.setShards(sc, int(c.int()))
			again = true
		case statusFormat:
			return fmt.Errorf("a rank key of the board has %d bytes: %w", c.int(), leaderboard.ErrFormat)
		case statusNone, statusLost:
			// Nothing to update, unless it is that the shard does not exist.
			if c.shard != 0 && !again {
				first := newCall(standingsScript, control, 0, "", 0)
				if err := x.run(ctx, []*call{first}); err != nil {
					return err
				}
				if first.status == statusShards {
					x.setShards(sc, int(first.int()))
					again = true
				}
			}
		}
	}
	if again {
		return x.update(ctx, sc, at, entries, args)
	}
	tellings, building := outboxes(calls)
	if err := x.tell(ctx, sc, control, tellings); err != nil {
		return err
	}
	if building != "" {
		x.sweep(sc, control, building)
	}
	return nil
}

// news is what a shard has for another.
type news struct {
	telling
	told  int64 // items before these
	items []string
}

// outboxes reads what scripts answered that other shards must be told, and the
// generation that is being built.
func outboxes(calls []*call) (all []news, building string) {
	for _, c := range calls {
		if c.status != statusOK {
			continue
		}
		building = c.str()
		for len(c.rest) > 0 && !c.fault {
			r := reply{rest: c.list()}
			n := news{telling{r.str(), c.shard, int(r.int())}, r.int(), r.strings()}
			// Calls of one shard may hand out the same items: the last has them all.
			if i := slices.IndexFunc(all, func(o news) bool { return o.telling == n.telling }); i >= 0 {
				all[i] = n
			} else {
				all = append(all, n)
			}
		}
	}
	return all, building
}

// tell tells rank keys' homes, in one trip unless there is very much to tell.
func (x *Index) tell(ctx context.Context, sc *scope, control []string, all []news) error {
	if len(all) == 0 {
		return nil
	}
	byShard := map[int]*call{}
	told := map[int][]news{}
	var calls []*call
	more := map[int]bool{}
	for _, n := range all {
		c := byShard[n.to]
		if c == nil {
			c = newCall(tellScript, control, n.to)
			byShard[n.to] = c
			calls = append(calls, c)
		}
		c.args = append(c.args, n.generation, n.from, n.told, len(n.items))
		for _, item := range n.items {
			c.args = append(c.args, item)
		}
		told[n.to] = append(told[n.to], n)
		more[n.from] = more[n.from] || len(n.items) == mostItems
	}
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	for _, c := range calls {
		if c.status != statusOK {
			continue // the shard is gone or another's: the scope is not loaded, and not told of
		}
		for _, n := range told[c.shard] {
			x.acknowledge(sc, n.telling, c.int())
		}
	}
	var from []int
	for shard, yes := range more {
		if yes {
			from = append(from, shard)
		}
	}
	if len(from) > 0 {
		return x.drain(ctx, sc, control, "", from)
	}
	return nil
}

// drain tells what shards have left to tell, of a generation that is being
// built or, without one, of all.
func (x *Index) drain(ctx context.Context, sc *scope, control []string, generation string, shards []int) error {
	calls := make([]*call, len(shards))
	for i, shard := range shards {
		acks := sc.acknowledgements(shard)
		calls[i] = newCall(updateScript, control, shard, append([]any{generation, 0, "", len(acks) / 3}, acks...)...)
	}
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	tellings, _ := outboxes(calls)
	return x.tell(ctx, sc, control, tellings)
}

// acknowledge notes how far a shard was heard by another, to be said with the
// next update of it, or soon.
func (x *Index) acknowledge(sc *scope, t telling, heard int64) {
	if heard < 0 {
		return
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.told[t] = max(sc.told[t], heard)
	if !sc.flushing && x.ctx.Err() == nil {
		sc.flushing = true
		x.background.Go(func() { x.flush(sc) })
	}
}

// acknowledgements takes what is to be said to a shard: generation, other shard,
// how far.
func (sc *scope) acknowledgements(shard int) []any {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	var out []any
	for t, heard := range sc.told {
		if t.from == shard {
			out = append(out, t.generation, t.to, heard)
			delete(sc.told, t)
		}
	}
	return out
}

// flush says what no update has said. What cannot be said is not lost: the items
// are told again, and not heard twice.
func (x *Index) flush(sc *scope) {
	_ = sleep(x.ctx, flushDelay) // at the end, at once
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), x.o.UpdateTimeout)
	defer cancel()
	sc.mu.Lock()
	sc.flushing = false
	shards := map[int]bool{}
	for t := range sc.told {
		shards[t.from] = true
	}
	sc.mu.Unlock()
	var calls []*call
	for shard := range shards {
		if acks := sc.acknowledgements(shard); len(acks) > 0 {
			calls = append(calls, newCall(updateScript, *sc.control.Load(), shard, append([]any{"", 0, "", len(acks) / 3}, acks...)...))
		}
	}
	if len(calls) > 0 {
		_ = x.run(ctx, calls)
	}
}

// fail makes a scope unavailable of which Redis lacks an update: here at once,
// and for others as soon as a shard of it can be reached.
func (x *Index) fail(sc *scope) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.failures++; sc.failures == sc.settled+1 {
		x.unsettled.Add(1)
	}
	if !sc.settling && x.ctx.Err() == nil {
		sc.settling = true
		x.background.Go(func() { x.condemn(sc) })
	}
}

// condemn drops what Redis holds of a scope that lacks an update, unless a
// Rebuild comes first.
func (x *Index) condemn(sc *scope) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		select {
		case <-sc.rebuild: // while none runs here: it may yet make up for the update
		case <-x.ctx.Done():
			return
		}
		done := x.condemnOnce(sc)
		sc.rebuild <- struct{}{}
		if done || sleep(x.ctx, backoff) != nil {
			return
		}
	}
}

func (x *Index) condemnOnce(sc *scope) bool {
	sc.mu.Lock()
	failures := sc.failures
	if failures == sc.settled {
		sc.settling = false
		sc.mu.Unlock()
		return true
	}
	sc.mu.Unlock()
	ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
	defer cancel()
	calls := each(dropScript, *sc.control.Load(), "lose")
	_ = x.run(ctx, calls)
	// One shard that is gone makes the scope unavailable.
	if slices.ContainsFunc(calls, func(c *call) bool { return !c.failed }) {
		x.settle(sc, failures)
	}
	return false // it is, if no other has failed meanwhile
}

// settle notes that what failed so far is made up for.
func (x *Index) settle(sc *scope, failures int) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if failures > sc.settled {
		if sc.settled = failures; sc.settled == sc.failures {
			x.unsettled.Add(-1)
		}
	}
}

// sweep frees a generation whose Rebuild is no more, or finishes its work if all
// that was left to do is to make it live. It looks at most once in a lease's time.
func (x *Index) sweep(sc *scope, control []string, generation string) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if time.Since(sc.lastSwept) < x.o.LeaseTTL || x.ctx.Err() != nil {
		return
	}
	sc.lastSwept = time.Now()
	x.background.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
		defer cancel()
		owner := newCall(ownerScript, control, 0)
		owner.keys = append(owner.keys, x.leaseKey(sc))
		if x.run(ctx, []*call{owner}) == nil && owner.int() == 0 {
			_ = x.abandon(ctx, control, generation) // or the next to look will
		}
	})
}
