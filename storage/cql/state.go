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
)

// # Why no lock is needed
//
// The state of a user in a season is all data from which the user's entry follows: the
// results with their Voids (matches.go), the account (bans and erasures), and contender rows.
// A contender row records that two payloads of one revision were written. In each cell of the
// state, Cassandra keeps the greatest value that was written, whatever the order of the writes.
// So the state only grows. Every growth of the state increases its version, [state.version].
//
// Any number of writers, in any number of processes, can change a user concurrently. Each
// writer takes three steps. It begins a step after a quorum of the data center has
// completed the previous step.
//
//  1. Write a part of the state.
//  2. Read the state.
//  3. Write the entry that follows from the state, and the rows of the ladders,
//     at timestamps computed from the state's version.
//
// When all writers have completed step 3, the stored entry is the one that follows from
// the whole state:
//
//   - The writer that completes step 1 last begins step 2 when every step 1 is
//     complete. So it reads everything that all writers wrote.
//   - Let L be that writer. Every other writer has read the same state as L, or a smaller
//     one. So no writer has a greater version than L.
//   - A writer with the version of L has read the same state, because a smaller state has
//     a smaller version. It writes the same bytes at the same timestamps as L.
//   - All other writers write at smaller timestamps. So Cassandra keeps the entry of L.
//
// This is true for every order of the writers' steps, even if a writer repeats a step or
// waits long between two steps. Before all writers have completed step 3, each of two
// writers may have read a part of the state that the other has not read. They may then write
// different entries with the same version, and Cassandra keeps one of the two entries.
//
// If a writer dies before the end of step 3, it has not acknowledged its result, so the
// sender sends the result again. The writer that receives it finds the result in the
// state, and does steps 2 and 3.
//
// # Changes of divisions
//
// The divisions of the board may change. Processes cache boards, so for a while two writers
// may know different divisions. Therefore the rules of a season, the number of changes that
// its entries follow, are a part of each user's state. The row of the season contains the
// rules ([incarnation.rules]). The rules only grow. So the version only grows too: it is the
// sum of the rules and the versions of all other parts. The argument above then remains true:
//
//   - Each writer reads the rules in step 2, together with the rest of the state
//     ([Store.whileOpen]), and writes the entry that follows from them. If the writer began
//     with other rules, it begins again with the rules that it has read.
//   - StartRecount writes the rules: this is step 1 of a writer. The Recount of each user
//     is steps 2 and 3 of the same writer. After StartRecount, the caller reads the list
//     of users. If the list lacks a user, the user is registered later. Each writer that
//     changes the user then reads the rules after the user is on the list: a writer that reads
//     the whole state, but finds no row of the user in the list, adds the row and then reads the
//     rules ([Store.addRegistration]). With several data centers, the row may come later than
//     the user's account and results. A store that has a summary of the user has read the
//     whole state before, or adopted the summary of a store that has.
//   - Two writers whose entries have the same version have the same rules and the same
//     state, or each lacks a part that the other has. In the second case, writer L has a
//     greater version than both.
//
// So at no time do two complete states give different entries with the same version and
// thus the same timestamps. A slow writer that has read the previous rules has a smaller
// version than the Recount of the user, because this Recount has read its results.
//
// A sealed season keeps its rules.
//
// With several data centers, a quorum of one data center may not yet have recent writes
// of the others. But Kafka mirrors every result to each data center, and a writer in each
// data center applies it. So the argument is true for the writers of each data center
// alone.

// userKey identifies a user in an incarnation of a season.
type userKey struct {
	leaderboard.SeasonKey
	incarnation int
	user        leaderboard.UserID
}

// args returns the arguments of a statement: the other arguments, then the key of the
// user's partition in table match_results.
func (k *userKey) args(others ...any) []any {
	return append(others, string(k.Board), string(k.Season), k.incarnation, string(k.user))
}

// setAccount returns the operations that write the account of the user in the season. They also
// delete the user's data of earlier epochs in the season. A slow writer may write such data
// late, and erasures skip a season that already has an account of their epoch.
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

// statics contains the static cells of a user's partition in table match_results.
type statics struct {
	account    account
	registered bool  // the cell with the account exists, so the user is registered in the season
	claim      claim // the claim in this data center: see summary.go
	adoption   claim // the adoption under the claim, or zero: see adopt.go
	raises     int   // the number of elements that noteRaise has added
	// divisions contains the names of all divisions in which the user may have rows.
	divisions map[string]bool
}

// addDivisions adds the names of the entry's divisions to st. If the user's partition lacks
// some of these names, addDivisions returns a statement that adds the missing names. The
// names must be written before the rows of the divisions, because repairs and erasures find
// the user's rows by these names.
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

// same reports whether st and o are equal except for the divisions. If they are, a summary
// (see summary.go) that was computed with o is also valid for st.
func (st *statics) same(o *statics) bool {
	return st.registered == o.registered && st.claim == o.claim && st.adoption == o.adoption && st.account == o.account && st.raises == o.raises
}

// A state is a user's state in a season: the whole state, or a part with some of the
// matches.
type state struct {
	statics
	matches map[leaderboard.MatchID]*match
	repairs uint64            // the sum of the numbers that rows of kindRepair add to the version
	tally   leaderboard.Tally // the tally of all results
	summary []byte            // the stored summary of this data center, if readHead has read it: see adopt.go
}

// raisePrefix begins the name of an element of noteRaise. No name of a data center contains a
// tab.
const raisePrefix = "\traise "

// noteRaise returns the operation that adds an element to the column owners. The element stands
// for a row that raises the version of the user's state, but is not a result.
//
// Writers in each data center apply every result, so no summary lacks a result for long. But
// such a row is written in one data center only, together with a claim for this data center. The
// element makes the stores of the other data centers drop their summaries when the row arrives.
func (k *userKey) noteRaise(st *state, match leaderboard.MatchID, kind int8, item []byte) op {
	text := append(appendString([]byte{byte(kind)}, string(match)), item...)
	sum := sha256.Sum256(text)
	return op{setOwner, k.args(st.account.Epoch<<epochShift|1, raisePrefix+hex.EncodeToString(sum[:8]), []byte{codecFormat})}
}

// readStatics reads the static cells of a user's partition.
func (s *Store) readStatics(ctx context.Context, key *userKey) (statics, error) {
	var cells staticCells
	err := s.conn.read(ctx, op{selectStatics, key.args()}, cells.dest(), func() bool { return true })
	if err != nil {
		return statics{}, err
	}
	return cells.decode(s.dc)
}

// staticCells contains the static cells of a user's partition as they are stored.
type staticCells struct {
	account   []byte
	owners    map[string][]byte
	divisions []string
	summaries map[string][]byte // only selectUserHead and selectSummary read it
}

// dest returns the variables into which a read scans the cells.
func (c *staticCells) dest() []any { return []any{&c.account, &c.owners, &c.divisions} }

// decode returns the static cells, with the claim in the given data center.
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

// readState reads a user's state without the static cells. If matches is nil, it reads all
// matches; otherwise it reads the given matches. It does not set the tally: see
// [state.setTally].
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

// readMatches adds to st the matches that a query returns. See eachMatch for the argument
// extraDest and for the returned number of rows.
func (s *Store) readMatches(ctx context.Context, key *userKey, q op, st *state, extraDest ...any) (rows int, err error) {
	return s.eachMatch(ctx, key, q, func(m *match, id leaderboard.MatchID, repair uint64) bool {
		if m != nil {
			st.matches[id] = m
		}
		st.repairs += repair
		return true
	}, extraDest...)
}

// version returns the version of the entry that follows from the state, without the rules
// of the season, which [userKey.entry] adds. Every change of the state that can affect the
// entry increases the version:
//
//   - The first result of a match adds its revision plus one. A result that replaces it adds the
//     difference of the revisions.
//   - A contender row, a void or its end, and a ban or its end add one each.
//   - A row of kindRepair adds its number.
//   - An erasure raises the version above all earlier versions.
func (st *state) version() uint64 {
	v := st.account.version() + st.repairs
	for _, m := range st.matches {
		v += m.version()
	}
	return v
}

// empty reports whether the user's partition has no cells.
func (st *state) empty() bool {
	return !st.registered && st.claim == claim{} && st.raises == 0 && len(st.divisions) == 0 && len(st.matches) == 0 && st.repairs == 0
}

// isOnly reports whether st contains only what the writer of o has written: the static cells
// of o, and the matches of o with the ids changedIDs.
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

// match returns the state of a match. If st has none, match adds an empty one.
func (st *state) match(id leaderboard.MatchID) *match {
	m := st.matches[id]
	if m == nil {
		m = &match{}
		st.matches[id] = m
	}
	return m
}

// setTally sets the tally to the tally of all results.
func (st *state) setTally(b *leaderboard.Board) (err error) {
	st.tally, err = b.Count(st.results())
	return err
}

// results yields the results that stand, in any order.
func (st *state) results() iter.Seq2[leaderboard.MatchResult, error] {
	return func(yield func(leaderboard.MatchResult, error) bool) {
		for _, m := range st.matches {
			if m.result != nil && !yield(*m.result, nil) {
				return
			}
		}
	}
}

// entry returns the entry that follows from a tally, an account and a version of the state
// without the rules. The board b must have the rules of the incarnation.
func (k *userKey) entry(b *leaderboard.Board, t *leaderboard.Tally, a *account, version uint64) leaderboard.Entry {
	e := b.Entry(t, k.Season, k.user)
	e.Hidden, e.Version = a.Hidden, version+uint64(b.Rules())
	return e
}

// headRows is the greatest number of rows that readHead reads.
const headRows = 32

// readWhole reads a user's whole state and sets its tally.
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

// readRest reads a user's whole state after readHead has read a part of it. It keeps the static
// cells of head. It does not set the tally.
func (s *Store) readRest(ctx context.Context, key *userKey, head *state) (*state, error) {
	st, err := s.readState(ctx, key, nil)
	if err == nil {
		st.statics = head.statics
	}
	return st, err
}

// readHead reads the static cells and the first rows of a user's partition, by one
// statement. It reports whether these rows are all. Otherwise only the static cells of the
// returned state are valid.
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

// readResolved reads a user's whole state: step 2 of a writer. If a result in the state
// needs a contender row ([match.needsContender]), readResolved writes this row and reads
// the state again. The argument ownClaim is the claim that the caller wrote in step 1, or
// zero if the caller wrote no claim.
//
// If the state contains another claim than ownClaim, the claim of another store X has
// prevailed. Possibly X has not read the results that the caller wrote. So readResolved
// writes a claim with a greater number, which makes X read the whole state again. One such
// claim is enough: if another store claims the user after readResolved began to read, that
// store also reads the caller's results.
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

// maxBatchBytes bounds the size of one batch of statements.
const maxBatchBytes = 256 << 10

// writeUser runs statements on a user's partition, in batches of up to maxBatchBytes. A
// statement that writes a claim must be the last one. writeUser moves the last statement
// to the first batch, so that other stores can read the claim before all results are
// written.
func (s *Store) writeUser(ctx context.Context, ops ...op) error {
	if n := len(ops); n > 1 {
		ops[0], ops[n-1] = ops[n-1], ops[0]
	}
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

// approxBytes returns the approximate size of the statement in bytes.
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
