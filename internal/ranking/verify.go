package ranking

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// DifferenceKind says what of a user's standing disagrees with the canonical
// results.
type DifferenceKind string

const (
	EntryWrong DifferenceKind = "ENTRY_WRONG" // the entry is missing, left over or not what the results say
	RowMissing DifferenceKind = "ROW_MISSING" // a ladder of the store lacks the entry
	RowGhost   DifferenceKind = "ROW_GHOST"   // a ladder of the store has a row that is not the entry
	IndexWrong DifferenceKind = "INDEX_WRONG" // the rank index has the user elsewhere than the entry says, or not at all
	IndexSize  DifferenceKind = "INDEX_SIZE"  // the rank index has more or fewer users than there are entries
	FinalWrong DifferenceKind = "FINAL_WRONG" // the final standings have the user elsewhere than the entry says
)

// Difference is one that Verify found.
type Difference struct {
	Kind     DifferenceKind
	Ladder   leaderboard.Ladder
	User     leaderboard.UserID // empty for INDEX_SIZE
	Detail   string
	Repaired bool
}

// Selection is what to verify or rebuild: all boards, one, or one season of it.
type Selection struct {
	Board  leaderboard.BoardID
	Season leaderboard.SeasonID
}

// VerifyReport is the sum of a Verify.
type VerifyReport struct {
	Scopes, Users, Results, Differences, Repaired int64
}

// Verify recounts every selected user's entry from the canonical results, and
// compares with it the stored entry, the rows of the store's ladders, and the
// rank index or final standings. Each difference is looked at twice, so that
// results that arrive meanwhile are none, and told to found. With repair it is mended:
// the entry made anew from the canonical results, the index or final standings from the entries.
func (s *Service) Verify(ctx context.Context, sel Selection, repair bool, progress Progress, found func(Difference) error) (VerifyReport, error) {
	var report VerifyReport
	unlisted, err := s.unlisted(ctx, sel)
	if err != nil {
		return report, err
	}
	err = s.eachScope(ctx, sel, func(b *leaderboard.Board, scope leaderboard.Scope) error {
		report.Scopes++
		c := &check{Service: s, b: b, scope: scope, repair: repair, progress: progress, found: found, report: &report}
		return c.run(ctx, unlisted[scope])
	})
	return report, err
}

// unlisted returns the selected users with results who are in no list of users.
func (s *Service) unlisted(ctx context.Context, sel Selection) (map[leaderboard.Scope]map[leaderboard.UserID]bool, error) {
	found := map[leaderboard.Scope]map[leaderboard.UserID]bool{}
	for k, err := range s.store.Unlisted(ctx) {
		if err != nil {
			return nil, err
		}
		if sel.Board != "" && sel.Board != k.Board || sel.Season != "" && sel.Season != k.Season {
			continue
		}
		if found[k.Scope] == nil {
			found[k.Scope] = map[leaderboard.UserID]bool{}
		}
		found[k.Scope][k.User] = true
	}
	return found, nil
}

// Rebuild makes every selected entry anew from the canonical results, and then
// the rank index or final standings from the entries.
func (s *Service) Rebuild(ctx context.Context, sel Selection, progress Progress) (users int64, err error) {
	unlisted, err := s.unlisted(ctx, sel)
	if err != nil {
		return 0, err
	}
	err = s.eachScope(ctx, sel, func(b *leaderboard.Board, scope leaderboard.Scope) error {
		for user := range unlisted[scope] { // they are listed after that
			if _, err := s.store.Recount(ctx, b, scope.Season, user); err != nil {
				return err
			}
		}
		n := int64(0)
		for user, err := range s.store.Users(ctx, scope) {
			if err != nil {
				return err
			}
			if _, err := s.store.Recount(ctx, b, scope.Season, user); err != nil {
				return err
			}
			if n++; progress != nil && n%1000 == 0 {
				progress(scope, n)
			}
		}
		users += n
		if progress != nil {
			progress(scope, n)
		}
		return s.remakeRanks(ctx, b, scope, "rebuild")
	})
	return users, err
}

// remakeRanks makes the index's scope, or the final standings, from the entries.
func (s *Service) remakeRanks(ctx context.Context, b *leaderboard.Board, scope leaderboard.Scope, reason string) error {
	return s.amendRanks(ctx, b, scope, reason, func() error {
		defer s.hub.notify(scope)
		return s.rebuildIndex(ctx, b, scope, nil)
	})
}

func (s *Service) eachScope(ctx context.Context, sel Selection, f func(*leaderboard.Board, leaderboard.Scope) error) error {
	var boards []leaderboard.Board
	if sel.Board != "" {
		b, err := s.store.Board(ctx, sel.Board)
		if err != nil {
			return err
		}
		boards = append(boards, b)
	} else {
		all, err := s.store.Boards(ctx)
		if err != nil {
			return err
		}
		boards = all
	}
	for i := range boards {
		b := &boards[i]
		if sel.Season != "" {
			if _, err := b.Season.ByID(sel.Season); err != nil {
				return err
			}
		}
		seasons, err := s.store.Seasons(ctx, b.ID)
		if err != nil {
			return err
		}
		for _, r := range seasons {
			if sel.Season != "" && r.Season != sel.Season {
				continue
			}
			if err := f(b, r.Scope); err != nil {
				return err
			}
		}
	}
	return nil
}

// check is the verification of one scope.
type check struct {
	*Service
	b        *leaderboard.Board
	scope    leaderboard.Scope
	repair   bool
	progress Progress
	found    func(Difference) error
	report   *VerifyReport

	ranked     map[leaderboard.Division]int64 // users that ought to stand in each ladder
	ghosts     map[leaderboard.Stray]bool     // rows that were told of
	ranksWrong bool
}

// run checks the users whom the store lists, and others.
func (c *check) run(ctx context.Context, unlisted map[leaderboard.UserID]bool) error {
	c.ranked = map[leaderboard.Division]int64{{}: 0}
	n := int64(0)
	check := func(user leaderboard.UserID) error {
		if err := c.user(ctx, user); err != nil {
			return err
		}
		c.report.Users++
		if n++; c.progress != nil && n%1000 == 0 {
			c.progress(c.scope, n)
		}
		return nil
	}
	for user, err := range c.store.Users(ctx, c.scope) {
		if err == nil {
			delete(unlisted, user) // listed meanwhile
			err = check(user)
		}
		if err != nil {
			return err
		}
	}
	for user := range unlisted {
		if err := check(user); err != nil {
			return err
		}
	}
	if err := c.strays(ctx); err != nil {
		return err
	}
	for division := range c.ranked {
		if err := c.ladder(ctx, division); err != nil {
			return err
		}
	}
	if err := c.sizes(ctx); err != nil {
		return err
	}
	if c.progress != nil {
		c.progress(c.scope, n)
	}
	if c.ranksWrong && c.repair {
		return c.remakeRanks(ctx, c.b, c.scope, "verify")
	}
	return nil
}

// strays finds the rows of the store's ladders that no entry stands in, also
// those that its readers leave out. What an entry that moved left for a moment is
// gone when they are looked for again.
func (c *check) strays(ctx context.Context) error {
	find := func(among map[leaderboard.Stray]bool) (map[leaderboard.Stray]bool, error) {
		found := map[leaderboard.Stray]bool{}
		for stray, err := range c.store.Strays(ctx, c.scope) {
			if err != nil {
				return nil, err
			}
			if among == nil || among[stray] {
				found[stray] = true
			}
		}
		return found, nil
	}
	found, err := find(nil)
	if err == nil && len(found) > 0 {
		found, err = find(found)
	}
	if err != nil {
		return err
	}
	c.ghosts = found
	for stray := range found {
		if err := c.mend(ctx, RowGhost, stray.Division, stray.User, "the ladder has a row that is not the user's entry"); err != nil {
			return err
		}
	}
	return nil
}

// user compares one user's entry, index and final standings.
func (c *check) user(ctx context.Context, user leaderboard.UserID) error {
	want, err := c.recount(ctx, user, true)
	if err != nil {
		return err
	}
	have, err := c.entry(ctx, user)
	if err != nil {
		return err
	}
	if detail := entryDifference(want, have); detail != "" {
		if want, err = c.recount(ctx, user, false); err != nil {
			return err
		}
		if have, err = c.entry(ctx, user); err != nil {
			return err
		}
		if detail := entryDifference(want, have); detail != "" {
			if err := c.mend(ctx, EntryWrong, leaderboard.Division{}, user, detail); err != nil {
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

// recount makes a user's entry from the canonical results alone.
func (c *check) recount(ctx context.Context, user leaderboard.UserID, tally bool) (leaderboard.Entry, error) {
	t, err := c.b.Count(func(yield func(leaderboard.MatchResult, error) bool) {
		for r, err := range c.store.Results(ctx, c.scope, user) {
			if tally {
				c.report.Results++
			}
			if !yield(r, err) {
				return
			}
		}
	})
	return c.b.Entry(&t, c.scope.Season, user), err
}

func (c *check) entry(ctx context.Context, user leaderboard.UserID) (leaderboard.Entry, error) {
	e, err := c.store.Entry(ctx, c.scope, user)
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		return leaderboard.Entry{Scope: c.scope, User: user}, nil
	}
	return e, err
}

func entryDifference(want, have leaderboard.Entry) string {
	switch {
	case want.Key != have.Key && have.Key == "":
		return "the entry is missing"
	case want.Key != have.Key && want.Key == "":
		return "there is an entry, but no result stands"
	case want.Key != have.Key:
		return "the score is not what the results say"
	case !want.AchievedAt.Equal(have.AchievedAt) || want.Match != have.Match || want.Metadata != have.Metadata || want.Results != have.Results:
		return "the deciding result is not what the results say"
	case !slices.Equal(want.Divisions, have.Divisions):
		return fmt.Sprintf("the divisions are %v, the results say %v", have.Divisions, want.Divisions)
	}
	return ""
}

// mend tells of a difference and, with repair, makes the user's entry anew.
func (c *check) mend(ctx context.Context, kind DifferenceKind, d leaderboard.Division, user leaderboard.UserID, detail string) error {
	c.report.Differences++
	diff := Difference{Kind: kind, Ladder: leaderboard.Ladder{Scope: c.scope, Division: d}, User: user, Detail: detail}
	if c.repair {
		if user != "" {
			if _, err := c.store.Recount(ctx, c.b, c.scope.Season, user); err != nil {
				return err
			}
		}
		c.ranksWrong = true // the repaired entry may stand elsewhere
		c.report.Repaired++
		diff.Repaired = true
	}
	return c.found(diff)
}

const verifyPage = 1000

// ladder compares the store's rows of a ladder with the entries, and the ranks
// with the rows.
func (c *check) ladder(ctx context.Context, d leaderboard.Division) error {
	l := leaderboard.Ladder{Scope: c.scope, Division: d}
	rows := int64(0)
	page := make([]leaderboard.Entry, 0, verifyPage)
	flush := func() error {
		err := c.ranks(ctx, l, page)
		page = page[:0]
		return err
	}
	for row, err := range c.store.Entries(ctx, l, "") {
		if err != nil {
			return err
		}
		e, err := c.entry(ctx, row.User)
		if err != nil {
			return err
		}
		if !stands(&e, d) || e.SortKey() != row.SortKey() {
			if c.ghosts[leaderboard.Stray{Division: d, User: row.User, Key: row.SortKey()}] {
				continue
			}
			ghost, err := c.hasRow(ctx, l, &row) // or it has moved since it was read
			if err == nil && ghost {
				e, err = c.entry(ctx, row.User)
			}
			if err == nil && ghost && (!stands(&e, d) || e.SortKey() != row.SortKey()) {
				err = c.mend(ctx, RowGhost, d, row.User, "the ladder has a row that is not the user's entry")
			}
			if err != nil {
				return err
			}
			continue
		}
		rows++
		if page = append(page, e); len(page) == verifyPage {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if rows < c.ranked[d] {
		if err := c.missingRows(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// stands says whether an entry ought to have a row in the ladder of a division.
func stands(e *leaderboard.Entry, d leaderboard.Division) bool {
	return e.Ranked() && (d.Overall() || slices.Contains(e.Divisions, d))
}

// hasRow says whether a ladder has the row of an entry.
func (c *check) hasRow(ctx context.Context, l leaderboard.Ladder, e *leaderboard.Entry) (bool, error) {
	key := e.SortKey()
	justBefore := leaderboard.MakeSortKey(e.Key, e.AchievedAt.Add(-time.Microsecond), e.User)
	for row, err := range c.store.Entries(ctx, l, justBefore) {
		if err != nil {
			return false, err
		}
		if have := row.SortKey(); have >= key {
			return have == key, nil
		}
	}
	return false, nil
}

// missingAtOnce bounds the users that a pass for missing rows remembers, by
// about 20 bytes each.
var missingAtOnce int64 = 50_000_000

// missingRows finds the users that ought to be in a ladder and are not: those
// whom two readings did not meet, nor a look at their place. It takes a part of
// the users at a time, so that it can be done for any number.
func (c *check) missingRows(ctx context.Context, l leaderboard.Ladder) error {
	seed, parts := maphash.MakeSeed(), uint64(c.ranked[l.Division]/missingAtOnce+1)
	for part := range parts {
		seen := map[uint64]struct{}{}
		for row, err := range c.store.Entries(ctx, l, "") {
			if err != nil {
				return err
			}
			if h := maphash.String(seed, string(row.User)); h%parts == part {
				seen[h] = struct{}{}
			}
		}
		missing := map[leaderboard.UserID]bool{}
		for user, err := range c.store.Users(ctx, c.scope) {
			if err != nil {
				return err
			}
			h := maphash.String(seed, string(user))
			if _, ok := seen[h]; ok || h%parts != part {
				continue
			}
			e, err := c.entry(ctx, user)
			if err != nil {
				return err
			}
			if stands(&e, l.Division) {
				missing[user] = true
			}
		}
		if len(missing) == 0 {
			continue
		}
		for row, err := range c.store.Entries(ctx, l, "") {
			if err != nil {
				return err
			}
			delete(missing, row.User)
		}
		for user := range missing {
			e, err := c.entry(ctx, user)
			if err != nil {
				return err
			}
			there := !stands(&e, l.Division)
			if !there {
				there, err = c.hasRow(ctx, l, &e)
			}
			if err == nil && !there {
				err = c.mend(ctx, RowMissing, l.Division, user, "the ladder has no row of the user's entry")
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ranks compares the rank index, or final standings, with entries.
func (c *check) ranks(ctx context.Context, l leaderboard.Ladder, entries []leaderboard.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	users := make([]leaderboard.UserID, len(entries))
	for i := range entries {
		users[i] = entries[i].User
	}
	return c.ask(ctx, Query{Board: l.Board, Season: l.Season, Division: l.Division}, func(v *view) error {
		standings, _, err := v.Standings(ctx, l, users)
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
			now, err := c.entry(ctx, users[i])
			if err != nil {
				return err
			}
			again, _, err := v.Standings(ctx, l, users[i:i+1])
			if err != nil {
				return err
			}
			if now.Ranked() && (again[0].Key != now.Key || !again[0].AchievedAt.Equal(now.AchievedAt)) {
				if err := c.mend(ctx, kind, l.Division, users[i], "the ranks do not have the user where the entry says"); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// sizes compares the numbers of users in the ranks with those of the entries,
// which no move from place to place changes. Users who come meanwhile are in the
// ranks in the end, and may be in the count.
func (c *check) sizes(ctx context.Context) error {
	ranked := func(d leaderboard.Division) (n int64, err error) {
		err = c.ask(ctx, Query{Board: c.scope.Board, Season: c.scope.Season, Division: d}, func(v *view) error {
			_, seen, err := v.Page(ctx, v.ladder, 1, 1)
			n = seen.Size
			return err
		})
		return n, err
	}
	left := slices.Collect(maps.Keys(c.ranked))
	for try := 0; len(left) > 0; try++ {
		before := map[leaderboard.Division]int64{}
		for _, d := range left {
			n, err := ranked(d)
			if err != nil {
				return err
			}
			before[d] = n
		}
		counted := map[leaderboard.Division]int64{}
		for e, err := range c.store.Scan(ctx, c.scope) {
			if err != nil {
				return err
			}
			if e.Ranked() {
				counted[leaderboard.Division{}]++
				for _, d := range e.Divisions {
					counted[d]++
				}
			}
		}
		differ := left[:0]
		for _, d := range left {
			after, err := ranked(d)
			if err != nil {
				return err
			}
			switch n := counted[d]; {
			case min(before[d], after) <= n && n <= max(before[d], after):
			case try < 2:
				differ = append(differ, d)
			default:
				if err := c.mend(ctx, IndexSize, d, "", fmt.Sprintf("%d users have ranks, %d have entries", after, n)); err != nil {
					return err
				}
			}
		}
		left = differ
	}
	return nil
}
