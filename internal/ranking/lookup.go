package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// MaxLookup is the largest number of users of a lookup.
const MaxLookup = 5000

// LookupPage contains the entries of the users in a lookup.
type LookupPage struct {
	About
	// Lines are in standing order, with their ranks in the whole ladder.
	Lines []Line
	// ListRanks are the ranks of Lines among the users of the lookup, by the query's method, or 0 for those without a
	// rank.
	ListRanks []int64
	// Missing are the users without an entry, in the order of the query.
	Missing []leaderboard.UserID
}

// Lookup returns the entries of up to [MaxLookup] users, and ignores repeated users. If the rank
// index cannot answer, Degraded is set, and only ListRanks has ranks. If the season has no ranks of
// the query's method, only ListRanks has ranks.
func (r *Reader) Lookup(ctx context.Context, q Query, users []leaderboard.UserID) (LookupPage, error) {
	unique, err := uniqueUsers(users)
	if err != nil {
		return LookupPage{}, err
	}
	b, err := r.boardOf(ctx, &q)
	if err != nil {
		return LookupPage{}, err
	}
	var page LookupPage
	err = r.read(ctx, b, q, func(v *view) error {
		standings, ladderView, err := v.Standings(ctx, v.ladder, unique, v.method)
		noRanks := errors.Is(err, leaderboard.ErrMethodUnavailable)
		if noRanks {
			standings, ladderView, err = v.Standings(ctx, v.ladder, unique, leaderboard.Ordinal)
		}
		if err != nil {
			return err
		}
		page = LookupPage{About: v.about(ladderView)}
		var present []leaderboard.Standing
		for i, st := range standings {
			if st.Key == "" {
				page.Missing = append(page.Missing, unique[i])
			} else {
				present = append(present, st)
			}
		}
		slices.SortFunc(present, func(x, y leaderboard.Standing) int {
			return int(x.Ranks.Ordinal - y.Ranks.Ordinal)
		})
		page.setLines(v, present)
		for i := range page.Lines {
			if noRanks {
				page.Lines[i].Rank = 0
			}
		}
		return nil
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		page, err = r.lookupInStore(ctx, b, q, unique)
	}
	if err == nil {
		err = r.addIncluded(ctx, q.Include, leaderboard.SeasonKey{Board: b.ID, Season: page.Season.ID}, page.Lines)
	}
	return page, err
}

func uniqueUsers(users []leaderboard.UserID) ([]leaderboard.UserID, error) {
	if len(users) == 0 || len(users) > MaxLookup {
		return nil, &leaderboard.FieldError{Field: "user_ids", Problem: fmt.Sprintf("must have 1 to %d users, not %d", MaxLookup, len(users))}
	}
	isListed := map[leaderboard.UserID]bool{}
	unique := make([]leaderboard.UserID, 0, len(users))
	for i, u := range users {
		if u.Validate() != nil {
			return nil, &leaderboard.FieldError{Field: fmt.Sprintf("user_ids[%d]", i), Problem: "must be 1 to 128 bytes of printable UTF-8"}
		}
		if !isListed[u] {
			isListed[u] = true
			unique = append(unique, u)
		}
	}
	return unique, nil
}

func (p *LookupPage) setLines(v *view, standings []leaderboard.Standing) {
	p.Lines = v.lines(standings)
	var previous leaderboard.Standing
	for _, st := range standings {
		st.RankAfter(&previous)
		rank := st.Ranks.By(v.method)
		if v.board.FinishOf(st.Key) != leaderboard.Ranked {
			rank = 0
		}
		p.ListRanks = append(p.ListRanks, rank)
		previous = st
	}
}

func (r *Reader) lookupInStore(ctx context.Context, b *leaderboard.Board, q Query, users []leaderboard.UserID) (LookupPage, error) {
	v, err := r.view(ctx, b, q)
	if err != nil {
		return LookupPage{}, err
	}
	page := LookupPage{About: r.aboutStore(v)}
	entries := make([]leaderboard.Entry, len(users))
	err = eachRead(ctx, len(users), func(ctx context.Context, i int) error {
		e, err := r.store.Entry(ctx, v.ladder.SeasonKey, users[i])
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			return nil
		}
		entries[i] = e
		return err
	})
	if err != nil {
		return LookupPage{}, err
	}
	var present []leaderboard.Standing
	for i := range entries {
		if e := &entries[i]; hasPlace(e, v.ladder.Division) {
			present = append(present, leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt})
		} else {
			page.Missing = append(page.Missing, users[i])
		}
	}
	slices.SortFunc(present, func(x, y leaderboard.Standing) int { return cmp.Compare(x.SortKey(), y.SortKey()) })
	page.setLines(v, present)
	return page, nil
}
