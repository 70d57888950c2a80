// Package finals answers queries about a ladder's final standings.
package finals

import (
	"context"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// Ladder is the final standings of a ladder at one moment. A position is an ordinal rank.
// An erased user leaves a gap: a position without a standing.
type Ladder struct {
	// Last is at least the position of the last standing.
	Last int64
	// From returns the first standings at or after a position, at most n.
	From func(ctx context.Context, position int64, n int) ([]leaderboard.Standing, error)
}

// lastBefore returns the last standing for which reached is false, or the zero Standing.
// If reached is true for a standing, reached must be true for all later standings.
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

// After returns up to n standings that follow a sort key. The counts are valid only if key is
// a rank key or a prefix of a rank key.
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

// Better counts the standings whose rank key is better than a given rank key, or prefix of a
// rank key. last is the last standing before the given key, or the zero Standing. page begins
// with the first standing after the given key, or is empty.
func Better(last *leaderboard.Standing, page []leaderboard.Standing) leaderboard.Counts {
	if len(page) == 0 {
		return leaderboard.Counts{Standings: last.Ranks.Ordinal, Distinct: last.Ranks.Dense}
	}
	return leaderboard.Counts{Standings: page[0].Ranks.Competition - 1, Distinct: page[0].Ranks.Dense - 1}
}

// Around returns the standings at the positions p-above to p+below, where p is the position of st.
// Gaps count as positions.
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
