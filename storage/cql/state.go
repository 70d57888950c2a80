package cql

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// # Why no lock is needed
//
// Several writers may change a user concurrently. This section shows that the stored entry
// finally follows from all data that they wrote.
//
// The state of a user in a season is all data from which the user's entry follows:
//
//   - the results, each with the Voids of its match (see internal/engine/matches.go)
//   - the account: the user's bans and erasures (see internal/engine/account.go)
//   - contender rows: each records two payloads (encoded results) of one revision (see
//     match.go)
//
// In each cell, Cassandra keeps the greatest value that was written: see codec.go. So the
// state only grows. Each growth increases the version of the state ([state.version]).
//
// A writer changes the state in three steps. It begins a step after a quorum of the data
// center has completed the previous one.
//
//  1. Write a part of the state.
//  2. Read the state.
//  3. Write the entry that follows from the state, and the rows of the ladders, at
//     timestamps computed from the version.
//
// When all writers have completed step 3, the stored entry follows from the whole state:
//
//   - Let L be the writer that completes step 1 last. L begins step 2 when every step 1 is
//     complete, so L reads the whole state.
//   - Every other writer has read the same state or a smaller one. So no writer computes a
//     greater version than L.
//   - A writer with the version of L has read the same state, because a smaller state has a
//     smaller version. It writes the same bytes at the same timestamps as L.
//   - All other writers write at smaller timestamps. So Cassandra keeps the entry of L.
//
// The steps of different writers may come in any order, and a writer may repeat a step. If
// each of two writers lacks a part that the other has read, they may write different entries
// at the same version. The entry of L has a greater version.
//
// A writer that dies has not acknowledged its result. So the sender sends the result again,
// and the writer that receives it does steps 2 and 3.
//
// # Changes of divisions
//
// Processes cache boards, so two writers may know different divisions. This section shows
// that the argument still holds. The rules of a season ([incarnation.rules]) are a number
// that identifies the divisions of its entries. This number is a part of each user's state,
// and only grows. The version is the sum of the rules and the versions of all other parts.
//
//   - Each writer reads the rules in step 2 ([Store.whileOpen]), and writes the entry that
//     follows from them. A writer that began with other rules starts again.
//   - StartRecount writes new rules, which is step 1 of a writer. Recount does steps 2 and 3
//     for each user in the season's list of users.
//   - If the list lacks a user, the next writer that reads the user's whole state adds the
//     user, and then reads the rules ([Store.addRegistration]). A writer with a summary (see
//     summary.go) need not add the user: before the summary was computed, its store read
//     the whole state and added the user.
//
// A quorum of one data center may lack recent writes of others. But every result is
// mirrored to the Kafka of each data center, and a writer there applies it. So the argument
// holds for each data center alone.

type userKey struct {
	leaderboard.SeasonKey
	incarnation int
	user        leaderboard.UserID
}

func (k *userKey) args(others ...any) []any {
	return append(others, string(k.Board), string(k.Season), k.incarnation, string(k.user))
}

// setAccount returns the operations that write the account in the season. They also delete
// the user's data from before the last erasure, which a slow writer may have written late.
func (k *userKey) setAccount(acc *account) []op {
	ops := []op{{setAccount, k.args(acc.writeTime(), acc.append(nil))}}
	if acc.Epoch > 0 {
		ops = append(ops, op{deleteUser, k.args(acc.Epoch << epochShift)})
	}
	return ops
}

func (k *userKey) result(match leaderboard.MatchID) leaderboard.ResultKey {
	return leaderboard.ResultKey{SeasonKey: k.SeasonKey, User: k.user, Match: match}
}

type statics struct {
	account    account
	registered bool  // the partition has an account
	claim      claim // in this data center: see summary.go
	adoption   claim // see adopt.go
	raises     int   // number of elements that noteRaise added
	// all divisions in whose ladders the user may have rows
	divisions map[string]bool
}

// addDivisions adds the entry's divisions to st, and returns a statement that stores them.
// The statement must run before rows of these divisions are written: repairs and erasures
// find rows by the stored divisions.
func (st *statics) addDivisions(key *userKey, e *leaderboard.Entry) []op {
	var added []string
	for _, d := range e.Divisions {
		if name := d.String(); !st.divisions[name] {
			added = append(added, name)
		}
	}
	if len(added) == 0 {
		return nil
	}
	all := map[string]bool{}
	maps.Copy(all, st.divisions)
	for _, name := range added {
		all[name] = true
	}
	st.divisions = all
	return []op{{addDivisions, key.args(st.account.Epoch<<epochShift|1, added)}}
}

// same reports whether a summary that was computed with o is also valid for st.
func (st *statics) same(o *statics) bool {
	return st.registered == o.registered && st.claim == o.claim && st.adoption == o.adoption && st.account == o.account && st.raises == o.raises
}

// A state is a user's state in a season, or a part of it with some of the matches.
type state struct {
	statics
	matches map[leaderboard.MatchID]*match
	repairs uint64 // the sum of the numbers in rows of kindRepair: see recount.go
	tally   leaderboard.Tally
	summary []byte // the stored summary (see adopt.go); only readHead sets it
}

// raisePrefix begins the keys that noteRaise adds to the map `owners`. All other keys begin
// with the name of a data center, which contains no tab.
const raisePrefix = "\traise "

// noteRaise returns an operation that adds an element to the column `owners`, for a row of
// kindContender or kindRepair. Such a row raises the version, and only one data center
// writes it. When the element arrives in another data center, stores there drop their
// summaries of the user.
func (k *userKey) noteRaise(st *state, match leaderboard.MatchID, kind int8, item []byte) op {
	text := append(codec.AppendText([]byte{byte(kind)}, string(match)), item...)
	sum := sha256.Sum256(text)
	return op{setOwner, k.args(st.account.Epoch<<epochShift|1, raisePrefix+hex.EncodeToString(sum[:8]), []byte{codecFormat})}
}

func (s *Store) readStatics(ctx context.Context, key *userKey) (statics, error) {
	var cells staticCells
	err := s.conn.read(ctx, op{selectStatics, key.args()}, cells.dest(), func() bool { return true })
	if err != nil {
		return statics{}, err
	}
	return cells.decode(s.dc)
}

type staticCells struct {
	account   []byte
	owners    map[string][]byte
	divisions []string
	summaries map[string][]byte // only selectUserHead and selectSummary read it
}

func (c *staticCells) dest() []any { return []any{&c.account, &c.owners, &c.divisions} }

func (c *staticCells) decode(dataCenter string) (statics, error) {
	st := statics{divisions: map[string]bool{}}
	for _, d := range c.divisions {
		st.divisions[d] = true
	}
	if own := c.owners[dataCenter]; own != nil {
		if len(own) != len(st.claim) {
			return statics{}, errFormat("claim")
		}
		st.claim = claim(own)
	}
	st.adoption = adoptionOf(c.owners[dataCenter+adoptionSuffix], st.claim)
	for name := range c.owners {
		if strings.HasPrefix(name, raisePrefix) {
			st.raises++
		}
	}
	if c.account == nil {
		return st, nil
	}
	st.registered = true
	var err error
	st.account, err = decodeAccount(c.account)
	return st, err
}

// readState reads the given matches of a user's state, or all matches if matches is nil. It
// does not set the tally.
func (s *Store) readState(ctx context.Context, key *userKey, matches []leaderboard.MatchID) (*state, error) {
	st := &state{matches: map[leaderboard.MatchID]*match{}}
	const chunk = 100
	queries := []op{{selectUser, key.args()}}
	if matches != nil {
		queries = nil
		for ids := range slices.Chunk(matches, chunk) {
			queries = append(queries, op{selectMatches, append(key.args(), textsOf(ids))})
		}
	}
	for _, q := range queries {
		if _, err := s.readMatches(ctx, key, q, st); err != nil {
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

func (s *Store) readMatches(ctx context.Context, key *userKey, q op, st *state, extraDest ...any) (rows int, err error) {
	return s.eachMatch(ctx, key, q, func(m *match, id leaderboard.MatchID, repair uint64) bool {
		if m != nil {
			st.matches[id] = m
		}
		st.repairs += repair
		return true
	}, extraDest...)
}

// version returns the version of the entry minus the season's rules. Every change that can
// affect the entry increases the version:
//
//   - A match adds the revision of its result plus one.
//   - Each contender row, void, end of a void, ban and end of a ban adds one.
//   - A row of kindRepair (see recount.go) adds its number.
//   - An erasure raises the version above all earlier versions.
func (st *state) version() uint64 {
	v := st.account.version() + st.repairs
	for _, m := range st.matches {
		v += m.version()
	}
	return v
}

func (st *state) empty() bool {
	return !st.registered && st.claim == claim{} && st.raises == 0 && len(st.divisions) == 0 && len(st.matches) == 0 && st.repairs == 0
}

// isOnly reports whether st has exactly the static cells of o and the matches of o that
// changedIDs lists.
func (st *state) isOnly(o *state, changedIDs []leaderboard.MatchID) bool {
	if !st.same(&o.statics) || !maps.Equal(st.divisions, o.divisions) || len(st.matches) != len(changedIDs) || st.repairs > 0 {
		return false
	}
	for _, id := range changedIDs {
		m, written := st.matches[id], o.matches[id]
		if m == nil || !bytes.Equal(m.payload, written.payload) || m.needsContender() || len(m.contenders) > 0 ||
			len(m.refusals) != len(written.refusals) || m.voids != written.voids {
			return false
		}
	}
	return true
}

func (st *state) match(id leaderboard.MatchID) *match {
	m := st.matches[id]
	if m == nil {
		m = &match{}
		st.matches[id] = m
	}
	return m
}

func (st *state) setTally(b *leaderboard.Board) (err error) {
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

// entry computes the entry. b must have the rules of the incarnation. version must not
// include the rules: entry adds them.
func (k *userKey) entry(b *leaderboard.Board, t *leaderboard.Tally, a *account, version uint64) leaderboard.Entry {
	e := b.Entry(t, k.Season, k.user)
	e.Hidden, e.Version = a.Hidden, version+uint64(b.Rules())
	return e
}

const headRows = 32

func (s *Store) readWhole(ctx context.Context, b *leaderboard.Board, key *userKey) (*state, error) {
	st, whole, err := s.readHead(ctx, key)
	if err == nil && !whole {
		st, err = s.readRest(ctx, key, st)
	}
	if err != nil {
		return nil, err
	}
	return st, st.setTally(b)
}

// readRest reads a user's whole state, with the static cells of head. It does not set the
// tally.
func (s *Store) readRest(ctx context.Context, key *userKey, head *state) (*state, error) {
	st, err := s.readState(ctx, key, nil)
	if err == nil {
		st.statics = head.statics
	}
	return st, err
}

// readHead reads the static cells and the first headRows rows, by one statement. If whole
// is false, more rows may exist, and only the static cells and the summary of st are valid.
func (s *Store) readHead(ctx context.Context, key *userKey) (st *state, whole bool, err error) {
	var cells staticCells
	st = &state{matches: map[leaderboard.MatchID]*match{}}
	rows, err := s.readMatches(ctx, key, op{selectUserHead, append(key.args(), s.headRows)}, st, append(cells.dest(), &cells.summaries)...)
	if err != nil {
		return nil, false, fmt.Errorf("user %q: %w", key.user, err)
	}
	st.statics, err = cells.decode(s.dc)
	st.summary = cells.summaries[s.dc]
	return st, rows < s.headRows, err
}

// readResolved reads a user's whole state, which is step 2 of a writer. If a result needs a
// contender row, readResolved writes the row and reads again. ownClaim is the claim that
// the caller wrote in step 1, or zero.
//
// If the caller wrote a claim and the state contains another claim, the store X of this
// claim may not have read the caller's results. So readResolved writes the next claim, which
// makes X read the whole state again. One new claim is enough: after a later claim, its
// store reads the whole state, with the caller's results.
func (s *Store) readResolved(ctx context.Context, b *leaderboard.Board, key *userKey, ownClaim claim) (*state, error) {
	for {
		st, err := s.readWhole(ctx, b, key)
		if err != nil {
			return nil, err
		}
		lost := ownClaim != claim{} && ownClaim != st.claim
		ownClaim = claim{}
		var ops []op
		for _, id := range slices.Sorted(maps.Keys(st.matches)) {
			if m := st.matches[id]; m.needsContender() {
				item := contenderItem(m.result.Revision, m.payload)
				ops = append(ops, op{insertItem, append(key.args(), string(id), int8(kindContender), item, m.payload, st.account.Epoch<<epochShift|1)},
					key.noteRaise(st, id, kindContender, item))
			}
		}
		if len(ops) == 0 && !lost {
			return st, nil
		}
		if err := s.writeUser(ctx, append(ops, s.newClaim(key, &st.statics))...); err != nil {
			return nil, err
		}
		if len(ops) > 0 {
			ownClaim = st.claim
		}
	}
}

const maxBatchBytes = 256 << 10

// writeUser runs statements on a user's partition, in batches. A claim must be the last
// statement. writeUser moves it into the first batch, so that other stores find the claim
// before all results are written.
func (s *Store) writeUser(ctx context.Context, ops ...op) error {
	if n := len(ops); n > 1 {
		ops[0], ops[n-1] = ops[n-1], ops[0]
	}
	return s.writeBatches(ctx, ops)
}

// writeBatches runs statements on one partition, in order. All statements of a batch become visible
// together.
func (s *Store) writeBatches(ctx context.Context, ops []op) error {
	for len(ops) > 0 {
		n, size := 0, 0
		for n < len(ops) && (n == 0 || size+ops[n].approxBytes() <= maxBatchBytes) {
			size += ops[n].approxBytes()
			n++
		}
		if err := s.conn.write(ctx, ops[:n]...); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

func (o *op) approxBytes() int {
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
