package redis

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// batchMoves is the maximum number of moves in one call, which blocks the server. A move changes
	// a user's place in one ladder. An entry with more moves has its own call.
	batchMoves = 8
	// unsyncedTimeout bounds an Update if an earlier failed Update of the season is not repaired.
	unsyncedTimeout = 100 * time.Millisecond
	// maxMissed is the maximum number of entries of failed Updates that a process keeps.
	maxMissed = 1 << 17
	// missedChunk is the maximum number of these entries that are repeated in one round trip.
	missedChunk = 128
	// maxRepeats is the number of consecutive failed repetitions after which the data of a season is
	// dropped. While a server of the season does not answer, nothing is repeated: see gates.
	maxRepeats = 3
	// concurrentRepeats is the maximum number of seasons whose failed Updates are repeated at a
	// time. After a stall, a server that is busy again would otherwise answer all of them too late.
	concurrentRepeats = 4
)

// Update implements [leaderboard.Index]. The end of ctx does not stop it: the store already has
// the entries, so the index needs them too.
//
// Errors: [leaderboard.ErrFormat] if a rank key has a wrong length, and
// [leaderboard.ErrRankUnavailable] if Redis does not take the entries within
// [Options.UpdateTimeout]. The season is then unavailable in this process. As soon as Redis
// answers, this process repeats the Update, and the season is available again. If the repetitions
// fail, or if this process's failed Updates have more than maxMissed entries, the season is
// unavailable to all processes until a Rebuild.
func (x *Index) Update(ctx context.Context, s leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) error {
	season := x.season(s)
	args := make([][]any, len(entries))
	for i := range entries {
		args[i] = entryArgs(&entries[i])
	}
	timeout := x.o.UpdateTimeout
	if season.unsynced() { // if this Update fails, repair repeats it too
		timeout = min(timeout, unsyncedTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err := retry(ctx, func() error {
		if x.isSilent(ctx, season, false) {
			return errSilent
		}
		return x.update(ctx, season, instant(at), entries, args)
	})
	if err != nil {
		if !errors.Is(err, leaderboard.ErrFormat) {
			if !errors.Is(err, errSilent) {
				x.checkServers(season)
			}
			x.fail(season, at, entries)
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

// retry calls f until f succeeds or fails for good, or ctx is done. retry returns the last error of f,
// even if ctx is done. Only [leaderboard.ErrRankUnavailable] is retried, but not errOvertaken and
// errSilent, which wrap it.
func retry(ctx context.Context, f func() error) (err error) {
	intervals := backoff.NewExponentialBackOff()
	intervals.InitialInterval, intervals.MaxInterval = 20*time.Millisecond, time.Second
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if err = f(); err == nil || errors.Is(err, leaderboard.ErrRankUnavailable) && !errors.Is(err, errOvertaken) && !errors.Is(err, errSilent) {
			return struct{}{}, err
		}
		return struct{}{}, backoff.Permanent(err)
	}, backoff.WithBackOff(intervals), backoff.WithMaxElapsedTime(0))
	return err
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

// ladderName returns the name of a division's ladder in Redis. If the name of a crossed division
// is too long, ladderName returns a zero byte and a hash of the name. No division's name has a
// zero byte, because these names are printable.
func ladderName(d leaderboard.Division) string {
	name := d.String()
	if len(name) <= maxLadderName {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	return "\x00" + string(hash[:])
}

// countMoves returns approximately the number of moves in ladders that an entry needs. The
// parameter args has the result of entryArgs.
func countMoves(args []any) int {
	n := 1
	for d := args[4].([]byte); len(d) > 0; n++ {
		d = d[1+int(d[0]):]
	}
	return n
}

func updateCalls(control []string, at string, entries []leaderboard.Entry, args [][]any) []*call {
	groups := make([][]any, len(control)) // by shard: arguments of the next call
	size := make([]int, len(control))     // by shard: moves of the next call
	var calls []*call
	send := func(shard int, entries []any) {
		calls = append(calls, newCall(updateScript, control, shard, append([]any{"", 0, at}, entries...)...))
	}
	flush := func(shard int) {
		send(shard, groups[shard])
		groups[shard], size[shard] = nil, 0
	}
	for i := range entries {
		shard, n := shardOf(entries[i].User, len(control)), countMoves(args[i])
		if n == 1 {
			send(shard, args[i]) // lua/fast.lua handles calls of one move
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

// update writes entries to their shards in one round trip. While a Rebuild changes the number of shards,
// update also writes the entries to the shards of the new generation, in a second round trip.
func (x *Index) update(ctx context.Context, season *seasonIndex, at string, entries []leaderboard.Entry, args [][]any) error {
	control := *season.control.Load()
	calls := updateCalls(control, at, entries, args)
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	if err := formatFault(calls); err != nil {
		return err
	}
	if slices.ContainsFunc(calls, func(c *call) bool { return c.shard != 0 && (c.status == statusNone || c.status == statusLost) }) {
		// If the season is not loaded, the update has nothing to do. But the season may have another
		// number of shards, which shard 0 knows.
		first := newCall(updateScript, control, 0, "", 0, "")
		if err := x.run(ctx, []*call{first}); err != nil {
			return err
		}
		calls = append(calls, first)
	}
	if i := slices.IndexFunc(calls, func(c *call) bool { return c.status == statusShards }); i >= 0 {
		x.setShards(season, int(calls[i].int()))
		return x.update(ctx, season, at, entries, args)
	}
	sent := readSent(season, calls)
	if sent.building != "" || sent.garbage {
		x.freeDead(season, control, sent.building)
	}
	if sent.newShards == 0 {
		return nil
	}
	control = x.controlOf(season, sent.newShards)
	calls = updateCalls(control, at, entries, args)
	if err := x.run(ctx, calls); err != nil {
		return err
	}
	return formatFault(calls)
}

func formatFault(calls []*call) error {
	for _, c := range calls {
		if c.status == statusFormat {
			return fmt.Errorf("a rank key of this board must have %d bytes: %w", c.int(), leaderboard.ErrFormat)
		}
	}
	return nil
}

// sent has answers of the update script.
type sent struct {
	building  string // the generation that is being built
	garbage   bool   // whether the free script has work
	newShards int    // building's number of shards, or 0 if the calls expect this number
}

// readSent reads answers of the update script, and records in season which servers made the updates.
func readSent(season *seasonIndex, calls []*call) (s sent) {
	for _, c := range calls {
		if c.status != statusOK {
			continue
		}
		s.building = c.str()
		s.garbage = c.int() == 1 || s.garbage
		season.noteUpdate(c.shard, c.shards(), c.str())
		s.newShards = max(s.newShards, int(c.int()))
	}
	return s
}

// missed has the entries of a season's failed Updates until they are repeated.
type missed struct {
	entries   map[leaderboard.UserID]leaderboard.Entry // the newest version of each entry
	changedAt time.Time                                // the latest of these Updates
	attempts  int                                      // consecutive failed repetitions
	// dropAt is the season's number of failures when the process gave up. While dropAt exceeds the
	// number of repaired failures, the season's data must be dropped.
	dropAt int
}

// fail records a failed Update of entries and makes its season unavailable in this process. A goroutine
// then repeats the Update. If entries is nil, the goroutine drops the data of the season instead.
func (x *Index) fail(season *seasonIndex, at time.Time, entries []leaderboard.Entry) {
	season.mu.Lock()
	defer season.mu.Unlock()
	if season.failures++; season.failures == season.repaired+1 {
		x.unsynced.Add(1)
	}
	x.miss(season, at, entries)
	if !season.repairing && x.ctx.Err() == nil {
		season.repairing = true
		x.background.Go(func() { x.repair(season) })
	}
}

// miss keeps the entries of a failed Update. The caller must hold season.mu.
func (x *Index) miss(season *seasonIndex, at time.Time, entries []leaderboard.Entry) {
	m := &season.missed
	if m.entries == nil {
		m.entries = map[leaderboard.UserID]leaderboard.Entry{}
	}
	before := len(m.entries)
	for i := range entries {
		if e := &entries[i]; e.Version >= m.entries[e.User].Version {
			m.entries[e.User] = *e
		}
	}
	if at.After(m.changedAt) {
		m.changedAt = at
	}
	if x.missedEntries.Add(int64(len(m.entries)-before)) > maxMissed || entries == nil || m.dropAt > season.repaired {
		x.giveUp(season)
	}
}

// giveUp decides that the season's data must be dropped, and forgets its missed entries. The
// caller must hold season.mu.
func (x *Index) giveUp(season *seasonIndex) {
	x.missedEntries.Add(-int64(len(season.missed.entries)))
	season.missed = missed{dropAt: season.failures}
}

// repair repeats the failed Updates of a season. If the repetitions fail, repair drops the data of
// the season for all processes. If a Rebuild repairs the season first, repair changes nothing.
func (x *Index) repair(season *seasonIndex) {
	_ = retry(x.ctx, func() error {
		for {
			if repaired, err := x.repairStep(season); repaired || err != nil {
				return err
			}
		}
	})
}

// repairStep reports whether the season is repaired. Otherwise it makes one step of the repair. It
// returns [leaderboard.ErrRankUnavailable] if the step failed.
func (x *Index) repairStep(season *seasonIndex) (repaired bool, err error) {
	season.mu.Lock()
	failures, m := season.failures, &season.missed
	if failures == season.repaired {
		season.repairing = false
		season.mu.Unlock()
		return true, nil
	}
	drop, at := m.dropAt > season.repaired, m.changedAt
	var chunk []leaderboard.Entry
	for _, e := range m.entries {
		if chunk = append(chunk, e); len(chunk) == missedChunk {
			break
		}
	}
	season.mu.Unlock()
	switch {
	case drop:
		return false, x.lose(season, failures)
	case len(chunk) == 0:
		x.markRepaired(season, failures)
		return false, nil
	}
	return false, x.repeat(season, at, chunk)
}

// repeat repeats the Updates of entries. After maxRepeats consecutive failures, it decides that
// the data of the season must be dropped. Failures do not count while a slot is moved, or if a
// server does not answer a ping either.
func (x *Index) repeat(season *seasonIndex, at time.Time, entries []leaderboard.Entry) error {
	args := make([][]any, len(entries))
	for i := range entries {
		args[i] = entryArgs(&entries[i])
	}
	if err := x.repeats.Acquire(x.ctx, 1); err != nil {
		return err
	}
	defer x.repeats.Release(1)
	ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
	defer cancel()
	if x.isSilent(ctx, season, false) {
		return leaderboard.ErrRankUnavailable
	}
	err := x.update(ctx, season, instant(at), entries, args)
	counts := false
	if err != nil {
		x.checkServers(season)
		counts = !isMoving(err) && !x.isSilent(x.ctx, season, false)
	}
	season.mu.Lock()
	defer season.mu.Unlock()
	m := &season.missed
	if err != nil {
		if m.attempts++; !counts {
			m.attempts = 0
		}
		if m.attempts >= maxRepeats {
			x.giveUp(season)
		}
		return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
	}
	m.attempts = 0
	before := len(m.entries)
	for i := range entries {
		if e := &entries[i]; m.entries[e.User].Version <= e.Version {
			delete(m.entries, e.User)
		}
	}
	x.missedEntries.Add(int64(len(m.entries) - before))
	return nil
}

// lose drops the data of a season. It first waits for a Rebuild of this process, which may repair
// the season. lose returns [leaderboard.ErrRankUnavailable] if no shard has answered.
func (x *Index) lose(season *seasonIndex, failures int) error {
	select {
	case <-season.rebuild:
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
	defer func() { season.rebuild <- struct{}{} }()
	season.mu.Lock()
	repaired := season.repaired >= failures
	season.mu.Unlock()
	if repaired {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
	defer cancel()
	if x.isSilent(ctx, season, true) {
		return leaderboard.ErrRankUnavailable
	}
	calls := callEach(dropScript, *season.control.Load(), "lose")
	_ = x.run(ctx, calls)
	// One answer is enough, because one empty shard makes the whole season unavailable.
	if !slices.ContainsFunc(calls, func(c *call) bool { return c.err == nil }) {
		return leaderboard.ErrRankUnavailable
	}
	x.markRepaired(season, failures)
	return nil
}

// markRepaired records that the season's failed Updates are repaired, up to the one
// with the number failures.
func (x *Index) markRepaired(season *seasonIndex, failures int) {
	season.mu.Lock()
	defer season.mu.Unlock()
	if failures > season.repaired {
		if season.repaired = failures; season.repaired == season.failures {
			x.unsynced.Add(-1)
			x.missedEntries.Add(-int64(len(season.missed.entries)))
			season.missed = missed{}
		}
	}
}

// freeDead frees, in the background, all data that the shards no longer need. It runs at most
// once per LeaseTTL. If a process holds the lease, a Rebuild is running, so freeDead does
// nothing. The parameter generation is the one that is being built, or empty. If no process holds
// the lease, the Rebuild of this generation has died, so freeDead first abandons the generation.
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

// free frees the data that the shards no longer need. Each call blocks its server for less than a
// millisecond.
func (x *Index) free(ctx context.Context, control []string) error {
	calls := callEach(freeScript, control, 0)
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
