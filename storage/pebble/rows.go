package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

func checkEnd(d *codec.Decoder, kind string) error {
	if d.Bad || len(d.Rest) > 0 {
		return errFormat(kind)
	}
	return nil
}

func errFormat(kind string) error {
	return fmt.Errorf("pebble: %s: %w", kind, leaderboard.ErrFormat)
}

func appendTime(dst []byte, t time.Time) []byte { return binary.AppendVarint(dst, t.UnixMicro()) }

// rowFormat is the first byte of user rows, records, match states, ladder rows and final
// standings. A record begins with rowFormatVoids instead if Voids of its result is positive.
const (
	rowFormat      = 1
	rowFormatVoids = 2
)

const (
	flagHidden = 1 << iota
	flagErased
	flagRules
	flagMatches
)

// userRow is the state of a user in a season.
type userRow struct {
	version  uint64    // of the entry
	hidden   bool      // by a ban
	erasedAt time.Time // the user's latest erasure, or zero
	rules    int       // the entry follows these leaderboard.Board.Rules
	matches  matchSet
	tally    leaderboard.Tally
}

// matchSet has the hashes of the ids of all matches with a record of the user, if known is true. So Apply
// need not look for the record of most new matches.
type matchSet struct {
	known  bool
	hashes []uint16
}

// maxMatches bounds the hashes in a row, which every result of the user writes again. The matches of a user
// with more are not known.
const maxMatches = 64

func hashOf(match leaderboard.MatchID) uint16 { return uint16(xxhash.Sum64String(string(match))) }

func (m *matchSet) mayHave(match leaderboard.MatchID) bool {
	return !m.known || slices.Contains(m.hashes, hashOf(match))
}

func (m *matchSet) add(match leaderboard.MatchID) {
	switch {
	case m.mayHave(match):
	case len(m.hashes) == maxMatches:
		*m = matchSet{}
	default:
		m.hashes = append(m.hashes, hashOf(match))
	}
}

func (r *userRow) append(dst []byte) ([]byte, error) {
	var flags byte
	if r.hidden {
		flags |= flagHidden
	}
	if !r.erasedAt.IsZero() {
		flags |= flagErased
	}
	if r.rules > 0 {
		flags |= flagRules
	}
	if r.matches.known {
		flags |= flagMatches
	}
	dst = binary.AppendUvarint(append(dst, rowFormat, flags), r.version)
	if !r.erasedAt.IsZero() {
		dst = appendTime(dst, r.erasedAt)
	}
	if r.rules > 0 {
		dst = binary.AppendUvarint(dst, uint64(r.rules))
	}
	if r.matches.known {
		dst = append(dst, byte(len(r.matches.hashes)))
		for _, h := range r.matches.hashes {
			dst = binary.BigEndian.AppendUint16(dst, h)
		}
	}
	return r.tally.AppendBinary(dst)
}

func (r *userRow) decode(b []byte) error {
	d := codec.Decoder{Rest: b}
	format, flags := d.Byte(), d.Byte()
	out := userRow{version: d.Uvarint(), hidden: flags&flagHidden != 0}
	if flags&flagErased != 0 {
		out.erasedAt = d.Time()
	}
	if flags&flagRules != 0 {
		out.rules = int(d.Uvarint())
	}
	if out.matches.known = flags&flagMatches != 0; out.matches.known {
		n := int(d.Byte())
		if n > maxMatches {
			d.Bad = true
		}
		for b := d.Next(uint64(2 * n)); len(b) > 0; b = b[2:] {
			out.matches.hashes = append(out.matches.hashes, binary.BigEndian.Uint16(b))
		}
	}
	err := out.tally.UnmarshalBinary(d.Next(uint64(len(d.Rest))))
	if d.Bad || format != rowFormat || flags&^(flagHidden|flagErased|flagRules|flagMatches) != 0 || err != nil {
		return errors.Join(errFormat("user row"), err)
	}
	*r = out
	return nil
}

// appendRecord appends these fields:
//   - rowFormat, or rowFormatVoids
//   - 1 if a result stands, else 0
//   - if a result stands: its revision, and its payload with length
//   - the number of refusals, and each refusal
//   - after rowFormatVoids: Voids of the result
func appendRecord(dst []byte, r *leaderboard.Record) []byte {
	format := byte(rowFormat)
	if r.Result != nil && r.Result.Voids > 0 {
		format = rowFormatVoids
	}
	dst = append(dst, format)
	if r.Result == nil {
		dst = append(dst, 0)
	} else {
		dst = binary.AppendUvarint(append(dst, 1), uint64(r.Result.Revision))
		dst = codec.AppendText(dst, r.Result.AppendPayload(nil))
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Refusals)))
	for i := range r.Refusals {
		f := &r.Refusals[i]
		dst = binary.AppendUvarint(dst, uint64(f.Revision))
		dst = codec.AppendText(dst, f.Reason)
		dst = append(dst, f.Content[:]...)
		dst = appendTime(dst, f.ReceivedAt)
	}
	if format == rowFormatVoids {
		dst = binary.AppendUvarint(dst, uint64(r.Result.Voids))
	}
	return dst
}

func decodeRecord(key leaderboard.ResultKey, b []byte) (leaderboard.Record, error) {
	d := codec.Decoder{Rest: b}
	var r leaderboard.Record
	format := d.Byte()
	if format != rowFormat && format != rowFormatVoids {
		d.Bad = true
	}
	switch d.Byte() {
	case 0:
	case 1:
		revision := d.Uvarint()
		result, err := leaderboard.DecodePayload(key, int64(revision), d.Bytes())
		if err != nil {
			return leaderboard.Record{}, fmt.Errorf("pebble: record: %w", err)
		}
		r.Result = &result
	default:
		d.Bad = true
	}
	for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
		f := leaderboard.Refusal{Revision: int64(d.Uvarint()), Reason: leaderboard.Reason(d.Text())}
		copy(f.Content[:], d.Next(uint64(len(f.Content))))
		f.ReceivedAt = d.Time()
		r.Refusals = append(r.Refusals, f)
	}
	if format == rowFormatVoids {
		voids := int64(d.Uvarint())
		if r.Result == nil || voids < 1 {
			d.Bad = true
		} else {
			r.Result.Voids = voids
		}
	}
	if err := checkEnd(&d, "record"); err != nil {
		return leaderboard.Record{}, err
	}
	return r, nil
}

func sortRefusals(refusals []leaderboard.Refusal) {
	slices.SortFunc(refusals, func(x, y leaderboard.Refusal) int {
		return cmp.Or(x.Compare(y), bytes.Compare(x.Content[:], y.Content[:]))
	})
}

// A placement is the key and the value of a ladder row.
type placement struct{ key, value []byte }

// A hidden entry has one row, in slotHidden.
func (bd *board) placements(rowKey seasonRowKey, e *leaderboard.Entry) []placement {
	if e.Key == "" {
		return nil
	}
	value := binary.AppendUvarint([]byte{rowFormat}, e.Version)
	value = binary.AppendUvarint(value, uint64(e.Results))
	value = codec.AppendText(value, e.Match)
	value = codec.AppendText(value, e.Metadata)
	slots := [][]byte{{slotOverall}}
	value = binary.AppendUvarint(value, uint64(len(e.Divisions)))
	for _, d := range e.Divisions {
		i := bd.indexOf(d.Attribute)
		value = codec.AppendText(append(value, byte(i)), d.Value)
		slots = append(slots, divisionSlot(i, d.Value))
	}
	if e.Hidden {
		slots = [][]byte{{slotHidden}}
	}
	sortKey := e.SortKey()
	rows := make([]placement, len(slots))
	for i, slot := range slots {
		rows[i] = placement{append(rowKey.ladder(slot), sortKey...), value}
	}
	return rows
}

func (bd *board) decodeEntry(season leaderboard.SeasonID, slot, sortKey, value []byte) (leaderboard.Entry, error) {
	e := leaderboard.Entry{SeasonKey: leaderboard.SeasonKey{Board: bd.ID, Season: season}, Hidden: slot[0] == slotHidden}
	var err error
	if e.Key, e.AchievedAt, e.User, err = leaderboard.SortKey(sortKey).Split(bd.RankKeyBytes()); err != nil {
		return leaderboard.Entry{}, fmt.Errorf("pebble: ladder row: %w", err)
	}
	d := codec.Decoder{Rest: value}
	if d.Byte() != rowFormat {
		d.Bad = true
	}
	e.Version, e.Results = d.Uvarint(), int64(d.Uvarint())
	e.Match, e.Metadata = leaderboard.MatchID(d.Text()), d.Text()
	for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
		i, v := int(d.Byte()), d.Text()
		name, ok := bd.division(i)
		if !ok {
			d.Bad = true
			break
		}
		e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: name, Value: v})
	}
	if err := checkEnd(&d, "ladder row"); err != nil {
		return leaderboard.Entry{}, err
	}
	return e, nil
}

func decodeUvarint(b []byte) (uint64, error) {
	d := codec.Decoder{Rest: b}
	v := d.Uvarint()
	return v, checkEnd(&d, "number")
}
