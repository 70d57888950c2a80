package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

// # Why every result gets the latest state of its match
//
// Apply holds its user's lock (see [stripes]) while it reads the match's state and writes the result
// and the row of kind dataMatch (see keys.go). SetMatch holds the locks of all users while it writes
// the state. So one of the two calls holds the lock first:
//   - Apply is first: readers see the result before SetMatch writes the state, and MatchUsers later
//     yields the user.
//   - SetMatch is first: Apply reads the new state.

// SetMatch implements [leaderboard.Store].
func (s *Store) SetMatch(ctx context.Context, b *leaderboard.Board, m leaderboard.MatchState) (leaderboard.MatchState, error) {
	if err := s.failure(); err != nil {
		return leaderboard.MatchState{}, err
	}
	m.At = leaderboard.Truncate(m.At)
	unlock, err := s.lockAllUsers(ctx)
	if err != nil {
		return leaderboard.MatchState{}, err
	}
	bd, err := s.liveBoard(b)
	var stored leaderboard.MatchState
	if err == nil {
		stored, err = s.matchState(bd, m.MatchKey)
	}
	if err != nil {
		unlock()
		return leaderboard.MatchState{}, err
	}
	if m.DeletedBy(s.deletedAt(m.SeasonKey)) {
		m = stored
	}
	if m = leaderboard.MergeMatch(stored, m); m == stored {
		unlock()
		return m, s.syncVisible(ctx)
	}
	batch := s.db.NewBatch()
	if err := batch.Set(makeSeasonRowKey(bd.number, m.Season).matchState(m.Match), appendMatchState(nil, &m), nil); err != nil {
		unlock()
		return leaderboard.MatchState{}, errUnavailable("write", err)
	}
	return m, s.commit(ctx, batch, unlock)
}

func (s *Store) matchState(bd *board, key leaderboard.MatchKey) (leaderboard.MatchState, error) {
	m := leaderboard.MatchState{MatchKey: key}
	_, err := s.get(makeSeasonRowKey(bd.number, key.Season).matchState(key.Match), func(b []byte) (err error) {
		m, err = decodeMatchState(key, b)
		return err
	})
	return m, err
}

// Match implements [leaderboard.Store].
func (s *Store) Match(ctx context.Context, key leaderboard.MatchKey) (leaderboard.MatchState, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.MatchState{}, err
	}
	bd := s.board(key.Board)
	if bd == nil {
		return leaderboard.MatchState{MatchKey: key}, nil
	}
	m, err := s.matchState(bd, key)
	if err != nil {
		return leaderboard.MatchState{}, fmt.Errorf("match %q: %w", key.Match, err)
	}
	return m, nil
}

// Matches implements [leaderboard.Store].
func (s *Store) Matches(ctx context.Context, seasonKey leaderboard.SeasonKey) iter.Seq2[leaderboard.MatchState, error] {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return emptySeq[leaderboard.MatchState](ctx)
	}
	prefix := makeSeasonRowKey(bd.number, seasonKey.Season).kind(dataVoid)
	return pageRows(ctx, s, prefix, keyAfter(prefix), func(key, value []byte) (leaderboard.MatchState, error) {
		return decodeMatchState(leaderboard.MatchKey{SeasonKey: seasonKey, Match: leaderboard.MatchID(key[len(prefix):])}, value)
	})
}

// MatchUsers implements [leaderboard.Store].
func (s *Store) MatchUsers(ctx context.Context, key leaderboard.MatchKey) iter.Seq2[leaderboard.UserID, error] {
	bd := s.board(key.Board)
	if bd == nil {
		return emptySeq[leaderboard.UserID](ctx)
	}
	prefix := makeSeasonRowKey(bd.number, key.Season).matchUsers(key.Match)
	return pageRows(ctx, s, prefix, keyAfter(prefix), func(key, _ []byte) (leaderboard.UserID, error) {
		return leaderboard.UserID(key[len(prefix):]), nil
	})
}

// MatchIDs implements [leaderboard.Store].
func (s *Store) MatchIDs(ctx context.Context, seasonKey leaderboard.SeasonKey, prefix, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchID, error] {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return emptySeq[leaderboard.MatchID](ctx)
	}
	rowKey := makeSeasonRowKey(bd.number, seasonKey.Season)
	// next returns the first id in rows of a kind.
	next := func(kind byte) (id leaderboard.MatchID, found bool, err error) {
		rows := rowKey.kind(kind)
		lower := append(rows[:len(rows):len(rows)], prefix...)
		if after != "" && after >= prefix {
			lower = append(append(rows[:len(rows):len(rows)], after...), 0)
		}
		err = s.scan(ctx, lower, keyAfter(append(rows[:len(rows):len(rows)], prefix...)), func(key, _ []byte) (bool, error) {
			id, found = leaderboard.MatchID(key[len(rows):]), true
			return false, nil
		})
		return id, found, err
	}
	return func(yield func(leaderboard.MatchID, error) bool) {
		for {
			id, found, err := next(dataMatchID)
			if err == nil {
				var voided leaderboard.MatchID
				var hasState bool
				if voided, hasState, err = next(dataVoid); hasState && (!found || voided < id) {
					id, found = voided, true
				}
			}
			if err != nil {
				yield("", fmt.Errorf("matches of season %q: %w", seasonKey.Season, err))
				return
			}
			if !found || !yield(id, nil) {
				return
			}
			after = id
		}
	}
}

// ListMatches implements [leaderboard.Store].
func (s *Store) ListMatches(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) error {
	unlock, err := s.lockUser(ctx, user)
	if err != nil {
		return err
	}
	batch := s.db.NewBatch()
	bd, err := s.liveBoard(b)
	if err == nil {
		rowKey := makeSeasonRowKey(bd.number, season)
		for r, readErr := range s.results(ctx, bd, season, user) {
			if err = readErr; err == nil {
				err = listMatch(batch, rowKey, r.Match, user)
			}
			if err != nil {
				break
			}
		}
	}
	if err != nil || batch.Empty() {
		unlock()
		return err
	}
	return s.commit(ctx, batch, unlock)
}

func listMatch(batch *pebble.Batch, rowKey seasonRowKey, match leaderboard.MatchID, user leaderboard.UserID) error {
	if err := batch.Set(rowKey.matchID(match), nil, nil); err != nil {
		return err
	}
	return batch.Set(rowKey.matchUser(match, user), nil, nil)
}

func (s *Store) eraseMatches(ctx context.Context, batch *pebble.Batch, st *userState) error {
	if !st.bd.Matches {
		return nil
	}
	for r, err := range s.results(ctx, st.bd, st.season, st.user) {
		if err == nil {
			err = batch.Delete(st.rowKey.matchUser(r.Match, st.user), nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func appendMatchState(dst []byte, m *leaderboard.MatchState) []byte {
	dst = binary.AppendUvarint(append(dst, rowFormat), uint64(m.Voids))
	dst = binary.AppendUvarint(dst, uint64(m.Applied))
	return codec.AppendText(codec.AppendText(appendTime(dst, m.At), m.Reason), m.Actor)
}

func decodeMatchState(key leaderboard.MatchKey, b []byte) (leaderboard.MatchState, error) {
	d := codec.Decoder{Rest: b}
	if d.Byte() != rowFormat {
		d.Bad = true
	}
	m := leaderboard.MatchState{MatchKey: key, Voids: int64(d.Uvarint()), Applied: int64(d.Uvarint()), At: d.Time(), Reason: d.Text(), Actor: d.Text()}
	return m, checkEnd(&d, "state of a match")
}
