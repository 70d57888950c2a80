package ranking

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/open-leaderboard/leaderboard"
)

// finalRanker reads the ranks of a sealed season from its final standings.
type finalRanker struct {
	store  leaderboard.Store
	record leaderboard.SeasonRecord
}

var _ leaderboard.Ranker = finalRanker{}

func (f finalRanker) view(total int64) leaderboard.View {
	v := leaderboard.View{Size: total, AsOf: f.record.SealedAt}
	if n := len(f.record.Amendments); n > 0 {
		v.AsOf = f.record.Amendments[n-1].At
	}
	return v
}

func (f finalRanker) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	_, total, err := f.store.FinalStandings(ctx, l, 1, 1)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	standings := make([]leaderboard.Standing, len(users))
	for i, u := range users {
		st, err := f.store.FinalStanding(ctx, l, u)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			st = leaderboard.Standing{User: u}
		} else if err != nil {
			return nil, leaderboard.View{}, err
		}
		standings[i] = st
	}
	return standings, f.view(total), nil
}

func (f finalRanker) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	page, total, err := f.store.FinalStandings(ctx, l, position, n)
	return page, f.view(total), err
}

func (f finalRanker) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	_, page, total, err := f.search(ctx, l, n, func(st *leaderboard.Standing) bool { return st.SortKey() > after })
	return page, f.view(total), err
}

func (f finalRanker) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, _ ...leaderboard.Method) (n leaderboard.Neighborhood, v leaderboard.View, err error) {
	err = readConsistently(func() (bool, error) {
		st, err := f.store.FinalStanding(ctx, l, user)
		if err != nil {
			return false, err
		}
		from := max(st.Ranks.Ordinal-int64(above), 1)
		if n.Standings, v, err = f.Page(ctx, l, from, int(st.Ranks.Ordinal-from)+1+below); err != nil {
			return false, err
		}
		n.Of = int(st.Ranks.Ordinal - from)
		if n.Of >= len(n.Standings) || n.Standings[n.Of].User != user {
			return false, nil
		}
		worse, _, total, err := f.search(ctx, l, 1, func(other *leaderboard.Standing) bool { return other.Key > st.Key })
		if worse != nil {
			n.NotWorse = worse.Ranks.Ordinal
		}
		return total == v.Size && n.NotWorse > int64(n.Of), err
	})
	if err != nil {
		return leaderboard.Neighborhood{}, leaderboard.View{}, err
	}
	return n, v, nil
}

func (f finalRanker) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, _ ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	counts := make([]leaderboard.Counts, len(keys))
	var total int64
	if len(keys) == 0 {
		var err error
		if _, total, err = f.store.FinalStandings(ctx, l, 1, 1); err != nil {
			return nil, leaderboard.View{}, err
		}
	}
	for i, k := range keys {
		before, _, n, err := f.search(ctx, l, 1, func(st *leaderboard.Standing) bool { return st.Key >= k })
		if err != nil {
			return nil, leaderboard.View{}, err
		}
		if total = n; before != nil {
			counts[i] = leaderboard.Counts{Standings: before.Ranks.Ordinal, Distinct: before.Ranks.Dense}
		}
	}
	return counts, f.view(total), nil
}

func (f finalRanker) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	return leaderboard.SurveyByPages(ctx, f, l, q, methods...)
}

// search finds the first standing for which reached is true. It returns three values
// from the same final standings: the standing before the found standing, or nil; up to
// n standings that begin with the found standing; and the number of all standings.
func (f finalRanker) search(ctx context.Context, l leaderboard.Ladder, n int, reached func(*leaderboard.Standing) bool) (before *leaderboard.Standing, page []leaderboard.Standing, total int64, err error) {
	err = readConsistently(func() (bool, error) {
		if _, total, err = f.store.FinalStandings(ctx, l, 1, 1); err != nil {
			return false, err
		}
		i := sort.Search(int(total), func(i int) bool {
			page, _, ferr := f.store.FinalStandings(ctx, l, int64(i)+1, 1)
			if ferr != nil {
				err = ferr
			}
			return err != nil || len(page) == 0 || reached(&page[0])
		})
		if err != nil {
			return false, err
		}
		before = nil
		if page, total, err = f.store.FinalStandings(ctx, l, max(int64(i), 1), min(i, 1)+n); err != nil {
			return false, err
		}
		if i > 0 {
			if len(page) == 0 || reached(&page[0]) {
				return false, nil
			}
			before, page = &page[0], page[1:]
		}
		if len(page) == 0 {
			return int64(i) == total || n == 0, nil
		}
		return reached(&page[0]), nil
	})
	return before, page, total, err
}

// readConsistently calls read until read reports that all its steps saw the same final
// standings. An amendment between two steps replaces all final standings. Amendments
// are rare, so readConsistently does not wait between the calls.
func readConsistently(read func() (ok bool, err error)) error {
	const tries = 10
	for range tries {
		if ok, err := read(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("ranking: the season was amended during each of %d reads; retry: %w", tries, leaderboard.ErrUnavailable)
}

// emptyRanker answers for a season without users.
type emptyRanker struct{}

var _ leaderboard.Ranker = emptyRanker{}

func (emptyRanker) Standings(_ context.Context, _ leaderboard.Ladder, users []leaderboard.UserID, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	standings := make([]leaderboard.Standing, len(users))
	for i, u := range users {
		standings[i].User = u
	}
	return standings, leaderboard.View{}, nil
}

func (emptyRanker) Page(context.Context, leaderboard.Ladder, int64, int, ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{}, nil
}

func (emptyRanker) PageAfter(context.Context, leaderboard.Ladder, leaderboard.SortKey, int, ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{}, nil
}

func (emptyRanker) Around(context.Context, leaderboard.Ladder, leaderboard.UserID, int, int, ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	return leaderboard.Neighborhood{}, leaderboard.View{}, leaderboard.ErrEntryNotFound
}

func (emptyRanker) Count(_ context.Context, _ leaderboard.Ladder, keys []leaderboard.RankKey, _ ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	return make([]leaderboard.Counts, len(keys)), leaderboard.View{}, nil
}

func (emptyRanker) Survey(_ context.Context, _ leaderboard.Ladder, q leaderboard.SurveyQuery, _ ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	return leaderboard.Survey{
		Positions: make([]leaderboard.RankKey, len(q.Positions)), Percents: make([]leaderboard.RankKey, len(q.Percents)),
		Counts: make([]leaderboard.Counts, len(q.Keys)),
	}, leaderboard.View{}, nil
}
