package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

var (
	// errNotLoaded: Redis answers, and does not hold the scope.
	errNotLoaded = fmt.Errorf("not loaded: %w", leaderboard.ErrRankUnavailable)
	// errAgain: the question was not answered and is to be asked again.
	errAgain = fmt.Errorf("the generation changes too often: %w", leaderboard.ErrRankUnavailable)
	// errUnsettled: it was asked again many times, of one generation.
	errUnsettled = fmt.Errorf("the standings change faster than they are read: %w", leaderboard.ErrRankUnavailable)
)

const (
	// attempts bounds how often a question is asked again.
	attempts = 32
	// tellingAge is after how long a reader tells what a writer left untold.
	// Writers do so at once, unless they die.
	tellingAge = 250 * time.Millisecond
	// batchUsers bounds the users of one trip where there are several shards.
	batchUsers = 256
)

// reader asks about one ladder.
type reader struct {
	x       *Index
	sc      *scope
	ctx     context.Context
	ladder  string
	control []string
	told    bool // others' tellings once

	keyBytes int // of a rank key
	view     leaderboard.View
}

// answer calls f until it does not return errAgain.
func (x *Index) answer(ctx context.Context, l leaderboard.Ladder, f func(*reader) error) (leaderboard.View, error) {
	r := &reader{x: x, sc: x.peek(l.Scope), ctx: ctx, ladder: l.Division.String()}
	var err error
	for attempt := range attempts {
		if r.sc.suspect() {
			err = errNotLoaded
			break
		}
		r.control = *r.sc.control.Load()
		if err = f(r); !errors.Is(err, errAgain) {
			break
		}
		if attempt > 2 { // as when another process replaces a generation
			if err := sleep(ctx, time.Duration(attempt)*time.Millisecond); err != nil {
				return leaderboard.View{}, fmt.Errorf("redis: %v: %w: %w", l, leaderboard.ErrRankUnavailable, err)
			}
		}
	}
	if err != nil {
		return leaderboard.View{}, fmt.Errorf("redis: %v: %w", l, err)
	}
	x.keep(r.sc)
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
	return newCall(s, r.control, shard, append([]any{r.ladder}, args...)...)
}

// sizes are the sizes of a ladder's parts, by shard.
type sizes []int64

func (s sizes) total() int64 {
	n := int64(0)
	for _, v := range s {
		n += v
	}
	return n
}

// ask makes one call for each shard, in one trip, and reads what every answer
// begins with. Answers are of one generation, or the error is errAgain.
func (r *reader) ask(calls []*call) (sizes, error) {
	if err := r.x.run(r.ctx, calls); err != nil {
		return nil, err
	}
	for _, c := range calls {
		if c.status == statusShards {
			r.x.setShards(r.sc, int(c.int()))
			return nil, errAgain
		}
	}
	for _, c := range calls {
		if c.status != statusOK {
			return nil, errNotLoaded
		}
	}
	parts := make(sizes, len(calls))
	v := leaderboard.View{AsOf: instantOf(instant(time.Time{}))}
	generations := make([]string, len(calls))
	var forgotten []int
	for i, c := range calls {
		generations[i] = c.str()
		if at := instantOf(c.str()); at.After(v.AsOf) {
			v.AsOf = at
		}
		if c.int() > tellingAge.Microseconds() {
			forgotten = append(forgotten, i)
		}
		r.keyBytes = int(c.int())
		parts[i] = c.int()
		if c.fault {
			return nil, fmt.Errorf("%s: an answer without a header: %w", c.script.name, leaderboard.ErrRankUnavailable)
		}
	}
	if slices.ContainsFunc(generations, func(g string) bool { return g != generations[0] }) {
		return nil, r.rollForward(generations)
	}
	if len(forgotten) > 0 && !r.told {
		r.told = true
		if err := r.x.drain(r.ctx, r.sc, r.control, "", forgotten); err != nil {
			return nil, err
		}
		return nil, errAgain
	}
	v.Size = parts.total()
	r.view = v
	return parts, nil
}

// rollForward makes the generation of shard 0, which decides, live in the others:
// whoever began that is still at it, or is no more.
func (r *reader) rollForward(generations []string) error {
	var calls []*call
	for i, g := range generations {
		if g != generations[0] {
			calls = append(calls, newCall(flipScript, r.control, i, generations[0]))
		}
	}
	if err := r.x.run(r.ctx, calls); err != nil {
		return err
	}
	return errAgain
}

// fault returns an error if an answer was not read to its end as it should be.
func fault(calls []*call) error {
	for _, c := range calls {
		if c.fault || len(c.rest) > 0 {
			return fmt.Errorf("%s: an answer of another form: %w", c.script.name, leaderboard.ErrRankUnavailable)
		}
	}
	return nil
}

// before is what lies before a sort key.
type before struct{ standings, better, distinct int64 }

func (b *before) add(c *call) {
	b.standings += c.int()
	b.better += c.int()
	b.distinct += c.int()
}

// standings asks what is before each of keys, and for the sort keys of users.
// With one shard, what is before each user who stands is known too.
func (r *reader) standings(users []leaderboard.UserID, keys []string) ([]string, map[string]*before, error) {
	calls := make([]*call, r.shards())
	where := make([][]int, r.shards())
	for i, user := range users {
		shard := shardOf(user, r.shards())
		where[shard] = append(where[shard], i)
	}
	for i := range calls {
		args := make([]any, 0, 1+len(where[i])+len(keys))
		args = append(args, len(where[i]))
		for _, u := range where[i] {
			args = append(args, string(users[u]))
		}
		for _, k := range keys {
			args = append(args, k)
		}
		calls[i] = r.call(standingsScript, i, args...)
	}
	if _, err := r.ask(calls); err != nil {
		return nil, nil, err
	}
	found := make([]string, len(users))
	counted := make(map[string]*before, len(keys))
	for i, c := range calls {
		for _, u := range where[i] {
			found[u] = c.str()
			if r.shards() == 1 && found[u] != "" {
				b := &before{}
				b.add(c)
				counted[found[u]] = b
			}
		}
		for _, k := range keys {
			b := counted[k]
			if b == nil {
				b = &before{}
				counted[k] = b
			}
			b.add(c)
		}
	}
	if err := fault(calls); err != nil {
		return nil, nil, err
	}
	reconcile(counted)
	return found, counted, nil
}

// reconcile makes counts of rank keys agree with those of standings. Their homes
// are told of rank keys a moment after the standings have moved, so that a count
// may be of the moment before.
func reconcile(counted map[string]*before) {
	last := &before{}
	for _, k := range slices.Sorted(maps.Keys(counted)) {
		b := counted[k]
		b.distinct = last.distinct + within(b.distinct-last.distinct, b.better-last.better)
		last = b
	}
}

// within returns distinct brought to what is possible of so many standings.
func within(distinct, standings int64) int64 { return max(min(distinct, standings), min(standings, 1)) }

func rankKey(sortKey string, keyBytes int) string { return sortKey[:min(len(sortKey), keyBytes)] }

// Standings implements [leaderboard.Ranker].
func (x *Index) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) ([]leaderboard.Standing, leaderboard.View, error) {
	out := make([]leaderboard.Standing, 0, len(users))
	var view leaderboard.View
	for {
		batch := users
		if len(*x.peek(l.Scope).control.Load()) > 1 {
			batch = users[:min(len(users), batchUsers)]
		}
		var err error
		n := len(out)
		view, err = x.answer(ctx, l, func(r *reader) (err error) {
			out, err = r.settle(out[:n], batch)
			return err
		})
		if err != nil {
			return nil, leaderboard.View{}, err
		}
		if users = users[len(batch):]; len(users) == 0 {
			return out, view, nil
		}
	}
}

// settle appends the standings of users. Where there are several shards, a
// user's sort key must be known before the others can say what is before it: it
// is guessed, and asked again if the guess was wrong.
func (r *reader) settle(out []leaderboard.Standing, users []leaderboard.UserID) ([]leaderboard.Standing, error) {
	guess := make([]string, len(users))
	if r.shards() > 1 {
		for i, user := range users {
			guess[i], _ = r.x.hints.Get(hint{r.sc, user})
		}
	}
	for range attempts {
		var keys []string
		if r.shards() > 1 {
			keys = slices.Sorted(slices.Values(guess))
			keys = slices.Compact(keys)
			if len(keys) > 0 && keys[0] == "" {
				keys = keys[1:]
			}
		}
		found, counted, err := r.standings(users, keys)
		if err != nil {
			return nil, err
		}
		if r.shards() > 1 {
			settled := true
			for i, k := range found {
				if k != "" && k != guess[i] {
					settled = false
					r.x.hints.Add(hint{r.sc, users[i]}, k)
				}
			}
			if !settled {
				guess = found
				continue
			}
		}
		for i, k := range found {
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
	return nil, errUnsettled
}

// standing returns the standing of a sort key, without ranks.
func (r *reader) standing(k string) (leaderboard.Standing, error) {
	key, at, user, err := leaderboard.SortKey(k).Split(r.keyBytes)
	return leaderboard.Standing{User: user, Key: key, AchievedAt: at}, err
}

// Count implements [leaderboard.Ranker]. A key longer than the board's rank
// keys is no key, and an error.
func (x *Index) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey) ([]leaderboard.Counts, leaderboard.View, error) {
	distinct := make([]string, len(keys))
	for i, k := range keys {
		distinct[i] = string(k)
	}
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	out := make([]leaderboard.Counts, len(keys))
	v, err := x.answer(ctx, l, func(r *reader) error {
		_, counted, err := r.standings(nil, distinct)
		if err != nil {
			return err
		}
		for i, k := range keys {
			if len(k) > r.keyBytes {
				return fmt.Errorf("count: rank key of %d bytes, not %d: %w", len(k), r.keyBytes, leaderboard.ErrFormat)
			}
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
