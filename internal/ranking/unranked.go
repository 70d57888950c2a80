package ranking

import (
	"context"

	"github.com/open-leaderboard/leaderboard"
)

// unrankedRanker is the Ranker of a board on which entries may have no rank. Such entries follow all others in a ladder. It
// sets View.Unranked, which may be counted shortly after the rest of an answer is read. In the answer to a Survey, entries
// without a rank have no positions.
type unrankedRanker struct {
	leaderboard.Ranker
	from leaderboard.RankKey // see Board.UnrankedFrom
}

func rankerFor(b *leaderboard.Board, inner leaderboard.Ranker) leaderboard.Ranker {
	if !b.HasUnranked() {
		return inner
	}
	return unrankedRanker{inner, b.UnrankedFrom()}
}

func (u unrankedRanker) count(ctx context.Context, l leaderboard.Ladder, v *leaderboard.View, err error) error {
	if err != nil || v.Size == 0 {
		return err
	}
	counts, _, err := u.Ranker.Count(ctx, l, []leaderboard.RankKey{u.from}, leaderboard.Competition)
	if err == nil {
		v.Unranked = max(v.Size-counts[0].Standings, 0)
	}
	return err
}

func (u unrankedRanker) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	standings, v, err := u.Ranker.Standings(ctx, l, users, methods...)
	err = u.count(ctx, l, &v, err)
	return standings, v, err
}

func (u unrankedRanker) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	page, v, err := u.Ranker.Page(ctx, l, position, n, methods...)
	err = u.count(ctx, l, &v, err)
	return page, v, err
}

func (u unrankedRanker) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	page, v, err := u.Ranker.PageAfter(ctx, l, after, n, methods...)
	err = u.count(ctx, l, &v, err)
	return page, v, err
}

func (u unrankedRanker) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	n, v, err := u.Ranker.Around(ctx, l, user, above, below, methods...)
	err = u.count(ctx, l, &v, err)
	return n, v, err
}

func (u unrankedRanker) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	counts, v, err := u.Ranker.Count(ctx, l, append(keys[:len(keys):len(keys)], u.from), methods...)
	if err != nil {
		return nil, v, err
	}
	v.Unranked = max(v.Size-counts[len(keys)].Standings, 0)
	return counts[:len(keys)], v, nil
}

func (u unrankedRanker) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	s, v, err := leaderboard.SurveyByPages(ctx, u, l, q, methods...)
	for _, keys := range [][]leaderboard.RankKey{s.Positions, s.Percents} {
		for i := range keys {
			if keys[i] >= u.from {
				keys[i] = ""
			}
		}
	}
	return s, v, err
}
