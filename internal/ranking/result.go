package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-leaderboard/leaderboard"
)

// ResultStatus is the state of a match result.
type ResultStatus struct {
	Season leaderboard.SeasonID
	// Result is the result that stands, which may be a retraction. It is nil if all
	// revisions were rejected.
	Result *leaderboard.MatchResult
	// Revision is the revision that Status and Reason describe.
	Revision int64
	// Status is Applied, Superseded, Retracted or Rejected. On a linked board, Retracted
	// may also mean that a correction moved the result out of the season, or that it no
	// longer matches.
	Status leaderboard.Status
	Reason leaderboard.Reason // set if Status is Rejected
}

// Result returns the state of a match result of a board. If revision is not nil, it
// returns the state of that revision. An empty season in key means the current season, or
// else the season that [Reader.SeasonOfMatch] finds. Errors:
// [leaderboard.ErrResultNotFound].
func (r *Reader) Result(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, revision *int64) (ResultStatus, error) {
	status, err := r.result(ctx, b, key, revision)
	if key.Season != "" || !errors.Is(err, leaderboard.ErrResultNotFound) && !errors.Is(err, leaderboard.ErrSeasonNotFound) {
		return status, err
	}
	season, serr := r.SeasonOfMatch(ctx, b, key.User, key.Match)
	if serr != nil {
		if errors.Is(serr, leaderboard.ErrResultNotFound) {
			serr = err
		}
		return ResultStatus{}, serr
	}
	key.Season = season
	return r.result(ctx, b, key, revision)
}

// result is Result without the search for the season.
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
	if err != nil {
		return ResultStatus{}, err
	}
	status := ResultStatus{Season: season.ID, Result: record.Result}
	switch have := record.Result; {
	case have != nil && (revision == nil || *revision == have.Revision):
		status.Revision, status.Status = have.Revision, leaderboard.Applied
		if !b.Counts(have) {
			status.Status = leaderboard.Retracted
		}
		return status, nil
	case have != nil && *revision < have.Revision:
		status.Revision, status.Status = *revision, leaderboard.Superseded
	}
	refused := slices.IndexFunc(record.Refusals, func(f leaderboard.Refusal) bool { return revision == nil || f.Revision == *revision })
	if refused >= 0 {
		f := record.Refusals[refused]
		status.Revision, status.Status, status.Reason = f.Revision, leaderboard.Rejected, f.Reason
		return status, nil
	}
	if status.Status == leaderboard.Superseded {
		return status, nil
	}
	return ResultStatus{}, fmt.Errorf("ranking: revision %d of match %q: %w", *revision, key.Match, leaderboard.ErrResultNotFound)
}
