package cql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// maxTries bounds the number of attempts of a call for one user. If the season or the
// user is deleted during an attempt, the call starts another attempt.
const maxTries = 8

// Apply merges results into the stored ones. It processes users concurrently. If the
// store fails on one user's results, only the outcomes of these results have an Err.
func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	type seasonUser struct {
		season leaderboard.SeasonID
		user   leaderboard.UserID
	}
	var tasks []*task
	of := map[seasonUser]*task{}
	for i := range results {
		r := &results[i]
		if r.Board != b.ID {
			return leaderboard.ApplyReport{}, &leaderboard.FieldError{Field: "board_id", Problem: fmt.Sprintf("is %q in a result of board %q", r.Board, b.ID)}
		}
		w := seasonUser{r.Season, r.User}
		if of[w] == nil {
			of[w] = &task{s: s, b: b, seasonKey: r.SeasonKey, user: r.User}
			tasks = append(tasks, of[w])
		}
		of[w].results = append(of[w].results, r)
		of[w].at = append(of[w].at, i)
	}
	report := leaderboard.ApplyReport{Outcomes: make([]leaderboard.Outcome, len(results))}
	err := s.forEach(ctx, len(tasks), func(ctx context.Context, i int) error {
		tasks[i].err = tasks[i].run(ctx)
		if errors.Is(tasks[i].err, leaderboard.ErrBoardNotFound) {
			return tasks[i].err
		}
		return nil
	})
	failed := 0
	for _, t := range tasks {
		if t.err == nil && t.outcomes == nil {
			t.err = fault(ctx, "apply", err) // the task was not started
		}
		for n, i := range t.at {
			if t.err != nil {
				report.Outcomes[i] = leaderboard.Outcome{Err: t.err}
				failed++
				if err == nil { // otherwise err is the error that stopped all tasks
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

// A task is the part of an Apply that concerns one user in one season. It applies its
// results in the order of the Apply.
type task struct {
	s         *Store
	b         *leaderboard.Board // in an attempt, with the rules of the incarnation
	seasonKey leaderboard.SeasonKey
	user      leaderboard.UserID
	results   []*leaderboard.MatchResult
	at        []int // the index of each result in the arguments of Apply

	voids     map[leaderboard.MatchID]int64 // the Voids of the matches, on boards with Board.Matches
	deletedAt time.Time                     // the time of the last deletion before the season's incarnation, see incarnation.deletedAt
	outcomes  []leaderboard.Outcome
	written   bool // the last attempt has done step 1
	change    leaderboard.Change
	err       error
}

func (t *task) run(ctx context.Context) error {
	unlock, err := t.s.lock(ctx, t.user)
	if err != nil {
		return err
	}
	defer unlock()
	b := t.b
	var outcomes []leaderboard.Outcome // those of an attempt that wrote the results, but had outdated rules
	for range maxTries {
		inc, err := t.s.openIncarnation(ctx, b, t.seasonKey.Season)
		if err == nil {
			t.b, err = t.s.ruled(ctx, b, inc)
		}
		if err != nil {
			return err
		}
		t.deletedAt = inc.deletedAt
		key := &userKey{t.seasonKey, inc.number, t.user}
		if t.voids, err = t.readVoids(ctx, key); err != nil {
			return err
		}
		t.written = false
		done, err := t.attempt(ctx, key, inc)
		if err != nil {
			t.s.dropSummary(key) // the outcome of the writes is unknown
			return err
		}
		if done {
			if outcomes != nil {
				t.outcomes = outcomes
			}
			return nil
		}
		t.s.dropSummary(key)
		now, err := t.s.incarnations.cachedOrRead(ctx, t.seasonKey)
		if err != nil {
			return err
		}
		if t.written && outcomes == nil && now.number == inc.number && now.rules != inc.rules {
			outcomes = t.outcomes // the next attempt will find the results that this one wrote
		}
	}
	return fmt.Errorf("cql: user %q: the user or the season was deleted %d times during one call; repeat the call: %w", t.user, maxTries, leaderboard.ErrUnavailable)
}

// dropSummary removes a user's summary from the cache.
func (s *Store) dropSummary(key *userKey) {
	if s.cache != nil {
		s.cache.Remove(*key)
	}
}

// attempt applies the task's results. If the user's cached summary is sufficient, attempt
// uses it. Otherwise attempt reads the user's whole state. It returns false if the season
// or the user was deleted while attempt ran. The caller must then call attempt again.
func (t *task) attempt(ctx context.Context, key *userKey, inc incarnation) (bool, error) {
	if t.s.cache != nil {
		if sum, ok := t.s.cache.Get(*key); ok && sum.rules == inc.rules {
			st, changed, ok, err := t.mergeLight(ctx, key, sum)
			if err != nil {
				return false, err
			}
			if ok {
				return t.finishLight(ctx, key, inc, sum, st, changed)
			}
			t.s.dropSummary(key)
		}
	}
	st, err := t.s.readUser(ctx, t.b, key)
	if err != nil {
		return false, err
	}
	changed, ok, err := t.merge(st, size{st.version(), int64(len(st.matches))}, true)
	if err != nil || !ok {
		return false, err
	}
	return t.finish(ctx, key, inc, st, changed)
}

// readUser reads a user's whole state. If the user is not registered in the season, the
// season has no copy of the user's account; readUser then uses the account in table
// accounts.
func (s *Store) readUser(ctx context.Context, b *leaderboard.Board, key *userKey) (st *state, err error) {
	var acc userAccount
	err = s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			st, err = s.readWhole(ctx, b, key)
		} else {
			acc, err = s.readAccount(ctx, key.user)
		}
		return err
	})
	if err == nil && !st.known {
		st.account = acc.accountOn(b)
	}
	return st, err
}

// merge merges the results one after another into st, and returns the matches that must
// be written. The size oldSize is that of the user's whole state. If isWhole is false, st
// contains only a part of the state. If merge then needs the whole state, it returns
// false.
func (t *task) merge(st *state, oldSize size, isWhole bool) (changed []leaderboard.MatchID, ok bool, err error) {
	t.outcomes = make([]leaderboard.Outcome, len(t.results))
	touched := map[leaderboard.MatchID]bool{}
	for i, r := range t.results {
		m := st.match(r.Match)
		if !isWhole && m.result != nil && !m.counted {
			// The table has a result of the match, but the summary possibly does not
			// include it.
			return nil, false, nil
		}
		in := *r
		in.Voids = max(in.Voids, t.voids[r.Match])
		d := t.b.Merge(leaderboard.Known{Result: m.result, Refusals: m.refusals, Tally: st.tally, ErasedAt: st.account.ErasedAt, DeletedAt: t.deletedAt}, in)
		before, newSize := t.b.RankKey(&st.tally), oldSize
		if d.Put != nil {
			newSize.version += m.versionWith(d.Put) - m.version()
			if m.result == nil {
				newSize.matches++
			}
			if refused := t.checkSize(d.Put, oldSize, newSize); refused != nil && !d.VoidsOnly {
				d = *refused
			}
		}
		t.outcomes[i] = d.Outcome(before, before)
		if d.Refuse == nil && d.Put == nil {
			continue
		}
		if d.Refuse != nil {
			m.refusals = append(m.refusals, *d.Refuse)
		}
		if d.Put != nil {
			if d.Recount && !isWhole {
				return nil, false, nil
			}
			if d.VoidsOnly {
				m.result = d.Put
			} else {
				m.put(d.Put)
			}
			st.tally, oldSize = d.Tally, newSize
			if d.Recount {
				if err := st.setTally(t.b); err != nil {
					return nil, false, err
				}
			}
			t.outcomes[i].After = t.b.RankKey(&st.tally)
		}
		if !touched[r.Match] {
			touched[r.Match] = true
			changed = append(changed, r.Match)
		}
	}
	return changed, true, nil
}

// A size is the size of a user's state in a season.
type size struct {
	version uint64
	matches int64
}

// checkSize checks the size that the user's state would have with the result r. It returns
// nil if the store may accept r. If the state would become too large, it returns the
// decision to refuse r.
//
// The version is bounded because erasures and bans must still be able to raise it. The
// number of matches is bounded because the store must be able to read them all in one
// call. If a user has too many matches, the store does not store the refusal: it would
// have to read the refusal together with the matches.
func (t *task) checkSize(r *leaderboard.MatchResult, oldSize, newSize size) *leaderboard.Decision {
	d := &leaderboard.Decision{Status: leaderboard.Rejected, Reason: leaderboard.ReasonRange}
	bound := uint64(maxResultVersion)
	if r.Retracted {
		bound += versionRoom / 2
	}
	switch {
	case newSize.version > bound && newSize.version > oldSize.version:
		d.Refuse = &leaderboard.Refusal{Revision: r.Revision, Reason: d.Reason, Content: r.ContentID(), ReceivedAt: leaderboard.Truncate(r.ReceivedAt)}
		return d
	case newSize.matches > t.s.maxMatches && newSize.matches > oldSize.matches:
		return d
	}
	return nil
}

// mergeLight merges the results into a cached summary. It reads nothing if the summary
// shows for each result either that the table has the same result, or that the match is
// new. Otherwise mergeLight reads the matches of the results from the table. If it needs
// the whole state, mergeLight returns false.
//
// Some refusals depend on the tally, and an outdated summary has a wrong tally. On a
// board with a floor, mergeLight therefore first reads the claim, which shows whether the
// summary is outdated. On other boards, only sums out of range and too many results lead
// to such refusals. These are rare: mergeLight returns false, so that the caller reads
// the whole state.
func (t *task) mergeLight(ctx context.Context, key *userKey, sum summary) (st *state, changed []leaderboard.MatchID, ok bool, err error) {
	ids := map[leaderboard.MatchID]bool{}
	for _, r := range t.results {
		if ids[r.Match] || r.VoidOnly || r.Voids > 0 || t.voids[r.Match] > 0 {
			return nil, nil, false, nil
		}
		ids[r.Match] = true
	}
	now := sum.statics
	st = &state{matches: map[leaderboard.MatchID]*match{}}
	var reads []func(context.Context) error
	for _, r := range t.results {
		if stands, unseen := sum.set.lookUp(r); stands {
			have := r.Normalize()
			st.matches[r.Match] = &match{result: &have, counted: true}
		} else if !unseen {
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
	err = t.s.forEach(ctx, len(reads), func(ctx context.Context, i int) error { return reads[i](ctx) })
	if err != nil || !now.same(&sum.statics) {
		return nil, nil, false, err
	}
	st.statics, st.tally = sum.statics, sum.tally
	if changed, ok, err = t.merge(st, sum.size, false); err != nil || !ok {
		return nil, nil, false, err
	}
	beyond := slices.ContainsFunc(t.outcomes, func(o leaderboard.Outcome) bool { return o.Reason == leaderboard.ReasonRange })
	return st, changed, !beyond || t.b.Floor != nil, nil
}

// writeOps returns the statements that write the changed matches. If the entry that follows
// from st has divisions that are new for the user, a statement also adds their names to
// the user's partition.
func (t *task) writeOps(key *userKey, st *state, changed []leaderboard.MatchID) []op {
	var ops []op
	for _, id := range changed {
		m := st.matches[id]
		if m.row.payload != nil {
			ops = append(ops, op{insertResult, append(key.args(), string(id), m.row.payload, m.high, m.low,
				resultTime(st.account.Epoch, m.row.revision))})
		}
		if m.result != nil && m.result.Voids > m.voids {
			ops = append(ops, voidOp(key, st, id, m.result.Voids))
			m.voids = m.result.Voids
		}
		for i := range m.refusals {
			f := &m.refusals[i]
			ops = append(ops, op{insertItem, append(key.args(), string(id), int8(kindRefusal), refusalItem(f),
				appendRefusal(nil, f), st.account.Epoch<<epochShift|1)})
		}
	}
	if len(changed) > 0 && len(t.b.Divisions) > 0 {
		entry := key.entry(t.b, &st.tally, &st.account, 0)
		ops = append(ops, st.addDivisions(key, &entry)...)
	}
	return ops
}

// writeResults does step 1 of a writer (see state.go): it writes ops, which contain the
// changed matches, if any. On boards with Board.Matches, it then writes the Voids of the
// task's matches that are greater by now. This is before step 2, because of two claims with
// the same number, either may stand. It reports whether there were such Voids.
func (t *task) writeResults(ctx context.Context, key *userKey, inc incarnation, st *state, ops []op) (late bool, err error) {
	ids := t.listed(st)
	if err := t.listUser(ctx, key, inc, st, ids); err != nil {
		return false, err
	}
	if err := t.s.writeUser(ctx, ops...); err != nil {
		return false, err
	}
	voids, err := t.lateVoids(ctx, key, st, ids)
	if err != nil {
		return false, err
	}
	return len(voids) > 0, t.s.writeUser(ctx, voids...)
}

// finishLight does the three steps of a writer (see state.go) with a summary instead of
// the whole state. It writes the changed matches, and then the entry that follows from
// the summary.
func (t *task) finishLight(ctx context.Context, key *userKey, inc incarnation, sum summary, st *state, changed []leaderboard.MatchID) (bool, error) {
	// Step 1.
	late, err := t.writeResults(ctx, key, inc, st, t.writeOps(key, st, changed))
	if err != nil {
		return false, err
	}
	// Step 2.
	t.written = true
	var now statics
	live, err := t.s.whileOpen(ctx, key.SeasonKey, inc, func(ctx context.Context) (err error) {
		now, err = t.s.readStatics(ctx, key)
		return err
	})
	if err != nil || !live || !now.known || now.account.Epoch != sum.account.Epoch {
		return false, err
	}
	if !now.same(&sum.statics) || late {
		// Another store claimed the user, or the account changed. The other store may
		// have cached a summary without the results that step 1 wrote. A new claim makes
		// the other store read the whole state.
		t.s.dropSummary(key)
		if err := t.s.writeUser(ctx, t.s.newClaim(key, &now)); err != nil {
			return false, err
		}
		return t.conclude(ctx, key, inc, &now, claim{})
	}
	// Step 3.
	sum.divisions, sum.tally, sum.set = st.divisions, st.tally, sum.set.add(changed, st.matches)
	for _, id := range changed {
		sum.version += st.matches[id].version()
		sum.size.matches++
	}
	after := key.entry(t.b, &sum.tally, &sum.account, sum.version)
	t.change = leaderboard.Change{Before: sum.entry, After: after}
	if after.Version != sum.entry.Version {
		if err := t.s.place(ctx, key, inc, &sum.statics, &after, &sum.entry, nil); err != nil {
			return false, err
		}
		sum.entry = after
	}
	t.s.cache.Add(*key, sum)
	return true, nil
}

// finish does the three steps of a writer (see state.go) with the whole state. It writes
// the changed matches together with a claim, and then the entry that follows from the
// whole state.
func (t *task) finish(ctx context.Context, key *userKey, inc incarnation, st *state, changed []leaderboard.MatchID) (bool, error) {
	switch {
	case len(changed) > 0:
	case st.known && t.s.ownsClaim(st.claim):
		if _, err := t.writeResults(ctx, key, inc, st, nil); err != nil {
			return false, err
		}
		return t.conclude(ctx, key, inc, &st.statics, claim{})
	case !st.known && st.version() == st.account.version(): // the user has no results
		none := key.entry(t.b, &leaderboard.Tally{}, &st.account, st.version())
		t.change = leaderboard.Change{Before: none, After: none}
		return true, nil
	case st.known:
		// Another store holds the claim. The state may include results from another data
		// center that the other store's summary does not include. Then the two stores
		// could write different entries with the same version. A new claim makes the
		// other store read the whole state.
	default:
		// readUser read results of the user, but no account. Either another writer
		// registered the user between the two reads, or the results arrived from another
		// data center before the account. In both cases, register the user and write the
		// account, as for a user's first result.
	}
	ops := t.writeOps(key, st, changed)
	if !st.known {
		if err := t.s.register(ctx, t.b, key, inc, &st.statics); err != nil {
			return false, err
		}
		if !st.known {
			return false, nil // the user was erased after readUser, so Merge may now decide differently
		}
		ops = append(ops, op{setAccount, key.args(st.account.writeTime(), st.account.append(nil))})
	}
	if _, err := t.writeResults(ctx, key, inc, st, append(ops, t.s.newClaim(key, &st.statics))); err != nil {
		return false, err
	}
	t.written = true
	return t.conclude(ctx, key, inc, &st.statics, st.claim)
}

// conclude does steps 2 and 3 of a writer (see state.go) with the whole state. The
// argument oldStatics contains the static cells that the caller read before step 1. The
// argument ownClaim is the claim that step 1 wrote, or zero if step 1 wrote no claim.
func (t *task) conclude(ctx context.Context, key *userKey, inc incarnation, oldStatics *statics, ownClaim claim) (bool, error) {
	st, change, live, err := t.s.derive(ctx, t.b, key, inc, ownClaim)
	if err != nil || !live || !st.known || st.account.Epoch != oldStatics.account.Epoch {
		return false, err
	}
	t.change = change
	if t.s.cache != nil && st.claim == oldStatics.claim && t.s.ownsClaim(st.claim) {
		t.s.cache.Add(*key, summary{statics: st.statics, tally: st.tally, size: size{st.version(), int64(len(st.matches))}, entry: change.After, rules: t.b.Rules(), set: st.matchSet()})
	}
	return true, nil
}

// register adds a user to the season's list of users, and the season to the user's list
// of seasons. It then reads the user's account into st. It sets st.known to true, except
// if the user was erased after the caller had read st.account.
func (s *Store) register(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, st *statics) error {
	before := st.account
	addSeason := op{insertUserSeason, []any{userHash(key.user), string(key.Board), string(key.Season), key.incarnation, before.Epoch<<epochShift | 1}}
	err := s.forEach(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return s.conn.write(ctx, addSeason)
		}
		return s.conn.write(ctx, op{registerUser, []any{string(key.Board), string(key.Season), key.incarnation,
			bucketOf(key.user, inc.buckets), string(key.user), insertTime(before.Base)}})
	})
	if err != nil {
		return err
	}
	// SetBan and Erase write the account first, and then read the user's list of seasons.
	// If that list does not yet contain this season, the account was written before the
	// read below, and the read finds it.
	acc, err := s.readAccount(ctx, key.user)
	st.account = acc.accountOn(b)
	st.known = st.account.Epoch == before.Epoch
	return err
}

// whileOpen runs f, and concurrently reads the season's incarnation from the table. It
// reports whether inc was still the season's open incarnation at that read.
func (s *Store) whileOpen(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, f func(ctx context.Context) error) (bool, error) {
	var now incarnation
	err := s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			return f(ctx)
		}
		now, err = s.incarnations.readAgain(ctx, seasonKey)
		return err
	})
	return now.open && now.same(&inc), err
}
