package cql

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// In a rowKey, standing is the sort key without the user id.
type rowKey struct{ division, standing string }

func rowKeys(e *leaderboard.Entry) []rowKey {
	if !e.Ranked() {
		return nil
	}
	standing := string(standingColumn(e))
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

type row struct {
	rowKey
	written int64 // write timestamp; 0 if unknown
}

func (k *userKey) ladderArgs(inc incarnation, division string, others ...any) []any {
	return append(others, string(k.Board), string(k.Season), k.incarnation, division, bucketOf(k.user, inc.buckets))
}

func (k *userKey) deleteRow(inc incarnation, rk rowKey, version uint64) op {
	return op{deleteRow, append(k.ladderArgs(inc, rk.division, deleteTime(version)), []byte(rk.standing), string(k.user))}
}

// A bucket is the key of a partition in the table leaderboard, and, for the overall ladder,
// in user_entries.
type bucket struct {
	leaderboard.SeasonKey
	incarnation, number int
	division            string
}

// mostWrites bounds the users, or the final marks, in one batch.
const mostWrites = 64

// writeBuckets merges concurrent writes to one bucket into one batch.
func (s *Store) writeBuckets(ctx context.Context, key *userKey, inc incarnation, divisions map[string][]op) error {
	names := slices.Sorted(maps.Keys(divisions))
	return s.forEach(ctx, len(names), func(ctx context.Context, i int) error {
		return s.writes.Do(ctx, bucket{key.SeasonKey, key.incarnation, bucketOf(key.user, inc.buckets), names[i]}, divisions[names[i]])
	})
}

func (s *Store) writeBucket(ctx context.Context, _ bucket, group [][]op) error {
	return s.conn.write(ctx, slices.Concat(group...)...)
}

// place writes a user's new entry and updates the user's rows. The parameter rows has the
// rows that the caller has read.
//
// First, place adds missing divisions to the user's partition. No writer has added a
// crossed division that combines results of several writers. Then place inserts rows,
// writes the entry, and deletes rows. So all rows of the stored entry exist at any time.
// place writes unchanged rows again, because a slow writer of an older entry could delete
// their old versions.
func (s *Store) place(ctx context.Context, key *userKey, inc incarnation, st *statics, entry, oldEntry *leaderboard.Entry, rows []rowKey) error {
	if entry.Version > maxVersion {
		return fmt.Errorf("cql: user %q in season %q of board %q: the revisions of the results add up to more than 2^61; use smaller revisions: %w",
			key.user, key.Season, key.Board, leaderboard.ErrInvalid)
	}
	want := rowKeys(entry)
	var obsolete []rowKey
	for _, rk := range append(rows, rowKeys(oldEntry)...) {
		if !slices.Contains(want, rk) && !slices.Contains(obsolete, rk) {
			obsolete = append(obsolete, rk)
		}
	}
	insert := func(rk rowKey) op {
		return op{insertRow, append(key.ladderArgs(inc, rk.division), []byte(rk.standing), string(key.user), int64(entry.Version), insertTime(entry.Version))}
	}
	inserts, deletes := map[string][]op{}, map[string][]op{}
	for _, rk := range want {
		inserts[rk.division] = append(inserts[rk.division], insert(rk))
	}
	for _, rk := range obsolete {
		deletes[rk.division] = append(deletes[rk.division], key.deleteRow(inc, rk, entry.Version))
	}
	if err := s.writeUser(ctx, st.addDivisions(key, entry)...); err != nil {
		return err
	}
	overall := append(append(inserts[""], deletes[""]...), op{insertEntry, []any{string(key.Board), string(key.Season), key.incarnation,
		bucketOf(key.user, inc.buckets), string(key.user), appendEntry(nil, entry), insertTime(entry.Version)}})
	delete(inserts, "")
	delete(deletes, "")
	for _, divisions := range []map[string][]op{inserts, {"": overall}, deletes} {
		if err := s.writeBuckets(ctx, key, inc, divisions); err != nil {
			return err
		}
	}
	return nil
}

// derive does steps 2 and 3 of a writer (see state.go). See readResolved for ownClaim. The
// result live is false if the incarnation ended, or its rules changed, before derive had
// read the state.
func (s *Store) derive(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, ownClaim claim) (st *state, change leaderboard.Change, live bool, err error) {
	var stored storedEntry
	var rows []row
	live, err = s.whileOpen(ctx, key.SeasonKey, inc, func(ctx context.Context) (err error) {
		// inspect reads the state and the entry concurrently, so the state may be older. The
		// second read finds the missing results, unless they have not arrived from another
		// data center.
		for range 2 {
			st, stored, rows, err = s.inspect(ctx, b, key, inc, ownClaim)
			if err != nil || stored.entry == nil || stored.entry.Version <= st.version()+uint64(b.Rules()) {
				break
			}
		}
		return err
	})
	if err == nil && live && st.registered && !stored.rowExists {
		live, err = s.addRegistration(ctx, key, inc, &st.account)
	}
	if err != nil || !live {
		return nil, change, live, err
	}
	want, none := st.entries(b, key)
	change.Before, change.After = stored.entryOr(none), want
	switch {
	case stored.entry != nil && stored.entry.Version > want.Version:
		// The stored entry arrived from another data center before its results, so keep it.
		// But the index gets want. If the index got the stored entry, it would ignore a
		// different final entry with the same version.
	case stored.equals(&want) && !rowsDiffer(rows, &want), stored.entry == nil && want.Version == none.Version:
	default:
		err = s.place(ctx, key, inc, &st.statics, &want, &change.Before, rowKeysOf(rows))
	}
	return st, change, true, err
}

// addRegistration adds a user to the season's list: the account arrived from another data
// center before the user's row of this list (see "Changes of divisions" in state.go).
// addRegistration reports whether inc is still open, with the same rules.
func (s *Store) addRegistration(ctx context.Context, key *userKey, inc incarnation, acc *account) (bool, error) {
	if err := s.conn.write(ctx, key.registration(inc, acc)); err != nil {
		return false, err
	}
	current, err := s.incarnations.readAgain(ctx, key.SeasonKey)
	return current.open && current.same(&inc), err
}

func (st *state) entries(b *leaderboard.Board, key *userKey) (want, none leaderboard.Entry) {
	return key.entry(b, &st.tally, &st.account, st.version()),
		key.entry(b, &leaderboard.Tally{}, &st.account, st.account.version())
}

func rowsDiffer(rows []row, e *leaderboard.Entry) bool {
	want := rowKeys(e)
	for _, r := range rows {
		if !slices.Contains(want, r.rowKey) {
			return true
		}
	}
	return len(rows) < len(want)
}

// inspect reads a user's whole state, the stored entry and the rows. See readResolved for
// ownClaim.
func (s *Store) inspect(ctx context.Context, b *leaderboard.Board, key *userKey, inc incarnation, ownClaim claim) (st *state, stored storedEntry, rows []row, err error) {
	stored, rows, err = s.inspectWith(ctx, key, inc, func(ctx context.Context) (map[string]bool, error) {
		resolved, err := s.readResolved(ctx, b, key, ownClaim)
		if err != nil {
			return nil, err
		}
		st = resolved
		return st.divisions, nil
	})
	return st, stored, rows, err
}

func (s *Store) inspectStatics(ctx context.Context, key *userKey, inc incarnation) (st statics, stored storedEntry, rows []row, err error) {
	stored, rows, err = s.inspectWith(ctx, key, inc, func(ctx context.Context) (_ map[string]bool, err error) {
		st, err = s.readStatics(ctx, key)
		return st.divisions, err
	})
	return st, stored, rows, err
}

func (s *Store) inspectWith(ctx context.Context, key *userKey, inc incarnation, readDivisions func(context.Context) (map[string]bool, error)) (stored storedEntry, rows []row, err error) {
	var divisions map[string]bool
	err = s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			divisions, err = readDivisions(ctx)
		} else {
			stored, err = s.readEntry(ctx, key, inc)
		}
		return err
	})
	if err == nil {
		rows, err = s.userRows(ctx, key, inc, slices.Sorted(maps.Keys(divisions)))
	}
	return stored, rows, err
}

func (s *Store) userRows(ctx context.Context, key *userKey, inc incarnation, divisions []string) ([]row, error) {
	divisions = append(divisions, "")
	lists := make([][]row, len(divisions))
	err := s.forEach(ctx, len(divisions), func(ctx context.Context, i int) (err error) {
		var standing []byte
		var written *int64
		lists[i], err = gather(ctx, s.conn, op{selectUserRows, append(key.ladderArgs(inc, divisions[i]), string(key.user))}, []any{&standing, &written}, func() (row, error) {
			return row{rowKey{divisions[i], string(standing)}, orZero(written)}, nil
		})
		return err
	})
	return slices.Concat(lists...), err
}
