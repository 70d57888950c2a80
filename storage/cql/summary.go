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
// The cost of step 2 of a writer (see state.go) grows with the number of the user's results. So a
// store caches a [summary] of each user whom it changes. The summary contains the tally, the
// version and the static cells of the user's partition, among them a claim. With a summary, step 2
// reads no results. It only reads the static cells again, and compares them with those of the
// summary.
//
// If the store has no such summary, it may adopt the one that the last holder stored: see
// adopt.go. Without adoptions, the following is true.
//
// The claim is a static cell of the user's partition that names one store: the claim
// holder. A store that is not the holder writes its own claim in one batch with its
// results. Let store X be the holder. The summary of X includes all results that existed
// when X wrote its claim, and all results that X has written since. Let another store, Y,
// write a result.
//
// Case 1: In its step 1, Y knew that it was not the holder. So Y wrote a claim with the
// result.
//
//   - If X reads this claim in its step 2, X writes a new claim and reads the whole
//     state.
//   - Otherwise, step 1 of Y ended after step 2 of X began. So Y reads the whole state
//     after step 1 of X, and reads the results of both. Y is the writer L in the argument
//     of state.go.
//
// Case 2: In its step 1, Y assumed that it was the holder, but X had replaced its claim.
//
//   - If Y reads the claim of X in its step 2, Y writes a new claim and reads the whole
//     state. The rest is as in case 1.
//   - Otherwise, step 1 of Y ended before X wrote its claim. So the summary of X includes
//     the result.
//
// Two stores may concurrently write claims with the same number. Then the claim of the
// store with the greater name prevails. The other store writes another claim with a
// greater number ([Store.readResolved]).
//
// So if a summary does not include an acknowledged result, another store has read that
// result and writes the correct entry. A summary possibly lacks a result whose writer
// died between steps 1 and 2. Such a result was not acknowledged, so the sender sends it
// again. The store that receives it looks up the match in the summary's list of matches
// ([matchSet]):
//
//   - If the list contains the match with the same result, the store has nothing to do.
//   - If the list contains the match with a different result, the store reads the whole
//     state.
//   - If the list does not contain the match, the store writes the result without a read.
//     If the table already has the same result, the store writes the same bytes again,
//     and the result now counts. If the table has another, unacknowledged result of the
//     match, the new result counts until the sender sends the other result again. The
//     outcome is the same as if the new result had arrived first.

// A summary is the cached state of a user whose holder the store is.
type summary struct {
	statics
	size
	tally leaderboard.Tally
	entry leaderboard.Entry
	rules int // the rules that the tally and the entry follow: see incarnation.rules
	set   matchSet
	last  []listedMatch // the results of the last batch
	// unchecked means that this store has adopted the summary, and has not yet read the stored
	// entry. Then the field entry is not set.
	unchecked bool
}

// A matchSet is the set of the matches in a user's state, sorted by the hashes of the match
// ids. A nil set means that the matches are unknown. The hashes of two ids may be equal.
// So about one of eight million lookups in a full set finds the element of another match.
// The store then reads the match from the table.
type matchSet []matchElement

// A matchElement is the element of a matchSet for one match.
type matchElement struct {
	id uint32 // a hash of the match id
	// standing identifies the result that stands: the match, the revision and the content.
	// It is zero if the match has refusals only.
	standing standingID
}

// A standingID is the first 16 bytes of a SHA-256. This is long enough to regard results
// with equal ids as the same result. With a shorter hash, two different results might
// have equal ids. The store would then ignore a correction as a repeated result.
type standingID [16]byte

// maxMatchSet bounds the number of matches in a matchSet, and so the memory per cached
// user. If a user has more matches, the store reads the matches of each call from the
// table.
const maxMatchSet = 512

var matchSeed = maphash.MakeSeed()

// elementOf returns the element of a match. The argument standing is the result that
// stands, or nil if the match has refusals only.
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

// matchSet returns the set of all matches of st, which must be a whole state. It is nil if
// there are too many.
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

// lookUp looks up the match of r. It returns stands as true if r is the result that stands.
// It returns unseen as true if the set does not contain the match. If both are false, the
// caller must read the table. For example, if the service chose the time of r
// (r.Assigned), lookUp never returns stands as true. In this case the result with the
// earliest chosen time counts, but the set does not contain times.
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

// add returns the set plus the matches with the given ids. The set must not contain any
// of them. The caller must not use the old set after the call.
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

// A claim names the store that may use its cached summary of a user. It consists of a
// number, 8 bytes, and the store's name. The greatest claim prevails.
type claim [16]byte

func (c claim) number() uint64 { return binary.BigEndian.Uint64(c[:8]) }

// newClaim returns a statement that writes a claim of this store on the user. The new
// claim's number is the number of st.claim plus one. newClaim sets st.claim to the new
// claim, and st.adoption to zero.
func (s *Store) newClaim(key *userKey, st *statics) op {
	st.claim, st.adoption = s.claimAfter(st.claim), claim{}
	return op{setOwner, key.args(st.account.Epoch<<epochShift|int64(st.claim.number()), s.dc, bytes.Clone(st.claim[:]))}
}

// claimAfter returns a claim of this store whose number is that of c plus one.
func (s *Store) claimAfter(c claim) claim {
	binary.BigEndian.PutUint64(c[:8], c.number()+1)
	copy(c[8:], s.name[:])
	return c
}

// ownsClaim reports whether c is a claim of this store.
func (s *Store) ownsClaim(c claim) bool { return string(c[8:]) == string(s.name[:]) }
