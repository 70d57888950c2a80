package ranking

import (
	"context"
	"errors"
	"sort"

	"github.com/open-leaderboard/leaderboard"
)

// finalRanker answers about a sealed season from its final standings.
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

func (f finalRanker) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) ([]leaderboard.Standing, leaderboard.View, error) {
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

func (f finalRanker) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int) ([]leaderboard.Standing, leaderboard.View, error) {
	page, total, err := f.store.FinalStandings(ctx, l, position, n)
	return page, f.view(total), err
}

func (f finalRanker) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) ([]leaderboard.Standing, leaderboard.View, error) {
	position, _, err := f.search(ctx, l, func(st *leaderboard.Standing) bool { return st.SortKey() > after })
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return f.Page(ctx, l, position, n)
}

func (f finalRanker) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) ([]leaderboard.Standing, leaderboard.View, error) {
	st, err := f.store.FinalStanding(ctx, l, user)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	from := max(st.Ranks.Ordinal-int64(above), 1)
	return f.Page(ctx, l, from, int(st.Ranks.Ordinal-from)+1+below)
}

func (f finalRanker) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey) ([]leaderboard.Counts, leaderboard.View, error) {
	counts := make([]leaderboard.Counts, len(keys))
	var total int64
	for i, k := range keys {
		position, n, err := f.search(ctx, l, func(st *leaderboard.Standing) bool { return st.Key >= k })
		if err != nil {
			return nil, leaderboard.View{}, err
		}
		total = n
		if position == 1 {
			continue
		}
		before, _, err := f.store.FinalStandings(ctx, l, position-1, 1)
		if err != nil {
			return nil, leaderboard.View{}, err
		}
		counts[i] = leaderboard.Counts{Standings: position - 1, Distinct: before[0].Ranks.Dense}
	}
	return counts, f.view(total), nil
}

// search returns the first position for whose standing reached is true, one
// past the last if there is none, and the number of standings.
func (f finalRanker) search(ctx context.Context, l leaderboard.Ladder, reached func(*leaderboard.Standing) bool) (position, total int64, err error) {
	if _, total, err = f.store.FinalStandings(ctx, l, 1, 1); err != nil {
		return 0, 0, err
	}
	i := sort.Search(int(total), func(i int) bool {
		page, _, ferr := f.store.FinalStandings(ctx, l, int64(i)+1, 1)
		if ferr != nil {
			err = ferr
		}
		return err != nil || len(page) == 0 || reached(&page[0])
	})
	return int64(i) + 1, total, err
}

// emptyRanker answers about a season that nobody played.
type emptyRanker struct{}

var _ leaderboard.Ranker = emptyRanker{}

func (emptyRanker) Standings(_ context.Context, _ leaderboard.Ladder, users []leaderboard.UserID) ([]leaderboard.Standing, leaderboard.View, error) {
	standings := make([]leaderboard.Standing, len(users))
	for i, u := range users {
		standings[i].User = u
	}
	return standings, leaderboard.View{}, nil
}

func (emptyRanker) Page(context.Context, leaderboard.Ladder, int64, int) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{}, nil
}

func (emptyRanker) PageAfter(context.Context, leaderboard.Ladder, leaderboard.SortKey, int) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{}, nil
}

func (emptyRanker) Around(context.Context, leaderboard.Ladder, leaderboard.UserID, int, int) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{}, leaderboard.ErrEntryNotFound
}

func (emptyRanker) Count(_ context.Context, _ leaderboard.Ladder, keys []leaderboard.RankKey) ([]leaderboard.Counts, leaderboard.View, error) {
	return make([]leaderboard.Counts, len(keys)), leaderboard.View{}, nil
}
