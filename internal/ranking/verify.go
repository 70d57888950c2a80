package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// Verifier compares all derived data (entries, ladder rows, ranks) with the stored results,
// and repairs or rebuilds them.
type Verifier struct {
	*shared
	reader *Reader
}

// DifferenceKind is the kind of derived data that disagrees with the stored results.
type DifferenceKind string

// The kinds of differences.
const (
	DataDamaged   DifferenceKind = "DATA_DAMAGED"   // stored data of the user cannot be read
	ResultMissing DifferenceKind = "RESULT_MISSING" // a linked board lacks a result of its source
	VoidsWrong    DifferenceKind = "VOIDS_WRONG"    // the Voids of a result are less than those of its match
	EntryWrong    DifferenceKind = "ENTRY_WRONG"    // the entry disagrees with the results
	RowMissing    DifferenceKind = "ROW_MISSING"    // a ladder in the store has no row for the entry
	RowOrphan     DifferenceKind = "ROW_GHOST"      // a ladder in the store has a row that matches no entry
	IndexWrong    DifferenceKind = "INDEX_WRONG"    // the rank index disagrees with the entry
	IndexSize     DifferenceKind = "INDEX_SIZE"     // the number of users with a rank is not the number of entries
	FinalWrong    DifferenceKind = "FINAL_WRONG"    // the final standings disagree with the entry
)

// Difference is a difference that Verify found.
type Difference struct {
	Kind     DifferenceKind
	Ladder   leaderboard.Ladder
	User     leaderboard.UserID // empty for INDEX_SIZE
	Detail   string
	Repaired bool
}

// VerifyReport summarizes a call of Verify.
type VerifyReport struct {
	Seasons, Users, Results, Differences, Repaired int64
}

// Verify recomputes every entry of the selected seasons from the stored results. It compares
// the computed entries with the stored entries, the rows of the store's ladders, and the rank
// index or the final standings. It also checks the Voids of results, and the copies of results
// on the selected linked boards, except boards that are filling.
//
// Verify calls send for each difference. A result that arrives meanwhile looks like a
// difference. So Verify checks a difference again before it calls send, except damaged data
// and changes that await an amendment.
//
// If repair is true, Verify repairs all differences except damaged data. If sel.Season is
// empty too, Verify starts a fill of each selected linked board.
func (v *Verifier) Verify(ctx context.Context, sel Selection, repair bool, progress Progress, send func(Difference) error) (VerifyReport, error) {
	var report VerifyReport
	unrepaired := map[DifferenceKind]int64{}
	unregistered, err := v.unregistered(ctx, sel)
	if err != nil {
		return report, err
	}
	bans, err := v.allBans(ctx)
	if err != nil {
		return report, err
	}
	voids := appliedVoids{}
	damagedUsers := map[boardUser]bool{}
	count := func(d Difference) error {
		if d.Kind == DataDamaged {
			damagedUsers[boardUser{d.Ladder.Board, d.User}] = true
		}
		if !d.Repaired {
			unrepaired[d.Kind]++
		}
		return send(d)
	}
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
		c := &check{
			Verifier: v, b: b, matchBoard: matches, voids: voids, bans: bans, rules: record.Rules, key: key,
			repair: repair, progress: progress, send: count, report: &report,
		}
		return c.run(ctx, unregistered[key])
	})
	if err == nil {
		err = v.verifyLinks(ctx, sel, repair, damagedUsers, &report, count)
	}
	if err == nil && repair {
		err = v.refill(ctx, sel)
	}
	if err == nil {
		v.metrics.setDifferences(unrepaired)
		v.metrics.verified.SetToCurrentTime()
	}
	return report, err
}

// unregistered returns, by season, the users of the selected seasons with a [leaderboard.Record]
// whom Users omits.
func (v *Verifier) unregistered(ctx context.Context, sel Selection) (map[leaderboard.SeasonKey]map[leaderboard.UserID]bool, error) {
	users := map[leaderboard.SeasonKey]map[leaderboard.UserID]bool{}
	for k, err := range v.store.UnregisteredUsers(ctx) {
		if err != nil {
			return nil, err
		}
		if sel.Board != "" && sel.Board != k.Board || sel.Season != "" && sel.Season != k.Season {
			continue
		}
		if users[k.SeasonKey] == nil {
			users[k.SeasonKey] = map[leaderboard.UserID]bool{}
		}
		users[k.SeasonKey][k.User] = true
	}
	return users, nil
}

func (v *Verifier) allBans(ctx context.Context) (map[leaderboard.UserID][]leaderboard.Ban, error) {
	all := map[leaderboard.UserID][]leaderboard.Ban{}
	for b, err := range v.store.Bans(ctx, leaderboard.BanKey{}) {
		if err != nil {
			return nil, err
		}
		if b.Banned {
			all[b.User] = append(all[b.User], b)
		}
	}
	return all, nil
}

type check struct {
	*Verifier
	b          *leaderboard.Board
	matchBoard *leaderboard.Board
	voids      appliedVoids
	bans       map[leaderboard.UserID][]leaderboard.Ban
	rules      int // identifies the divisions of the season's entries: see [leaderboard.Board.Rules]
	key        leaderboard.SeasonKey
	repair     bool
	progress   Progress
	send       func(Difference) error
	report     *VerifyReport

	ranked     map[leaderboard.Division]int64 // the number of users that each ladder should have
	orphans    map[leaderboard.OrphanRow]bool // the orphan rows that findOrphans reported
	ranksWrong bool                           // a difference was found, so the ranks must be rebuilt
}

func (c *check) run(ctx context.Context, unregistered map[leaderboard.UserID]bool) error {
	c.ranked = map[leaderboard.Division]int64{{}: 0}
	if err := c.checkMarks(ctx); err != nil {
		return err
	}
	n := int64(0)
	checkUser := func(user leaderboard.UserID) error {
		err := c.compareUser(ctx, user)
		if damaged(err) {
			err = c.reportDamaged(ctx, user, err)
		}
		if err != nil {
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
			delete(unregistered, user) // a write may have registered the user meanwhile
			err = checkUser(user)
		}
		if err != nil {
			return err
		}
	}
	for user := range unregistered {
		if err := checkUser(user); err != nil {
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

// compareUser also counts the user in c.ranked for each ladder that should contain the user.
func (c *check) compareUser(ctx context.Context, user leaderboard.UserID) error {
	var withoutVoids []leaderboard.ResultKey
	computed, stored, err := c.entries(ctx, user, func(r *leaderboard.MatchResult) error {
		c.report.Results++
		_, lacks, err := c.lacksVoids(ctx, r)
		if lacks {
			withoutVoids = append(withoutVoids, r.ResultKey)
		}
		return err
	})
	for _, key := range withoutVoids {
		err = errors.Join(err, c.checkVoids(ctx, key))
	}
	if err == nil && len(withoutVoids) > 0 {
		computed, stored, err = c.entries(ctx, user, nil)
	}
	if err != nil {
		return err
	}
	if detail := entryDifference(computed, stored); detail != "" {
		if err := c.refresh(ctx, user); err != nil {
			return err
		}
		if computed, stored, err = c.entries(ctx, user, nil); err != nil {
			return err
		}
		if detail := entryDifference(computed, stored); detail != "" {
			if err := c.addDifference(ctx, EntryWrong, leaderboard.Division{}, user, detail); err != nil {
				return err
			}
		}
	}
	c.countRanked(&computed)
	return nil
}

func (c *check) countRanked(e *leaderboard.Entry) {
	if !e.Ranked() {
		return
	}
	c.ranked[leaderboard.Division{}]++
	for _, d := range e.Divisions {
		c.ranked[d]++
	}
}

func (c *check) reportDamaged(ctx context.Context, user leaderboard.UserID, err error) error {
	stored, entryErr := c.entry(ctx, user)
	if entryErr == nil {
		c.countRanked(&stored)
	} else if !damaged(entryErr) {
		return entryErr
	}
	c.report.Differences++
	return c.send(Difference{Kind: DataDamaged, Ladder: leaderboard.Ladder{SeasonKey: c.key}, User: user,
		Detail: fmt.Sprintf("stored data cannot be read; restore them, then repair: %v", err)})
}

// The board, its season and the user's bans may have changed after the check began.
func (c *check) refresh(ctx context.Context, user leaderboard.UserID) error {
	if _, err := c.reread(ctx, c.b); err != nil {
		return err
	}
	bans, err := c.store.UserBans(ctx, user)
	if err != nil {
		return err
	}
	c.bans[user] = bans
	record, err := c.store.Season(ctx, c.key)
	c.rules = record.Rules
	return err
}

// visit may be nil. It is called once for each result, although Count may read them twice.
func (c *check) entries(ctx context.Context, user leaderboard.UserID, visit func(*leaderboard.MatchResult) error) (computed, stored leaderboard.Entry, err error) {
	t, err := c.b.Count(func(yield func(leaderboard.MatchResult, error) bool) {
		for r, err := range c.store.Results(ctx, c.key, user) {
			if err == nil && visit != nil {
				err = visit(&r)
			}
			if !yield(r, err) {
				return
			}
		}
		visit = nil
	})
	if err == nil {
		stored, err = c.entry(ctx, user)
	}
	computed = c.b.WithRules(c.rules).Entry(&t, c.key.Season, user)
	hidden := slices.ContainsFunc(c.bans[user], func(b leaderboard.Ban) bool { return b.Hides(c.b) })
	for rules := 0; rules <= c.b.Rules() && !c.b.RecountDue.IsZero() && !slices.Equal(computed.Divisions, stored.Divisions); rules++ {
		// The divisions are changing, and the entry may still have former divisions.
		if former := c.b.WithRules(rules).Entry(&t, c.key.Season, user); slices.Equal(former.Divisions, stored.Divisions) {
			computed = former
		}
	}
	computed.Hidden = hidden && computed.Key != ""
	return computed, stored, err
}

func (c *check) entry(ctx context.Context, user leaderboard.UserID) (leaderboard.Entry, error) {
	e, err := c.store.Entry(ctx, c.key, user)
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		return leaderboard.Entry{SeasonKey: c.key, User: user}, nil
	}
	return e, err
}

func entryDifference(computed, stored leaderboard.Entry) string {
	switch {
	case computed.Key != stored.Key && stored.Key == "":
		return "the entry is missing"
	case computed.Key != stored.Key && computed.Key == "":
		return "the entry has a score, but no result counts"
	case computed.Key != stored.Key:
		return "the score differs from the results"
	case !computed.AchievedAt.Equal(stored.AchievedAt) || computed.Match != stored.Match || computed.Metadata != stored.Metadata || computed.Results != stored.Results:
		return "the entry's time, match, metadata or number of results differs from the results"
	case !slices.Equal(computed.Divisions, stored.Divisions):
		return fmt.Sprintf("the divisions are %v, but the results give %v", stored.Divisions, computed.Divisions)
	case computed.Hidden && !stored.Hidden:
		return "the entry is visible, but the user is banned"
	case stored.Hidden && !computed.Hidden:
		return "the entry is hidden, but the user is not banned"
	}
	return ""
}

// If c.repair is true, addDifference first recounts the user, unless user is empty. If the
// user's data are damaged, the difference stays unrepaired.
func (c *check) addDifference(ctx context.Context, kind DifferenceKind, d leaderboard.Division, user leaderboard.UserID, detail string) error {
	c.report.Differences++
	diff := Difference{Kind: kind, Ladder: leaderboard.Ladder{SeasonKey: c.key, Division: d}, User: user, Detail: detail}
	if c.repair {
		var err error
		if user != "" {
			_, err = c.store.Recount(ctx, c.b, c.key.Season, user)
		}
		if err != nil && !damaged(err) {
			return err
		}
		c.ranksWrong = true
		if damaged(err) {
			return c.send(diff)
		}
		c.report.Repaired++
		diff.Repaired = true
	}
	return c.send(diff)
}
