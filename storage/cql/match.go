package cql

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/open-leaderboard/leaderboard"
)

// The kinds of rows of table match_results.
const (
	kindResult    = 0
	kindRefusal   = 1
	kindContender = 2 // a payload that prevailed over another payload of its revision
	kindRepair    = 3 // raises the version: see Recount
	kindVoid      = 4
)

type match struct {
	result   *leaderboard.MatchResult
	refusals []leaderboard.Refusal

	payload    []byte // of the result that stands
	counted    bool   // the tally includes the result
	contenders []contender
	high, low  []byte    // see fingerprint
	row        contender // the row of kindResult
	voids      int64     // from the row of kindVoid
}

type contender struct {
	revision int64
	payload  []byte
}

func (c *contender) compare(o *contender) int {
	if c.revision != o.revision {
		if c.revision < o.revision {
			return -1
		}
		return 1
	}
	return bytes.Compare(c.payload, o.payload)
}

// eachMatch runs a query and calls visit for each match, ordered by match id, until visit
// returns false. For a row of kindRepair, it calls visit with a nil match and the row's
// number. extraDest receives columns that the query selects before those of a match.
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
			return true // the partition has only static cells
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

// put sets m.result to r. The caller must write r.
func (m *match) put(r *leaderboard.MatchResult) {
	m.result, m.payload = r, r.AppendPayload(nil)
	m.row = contender{r.Revision, m.payload}
	m.high, m.low = fingerprint(m.payload)
}

func (m *match) version() uint64 { return m.versionWith(m.result) }

func (m *match) versionWith(r *leaderboard.MatchResult) uint64 {
	if r == nil {
		return 0
	}
	return uint64(r.Revision) + 1 + uint64(len(m.contenders)) + uint64(r.Voids)
}

// needsContender reports whether several payloads were written for the revision of the
// result that stands, and no contender row has the greatest one.
//
// Two stores may write different payloads of one revision, and entries with the same
// version. Cassandra keeps the greater payload, and the fingerprint shows that there were
// two. A contender row adds one to the version, so the entry of the kept payload prevails.
//
// A contender row may arrive from another data center before the row of its result. If a
// store here then writes a greater payload, only the contender row shows that there were
// two. So contender rows stay until an erasure.
func (m *match) needsContender() bool {
	if m.result == nil || m.row.revision != m.result.Revision {
		return false // a contender row stands, which arrived before its result
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
