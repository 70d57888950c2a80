package pebble

import (
	"bytes"
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// seasonsUnder returns the seasons that have rows under prefix: the prefix of a board,
// or of one season.
func seasonsUnder(ctx context.Context, r pebble.Reader, prefix []byte) (seasons []leaderboard.SeasonID, err error) {
	end := after(prefix)
	for next := prefix; next != nil; {
		from := next
		next = nil
		if err := scan(ctx, r, from, end, func(key, _ []byte) (bool, error) {
			number, season, _, ok := parseSeasonKey(key[1:])
			if !ok {
				return false, errFormat("key of a season")
			}
			seasons = append(seasons, season)
			next = after(makeSeasonRowKey(number, season))
			return false, nil
		}); err != nil {
			return nil, err
		}
		if bytes.Compare(next, end) >= 0 {
			next = nil
		}
	}
	slices.Sort(seasons)
	return seasons, nil
}

// Seasons implements [leaderboard.Store].
func (s *Store) Seasons(ctx context.Context, id leaderboard.BoardID) ([]leaderboard.SeasonRecord, error) {
	bd := s.board(id)
	if bd == nil {
		return nil, ctx.Err()
	}
	seasons, err := seasonsUnder(ctx, s.db, boardPrefix(bd.number))
	if err != nil {
		return nil, err
	}
	var out []leaderboard.SeasonRecord
	for _, season := range seasons {
		record, err := s.seasonOf(bd, season)
		if err != nil {
			return nil, err
		}
		out = append(out, record)
	}
	return out, nil
}

// Season implements [leaderboard.Store].
func (s *Store) Season(ctx context.Context, seasonKey leaderboard.SeasonKey) (leaderboard.SeasonRecord, error) {
	bd := s.board(seasonKey.Board)
	if err := ctx.Err(); err != nil || bd == nil {
		return leaderboard.SeasonRecord{SeasonKey: seasonKey}, err
	}
	return s.seasonOf(bd, seasonKey.Season)
}

func (s *Store) seasonOf(bd *board, season leaderboard.SeasonID) (leaderboard.SeasonRecord, error) {
	var row sealRow
	_, err := s.getJSON(makeSeasonRowKey(bd.number, season).kind(dataSeal), &row)
	return row.record(leaderboard.SeasonKey{Board: bd.ID, Season: season}), err
}

// DeleteSeason implements [leaderboard.Store].
func (s *Store) DeleteSeason(ctx context.Context, seasonKey leaderboard.SeasonKey) error {
	bd := s.board(seasonKey.Board)
	if bd == nil {
		return s.syncVisible(ctx)
	}
	if err := s.lock(ctx, bd.sealing); err != nil {
		return err
	}
	defer bd.sealing.unlock()
	return s.remove(ctx, s.db.NewBatch(), bd, makeSeasonRowKey(bd.number, seasonKey.Season), func() {})
}
