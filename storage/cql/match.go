package cql

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/open-leaderboard/leaderboard"
)

// The kinds of rows of match_results.
const (
	kindResult    = 0
	kindRefusal   = 1
	kindContender = 2 // a payload that prevailed over another payload of the same revision
	kindRepair    = 3 // a number that Recount adds to the version, so that its repair prevails
	kindVoid      = 4 // the Voids of the result
)

// A match is what table match_results contains about one match of a user.
type match struct {
	result   *leaderboard.MatchResult // the result that stands
	refusals []leaderboard.Refusal

	payload    []byte // the payload of the result that stands
	counted    bool   // the summary of the task includes the result
	contenders []contender
	high, low  []byte    // see fingerprint
	row        contender // the row of kindResult
	voids      int64     // the Voids in the row of kindVoid
}

// A contender is a payload with its revision.
type contender struct {
	revision int64
	payload  []byte
}

// compare orders contenders by revision, then by payload. The greatest contender stands.
func (c *contender) compare(o *contender) int {
	if c.revision != o.revision {
		if c.revision < o.revision {
			return -1
		}
		return 1
	}
	return bytes.Compare(c.payload, o.payload)
}

// eachMatch runs a query and calls visit for each match in the answer, ordered by match
// id. For each row of kindRepair, it calls visit with a nil match and the number that the
// row adds to the version. It stops if visit returns false. The query may select further
// columns before those of a match: eachMatch scans them into extraDest. It returns the number
// of rows that it has read.
func (s *Store) eachMatch(ctx context.Context, key *userKey, q op, visit func(m *match, id leaderboard.MatchID, repair uint64) bool, extraDest ...any) (rows int, err error) {
	var id string
	var kind *int8
	var item, payload, high, low []byte
	var written *int64
	var rowErr error
	var m *match
	var current leaderboard.MatchID
	flush := func() bool {
		if m == nil {
			return true
		}
		complete := m
		m = nil
		if rowErr = complete.setStanding(key.result(current)); rowErr != nil {
			return false
		}
		return visit(complete, current, 0)
	}
	more := true
	err = s.conn.read(ctx, q, append(extraDest, &id, &kind, &item, &payload, &high, &low, &written), func() bool {
		rows++
		if kind == nil {
			return true // the partition has static cells but no rows
		}
		if leaderboard.MatchID(id) != current {
			if more = flush(); !more {
				return false
			}
			current = leaderboard.MatchID(id)
		}
		if *kind == kindRepair {
			weight, n := binary.Uvarint(payload)
			if n <= 0 {
				rowErr = errFormat("repair")
				return false
			}
			more = visit(nil, "", weight)
			return more
		}
		if m == nil {
			m = &match{}
		}
		rowErr = m.add(*kind, take(&item), take(&payload), take(&high), take(&low), orZero(written))
		return rowErr == nil
	})
	if err == nil && rowErr == nil && more {
		flush()
	}
	if err == nil {
		err = rowErr
	}
	return rows, err
}

// add adds the content of a row to m.
func (m *match) add(kind int8, item, payload, high, low []byte, written int64) error {
	switch kind {
	case kindResult:
		m.row = contender{revisionOf(written), payload}
		m.high, m.low = high, low
	case kindRefusal:
		f, err := decodeRefusal(item, payload)
		if err != nil {
			return err
		}
		m.refusals = append(m.refusals, f)
	case kindContender:
		if len(item) < 8 {
			return errFormat("contender")
		}
		m.contenders = append(m.contenders, contender{int64(binary.BigEndian.Uint64(item)), payload})
	case kindVoid:
		voids, n := binary.Uvarint(payload)
		if n != len(payload) || voids < 1 || voids > math.MaxInt64 {
			return errFormat("voids of a match")
		}
		m.voids = int64(voids)
	default:
		return errFormat("row of a match")
	}
	return nil
}

// setStanding sets m.result to the result that stands: the greatest of m.row and m.contenders.
func (m *match) setStanding(key leaderboard.ResultKey) error {
	best := m.row
	for _, c := range m.contenders {
		if c.compare(&best) > 0 {
			best = c
		}
	}
	if best.payload == nil {
		return nil
	}
	r, err := leaderboard.DecodePayload(key, best.revision, best.payload)
	if err != nil {
		return fmt.Errorf("cql: %w", err)
	}
	r.Voids = m.voids
	m.result, m.payload = &r, best.payload
	return nil
}

// put sets m.result to r. The caller must then write r to the table.
func (m *match) put(r *leaderboard.MatchResult) {
	m.result, m.payload = r, r.AppendPayload(nil)
	m.row = contender{r.Revision, m.payload}
	m.high, m.low = fingerprint(m.payload)
}

// version returns the part of the state's version that comes from the match.
func (m *match) version() uint64 { return m.versionWith(m.result) }

// versionWith returns the version that the match would have if r were the result that
// stands.
func (m *match) versionWith(r *leaderboard.MatchResult) uint64 {
	if r == nil {
		return 0
	}
	return uint64(r.Revision) + 1 + uint64(len(m.contenders)) + uint64(r.Voids)
}

// needsContender reports whether the result that stands needs a contender row: two
// payloads of the result's revision were written, and no contender row records that this result
// prevailed.
//
// Two stores may concurrently write different payloads of one revision. Each store then
// writes the entry that follows from its payload, and both entries have the same version.
// Cassandra keeps only the greater payload, but the fingerprint of the row shows that two
// payloads were written. A contender row adds one to the version. So the entry that
// follows from the kept payload gets a higher version than the two earlier entries.
//
// A contender row may come from another data center before the result that it repeats. Its payload
// then stands without a row of kindResult. If a greater payload is written later, it is the first
// payload in the row of kindResult. So the fingerprint shows one payload only, but the contender
// row shows the other one.
//
// So a version never stands for two payloads of one revision: if the greater payload replaces the
// other one, the fingerprint or a contender row shows both, and the greater one gets a contender
// row of its own. Contender rows are never removed within an epoch.
func (m *match) needsContender() bool {
	if m.result == nil || m.row.revision != m.result.Revision {
		return false // the contender row of the result that stands has come before the result
	}
	high, low := fingerprint(m.payload)
	contested := !bytes.Equal(high, m.high) || !bytes.Equal(low, m.low)
	for _, c := range m.contenders {
		if c.revision == m.result.Revision {
			if bytes.Equal(c.payload, m.payload) {
				return false
			}
			contested = true
		}
	}
	return contested
}
