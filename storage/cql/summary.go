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

// # Why the whole state need not be read every time
//
// Step 2 of a writer (see state.go) costs more the more results the user has. So
// a store caches a [summary] of each user that it works on: the tally and the
// version. With a summary, step 2 reads no results. It reads the claim instead,
// and compares it with the claim that the summary holds.
//
// The claim is a static cell of the user's partition that names one store. A
// store that does not hold the claim writes its claim in one batch with its
// results. Let store X hold the claim. The summary of X includes all results that
// existed when X's claim was written, and all results that X has written since. Let
// store Y write a result.
//
// Case 1: Y held no claim in its step 1, so it wrote one with the result.
//
//   - If X sees that claim in its step 2, X writes a new claim and reads the whole
//     state.
//   - Otherwise, Y's step 1 ended after X's step 2 began. So Y reads the whole
//     state after X's step 1, and has read what both wrote. This is the writer
//     that the argument in state.go needs.
//
// Case 2: Y believed that it held the claim, but had lost it to X.
//
//   - If Y sees X's claim in its step 2, Y writes a new claim and reads the whole
//     state. This is case 1.
//   - Otherwise, Y's step 1 ended before X's claim was written. So the summary of
//     X includes the result.
//
// Two claims may have the same number. The claim of the store with the greater
// name then prevails, and the other store writes a claim with a greater number
// ([Store.resolved]).
//
// So whenever a summary lacks an acknowledged result, a store that has read the
// result corrects the entry. A summary may also lack a result that was written but not
// acknowledged, because its writer died between steps 1 and 2. That result is sent
// again. What the store does then depends on the summary's list of matches
// ([matchSet]):
//
//   - A result that the summary includes unchanged needs no work.
//   - For a different result of an included match, the store reads the whole
//     state.
//   - A match that is not included needs no read. If the same result is already in
//     the table, the store writes the same bytes again, and from then on the result
//     counts. If another result of the match is in the table, the new result counts
//     until the other one is sent again, as if the new result had arrived first.

// summary is the cached state of a user whose claim the store holds.
type summary struct {
	statics
	size
	tally leaderboard.Tally
	entry leaderboard.Entry
	set   matchSet
}

// matchSet is the set of the matches in a user's state, sorted by the hash of the
// match id. If the set is nil, the matches are unknown. Hashes may collide: about one
// of some millions of lookups finds a match that is not in the set. The store then
// reads that match from the table.
type matchSet []matchElement

// matchElement is the element of one match.
type matchElement struct {
	id uint32 // a hash of the match id
	// standing identifies the match and the revision and content of the result that
	// stands. It is zero if the match has refusals only.
	standing standingID
}

// standingID is the first 16 bytes of a SHA-256. Results with equal ids are equal, as
// for [leaderboard.ContentID]. A shorter hash is not enough: the store ignores a result
// that the set has, so a collision would lose a correction.
type standingID [16]byte

// maxMatchSet bounds the size of a matchSet, and so the memory per cached user. For
// a user with more matches, the store reads the matches of each call from the table.
const maxMatchSet = 512

var matchSeed = maphash.MakeSeed()

// elementOf returns the element of a match. standing is nil if the match has
// refusals only.
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

// knows returns stands if r is the standing result of its match according to the set,
// and unseen if the set does not contain the match. If both are false, the table must
// be read. For example, the set cannot decide about a result whose time the service
// chose (r.Assigned), because the earliest such time counts.
func (set matchSet) knows(r *leaderboard.MatchResult) (stands, unseen bool) {
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

// with returns the set plus the given matches, none of which it contains. The
// caller must not use the old set afterwards.
func (set matchSet) with(ids []leaderboard.MatchID, matches map[leaderboard.MatchID]*match) matchSet {
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

// claim names the store that may work from its summary of a user. It consists of a
// number of 8 bytes and the store's name. The greatest claim prevails.
type claim [16]byte

func (c claim) number() uint64 { return binary.BigEndian.Uint64(c[:8]) }

// claim returns a statement that claims the user for this store. The number of the new
// claim is greater than the number of st.claim. claim puts the new claim into st.
func (s *Store) claim(key *userKey, st *statics) op {
	number := st.claim.number() + 1
	binary.BigEndian.PutUint64(st.claim[:8], number)
	copy(st.claim[8:], s.name[:])
	return op{setOwner, key.args(st.account.Epoch<<epochShift|int64(number), s.dc, bytes.Clone(st.claim[:]))}
}

// mine reports whether c is a claim of this store.
func (s *Store) mine(c claim) bool { return string(c[8:]) == string(s.name[:]) }
