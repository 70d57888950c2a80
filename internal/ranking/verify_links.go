package ranking

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

func (v *Verifier) verifyLinks(ctx context.Context, sel Selection, repair bool, damagedUsers map[boardUser]bool, report *VerifyReport, send func(Difference) error) error {
	boards, err := sel.filledLinks(ctx, v.store)
	if err != nil {
		return err
	}
	for i := range boards {
		b := &boards[i]
		source, err := v.store.Board(ctx, b.Source.Board)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		c := &linkCheck{Verifier: v, source: &source, b: b, season: sel.Season, repair: repair, damagedUsers: damagedUsers, report: report, send: send}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

type linkCheck struct {
	*Verifier
	source, b    *leaderboard.Board
	season       leaderboard.SeasonID // the only season of b to check, or empty
	repair       bool
	damagedUsers map[boardUser]bool
	report       *VerifyReport
	send         func(Difference) error

	missing []missingResult
}

// missingResult is a result that place, a season of the linked board, seems to lack.
type missingResult struct {
	original leaderboard.MatchResult
	place    leaderboard.SeasonID
}

func (c *linkCheck) run(ctx context.Context) error {
	err := Selection{Board: c.source.ID}.eachSeason(ctx, c.store, func(_ *leaderboard.Board, key leaderboard.SeasonKey) error {
		for user, err := range c.store.Users(ctx, key) {
			if err == nil {
				err = c.addMissing(ctx, key, user)
			}
			if damaged(err) {
				err = c.reportDamaged(key, user, err)
			}
			if err == nil && len(c.missing) >= fillChunk {
				err = c.checkMissing(ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.checkMissing(ctx)
}

func (c *linkCheck) addMissing(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) error {
	copies := map[leaderboard.SeasonID]map[leaderboard.MatchID]leaderboard.MatchResult{} // by place
	for r, err := range c.store.Results(ctx, key, user) {
		if err != nil {
			return err
		}
		for _, place := range c.b.LinkedSeasons(&r) {
			expected := c.b.FromSource(c.source, &r, place)
			if c.season != "" && place != c.season || c.b.FillingSeason(place, c.now()) || !c.b.Counts(&expected) {
				continue
			}
			placeCopies, ok := copies[place]
			if !ok {
				if placeCopies, err = c.copies(ctx, expected.SeasonKey, user); err != nil {
					return err
				}
				copies[place] = placeCopies
			}
			stored, ok := placeCopies[expected.Match]
			if !ok || replaces(c.b, leaderboard.Known{Result: &stored}, expected) {
				c.missing = append(c.missing, missingResult{r, place})
			}
		}
	}
	return nil
}

func (c *linkCheck) copies(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) (map[leaderboard.MatchID]leaderboard.MatchResult, error) {
	copies := map[leaderboard.MatchID]leaderboard.MatchResult{}
	for r, err := range c.store.Results(ctx, key, user) {
		if err != nil {
			return nil, fmt.Errorf("season %q: %w", key.Season, err)
		}
		copies[r.Match] = r
	}
	return copies, nil
}

func (c *linkCheck) reportDamaged(key leaderboard.SeasonKey, user leaderboard.UserID, err error) error {
	if c.damagedUsers[boardUser{c.b.ID, user}] {
		return nil
	}
	return c.addDifference(DataDamaged, c.season, user, fmt.Sprintf("data of the user on this board, or in season %q of its source, cannot be read; restore them, then repair: %v", key.Season, err), false)
}

// checkMissing gives writers time to copy new results (see links.go). It then reports the
// results that the linked board still lacks.
func (c *linkCheck) checkMissing(ctx context.Context) error {
	if len(c.missing) == 0 {
		return nil
	}
	if err := wait(ctx, 2*c.linkTTL); err != nil {
		return err
	}
	for _, m := range c.missing {
		lacks, err := c.lacks(ctx, &m)
		if err == nil && lacks {
			if c.repair {
				l := &linking{shared: c.shared, source: c.source, boards: []*leaderboard.Board{c.b}}
				err = l.offerResults(ctx, []leaderboard.MatchResult{m.original})
			}
			if err == nil {
				err = c.addDifference(ResultMissing, m.place, m.original.User, fmt.Sprintf("the board lacks the result of match %q of its source", m.original.Match), c.repair)
			}
		}
		if err != nil && !damaged(err) {
			return err
		}
	}
	c.missing = nil
	return nil
}

// lacks returns true if the result still stands on the source, and the linked board lacks the
// result but would accept it.
func (c *linkCheck) lacks(ctx context.Context, m *missingResult) (bool, error) {
	current, err := c.recordOf(ctx, m.original.ResultKey)
	if err != nil || current.Result == nil || !sameResult(current.Result, &m.original) {
		return false, err
	}
	expected := c.b.FromSource(c.source, &m.original, m.place)
	stored, err := c.recordOf(ctx, expected.ResultKey)
	if err == nil {
		err = c.addRecent(ctx, c.b, expected.ResultKey, &stored)
	}
	if err != nil {
		return false, err
	}
	deletedAt, err := c.store.DeletedAt(ctx, expected.SeasonKey)
	return err == nil && replaces(c.b, leaderboard.Known{Result: stored.Result, Refusals: stored.Refusals, DeletedAt: deletedAt}, expected), err
}

// replaces reports whether b would store r. A change of only Voids does not count.
func replaces(b *leaderboard.Board, known leaderboard.Known, r leaderboard.MatchResult) bool {
	d := b.Merge(known, r)
	return d.Put != nil && !d.VoidsOnly
}

func (c *linkCheck) addDifference(kind DifferenceKind, season leaderboard.SeasonID, user leaderboard.UserID, detail string, repaired bool) error {
	c.report.Differences++
	if repaired {
		c.report.Repaired++
	}
	return c.send(Difference{Kind: kind, Ladder: leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: c.b.ID, Season: season}}, User: user, Detail: detail, Repaired: repaired})
}
