package cql

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// # How a writer avoids reading the whole state
//
// A writer takes three steps (see state.go). In step 2, it reads the whole state of a user,
// so the cost grows with the number of results. Therefore a store caches a [summary] of each
// user whom it changes: the tally, the version, and the static cells with a claim. With a
// summary, step 2 only reads the static cells, and compares them with those of the summary.
// A store without a summary may adopt one (see adopt.go).
//
// The claim names one store, the holder. Any other store that writes results writes its own
// claim in the first batch of the results. The summary of holder X includes all results
// that existed when X wrote its claim, and all results that X wrote later.
//
// # Why an outdated summary does no harm
//
// Let the summary of X lack an acknowledged result of another store Y. This section shows
// that the entry that Cassandra keeps includes the results of both stores. For adoptions,
// see adopt.go.
//
// Case 1: In step 1, Y knew that Y was not the holder. So Y wrote a claim with the result.
//
//   - If X reads this claim in step 2, X writes a new claim and reads the whole state.
//   - Otherwise, step 1 of Y ended after step 2 of X began. So Y completes step 1 after X, Y
//     is the writer L of the argument in state.go, and Cassandra keeps the entry of Y.
//
// Case 2: In step 1, Y assumed that Y was the holder. X replaces the claim of Y before or
// after step 1 of Y.
//
//   - If Y reads the claim of X in step 2, Y writes a new claim and reads the whole state.
//     The rest is as in case 1.
//   - Otherwise, step 1 of Y ended before the claim of X was complete. Then X reads the
//     whole state, and finds the result.
//
// Of two claims with the same number, the claim of the store with the greater name
// prevails. The store with the smaller name then writes the next claim
// ([Store.readResolved]).
//
// A summary may also lack the result of a writer that died between steps 1 and 2. The
// sender sends this result again. The store looks up its match in the [matchSet]:
//
//   - If the set has the match with this result, the store does nothing.
//   - If the set has the match with another result, the store reads the match from the
//     table. If the match is not enough to decide, the store reads the whole state.
//   - If the set lacks the match, the store writes the result without a read. The table may
//     already have this result, which now counts. Or the table has another result of the
//     match, which was never acknowledged. Then the new result counts as if it had arrived
//     first. When the sender repeats the unacknowledged result, the store merges both.

// A summary is the data that a store caches about a user while the store is the holder.
type summary struct {
	statics
	size
	tally leaderboard.Tally
	entry leaderboard.Entry
	rules int // with which the tally and the entry were computed: see incarnation.rules
	set   matchSet
	// last has the results of the holder's last batch. If the holder has read the whole
	// state after this batch, last is empty. A store that adopts the summary must check that
	// the table has the results in last.
	last []listedMatch
	// unchecked means that the summary was adopted (see adopt.go), and entry is not set yet
	unchecked bool
}

// A matchSet has the matches of a user's state, sorted by hash. If the set is nil, the
// matches are unknown.
type matchSet []matchElement

type matchElement struct {
	hash   uint32     // of the match id; two ids may have the same hash
	result resultHash // zero if the match has no result
}

// A resultHash identifies the result that stands: the first 16 bytes of the SHA-256 of its
// content, revision and match id.
type resultHash [16]byte

// maxMatchSet bounds the memory of a matchSet. For a user with more matches, the store keeps
// no set, and Apply reads the matches of its results from the table.
const maxMatchSet = 512

var matchSeed = maphash.MakeSeed()

func elementOf(id leaderboard.MatchID, result *leaderboard.MatchResult) matchElement {
	e := matchElement{hash: uint32(maphash.String(matchSeed, string(id)))}
	if result != nil {
		content := result.ContentID()
		text := binary.BigEndian.AppendUint64(content[:], uint64(result.Revision))
		sum := sha256.Sum256(append(text, id...))
		e.result = resultHash(sum[:len(resultHash{})])
	}
	return e
}

func compareElements(x, y matchElement) int { return cmp.Compare(x.hash, y.hash) }

// matchSet returns the set of the whole state st, or nil if the set would be too large.
func (st *state) matchSet() matchSet {
	if len(st.matches) > maxMatchSet {
		return nil
	}
	set := make(matchSet, 0, len(st.matches)+1)
	for id, m := range st.matches {
		set = append(set, elementOf(id, m.result))
	}
	slices.SortFunc(set, compareElements)
	return set
}

// lookUp reports whether r stands, or whether the set lacks the match of r. If both are false,
// the caller must read the table. If r.Assigned is set, stands is false: the store keeps the
// earliest assigned time, and the set has no times to compare.
func (set matchSet) lookUp(r *leaderboard.MatchResult) (stands, unseen bool) {
	if set == nil {
		return false, false
	}
	e := elementOf(r.Match, r)
	i, found := slices.BinarySearchFunc(set, e, compareElements)
	if !found {
		return false, true
	}
	for ; i < len(set) && set[i].hash == e.hash; i++ {
		if set[i].result == e.result && !r.Assigned {
			return true, false
		}
	}
	return false, false
}

// add returns the set with the given matches, or nil if the set would be too large. The set
// must not contain any of the matches yet. The caller must not use the old set afterwards.
func (set matchSet) add(ids []leaderboard.MatchID, matches map[leaderboard.MatchID]*match) matchSet {
	if set == nil || len(set)+len(ids) > maxMatchSet {
		return nil
	}
	for _, id := range ids {
		e := elementOf(id, matches[id].result)
		i, _ := slices.BinarySearchFunc(set, e, compareElements)
		set = slices.Insert(set, i, e)
	}
	return set
}

// A claim is a number of 8 bytes, and the name of the store that may use its summary. The
// greatest claim prevails.
type claim [16]byte

func (c claim) number() uint64 { return binary.BigEndian.Uint64(c[:8]) }

func (s *Store) newClaim(key *userKey, st *statics) op {
	st.claim, st.adoption = s.claimAfter(st.claim), claim{}
	return op{setOwner, key.args(st.account.Epoch<<epochShift|int64(st.claim.number()), s.dc, bytes.Clone(st.claim[:]))}
}

func (s *Store) claimAfter(c claim) claim {
	binary.BigEndian.PutUint64(c[:8], c.number()+1)
	copy(c[8:], s.name[:])
	return c
}

func (s *Store) ownsClaim(c claim) bool { return string(c[8:]) == string(s.name[:]) }
