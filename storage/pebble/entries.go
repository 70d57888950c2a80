package pebble

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// Entry implements [leaderboard.Store].
func (s *Store) Entry(ctx context.Context, seasonKey leaderboard.SeasonKey, user leaderboard.UserID) (leaderboard.Entry, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Entry{}, err
	}
	if bd := s.board(seasonKey.Board); bd != nil {
		st := userState{s: s, bd: bd, season: seasonKey.Season, user: user, rowKey: makeSeasonRowKey(bd.number, seasonKey.Season)}
		if _, err := s.get(st.rowKey.user(user), st.row.decode); err != nil {
			return leaderboard.Entry{}, fmt.Errorf("user %q: %w", user, err)
		}
		if e := st.entry(); e.Key != "" {
			return e, nil
		}
	}
	return leaderboard.Entry{}, fmt.Errorf("pebble: user %q: %w", user, leaderboard.ErrEntryNotFound)
}

// slot returns false if bd never had divisions by the attribute of d.
func (bd *board) slot(d leaderboard.Division) ([]byte, bool) {
	if d.Overall() {
		return []byte{slotOverall}, true
	}
	i := bd.indexOf(d.Attribute)
	if i < 0 {
		return nil, false
	}
	return divisionSlot(i, d.Value), true
}

// Entries implements [leaderboard.Store].
func (s *Store) Entries(ctx context.Context, l leaderboard.Ladder, from leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	bd := s.board(l.Board)
	if bd == nil {
		return emptySeq[leaderboard.Entry](ctx)
	}
	slot, ok := bd.slot(l.Division)
	if !ok {
		return emptySeq[leaderboard.Entry](ctx)
	}
	prefix := makeSeasonRowKey(bd.number, l.Season).ladder(slot)
	lower := prefix
	if from != "" {
		lower = append(append(bytes.Clone(prefix), from...), 0)
	}
	return pageRows(ctx, s, lower, keyAfter(prefix), func(key, value []byte) (leaderboard.Entry, error) {
		return bd.decodeEntry(l.Season, slot, key[len(prefix):], value)
	})
}

// Scan implements [leaderboard.Store]. It reads one consistent state of the store. It yields the hidden
// entries first: see keys.go.
func (s *Store) Scan(ctx context.Context, seasonKey leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return emptySeq[leaderboard.Entry](ctx)
	}
	prefix := makeSeasonRowKey(bd.number, seasonKey.Season).kind(dataLadder)
	end := keyAfter(append(bytes.Clone(prefix), slotOverall))
	return scanRows(ctx, s.db, prefix, end, func(key, value []byte) (leaderboard.Entry, bool, error) {
		slot, sortKey := key[len(prefix):][:1], key[len(prefix)+1:]
		e, err := bd.decodeEntry(seasonKey.Season, slot, sortKey, value)
		return e, err == nil && part.Contains(e.User), err
	})
}
