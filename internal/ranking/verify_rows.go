package ranking

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const orphanDetail = "the ladder has a row that does not belong to the user's entry"

// A change of an entry leaves an orphan row for a short time. So findOrphans reports only the
// rows that two reads find.
func (c *check) findOrphans(ctx context.Context) error {
	find := func(candidates map[leaderboard.OrphanRow]bool) (map[leaderboard.OrphanRow]bool, error) {
		orphans := map[leaderboard.OrphanRow]bool{}
		for orphan, err := range c.store.OrphanRows(ctx, c.key) {
			if err != nil {
				return nil, err
			}
			if candidates == nil || candidates[orphan] {
				orphans[orphan] = true
			}
		}
		return orphans, nil
	}
	orphans, err := find(nil)
	if err == nil && len(orphans) > 0 {
		orphans, err = find(orphans)
	}
	if err != nil {
		return err
	}
	c.orphans = orphans
	for orphan := range orphans {
		if err := c.addDifference(ctx, RowOrphan, orphan.Division, orphan.User, orphanDetail); err != nil {
			return err
		}
	}
	return nil
}

const ranksPerRead = 1000

func (c *check) checkLadder(ctx context.Context, d leaderboard.Division) error {
	l := leaderboard.Ladder{SeasonKey: c.key, Division: d}
	rows := int64(0)
	page := make([]leaderboard.Entry, 0, ranksPerRead)
	flush := func() error {
		err := c.compareRanks(ctx, l, page)
		page = page[:0]
		return err
	}
	for row, err := range c.store.Entries(ctx, l, "") {
		if err != nil {
			return err
		}
		e, ok, err := c.checkRow(ctx, l, &row)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		rows++
		if page = append(page, e); len(page) == ranksPerRead {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if rows < c.ranked[d] {
		return c.reportMissingRows(ctx, l)
	}
	return nil
}

// ok means that the row belongs to the entry of its user. checkRow reports an orphan row,
// unless findOrphans has reported it.
func (c *check) checkRow(ctx context.Context, l leaderboard.Ladder, row *leaderboard.Entry) (e leaderboard.Entry, ok bool, err error) {
	belongs := func() bool { return hasPlace(&e, l.Division) && e.SortKey() == row.SortKey() }
	if e, err = c.entry(ctx, row.User); err != nil || belongs() {
		if damaged(err) {
			return e, false, nil // run has reported the user's damaged data
		}
		return e, err == nil, err
	}
	if c.orphans[leaderboard.OrphanRow{Division: l.Division, User: row.User, Key: row.SortKey()}] {
		return e, false, nil
	}
	// If the sort key changed after the row was read, the row no longer exists.
	exists, err := c.hasRow(ctx, l, row)
	if err != nil || !exists {
		return e, false, err
	}
	if e, err = c.entry(ctx, row.User); err == nil && !belongs() {
		err = c.addDifference(ctx, RowOrphan, l.Division, row.User, orphanDetail)
	}
	return e, false, err
}

func (c *check) hasRow(ctx context.Context, l leaderboard.Ladder, e *leaderboard.Entry) (bool, error) {
	key := e.SortKey()
	justBefore := leaderboard.MakeSortKey(e.Key, e.AchievedAt.Add(-time.Microsecond), e.User)
	for row, err := range c.store.Entries(ctx, l, justBefore) {
		if err != nil {
			return false, err
		}
		if position := row.SortKey(); position >= key {
			return position == key, nil
		}
	}
	return false, nil
}

// maxUsersInPass bounds the users that one pass of reportMissingRows keeps in memory. A user
// takes about 20 bytes.
var maxUsersInPass int64 = 50_000_000

// A row is missing if two scans of the ladder, and a read at the row's position, do not find
// the row. Each pass handles one part of the users.
func (c *check) reportMissingRows(ctx context.Context, l leaderboard.Ladder) error {
	seed, parts := maphash.MakeSeed(), uint64(c.ranked[l.Division]/maxUsersInPass+1)
	for part := range parts {
		hash := func(user leaderboard.UserID) (h uint64, inPart bool) {
			h = maphash.String(seed, string(user))
			return h, h%parts == part
		}
		missing, err := c.missingCandidates(ctx, l, hash)
		if err != nil {
			return err
		}
		for user := range missing {
			if err := c.checkMissing(ctx, l, user); err != nil {
				return err
			}
		}
	}
	return nil
}

// missingCandidates returns the users of one part who should have a row in a ladder, but whose
// row two scans do not find. The first scan keeps only a hash of each user.
func (c *check) missingCandidates(ctx context.Context, l leaderboard.Ladder, hash func(leaderboard.UserID) (h uint64, inPart bool)) (map[leaderboard.UserID]bool, error) {
	hasRow := map[uint64]struct{}{}
	for row, err := range c.store.Entries(ctx, l, "") {
		if err != nil {
			return nil, err
		}
		if h, inPart := hash(row.User); inPart {
			hasRow[h] = struct{}{}
		}
	}
	missing := map[leaderboard.UserID]bool{}
	for user, err := range c.store.Users(ctx, c.key) {
		if err != nil {
			return nil, err
		}
		h, inPart := hash(user)
		if _, ok := hasRow[h]; ok || !inPart {
			continue
		}
		e, err := c.entry(ctx, user)
		if damaged(err) {
			continue // run has reported the user's damaged data
		}
		if err != nil {
			return nil, err
		}
		if hasPlace(&e, l.Division) {
			missing[user] = true
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	for row, err := range c.store.Entries(ctx, l, "") {
		if err != nil {
			return nil, err
		}
		delete(missing, row.User)
	}
	return missing, nil
}

func (c *check) checkMissing(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID) error {
	e, err := c.entry(ctx, user)
	if err != nil || !hasPlace(&e, l.Division) {
		return err
	}
	if exists, err := c.hasRow(ctx, l, &e); err != nil || exists {
		return err
	}
	return c.addDifference(ctx, RowMissing, l.Division, user, "the ladder has no row for the user's entry")
}
