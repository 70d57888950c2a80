package cql

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// spot is a row of the leaderboard of a user.
type spot struct{ division, standing string }

// spots returns the rows by which an entry stands in its ladders.
func spots(e *leaderboard.Entry) []spot {
	if !e.Ranked() {
		return nil
	}
	standing := string(standingOf(e))
	out := []spot{{"", standing}}
	for _, d := range e.Divisions {
		out = append(out, spot{d.String(), standing})
	}
	return out
}

// ladder returns the partition key of a ladder's bucket, after others.
func (k *userKey) ladder(e edition, division string, others ...any) []any {
	return append(others, string(k.Board), string(k.Season), k.edition, division, bucketOf(k.user, e.buckets))
}

// bucket is a partition of user_entries, and of the overall leaderboard.
type bucket struct {
	leaderboard.Scope
	edition, number int
}

// mostWrites bounds how many entries are written to a bucket as one.
const mostWrites = 64

// writeBucket writes what belongs to a bucket, as one.
func (s *Store) writeBucket(ctx context.Context, _ bucket, group [][]op) error {
	return s.conn.write(ctx, slices.Concat(group...)...)
}

// place writes an entry in place of before, and the rows of its ladders; rows are
// others that the user was seen to have. The rows of its divisions are there
// before the entry says so, and those it leaves go after: so none is ever missing. A
// row that stays is written again at the new version, so that it does not fall to
// one who knows an earlier version and has not seen why it is there.
func (s *Store) place(ctx context.Context, key *userKey, e edition, entry, before *leaderboard.Entry, rows []spot) error {
	if entry.Version > maxVersion {
		return fmt.Errorf("cql: user %q in season %q of board %q: the revisions add up to more than 2^61; use smaller ones", key.user, key.Season, key.Board)
	}
	want := spots(entry)
	var leave []spot
	for _, sp := range append(rows, spots(before)...) {
		if !slices.Contains(want, sp) && !slices.Contains(leave, sp) {
			leave = append(leave, sp)
		}
	}
	insert := func(sp spot) op {
		return op{insertRow, append(key.ladder(e, sp.division), []byte(sp.standing), string(key.user), int64(entry.Version), insertTime(entry.Version))}
	}
	var main []op
	var others []op
	gone := map[string][]op{}
	for _, sp := range want {
		if sp.division == "" {
			main = append(main, insert(sp))
		} else {
			others = append(others, insert(sp))
		}
	}
	for _, sp := range leave {
		gone[sp.division] = append(gone[sp.division], op{deleteRow,
			append(key.ladder(e, sp.division, deleteTime(entry.Version)), []byte(sp.standing), string(key.user))})
	}
	if err := s.each(ctx, len(others), func(ctx context.Context, i int) error { return s.conn.write(ctx, others[i]) }); err != nil {
		return err
	}
	main = append(main, gone[""]...)
	delete(gone, "")
	main = append(main, op{insertEntry, []any{string(key.Board), string(key.Season), key.edition, bucketOf(key.user, e.buckets), string(key.user),
		appendEntry(nil, entry), insertTime(entry.Version)}})
	if err := s.writes.Ask(ctx, bucket{key.Scope, key.edition, bucketOf(key.user, e.buckets)}, main); err != nil {
		return err
	}
	divisions := slices.Sorted(maps.Keys(gone))
	return s.each(ctx, len(divisions), func(ctx context.Context, i int) error { return s.conn.write(ctx, gone[divisions[i]]...) })
}

// derive brings a user's entry in step with the user's whole state, and the rows
// of the ladders with the entry: steps 2 and 3 of a writer. wrote is as for settled.
// live is false if the edition ended meanwhile.
func (s *Store) derive(ctx context.Context, b *leaderboard.Board, key *userKey, e edition, wrote claim) (st *state, change leaderboard.Change, live bool, err error) {
	var have stored
	var rows []row
	live, err = s.still(ctx, key.Scope, e, func(ctx context.Context) (err error) {
		// An entry that is newer than the state was made by a writer that has seen
		// more of it, which can be seen by now.
		for range 2 {
			st, have, rows, err = s.inspect(ctx, b, key, e, wrote)
			if err != nil || have.entry == nil || have.entry.Version <= st.version() {
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
		// It came from another data center, before what it was made of. This one's
		// index is told of no more than what is known here: of this entry's version
		// there may yet be another, from what only this data center has.
	case have.is(&want) && !strays(rows, &want), have.entry == nil && want.Version == none.Version:
	default:
		err = s.place(ctx, key, e, &want, &change.Before, spotsOf(rows))
	}
	return st, change, true, err
}

// entries returns the entry that the state makes, and the one that it would make
// of no results.
func (st *state) entries(b *leaderboard.Board, key *userKey) (want, none leaderboard.Entry) {
	return key.entry(b, &st.tally, &st.account, st.version()),
		key.entry(b, &leaderboard.Tally{}, &st.account, st.account.version())
}

func spotsOf(rows []row) []spot {
	out := make([]spot, len(rows))
	for i, r := range rows {
		out[i] = r.spot
	}
	return out
}

// strays says whether there is a row that the entry does not make, or none that
// it does.
func strays(rows []row, e *leaderboard.Entry) bool {
	want := spots(e)
	for _, r := range rows {
		if !slices.Contains(want, r.spot) {
			return true
		}
	}
	return len(rows) < len(want)
}

// stored is an entry as it is in the table; entry is nil if there is none.
type stored struct {
	entry   *leaderboard.Entry
	written int64
	listed  bool // there is a row of the user, be it without an entry
}

func (st *stored) is(e *leaderboard.Entry) bool {
	return st.entry != nil && bytes.Equal(appendEntry(nil, st.entry), appendEntry(nil, e))
}

func (st *stored) entryOr(e leaderboard.Entry) leaderboard.Entry {
	if st.entry == nil {
		return e
	}
	return *st.entry
}

func (s *Store) readEntry(ctx context.Context, key *userKey, e edition) (stored, error) {
	var blob []byte
	var written *int64
	q := op{selectEntry, []any{string(key.Board), string(key.Season), key.edition, bucketOf(key.user, e.buckets), string(key.user)}}
	listed := false
	err := s.conn.read(ctx, q, []any{&blob, &written}, func() bool {
		listed = true
		return true
	})
	if err != nil || blob == nil {
		return stored{listed: listed}, err
	}
	entry, err := decodeEntry(key.Scope, key.user, blob)
	return stored{&entry, orZero(written), listed}, err
}

// row is a row of the leaderboard with when it was written; 0 is unknown.
type row struct {
	spot
	written int64
}

// userRows returns the rows of a user in the overall ladder and in divisions.
func (s *Store) userRows(ctx context.Context, key *userKey, e edition, divisions []string) ([]row, error) {
	divisions = append(divisions, "")
	found := make([][]row, len(divisions))
	err := s.each(ctx, len(divisions), func(ctx context.Context, i int) (err error) {
		var standing []byte
		var written *int64
		found[i], err = gather(ctx, s.conn, op{selectUserRows, append(key.ladder(e, divisions[i]), string(key.user))}, []any{&standing, &written}, func() (row, error) {
			return row{spot{divisions[i], string(standing)}, orZero(written)}, nil
		})
		return err
	})
	return slices.Concat(found...), err
}

// Entry returns a user's entry.
func (s *Store) Entry(ctx context.Context, scope leaderboard.Scope, user leaderboard.UserID) (leaderboard.Entry, error) {
	var have stored
	err := s.within(ctx, scope, func(ctx context.Context, e edition) (err error) {
		have, err = s.readEntry(ctx, &userKey{scope, e.number, user}, e)
		return err
	})
	if err == nil && (have.entry == nil || have.entry.Key == "") {
		err = fmt.Errorf("cql: user %q in season %q of board %q: %w", user, scope.Season, scope.Board, leaderboard.ErrEntryNotFound)
	}
	if err != nil {
		return leaderboard.Entry{}, err
	}
	return *have.entry, nil
}

// perBucket yields what is found in each bucket of the open edition of a scope,
// one bucket after the other.
func perBucket[T any](ctx context.Context, s *Store, scope leaderboard.Scope, stmt string, dest []any, value func() (v T, ok bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		e, err := s.editions.fresh(ctx, scope)
		for bucket := 0; err == nil && e.open && bucket < e.buckets; bucket++ {
			stopped := false
			var bad error
			err = s.conn.read(ctx, op{stmt, []any{string(scope.Board), string(scope.Season), e.number, bucket}}, dest, func() bool {
				v, ok, err := value()
				if bad = err; err != nil || !ok {
					return err == nil
				}
				stopped = !yield(v, nil)
				return !stopped
			})
			if stopped {
				return
			}
			if err == nil {
				err = bad
			}
		}
		if err != nil {
			yield(zero, err)
		}
	}
}

// Users yields the users with results, and users whose first result was not
// wholly written.
func (s *Store) Users(ctx context.Context, scope leaderboard.Scope) iter.Seq2[leaderboard.UserID, error] {
	return func(yield func(leaderboard.UserID, error) bool) {
		var user string
		perBucket(ctx, s, scope, selectUsers, []any{&user}, func() (leaderboard.UserID, bool, error) {
			return leaderboard.UserID(user), true, nil
		})(yield)
	}
}

// Unlisted yields the users with results whom Users leaves out. Who is registered
// in a season has an account in the partition of the results.
func (s *Store) Unlisted(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
	return func(yield func(leaderboard.EntryKey, error) bool) {
		l := listing{s: s, yield: yield, scopes: map[leaderboard.Scope]edition{}}
		var board, season, user string
		var edition int
		var account []byte
		var bad error
		err := s.conn.read(ctx, op{selectEveryUser, nil}, []any{&board, &season, &edition, &user, &account}, func() bool {
			if take(&account) != nil {
				scope := leaderboard.Scope{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}
				l.users = append(l.users, userKey{scope, edition, leaderboard.UserID(user)})
			}
			if len(l.users) == maxListed {
				bad = l.flush(ctx)
			}
			return bad == nil && !l.stopped
		})
		if err == nil {
			err = bad
		}
		if err == nil && !l.stopped {
			err = l.flush(ctx)
		}
		if err != nil && !l.stopped {
			yield(leaderboard.EntryKey{}, err)
		}
	}
}

// maxListed is how many users are looked for at a time.
const maxListed = 500

// listing looks for users among those of their seasons.
type listing struct {
	s       *Store
	yield   func(leaderboard.EntryKey, error) bool
	scopes  map[leaderboard.Scope]edition
	users   []userKey // to look for
	stopped bool
}

// flush yields those of the users who are not registered.
func (l *listing) flush(ctx context.Context) error {
	wanted := map[bucket][]string{}
	for _, k := range l.users {
		e, ok := l.scopes[k.Scope]
		if !ok {
			var err error
			if e, err = l.s.editions.fresh(ctx, k.Scope); err != nil {
				return err
			}
			l.scopes[k.Scope] = e
		}
		if e.open && e.number == k.edition {
			b := bucket{k.Scope, k.edition, bucketOf(k.user, e.buckets)}
			wanted[b] = append(wanted[b], string(k.user))
		}
	}
	l.users = l.users[:0]
	for b, users := range wanted {
		var user string
		var entry []byte
		q := op{selectEntries, []any{string(b.Board), string(b.Season), b.edition, b.number, users}}
		listed, err := gather(ctx, l.s.conn, q, []any{&user, &entry}, func() (string, error) { return user, nil })
		if err != nil {
			return err
		}
		for _, user := range users {
			if !slices.Contains(listed, user) && !l.yield(leaderboard.EntryKey{Scope: b.Scope, User: leaderboard.UserID(user)}, nil) {
				l.stopped = true
				return nil
			}
		}
	}
	return nil
}

// Scan yields every entry of a scope.
func (s *Store) Scan(ctx context.Context, scope leaderboard.Scope) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		var user string
		var blob []byte
		perBucket(ctx, s, scope, selectBucket, []any{&user, &blob}, func() (leaderboard.Entry, bool, error) {
			if blob == nil {
				return leaderboard.Entry{}, false, nil
			}
			e, err := decodeEntry(scope, leaderboard.UserID(user), blob)
			return e, e.Key != "", err
		})(yield)
	}
}

// Entries yields the ranked entries of a ladder.
//
// A row of the ladder alone is not believed: a writer that slept may have left
// it. It counts if the user's entry stands there.
func (s *Store) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		e, err := s.editions.fresh(ctx, l.Scope)
		var h readerHeap
		if err == nil && e.open {
			h, err = s.openLadder(ctx, l, e, after)
		}
		for err == nil && len(h) > 0 {
			if !yield(h[0].page[0], nil) {
				return
			}
			err = h.next(ctx)
		}
		if err != nil {
			yield(leaderboard.Entry{}, err)
		}
	}
}

// Rows are fetched from each bucket in pages, small ones first: most readers
// want the top.
const (
	firstLadderPage = 8
	lastLadderPage  = 500
)

// bucketReader reads one bucket of a ladder.
type bucketReader struct {
	s      *Store
	ladder leaderboard.Ladder
	e      edition
	bucket int

	after *cursor // nil is the top
	size  int
	page  []leaderboard.Entry
	keys  []leaderboard.SortKey // of page
	end   bool                  // there is no more to fetch
}

// cursor is a place in a bucket: what comes after it is wanted.
type cursor struct {
	standing []byte
	user     string
}

// openLadder returns the readers of all buckets that have anything after a sort
// key, the one that has the best entry first.
func (s *Store) openLadder(ctx context.Context, l leaderboard.Ladder, e edition, after leaderboard.SortKey) (readerHeap, error) {
	start, err := s.cursorAt(ctx, l.Scope, after)
	if err != nil {
		return nil, err
	}
	h := make(readerHeap, e.buckets)
	err = s.each(ctx, e.buckets, func(ctx context.Context, i int) error {
		h[i] = &bucketReader{s: s, ladder: l, e: e, bucket: i, after: start, size: firstLadderPage}
		return h[i].fill(ctx)
	})
	h = slices.DeleteFunc(h, func(r *bucketReader) bool { return r == nil || len(r.page) == 0 })
	heap.Init(&h)
	return h, err
}

// next leaves the best entry behind.
func (h *readerHeap) next(ctx context.Context) error {
	r := (*h)[0]
	r.page, r.keys = r.page[1:], r.keys[1:]
	if len(r.page) == 0 {
		if err := r.fill(ctx); err != nil {
			return err
		}
	}
	if len(r.page) == 0 {
		heap.Pop(h)
	} else {
		heap.Fix(h, 0)
	}
	return nil
}

// cursorAt splits a sort key, for which the length of the board's keys is needed.
func (s *Store) cursorAt(ctx context.Context, scope leaderboard.Scope, key leaderboard.SortKey) (*cursor, error) {
	if key == "" {
		return nil, nil
	}
	k, err := s.readBoard(ctx, scope.Board)
	if err != nil {
		return nil, err
	}
	n := min(k.board.RankKeyBytes()+8, len(key))
	return &cursor{[]byte(key[:n]), string(key[n:])}, nil
}

type readerHeap []*bucketReader

func (h readerHeap) Len() int           { return len(h) }
func (h readerHeap) Less(i, j int) bool { return h[i].keys[0] < h[j].keys[0] }
func (h readerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *readerHeap) Push(x any)        { *h = append(*h, x.(*bucketReader)) }
func (h *readerHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}

// fill fetches pages until one has an entry, or there are no more.
func (r *bucketReader) fill(ctx context.Context) error {
	r.page, r.keys = nil, nil
	for !r.end && len(r.page) == 0 {
		if err := r.fetch(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *bucketReader) fetch(ctx context.Context) error {
	rows, err := r.rows(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	entries, err := r.entries(ctx, rows)
	if err != nil {
		return err
	}
	for i := range rows {
		if entry, ok := r.standing(entries, &rows[i]); ok {
			r.page, r.keys = append(r.page, entry), append(r.keys, entry.SortKey())
		}
	}
	return nil
}

// standing returns the entry that stands in a row.
func (r *bucketReader) standing(entries map[leaderboard.UserID]leaderboard.Entry, c *cursor) (leaderboard.Entry, bool) {
	entry, ok := entries[leaderboard.UserID(c.user)]
	return entry, ok && slices.Contains(spots(&entry), spot{r.ladder.Division.String(), string(c.standing)})
}

// rows fetches the next page of rows as they are.
func (r *bucketReader) rows(ctx context.Context) ([]cursor, error) {
	args := []any{string(r.ladder.Board), string(r.ladder.Season), r.e.number, r.ladder.Division.String(), r.bucket}
	q := op{selectTop, append(args, r.size)}
	if r.after != nil {
		q = op{selectAfter, append(args, r.after.standing, r.after.user, r.size)}
	}
	var standing []byte
	var user string
	rows, err := gather(ctx, r.s.conn, q, []any{&standing, &user}, func() (cursor, error) { return cursor{take(&standing), user}, nil })
	if err != nil {
		return nil, err
	}
	r.end = len(rows) < r.size
	r.size = min(2*r.size, lastLadderPage)
	if len(rows) > 0 {
		r.after = &rows[len(rows)-1]
	}
	return rows, nil
}

// entries returns the entries of the users of rows.
func (r *bucketReader) entries(ctx context.Context, rows []cursor) (map[leaderboard.UserID]leaderboard.Entry, error) {
	users := map[string]bool{}
	for _, c := range rows {
		users[c.user] = true
	}
	var user string
	var blob []byte
	q := op{selectEntries, []any{string(r.ladder.Board), string(r.ladder.Season), r.e.number, r.bucket, slices.Sorted(maps.Keys(users))}}
	list, err := gather(ctx, r.s.conn, q, []any{&user, &blob}, func() (leaderboard.Entry, error) {
		if blob == nil {
			return leaderboard.Entry{User: leaderboard.UserID(user)}, nil
		}
		return decodeEntry(r.ladder.Scope, leaderboard.UserID(user), blob)
	})
	out := make(map[leaderboard.UserID]leaderboard.Entry, len(list))
	for _, e := range list {
		out[e.User] = e
	}
	return out, err
}

// Strays yields the rows that no entry stands in, of every ladder that a user of
// the scope may be in or have been in.
func (s *Store) Strays(ctx context.Context, scope leaderboard.Scope) iter.Seq2[leaderboard.Stray, error] {
	return func(yield func(leaderboard.Stray, error) bool) {
		e, err := s.editions.fresh(ctx, scope)
		var divisions []string
		if err == nil && e.open {
			divisions, err = s.divisionsOf(ctx, scope, e)
		}
		for i := 0; err == nil && i < len(divisions)*e.buckets; i++ {
			var stopped bool
			if stopped, err = s.straysIn(ctx, scope, e, divisions[i/e.buckets], i%e.buckets, yield); stopped {
				return
			}
		}
		if err != nil {
			yield(leaderboard.Stray{}, err)
		}
	}
}

func (s *Store) straysIn(ctx context.Context, scope leaderboard.Scope, e edition, division string, bucket int, yield func(leaderboard.Stray, error) bool) (stopped bool, err error) {
	d, err := leaderboard.ParseDivision(division)
	if err != nil {
		return false, fmt.Errorf("cql: %w", err)
	}
	r := &bucketReader{s: s, ladder: leaderboard.Ladder{Scope: scope, Division: d}, e: e, bucket: bucket, size: lastLadderPage}
	for !r.end {
		rows, err := r.rows(ctx)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		entries, err := r.entries(ctx, rows)
		if err != nil {
			return false, err
		}
		for i := range rows {
			if _, ok := r.standing(entries, &rows[i]); ok {
				continue
			}
			key := leaderboard.SortKey(rows[i].standing) + leaderboard.SortKey(rows[i].user)
			if !yield(leaderboard.Stray{Division: d, User: leaderboard.UserID(rows[i].user), Key: key}, nil) {
				return true, nil
			}
		}
	}
	return false, nil
}

// divisionsOf returns the ladders of a scope, also those that nobody is in any more.
func (s *Store) divisionsOf(ctx context.Context, scope leaderboard.Scope, e edition) ([]string, error) {
	all := map[string]bool{"": true}
	for bucket := range e.buckets {
		users, err := s.usersIn(ctx, scope, e, bucket)
		if err != nil {
			return nil, err
		}
		divisions, err := s.divisionsBy(ctx, scope, e, users)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, divisions)
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// divisionsBy returns the divisions that results of users ever named.
func (s *Store) divisionsBy(ctx context.Context, scope leaderboard.Scope, e edition, users []leaderboard.UserID) (map[string]bool, error) {
	var mu sync.Mutex
	all := map[string]bool{}
	err := s.each(ctx, len(users), func(ctx context.Context, i int) error {
		fixed, err := s.readStatics(ctx, &userKey{scope, e.number, users[i]})
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(all, fixed.divisions)
		return err
	})
	return all, err
}

// usersIn returns the users that are registered in a bucket.
func (s *Store) usersIn(ctx context.Context, scope leaderboard.Scope, e edition, bucket int) ([]leaderboard.UserID, error) {
	var user string
	return gather(ctx, s.conn, op{selectUsers, []any{string(scope.Board), string(scope.Season), e.number, bucket}}, []any{&user},
		func() (leaderboard.UserID, error) { return leaderboard.UserID(user), nil })
}

// Recount makes a user's entry anew.
//
// What is wrong at a timestamp that the state's version does not reach, such as
// what somebody wrote by hand, stays unless the version rises above: then a row of
// the state says by how much.
func (s *Store) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	unlock, err := s.lock(ctx, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	defer unlock()
	scope := leaderboard.Scope{Board: b.ID, Season: season}
	e, err := s.editions.fresh(ctx, scope)
	if err != nil {
		return leaderboard.Change{}, err
	}
	if !e.of(b) || !e.lived {
		none := leaderboard.Entry{Scope: scope, User: user}
		if err := s.live(ctx, b); err != nil || !e.of(b) {
			return leaderboard.Change{Before: none, After: none}, err
		}
	}
	key := &userKey{scope, e.number, user}
	s.drop(key)
	var change leaderboard.Change
	var raised claim
	placed := uint64(0)
	for try := range maxTries {
		st, have, rows, err := s.inspect(ctx, b, key, e, raised)
		if err != nil {
			return leaderboard.Change{}, err
		}
		if !st.known {
			change, ok, err := s.unknown(ctx, b, key, e)
			if err != nil || ok {
				return change, err
			}
			continue // registered meanwhile
		}
		want, none := st.entries(b, key)
		before := have.entryOr(none)
		if try == 0 {
			change.Before = before
		}
		change.After = want
		if have.is(&want) && !strays(rows, &want) || have.entry == nil && have.listed && want.Version == none.Version {
			return change, nil
		}
		reach := have.written
		if have.is(&want) {
			reach = 0
		}
		for _, r := range rows {
			if !slices.Contains(spots(&want), r.spot) {
				reach = max(reach, r.written)
			}
		}
		if try > 0 && want.Version == placed {
			// It was written at this version, and is not there: something unseen
			// is in the way, such as a deletion by hand, at the time of a clock.
			reach = time.Now().Add(time.Minute).UnixMicro()
		}
		if reach > deleteTime(want.Version) {
			if err := s.raise(ctx, key, st, versionCovering(reach)-want.Version); err != nil {
				return leaderboard.Change{}, err
			}
			raised = st.claim
			continue
		}
		if err := s.place(ctx, key, e, &want, &before, spotsOf(rows)); err != nil {
			return leaderboard.Change{}, err
		}
		placed = want.Version
	}
	return leaderboard.Change{}, fmt.Errorf("cql: user %q in season %q of board %q: the entry changes as it is repaired: %w",
		user, season, b.ID, leaderboard.ErrUnavailable)
}

// unknown removes what there is of a user that is not registered in the season,
// such as rows of a writer that slept while the user was erased. It returns false
// if the user is registered now.
func (s *Store) unknown(ctx context.Context, b *leaderboard.Board, key *userKey, e edition) (leaderboard.Change, bool, error) {
	acc, _, err := s.readAccount(ctx, key.user)
	if err != nil {
		return leaderboard.Change{}, false, err
	}
	none := key.entry(b, &leaderboard.Tally{}, &acc, acc.version())
	change := leaderboard.Change{Before: none, After: none}
	have, err := s.readEntry(ctx, key, e)
	if err != nil {
		return change, false, err
	}
	divisions, err := s.divisionsOf(ctx, key.Scope, e)
	if err != nil {
		return change, false, err
	}
	rows, err := s.userRows(ctx, key, e, divisions[1:]) // the first is the overall one
	if err != nil {
		return change, false, err
	}
	// A user is registered before there is an entry, so what was just read may be
	// of one who has been since.
	if now, err := s.readStatics(ctx, key); err != nil || now.known {
		return change, false, err
	}
	if have.entry == nil && len(rows) == 0 {
		return change, true, nil
	}
	change.Before = have.entryOr(none)
	var gone []op
	for _, r := range rows {
		gone = append(gone, op{deleteRow, append(key.ladder(e, r.division, max(r.written, deleteTime(acc.Base))), []byte(r.standing), string(key.user))})
	}
	gone = append(gone, op{deleteEntry, []any{max(have.written, deleteTime(acc.Base)), string(key.Board), string(key.Season), key.edition,
		bucketOf(key.user, e.buckets), string(key.user)}})
	return change, true, s.each(ctx, len(gone), func(ctx context.Context, i int) error { return s.conn.write(ctx, gone[i]) })
}

// live returns [leaderboard.ErrBoardNotFound] if b was deleted.
func (s *Store) live(ctx context.Context, b *leaderboard.Board) error {
	k, err := s.readBoard(ctx, b.ID)
	if err == nil && !sameBoard(&k.board, b) {
		err = notFound(b.ID)
	}
	return err
}

// inspect reads a user's whole state, the entry as it is stored, and then the
// rows of the ladders.
func (s *Store) inspect(ctx context.Context, b *leaderboard.Board, key *userKey, e edition, wrote claim) (st *state, have stored, rows []row, err error) {
	err = s.each(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			st, err = s.settled(ctx, b, key, wrote)
		} else {
			have, err = s.readEntry(ctx, key, e)
		}
		return err
	})
	if err == nil {
		rows, err = s.userRows(ctx, key, e, slices.Sorted(maps.Keys(st.divisions)))
	}
	return st, have, rows, err
}

// raise adds to the version of a user's state.
func (s *Store) raise(ctx context.Context, key *userKey, st *state, by uint64) error {
	item := binary.BigEndian.AppendUint64(nil, st.version()+by)
	return s.writeUser(ctx,
		op{insertItem, append(key.args(), "", int8(kindRepair), item, binary.AppendUvarint(nil, by), st.account.Epoch<<epochShift|1)},
		s.claim(key, &st.statics))
}

func compareScopes(x, y leaderboard.Scope) int {
	return cmp.Or(cmp.Compare(x.Board, y.Board), cmp.Compare(x.Season, y.Season))
}
