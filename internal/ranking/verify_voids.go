package ranking

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// appliedVoids has the Applied of each [leaderboard.MatchState]. All results of the match must
// have at least these Voids.
type appliedVoids map[leaderboard.SeasonKey]map[leaderboard.MatchID]int64

// matchBoard returns the board that has the matches of b's results: b itself, or its source.
// It returns nil if matches of this board cannot be voided.
func (v *Verifier) matchBoard(ctx context.Context, b *leaderboard.Board) (*leaderboard.Board, error) {
	if b.Source != nil {
		source, err := v.store.Board(ctx, b.Source.Board)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		b = &source
	}
	if !b.Matches {
		return nil, nil
	}
	return b, nil
}

func (c *check) voidsOf(ctx context.Context, key leaderboard.SeasonKey) (map[leaderboard.MatchID]int64, error) {
	if c.voids[key] == nil {
		applied := map[leaderboard.MatchID]int64{}
		for m, err := range c.store.Matches(ctx, key) {
			if err != nil {
				return nil, err
			}
			if m.Applied > 0 {
				applied[m.Match] = m.Applied
			}
		}
		c.voids[key] = applied
	}
	return c.voids[key], nil
}

// lacksVoids reports whether the Voids of r are too low for its match. If c.b is linked, the
// returned match is on the source.
func (c *check) lacksVoids(ctx context.Context, r *leaderboard.MatchResult) (leaderboard.MatchKey, bool, error) {
	if c.matchBoard == nil {
		return leaderboard.MatchKey{}, false, nil
	}
	original := *r
	if c.b.Source != nil {
		var err error
		if original, err = c.b.ToSource(c.matchBoard, r); err != nil {
			return leaderboard.MatchKey{}, false, err
		}
	}
	key := leaderboard.MatchKey{SeasonKey: original.SeasonKey, Match: original.Match}
	voids, err := c.voidsOf(ctx, key.SeasonKey)
	return key, r.Voids < voids[key.Match], err
}

// checkVoids reads a result again, and reports it if its Voids are still too low.
func (c *check) checkVoids(ctx context.Context, key leaderboard.ResultKey) error {
	record, err := c.recordOf(ctx, key)
	if err != nil || record.Result == nil {
		return err
	}
	match, lacks, err := c.lacksVoids(ctx, record.Result)
	if err != nil || !lacks {
		return err
	}
	c.report.Differences++
	diff := Difference{Kind: VoidsWrong, Ladder: leaderboard.Ladder{SeasonKey: c.key}, User: key.User,
		Detail: fmt.Sprintf("match %q was voided or restored, but the user's result does not have this change", key.Match)}
	if c.repair {
		if err := c.applyVoidsTo(ctx, c.matchBoard, match, []leaderboard.UserID{key.User}); err != nil {
			return err
		}
		c.report.Repaired++
		diff.Repaired = true
	}
	return c.send(diff)
}
