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
// The cost of step 2 (see state.go) grows with the number of results. So a store caches a
// [summary] of each user whom it changes: the tally, the version, and the static cells,
// among them a claim. Then step 2 only reads the static cells, and compares them with those
// of the summary. A store without a summary may adopt one (adopt.go). Without adoptions,
// the following is true.
//
// The claim names one store, the holder. Any other store writes its own claim in one batch
// with its results. The summary of holder X includes all results that existed when X wrote
// its claim, and all that X wrote since. Let store Y write a result.
//
// Case 1: In step 1, Y knew that it was not the holder. So Y wrote a claim with the result.
//
//   - If X reads this claim in its step 2, X writes a new claim and reads the whole state.
//   - Otherwise, step 1 of Y ended after step 2 of X began. So Y reads the whole state
//     after step 1 of X, and finds the results of both. Y is the writer L of state.go.
//
// Case 2: In step 1, Y assumed that it was the holder, but X had replaced its claim.
//
//   - If Y reads the claim of X in its step 2, Y writes a new claim and reads the whole
//     state. The rest is as in case 1.
//   - Otherwise, step 1 of Y ended before X wrote its claim. So the summary of X includes
//     the result.
//
// Of two claims with the same number, that of the store with the greater name prevails. The
// other store then writes the next claim ([Store.readResolved]).
//
// So if a summary lacks an acknowledged result, another store has read that result and
// writes the correct entry. A summary may lack the result of a writer that died between
// steps 1 and 2. Its sender sends it again, and the store looks it up in the [matchSet]:
//
//   - The match has the same result: there is nothing to do.
//   - The match has another result: the store reads the whole state.
//   - The set lacks the match: the store writes the result without a read. If the table has
//     this result, it now counts. If the table has another, unacknowledged result, the new
//     one counts until the other one is sent again, as if it had arrived first.

// A summary is the cached state of a user whose holder the store is.
type summary struct {
	statics
	size
	tally leaderboard.Tally
	entry leaderboard.Entry
	rules int // that the tally and the entry follow: see incarnation.rules
	set   matchSet
	last  []listedMatch
	// unchecked means that the summary was adopted, and that entry is not set yet
	unchecked bool
}

// A matchSet has the matches of a user's state, sorted by hash. If it is nil, they are
// unknown.
type matchSet []matchElement

type matchElement struct {
	id uint32 // of the match id; two ids may have the same hash
	// standing is zero if the match has refusals only
	standing standingID
}

// A standingID is the first 16 bytes of a SHA-256. With equal ids, a correction would be
// ignored as a repetition.
type standingID [16]byte

// maxMatchSet bounds the memory of a matchSet. With more matches, the store reads those of
// each call from the table.
const maxMatchSet = 512

var matchSeed = maphash.MakeSeed()

func elementOf(id leaderboard.MatchID, standing *leaderboard.MatchResult) matchElement {
	e := matchElement{id: uint32(maphash.String(matchSeed, string(id)))}
	if standing != nil {
		content := standing.ContentID()
		text := binary.BigEndian.AppendUint64(content[:], uint64(standing.Revision))
		sum := sha256.Sum256(append(text, id...))
		e.standing = standingID(sum[:len(standingID{})])
	}
	return e
}

func compareElements(x, y matchElement) int { return cmp.Compare(x.id, y.id) }

// matchSet returns the set of all matches of st, a whole state, or nil if there are too
// many.
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

// lookUp reports whether r stands, or whether the set lacks its match. Otherwise the caller
// must read the table. For r.Assigned, stands is never true: the earliest time counts, and
// the set has no times.
func (set matchSet) lookUp(r *leaderboard.MatchResult) (stands, unseen bool) {
	if set == nil {
		return false, false
	}
	e := elementOf(r.Match, r)
	i, found := slices.BinarySearchFunc(set, e, compareElements)
	if !found {
		return false, true
	}
	for ; i < len(set) && set[i].id == e.id; i++ {
		if set[i].standing == e.standing && !r.Assigned {
			return true, false
		}
	}
	return false, false
}

// add returns the set plus matches that it lacks. The caller must not use the old set
// afterwards.
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

// A claim is a number, 8 bytes, and the name of the store that may use its summary. The
// greatest claim prevails.
type claim [16]byte

func (c claim) number() uint64 { return binary.BigEndian.Uint64(c[:8]) }

// newClaim returns a statement that writes the next claim, for this store. It also updates
// st.
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
