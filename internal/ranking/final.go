package ranking

import (
	"context"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

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
	standings, total, err := f.store.FinalLookup(ctx, l, users)
	return standings, f.view(total), err
}

func (f finalRanker) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	page, total, err := f.store.FinalStandings(ctx, l, position, n)
	return page, f.view(total), err
}

func (f finalRanker) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	page, _, total, err := f.store.FinalAfter(ctx, l, after, n)
	return page, f.view(total), err
}

func (f finalRanker) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, _ ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	n, total, err := f.store.FinalAround(ctx, l, user, above, below)
	return n, f.view(total), err
}

func (f finalRanker) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, _ ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	counts := make([]leaderboard.Counts, len(keys))
	var total int64
	var err error
	if len(keys) == 0 {
		_, total, err = f.store.FinalStandings(ctx, l, 1, 1)
	}
	for i := 0; err == nil && i < len(keys); i++ {
		_, counts[i], total, err = f.store.FinalAfter(ctx, l, leaderboard.SortKey(keys[i]), 0)
	}
	return counts, f.view(total), err
}

func (f finalRanker) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	return leaderboard.SurveyByPages(ctx, f, l, q, methods...)
}

// readConsistently repeats read while read returns false. read returns false if an amendment
// replaced the final standings between its steps.
func readConsistently(read func() (ok bool, err error)) error {
	const tries = 10
	for range tries {
		if ok, err := read(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("ranking: the season was amended during each of %d reads; retry: %w", tries, leaderboard.ErrUnavailable)
}

// emptyRanker answers for a season without users, whose last change was at asOf.
type emptyRanker struct{ asOf time.Time }

var _ leaderboard.Ranker = emptyRanker{}

func (e emptyRanker) Standings(_ context.Context, _ leaderboard.Ladder, users []leaderboard.UserID, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	standings := make([]leaderboard.Standing, len(users))
	for i, u := range users {
		standings[i].User = u
	}
	return standings, leaderboard.View{AsOf: e.asOf}, nil
}

func (e emptyRanker) Page(context.Context, leaderboard.Ladder, int64, int, ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{AsOf: e.asOf}, nil
}

func (e emptyRanker) PageAfter(context.Context, leaderboard.Ladder, leaderboard.SortKey, int, ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{AsOf: e.asOf}, nil
}

func (e emptyRanker) Around(context.Context, leaderboard.Ladder, leaderboard.UserID, int, int, ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	return leaderboard.Neighborhood{}, leaderboard.View{AsOf: e.asOf}, leaderboard.ErrEntryNotFound
}

func (e emptyRanker) Count(_ context.Context, _ leaderboard.Ladder, keys []leaderboard.RankKey, _ ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	return make([]leaderboard.Counts, len(keys)), leaderboard.View{AsOf: e.asOf}, nil
}

func (e emptyRanker) Survey(_ context.Context, _ leaderboard.Ladder, q leaderboard.SurveyQuery, _ ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	return leaderboard.Survey{
		Positions: make([]leaderboard.RankKey, len(q.Positions)), Percents: make([]leaderboard.RankKey, len(q.Percents)),
		Counts: make([]leaderboard.Counts, len(q.Keys)),
	}, leaderboard.View{AsOf: e.asOf}, nil
}
