package ranking

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// LinkedReceipt is a user's score and rank in a season of a linked board, after a result of
// the source.
type LinkedReceipt struct {
	Board  *leaderboard.Board
	Season leaderboard.SeasonID
	// Score is nil if none of the user's results counts in the season.
	Score *leaderboard.Score
	Exact string // Score without rounding, on decay and average boards
	// Rank is the competition rank, or 0 if it is unknown or the user is banned.
	Rank int64
	// AsOf and Sealed are as in [Receipt].
	AsOf   time.Time
	Sealed bool
	// Skipped is the reason why the season refused the result, which came too late. It is empty
	// if the season accepted the result.
	Skipped leaderboard.Reason
}

// AddLinked sets the field Linked of the receipts of one Submit. Linked stays empty if the result
// is not applied yet, or concerns no linked board.
func (s *Submitter) AddLinked(ctx context.Context, receipts []Receipt) error {
	entries := map[leaderboard.SeasonKey][]leaderboard.Entry{}
	for i := range receipts {
		for _, effect := range receipts[i].linked {
			entries[effect.After.SeasonKey] = append(entries[effect.After.SeasonKey], effect.After)
		}
	}
	standings := map[leaderboard.EntryKey]LinkedReceipt{}
	for key, entries := range entries {
		if err := s.linkedStandings(ctx, key, entries, standings); err != nil {
			return err
		}
	}
	for i := range receipts {
		for _, effect := range receipts[i].linked {
			standing, ok := standings[leaderboard.EntryKey{SeasonKey: effect.After.SeasonKey, User: effect.After.User}]
			if !ok {
				continue
			}
			standing.Skipped = effect.Skipped
			receipts[i].Linked = append(receipts[i].Linked, standing)
		}
	}
	return nil
}

func (s *Submitter) linkedStandings(ctx context.Context, key leaderboard.SeasonKey, entries []leaderboard.Entry, standings map[leaderboard.EntryKey]LinkedReceipt) error {
	b, err := s.board(ctx, key.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	asOf, sealed := leaderboard.Truncate(s.now()), s.hasSeal(ctx, b, key.Season)
	var ranked []leaderboard.Entry
	for _, e := range slices.Backward(entries) { // the newest entry of a user comes last
		entryKey, standing := leaderboard.EntryKey{SeasonKey: key, User: e.User}, LinkedReceipt{Board: b, Season: key.Season, AsOf: asOf, Sealed: sealed}
		if _, known := standings[entryKey]; known {
			continue
		}
		if e.Key != "" {
			scoredAt := scoreTime(b, key.Season, s.now())
			score := b.ScoreOf(e.Key, scoredAt)
			standing.Score, standing.Exact, ranked = &score, b.ExactScoreOf(e.Key, scoredAt), append(ranked, e)
		}
		standings[entryKey] = standing
	}
	if len(ranked) == 0 {
		return nil
	}
	return s.eachRanked(ctx, b, key.Season, ranked, func(i int, asOf time.Time, l Line) {
		entryKey := leaderboard.EntryKey{SeasonKey: key, User: ranked[i].User}
		e := standings[entryKey]
		if e.AsOf = asOf; l.Rank > 0 {
			e.Score, e.Exact, e.Rank = &l.Score, l.Exact, l.Rank
		}
		standings[entryKey] = e
	})
}
