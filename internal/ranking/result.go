package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// ResultStatus is the state of a match result.
type ResultStatus struct {
	Season leaderboard.SeasonID
	Match  leaderboard.MatchID
	// Result is the result that stands, which may be a retraction. It is nil if all revisions
	// were rejected.
	Result *leaderboard.MatchResult
	// Revision is the revision that Status and Reason describe.
	Revision int64
	// Status is Applied, Superseded, Retracted, Voided or Rejected. On a linked board,
	// Retracted also means that the result does not count in this season of the board.
	Status leaderboard.Status
	Reason leaderboard.Reason // set if Status is Rejected
}

// Result returns the state of a match result, or of one revision if revision is not nil. If the
// season in key is empty, Result searches the current season, and then the user's newest
// seasons. Errors: [leaderboard.ErrResultNotFound]; a [leaderboard.FieldError] if the caller
// must name the season: see seasonOfMatch.
func (r *Reader) Result(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) (ResultStatus, error) {
	status, err := r.result(ctx, b, key, revision)
	if key.Season != "" || !errors.Is(err, leaderboard.ErrResultNotFound) && !errors.Is(err, leaderboard.ErrSeasonNotFound) {
		return status, err
	}
	season, seasonErr := r.seasonOfMatch(ctx, b, key.User, key.Match)
	if seasonErr != nil {
		if errors.Is(seasonErr, leaderboard.ErrResultNotFound) {
			seasonErr = err
		}
		return ResultStatus{}, seasonErr
	}
	key.Season = season
	return r.result(ctx, b, key, revision)
}

func (r *Reader) result(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) (ResultStatus, error) {
	season, err := r.season(ctx, b, key.Season)
	if err != nil {
		return ResultStatus{}, err
	}
	key.Board, key.Season = b.ID, season.ID
	if err := errors.Join(key.User.Validate(), key.Match.Validate()); err != nil {
		return ResultStatus{}, err
	}
	record, err := r.store.Result(ctx, key)
	notFound := errors.Is(err, leaderboard.ErrResultNotFound)
	if err != nil && !notFound {
		return ResultStatus{}, err
	}
	if notFound || record.Result == nil || revision != nil && *revision != record.Result.Revision {
		if refusalsErr := r.addRecent(ctx, b, key, &record); refusalsErr != nil {
			return ResultStatus{}, refusalsErr
		}
	}
	if record.Result == nil && len(record.Refusals) == 0 {
		return ResultStatus{}, err
	}
	status, ok := statusOf(b, season.ID, &record, revision)
	if !ok {
		return ResultStatus{}, fmt.Errorf("ranking: revision %d of match %q: %w", *revision, key.Match, leaderboard.ErrResultNotFound)
	}
	status.Match = key.Match
	return status, nil
}

// addRecent adds the recent refusals of a match to its record.
func (s *shared) addRecent(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, record *leaderboard.Record) error {
	recent, err := s.store.RecentRefusals(ctx, b, key)
	for _, f := range recent {
		record.Refusals = append(record.Refusals, f.Refusal)
	}
	slices.SortStableFunc(record.Refusals, leaderboard.Refusal.Compare)
	return err
}

// StatusOf returns the state of a result that stands on b.
func StatusOf(b *leaderboard.Board, r *leaderboard.MatchResult) ResultStatus {
	status, _ := statusOf(b, r.Season, &leaderboard.Record{Result: r}, nil)
	status.Match = r.Match
	return status
}

// statusOf returns false if the record does not have the revision.
func statusOf(b *leaderboard.Board, season leaderboard.SeasonID, record *leaderboard.Record, revision *int64) (ResultStatus, bool) {
	status := ResultStatus{Season: season, Result: record.Result}
	switch result := record.Result; {
	case result != nil && (revision == nil || *revision == result.Revision):
		status.Revision, status.Status = result.Revision, leaderboard.Applied
		switch {
		case b.EndedEarly(result):
			status.Status, status.Reason = leaderboard.Rejected, leaderboard.ReasonEnded
		case !result.Retracted && result.IsVoid():
			status.Status = leaderboard.Voided
		case !b.Counts(result):
			status.Status = leaderboard.Retracted
		}
		return status, true
	case result != nil && *revision < result.Revision:
		status.Revision, status.Status = *revision, leaderboard.Superseded
	}
	refusal := slices.IndexFunc(record.Refusals, func(f leaderboard.Refusal) bool { return revision == nil || f.Revision == *revision })
	if refusal >= 0 {
		f := record.Refusals[refusal]
		status.Revision, status.Status, status.Reason = f.Revision, leaderboard.Rejected, f.Reason
		return status, true
	}
	return status, status.Status == leaderboard.Superseded
}

const maxResults = 1000

// ResultPosition is a position in the list of a user's results. Zero is the beginning.
type ResultPosition struct {
	Season leaderboard.SeasonID
	Match  leaderboard.MatchID
}

// ResultsQuery selects results of a user on a board.
type ResultsQuery struct {
	User   leaderboard.UserID
	Season leaderboard.SeasonID // empty means every season; "latest" is allowed as in a [Query]
	After  ResultPosition       // the last result of the previous page
	Limit  int                  // 1 to maxResults
}

// ResultsPage is a page of a user's results.
type ResultsPage struct {
	Results []ResultStatus
	Next    ResultPosition // the After of the next page; zero on the last page
}

// UserResults returns a page of a user's results, including retracted results, and rejected results
// with the reasons FLOOR and OUT_OF_RANGE. The newest season is first, and its results are ordered by
// match id. Errors: [leaderboard.ErrSeasonNotFound].
func (r *Reader) UserResults(ctx context.Context, b *leaderboard.Board, q ResultsQuery) (ResultsPage, error) {
	if q.Limit < 1 || q.Limit > maxResults {
		return ResultsPage{}, &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", maxResults, q.Limit)}
	}
	if err := q.User.Validate(); err != nil {
		return ResultsPage{}, err
	}
	seasons, err := r.seasonsWithResults(ctx, b, q)
	if err != nil {
		return ResultsPage{}, err
	}
	var page ResultsPage
	for _, season := range seasons {
		var after leaderboard.MatchID
		if season == q.After.Season {
			after = q.After.Match
		}
		for record, err := range r.store.Records(ctx, leaderboard.SeasonKey{Board: b.ID, Season: season}, q.User, after) {
			if err != nil {
				return ResultsPage{}, err
			}
			if len(page.Results) == q.Limit {
				last := &page.Results[q.Limit-1]
				page.Next = ResultPosition{last.Season, last.Match}
				return page, nil
			}
			status, _ := statusOf(b, season, &record.Record, nil)
			status.Match = record.Match
			page.Results = append(page.Results, status)
		}
	}
	return page, nil
}

func (r *Reader) seasonsWithResults(ctx context.Context, b *leaderboard.Board, q ResultsQuery) ([]leaderboard.SeasonID, error) {
	if q.Season != "" {
		season, err := r.season(ctx, b, q.Season)
		return []leaderboard.SeasonID{season.ID}, err
	}
	keys, err := r.store.UserSeasons(ctx, q.User)
	if err != nil {
		return nil, err
	}
	var seasons []leaderboard.SeasonID
	for _, key := range keys {
		if key.Board == b.ID && (q.After.Season == "" || compareSeasons(b, key.Season, q.After.Season) <= 0) {
			seasons = append(seasons, key.Season)
		}
	}
	slices.SortFunc(seasons, func(x, y leaderboard.SeasonID) int { return compareSeasons(b, y, x) })
	return seasons, nil
}

// compareSeasons orders seasons of b by start and id. Seasons that b does not have come first.
func compareSeasons(b *leaderboard.Board, x, y leaderboard.SeasonID) int {
	start := func(id leaderboard.SeasonID) time.Time {
		season, err := b.Season.ByID(id)
		if err != nil {
			return time.Time{}
		}
		return season.Start
	}
	return cmp.Or(start(x).Compare(start(y)), cmp.Compare(x, y))
}
