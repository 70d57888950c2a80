package cql

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// # How a store continues the summary of another store
//
// Summaries are also stored, so that a new process need not read all results of a user. If
// the user has storedFrom matches or more, the holder (see below) writes its new summary in
// the batch of its results, in step 1 of state.go. It also writes a summary after it has
// read the whole state. Another store can adopt this summary, and becomes the holder. Each
// data center has three static cells:
//
//   - The claim (see summary.go). A store writes it, and then reads the whole state.
//   - The adoption: a claim, a number, and the store that adopts. Under another claim, it
//     has no meaning.
//   - The summary: the claim and the adoption of its writer, a number that grows with each
//     of its summaries, and data.
//
// Each cell only grows: in an epoch (see codec.go), its timestamp is the number of the
// claim, and its bytes begin with these parts in this order. The holder is the store of the
// adoption, or of the claim if there is no adoption. A term is a claim with one of its
// adoptions, or with none. Terms are ordered by claim, then by adoption.
//
// To adopt, store Y reads the three cells, writes an adoption with the next number, and
// reads the cells again. Y has begun its term if claim and summary are unchanged and the
// adoption is its own. A holder checks both in step 2.
//
// An acknowledged result belongs to the term in which its writer ended step 2. Either the
// writer read the claim and the adoption of its own term. Or it read others after its
// result was complete, wrote the next claim, and read the whole state. Each summary of a
// term includes all results of earlier terms:
//
//   - The term begins with a claim. A result of an earlier term was complete before its
//     writer read the cells, and the claim was not complete when this read began. The
//     holder reads the whole state after its claim, and finds the result.
//   - The term begins with an adoption by Y, and the result belongs to an earlier term of
//     the same claim. When the result's writer read the cells, the adoption of Y was not
//     complete. So the result and its summary are complete when Y reads the cells again. Y
//     reads this summary, a later one of the same term, or one of a term between the two.
//     Each of these includes the result: the last one by induction.
//   - The term begins with an adoption, and the result belongs to a term of an earlier
//     claim. The first summary of the present claim includes the result, and so do all
//     later ones.
//
// Each term has one writer. So the writer of the last term knows all acknowledged results,
// and writes the correct entry at the greatest version.
//
// An adoption never hides a claim, because it is another cell. A store of an older version
// ignores adoptions, and writes a new claim if the claim is not its own. So every holder
// that checks the claim reads the whole state.
//
// Three details:
//
//   - If the writer of the stored summary died, one replica only may have the batch. The
//     summary lists the results of the batch. Y reads them from a quorum, so that read
//     repair completes the batch, and adopts the summary only if all exist.
//   - Another data center may change the account, or raise the version (see noteRaise).
//     Step 2 compares both.
//   - The former holder may have died before step 3. So after an adoption, step 3 reads the
//     entry and the rows.

// storedFrom is the number of matches from which on a user has a stored summary. With
// fewer, reading all costs less.
const storedFrom = 128

// adoptionSuffix follows the data center's name, which never contains a tab, in the key of
// an adoption.
const adoptionSuffix = "\tadoption"

// adoptionOf decodes a cell of column owners. An adoption under another claim than c is
// zero.
func adoptionOf(cell []byte, c claim) claim {
	if len(cell) != 2*len(c) || claim(cell) != c {
		return claim{}
	}
	return claim(cell[len(c):])
}

// newAdoption returns a statement that writes an adoption by this store, and sets
// st.adoption.
func (s *Store) newAdoption(key *userKey, st *statics) op {
	st.adoption = s.claimAfter(st.adoption)
	return op{setOwner, key.args(st.summaryTime(), s.dc+adoptionSuffix, slices.Concat(st.claim[:], st.adoption[:]))}
}

func (st *statics) summaryTime() int64 {
	return st.account.Epoch<<epochShift | int64(st.claim.number())
}

type listedMatch struct {
	id     leaderboard.MatchID
	result resultHash
}

// storeSummary returns the statement that stores sum. This store must be the holder. A
// summary with more than maxMatchSet matches in its batch is stored empty: it still
// replaces the older one, which lacks the batch.
func (s *Store) storeSummary(key *userKey, sum *summary) op {
	value := slices.Concat(sum.claim[:], sum.adoption[:])
	value = binary.BigEndian.AppendUint64(value, uint64(s.sequence.Add(1)))
	if len(sum.last) <= maxMatchSet {
		value = sum.append(value)
	}
	return op{setSummary, key.args(sum.summaryTime(), s.dc, value)}
}

func (sum *summary) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, codecFormat), uint64(sum.rules))
	dst = appendString(dst, string(sum.account.append(nil)))
	dst = binary.AppendUvarint(dst, uint64(sum.raises))
	dst = binary.AppendUvarint(dst, sum.version)
	dst = binary.AppendUvarint(dst, uint64(sum.matches))
	tally, _ := sum.tally.AppendBinary(nil) // never fails
	dst = appendString(dst, string(tally))
	dst = binary.AppendUvarint(dst, uint64(len(sum.last)))
	for i := range sum.last {
		dst = append(appendString(dst, sum.last[i].id), sum.last[i].result[:]...)
	}
	return dst
}

// storedSummary decodes the stored summary. It returns false if a store must not adopt it.
func (st *statics) storedSummary(value []byte) (sum summary, ok bool) {
	const headBytes = 2*len(claim{}) + 8
	if !st.registered || len(value) <= headBytes || claim(value) != st.claim {
		return summary{}, false
	}
	d := decoder{b: value[headBytes:]}
	format := d.byte()
	sum.rules = int(d.uvarint())
	acc, err := decodeAccount(d.next(d.uvarint()))
	raises := int(d.uvarint())
	sum.size = size{d.uvarint(), int64(d.uvarint())}
	tallyErr := sum.tally.UnmarshalBinary(d.next(d.uvarint()))
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		m := listedMatch{id: leaderboard.MatchID(d.string())}
		copy(m.result[:], d.next(uint64(len(m.result))))
		sum.last = append(sum.last, m)
	}
	if d.bad || len(d.b) > 0 || format != codecFormat || err != nil || tallyErr != nil {
		return summary{}, false
	}
	sum.statics, sum.unchecked = *st, true
	return sum, acc == st.account && raises == st.raises
}

// after returns the summary with the changed matches of st, which are new to sum. The
// caller must not use sum afterwards.
func (sum summary) after(st *state, changedIDs []leaderboard.MatchID) summary {
	sum.divisions, sum.tally, sum.set = st.divisions, st.tally, sum.set.add(changedIDs, st.matches)
	if len(changedIDs) > 0 {
		sum.last = nil
	}
	for _, id := range changedIDs {
		m := st.matches[id]
		sum.version += m.version()
		sum.size.matches++
		if m.result != nil {
			sum.last = append(sum.last, listedMatch{id, elementOf(id, m.result).result})
		}
	}
	return sum
}

// knows marks each match of st as counted if its result is one of sum.last, it has no
// Voids, and no other payload of its revision was written. It reports whether this is true
// for all of sum.last.
func (sum *summary) knows(st *state) (all bool) {
	all = true
	for _, l := range sum.last {
		m := st.matches[l.id]
		if m == nil || m.result == nil || elementOf(l.id, m.result).result != l.result ||
			m.needsContender() || len(m.contenders) > 0 || m.voids > 0 {
			all = false
			continue
		}
		m.counted = true
	}
	return all
}

// adopt applies the task's results with the stored summary in head. If it cannot use the
// summary, it returns ok as false, and the caller must read the whole state. done is the
// result of attempt.
func (t *task) adopt(ctx context.Context, key *userKey, inc incarnation, head *state) (done, ok bool, err error) {
	sum, ok := head.storedSummary(head.summary)
	if !ok || sum.rules != inc.rules {
		return false, false, nil
	}
	st, changedIDs, ok, err := t.mergeIntoSummary(ctx, key, sum)
	if !ok || err != nil {
		return false, false, err
	}
	if err := t.unlistErased(ctx, key, inc, &sum.statics); err != nil {
		return false, false, err
	}
	if err := t.s.writeUser(ctx, t.s.newAdoption(key, &sum.statics)); err != nil {
		return false, false, err
	}
	var cells staticCells
	err = t.s.conn.read(ctx, op{selectSummary, key.args()}, append(cells.dest(), &cells.summaries), func() bool { return true })
	if err != nil {
		return false, false, err
	}
	current, err := cells.decode(t.s.dc)
	if err != nil || !current.same(&sum.statics) || !bytes.Equal(cells.summaries[t.s.dc], head.summary) {
		return false, false, err
	}
	done, err = t.finishWithSummary(ctx, key, inc, sum, st, changedIDs)
	return done, true, err
}

// idsToRead returns ids, and if the summary is unchecked, the matches of its last batch.
func (sum *summary) idsToRead(ids map[leaderboard.MatchID]bool) []leaderboard.MatchID {
	ids = maps.Clone(ids)
	if sum.unchecked {
		for i := range sum.last {
			ids[sum.last[i].id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
