package cql

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// A rowKey identifies one row of a given user in table leaderboard. The field standing
// contains the bytes of the sort key without the user id.
type rowKey struct{ division, standing string }

// rowKeys returns the rows that an entry has in its ladders.
func rowKeys(e *leaderboard.Entry) []rowKey {
	if !e.Ranked() {
		return nil
	}
	standing := string(standingOf(e))
	out := []rowKey{{"", standing}}
	for _, d := range e.Divisions {
		out = append(out, rowKey{d.String(), standing})
	}
	return out
}

func rowKeysOf(rows []row) []rowKey {
	out := make([]rowKey, len(rows))
	for i, r := range rows {
		out[i] = r.rowKey
	}
	return out
}

// A row is a row of table leaderboard. The field written is the row's write timestamp, or
// 0 if it is unknown.
type row struct {
	rowKey
	written int64
}

// ladderArgs returns the arguments of a statement: the other arguments, and then a
// partition key. The partition is the user's bucket of the division's ladder.
func (k *userKey) ladderArgs(inc incarnation, division string, others ...any) []any {
	return append(others, string(k.Board), string(k.Season), k.incarnation, division, bucketOf(k.user, inc.buckets))
}

// bucket identifies a partition of table user_entries, and the partition of the overall
// ladder that has the same key.
type bucket struct {
	leaderboard.SeasonKey
	incarnation, number int
}

// mostWrites bounds the number of changed entries in one batch.
const mostWrites = 64

// writeBucket writes the concurrent changes of several entries in one bucket as one
// batch.
func (s *Store) writeBucket(ctx context.Context, _ bucket, group [][]op) error {
	return s.conn.write(ctx, slices.Concat(group...)...)
}

// place writes a user's new entry and updates the user's rows in the ladders. The slice
// rows contains the user's rows that the caller has read. st contains the static cells of
// the user's partition.
//
// The entry may have divisions that are not in the partition yet: a crossed division
// combines values of several results, which different writers may have written. place
// first adds their names.
//
// place inserts the rows of divisions before it writes the entry, and deletes rows of
// divisions after it has written the entry. So every row of the stored entry exists at
// any time. If both entries have the same row, place writes that row again at the new
// version. Without this write, a slow writer with an earlier version could delete the row,
// if the slow writer's entry does not have it.
func (s *Store) place(ctx context.Context, key *userKey, inc incarnation, st *statics, entry, oldEntry *leaderboard.Entry, rows []rowKey) error {
	if entry.Version > maxVersion {
		return fmt.Errorf("cql: user %q in season %q of board %q: the revisions of the results add up to more than 2^61; use smaller revisions: %w",
			key.user, key.Season, key.Board, leaderboard.ErrInvalid)
	}
	want := rowKeys(entry)
	var leave []rowKey
	for _, rk := range append(rows, rowKeys(oldEntry)...) {
		if !slices.Contains(want, rk) && !slices.Contains(leave, rk) {
			leave = append(leave, rk)
		}
	}
	insert := func(rk rowKey) op {
		return op{insertRow, append(key.ladderArgs(inc, rk.division), []byte(rk.standing), string(key.user), int64(entry.Version), insertTime(entry.Version))}
	}
	var main []op
	var others []op
	gone := map[string][]op{}
	for _, rk := range want {
		if rk.division == "" {
			main = append(main, insert(rk))
		} else {
			others = append(others, insert(rk))
		}
	}
	for _, rk := range leave {
		gone[rk.division] = append(gone[rk.division], op{deleteRow,
			append(key.ladderArgs(inc, rk.division, deleteTime(entry.Version)), []byte(rk.standing), string(key.user))})
	}
	if err := s.writeUser(ctx, st.addDivisions(key, entry)...); err != nil {
		return err
	}
	if err := s.forEach(ctx, len(others), func(ctx context.Context, i int) error { return s.conn.write(ctx, others[i]) }); err != nil {
		return err
	}
	main = append(main, gone[""]...)
	delete(gone, "")
	main = append(main, op{insertEntry, []any{string(key.Board), string(key.Season), key.incarnation, bucketOf(key.user, inc.buckets), string(key.user),
		appendEntry(nil, entry), insertTime(entry.Version)}})
	if err := s.writes.Do(ctx, bucket{key.SeasonKey, key.incarnation, bucketOf(key.user, inc.buckets)}, main); err != nil {
		return err
	}
	divisions := slices.Sorted(maps.Keys(gone))
	return s.forEach(ctx, len(divisions), func(ctx context.Context, i int) error { return s.conn.write(ctx, gone[divisions[i]]...) })
}

// derive does steps 2 and 3 of a writer (see state.go). It reads the user's whole state,
// and updates the entry and the rows of the ladders. The argument ownClaim is the claim
// that the caller wrote in step 1, or zero if the caller wrote no claim (see
// readResolved). derive returns live as false if the incarnation ended before derive had
// read the state.
func (s *Store) derive(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, ownClaim claim) (st *state, change leaderboard.Change, live bool, err error) {
	var have storedEntry
	var rows []row
	live, err = s.whileOpen(ctx, key.SeasonKey, inc, func(ctx context.Context) (err error) {
		// If the entry is newer than the state, the entry's writer has read results that
		// this read missed. A second read of the state finds these results.
		for range 2 {
			st, have, rows, err = s.inspect(ctx, b, key, inc, ownClaim)
			if err != nil || have.entry == nil || have.entry.Version <= st.version()+uint64(b.Rules()) {
				break
			}
		}
		return err
	})
	if err != nil || !live {
		return nil, change, live, err
	}
	want, none := st.entries(b, key)
	change.Before, change.After = have.entryOr(none), want
	switch {
	case have.entry != nil && have.entry.Version > want.Version:
		// The entry came from another data center, and its results have not arrived here
		// yet. Do not replace it. The returned change contains the entry that follows
		// from the results in this data center, so the index of this data center receives
		// that entry. The index must not receive the stored entry. When all results have
		// arrived, the correct entry may differ but have the same version, and the index
		// would ignore it.
	case have.is(&want) && !rowsDiffer(rows, &want), have.entry == nil && want.Version == none.Version:
	default:
		err = s.place(ctx, key, inc, &st.statics, &want, &change.Before, rowKeysOf(rows))
	}
	return st, change, true, err
}

// entries returns the entry that follows from the state, and the entry that would follow
// if the user had no results.
func (st *state) entries(b *leaderboard.Board, key *userKey) (want, none leaderboard.Entry) {
	return key.entry(b, &st.tally, &st.account, st.version()),
		key.entry(b, &leaderboard.Tally{}, &st.account, st.account.version())
}

// rowsDiffer reports whether the rows differ from the rows that the entry should have.
func rowsDiffer(rows []row, e *leaderboard.Entry) bool {
	want := rowKeys(e)
	for _, r := range rows {
		if !slices.Contains(want, r.rowKey) {
			return true
		}
	}
	return len(rows) < len(want)
}

// inspect reads a user's whole state and the stored entry, and then the user's rows in
// the ladders. The argument ownClaim is the claim that the caller wrote in step 1, or zero
// if the caller wrote no claim (see readResolved).
func (s *Store) inspect(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, ownClaim claim) (st *state, have storedEntry, rows []row, err error) {
	err = s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			st, err = s.readResolved(ctx, b, key, ownClaim)
		} else {
			have, err = s.readEntry(ctx, key, inc)
		}
		return err
	})
	if err == nil {
		rows, err = s.userRows(ctx, key, inc, slices.Sorted(maps.Keys(st.divisions)))
	}
	return st, have, rows, err
}

// userRows returns the rows of a user in the overall ladder and in the divisions.
func (s *Store) userRows(ctx context.Context, key *userKey, inc incarnation, divisions []string) ([]row, error) {
	divisions = append(divisions, "")
	found := make([][]row, len(divisions))
	err := s.forEach(ctx, len(divisions), func(ctx context.Context, i int) (err error) {
		var standing []byte
		var written *int64
		found[i], err = gather(ctx, s.conn, op{selectUserRows, append(key.ladderArgs(inc, divisions[i]), string(key.user))}, []any{&standing, &written}, func() (row, error) {
			return row{rowKey{divisions[i], string(standing)}, orZero(written)}, nil
		})
		return err
	})
	return slices.Concat(found...), err
}
