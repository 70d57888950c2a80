package cql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// maxTries bounds how often one user's results are begun anew because seasons
// or the user are being deleted meanwhile.
const maxTries = 8

// Apply merges results into what is known. Users are worked on side by side; one
// that fails has an Err in its outcomes.
func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	type who struct {
		season leaderboard.SeasonID
		user   leaderboard.UserID
	}
	var tasks []*task
	of := map[who]*task{}
	for i := range results {
		r := &results[i]
		if r.Board != b.ID {
			return leaderboard.ApplyReport{}, &leaderboard.FieldError{Field: "board_id", Problem: fmt.Sprintf("is %q in a result of board %q", r.Board, b.ID)}
		}
		w := who{r.Season, r.User}
		if of[w] == nil {
			of[w] = &task{s: s, b: b, scope: r.Scope, user: r.User}
			tasks = append(tasks, of[w])
		}
		of[w].results = append(of[w].results, r)
		of[w].at = append(of[w].at, i)
	}
	report := leaderboard.ApplyReport{Outcomes: make([]leaderboard.Outcome, len(results))}
	err := s.each(ctx, len(tasks), func(ctx context.Context, i int) error {
		tasks[i].err = tasks[i].run(ctx)
		if errors.Is(tasks[i].err, leaderboard.ErrBoardNotFound) {
			return tasks[i].err
		}
		return nil
	})
	failed := 0
	for _, t := range tasks {
		if t.err == nil && t.outcomes == nil {
			t.err = fault(ctx, "apply", err) // it was not begun
		}
		for n, i := range t.at {
			if t.err != nil {
				report.Outcomes[i] = leaderboard.Outcome{Err: t.err}
				failed++
				if err == nil { // else that is why the others were not finished
					err = t.err
				}
				continue
			}
			report.Outcomes[i] = t.outcomes[n]
			report.Outcomes[i].Entry = t.change.After
		}
		if t.err == nil && t.change.Before.Version != t.change.After.Version {
			report.Changes = append(report.Changes, t.change)
		}
	}
	if failed > 0 && failed == len(results) {
		return leaderboard.ApplyReport{}, err
	}
	return report, nil
}

// task is the results of one user in one season, in their order.
type task struct {
	s       *Store
	b       *leaderboard.Board
	scope   leaderboard.Scope
	user    leaderboard.UserID
	results []*leaderboard.MatchResult
	at      []int // their places among those of the Apply

	outcomes []leaderboard.Outcome
	change   leaderboard.Change
	err      error
}

func (t *task) run(ctx context.Context) error {
	unlock, err := t.s.lock(ctx, t.user)
	if err != nil {
		return err
	}
	defer unlock()
	for range maxTries {
		e, err := t.s.opened(ctx, t.b, t.scope.Season)
		if err != nil {
			return err
		}
		key := &userKey{t.scope, e.number, t.user}
		done, err := t.attempt(ctx, key, e)
		if err != nil {
			t.s.drop(key) // what was written is not known
			return err
		}
		if done {
			return nil
		}
		t.s.drop(key)
	}
	return fmt.Errorf("cql: user %q: erased or deleted again and again: %w", t.user, leaderboard.ErrUnavailable)
}

func (s *Store) drop(key *userKey) {
	if s.cache != nil {
		s.cache.Remove(*key)
	}
}

// attempt does all there is to do, from a summary if there is one and it
// suffices. It returns false if everything has to be done again, because the
// season or the user was deleted meanwhile.
func (t *task) attempt(ctx context.Context, key *userKey, e edition) (bool, error) {
	if t.s.cache != nil {
		if sum, ok := t.s.cache.Get(*key); ok {
			st, changed, ok, err := t.mergeLight(ctx, key, sum)
			if err != nil {
				return false, err
			}
			if ok {
				return t.finishLight(ctx, key, e, sum, st, changed)
			}
			t.s.drop(key)
		}
	}
	st, err := t.s.begin(ctx, t.b, key)
	if err != nil {
		return false, err
	}
	changed, ok, err := t.merge(st, true)
	if err != nil || !ok {
		return false, err
	}
	return t.finish(ctx, key, e, st, changed)
}

// begin reads a user's whole state; of a user that is not registered in the
// season, the account from its own table.
func (s *Store) begin(ctx context.Context, b *leaderboard.Board, key *userKey) (st *state, err error) {
	var acc account
	err = s.each(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			st, err = s.whole(ctx, b, key)
		} else {
			acc, _, err = s.readAccount(ctx, key.user)
		}
		return err
	})
	if err == nil && !st.known {
		st.account = acc
	}
	return st, err
}

// merge decides about each result in turn. It returns the matches that are to be
// written. Without the whole state it returns false if that is needed.
func (t *task) merge(st *state, whole bool) (changed []leaderboard.MatchID, ok bool, err error) {
	t.outcomes = make([]leaderboard.Outcome, len(t.results))
	touched := map[leaderboard.MatchID]bool{}
	for i, r := range t.results {
		m := st.match(r.Match)
		if !whole && m.result != nil && !m.counted {
			// A result that is in the table may be missing from the summary.
			return nil, false, nil
		}
		d := t.b.Merge(leaderboard.Known{Result: m.result, Refusals: m.refusals, Tally: st.tally, ErasedAt: st.account.ErasedAt}, *r)
		t.outcomes[i] = leaderboard.Outcome{Status: d.Status, Reason: d.Reason}
		switch {
		case d.Refuse != nil:
			m.refusals = append(m.refusals, *d.Refuse)
		case d.Put == nil:
			continue
		case d.Recount && !whole:
			return nil, false, nil
		default:
			m.put(d.Put)
			st.tally = d.Tally
			if d.Recount {
				if err := st.count(t.b); err != nil {
					return nil, false, err
				}
			}
		}
		if !touched[r.Match] {
			touched[r.Match] = true
			changed = append(changed, r.Match)
		}
	}
	return changed, true, nil
}

// mergeLight is merge from a summary and the matches in question, which need not be
// read if the summary has nothing of each, or has the result as it comes. Where
// what is refused depends on the tally, the summary must still hold before: on
// boards with a floor that is made sure of first, on others, where only a sum
// beyond all bounds is refused, once there is such a refusal.
func (t *task) mergeLight(ctx context.Context, key *userKey, sum summary) (st *state, changed []leaderboard.MatchID, ok bool, err error) {
	ids := map[leaderboard.MatchID]bool{}
	for _, r := range t.results {
		if ids[r.Match] {
			return nil, nil, false, nil
		}
		ids[r.Match] = true
	}
	now := sum.statics
	st = &state{matches: map[leaderboard.MatchID]*match{}}
	var reads []func(context.Context) error
	for _, r := range t.results {
		if stands, new := sum.matches.knows(r); stands {
			have := r.Normalize()
			st.matches[r.Match] = &match{result: &have, counted: true}
		} else if !new {
			reads = append(reads, func(ctx context.Context) (err error) {
				st, err = t.s.readState(ctx, key, slices.Sorted(maps.Keys(ids)))
				return err
			})
			break
		}
	}
	if t.b.Floor != nil {
		reads = append(reads, func(ctx context.Context) (err error) {
			now, err = t.s.readStatics(ctx, key)
			return err
		})
	}
	err = t.s.each(ctx, len(reads), func(ctx context.Context, i int) error { return reads[i](ctx) })
	if err != nil || !now.same(&sum.statics) {
		return nil, nil, false, err
	}
	st.statics, st.tally = sum.statics, sum.tally
	if changed, ok, err = t.merge(st, false); err != nil || !ok {
		return nil, nil, false, err
	}
	beyond := slices.ContainsFunc(t.outcomes, func(o leaderboard.Outcome) bool { return o.Reason == leaderboard.ReasonRange })
	return st, changed, !beyond || t.b.Floor != nil, nil
}

// writes returns the statements that put changed matches into the table, and
// the divisions that their results name.
func (t *task) writes(key *userKey, st *state, changed []leaderboard.MatchID) []op {
	var ops []op
	var fresh []string
	for _, id := range changed {
		m := st.matches[id]
		if m.row.payload != nil {
			ops = append(ops, op{insertResult, append(key.args(), string(id), m.row.payload, m.high, m.low,
				resultTime(st.account.Epoch, m.row.revision))})
			for _, name := range t.b.Divisions {
				if v, ok := m.result.Attributes[name]; ok {
					d := leaderboard.Division{Attribute: name, Value: v}.String()
					if !st.divisions[d] && !slices.Contains(fresh, d) {
						fresh = append(fresh, d)
					}
				}
			}
		}
		for i := range m.refusals {
			f := &m.refusals[i]
			ops = append(ops, op{insertItem, append(key.args(), string(id), int8(kindRefusal), refusalItem(f),
				appendRefusal(nil, f), st.account.Epoch<<epochShift|1)})
		}
	}
	if len(fresh) > 0 {
		// Before any entry is in a division, the user's divisions say so: what
		// repairs or erases the user looks there.
		ops = append(ops, op{addDivisions, key.args(st.account.Epoch<<epochShift|1, fresh)})
		st.divisions = maps.Clone(st.divisions)
		for _, d := range fresh {
			st.divisions[d] = true
		}
	}
	return ops
}

// finishLight writes what changed, and the entry as it follows from the summary.
func (t *task) finishLight(ctx context.Context, key *userKey, e edition, sum summary, st *state, changed []leaderboard.MatchID) (bool, error) {
	// Step 1.
	if ops := t.writes(key, st, changed); len(ops) > 0 {
		if err := t.s.writeUser(ctx, ops...); err != nil {
			return false, err
		}
	}
	// Step 2.
	var now statics
	live, err := t.s.still(ctx, key.Scope, e, func(ctx context.Context) (err error) {
		now, err = t.s.readStatics(ctx, key)
		return err
	})
	if err != nil || !live || !now.known || now.account.Epoch != sum.account.Epoch {
		return false, err
	}
	if !now.same(&sum.statics) {
		// Another store wrote results, or an administrator acted. It may trust a
		// summary without what was just written, so it has to be told.
		t.s.drop(key)
		if err := t.s.writeUser(ctx, t.s.claim(key, &now)); err != nil {
			return false, err
		}
		return t.conclude(ctx, key, e, &now, claim{})
	}
	// Step 3.
	sum.divisions, sum.tally, sum.matches = st.divisions, st.tally, sum.matches.with(changed, st.matches)
	for _, id := range changed {
		sum.version += st.matches[id].version()
	}
	after := key.entry(t.b, &sum.tally, &sum.account, sum.version)
	t.change = leaderboard.Change{Before: sum.entry, After: after}
	if after.Version != sum.entry.Version {
		if err := t.s.place(ctx, key, e, &after, &sum.entry, nil); err != nil {
			return false, err
		}
		sum.entry = after
	}
	t.s.cache.Add(*key, sum)
	return true, nil
}

// finish writes what changed, with a claim, and the entry as it follows from
// the whole state.
func (t *task) finish(ctx context.Context, key *userKey, e edition, st *state, changed []leaderboard.MatchID) (bool, error) {
	switch {
	case len(changed) > 0:
	case st.known && t.s.mine(st.claim):
		return t.conclude(ctx, key, e, &st.statics, claim{})
	case !st.known && st.version() == st.account.version(): // there are no results
		none := key.entry(t.b, &leaderboard.Tally{}, &st.account, st.version())
		t.change = leaderboard.Change{Before: none, After: none}
		return true, nil
	case st.known:
		// What another data center wrote may be in this state, and not in the
		// summary of whoever holds the claim. Two entries of one version could then
		// be made, so that store has to be told.
	default:
		// Another writer's results came between the reads of the account and of
		// them, or came from another data center before it. What is not known yet
		// is written as if they were this writer's.
	}
	ops := t.writes(key, st, changed)
	if !st.known {
		if err := t.s.register(ctx, key, e, &st.statics); err != nil {
			return false, err
		}
		if !st.known {
			return false, nil // erased meanwhile: results may have to be rejected
		}
		ops = append(ops, op{setAccount, key.args(st.account.time(), st.account.append(nil))})
	}
	if err := t.s.writeUser(ctx, append(ops, t.s.claim(key, &st.statics))...); err != nil {
		return false, err
	}
	return t.conclude(ctx, key, e, &st.statics, st.claim)
}

// conclude does steps 2 and 3 with the whole state. as is what step 1 went by, and
// wrote as for settled.
func (t *task) conclude(ctx context.Context, key *userKey, e edition, as *statics, wrote claim) (bool, error) {
	st, change, live, err := t.s.derive(ctx, t.b, key, e, wrote)
	if err != nil || !live || !st.known || st.account.Epoch != as.account.Epoch {
		return false, err
	}
	t.change = change
	if t.s.cache != nil && st.claim == as.claim && t.s.mine(st.claim) {
		t.s.cache.Add(*key, summary{statics: st.statics, tally: st.tally, version: st.version(), entry: change.After, matches: st.matchSet()})
	}
	return true, nil
}

func (s *Store) mine(c claim) bool { return string(c[8:]) == string(s.name[:]) }

// register makes a user known in a season: to those who list its users, and to
// those who ban or erase the user. It fills in the account; known stays false if
// the user was erased meanwhile.
func (s *Store) register(ctx context.Context, key *userKey, e edition, st *statics) error {
	before := st.account
	scope := op{insertUserScope, []any{userHash(key.user), string(key.Board), string(key.Season), key.edition, before.Epoch<<epochShift | 1}}
	err := s.each(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return s.conn.write(ctx, scope)
		}
		return s.conn.write(ctx, op{registerUser, []any{string(key.Board), string(key.Season), key.edition,
			bucketOf(key.user, e.buckets), string(key.user), insertTime(before.Base)}})
	})
	if err != nil {
		return err
	}
	// Who bans or erases writes the account and then reads the scopes. If that
	// does not find this scope, this finds that account.
	st.account, _, err = s.readAccount(ctx, key.user)
	st.known = st.account.Epoch == before.Epoch
	return err
}

// still runs f, and says whether the edition of a scope was still e after it began.
func (s *Store) still(ctx context.Context, scope leaderboard.Scope, e edition, f func(ctx context.Context) error) (bool, error) {
	var now edition
	err := s.each(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			return f(ctx)
		}
		now, err = s.editions.fresh(ctx, scope)
		return err
	})
	return now.open && now.same(&e), err
}
