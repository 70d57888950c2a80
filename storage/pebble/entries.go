package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// Entry returns a user's entry.
func (s *Store) Entry(ctx context.Context, scope leaderboard.Scope, user leaderboard.UserID) (leaderboard.Entry, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Entry{}, err
	}
	if bd := s.board(scope.Board); bd != nil {
		st := userState{bd: bd, season: scope.Season, user: user, scope: makeScopeKey(bd.number, scope.Season)}
		if _, err := s.get(st.scope.user(user), st.row.decode); err != nil {
			return leaderboard.Entry{}, fmt.Errorf("user %q: %w", user, err)
		}
		if e := st.entry(); e.Key != "" {
			return e, nil
		}
	}
	return leaderboard.Entry{}, fmt.Errorf("pebble: user %q: %w", user, leaderboard.ErrEntryNotFound)
}

// slot returns the slot of a division's ladder; false if no board like bd has
// that division.
func (bd *board) slot(d leaderboard.Division) ([]byte, bool) {
	if d.Overall() {
		return []byte{slotOverall}, true
	}
	i := slices.Index(bd.Divisions, d.Attribute)
	if i < 0 {
		return nil, false
	}
	return divisionSlot(i, d.Value), true
}

// Entries yields a ladder.
func (s *Store) Entries(ctx context.Context, l leaderboard.Ladder, from leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	bd := s.board(l.Board)
	if bd == nil {
		return none[leaderboard.Entry](ctx)
	}
	slot, ok := bd.slot(l.Division)
	if !ok {
		return none[leaderboard.Entry](ctx)
	}
	prefix := makeScopeKey(bd.number, l.Season).ladder(slot)
	lower := prefix
	if from != "" {
		lower = append(append(bytes.Clone(prefix), from...), 0)
	}
	return pages(ctx, s, lower, after(prefix), func(key, value []byte) (leaderboard.Entry, error) {
		return bd.decodeEntry(l.Season, slot, key[len(prefix):], value)
	})
}

// Scan yields every entry of a scope: the hidden ones, then the overall ladder,
// as they were at one moment.
func (s *Store) Scan(ctx context.Context, scope leaderboard.Scope) iter.Seq2[leaderboard.Entry, error] {
	bd := s.board(scope.Board)
	if bd == nil {
		return none[leaderboard.Entry](ctx)
	}
	prefix := makeScopeKey(bd.number, scope.Season).kind(dataLadder)
	end := after(append(bytes.Clone(prefix), slotOverall))
	return rows(ctx, s, prefix, end, func(key, value []byte) (leaderboard.Entry, bool, error) {
		slot, sortKey := key[len(prefix):][:1], key[len(prefix)+1:]
		e, err := bd.decodeEntry(scope.Season, slot, sortKey, value)
		return e, err == nil, err
	})
}

// Strays yields the rows that are not as the users' rows say, as they were at one
// moment.
func (s *Store) Strays(ctx context.Context, scope leaderboard.Scope) iter.Seq2[leaderboard.Stray, error] {
	bd := s.board(scope.Board)
	if bd == nil {
		return none[leaderboard.Stray](ctx)
	}
	return func(yield func(leaderboard.Stray, error) bool) {
		s.strayMu.Lock()
		found, err := s.findStrays(ctx, bd, scope.Season)
		if err == nil {
			s.strays[scope] = found // Recount goes by the last look
		}
		s.strayMu.Unlock()
		if err != nil {
			yield(leaderboard.Stray{}, err)
			return
		}
		ladders := len(makeScopeKey(bd.number, scope.Season).kind(dataLadder))
		for user, rows := range found {
			for _, row := range rows {
				slot, key, _ := cutSlot(row.key[ladders:])
				if !yield(leaderboard.Stray{Division: bd.divisionOf(slot), User: user, Key: leaderboard.SortKey(key)}, nil) {
					return
				}
			}
		}
	}
}

// divisionOf is the inverse of slot; that of the hidden is the overall one.
func (bd *board) divisionOf(slot []byte) leaderboard.Division {
	d := decoder{b: slot}
	if d.byte() != slotDivision {
		return leaderboard.Division{}
	}
	i, value := int(d.byte()), d.string()
	if i >= len(bd.Divisions) {
		return leaderboard.Division{Value: value} // of no board like this
	}
	return leaderboard.Division{Attribute: bd.Divisions[i], Value: value}
}

// strays are the rows of ladders that are not as their users' rows say, by user.
type strays map[leaderboard.UserID][]placement

// straysOf returns the strays of a user. Every write moves an entry's rows and
// the user's row together, so there are none but by damage or by the fault of
// another version; looking through a scope once for each start is enough.
func (s *Store) straysOf(ctx context.Context, bd *board, season leaderboard.SeasonID, user leaderboard.UserID) ([]placement, error) {
	scope := leaderboard.Scope{Board: bd.ID, Season: season}
	s.strayMu.Lock()
	defer s.strayMu.Unlock()
	found, ok := s.strays[scope]
	if !ok {
		var err error
		if found, err = s.findStrays(ctx, bd, season); err != nil {
			return nil, err
		}
		s.strays[scope] = found
	}
	return found[user], nil
}

func (s *Store) findStrays(ctx context.Context, bd *board, season leaderboard.SeasonID) (strays, error) {
	found := strays{}
	scope := makeScopeKey(bd.number, season)
	moment := s.db.NewSnapshot()
	defer moment.Close()
	prefix := scope.kind(dataLadder)
	err := scan(ctx, moment, prefix, after(prefix), func(key, value []byte) (bool, error) {
		_, sortKey, ok := cutSlot(key[len(prefix):])
		_, _, user, err := leaderboard.SortKey(sortKey).Split(bd.RankKeyBytes())
		if !ok || err != nil {
			return false, errors.Join(errFormat("ladder row"), err)
		}
		st := userState{bd: bd, season: season, user: user, scope: scope}
		if _, err := get(moment, scope.user(user), st.row.decode); err != nil && !errors.Is(err, leaderboard.ErrFormat) {
			return false, err
		}
		e := st.entry()
		if !slices.ContainsFunc(bd.placements(scope, &e), func(p placement) bool {
			return bytes.Equal(p.key, key) && bytes.Equal(p.value, value)
		}) {
			found[user] = append(found[user], placement{bytes.Clone(key), bytes.Clone(value)})
		}
		return true, nil
	})
	return found, err
}

// Recount makes a user's entry anew.
func (s *Store) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Change{}, err
	}
	if bd := s.board(b.ID); bd != nil { // before any lock: it may take long
		if _, err := s.straysOf(ctx, bd, season, user); err != nil {
			return leaderboard.Change{}, err
		}
	}
	unlock, err := s.lockUser(ctx, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	bd, err := s.live(b)
	if err != nil {
		unlock()
		return leaderboard.Change{}, err
	}
	batch := s.db.NewBatch()
	change, err := s.recount(ctx, batch, bd, season, user)
	if err != nil {
		unlock()
		return leaderboard.Change{}, err
	}
	if batch.Empty() {
		unlock()
		return change, s.settle(ctx)
	}
	err = s.commit(ctx, batch, func() {
		s.strayMu.Lock()
		delete(s.strays[leaderboard.Scope{Board: bd.ID, Season: season}], user)
		s.strayMu.Unlock()
		unlock()
	})
	if err != nil {
		return leaderboard.Change{}, err
	}
	return change, nil
}

// recount adds to batch what puts right a user's entry.
func (s *Store) recount(ctx context.Context, batch *pebble.Batch, bd *board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	lost, err := s.straysOf(ctx, bd, season, user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	st, err := s.loadUser(bd, season, user)
	damaged := errors.Is(err, leaderboard.ErrFormat)
	if err != nil && !damaged {
		return leaderboard.Change{}, err
	}
	if damaged {
		st = &userState{s: s, bd: bd, season: season, user: user, scope: makeScopeKey(bd.number, season)}
		if st.row, err = s.newUserRow(user); err != nil {
			return leaderboard.Change{}, err
		}
		st.before = st.entry()
	}
	have, err := st.row.append(nil)
	if err != nil {
		return leaderboard.Change{}, err
	}

	// The records are the truth, whether or not there is a row.
	prefix := st.scope.records(user)
	var any bool
	if err := s.scan(ctx, prefix, after(prefix), func(_, _ []byte) (bool, error) {
		any = true
		return false, nil
	}); err != nil {
		return leaderboard.Change{}, err
	}
	if st.row.tally, err = bd.Count(s.results(ctx, bd, season, user)); err != nil {
		return leaderboard.Change{}, err
	}
	fresh, err := s.newUserRow(user)
	if err != nil {
		return leaderboard.Change{}, err
	}
	st.row.hidden, st.row.erasedAt = fresh.hidden, fresh.erasedAt
	want, err := st.row.append(nil)
	if err != nil {
		return leaderboard.Change{}, err
	}

	wrong := damaged || st.exists != any || !bytes.Equal(have, want) || len(lost) > 0
	placed := bd.placements(st.scope, &st.before)
	for _, p := range append(placed, placement{scopesKey(user, bd.number, season), nil}) {
		if wrong || !any {
			break
		}
		same := false
		if _, err := s.get(p.key, func(value []byte) error {
			same = bytes.Equal(value, p.value)
			return nil
		}); err != nil {
			return leaderboard.Change{}, err
		}
		wrong = !same
	}
	if !wrong {
		return leaderboard.Change{Before: st.before, After: st.before}, nil
	}
	for _, p := range lost {
		slot, sortKey, _ := cutSlot(p.key[len(st.scope)+1:])
		e, err := bd.decodeEntry(season, slot, sortKey, p.value)
		if err != nil {
			e = leaderboard.Entry{}
		}
		st.row.version = max(st.row.version, e.Version)
		if damaged && st.before.Key == "" {
			st.before = e
		}
	}
	st.row.version++
	st.after = st.entry()
	change := leaderboard.Change{Before: st.before, After: st.after}
	if !any {
		// Nothing is known of the user here, so nothing is kept.
		err = errors.Join(batch.Delete(st.scope.user(user), nil), batch.Delete(scopesKey(user, bd.number, season), nil))
		return change, errors.Join(err, move(batch, append(placed, lost...), nil))
	}
	placed = append(placed, lost...)
	err = batch.Set(scopesKey(user, bd.number, season), nil, nil)
	row, rowErr := st.row.append(nil)
	return change, errors.Join(err, rowErr, batch.Set(st.scope.user(user), row, nil),
		move(batch, placed, bd.placements(st.scope, &st.after)))
}
