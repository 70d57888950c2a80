package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var (
	// errNotLoaded means that Redis answers but does not hold the season.
	errNotLoaded = fmt.Errorf("not loaded: %w", leaderboard.ErrRankUnavailable)
	errUnsynced  = fmt.Errorf("an update has failed and is not repeated yet: %w", leaderboard.ErrRankUnavailable)
	// errAgain means that one attempt gave no answer: the method answer makes another.
	errAgain    = fmt.Errorf("the index was replaced during every attempt, ask again: %w", leaderboard.ErrRankUnavailable)
	errUnstable = fmt.Errorf("the standings changed during every attempt, ask again: %w", leaderboard.ErrRankUnavailable)
)

const (
	attempts = 32
	// batchUsers bounds the users of one round trip if the season has several shards.
	batchUsers = 256
	// A script blocks its server. So it computes the counts of at most countedKeys keys and, if the
	// season has one shard, the ranks of at most rankedUsers users.
	rankedUsers = 32
	countedKeys = 16
	// maxQuestions is the maximum number of concurrent questions in one round trip.
	maxQuestions = 64
	// questionWait is the longest time that questions wait for the round trip under way, whose
	// connection may be lost.
	questionWait = 50 * time.Millisecond
)

// reader answers one question about one ladder.
type reader struct {
	x       *Index
	season  *seasonIndex
	ctx     context.Context
	ladder  string
	counts  string // what the scripts have to count: see lua/read.lua
	control []string
	rolled  bool // checkShards has called rollForward, which it does at most once

	keyBytes int // of a rank key
	view     leaderboard.View
}

// countsOf returns the letters of the counts (see lua/read.lua) that ranks of the given methods need.
func countsOf(methods []leaderboard.Method) string {
	letters := ""
	if len(methods) == 0 || slices.Contains(methods, leaderboard.Competition) {
		letters += "c"
	}
	if len(methods) == 0 || slices.Contains(methods, leaderboard.Dense) {
		letters += "d"
	}
	return letters
}

// answer calls f until f does not return errAgain, up to attempts times. counts has the letters of the
// counts that f uses: see countsOf.
func (x *Index) answer(ctx context.Context, l leaderboard.Ladder, counts string, f func(*reader) error) (leaderboard.View, error) {
	r := &reader{x: x, season: x.peek(l.SeasonKey), ctx: ctx, ladder: ladderName(l.Division), counts: counts}
	var err error
	for attempt := range attempts {
		if r.season.unsynced() {
			err = errUnsynced
			break
		}
		r.control = *r.season.control.Load()
		if err = f(r); !errors.Is(err, errAgain) {
			break
		}
		if attempt > 2 { // for example while another process replaces generations
			if err := sleep(ctx, time.Duration(attempt)*time.Millisecond); err != nil {
				return leaderboard.View{}, fmt.Errorf("redis: %v: %w: %w", l, leaderboard.ErrRankUnavailable, err)
			}
		}
	}
	if err != nil {
		return leaderboard.View{}, fmt.Errorf("redis: %v: %w", l, err)
	}
	x.keep(r.season)
	return r.view, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *reader) shards() int { return len(r.control) }

func (r *reader) call(s *script, shard int, args ...any) *call {
	return newCall(s, r.control, shard, append([]any{r.ladder, r.counts}, args...)...)
}

// sizes are the numbers of standings of a ladder in each shard.
type sizes []int64

func (s sizes) total() int64 {
	n := int64(0)
	for _, v := range s {
		n += v
	}
	return n
}

// askTogether sends the calls of concurrent questions about a season in one round trip.
func (x *Index) askTogether(ctx context.Context, _ *seasonIndex, questions [][]*call) error {
	ctx, cancel := x.boundShared(ctx)
	defer cancel()
	_ = x.run(ctx, slices.Concat(questions...)) // each call has its own error
	return nil
}

// ask sends calls in one round trip and reads the header of every answer (see lua/read.lua).
// The caller must pass at least one call for each shard. If the shards answer from different
// generations, ask returns errAgain.
func (r *reader) ask(calls []*call) (sizes, error) {
	if err := r.x.questions.Do(r.ctx, r.season, calls); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err) // calls are still in use
	}
	if err := firstError(calls); err != nil {
		return nil, err
	}
	if err := r.checkShards(calls); err != nil {
		return nil, err
	}
	inDoubt := false
	for _, c := range calls {
		if c.status != statusOK && c.status != statusDoubt {
			return nil, errNotLoaded
		}
		inDoubt = inDoubt || c.status == statusDoubt
	}
	if inDoubt {
		return nil, r.season.inDoubt()
	}
	r.season.trust()
	parts := make(sizes, r.shards())
	v := leaderboard.View{AsOf: instantOf(instant(time.Time{}))}
	generations := make([]string, len(calls))
	for i, c := range calls {
		generations[i] = c.str()
		if changedAt := instantOf(c.str()); changedAt.After(v.AsOf) {
			v.AsOf = changedAt
		}
		r.keyBytes = int(c.int())
		parts[c.shard] = c.int()
		if c.fault {
			return nil, fmt.Errorf("%s: unexpected answer header: %w", c.script.name, leaderboard.ErrRankUnavailable)
		}
	}
	if slices.ContainsFunc(generations, func(g string) bool { return g != generations[0] }) {
		return nil, r.rollForward(calls, generations)
	}
	if r.shards() > 1 && strings.ContainsRune(r.counts, 'd') {
		return nil, fmt.Errorf("the season has %d shards: %w", r.shards(), leaderboard.ErrMethodUnavailable)
	}
	v.Size = parts.total()
	r.view = v
	return parts, nil
}

// checkShards returns errAgain if shard 0 states another number of shards than r expects. If another
// shard states another number, or is empty, checkShards calls rollForward.
func (r *reader) checkShards(calls []*call) error {
	zero := calls[0] // of shard 0
	if zero.status == statusShards {
		r.x.setShards(r.season, int(zero.int()))
		return errAgain
	}
	behind := func(c *call) bool { return c.shard != 0 && (c.status == statusShards || c.status == statusNone) }
	if zero.status != statusOK || r.rolled || !slices.ContainsFunc(calls, behind) {
		return nil
	}
	r.rolled = true
	generations := make([]string, len(calls)) // empty for shards that are behind
	for i, c := range calls {
		if !behind(c) {
			generations[i], _ = zero.rest[0].(string)
		}
	}
	return r.rollForward(calls, generations)
}

// rollForward makes the live generation of shard 0 live in the other shards too. A Rebuild makes its
// generation live in shard 0 first. The process of this Rebuild may have died before it reached the
// other shards.
func (r *reader) rollForward(asked []*call, generations []string) error {
	var calls []*call
	for i, c := range asked {
		if generations[i] != generations[0] && c.shard != 0 {
			calls = append(calls, newCall(flipScript, r.control, c.shard, generations[0]))
		}
	}
	if len(calls) == 0 { // two calls found different generations in shard 0
		return errAgain
	}
	if err := r.x.run(r.ctx, calls); err != nil {
		return err
	}
	return errAgain
}

// fault returns an error if an answer had missing, surplus or mistyped elements.
func fault(calls []*call) error {
	for _, c := range calls {
		if c.fault || len(c.rest) > 0 {
			return fmt.Errorf("%s: unexpected answer: %w", c.script.name, leaderboard.ErrRankUnavailable)
		}
	}
	return nil
}

// keyCounts has, for a sort key, the numbers of standings before it, of standings with a smaller
// rank key, and of distinct smaller rank keys. With several shards, distinct has no meaning.
type keyCounts struct{ standings, better, distinct int64 }

func (b *keyCounts) add(c *call) {
	b.standings += c.int()
	b.better += c.int()
	b.distinct += c.int()
}

// lookup is a call of the standings script for some of the users and keys of a question. The
// users are indexes in the question's list.
type lookup struct {
	*call
	users []int
	keys  []string
}

func (r *reader) lookups(users []leaderboard.UserID, keys []string) []lookup {
	limit := batchUsers
	if r.shards() == 1 {
		limit = rankedUsers
	}
	byShard := make([][]int, r.shards())
	for i, user := range users {
		shard := shardOf(user, r.shards())
		byShard[shard] = append(byShard[shard], i)
	}
	var all []lookup
	for shard, rest := range byShard {
		keys := keys
		for first := true; first || len(rest)+len(keys) > 0; first = false {
			l := lookup{users: rest[:min(len(rest), limit)], keys: keys[:min(len(keys), countedKeys)]}
			rest, keys = rest[len(l.users):], keys[len(l.keys):]
			args := make([]any, 0, 1+2*len(l.users)+len(l.keys))
			args = append(args, len(l.users))
			for _, u := range l.users {
				args = append(args, string(users[u]), bucketHash(string(users[u])))
			}
			for _, k := range l.keys {
				args = append(args, k)
			}
			l.call = r.call(standingsScript, shard, args...)
			all = append(all, l)
		}
	}
	return all
}

// standings reads the sort keys of users and the counts of keys. With one shard, it also
// reads the counts of each ranked user's sort key.
func (r *reader) standings(users []leaderboard.UserID, keys []string) ([]string, map[string]*keyCounts, error) {
	all := r.lookups(users, keys)
	calls := make([]*call, len(all))
	for i := range all {
		calls[i] = all[i].call
	}
	if _, err := r.ask(calls); err != nil {
		return nil, nil, err
	}
	sortKeys := make([]string, len(users))
	counted := make(map[string]*keyCounts, len(keys))
	for _, l := range all {
		for _, u := range l.users {
			sortKeys[u] = l.str()
			if r.shards() == 1 && sortKeys[u] != "" {
				b := &keyCounts{}
				b.add(l.call)
				counted[sortKeys[u]] = b
			}
		}
		for _, k := range l.keys {
			b := counted[k]
			if b == nil {
				b = &keyCounts{}
				counted[k] = b
			}
			b.add(l.call)
		}
	}
	if err := fault(calls); err != nil {
		return nil, nil, err
	}
	return sortKeys, counted, nil
}

func rankKey(sortKey string, keyBytes int) string { return sortKey[:min(len(sortKey), keyBytes)] }

type rankQuery struct {
	ladder leaderboard.Ladder
	counts string // see lua/read.lua
}

type rankAnswer struct {
	user     leaderboard.UserID
	standing leaderboard.Standing
	view     leaderboard.View
	err      error
}

// Standings implements [leaderboard.Ranker]. Concurrent calls that each ask about one user share
// one read, which begins after the last of these calls began. One script about several users
// takes less time than a script for each user.
func (x *Index) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	if len(users) != 1 {
		return x.readStandings(ctx, l, users, countsOf(methods))
	}
	a := rankAnswer{user: users[0]}
	if err := x.ranks.Do(ctx, rankQuery{l, countsOf(methods)}, &a); err != nil {
		return nil, leaderboard.View{}, fmt.Errorf("redis: %v: %w: %w", l, leaderboard.ErrRankUnavailable, err)
	}
	if a.err != nil {
		return nil, leaderboard.View{}, a.err
	}
	return []leaderboard.Standing{a.standing}, a.view, nil
}

// readRanks reads the standings of the users of all calls: at most rankedUsers users, so with one
// shard, one script reads all of them.
func (x *Index) readRanks(ctx context.Context, q rankQuery, calls []*rankAnswer) error {
	ctx, cancel := x.boundShared(ctx)
	defer cancel()
	users := make([]leaderboard.UserID, len(calls))
	for i, call := range calls {
		users[i] = call.user
	}
	standings, view, err := x.readStandings(ctx, q.ladder, users, q.counts)
	for i, call := range calls {
		call.view, call.err = view, err
		if err == nil {
			call.standing = standings[i]
		}
	}
	return nil
}

func (x *Index) readStandings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, counts string) ([]leaderboard.Standing, leaderboard.View, error) {
	out := make([]leaderboard.Standing, 0, len(users))
	var view leaderboard.View
	for {
		batch := users
		if len(*x.peek(l.SeasonKey).control.Load()) > 1 {
			batch = users[:min(len(users), batchUsers)]
		}
		var err error
		answered := out
		view, err = x.answer(ctx, l, counts, func(r *reader) (err error) {
			// Do not assign to out: a failed attempt returns nil, and the next attempt appends to out.
			answered, err = r.appendRanked(out, batch)
			return err
		})
		if err != nil {
			return nil, leaderboard.View{}, err
		}
		out = answered
		if users = users[len(batch):]; len(users) == 0 {
			return out, view, nil
		}
	}
}

// appendRanked appends the standings of users to out. Only the user's shard knows the user's sort key,
// but every shard needs the sort key to count the standings before it. So with several shards,
// appendRanked sends cached sort keys, and repeats the question if one is wrong.
func (r *reader) appendRanked(out []leaderboard.Standing, users []leaderboard.UserID) ([]leaderboard.Standing, error) {
	cachedKeys := make([]string, len(users))
	if r.shards() > 1 {
		for i, user := range users {
			cachedKeys[i], _ = r.x.hints.Get(hint{r.season, user})
		}
	}
	for range attempts {
		var keys []string
		if r.shards() > 1 {
			keys = slices.Sorted(slices.Values(cachedKeys))
			keys = slices.Compact(keys)
			if len(keys) > 0 && keys[0] == "" {
				keys = keys[1:]
			}
		}
		sortKeys, counted, err := r.standings(users, keys)
		if err != nil {
			return nil, err
		}
		if r.shards() > 1 {
			stable := true
			for i, k := range sortKeys {
				if k != "" && k != cachedKeys[i] {
					stable = false
					r.x.hints.Add(hint{r.season, users[i]}, k)
				}
			}
			if !stable {
				cachedKeys = sortKeys
				continue
			}
		}
		for i, k := range sortKeys {
			st := leaderboard.Standing{User: users[i]}
			if k != "" {
				if st, err = r.standing(k); err != nil {
					return nil, err
				}
				b := counted[k]
				st.Ranks = leaderboard.Ranks{Competition: b.better + 1, Dense: b.distinct + 1, Ordinal: b.standings + 1}
			}
			out = append(out, st)
		}
		return out, nil
	}
	return nil, errUnstable
}

// standing returns the standing that a sort key describes, without ranks.
func (r *reader) standing(k string) (leaderboard.Standing, error) {
	key, at, user, err := leaderboard.SortKey(k).Split(r.keyBytes)
	return leaderboard.Standing{User: user, Key: key, AchievedAt: at}, err
}

// Count implements [leaderboard.Ranker].
// Errors: [leaderboard.ErrFormat] if a key is longer than the board's rank keys.
func (x *Index) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	distinct := make([]string, len(keys))
	for i, k := range keys {
		distinct[i] = string(k)
	}
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	out := make([]leaderboard.Counts, len(keys))
	v, err := x.answer(ctx, l, countsOf(methods), func(r *reader) error {
		_, counted, err := r.standings(nil, distinct)
		if err != nil {
			return err
		}
		if err := r.checkKeys(keys); err != nil {
			return err
		}
		for i, k := range keys {
			b := counted[string(k)]
			out[i] = leaderboard.Counts{Standings: b.better, Distinct: b.distinct}
		}
		return nil
	})
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return out, v, nil
}
