package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// Verifier compares all derived data (entries, ladder rows, ranks) with the stored
// results, and repairs or rebuilds the derived data.
type Verifier struct {
	*shared
	reader *Reader
}

// DifferenceKind is the kind of derived data that disagrees with the stored results.
type DifferenceKind string

// The kinds of differences.
const (
	VoidsWrong DifferenceKind = "VOIDS_WRONG" // a result lacks a void, or the end of a void, of its match
	EntryWrong DifferenceKind = "ENTRY_WRONG" // the entry is missing, should not exist, or disagrees with the results
	RowMissing DifferenceKind = "ROW_MISSING" // a ladder in the store has no row for the entry
	RowOrphan  DifferenceKind = "ROW_GHOST"   // a ladder in the store has a row that matches no entry
	IndexWrong DifferenceKind = "INDEX_WRONG" // the rank index disagrees with the entry
	IndexSize  DifferenceKind = "INDEX_SIZE"  // the number of users in the ranks differs from the number of entries
	FinalWrong DifferenceKind = "FINAL_WRONG" // the final standings disagree with the entry
)

// Difference is a difference that Verify found.
type Difference struct {
	Kind     DifferenceKind
	Ladder   leaderboard.Ladder
	User     leaderboard.UserID // empty for INDEX_SIZE
	Detail   string
	Repaired bool
}

// VerifyReport is the summary of a Verify.
type VerifyReport struct {
	Seasons, Users, Results, Differences, Repaired int64
}

// Verify checks that the results of matches that were voided have the voids. Then it
// recomputes the entry of every user in the selected seasons from the stored results. It compares the computed entry with the stored entry, with the rows of the
// store's ladders, and with the rank index or the final standings.
//
// Verify calls found for each difference. A result that arrives during a check also
// looks like a difference, so Verify first checks each difference again. If repair is
// true, Verify recomputes wrong entries from the stored results. From the entries, it
// then recomputes the index or the final standings. It also starts the fill of each linked
// board that is selected as a whole.
func (v *Verifier) Verify(ctx context.Context, sel Selection, repair bool, progress Progress, found func(Difference) error) (VerifyReport, error) {
	var report VerifyReport
	unrepaired := map[DifferenceKind]int64{}
	unregistered, err := v.unregistered(ctx, sel)
	if err != nil {
		return report, err
	}
	voids := appliedVoids{}
	err = sel.eachSeason(ctx, v.store, func(b *leaderboard.Board, key leaderboard.SeasonKey) error {
		report.Seasons++
		matches, err := v.matchBoard(ctx, b)
		if err != nil {
			return err
		}
		record, err := v.store.Season(ctx, key)
		if err != nil {
			return err
		}
		c := &check{Verifier: v, b: b, matchBoard: matches, voids: voids, rules: record.Rules, key: key, repair: repair, progress: progress, report: &report}
		c.found = func(d Difference) error {
			if !d.Repaired {
				unrepaired[d.Kind]++
			}
			return found(d)
		}
		return c.run(ctx, unregistered[key])
	})
	if err == nil && repair {
		err = v.refill(ctx, sel)
	}
	if err == nil {
		v.metrics.setDifferences(unrepaired)
		v.metrics.verified.SetToCurrentTime()
	}
	return report, err
}

// unregistered returns the unregistered users of the selected seasons: see
// [leaderboard.ResultStore].UnregisteredUsers.
func (v *Verifier) unregistered(ctx context.Context, sel Selection) (map[leaderboard.SeasonKey]map[leaderboard.UserID]bool, error) {
	found := map[leaderboard.SeasonKey]map[leaderboard.UserID]bool{}
	for k, err := range v.store.UnregisteredUsers(ctx) {
		if err != nil {
			return nil, err
		}
		if sel.Board != "" && sel.Board != k.Board || sel.Season != "" && sel.Season != k.Season {
			continue
		}
		if found[k.SeasonKey] == nil {
			found[k.SeasonKey] = map[leaderboard.UserID]bool{}
		}
		found[k.SeasonKey][k.User] = true
	}
	return found, nil
}

// check is the verification of one season.
type check struct {
	*Verifier
	b *leaderboard.Board
	// matchBoard is the board whose matches concern the results of b, or nil.
	matchBoard *leaderboard.Board
	voids      appliedVoids
	rules      int // the divisions that the season's entries follow: see leaderboard.Board.Rules
	key        leaderboard.SeasonKey
	repair     bool
	progress   Progress
	found      func(Difference) error
	report     *VerifyReport

	ranked     map[leaderboard.Division]int64 // the number of users that each ladder should have
	orphans    map[leaderboard.OrphanRow]bool // the orphan rows that findOrphans reported
	ranksWrong bool                           // the ranks must be rebuilt
}

// run checks the registered and unregistered users of the season, the ladders of the
// store, and the ranks.
func (c *check) run(ctx context.Context, unregistered map[leaderboard.UserID]bool) error {
	c.ranked = map[leaderboard.Division]int64{{}: 0}
	n := int64(0)
	check := func(user leaderboard.UserID) error {
		if err := c.user(ctx, user); err != nil {
			return err
		}
		c.report.Users++
		if n++; c.progress != nil && n%1000 == 0 {
			c.progress(c.key, n)
		}
		return nil
	}
	for user, err := range c.store.Users(ctx, c.key) {
		if err == nil {
			delete(unregistered, user) // the user may have been registered in the meantime
			err = check(user)
		}
		if err != nil {
			return err
		}
	}
	for user := range unregistered {
		if err := check(user); err != nil {
			return err
		}
	}
	if err := c.findOrphans(ctx); err != nil {
		return err
	}
	for division := range c.ranked {
		if err := c.checkLadder(ctx, division); err != nil {
			return err
		}
	}
	if err := c.checkSizes(ctx); err != nil {
		return err
	}
	if c.progress != nil {
		c.progress(c.key, n)
	}
	if c.ranksWrong && c.repair {
		return c.ranks.rebuild(ctx, c.b, c.key, "verify")
	}
	return nil
}

// user compares a user's entry with the stored results. It also adds the user to
// c.ranked for each ladder that should contain the user.
func (c *check) user(ctx context.Context, user leaderboard.UserID) error {
	var lacking []leaderboard.ResultKey
	want, have, err := c.entries(ctx, user, func(r *leaderboard.MatchResult) error {
		c.report.Results++
		_, lacks, err := c.lacksVoids(ctx, r)
		if lacks {
			lacking = append(lacking, r.ResultKey)
		}
		return err
	})
	for _, key := range lacking {
		err = errors.Join(err, c.checkVoids(ctx, key))
	}
	if err == nil && len(lacking) > 0 {
		want, have, err = c.entries(ctx, user, nil)
	}
	if err != nil {
		return err
	}
	if detail := entryDifference(want, have); detail != "" {
		if err := c.refresh(ctx); err != nil {
			return err
		}
		if want, have, err = c.entries(ctx, user, nil); err != nil {
			return err
		}
		if detail := entryDifference(want, have); detail != "" {
			if err := c.difference(ctx, EntryWrong, leaderboard.Division{}, user, detail); err != nil {
				return err
			}
		}
	}
	want.Hidden = have.Hidden
	if !want.Ranked() {
		return nil
	}
	c.ranked[leaderboard.Division{}]++
	for _, d := range want.Divisions {
		c.ranked[d]++
	}
	return nil
}

// refresh reads the board and its season again. An administrator may have ended the season
// or changed the divisions after the check began.
func (c *check) refresh(ctx context.Context) error {
	if _, err := c.reread(ctx, c.b); err != nil {
		return err
	}
	record, err := c.store.Season(ctx, c.key)
	c.rules = record.Rules
	return err
}

// entries returns a user's entry as it follows from the stored results, and as it is
// stored. If visit is not nil, entries calls it with each result.
func (c *check) entries(ctx context.Context, user leaderboard.UserID, visit func(*leaderboard.MatchResult) error) (want, have leaderboard.Entry, err error) {
	t, err := c.b.Count(func(yield func(leaderboard.MatchResult, error) bool) {
		for r, err := range c.store.Results(ctx, c.key, user) {
			if err == nil && visit != nil {
				err = visit(&r)
			}
			if !yield(r, err) {
				return
			}
		}
	})
	if err == nil {
		have, err = c.entry(ctx, user)
	}
	want = c.b.WithRules(c.rules).Entry(&t, c.key.Season, user)
	for rules := 0; rules <= c.b.Rules() && !c.b.RecountLease.IsZero() && !slices.Equal(want.Divisions, have.Divisions); rules++ {
		// The divisions have changed, and the user's entry possibly follows the old ones.
		if other := c.b.WithRules(rules).Entry(&t, c.key.Season, user); slices.Equal(other.Divisions, have.Divisions) {
			want = other
		}
	}
	return want, have, err
}

func (c *check) entry(ctx context.Context, user leaderboard.UserID) (leaderboard.Entry, error) {
	e, err := c.store.Entry(ctx, c.key, user)
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		return leaderboard.Entry{SeasonKey: c.key, User: user}, nil
	}
	return e, err
}

func entryDifference(want, have leaderboard.Entry) string {
	switch {
	case want.Key != have.Key && have.Key == "":
		return "the entry is missing"
	case want.Key != have.Key && want.Key == "":
		return "the entry has a score, but no result counts"
	case want.Key != have.Key:
		return "the score differs from the results"
	case !want.AchievedAt.Equal(have.AchievedAt) || want.Match != have.Match || want.Metadata != have.Metadata || want.Results != have.Results:
		return "the deciding result differs from the results"
	case !slices.Equal(want.Divisions, have.Divisions):
		return fmt.Sprintf("the divisions are %v, but the results give %v", have.Divisions, want.Divisions)
	}
	return ""
}

// difference reports a difference. If c.repair is true, it first recomputes the user's
// entry.
func (c *check) difference(ctx context.Context, kind DifferenceKind, d leaderboard.Division, user leaderboard.UserID, detail string) error {
	c.report.Differences++
	diff := Difference{Kind: kind, Ladder: leaderboard.Ladder{SeasonKey: c.key, Division: d}, User: user, Detail: detail}
	if c.repair {
		if user != "" {
			if _, err := c.store.Recount(ctx, c.b, c.key.Season, user); err != nil {
				return err
			}
		}
		c.ranksWrong = true // the repaired entry may have another rank
		c.report.Repaired++
		diff.Repaired = true
	}
	return c.found(diff)
}
