package cql

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// # Why no result misses a void
//
// The Voids of a result are a part of the user's state (see state.go): a row of kindVoid,
// whose greatest value prevails. So it remains to show that each result gets the Voids of
// its match (see [leaderboard.MatchState]). On a board with Board.Matches, the writer W of
// a result:
//
//  1. Writes the result, unless the table has it.
//  2. Writes the user into the table match_users.
//  3. Reads the state of the match, and writes its Voids to the result if they are greater.
//
// The writer V of a void or a restoration:
//
//  1. Writes the state of the match (SetMatch).
//  2. Reads the users in the table match_users (MatchUsers).
//  3. Writes the Voids to the result of each of these users.
//
// Each step begins after a quorum has completed the previous one. There are two cases:
//
//   - Step 3 of W reads the state that V wrote: W writes the Voids.
//   - Step 3 of W began before step 1 of V ended. So steps 1 and 2 of W ended before steps 2
//     and 3 of V began: V reads the user, and finds the result.
//
// If W dies, the sender sends the result again. Before the repetition, the result may count
// although its match is void. If V dies, Applied of the match is less than Voids, so another
// process repeats the steps of V.
//
// Each data center has a writer W of each result (see state.go), and a writer V. V repeats
// the steps until the data center's Applied equals Voids. So the argument holds for
// each data center alone. V also updates the index there. A new claim of V makes stores drop
// the summaries that they cached before the Voids arrived (see summary.go).

// # Why no erased user stays in the table match_users
//
// After an erasure, the table has the user for no earlier result. The writer W does the
// steps above. An erasure E:
//
//  1. Begins a new epoch of the user (see codec.go).
//  2. Reads the user's results.
//  3. Removes the user from the matches of these results, at a greater timestamp than all
//     writes of earlier epochs.
//
// There are two cases:
//
//   - E reads the result of W: the removal by E prevails, even if W does step 2 later.
//   - E does not read it, so E began the epoch before W ended step 1. Before W acknowledges the
//     result, W finds the epoch, and begins again. If W dies, the sender sends the result
//     again. So W or another writer applies the result in the new epoch. If the result was
//     received before the erasure, this writer rejects the result and removes the user from
//     the match ([task.unlistErased]). Otherwise the user belongs in the table.

func matchArgs(s leaderboard.SeasonKey, incarnation int, others ...any) []any {
	return append(others, string(s.Board), string(s.Season), incarnation)
}

func (s *Store) readStates(ctx context.Context, key leaderboard.SeasonKey, q op) ([]leaderboard.MatchState, error) {
	var match string
	var body []byte
	var applied map[string]int64
	return gather(ctx, s.conn, q, []any{&match, &body, &applied}, func() (leaderboard.MatchState, error) {
		m := leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: key, Match: leaderboard.MatchID(match)}, Applied: applied[s.dc]}
		if m.Match == markMatch {
			return m, nil
		}
		return m, decodeMatchState(&m, body)
	})
}

func (t *task) readVoids(ctx context.Context, key *userKey) (map[leaderboard.MatchID]int64, error) {
	if !t.b.Matches {
		return nil, nil
	}
	var ids []leaderboard.MatchID
	for _, r := range t.results {
		ids = append(ids, r.Match)
	}
	return t.s.voidsOf(ctx, key, ids)
}

// voidsOf sorts ids.
func (s *Store) voidsOf(ctx context.Context, key *userKey, ids []leaderboard.MatchID) (map[leaderboard.MatchID]int64, error) {
	voids := map[leaderboard.MatchID]int64{}
	slices.Sort(ids)
	const chunk = 100
	for ids := range slices.Chunk(slices.Compact(ids), chunk) {
		states, err := s.readStates(ctx, key.SeasonKey, op{selectState, append(matchArgs(key.SeasonKey, key.incarnation), textsOf(ids))})
		if err != nil {
			return nil, err
		}
		for i := range states {
			voids[states[i].Match] = states[i].Voids
		}
	}
	return voids, nil
}

// matchesToList returns the matches for listUser. The table match_users already has the
// users of VoidOnly results.
func (t *task) matchesToList(st *state) (ids []leaderboard.MatchID) {
	if !t.b.Matches {
		return nil
	}
	for _, r := range t.results {
		if !r.VoidOnly && st.matches[r.Match].result != nil {
			ids = append(ids, r.Match)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// markMatch is the match id of a row that marks an incarnation with rows in match_users.
const markMatch = ""

// listUser marks the incarnation (see markMatch), and then adds the matches to the table
// match_ids, and the user to the table match_users.
func (s *Store) listUser(ctx context.Context, key *userKey, inc incarnation, st *state, ids []leaderboard.MatchID) error {
	if len(ids) == 0 {
		return nil
	}
	mark := userKey{SeasonKey: key.SeasonKey, incarnation: key.incarnation}
	if _, ok := s.marked.Load(mark); !ok {
		if err := s.conn.write(ctx, op{setApplied, append([]any{int64(1), s.dc, int64(1)}, append(matchArgs(key.SeasonKey, key.incarnation), markMatch)...)}); err != nil {
			return err
		}
		s.marked.Store(mark, true)
	}
	return s.forEach(ctx, len(ids), func(ctx context.Context, i int) error {
		if err := s.listMatch(ctx, key.SeasonKey, key.incarnation, ids[i]); err != nil {
			return err
		}
		return s.conn.write(ctx, op{insertMatchUser, append(matchArgs(key.SeasonKey, key.incarnation),
			string(ids[i]), bucketOf(key.user, inc.buckets), string(key.user), st.account.Epoch<<epochShift|1)})
	})
}

const (
	// matchBuckets is the number of partitions of a season in the table match_ids.
	matchBuckets   = 16
	maxMatchRows   = 1 << 16
	matchIDsOfPage = 256
)

// matchRow identifies a row that this store has written into the table match_ids. Only the
// removal of the incarnation's data removes the row.
type matchRow struct {
	leaderboard.SeasonKey
	incarnation int
	match       leaderboard.MatchID
}

func bucketOfMatch(id leaderboard.MatchID) int {
	return bucketOf(leaderboard.UserID(id), matchBuckets)
}

func (s *Store) listMatch(ctx context.Context, key leaderboard.SeasonKey, incarnation int, id leaderboard.MatchID) error {
	row := matchRow{key, incarnation, id}
	if s.matchRows.Contains(row) {
		return nil
	}
	err := s.conn.write(ctx, op{insertMatchID, append(matchArgs(key, incarnation), bucketOfMatch(id), string(id))})
	if err == nil {
		s.matchRows.Add(row, struct{}{})
	}
	return err
}

// ListMatches adds the user's results to the tables match_ids and match_users.
func (s *Store) ListMatches(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) error {
	if _, err := s.liveBoard(ctx, b); err != nil {
		return err
	}
	key := &userKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: season}, user: user}
	inc, err := s.incarnations.readAgain(ctx, key.SeasonKey)
	if err != nil || !inc.open {
		return err
	}
	key.incarnation = inc.number
	st, err := s.readState(ctx, key, nil)
	if err != nil {
		return err
	}
	var ids []leaderboard.MatchID
	for id, m := range st.matches {
		if m.result != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return s.listUser(ctx, key, inc, st, ids)
}

// MatchIDs reads a page of each bucket, and yields the ids up to the last id of the page that
// ends first.
func (s *Store) MatchIDs(ctx context.Context, key leaderboard.SeasonKey, prefix, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchID, error] {
	return func(yield func(leaderboard.MatchID, error) bool) {
		inc, err := s.incarnations.readAgain(ctx, key)
		const (
			// Ids have no character below ' ' and no U+10FFFF.
			least, greatest = "\x01", "\U0010FFFF"
		)
		for err == nil && inc.open {
			lower := string(prefix)
			if after != "" && after >= prefix {
				lower = string(after) + least
			}
			pages := make([][]leaderboard.MatchID, matchBuckets)
			if err = s.forEach(ctx, matchBuckets, func(ctx context.Context, i int) (err error) {
				var id string
				pages[i], err = gather(ctx, s.conn, op{selectMatchIDs, append(matchArgs(key, inc.number), i, lower, string(prefix)+greatest, matchIDsOfPage)}, []any{&id},
					func() (leaderboard.MatchID, error) { return leaderboard.MatchID(id), nil })
				return err
			}); err != nil {
				break
			}
			var last leaderboard.MatchID // "" if the pages have all ids
			for _, page := range pages {
				if n := len(page); n == matchIDsOfPage && (last == "" || page[n-1] < last) {
					last = page[n-1]
				}
			}
			ids := slices.Concat(pages...)
			slices.Sort(ids)
			for _, id := range ids {
				if last != "" && id > last {
					break
				}
				if !yield(id, nil) {
					return
				}
			}
			if last == "" {
				return
			}
			after = last
		}
		if err != nil {
			yield("", err)
		}
	}
}

// hasMatchUsers reports whether an incarnation may have rows in the table match_users.
func (s *Store) hasMatchUsers(ctx context.Context, key leaderboard.SeasonKey, inc incarnation) (bool, error) {
	states, err := s.readStates(ctx, key, op{selectStates, matchArgs(key, inc.number)})
	return len(states) > 0, err
}

// unlistUser removes the user from matches. The timestamp must exceed those of the rows.
func (s *Store) unlistUser(ctx context.Context, key *userKey, bucket int, ids []leaderboard.MatchID, timestamp int64) error {
	return s.forEach(ctx, len(ids), func(ctx context.Context, i int) error {
		return s.conn.write(ctx, op{deleteMatchUser, append(matchArgs(key.SeasonKey, key.incarnation, timestamp),
			string(ids[i]), bucket, string(key.user))})
	})
}

// unlistErased removes the user from the matches of results from before the erasure. An
// earlier writer may have added the user.
func (t *task) unlistErased(ctx context.Context, key *userKey, inc incarnation, st *statics) error {
	if !t.b.Matches {
		return nil
	}
	var ids []leaderboard.MatchID
	for i, r := range t.results {
		if t.outcomes[i].Reason == leaderboard.ReasonErased {
			ids = append(ids, r.Match)
		}
	}
	return t.s.unlistUser(ctx, key, bucketOf(key.user, inc.buckets), ids, st.account.Epoch<<epochShift)
}

// grownVoids reads the Voids of matches again, and returns statements that write grown Voids
// to the results.
func (t *task) grownVoids(ctx context.Context, key *userKey, st *state, ids []leaderboard.MatchID) ([]op, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	voids, err := t.s.voidsOf(ctx, key, ids)
	if err != nil {
		return nil, err
	}
	var ops []op
	for _, id := range ids {
		if voids[id] > st.matches[id].result.Voids {
			ops = append(ops, voidOp(key, st, id, voids[id]))
		}
	}
	return ops, nil
}

func voidOp(key *userKey, st *state, id leaderboard.MatchID, voids int64) op {
	return op{insertItem, append(key.args(), string(id), int8(kindVoid), []byte{}, binary.AppendUvarint(nil, uint64(voids)), st.account.Epoch<<epochShift|voids)}
}

// SetMatch merges m into the stored state. If the season was deleted at m.At or later,
// SetMatch does not write m. A deletion writes its time before it ends the incarnation. So if
// the incarnation has ended, SetMatch finds the time.
func (s *Store) SetMatch(ctx context.Context, b *leaderboard.Board, m leaderboard.MatchState) (leaderboard.MatchState, error) {
	m.At = leaderboard.Truncate(m.At)
	for range maxTries {
		inc, deleted, err := s.incarnationFor(ctx, b, &m)
		if err != nil || deleted && !inc.open {
			return leaderboard.MatchState{MatchKey: m.MatchKey}, err
		}
		args := append(matchArgs(m.SeasonKey, inc.number), string(m.Match))
		ops := []op{{setState, append([]any{m.Voids, appendMatchState(nil, &m)}, args...)}}
		if m.Applied > 0 {
			ops = append(ops, op{setApplied, append([]any{m.Applied, s.dc, m.Applied}, args...)})
		}
		if !deleted {
			if err := s.listMatch(ctx, m.SeasonKey, inc.number, m.Match); err != nil {
				return leaderboard.MatchState{}, err
			}
			if err := s.conn.write(ctx, ops...); err != nil {
				return leaderboard.MatchState{}, err
			}
		}
		var stored leaderboard.MatchState
		live, err := s.whileOpen(ctx, m.SeasonKey, inc, func(ctx context.Context) (err error) {
			stored, err = s.matchStateIn(ctx, m.MatchKey, inc)
			return err
		})
		if err != nil || live {
			return stored, err
		}
	}
	return leaderboard.MatchState{}, fmt.Errorf("cql: match %q: in each of %d attempts, the season was deleted or the board's divisions changed; repeat the call: %w", m.Match, maxTries, leaderboard.ErrUnavailable)
}

// incarnationFor returns the open incarnation for m. deleted means that the season's last
// deletion also deletes m. For such an m, incarnationFor opens no incarnation.
func (s *Store) incarnationFor(ctx context.Context, b *leaderboard.Board, m *leaderboard.MatchState) (inc incarnation, deleted bool, err error) {
	inc, err = s.incarnations.cachedOrRead(ctx, m.SeasonKey)
	if err == nil && !inc.openFor(b) {
		var at time.Time
		if at, err = s.deletedAt(ctx, m.SeasonKey); err == nil && m.DeletedBy(at) {
			_, err = s.liveBoard(ctx, b)
			return incarnation{}, true, err
		}
	}
	if err == nil {
		inc, err = s.openIncarnation(ctx, b, m.Season, nil)
	}
	return inc, m.DeletedBy(inc.deletedAt), err
}

func (s *Store) matchStateIn(ctx context.Context, key leaderboard.MatchKey, inc incarnation) (leaderboard.MatchState, error) {
	states, err := s.readStates(ctx, key.SeasonKey, op{selectState, append(matchArgs(key.SeasonKey, inc.number), []string{string(key.Match)})})
	if err != nil || len(states) == 0 {
		return leaderboard.MatchState{MatchKey: key}, err
	}
	return states[0], nil
}

// Match returns the state of a match.
func (s *Store) Match(ctx context.Context, key leaderboard.MatchKey) (leaderboard.MatchState, error) {
	m, err := withIncarnation(ctx, s, key.SeasonKey, func(ctx context.Context, inc incarnation) (leaderboard.MatchState, error) {
		return s.matchStateIn(ctx, key, inc)
	})
	m.MatchKey = key
	return m, err
}

// Matches yields the states of a season.
func (s *Store) Matches(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.MatchState, error] {
	return func(yield func(leaderboard.MatchState, error) bool) {
		inc, err := s.incarnations.readAgain(ctx, key)
		var states []leaderboard.MatchState
		if err == nil && inc.open {
			states, err = s.readStates(ctx, key, op{selectStates, matchArgs(key, inc.number)})
		}
		for i := range states {
			if states[i].Match != markMatch && !yield(states[i], nil) {
				return
			}
		}
		if err != nil {
			yield(leaderboard.MatchState{}, err)
		}
	}
}

// MatchUsers yields the users of a match.
func (s *Store) MatchUsers(ctx context.Context, key leaderboard.MatchKey) iter.Seq2[leaderboard.UserID, error] {
	return func(yield func(leaderboard.UserID, error) bool) {
		inc, err := s.incarnations.readAgain(ctx, key.SeasonKey)
		for first := 0; err == nil && inc.open && first < inc.buckets; first += s.parallel {
			lists := make([][]leaderboard.UserID, min(s.parallel, inc.buckets-first))
			err = s.forEach(ctx, len(lists), func(ctx context.Context, i int) (err error) {
				var user string
				lists[i], err = gather(ctx, s.conn, op{selectMatchUsers, append(matchArgs(key.SeasonKey, inc.number), string(key.Match), first+i)}, []any{&user},
					func() (leaderboard.UserID, error) { return leaderboard.UserID(user), nil })
				return err
			})
			if err != nil {
				break
			}
			for _, user := range slices.Concat(lists...) {
				if !yield(user, nil) {
					return
				}
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// appendMatchState appends m without Applied. The write timestamp is Voids. Of states with
// equal Voids, Cassandra keeps the greater bytes: the state that [leaderboard.MergeMatch]
// returns.
func appendMatchState(dst []byte, m *leaderboard.MatchState) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, codecFormat), uint64(m.Voids))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.At.UnixMicro())^1<<63)
	return append(append(append(dst, m.Actor...), 0), m.Reason...)
}

func decodeMatchState(m *leaderboard.MatchState, b []byte) error {
	const headBytes = 1 + 8 + 8
	if len(b) < headBytes || b[0] != codecFormat {
		return errFormat("state of a match")
	}
	actor, reason, ok := strings.Cut(string(b[headBytes:]), "\x00")
	if !ok {
		return errFormat("state of a match")
	}
	m.Voids = int64(binary.BigEndian.Uint64(b[1:]))
	m.At = time.UnixMicro(int64(binary.BigEndian.Uint64(b[9:]) ^ 1<<63)).UTC()
	m.Actor, m.Reason = actor, reason
	return nil
}
