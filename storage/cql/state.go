package cql

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// # Why no lock is needed
//
// A user's state in a season is what the user's entry is made of: the results,
// the account (bans and erasures), and the rows that say that payloads of one
// revision met. Each part is a join, of which Cassandra keeps the greatest
// whatever the order of writes, so the state only grows. The version of a state,
// [state.version], is a number that grows strictly with it.
//
// A writer, one of many in any number of processes, does three steps, each at a
// quorum of the data center and each after the one before:
//
//  1. it writes its part of the state;
//  2. it reads the state;
//  3. it writes the entry that the state makes, and the rows of the ladders,
//     under timestamps made of the state's version.
//
// Take any two writers. One of them ends its step 1 last, and begins its step 2
// after that, so it reads what both have written. Hence of all writers that have
// come to step 2, one has read all that they wrote, and no version is greater
// than that of its state. A writer with the same version has read the same
// state, as all states are parts of the whole one, and writes the same bytes at
// the same timestamps. So once all are done the entry is that of the whole
// state, whatever the order of their steps, however often each is repeated, and
// however long any of them slept in between. Until then there may be two entries
// of one version, from states that each lack something; Cassandra keeps either.
//
// A writer that dies before step 3 has acknowledged nothing, and its result is
// sent again. It is then found in the state, and steps 2 and 3 are done.
//
// In several data centers a quorum of one does not see the other's writes. There
// every result comes through the log of each data center, so each has a writer
// that is the last of that data center, and has seen all.
//
// # Why the whole state need not be read every time
//
// Step 2 costs as much as the user has results. A store keeps summaries of the
// users that it works on ([summary]: the tally and the version) and in step 2
// reads, in place of the results, whether it is still the one that holds the
// claim: a static cell of the partition, which a store writes together with its
// results unless it holds it already. Let store X hold the claim, with a summary
// of all results that were there when it had written its claim, and of those
// that it wrote since. Let Y write a result; either
//
//   - Y held no claim in its step 1, and wrote one with the result. If X, in step
//     2, does not see that claim, Y's step 1 ended after X's step 2 began, so Y
//     reads the whole state after X's step 1: Y is the one that has seen both, as
//     above. If X sees it, X writes a claim anew and reads the whole state.
//   - or Y believed to hold the claim, and had lost it to X before. Then Y sees X's
//     claim in its own step 2, or else its step 1 ended before X's claim was
//     written, and X's summary has the result. Having seen it, Y writes a claim
//     and reads the whole state, and the first case applies.
//
// Two claims may have one number; then the one whose store has the greater name
// stands, and the other writes a greater one: see [Store.settled].
//
// So a summary never leaves out a result without the entry being put right by a
// store that has seen it. What is in the table of a match may not be in the summary:
// its writer died between step 1 and step 2, so it was not acknowledged, and is
// sent again. The summary says which matches are in it ([matchSet]). A result that
// is in it as it comes changes nothing; for another result of such a match the
// whole state is read. A match that it does not have need not be looked up at all:
// what was written is written again as it is, and counts from then on; another
// result of the match counts until that is sent, as if it had come before it.

// userKey is a user in an edition of a season.
type userKey struct {
	leaderboard.Scope
	edition int
	user    leaderboard.UserID
}

// args returns the partition key of the user's results, before or after others.
func (k *userKey) args(others ...any) []any {
	return append(others, string(k.Board), string(k.Season), k.edition, string(k.user))
}

func (k *userKey) result(match leaderboard.MatchID) leaderboard.ResultKey {
	return leaderboard.ResultKey{Scope: k.Scope, User: k.user, Match: match}
}

// Kinds of rows of match_results.
const (
	kindResult    = 0
	kindRefusal   = 1
	kindContender = 2 // a payload that won over another of its revision
	kindRepair    = 3 // raises the version, so that a repair prevails
)

// statics is what a user's partition holds once.
type statics struct {
	account   account
	known     bool  // there is an account: the user is registered in the season
	claim     claim // of this data center
	divisions map[string]bool
}

// same says whether what a summary with x was made of is as it was.
func (x *statics) same(o *statics) bool {
	return x.known == o.known && x.claim == o.claim && x.account == o.account
}

// state is a user's state in a season, all of it or what concerns some matches.
type state struct {
	statics
	matches map[leaderboard.MatchID]*match
	repairs uint64
	tally   leaderboard.Tally // of all results
}

// match is what is known of one match of a user.
type match struct {
	result   *leaderboard.MatchResult // the one that stands
	refusals []leaderboard.Refusal

	payload    []byte // of the one that stands
	counted    bool   // it is in the summary that is gone by
	contenders []contender
	high, low  []byte // see fingerprint
	row        contender
}

type contender struct {
	revision int64
	payload  []byte
}

func (c *contender) compare(o *contender) int {
	if c.revision != o.revision {
		if c.revision < o.revision {
			return -1
		}
		return 1
	}
	return bytes.Compare(c.payload, o.payload)
}

// summary is what a store keeps of a user whose claim it holds.
type summary struct {
	statics
	tally   leaderboard.Tally
	version uint64
	entry   leaderboard.Entry
	matches matchSet
}

// matchSet is the matches of which a user's state has anything, each as a hash of
// its id above one of the result that stands, sorted. It is nil if it does not say.
// It takes another match for one that is in it once in some millions, and another
// result for the one that stands once in some 10^16.
type matchSet []uint64

// maxMatchSet bounds a matchSet, so that what is kept of a user is small. Of users with
// more matches, those in question are read.
const maxMatchSet = 512

var matchSeed = maphash.MakeSeed()

// matchHash returns the element for a match; standing is nil if there are refusals only.
func matchHash(id leaderboard.MatchID, standing *leaderboard.MatchResult) uint64 {
	h := maphash.String(matchSeed, string(id)) << 32
	if standing == nil {
		return h
	}
	content := maphash.Comparable(matchSeed, struct {
		revision int64
		content  leaderboard.ContentID
	}{standing.Revision, standing.ContentID()})
	return h | max(1, content>>32)
}

func (st *state) matchSet() matchSet {
	if len(st.matches) > maxMatchSet {
		return nil
	}
	set := make(matchSet, 0, len(st.matches)+1)
	for id, m := range st.matches {
		set = append(set, matchHash(id, m.result))
	}
	slices.Sort(set)
	return set
}

// knows says whether r stands, by the set, and whether the set has nothing of its
// match. If neither is so, it cannot say: as of a result whose time was assigned,
// of which the earliest counts.
func (set matchSet) knows(r *leaderboard.MatchResult) (stands, new bool) {
	if set == nil {
		return false, false
	}
	h := matchHash(r.Match, r)
	i, stands := slices.BinarySearch(set, h)
	if stands && !r.Assigned {
		return true, false
	}
	of := func(i int) bool { return i >= 0 && i < len(set) && set[i]>>32 == h>>32 }
	return false, !stands && !of(i-1) && !of(i)
}

// with returns the set with matches that it has nothing of, as they are now. The
// set itself is no longer to be used.
func (set matchSet) with(ids []leaderboard.MatchID, matches map[leaderboard.MatchID]*match) matchSet {
	if set == nil || len(set)+len(ids) > maxMatchSet {
		return nil
	}
	for _, id := range ids {
		h := matchHash(id, matches[id].result)
		i, _ := slices.BinarySearch(set, h)
		set = slices.Insert(set, i, h)
	}
	return set
}

func (s *Store) readStatics(ctx context.Context, key *userKey) (statics, error) {
	var acc []byte
	var owners map[string][]byte
	var divisions []string
	err := s.conn.read(ctx, op{selectStatics, key.args()}, []any{&acc, &owners, &divisions}, func() bool { return true })
	if err != nil {
		return statics{}, err
	}
	st := statics{divisions: map[string]bool{}}
	for _, d := range divisions {
		st.divisions[d] = true
	}
	if own := owners[s.dc]; own != nil {
		if len(own) != len(st.claim) {
			return statics{}, errFormat("claim")
		}
		st.claim = claim(own)
	}
	if acc != nil {
		st.known = true
		st.account, err = decodeAccount(acc)
	}
	return st, err
}

// readState reads all of a user's state, or the given matches of it. The tally
// is left to [state.count].
func (s *Store) readState(ctx context.Context, key *userKey, only []leaderboard.MatchID) (*state, error) {
	st := &state{matches: map[leaderboard.MatchID]*match{}}
	const chunk = 100
	queries := []op{{selectUser, key.args()}}
	if only != nil {
		queries = nil
		for ids := range slices.Chunk(only, chunk) {
			queries = append(queries, op{selectMatches, append(key.args(), textsOf(ids))})
		}
	}
	for _, q := range queries {
		if err := s.readMatches(ctx, key, q, st); err != nil {
			return nil, fmt.Errorf("user %q: %w", key.user, err)
		}
	}
	return st, nil
}

func textsOf[S ~string](ids []S) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	return texts
}

func (s *Store) readMatches(ctx context.Context, key *userKey, q op, st *state) error {
	return s.eachMatch(ctx, key, q, func(m *match, id leaderboard.MatchID, repair uint64) bool {
		if m != nil {
			st.matches[id] = m
		}
		st.repairs += repair
		return true
	})
}

// eachMatch calls visit with each match that a query finds, by id, and with what
// repairs add to the version.
func (s *Store) eachMatch(ctx context.Context, key *userKey, q op, visit func(m *match, id leaderboard.MatchID, repair uint64) bool) error {
	var id string
	var kind *int8
	var item, payload, high, low []byte
	var written *int64
	var bad error
	var m *match
	var current leaderboard.MatchID
	flush := func() bool {
		if m == nil {
			return true
		}
		done := m
		m = nil
		if bad = done.stand(key.result(current)); bad != nil {
			return false
		}
		return visit(done, current, 0)
	}
	more := true
	err := s.conn.read(ctx, q, []any{&id, &kind, &item, &payload, &high, &low, &written}, func() bool {
		if kind == nil {
			return true // there are static cells and no rows
		}
		if leaderboard.MatchID(id) != current {
			if more = flush(); !more {
				return false
			}
			current = leaderboard.MatchID(id)
		}
		if *kind == kindRepair {
			weight, n := binary.Uvarint(payload)
			if n <= 0 {
				bad = errFormat("repair")
				return false
			}
			more = visit(nil, "", weight)
			return more
		}
		if m == nil {
			m = &match{}
		}
		bad = m.add(*kind, take(&item), take(&payload), take(&high), take(&low), orZero(written))
		return bad == nil
	})
	if err == nil && bad == nil && more {
		flush()
	}
	if err == nil {
		err = bad
	}
	return err
}

// add takes in a row.
func (m *match) add(kind int8, item, payload, high, low []byte, written int64) error {
	switch kind {
	case kindResult:
		m.row = contender{revisionOf(written), payload}
		m.high, m.low = high, low
	case kindRefusal:
		f, err := decodeRefusal(item, payload)
		if err != nil {
			return err
		}
		m.refusals = append(m.refusals, f)
	case kindContender:
		if len(item) < 8 {
			return errFormat("contender")
		}
		m.contenders = append(m.contenders, contender{int64(binary.BigEndian.Uint64(item)), payload})
	default:
		return errFormat("row of a match")
	}
	return nil
}

// stand finds the result that stands.
func (m *match) stand(key leaderboard.ResultKey) error {
	best := m.row
	for _, c := range m.contenders {
		if c.compare(&best) > 0 {
			best = c
		}
	}
	if best.payload == nil {
		return nil
	}
	r, err := leaderboard.DecodePayload(key, best.revision, best.payload)
	if err != nil {
		return fmt.Errorf("cql: %w", err)
	}
	m.result, m.payload = &r, best.payload
	return nil
}

// put makes r the result that stands, before it is written.
func (m *match) put(r *leaderboard.MatchResult) {
	m.result, m.payload = r, r.AppendPayload(nil)
	m.row = contender{r.Revision, m.payload}
	m.high, m.low = fingerprint(m.payload)
}

// version is what the match adds to the state's.
func (m *match) version() uint64 {
	if m.result == nil {
		return 0
	}
	return uint64(m.result.Revision) + 1 + uint64(len(m.contenders))
}

// contested says whether another payload of the revision that stands was written,
// and nothing says so yet that the version counts. Two stores that did not know
// of each other may have written both, and made entries of either, at one
// version: the row alone shows the greater, and its fingerprint that there were
// two. The contender's row that is written then raises the version of whatever is
// made of the one that won.
func (m *match) contested() bool {
	if m.result == nil || m.row.revision != m.result.Revision {
		return false
	}
	high, low := fingerprint(m.payload)
	if bytes.Equal(high, m.high) && bytes.Equal(low, m.low) {
		return false
	}
	return !slices.ContainsFunc(m.contenders, func(c contender) bool {
		return c.revision == m.result.Revision && bytes.Equal(c.payload, m.payload)
	})
}

// version of the entry that the state makes. It grows with every change of the
// state that the entry may depend on: a higher revision adds the difference, a
// payload that wins within its revision one, and each change of a ban one; an
// erasure goes on from above all that was.
func (st *state) version() uint64 {
	v := st.account.version() + st.repairs
	for _, m := range st.matches {
		v += m.version()
	}
	return v
}

func (st *state) match(id leaderboard.MatchID) *match {
	m := st.matches[id]
	if m == nil {
		m = &match{}
		st.matches[id] = m
	}
	return m
}

// count makes the tally from all results.
func (st *state) count(b *leaderboard.Board) (err error) {
	st.tally, err = b.Count(st.results())
	return err
}

func (st *state) results() iter.Seq2[leaderboard.MatchResult, error] {
	return func(yield func(leaderboard.MatchResult, error) bool) {
		for _, m := range st.matches {
			if m.result != nil && !yield(*m.result, nil) {
				return
			}
		}
	}
}

// entry returns the entry that a tally makes, with an account and a version.
func (k *userKey) entry(b *leaderboard.Board, t *leaderboard.Tally, a *account, version uint64) leaderboard.Entry {
	e := b.Entry(t, k.Season, k.user)
	e.Hidden, e.Version = a.Hidden, version
	return e
}

// whole reads a user's whole state, and counts it.
func (s *Store) whole(ctx context.Context, b *leaderboard.Board, key *userKey) (*state, error) {
	var st *state
	var fixed statics
	err := s.each(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			fixed, err = s.readStatics(ctx, key)
		} else {
			st, err = s.readState(ctx, key, nil)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	st.statics = fixed
	return st, st.count(b)
}

// settled is whole, after step 1 of a writer, and settles what is contested first.
// If the writer wrote a claim with its part, that is wrote; it is zero if there was
// nothing to claim for.
//
// A claim that is not there when it is read again lost to one of the same number,
// or to a later one. Whose that is may not have read what this writer wrote, nor
// have been told, so it has to be told by a claim of a greater number. One is
// enough: who claims after this writer's read began reads what it wrote.
func (s *Store) settled(ctx context.Context, b *leaderboard.Board, key *userKey, wrote claim) (*state, error) {
	for {
		st, err := s.whole(ctx, b, key)
		if err != nil {
			return nil, err
		}
		lost := wrote != claim{} && wrote != st.claim
		wrote = claim{}
		var ops []op
		for _, id := range slices.Sorted(maps.Keys(st.matches)) {
			if m := st.matches[id]; m.contested() {
				ops = append(ops, op{insertItem, append(key.args(), string(id), int8(kindContender),
					contenderItem(m.result.Revision, m.payload), m.payload, st.account.Epoch<<epochShift|1)})
			}
		}
		if len(ops) == 0 && !lost {
			return st, nil
		}
		if err := s.writeUser(ctx, append(ops, s.claim(key, &st.statics))...); err != nil {
			return nil, err
		}
		if len(ops) > 0 {
			wrote = st.claim
		}
	}
}

// claim returns the statement that claims the user for this store, and keeps
// the claim in st.
func (s *Store) claim(key *userKey, st *statics) op {
	number := st.claim.number() + 1
	binary.BigEndian.PutUint64(st.claim[:8], number)
	copy(st.claim[8:], s.name[:])
	return op{setOwner, key.args(st.account.Epoch<<epochShift|int64(number), s.dc, bytes.Clone(st.claim[:]))}
}

// maxBatchBytes bounds what is written to a partition at a time.
const maxBatchBytes = 256 << 10

// writeUser writes statements on a user's partition: as one, unless they are
// very large. Then the last statement, a claim if there is one, goes with the
// first part, so that it is there before what it announces is complete.
func (s *Store) writeUser(ctx context.Context, ops ...op) error {
	if n := len(ops); n > 1 {
		ops[0], ops[n-1] = ops[n-1], ops[0]
	}
	for len(ops) > 0 {
		n, size := 0, 0
		for n < len(ops) && (n == 0 || size+ops[n].size() <= maxBatchBytes) {
			size += ops[n].size()
			n++
		}
		if err := s.conn.write(ctx, ops[:n]...); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// size is about how many bytes the statement takes.
func (o *op) size() int {
	const overhead = 100
	n := overhead
	for _, a := range o.args {
		switch a := a.(type) {
		case []byte:
			n += len(a)
		case string:
			n += len(a)
		}
	}
	return n
}
