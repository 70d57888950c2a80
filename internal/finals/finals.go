// Package finals answers queries about a ladder's final standings. It reads by position only.
package finals

import (
	"context"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// Ladder is the final standings of a ladder at one moment. A position is an ordinal rank.
// The position of an erased user is a gap.
type Ladder struct {
	// Last is the greatest position, or greater.
	Last int64
	// From returns the first standings at or after a position, at most n.
	From func(ctx context.Context, position int64, n int) ([]leaderboard.Standing, error)
}

// lastBefore returns the last standing for which reached is false, or the zero Standing.
// If reached is true for a standing, it must be true for all later standings.
func (l Ladder) lastBefore(ctx context.Context, reached func(*leaderboard.Standing) bool) (last leaderboard.Standing, err error) {
	low, high := int64(0), l.Last+1 // reached is false up to low, and true from high on
	for low+1 < high {
		middle := low + (high-low)/2
		page, err := l.From(ctx, middle, 1)
		if err != nil {
			return last, err
		}
		if len(page) == 0 || reached(&page[0]) {
			high = middle
		} else {
			last = page[0]
			low = last.Ranks.Ordinal
		}
	}
	return last, nil
}

// After returns up to n standings that follow a sort key. If the key is a rank key or a
// prefix of one, After also counts the standings with better rank keys.
func (l Ladder) After(ctx context.Context, key leaderboard.SortKey, n int) ([]leaderboard.Standing, leaderboard.Counts, error) {
	last, err := l.lastBefore(ctx, func(st *leaderboard.Standing) bool { return st.SortKey() > key })
	if err != nil {
		return nil, leaderboard.Counts{}, err
	}
	page, err := l.From(ctx, last.Ranks.Ordinal+1, max(n, 1))
	if err != nil {
		return nil, leaderboard.Counts{}, err
	}
	return page[:min(n, len(page))], Better(&last, page), nil
}

// Better counts the standings with better rank keys than a key, which may be a prefix.
// last is the last standing before the key, or the zero Standing. page begins with the
// first standing after the key, or is empty.
func Better(last *leaderboard.Standing, page []leaderboard.Standing) leaderboard.Counts {
	if len(page) == 0 {
		return leaderboard.Counts{Standings: last.Ranks.Ordinal, Distinct: last.Ranks.Dense}
	}
	return leaderboard.Counts{Standings: page[0].Ranks.Competition - 1, Distinct: page[0].Ranks.Dense - 1}
}

// Around returns st, the standings in the last above positions before st, and the
// standings in the first below positions after st. A gap counts as a position.
func (l Ladder) Around(ctx context.Context, st *leaderboard.Standing, above, below int) (leaderboard.Neighborhood, error) {
	low := max(st.Ranks.Ordinal-int64(above), 1)
	high := st.Ranks.Ordinal + int64(below)
	page, err := l.From(ctx, low, int(high-low)+1)
	if err != nil {
		return leaderboard.Neighborhood{}, err
	}
	n := leaderboard.Neighborhood{Of: -1}
	for i := range page {
		if page[i].User == st.User {
			n.Of = i
		}
		if page[i].Ranks.Ordinal <= high {
			n.Standings = page[:i+1]
		}
	}
	if n.Of < 0 {
		return n, fmt.Errorf("final standing of user %q: %w", st.User, leaderboard.ErrEntryNotFound)
	}
	last, err := l.lastBefore(ctx, func(other *leaderboard.Standing) bool { return other.Key > st.Key })
	n.NotWorse = last.Ranks.Ordinal
	return n, err
}
