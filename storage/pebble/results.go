package pebble

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// chunkResults is how many results go into one batch, but for those of one user,
// which are never split.
const chunkResults = 1024

// Apply merges results into what is known.
func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.ApplyReport{}, err
	}
	if err := s.failure(); err != nil {
		return leaderboard.ApplyReport{}, err
	}
	var users []leaderboard.UserID // in the order of their first result
	byUser := map[leaderboard.UserID][]int{}
	for i := range results {
		r := &results[i]
		if r.Board != b.ID {
			return leaderboard.ApplyReport{}, &leaderboard.FieldError{Field: "board_id", Problem: fmt.Sprintf("is %q in a result of board %q", r.Board, b.ID)}
		}
		if byUser[r.User] == nil {
			users = append(users, r.User)
		}
		byUser[r.User] = append(byUser[r.User], i)
	}

	out := leaderboard.ApplyReport{Outcomes: make([]leaderboard.Outcome, len(results))}
	var chunks []*chunk
	for len(users) > 0 {
		n, size := 0, 0
		for n < len(users) && (n == 0 || size+len(byUser[users[n]]) <= chunkResults) {
			size += len(byUser[users[n]])
			n++
		}
		c := &chunk{users: users[:n]}
		chunks, users = append(chunks, c), users[n:]
		c.err = s.applyChunk(ctx, b, c, byUser, results, out.Outcomes)
	}
	failed := 0
	var last error
	for _, c := range chunks {
		err := c.err
		if c.done != nil {
			err = s.wait(ctx, c.done)
		}
		if err == nil {
			out.Changes = append(out.Changes, c.changes...)
		}
		for _, user := range c.users {
			for _, i := range byUser[user] {
				if err != nil {
					out.Outcomes[i] = leaderboard.Outcome{Err: err}
				}
				if out.Outcomes[i].Err != nil {
					last = out.Outcomes[i].Err
					failed++
				}
			}
		}
	}
	if failed == len(results) && failed > 0 {
		return leaderboard.ApplyReport{}, last
	}
	return out, nil
}

// A chunk is the part of an Apply that is written as one batch.
type chunk struct {
	users   []leaderboard.UserID
	changes []leaderboard.Change
	done    <-chan error // of what is being written, if anything is
	err     error        // if nothing is
}

// applyChunk works out what becomes of the results of c's users and has it
// written; c.done tells when it is durable. The results of a user who cannot be
// read get an Err of their own.
func (s *Store) applyChunk(ctx context.Context, b *leaderboard.Board, c *chunk, byUser map[leaderboard.UserID][]int,
	results []leaderboard.MatchResult, outcomes []leaderboard.Outcome,
) error {
	numbers := make([]int, len(c.users))
	for i, user := range c.users {
		numbers[i] = stripeOf(user)
	}
	unlock, err := s.lockStripes(ctx, numbers)
	if err != nil {
		return err
	}
	bd, err := s.live(b)
	if err != nil {
		unlock()
		return err
	}
	batch := s.db.NewBatch()
	for _, user := range c.users {
		changes, err := s.applyUser(ctx, batch, bd, user, byUser[user], results, outcomes)
		if err != nil {
			for _, i := range byUser[user] {
				outcomes[i] = leaderboard.Outcome{Err: err}
			}
		}
		c.changes = append(c.changes, changes...)
	}
	if batch.Empty() {
		unlock()
		return s.settle(ctx)
	}
	c.done = s.start(batch, unlock)
	return nil
}

// applyUser adds to batch what becomes of the results of one user, of which idx
// are the places in results, and fills in their outcomes. After an error batch
// is as it was.
func (s *Store) applyUser(ctx context.Context, batch *pebble.Batch, bd *board, user leaderboard.UserID, idx []int,
	results []leaderboard.MatchResult, outcomes []leaderboard.Outcome,
) ([]leaderboard.Change, error) {
	var states []*userState // one for each season
	of := make([]*userState, len(idx))
	for n, i := range idx {
		season := results[i].Season
		at := slices.IndexFunc(states, func(st *userState) bool { return st.season == season })
		if at < 0 {
			st, err := s.loadUser(bd, season, user)
			if err != nil {
				return nil, err
			}
			at, states = len(states), append(states, st)
		}
		of[n] = states[at]
		var err error
		if outcomes[i], err = states[at].merge(ctx, &results[i]); err != nil {
			return nil, err
		}
	}
	var changes []leaderboard.Change
	var writes []func() error
	for _, st := range states {
		change, write, err := st.finish(ctx, batch)
		if err != nil {
			return nil, err
		}
		if change.Before.Version != change.After.Version {
			changes = append(changes, change)
		}
		writes = append(writes, write)
	}
	for n, i := range idx {
		outcomes[i].Entry = of[n].after
	}
	for _, write := range writes {
		if err := write(); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// userState is a user in a scope while results are applied.
type userState struct {
	s      *Store
	bd     *board
	season leaderboard.SeasonID
	user   leaderboard.UserID
	scope  scopeKey

	row    userRow
	exists bool // the row is in the store
	before leaderboard.Entry
	after  leaderboard.Entry

	records map[leaderboard.MatchID]*leaderboard.Record // those read
	changed map[leaderboard.MatchID]bool                // those to write
	put     bool                                        // what the entry is made of changed
	stale   bool                                        // the tally has to be counted anew
}

func (s *Store) loadUser(bd *board, season leaderboard.SeasonID, user leaderboard.UserID) (*userState, error) {
	st := &userState{
		s: s, bd: bd, season: season, user: user, scope: makeScopeKey(bd.number, season),
		records: map[leaderboard.MatchID]*leaderboard.Record{},
		changed: map[leaderboard.MatchID]bool{},
	}
	var err error
	if st.exists, err = s.get(st.scope.user(user), st.row.decode); err == nil && !st.exists {
		st.row, err = s.newUserRow(user)
	}
	if err != nil {
		return nil, fmt.Errorf("user %q: %w", user, err)
	}
	st.before = st.entry()
	return st, nil
}

// newUserRow returns the row of a user without any results in a scope.
func (s *Store) newUserRow(user leaderboard.UserID) (userRow, error) {
	var e erasure
	erased, err := s.get(erasedKey(hashOf(user)), e.decode)
	if err != nil {
		return userRow{}, err
	}
	var row userRow
	if erased {
		row.erasedAt, row.version = e.at, e.version
	}
	row.hidden, err = s.has(banKey(user))
	return row, err
}

// entry returns the entry that the row makes.
func (st *userState) entry() leaderboard.Entry {
	e := st.bd.Entry(&st.row.tally, st.season, st.user)
	e.Hidden, e.Version = st.row.hidden, st.row.version
	return e
}

func (st *userState) record(match leaderboard.MatchID) (*leaderboard.Record, error) {
	if rec := st.records[match]; rec != nil {
		return rec, nil
	}
	rec := &leaderboard.Record{}
	if st.exists { // else there is none
		key := leaderboard.ResultKey{Scope: leaderboard.Scope{Board: st.bd.ID, Season: st.season}, User: st.user, Match: match}
		if _, err := st.s.get(st.scope.record(st.user, match), func(b []byte) (err error) {
			*rec, err = decodeRecord(key, b)
			return err
		}); err != nil {
			return nil, err
		}
	}
	st.records[match] = rec
	return rec, nil
}

// merge takes r in.
func (st *userState) merge(ctx context.Context, r *leaderboard.MatchResult) (leaderboard.Outcome, error) {
	rec, err := st.record(r.Match)
	if err != nil {
		return leaderboard.Outcome{}, err
	}
	d := st.bd.Merge(leaderboard.Known{
		Result: rec.Result, Refusals: rec.Refusals, Tally: st.row.tally, ErasedAt: st.row.erasedAt,
	}, *r)
	if d.Refuse != nil {
		rec.Refusals = append(rec.Refusals, *d.Refuse)
		st.changed[r.Match] = true
	}
	if d.Put != nil {
		rec.Result = d.Put
		st.changed[r.Match] = true
		st.put = true
		st.row.tally = d.Tally
		st.stale = st.stale || d.Recount
		// Merge looks at the tally where results add up; elsewhere one count at
		// the end is enough, however many results were replaced.
		if st.stale && st.bd.AddsUp() {
			if err := st.recount(ctx); err != nil {
				return leaderboard.Outcome{}, err
			}
		}
	}
	return leaderboard.Outcome{Status: d.Status, Reason: d.Reason}, nil
}

func (st *userState) recount(ctx context.Context) (err error) {
	st.row.tally, err = st.bd.Count(st.results(ctx))
	st.stale = false
	return err
}

// results yields all results of the user: those in the store, and in their
// places those changed since.
func (st *userState) results(ctx context.Context) iter.Seq2[leaderboard.MatchResult, error] {
	return func(yield func(leaderboard.MatchResult, error) bool) {
		for _, rec := range st.records {
			if rec.Result != nil && !yield(*rec.Result, nil) {
				return
			}
		}
		if !st.exists {
			return
		}
		for r, err := range st.s.results(ctx, st.bd, st.season, st.user) {
			if err == nil && st.records[r.Match] != nil {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// finish works out the entry, and returns what adds all that changed to batch.
func (st *userState) finish(ctx context.Context, batch *pebble.Batch) (leaderboard.Change, func() error, error) {
	if st.stale {
		if err := st.recount(ctx); err != nil {
			return leaderboard.Change{}, nil, err
		}
	}
	if st.put {
		st.row.version++
	}
	st.after = st.entry()
	return leaderboard.Change{Before: st.before, After: st.after}, func() error { return st.write(batch) }, nil
}

func (st *userState) write(batch *pebble.Batch) error {
	if len(st.changed) == 0 {
		return nil
	}
	for _, match := range slices.Sorted(maps.Keys(st.changed)) {
		if err := batch.Set(st.scope.record(st.user, match), appendRecord(nil, st.records[match]), nil); err != nil {
			return err
		}
	}
	if !st.exists {
		if err := batch.Set(scopesKey(st.user, st.bd.number, st.season), nil, nil); err != nil {
			return err
		}
	}
	if st.put || !st.exists {
		return st.writeEntry(batch)
	}
	return nil
}

// writeEntry adds the row to batch, and moves the entry in its ladders.
func (st *userState) writeEntry(batch *pebble.Batch) error {
	row, err := st.row.append(nil)
	if err != nil {
		return err
	}
	if err := batch.Set(st.scope.user(st.user), row, nil); err != nil {
		return err
	}
	return move(batch, st.bd.placements(st.scope, &st.before), st.bd.placements(st.scope, &st.after))
}

// move adds to batch the removal of the rows of from that are not in to, and
// the rows of to.
func move(batch *pebble.Batch, from, to []placement) error {
	for _, old := range from {
		if slices.ContainsFunc(to, func(p placement) bool { return string(p.key) == string(old.key) }) {
			continue
		}
		if err := batch.Delete(old.key, nil); err != nil {
			return err
		}
	}
	for _, p := range to {
		if err := batch.Set(p.key, p.value, nil); err != nil {
			return err
		}
	}
	return nil
}

// Result returns what is known of a match result.
func (s *Store) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Record{}, err
	}
	var rec leaderboard.Record
	found := false
	if bd := s.board(key.Board); bd != nil {
		var err error
		found, err = s.get(makeScopeKey(bd.number, key.Season).record(key.User, key.Match), func(b []byte) (err error) {
			rec, err = decodeRecord(key, b)
			return err
		})
		if err != nil {
			return leaderboard.Record{}, fmt.Errorf("result %q of user %q: %w", key.Match, key.User, err)
		}
	}
	if !found {
		return leaderboard.Record{}, fmt.Errorf("pebble: result %q of user %q: %w", key.Match, key.User, leaderboard.ErrResultNotFound)
	}
	sortRefusals(rec.Refusals)
	return rec, nil
}

// Results yields a user's results.
func (s *Store) Results(ctx context.Context, scope leaderboard.Scope, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	bd := s.board(scope.Board)
	if bd == nil {
		return none[leaderboard.MatchResult](ctx)
	}
	return s.results(ctx, bd, scope.Season, user)
}

func (s *Store) results(ctx context.Context, bd *board, season leaderboard.SeasonID, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	prefix := makeScopeKey(bd.number, season).records(user)
	key := leaderboard.ResultKey{Scope: leaderboard.Scope{Board: bd.ID, Season: season}, User: user}
	return rows(ctx, s, prefix, after(prefix), func(k, value []byte) (leaderboard.MatchResult, bool, error) {
		key.Match = leaderboard.MatchID(k[len(prefix):])
		rec, err := decodeRecord(key, value)
		if err != nil || rec.Result == nil {
			return leaderboard.MatchResult{}, false, err
		}
		return *rec.Result, true, nil
	})
}

// Users yields the users with results.
func (s *Store) Users(ctx context.Context, scope leaderboard.Scope) iter.Seq2[leaderboard.UserID, error] {
	bd := s.board(scope.Board)
	if bd == nil {
		return none[leaderboard.UserID](ctx)
	}
	prefix := makeScopeKey(bd.number, scope.Season).kind(dataUser)
	return pages(ctx, s, prefix, after(prefix), func(key, _ []byte) (leaderboard.UserID, error) {
		return leaderboard.UserID(key[len(prefix):]), nil
	})
}

// Unlisted yields the users with results whom Users leaves out.
func (s *Store) Unlisted(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
	return func(yield func(leaderboard.EntryKey, error) bool) {
		boards, err := s.Boards(ctx)
		for i := 0; err == nil && i < len(boards); i++ {
			var seasons []leaderboard.SeasonRecord
			seasons, err = s.Seasons(ctx, boards[i].ID)
			for j := 0; err == nil && j < len(seasons); j++ {
				var stopped bool
				if stopped, err = s.unlistedIn(ctx, seasons[j].Scope, yield); stopped {
					return
				}
			}
		}
		if err != nil {
			yield(leaderboard.EntryKey{}, err)
		}
	}
}

func (s *Store) unlistedIn(ctx context.Context, scope leaderboard.Scope, yield func(leaderboard.EntryKey, error) bool) (stopped bool, err error) {
	bd := s.board(scope.Board)
	if bd == nil {
		return false, nil // deleted meanwhile
	}
	key := makeScopeKey(bd.number, scope.Season)
	prefix := key.kind(dataRecord)
	for lower, end := prefix, after(prefix); ; {
		var user leaderboard.UserID
		err := s.scan(ctx, lower, end, func(k, _ []byte) (bool, error) {
			d := decoder{b: k[len(prefix):]}
			if user = leaderboard.UserID(d.string()); d.bad {
				return false, errFormat("record key")
			}
			return false, nil
		})
		if err != nil || user == "" {
			return false, err
		}
		listed, err := s.has(key.user(user))
		if err != nil {
			return false, err
		}
		if !listed && !yield(leaderboard.EntryKey{Scope: scope, User: user}, nil) {
			return true, nil
		}
		lower = after(key.records(user))
	}
}

// none yields nothing, or why ctx is done.
func none[T any](ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := ctx.Err(); err != nil {
			var zero T
			yield(zero, err)
		}
	}
}
