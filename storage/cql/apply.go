package cql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// maxTries bounds the attempts of one call. An attempt fails if the user or the season is
// deleted meanwhile, or the divisions change.
const maxTries = 8

// maxApplying bounds the users that all Apply calls of a store process at a time.
const maxApplying = 128

// Apply merges results into the stored results. When ctx is done, it finishes the users
// that it has started, and starts no others.
func (s *Store) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (_ leaderboard.ApplyReport, hasMatches bool, err error) {
	type seasonUser struct {
		season leaderboard.SeasonID
		user   leaderboard.UserID
	}
	var tasks []*task
	byUser := map[seasonUser]*task{}
	for i := range results {
		r := &results[i]
		if r.Board != b.ID {
			return leaderboard.ApplyReport{}, false, &leaderboard.FieldError{Field: "board_id", Problem: fmt.Sprintf("is %q, but Apply was called for board %q", r.Board, b.ID)}
		}
		key := seasonUser{r.Season, r.User}
		if byUser[key] == nil {
			byUser[key] = &task{s: s, b: b, seasonKey: r.SeasonKey, user: r.User}
			tasks = append(tasks, byUser[key])
		}
		byUser[key].results = append(byUser[key].results, r)
		byUser[key].indexes = append(byUser[key].indexes, i)
	}
	report := leaderboard.ApplyReport{Outcomes: make([]leaderboard.Outcome, len(results))}
	err = s.forEach(ctx, len(tasks), func(ctx context.Context, i int) error {
		tasks[i].err = tasks[i].run(ctx)
		if errors.Is(tasks[i].err, leaderboard.ErrBoardNotFound) {
			return tasks[i].err
		}
		return nil
	})
	failed := 0
	for _, t := range tasks {
		if t.err == nil && t.outcomes == nil {
			t.err = wrapError(ctx, "apply", err)
		}
		for n, i := range t.indexes {
			if t.err != nil {
				report.Outcomes[i] = leaderboard.Outcome{Err: t.err}
				failed++
				if err == nil {
					err = t.err
				}
				continue
			}
			report.Outcomes[i] = t.outcomes[n]
			report.Outcomes[i].Entry = t.change.After
		}
		hasMatches = hasMatches || t.err == nil && t.b.Matches
		if t.err == nil && t.change.Before.Version != t.change.After.Version {
			report.Changes = append(report.Changes, t.change)
		}
	}
	if failed > 0 && failed == len(results) {
		return leaderboard.ApplyReport{}, false, err
	}
	return report, hasMatches, nil
}

// A task is the part of an Apply that concerns one user in one season.
type task struct {
	s         *Store
	b         *leaderboard.Board // in an attempt, has the rules of the incarnation
	seasonKey leaderboard.SeasonKey
	user      leaderboard.UserID
	results   []*leaderboard.MatchResult
	indexes   []int

	recent    map[leaderboard.MatchID][]leaderboard.Refusal // stored recent refusals: see refusals.go
	refused   map[leaderboard.MatchID][]leaderboard.Refusal // recent refusals of this attempt
	voids     map[leaderboard.MatchID]int64
	deletedAt time.Time // see incarnation.deletedAt
	outcomes  []leaderboard.Outcome
	written   bool // this attempt has done step 1 of a writer: see state.go
	wasEmpty  bool // before step 1, the user had no state
	change    leaderboard.Change
	err       error
}

// Once run has the user's lock and has sent to Store.applying, it ignores the end of ctx.
func (t *task) run(ctx context.Context) error {
	unlock, err := t.s.lock(ctx, t.user)
	if err != nil {
		return err
	}
	defer unlock()
	select {
	case t.s.applying <- struct{}{}:
		defer func() { <-t.s.applying }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return wrapError(ctx, "apply", err)
	}
	ctx = context.WithoutCancel(ctx)
	b := t.b
	if err := t.readRecent(ctx); err != nil {
		return err
	}
	var outcomes []leaderboard.Outcome // of the first attempt that wrote the results with outdated rules
	for range maxTries {
		if done, err := t.doneUnopened(ctx); done || err != nil {
			return err
		}
		inc, err := t.s.openIncarnation(ctx, b, t.seasonKey.Season, t.s.checkSeasons)
		if errors.Is(err, errFull) {
			return t.decideUnopened(ctx, b.RefuseSeason)
		}
		if err == nil {
			t.b, err = t.s.boardWithRules(ctx, b, inc)
		}
		if err != nil {
			return err
		}
		t.deletedAt = inc.deletedAt
		key := &userKey{t.seasonKey, inc.number, t.user}
		if t.voids, err = t.readVoids(ctx, inc); err != nil {
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
		current, err := t.s.incarnations.cachedOrRead(ctx, t.seasonKey)
		if err != nil {
			return err
		}
		if t.written && outcomes == nil && current.number == inc.number && current.rules != inc.rules {
			outcomes = t.outcomes // the next attempt regards these results as duplicates
		}
	}
	return fmt.Errorf("cql: user %q: in each of %d attempts, the user or the season was deleted or the board's divisions changed; repeat the call: %w", t.user, maxTries, leaderboard.ErrUnavailable)
}

// doneUnopened reports whether the task is done, and the caller must not open an incarnation.
func (t *task) doneUnopened(ctx context.Context) (bool, error) {
	if done, err := t.nothingToVoid(ctx); done || err != nil {
		return done, err
	}
	return t.refuseUnopened(ctx)
}

// nothingToVoid reports whether all results are VoidOnly and the season has no data. If so,
// it sets outcomes and change, and the caller must not open an incarnation.
func (t *task) nothingToVoid(ctx context.Context) (bool, error) {
	if slices.ContainsFunc(t.results, func(r *leaderboard.MatchResult) bool { return !r.VoidOnly }) {
		return false, nil
	}
	inc, err := t.s.incarnations.cachedOrRead(ctx, t.seasonKey)
	if err != nil || inc.openFor(t.b) {
		return false, err
	}
	if _, err := t.s.liveBoard(ctx, t.b); err != nil {
		return false, err
	}
	t.outcomes = make([]leaderboard.Outcome, len(t.results))
	for i := range t.outcomes {
		t.outcomes[i].Status = leaderboard.Duplicate
	}
	none := leaderboard.Entry{SeasonKey: t.seasonKey, User: t.user}
	t.change = leaderboard.Change{Before: none, After: none}
	return true, nil
}

func (s *Store) dropSummary(key *userKey) {
	if s.cache != nil {
		s.cache.Remove(*key)
	}
}

// attempt applies the results with the cached or stored summary (see summary.go), or with
// the whole state. If it returns false, the caller must start another attempt.
func (t *task) attempt(ctx context.Context, key *userKey, inc incarnation) (bool, error) {
	if t.s.cache != nil {
		if sum, ok := t.s.cache.Get(*key); ok && sum.rules == inc.rules {
			st, changedIDs, ok, err := t.mergeIntoSummary(ctx, key, sum)
			if err != nil {
				return false, err
			}
			if ok {
				return t.finishWithSummary(ctx, key, inc, sum, st, changedIDs)
			}
			t.s.dropSummary(key)
		}
	}
	st, whole, err := t.s.readUser(ctx, t.b, key)
	if err == nil && !whole {
		if done, ok, err := t.adopt(ctx, key, inc, st); ok || err != nil {
			return done, err
		}
		st, err = t.s.readRest(ctx, key, st)
	}
	if err == nil {
		err = st.setTally(t.b)
	}
	if err != nil {
		return false, err
	}
	t.wasEmpty = st.empty()
	changedIDs, ok, err := t.merge(st, size{st.version(), int64(len(st.matches))}, true)
	if err != nil || !ok {
		return false, err
	}
	return t.finish(ctx, key, inc, st, changedIDs)
}

// readUser calls readHead. If the season has no copy of the account, readUser takes the
// account from the engine.
func (s *Store) readUser(ctx context.Context, b *leaderboard.Board, key *userKey) (st *state, whole bool, err error) {
	var acc account
	err = s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			st, whole, err = s.readHead(ctx, key)
		} else {
			acc, err = s.readAccount(ctx, key.user, b)
		}
		return err
	})
	if err == nil && !st.registered {
		st.account = acc
	}
	return st, whole, err
}

// merge merges the results into st, and returns the ids of the matches to write. If isWhole
// is false, st is a part of the state, and ok is false if merge needs the whole state.
// oldSize is the size of the whole state.
func (t *task) merge(st *state, oldSize size, isWhole bool) (changedIDs []leaderboard.MatchID, ok bool, err error) {
	t.refused, t.outcomes = nil, make([]leaderboard.Outcome, len(t.results))
	touched := map[leaderboard.MatchID]bool{}
	for i, r := range t.results {
		m := st.match(r.Match)
		if !isWhole && m.result != nil && !m.counted {
			// the tally of the summary may lack this result
			return nil, false, nil
		}
		incoming := *r
		incoming.Voids = max(incoming.Voids, t.voids[r.Match])
		d := t.b.Merge(leaderboard.Known{Result: m.result, Refusals: t.knownRefusals(r.Match, m.refusals), Tally: st.tally, ErasedAt: st.account.ErasedAt, DeletedAt: t.deletedAt}, incoming)
		if !isWhole && m.result != nil && (d.Status != leaderboard.Duplicate || d.Put != nil) {
			return nil, false, nil // only a repetition leaves the tally unchanged
		}
		keyBefore, newSize := t.b.RankKey(&st.tally), oldSize
		if d.Put != nil {
			newSize.version += m.versionWith(d.Put) - m.version()
			if m.result == nil {
				newSize.matches++
			}
			if rejection := t.checkSize(d.Put, oldSize, newSize); rejection != nil && !d.VoidsOnly {
				d = *rejection
			}
		}
		t.outcomes[i] = d.Outcome(keyBefore, keyBefore)
		if d.Refuse != nil && d.Reason.IsRecent() {
			t.addRecent(r.Match, d.Refuse)
			d.Refuse = nil
		}
		if d.Refuse == nil && d.Put == nil {
			continue
		}
		if d.Refuse != nil {
			m.refusals = append(m.refusals, *d.Refuse)
		}
		if d.Put != nil {
			if !isWhole && d.Recount {
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
			changedIDs = append(changedIDs, r.Match)
		}
	}
	return changedIDs, true, nil
}

type size struct {
	version uint64
	matches int64
}

// checkSize returns nil if the store may accept r, otherwise the decision to refuse r.
// newSize is the size with r. A refusal because of too many matches is not stored: it would
// slow down every read of the user's state.
func (t *task) checkSize(r *leaderboard.MatchResult, oldSize, newSize size) *leaderboard.Decision {
	d := &leaderboard.Decision{Status: leaderboard.Rejected, Reason: leaderboard.ReasonRange}
	bound := uint64(maxResultVersion)
	if r.Retracted {
		bound += storage.VersionRoom / 2
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

// mergeIntoSummary merges the results into a cached or stored summary. If the summary does
// not suffice, it reads the matches of the results. It returns false if it needs the whole
// state, or if the last batch of a stored summary may be incomplete (see adopt.go).
//
// Refusals with ReasonRange depend on the tally, which is wrong in an outdated summary. On
// a board with a Floor, mergeIntoSummary reads the claim, which shows whether the summary
// is outdated. On other boards, it returns false for such a refusal.
func (t *task) mergeIntoSummary(ctx context.Context, key *userKey, sum summary) (st *state, changedIDs []leaderboard.MatchID, ok bool, err error) {
	ids := map[leaderboard.MatchID]bool{}
	for _, r := range t.results {
		if ids[r.Match] || r.VoidOnly || r.Voids > 0 || t.voids[r.Match] > 0 {
			return nil, nil, false, nil
		}
		ids[r.Match] = true
	}
	current := sum.statics
	st = &state{matches: map[leaderboard.MatchID]*match{}}
	var reads []func(context.Context) error
	for _, r := range t.results {
		if stands, unseen := sum.set.lookUp(r); stands {
			stored := r.Normalize()
			st.matches[r.Match] = &match{result: &stored, counted: true}
		} else if !unseen {
			reads = append(reads, func(ctx context.Context) (err error) {
				st, err = t.s.readState(ctx, key, sum.idsToRead(ids))
				return err
			})
			break
		}
	}
	if t.b.Floor != nil {
		reads = append(reads, func(ctx context.Context) (err error) {
			current, err = t.s.readStatics(ctx, key)
			return err
		})
	}
	err = t.s.forEach(ctx, len(reads), func(ctx context.Context, i int) error { return reads[i](ctx) })
	if err != nil || !current.same(&sum.statics) {
		return nil, nil, false, err
	}
	if all := sum.knows(st); sum.unchecked && !all {
		return nil, nil, false, nil
	}
	st.statics, st.tally = sum.statics, sum.tally
	if changedIDs, ok, err = t.merge(st, sum.size, false); err != nil || !ok {
		return nil, nil, false, err
	}
	outOfRange := slices.ContainsFunc(t.outcomes, func(o leaderboard.Outcome) bool { return o.Reason == leaderboard.ReasonRange })
	return st, changedIDs, !outOfRange || t.b.Floor != nil, nil
}

func (t *task) writeOps(key *userKey, st *state, changedIDs []leaderboard.MatchID) []op {
	var ops []op
	for _, id := range changedIDs {
		m := st.matches[id]
		if m.row.payload != nil {
			ops = append(ops, op{insertResult, append(key.args(), string(id), m.row.payload, m.high, m.low,
				resultTime(st.account.Epoch, m.row.revision))})
		}
		if m.result != nil && m.result.Voids > m.voids {
			m.voids = m.result.Voids
			ops = append(ops, op{insertItem, append(key.args(), string(id), int8(kindVoid), []byte{}, binary.AppendUvarint(nil, uint64(m.voids)), st.account.Epoch<<epochShift|m.voids)})
		}
		for i := range m.refusals {
			f := &m.refusals[i]
			ops = append(ops, op{insertItem, append(key.args(), string(id), int8(kindRefusal), refusalItem(f),
				appendRefusal(nil, f), st.account.Epoch<<epochShift|1)})
		}
	}
	if len(changedIDs) > 0 && len(t.b.Divisions) > 0 {
		entry := key.entry(t.b, &st.tally, &st.account, 0)
		ops = append(ops, st.addDivisions(key, &entry)...)
	}
	return ops
}

// readVoids returns the Voids of the results' matches.
func (t *task) readVoids(ctx context.Context, inc incarnation) (map[leaderboard.MatchID]int64, error) {
	if !t.b.Matches {
		return nil, nil
	}
	var ids []leaderboard.MatchID
	for _, r := range t.results {
		ids = append(ids, r.Match)
	}
	known := inc.known(t.seasonKey)
	return t.s.engine.Voids(ctx, &known, ids)
}

func (t *task) finishWithSummary(ctx context.Context, key *userKey, inc incarnation, sum summary, st *state, changedIDs []leaderboard.MatchID) (bool, error) {
	// Step 1.
	if err := t.writeRecent(ctx, &sum.account); err != nil {
		return false, err
	}
	ops, old := t.writeOps(key, st, changedIDs), sum.entry
	sum = sum.after(st, changedIDs)
	if len(changedIDs) > 0 && sum.matches >= int64(t.s.storedFrom) {
		ops = append(ops, t.s.storeSummary(key, &sum))
	}
	if err := t.s.writeUser(ctx, ops...); err != nil {
		return false, err
	}
	// Step 2.
	t.written = true
	var current statics
	var stored storedEntry
	var rows []row
	live, err := t.s.whileOpen(ctx, key.SeasonKey, inc, func(ctx context.Context) (err error) {
		if sum.unchecked {
			current, stored, rows, err = t.s.inspectStatics(ctx, key, inc)
			return err
		}
		current, err = t.s.readStatics(ctx, key)
		return err
	})
	if err != nil || !live || !current.registered || current.account.Epoch != sum.account.Epoch {
		return false, err
	}
	sum.entry = key.entry(t.b, &sum.tally, &sum.account, sum.version)
	if !current.same(&sum.statics) || stored.entry != nil && stored.entry.Version > sum.entry.Version {
		// A new claim makes other stores read the whole state: their summaries may lack the
		// data of step 1.
		t.s.dropSummary(key)
		if err := t.s.writeUser(ctx, t.s.newClaim(key, &current)); err != nil {
			return false, err
		}
		return t.conclude(ctx, key, inc, &current, claim{})
	}
	// Step 3.
	correct := sum.entry.Version == old.Version
	if sum.unchecked {
		old = stored.entryOr(key.entry(t.b, &leaderboard.Tally{}, &sum.account, sum.account.version()))
		correct = stored.equals(&sum.entry) && !rowsDiffer(rows, &sum.entry)
		sum.unchecked = false
	}
	t.change = leaderboard.Change{Before: old, After: sum.entry}
	if !correct {
		if err := t.s.place(ctx, key, inc, &sum.statics, &sum.entry, &old, rowKeysOf(rows)); err != nil {
			return false, err
		}
	}
	t.s.addSummary(key, sum)
	return true, nil
}

// finish does the three steps of a writer (see state.go) with the whole state. If it
// returns false, the caller must start another attempt.
func (t *task) finish(ctx context.Context, key *userKey, inc incarnation, st *state, changedIDs []leaderboard.MatchID) (bool, error) {
	if err := t.writeRecent(ctx, &st.account); err != nil {
		return false, err
	}
	switch {
	case len(changedIDs) > 0:
	case !st.registered && st.version() == st.account.version():
		none := key.entry(t.b, &leaderboard.Tally{}, &st.account, st.version())
		t.change = leaderboard.Change{Before: none, After: none}
		return true, nil
	case st.registered:
		// Write a new claim. If another store is the holder (see adopt.go), its summary may
		// lack results from another data center, and both stores could write different
		// entries with the same version. The claim makes the holder read the whole state. If
		// this store is the holder, it needs a new term, because it lost its summary.
	default:
		// Register the user. The results arrived from another data center before the
		// account, or another writer is registering the user.
	}
	ops := t.writeOps(key, st, changedIDs)
	if !st.registered {
		if err := t.s.register(ctx, t.b, key, inc, &st.statics); err != nil {
			return false, err
		}
		if !st.registered {
			return false, nil // the user was erased after readUser, so Merge may now decide differently
		}
		ops = append(ops, key.setAccount(&st.account)...)
	}
	if err := t.s.writeUser(ctx, append(ops, t.s.newClaim(key, &st.statics))...); err != nil {
		return false, err
	}
	t.written = true
	if t.wasEmpty && st.account.Epoch == 0 {
		done, err := t.concludeFirst(ctx, key, inc, st, changedIDs)
		if done || err != nil {
			return done, err
		}
	}
	return t.conclude(ctx, key, inc, &st.statics, st.claim)
}

// concludeFirst does steps 2 and 3 for a user whose state was empty before step 1. If the
// stored state has more than st, it returns false, and the caller must call conclude.
//
// concludeFirst need not look for an older entry or rows. Only step 3 of another writer Y
// could write them, after step 1 of Y wrote an account and a claim. This writer reads the
// state before step 1, and again in concludeFirst:
//
//   - If step 1 of Y ended before the first read, the state was not empty.
//   - If step 1 of Y ended between the reads, the second read includes all that step 1 of Y
//     wrote. If this read finds the claim of Y or another result, concludeFirst returns
//     false. Otherwise, both writers have the same results, and Y writes the same entry.
//   - If step 1 of Y ends after the second read, Y reads the results of both writers, and
//     looks for older rows itself.
//
// After an erasure, rows of an earlier epoch may remain, so finish does not call
// concludeFirst. Rows may also arrive from another data center, whose writers remove them.
func (t *task) concludeFirst(ctx context.Context, key *userKey, inc incarnation, st *state, changedIDs []leaderboard.MatchID) (bool, error) {
	var current *state
	live, err := t.s.whileOpen(ctx, key.SeasonKey, inc, func(ctx context.Context) (err error) {
		current, err = t.s.readWhole(ctx, t.b, key)
		return err
	})
	if err != nil || !live || !current.isOnly(st, changedIDs) {
		return false, err
	}
	want, none := current.entries(t.b, key)
	t.change = leaderboard.Change{Before: none, After: want}
	if want.Version != none.Version {
		if err := t.s.place(ctx, key, inc, &current.statics, &want, &none, nil); err != nil {
			return false, err
		}
	}
	return true, t.cacheSummary(ctx, key, current)
}

// cacheSummary requires that this store owns the claim of st.
func (t *task) cacheSummary(ctx context.Context, key *userKey, st *state) error {
	sum := summary{statics: st.statics, tally: st.tally, size: size{st.version(), int64(len(st.matches))}, entry: t.change.After, rules: t.b.Rules(), set: st.matchSet()}
	if len(st.matches) >= t.s.storedFrom {
		if err := t.s.writeUser(ctx, t.s.storeSummary(key, &sum)); err != nil {
			return err
		}
	}
	t.s.addSummary(key, sum)
	return nil
}

func (s *Store) addSummary(key *userKey, sum summary) {
	if len(sum.last) > maxMatchSet {
		sum.last = nil
	}
	if s.cache != nil {
		s.cache.Add(*key, sum)
	}
}

// conclude does steps 2 and 3 with the whole state. oldStatics has the last claim that the
// caller wrote. See readResolved for ownClaim.
func (t *task) conclude(ctx context.Context, key *userKey, inc incarnation, oldStatics *statics, ownClaim claim) (bool, error) {
	st, change, live, err := t.s.derive(ctx, t.b, key, inc, ownClaim)
	if err != nil || !live || !st.registered || st.account.Epoch != oldStatics.account.Epoch {
		return false, err
	}
	t.change = change
	if st.claim == oldStatics.claim && t.s.ownsClaim(st.claim) {
		return true, t.cacheSummary(ctx, key, st)
	}
	return true, nil
}

func (k *userKey) registration(inc incarnation, acc *account) op {
	return op{registerUser, []any{string(k.Board), string(k.Season), k.incarnation, bucketOf(k.user, inc.buckets), string(k.user), insertTime(acc.Base)}}
}

// register registers the user in the season, and reads the account into st. It sets
// st.registered, unless the user was erased after the caller read st.account.
func (s *Store) register(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, st *statics) error {
	previous := st.account
	addSeason := op{insertUserSeason, []any{userHash(key.user), string(key.Board), string(key.Season), key.incarnation, previous.Epoch<<epochShift | 1}}
	err := s.forEach(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return s.conn.write(ctx, addSeason)
		}
		return s.conn.write(ctx, key.registration(inc, &previous))
	})
	if err != nil {
		return err
	}
	// SetBan and Erase change the account, and then read the user's seasons. If they miss
	// this season, the following read finds the changed account.
	st.account, err = s.readAccount(ctx, key.user, b)
	st.registered = st.account.Epoch == previous.Epoch
	return err
}

// whileOpen runs f and reads the season's row. It reports whether inc is still open, with
// unchanged rules.
func (s *Store) whileOpen(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, f func(ctx context.Context) error) (bool, error) {
	var current incarnation
	err := s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			return f(ctx)
		}
		current, err = s.incarnations.readAgain(ctx, seasonKey)
		return err
	})
	return current.open && current.same(&inc), err
}
