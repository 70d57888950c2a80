package cql

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// # Why no lock is needed
//
// The state of a user in a season is everything from which the user's entry follows.
// It consists of the results, the account (ban and erasures), and contender rows. A
// contender row records that two payloads of one revision were written. Each part
// is a join: in any order of writes, Cassandra keeps the greatest value. So the state
// only grows. Its version, [state.version], is a number that grows strictly with the
// state.
//
// Any number of writers, in any number of processes, take three steps each. A
// step is complete at a quorum of the data center before the next step begins.
//
//  1. Write a part of the state.
//  2. Read the state.
//  3. Write the entry that follows from the state, and the rows of the ladders,
//     at timestamps computed from the state's version.
//
// Once all writers have completed step 3, the entry is that of the whole state:
//
//   - Of any two writers, one completes step 1 last. It begins step 2 after that,
//     so it reads what both have written.
//   - So at least one writer has read everything that all writers wrote. Let L be such
//     a writer, the one with the greatest version. Every other writer has read a part
//     of the state that L read, so no version is greater than L's.
//   - A writer whose version equals L's has read the same state, because the
//     version grows strictly. It writes the same bytes at the same timestamps.
//   - All others write at smaller timestamps. So the entry of L prevails.
//
// This holds for every order of the writers' steps, however often a step is repeated,
// and however long a writer pauses between two steps. Before all writers have
// completed step 3, two entries with one version may exist. They follow from states
// that each lack a part. Cassandra then keeps one of the two.
//
// A writer that dies before step 3 has acknowledged nothing, so its result is
// sent again. The next writer finds the result in the state and does steps 2
// and 3.
//
// With several data centers, a quorum of one data center may lack recent writes of the
// others. But every result comes through the log of each data center. So each data
// center has a writer L of its own, which has read everything.

// userKey identifies a user in an incarnation of a season.
type userKey struct {
	leaderboard.SeasonKey
	incarnation int
	user        leaderboard.UserID
}

// args returns statement arguments: others, then the partition key of the user's
// results.
func (k *userKey) args(others ...any) []any {
	return append(others, string(k.Board), string(k.Season), k.incarnation, string(k.user))
}

func (k *userKey) result(match leaderboard.MatchID) leaderboard.ResultKey {
	return leaderboard.ResultKey{SeasonKey: k.SeasonKey, User: k.user, Match: match}
}

// statics holds the static cells of a user's partition.
type statics struct {
	account account
	known   bool  // the account cell exists: the user is registered in the season
	claim   claim // the claim in this data center
	// divisions are all divisions that the user's results have ever named.
	divisions map[string]bool
}

// same reports whether a summary that was computed with the cells o is still valid
// for the cells x. It ignores the divisions.
func (x *statics) same(o *statics) bool {
	return x.known == o.known && x.claim == o.claim && x.account == o.account
}

// state is a user's state in a season: the whole state, or the part that concerns
// some matches.
type state struct {
	statics
	matches map[leaderboard.MatchID]*match
	repairs uint64            // the sum of what rows of kindRepair add to the version
	tally   leaderboard.Tally // the tally of all results
}

// readStatics reads the static cells of a user's partition.
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

// readState reads a user's state without the statics. If only is nil, it reads all
// matches, otherwise those in only. It does not set the tally: see [state.count].
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

// version returns the version of the entry that follows from the state. It grows
// with every change of the state that the entry may depend on. A higher revision
// adds the difference of the revisions. A payload that prevails within its
// revision adds one, and so does each change of a ban. An erasure raises the
// version above all earlier versions.
func (st *state) version() uint64 {
	v := st.account.version() + st.repairs
	for _, m := range st.matches {
		v += m.version()
	}
	return v
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

// count sets the tally to that of all results.
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

// entry returns the entry that follows from a tally, an account and a version.
func (k *userKey) entry(b *leaderboard.Board, t *leaderboard.Tally, a *account, version uint64) leaderboard.Entry {
	e := b.Entry(t, k.Season, k.user)
	e.Hidden, e.Version = a.Hidden, version
	return e
}

// whole reads a user's whole state and sets its tally.
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

// resolved reads a user's whole state, as step 2 of a writer. If a payload in it is
// contested ([match.contested]), resolved writes a contender row for the payload and
// reads again. wrote is the claim that the caller wrote in step 1, or zero if it
// wrote none.
//
// If the claim that resolved reads is not wrote, another store's claim has prevailed.
// Its number is the same or greater. That store has not seen wrote, and may not have
// read what the caller wrote. So resolved writes a claim with a greater number, which
// makes that store read the whole state again. It does so once. This is enough: a
// store that claims after resolved began to read also reads what the caller wrote.
func (s *Store) resolved(ctx context.Context, b *leaderboard.Board, key *userKey, wrote claim) (*state, error) {
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

// maxBatchBytes bounds the size of one batch of statements.
const maxBatchBytes = 256 << 10

// writeUser runs statements on a user's partition, in batches of up to maxBatchBytes.
// The last statement goes into the first batch, because it is the claim if there is
// one. Other stores can then read the claim before the last result is written.
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

// size returns the approximate size of the statement in bytes.
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
