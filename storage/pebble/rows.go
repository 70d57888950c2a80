package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// After a failed read, bad is true and every read returns a zero value.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) next(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.next(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) time() time.Time {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return time.Time{}
	}
	d.b = d.b[n:]
	return time.UnixMicro(v).UTC()
}

func (d *decoder) bytes() []byte { return d.next(d.uvarint()) }

func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) readRest() []byte { return d.next(uint64(len(d.b))) }

func (d *decoder) checkEnd(kind string) error {
	if d.bad || len(d.b) > 0 {
		return errFormat(kind)
	}
	return nil
}

func errFormat(kind string) error {
	return fmt.Errorf("pebble: %s: %w", kind, leaderboard.ErrFormat)
}

func appendTime(dst []byte, t time.Time) []byte { return binary.AppendVarint(dst, t.UnixMicro()) }

// rowFormat is the first byte of user rows, erasures, records, match states, ladder rows and final
// standings. A record begins with rowFormatVoids instead if Voids of its result is positive.
const (
	rowFormat      = 1
	rowFormatVoids = 2
)

const (
	flagHidden = 1 << iota
	flagErased
	flagRules
)

// userRow is the state of a user in a season.
type userRow struct {
	version  uint64    // of the entry
	hidden   bool      // by a ban
	erasedAt time.Time // the user's latest erasure, or zero
	rules    int       // the entry follows these leaderboard.Board.Rules
	tally    leaderboard.Tally
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
	dst = binary.AppendUvarint(append(dst, rowFormat, flags), r.version)
	if !r.erasedAt.IsZero() {
		dst = appendTime(dst, r.erasedAt)
	}
	if r.rules > 0 {
		dst = binary.AppendUvarint(dst, uint64(r.rules))
	}
	return r.tally.AppendBinary(dst)
}

func (r *userRow) decode(b []byte) error {
	d := decoder{b: b}
	format, flags := d.byte(), d.byte()
	out := userRow{version: d.uvarint(), hidden: flags&flagHidden != 0}
	if flags&flagErased != 0 {
		out.erasedAt = d.time()
	}
	if flags&flagRules != 0 {
		out.rules = int(d.uvarint())
	}
	err := out.tally.UnmarshalBinary(d.readRest())
	if d.bad || format != rowFormat || flags&^(flagHidden|flagErased|flagRules) != 0 || err != nil {
		return errors.Join(errFormat("user row"), err)
	}
	*r = out
	return nil
}

type erasure struct {
	at      time.Time
	version uint64 // the versions of the user's later entries are greater
}

func (e erasure) append(dst []byte) []byte {
	return binary.AppendUvarint(appendTime(append(dst, rowFormat), e.at), e.version)
}

func (e *erasure) decode(b []byte) error {
	d := decoder{b: b}
	format := d.byte()
	out := erasure{d.time(), d.uvarint()}
	if format != rowFormat {
		d.bad = true
	}
	if err := d.checkEnd("erasure"); err != nil {
		return err
	}
	*e = out
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
		dst = appendString(dst, string(r.Result.AppendPayload(nil)))
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Refusals)))
	for i := range r.Refusals {
		f := &r.Refusals[i]
		dst = binary.AppendUvarint(dst, uint64(f.Revision))
		dst = appendString(dst, f.Reason)
		dst = append(dst, f.Content[:]...)
		dst = appendTime(dst, f.ReceivedAt)
	}
	if format == rowFormatVoids {
		dst = binary.AppendUvarint(dst, uint64(r.Result.Voids))
	}
	return dst
}

func decodeRecord(key leaderboard.ResultKey, b []byte) (leaderboard.Record, error) {
	d := decoder{b: b}
	var r leaderboard.Record
	format := d.byte()
	if format != rowFormat && format != rowFormatVoids {
		d.bad = true
	}
	switch d.byte() {
	case 0:
	case 1:
		revision := d.uvarint()
		result, err := leaderboard.DecodePayload(key, int64(revision), d.bytes())
		if err != nil {
			return leaderboard.Record{}, fmt.Errorf("pebble: record: %w", err)
		}
		r.Result = &result
	default:
		d.bad = true
	}
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		f := leaderboard.Refusal{Revision: int64(d.uvarint()), Reason: leaderboard.Reason(d.string())}
		copy(f.Content[:], d.next(uint64(len(f.Content))))
		f.ReceivedAt = d.time()
		r.Refusals = append(r.Refusals, f)
	}
	if format == rowFormatVoids {
		voids := int64(d.uvarint())
		if r.Result == nil || voids < 1 {
			d.bad = true
		} else {
			r.Result.Voids = voids
		}
	}
	if err := d.checkEnd("record"); err != nil {
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
	value = appendString(value, e.Match)
	value = appendString(value, e.Metadata)
	slots := [][]byte{{slotOverall}}
	value = binary.AppendUvarint(value, uint64(len(e.Divisions)))
	for _, d := range e.Divisions {
		i := bd.indexOf(d.Attribute)
		value = appendString(append(value, byte(i)), d.Value)
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
	d := decoder{b: value}
	if d.byte() != rowFormat {
		d.bad = true
	}
	e.Version, e.Results = d.uvarint(), int64(d.uvarint())
	e.Match, e.Metadata = leaderboard.MatchID(d.string()), d.string()
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		i, v := int(d.byte()), d.string()
		name, ok := bd.division(i)
		if !ok {
			d.bad = true
			break
		}
		e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: name, Value: v})
	}
	if err := d.checkEnd("ladder row"); err != nil {
		return leaderboard.Entry{}, err
	}
	return e, nil
}

func decodeUvarint(b []byte) (uint64, error) {
	d := decoder{b: b}
	v := d.uvarint()
	return v, d.checkEnd("number")
}
