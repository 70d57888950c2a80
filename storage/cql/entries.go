package cql

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

type storedEntry struct {
	entry     *leaderboard.Entry // nil if there is no row, or the row has no entry
	written   int64
	rowExists bool
}

func (st *storedEntry) equals(e *leaderboard.Entry) bool {
	return st.entry != nil && bytes.Equal(appendEntry(nil, st.entry), appendEntry(nil, e))
}

func (st *storedEntry) entryOr(none leaderboard.Entry) leaderboard.Entry {
	if st.entry == nil {
		return none
	}
	return *st.entry
}

func (s *Store) readEntry(ctx context.Context, key *userKey, inc incarnation) (storedEntry, error) {
	var blob []byte
	var written *int64
	q := op{selectEntry, []any{string(key.Board), string(key.Season), key.incarnation, bucketOf(key.user, inc.buckets), string(key.user)}}
	rowExists := false
	err := s.conn.read(ctx, q, []any{&blob, &written}, func() bool {
		rowExists = true
		return true
	})
	if err != nil || blob == nil {
		return storedEntry{rowExists: rowExists}, err
	}
	entry, err := decodeEntry(key.SeasonKey, key.user, blob)
	return storedEntry{&entry, orZero(written), rowExists}, err
}

// Entry returns a user's entry.
func (s *Store) Entry(ctx context.Context, seasonKey leaderboard.SeasonKey, user leaderboard.UserID) (leaderboard.Entry, error) {
	stored, err := withIncarnation(ctx, s, seasonKey, func(ctx context.Context, inc incarnation) (storedEntry, error) {
		return s.readEntry(ctx, &userKey{seasonKey, inc.number, user}, inc)
	})
	if err == nil && (stored.entry == nil || stored.entry.Key == "") {
		err = fmt.Errorf("cql: user %q in season %q of board %q: %w", user, seasonKey.Season, seasonKey.Board, leaderboard.ErrEntryNotFound)
	}
	if err != nil {
		return leaderboard.Entry{}, err
	}
	return *stored.entry, nil
}

// perBucket runs stmt on each bucket of a season. It scans each row into dest, and calls
// value. If ok is true, it yields v.
func perBucket[T any](ctx context.Context, s *Store, seasonKey leaderboard.SeasonKey, stmt string, dest []any, value func() (v T, ok bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		inc, err := s.incarnations.readAgain(ctx, seasonKey)
		for bucket := 0; err == nil && inc.open && bucket < inc.buckets; bucket++ {
			stopped := false
			var valueErr error
			err = s.conn.read(ctx, op{stmt, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, bucket}}, dest, func() bool {
				v, ok, err := value()
				if valueErr = err; err != nil || !ok {
					return err == nil
				}
				stopped = !yield(v, nil)
				return !stopped
			})
			if stopped {
				return
			}
			if err == nil {
				err = valueErr
			}
		}
		if err != nil {
			yield(zero, err)
		}
	}
}

// Users yields the registered users: those with a row in table user_entries. Apply
// registers a user before it writes the first result.
func (s *Store) Users(ctx context.Context, seasonKey leaderboard.SeasonKey) iter.Seq2[leaderboard.UserID, error] {
	return func(yield func(leaderboard.UserID, error) bool) {
		var user string
		perBucket(ctx, s, seasonKey, selectUsers, []any{&user}, func() (leaderboard.UserID, bool, error) {
			return leaderboard.UserID(user), true, nil
		})(yield)
	}
}

// HasUsers reports whether a season has a registered user.
func (s *Store) HasUsers(ctx context.Context, seasonKey leaderboard.SeasonKey) (bool, error) {
	return withIncarnation(ctx, s, seasonKey, func(ctx context.Context, inc incarnation) (bool, error) {
		return s.hasUser(ctx, seasonKey, inc)
	})
}

const (
	// scanParallel is the number of buckets that a Scan reads at a time. More would slow
	// down other calls.
	scanParallel = 4
	scanBatch    = 256
)

// Scan yields every entry of a season whose user belongs to a part.
func (s *Store) Scan(ctx context.Context, seasonKey leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		batches := make(chan []leaderboard.Entry)
		var err error
		go func() {
			err = s.scan(ctx, seasonKey, part, batches)
			close(batches)
		}()
		stopped := false
		for batch := range batches {
			for i := 0; i < len(batch) && !stopped && ctx.Err() == nil; i++ {
				if stopped = !yield(batch[i], nil); stopped {
					cancel()
				}
			}
		}
		if err = cmp.Or(err, ctx.Err()); err != nil && !stopped {
			yield(leaderboard.Entry{}, err)
		}
	}
}

func (s *Store) scan(ctx context.Context, seasonKey leaderboard.SeasonKey, part leaderboard.Part, batches chan<- []leaderboard.Entry) error {
	inc, err := s.incarnations.readAgain(ctx, seasonKey)
	if err != nil || !inc.open {
		return err
	}
	first, step := bucketsOf(part, inc.buckets)
	return storage.Environment{Parallel: min(scanParallel, s.parallel)}.ForEach(ctx, inc.buckets/step, func(ctx context.Context, i int) error {
		var user string
		var blob []byte
		var batch []leaderboard.Entry
		send := func() (sent bool) {
			select {
			case batches <- batch:
				batch = nil
				return true
			case <-ctx.Done():
				return false
			}
		}
		var decodeErr error
		q := op{selectBucket, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, first + i*step}}
		err := s.conn.read(ctx, q, []any{&user, &blob}, func() bool {
			if blob == nil || step < part.Of && !part.Contains(leaderboard.UserID(user)) {
				return true
			}
			e, err := decodeEntry(seasonKey, leaderboard.UserID(user), blob)
			if decodeErr = err; err != nil {
				return false
			}
			if e.Key != "" {
				batch = append(batch, e)
			}
			return len(batch) < scanBatch || send()
		})
		if err == nil {
			err = decodeErr
		}
		if err == nil && len(batch) > 0 {
			send()
		}
		return err
	})
}

// bucketsOf returns the buckets with the users of a part: first, and every step-th bucket
// after it. If step equals part.Of, these buckets have no other users.
//
// For a user with hash h, part.Index is h modulo part.Of, and the bucket is h modulo
// buckets. step divides part.Of and buckets, so part.Index and the bucket are congruent
// modulo step.
func bucketsOf(part leaderboard.Part, buckets int) (first, step int) {
	a, b := max(part.Of, 1), buckets
	for b > 0 {
		a, b = b, a%b
	}
	return part.Index % a, a
}

func (s *Store) usersIn(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, bucket int) ([]leaderboard.UserID, error) {
	var user string
	return gather(ctx, s.conn, op{selectUsers, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, bucket}}, []any{&user},
		func() (leaderboard.UserID, error) { return leaderboard.UserID(user), nil })
}

// UnregisteredUsers yields the users with an account in table match_results, but without a
// row in table user_entries. Only damaged data has such users.
func (s *Store) UnregisteredUsers(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
	return func(yield func(leaderboard.EntryKey, error) bool) {
		l := listing{s: s, yield: yield, incarnations: map[leaderboard.SeasonKey]incarnation{}}
		var board, season, user string
		var number int
		var account []byte
		var flushErr error
		err := s.conn.read(ctx, op{selectEveryUser, nil}, []any{&board, &season, &number, &user, &account}, func() bool {
			if take(&account) != nil {
				seasonKey := leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}
				l.users = append(l.users, userKey{seasonKey, number, leaderboard.UserID(user)})
			}
			if len(l.users) == maxListed {
				flushErr = l.flush(ctx)
			}
			return flushErr == nil && !l.stopped
		})
		if err == nil {
			err = flushErr
		}
		if err == nil && !l.stopped {
			err = l.flush(ctx)
		}
		if err != nil && !l.stopped {
			yield(leaderboard.EntryKey{}, err)
		}
	}
}

const maxListed = 500

type listing struct {
	s            *Store
	yield        func(leaderboard.EntryKey, error) bool
	incarnations map[leaderboard.SeasonKey]incarnation
	users        []userKey // not looked up yet
	stopped      bool
}

func (l *listing) flush(ctx context.Context) error {
	usersOf := map[bucket][]string{}
	for _, k := range l.users {
		inc, ok := l.incarnations[k.SeasonKey]
		if !ok {
			var err error
			if inc, err = l.s.incarnations.readAgain(ctx, k.SeasonKey); err != nil {
				return err
			}
			l.incarnations[k.SeasonKey] = inc
		}
		if inc.open && inc.number == k.incarnation {
			b := bucket{k.SeasonKey, k.incarnation, bucketOf(k.user, inc.buckets), ""}
			usersOf[b] = append(usersOf[b], string(k.user))
		}
	}
	l.users = l.users[:0]
	for b, users := range usersOf {
		var user string
		var entry []byte
		q := op{selectEntries, []any{string(b.Board), string(b.Season), b.incarnation, b.number, users}}
		listed, err := gather(ctx, l.s.conn, q, []any{&user, &entry}, func() (string, error) { return user, nil })
		if err != nil {
			return err
		}
		for _, user := range users {
			if !slices.Contains(listed, user) && !l.yield(leaderboard.EntryKey{SeasonKey: b.SeasonKey, User: leaderboard.UserID(user)}, nil) {
				l.stopped = true
				return nil
			}
		}
	}
	return nil
}
