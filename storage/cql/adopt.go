package cql

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// # How a store continues the summary of another store
//
// Steps 1 to 3 are those of a writer in state.go: 1 write a part of the state, 2 read, 3
// write the entry and its rows. A store caches a summary of each user whom it changes (see
// summary.go). The holder is the only store that may trust its summary.
//
// If the user has storedFrom matches or more, the holder also writes its summary to the
// table: in step 1, in the batch of its results, and after each read of the whole state.
// Another store can adopt this summary, and becomes the holder. So a new process need not
// read all results.
//
// Each data center has three static cells in the user's partition:
//
//   - The claim names a store (see summary.go). This store writes the claim, and then reads
//     the whole state.
//   - The adoption has a claim, a number, and the name of the store that adopts. It is
//     valid while its claim is in the claim cell.
//   - The summary has the claim and the adoption of its writer, a number that grows with
//     each summary of this writer, and data.
//
// Each cell only grows. Its timestamp has the user's epoch in the high bits (see codec.go),
// and the claim's number in the low bits. At equal timestamps, Cassandra keeps the greater
// value. A value begins with the parts above, in this order.
//
// The valid adoption names the holder. Without an adoption, the claim names the holder. A
// term is a claim with one of its adoptions, or with none. Terms are ordered by claim, then
// by adoption.
//
// To adopt, store Y reads the three cells, writes an adoption with the next number, and
// reads the cells again. If the second read finds the old claim, the old summary and the
// adoption of Y, the term of Y has begun. In step 2, a holder checks that the claim and the
// adoption are still those of its term.
//
// # Why a summary lacks no acknowledged result
//
// A write is complete when a quorum has it. Each acknowledged result R belongs to a term:
//
//   - If the writer of R found the claim and the adoption of its own term in step 2, R
//     belongs to this term.
//   - Otherwise, the writer wrote the next claim and read the whole state. R belongs to the
//     term that begins with this claim.
//
// In both cases, R was complete when step 2 of its writer began. No claim or adoption of a
// later term was complete at this time: step 2 would have found it.
//
// Let R belong to term T, and let U be a later term. Each summary of U includes R:
//
//   - U begins with a claim. The holder of U reads the whole state after the claim is
//     complete, and finds R.
//   - U begins with an adoption by Y, T has the same claim, and the batch of R has a
//     summary. This summary is complete when Y reads the cells again. So Y reads this
//     summary, a later one of T, or one of a term between T and U. The first two include R.
//     The third includes R by induction over the terms.
//   - U begins with an adoption, T has the same claim, and the batch of R has no summary.
//     Every summary with this claim was written after the batch, and includes R.
//   - U begins with an adoption, and T has an earlier claim. The first summary with the
//     claim of U includes R (first case), and so do all later ones.
//
// So the holder of the last term knows all acknowledged results, and writes the correct
// entry at the greatest version.
//
// Details:
//
//   - If the writer of the stored summary died, perhaps only one replica has the batch. The
//     summary lists the results of the batch. Y reads them from a quorum, so that read
//     repair completes the batch. Y adopts the summary only if all these results exist.
//   - Another data center may change the account, or raise the version (see noteRaise in
//     state.go). Step 2 finds both changes.
//   - The former holder may have died before step 3. So after an adoption, step 2 also
//     reads the entry and the rows.

// storedFrom is the least number of matches of a user with a stored summary. If a user has
// fewer matches, it costs less to read all of them.
const storedFrom = 128

// The key of an adoption in the column `owners` is the data center's name, which has no
// tab, and adoptionSuffix.
const adoptionSuffix = "\tadoption"

// adoptionOf decodes an adoption. The result is zero if the adoption has another claim.
func adoptionOf(cell []byte, c claim) claim {
	if len(cell) != 2*len(c) || claim(cell) != c {
		return claim{}
	}
	return claim(cell[len(c):])
}

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

// storeSummary returns the statement that stores sum. This store must be the holder. If
// sum.last has more than maxMatchSet matches, the stored summary has no data, but still
// replaces the older summary.
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
	dst = codec.AppendText(dst, string(sum.account.append(nil)))
	dst = binary.AppendUvarint(dst, uint64(sum.raises))
	dst = binary.AppendUvarint(dst, sum.version)
	dst = binary.AppendUvarint(dst, uint64(sum.matches))
	tally, _ := sum.tally.AppendBinary(nil) // never fails
	dst = codec.AppendText(dst, string(tally))
	dst = binary.AppendUvarint(dst, uint64(len(sum.last)))
	for i := range sum.last {
		dst = append(codec.AppendText(dst, sum.last[i].id), sum.last[i].result[:]...)
	}
	return dst
}

// storedSummary decodes a stored summary. If ok is false, no store may adopt it.
func (st *statics) storedSummary(value []byte) (sum summary, ok bool) {
	const headBytes = 2*len(claim{}) + 8
	if !st.registered || len(value) <= headBytes || claim(value) != st.claim {
		return summary{}, false
	}
	d := codec.Decoder{Rest: value[headBytes:]}
	format := d.Byte()
	sum.rules = int(d.Uvarint())
	acc, err := decodeAccount(d.Bytes())
	raises := int(d.Uvarint())
	sum.size = size{d.Uvarint(), int64(d.Uvarint())}
	tallyErr := sum.tally.UnmarshalBinary(d.Bytes())
	for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
		m := listedMatch{id: leaderboard.MatchID(d.Text())}
		copy(m.result[:], d.Next(uint64(len(m.result))))
		sum.last = append(sum.last, m)
	}
	if d.Bad || len(d.Rest) > 0 || format != codecFormat || err != nil || tallyErr != nil {
		return summary{}, false
	}
	sum.statics, sum.unchecked = *st, true
	return sum, acc == st.account && raises == st.raises
}

// after returns sum with the changed matches of st, which must be new to sum. The caller
// must not use sum afterwards.
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

// knows marks matches of sum.last in st as counted, and reports whether it has marked all.
// It marks a match if:
//
//   - In st, the match has the same result as in sum.last.
//   - The match was never voided or restored.
//   - The match has no contender row, and needs none (see match.go).
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

// adopt applies the task's results to the stored summary in head. If it cannot use the
// summary, ok is false, and the caller must read the whole state. If ok is true and done is
// false, the caller must start another attempt.
func (t *task) adopt(ctx context.Context, key *userKey, inc incarnation, head *state) (done, ok bool, err error) {
	sum, ok := head.storedSummary(head.summary)
	if !ok || sum.rules != inc.rules {
		return false, false, nil
	}
	st, changedIDs, ok, err := t.mergeIntoSummary(ctx, key, sum)
	if !ok || err != nil {
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

// idsToRead returns ids. If the summary is unchecked (see summary.go), it adds the matches
// of the summary's last batch.
func (sum *summary) idsToRead(ids map[leaderboard.MatchID]bool) []leaderboard.MatchID {
	ids = maps.Clone(ids)
	if sum.unchecked {
		for i := range sum.last {
			ids[sum.last[i].id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
