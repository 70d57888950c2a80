package pebble

import (
	"context"
	"fmt"
	"iter"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

// Result implements [leaderboard.Store].
func (s *Store) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	if err := ctx.Err(); err != nil {
		return leaderboard.Record{}, err
	}
	var rec leaderboard.Record
	found := false
	if bd := s.board(key.Board); bd != nil {
		var err error
		found, err = s.get(makeSeasonRowKey(bd.number, key.Season).record(key.User, key.Match), func(b []byte) (err error) {
			rec, err = decodeRecord(key, b)
			return err
		})
		if err != nil {
			return leaderboard.Record{}, fmt.Errorf("result %q of user %q: %w", key.Match, key.User, err)
		}
	}
	if !found {
		return leaderboard.Record{}, fmt.Errorf("pebble: result %q of user %q: %w", key.Match, key.User, leaderboard.ErrResultNotFound)
	}
	sortRefusals(rec.Refusals)
	return rec, nil
}

// Results implements [leaderboard.Store].
func (s *Store) Results(ctx context.Context, seasonKey leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return emptySeq[leaderboard.MatchResult](ctx)
	}
	return s.results(ctx, bd, seasonKey.Season, user)
}

func (s *Store) results(ctx context.Context, bd *board, season leaderboard.SeasonID, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	prefix := makeSeasonRowKey(bd.number, season).records(user)
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: bd.ID, Season: season}, User: user}
	return scanRows(ctx, s.db, prefix, keyAfter(prefix), func(k, value []byte) (leaderboard.MatchResult, bool, error) {
		key.Match = leaderboard.MatchID(k[len(prefix):])
		rec, err := decodeRecord(key, value)
		if err != nil || rec.Result == nil {
			return leaderboard.MatchResult{}, false, err
		}
		return *rec.Result, true, nil
	})
}

// Records implements [leaderboard.Store].
func (s *Store) Records(ctx context.Context, seasonKey leaderboard.SeasonKey, user leaderboard.UserID, after leaderboard.MatchID) iter.Seq2[leaderboard.MatchRecord, error] {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return emptySeq[leaderboard.MatchRecord](ctx)
	}
	rowKey := makeSeasonRowKey(bd.number, seasonKey.Season)
	prefix := rowKey.records(user)
	lower := prefix
	if after != "" {
		lower = append(rowKey.record(user, after), 0)
	}
	return pageRows(ctx, s, lower, keyAfter(prefix), func(k, value []byte) (leaderboard.MatchRecord, error) {
		match := leaderboard.MatchID(k[len(prefix):])
		rec, err := decodeRecord(leaderboard.ResultKey{SeasonKey: seasonKey, User: user, Match: match}, value)
		sortRefusals(rec.Refusals)
		return leaderboard.MatchRecord{Match: match, Record: rec}, err
	})
}

// Users implements [leaderboard.Store].
func (s *Store) Users(ctx context.Context, seasonKey leaderboard.SeasonKey) iter.Seq2[leaderboard.UserID, error] {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return emptySeq[leaderboard.UserID](ctx)
	}
	prefix := makeSeasonRowKey(bd.number, seasonKey.Season).kind(dataUser)
	return pageRows(ctx, s, prefix, keyAfter(prefix), func(key, _ []byte) (leaderboard.UserID, error) {
		return leaderboard.UserID(key[len(prefix):]), nil
	})
}

// HasUsers implements [leaderboard.Store].
func (s *Store) HasUsers(ctx context.Context, seasonKey leaderboard.SeasonKey) (bool, error) {
	for _, err := range s.Users(ctx, seasonKey) {
		return err == nil, err
	}
	return false, nil
}

// UnregisteredUsers implements [leaderboard.Store].
func (s *Store) UnregisteredUsers(ctx context.Context) iter.Seq2[leaderboard.EntryKey, error] {
	return func(yield func(leaderboard.EntryKey, error) bool) {
		boards, err := s.Boards(ctx)
		for i := 0; err == nil && i < len(boards); i++ {
			var seasons []storage.Incarnation
			seasons, err = s.Incarnations(ctx, boards[i].ID)
			for j := 0; err == nil && j < len(seasons); j++ {
				var stopped bool
				if stopped, err = s.unregisteredIn(ctx, seasons[j].SeasonKey, yield); stopped {
					return
				}
			}
		}
		if err != nil {
			yield(leaderboard.EntryKey{}, err)
		}
	}
}

// unregisteredIn yields the users with a record but no user row. It reads only the first record of
// each user.
func (s *Store) unregisteredIn(ctx context.Context, seasonKey leaderboard.SeasonKey, yield func(leaderboard.EntryKey, error) bool) (stopped bool, err error) {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return false, nil // the board was deleted after UnregisteredUsers listed it
	}
	rowKey := makeSeasonRowKey(bd.number, seasonKey.Season)
	prefix := rowKey.kind(dataRecord)
	for lower, end := prefix, keyAfter(prefix); ; {
		var user leaderboard.UserID
		err := s.scan(ctx, lower, end, func(k, _ []byte) (bool, error) {
			d := codec.Decoder{Rest: k[len(prefix):]}
			if user = leaderboard.UserID(d.Text()); d.Bad {
				return false, errFormat("record key")
			}
			return false, nil
		})
		if err != nil || user == "" {
			return false, err
		}
		registered, err := s.has(rowKey.user(user))
		if err != nil {
			return false, err
		}
		if !registered && !yield(leaderboard.EntryKey{SeasonKey: seasonKey, User: user}, nil) {
			return true, nil
		}
		lower = keyAfter(rowKey.records(user))
	}
}

func emptySeq[T any](ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := ctx.Err(); err != nil {
			var zero T
			yield(zero, err)
		}
	}
}
