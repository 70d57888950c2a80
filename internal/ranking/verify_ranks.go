package ranking

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// mustHaveLadder reports whether the ranks must have the complete ladder of a division. After
// a change of divisions, a removed ladder cannot be read, and a new ladder is incomplete.
func (c *check) mustHaveLadder(d leaderboard.Division) bool {
	_, err := c.b.WithRules(c.rules).Division(d)
	return err == nil && !c.b.IsFilling(d.Attribute)
}

func (c *check) compareRanks(ctx context.Context, l leaderboard.Ladder, entries []leaderboard.Entry) error {
	if len(entries) == 0 || !c.mustHaveLadder(l.Division) {
		return nil
	}
	users := make([]leaderboard.UserID, len(entries))
	for i := range entries {
		users[i] = entries[i].User
	}
	return c.reader.read(ctx, c.b, Query{Board: l.Board, Season: l.Season, Division: l.Division}, func(v *view) error {
		standings, _, err := v.Standings(ctx, l, users, leaderboard.Ordinal)
		if err != nil {
			return err
		}
		kind := IndexWrong
		if v.sealed {
			kind = FinalWrong
		}
		for i := range entries {
			if standings[i].Key == entries[i].Key && standings[i].AchievedAt.Equal(entries[i].AchievedAt) {
				continue
			}
			if err := c.compareRank(ctx, v, kind, users[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *check) compareRank(ctx context.Context, v *view, kind DifferenceKind, user leaderboard.UserID) error {
	e, err := c.entry(ctx, user)
	if err != nil {
		return err
	}
	standings, _, err := v.Standings(ctx, v.ladder, []leaderboard.UserID{user}, leaderboard.Ordinal)
	if err != nil {
		return err
	}
	if st := standings[0]; e.Ranked() && (st.Key != e.Key || !st.AchievedAt.Equal(e.AchievedAt)) {
		return c.addDifference(ctx, kind, v.ladder.Division, user, "the ranks disagree with the entry")
	}
	return nil
}

// Users may join meanwhile, so checkSizes reads the size of each ladder before and after it
// counts the entries. In one of three tries, the count must be between the two sizes.
func (c *check) checkSizes(ctx context.Context) error {
	const tries = 3
	divisions := slices.DeleteFunc(slices.Collect(maps.Keys(c.ranked)), func(d leaderboard.Division) bool { return !c.mustHaveLadder(d) })
	for attempt := 1; len(divisions) > 0; attempt++ {
		before, err := c.ladderSizes(ctx, divisions)
		if err != nil {
			return err
		}
		counts, err := c.countEntries(ctx)
		if err != nil {
			return err
		}
		after, err := c.ladderSizes(ctx, divisions)
		if err != nil {
			return err
		}
		var differ []leaderboard.Division
		for _, d := range divisions {
			switch n := counts[d]; {
			case min(before[d], after[d]) <= n && n <= max(before[d], after[d]):
			case attempt < tries:
				differ = append(differ, d)
			default:
				if err := c.addDifference(ctx, IndexSize, d, "", fmt.Sprintf("%d users have a rank, but %d have an entry", after[d], n)); err != nil {
					return err
				}
			}
		}
		divisions = differ
	}
	return nil
}

func (c *check) ladderSizes(ctx context.Context, divisions []leaderboard.Division) (map[leaderboard.Division]int64, error) {
	sizes := map[leaderboard.Division]int64{}
	for _, d := range divisions {
		err := c.reader.read(ctx, c.b, Query{Board: c.key.Board, Season: c.key.Season, Division: d}, func(v *view) error {
			_, ladderView, err := v.Page(ctx, v.ladder, 1, 1, leaderboard.Ordinal)
			sizes[d] = ladderView.Size
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

func (c *check) countEntries(ctx context.Context) (map[leaderboard.Division]int64, error) {
	counts := map[leaderboard.Division]int64{}
	for e, err := range c.store.Scan(ctx, c.key, leaderboard.Part{}) {
		if err != nil {
			return nil, err
		}
		if e.Ranked() {
			counts[leaderboard.Division{}]++
			for _, d := range e.Divisions {
				counts[d]++
			}
		}
	}
	return counts, nil
}

func (c *check) checkMarks(ctx context.Context) error {
	marks, err := c.marksOf(ctx, c.key)
	if err != nil {
		return err
	}
	left := map[string]bool{}
	if c.repair && len(marks) > 0 {
		if err := c.amendMarked(ctx, c.key); err != nil {
			return err
		}
		remaining, err := c.marksOf(ctx, c.key)
		if err != nil {
			return err
		}
		for i := range remaining {
			left[remaining[i].ID] = true
		}
	}
	for i := range marks {
		repaired := c.repair && !left[marks[i].ID]
		c.report.Differences++
		if repaired {
			c.report.Repaired++
		}
		if err := c.send(Difference{Kind: FinalWrong, Ladder: leaderboard.Ladder{SeasonKey: c.key}, User: marks[i].User,
			Detail: "a change of the user's entry is not in the final standings yet", Repaired: repaired}); err != nil {
			return err
		}
	}
	return nil
}
