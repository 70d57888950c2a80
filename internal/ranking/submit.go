package ranking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// MaxBatch bounds the results of one Submit.
const MaxBatch = 5000

// retryWindow is how long after a season's start a result without a time of its
// own is looked for in the season before, where its first try may have gone.
const retryWindow = 24 * time.Hour

// Receipt is what became of one submitted result.
type Receipt struct {
	Match      leaderboard.MatchID
	Revision   int64
	Season     leaderboard.SeasonID
	AchievedAt time.Time
	Status     leaderboard.Status
	Reason     leaderboard.Reason // if rejected
	// Err says what was wrong with the result, for Reason INVALID, or why it
	// could not be applied now, in which case the other fields mean nothing and the result
	// may be submitted again.
	Err error
	// Score is the user's in the season, after all of the Submit; HasScore is
	// false if no result of the user stands.
	Score    leaderboard.Score
	HasScore bool
	// Ranks are zero while the rank is unavailable, or the user hidden.
	Ranks leaderboard.Ranks
}

// Submit takes results for a board, at most [MaxBatch], and answers once they
// are durable and every read sees them. A result's Board is set; an empty Match is
// given an id, a zero AchievedAt the present, later results later times. One
// result's fault is in its receipt and stops no other.
// It returns an error if nothing was applied.
func (s *Service) Submit(ctx context.Context, id leaderboard.BoardID, results []leaderboard.MatchResult) ([]Receipt, error) {
	return s.takeResults(ctx, id, results, s.submit)
}

// Accept takes results as [Service.Submit] does, and answers once they are
// durable. Those that another process is to apply have status Accepted, and
// nothing is told of the user's score.
func (s *Service) Accept(ctx context.Context, id leaderboard.BoardID, results []leaderboard.MatchResult) ([]Receipt, error) {
	return s.takeResults(ctx, id, results, s.accept)
}

func (s *Service) takeResults(ctx context.Context, id leaderboard.BoardID, results []leaderboard.MatchResult, take Take) ([]Receipt, error) {
	if len(results) == 0 || len(results) > MaxBatch {
		return nil, &leaderboard.FieldError{Field: "results", Problem: fmt.Sprintf("%d given, 1 to %d are allowed", len(results), MaxBatch)}
	}
	b, err := s.board(ctx, id)
	if err != nil {
		return nil, err
	}
	receipts := make([]Receipt, len(results))
	valid := make([]leaderboard.MatchResult, 0, len(results))
	at := make([]int, 0, len(results)) // valid[i] is results[at[i]]
	for i, r := range results {
		r, err := s.Complete(ctx, b, r)
		if err == nil {
			err = b.Check(&r, s.now())
		}
		receipts[i] = Receipt{Match: r.Match, Revision: r.Revision, Season: r.Season, AchievedAt: r.AchievedAt}
		switch {
		case errors.Is(err, leaderboard.ErrInvalid), errors.Is(err, leaderboard.ErrSeasonNotFound):
			receipts[i].Status, receipts[i].Reason, receipts[i].Err = leaderboard.Rejected, leaderboard.ReasonInvalid, err
		case err != nil:
			return nil, err
		default:
			valid, at = append(valid, r), append(at, i)
		}
	}
	if len(valid) == 0 {
		return receipts, nil
	}
	outcomes, err := take(ctx, b, valid)
	if err != nil {
		return nil, err
	}
	for i, o := range outcomes {
		r := &receipts[at[i]]
		r.Status, r.Reason, r.Err = o.Status, o.Reason, o.Err
		if o.Status == leaderboard.Duplicate && valid[i].Assigned {
			if record, err := s.store.Result(ctx, valid[i].ResultKey); err == nil && record.Result != nil {
				r.AchievedAt = record.Result.AchievedAt // that of the first try stands
			}
		}
		if r.HasScore = o.Entry.Key != ""; r.HasScore {
			r.Score = b.ScoreOf(o.Entry.Key, s.scoredAt(b, r.Season))
		}
	}
	return receipts, s.rank(ctx, b, valid, at, receipts)
}

// Apply makes complete results durable and brings the ranks in step. A season
// that is sealed is amended. If ctx is done first, that goes on without the caller.
func (s *Service) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	return finish(ctx, s, func(ctx context.Context) (leaderboard.ApplyReport, error) {
		report, err := s.store.Apply(ctx, b, results)
		if err != nil {
			if errors.Is(err, leaderboard.ErrBoardNotFound) {
				s.boards.Delete(b.ID) // what was known of it is of a board that is gone
			}
			return report, err
		}
		reason := "late correction"
		if len(results) == 1 && results[0].Retracted {
			reason = "retraction"
		}
		return report, s.settle(ctx, entriesOf(report.Changes), unchanged(&report), reason)
	})
}

// unchanged returns the entries of users for whom nothing changed.
func unchanged(report *leaderboard.ApplyReport) (entries []leaderboard.Entry) {
	seen := make(map[leaderboard.EntryKey]bool, len(report.Changes))
	for i := range report.Changes {
		e := &report.Changes[i].After
		seen[leaderboard.EntryKey{Scope: e.Scope, User: e.User}] = true
	}
	for i := range report.Outcomes {
		o := &report.Outcomes[i]
		if at := (leaderboard.EntryKey{Scope: o.Entry.Scope, User: o.Entry.User}); o.Err == nil && o.Entry.User != "" && !seen[at] {
			seen[at] = true
			entries = append(entries, o.Entry)
		}
	}
	return entries
}

// RanksOf returns the competition ranks that the given rank keys have in the
// overall ladder of a scope, or would have.
func (s *Service) RanksOf(ctx context.Context, scope leaderboard.Scope, keys []leaderboard.RankKey) ([]int64, error) {
	ranks := make([]int64, len(keys))
	err := s.ask(ctx, Query{Board: scope.Board, Season: scope.Season}, func(v *view) error {
		counts, _, err := v.Count(ctx, v.ladder, keys)
		for i, c := range counts {
			ranks[i] = c.Standings + 1
		}
		return err
	})
	return ranks, err
}

// Refresh makes a user's entry anew from results that are in the store already,
// brings the ranks in step, and returns the entry before and after. Errors:
// [leaderboard.ErrBoardNotFound].
func (s *Service) Refresh(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	return finish(ctx, s, func(ctx context.Context) (leaderboard.Change, error) {
		change, err := s.store.Recount(ctx, b, season, user)
		if err != nil {
			return change, err
		}
		entry := []leaderboard.Entry{change.After}
		if change.Before.Version == change.After.Version {
			return change, s.settle(ctx, nil, entry, "refresh")
		}
		return change, s.settle(ctx, entry, nil, "refresh")
	})
}

// Complete fills in what a submitted result may leave out: its match id, its
// times, and the season that follows from them. It returns
// [leaderboard.ErrSeasonNotFound] if the board has no season for it.
func (s *Service) Complete(ctx context.Context, b *leaderboard.Board, r leaderboard.MatchResult) (leaderboard.MatchResult, error) {
	r.Board = b.ID
	given := r.Match != ""
	if !given {
		r.Match = s.newID()
	}
	if r.AchievedAt.IsZero() {
		r.Assigned, r.AchievedAt = true, s.stamp()
	}
	if r.ReceivedAt.IsZero() {
		r.ReceivedAt = s.now()
	}
	r.ReceivedAt, r.AchievedAt = leaderboard.Truncate(r.ReceivedAt), leaderboard.Truncate(r.AchievedAt)
	season, err := b.Season.At(r.AchievedAt)
	if err != nil {
		return r, err
	}
	r.Season = season.ID
	if given && r.Assigned && !season.Start.IsZero() && r.AchievedAt.Sub(season.Start) < retryWindow {
		if err := s.completeRetry(ctx, b, season, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// completeRetry puts r, whose time was assigned just after a season began, into
// the season before if its match is there: sent again or corrected, it must count once.
func (s *Service) completeRetry(ctx context.Context, b *leaderboard.Board, season leaderboard.Season, r *leaderboard.MatchResult) error {
	before, ok := b.Season.Previous(season)
	if !ok || r.User.Validate() != nil || r.Match.Validate() != nil {
		return nil
	}
	key := r.ResultKey
	key.Season = before.ID
	record, err := s.store.Result(ctx, key)
	if errors.Is(err, leaderboard.ErrResultNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	first := record.Result
	if first == nil || !first.Assigned {
		return nil
	}
	r.Season, r.AchievedAt = before.ID, first.AchievedAt
	return nil
}

// stamp returns the present, later than any stamp before.
func (s *Service) stamp() time.Time {
	s.stampMu.Lock()
	defer s.stampMu.Unlock()
	t := leaderboard.Truncate(s.now())
	if !t.After(s.lastStamp) {
		t = s.lastStamp.Add(time.Microsecond)
	}
	s.lastStamp = t
	return t
}

// rank fills in the ranks of receipts; at maps results to them.
func (s *Service) rank(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult, at []int, receipts []Receipt) error {
	users := map[leaderboard.SeasonID][]leaderboard.UserID{}
	where := map[leaderboard.SeasonID][]int{}
	for i := range results {
		if r := &receipts[at[i]]; r.HasScore && r.Err == nil {
			users[r.Season] = append(users[r.Season], results[i].User)
			where[r.Season] = append(where[r.Season], at[i])
		}
	}
	for season, users := range users {
		q := Query{Board: b.ID, Season: season}
		err := s.ask(ctx, q, func(v *view) error {
			standings, _, err := v.Standings(ctx, v.ladder, users)
			for i, st := range standings {
				r := &receipts[where[season][i]]
				r.Ranks = st.Ranks
				if st.Key != "" {
					// The rank and the score of one moment.
					r.Score = b.ScoreOf(st.Key, v.scoredAt)
				}
			}
			return err
		})
		if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) {
			return err
		}
	}
	return nil
}

// Retract undoes a match result: it counts no more, and the next best of the
// user's stands. season is the current one if empty, revision the next one if
// nil. Retracting a result that has not arrived needs a revision; without one,
// the error is [leaderboard.ErrResultNotFound]. A sealed season is amended.
func (s *Service) Retract(ctx context.Context, key leaderboard.ResultKey, revision *int64) (Receipt, error) {
	b, err := s.board(ctx, key.Board)
	if err != nil {
		return Receipt{}, err
	}
	season, err := s.season(b, key.Season)
	if err != nil {
		return Receipt{}, err
	}
	key.Season = season.ID
	r := leaderboard.MatchResult{ResultKey: key, Retracted: true, ReceivedAt: leaderboard.Truncate(s.now())}
	if revision != nil {
		r.Revision = *revision
	}
	if err := b.Check(&r, s.now()); err != nil {
		return Receipt{}, err
	}
	if revision == nil {
		record, err := s.store.Result(ctx, key)
		if err != nil {
			return Receipt{}, err
		}
		switch have := record.Result; {
		case have == nil:
			return Receipt{}, fmt.Errorf("ranking: match %q was rejected, there is nothing to retract: %w", key.Match, leaderboard.ErrResultNotFound)
		case have.Retracted:
			r.Revision = have.Revision // again: a duplicate
		default:
			r.Revision = have.Revision + 1
		}
	}
	outcomes, err := s.submit(ctx, b, []leaderboard.MatchResult{r})
	if err != nil {
		return Receipt{}, err
	}
	o := outcomes[0]
	if o.Err != nil {
		return Receipt{}, o.Err
	}
	receipt := Receipt{Match: r.Match, Revision: r.Revision, Season: r.Season, Status: o.Status, Reason: o.Reason}
	if receipt.HasScore = o.Entry.Key != ""; receipt.HasScore {
		receipt.Score = b.ScoreOf(o.Entry.Key, s.scoredAt(b, r.Season))
	}
	receipts := []Receipt{receipt}
	err = s.rank(ctx, b, []leaderboard.MatchResult{r}, []int{0}, receipts)
	return receipts[0], err
}

// ResultStatus is what is known of a match result.
type ResultStatus struct {
	Season leaderboard.SeasonID
	// Result is the one that stands, or is retracted; nil if all were rejected.
	Result *leaderboard.MatchResult
	// Revision is the one that the answer is about.
	Revision int64
	// Status is Applied, Superseded, Retracted or Rejected.
	Status leaderboard.Status
	Reason leaderboard.Reason // if rejected
}

// Result says what became of a match result, or of one revision of it. season
// is the current one if empty. It returns [leaderboard.ErrResultNotFound] if
// nothing is known of it.
func (s *Service) Result(ctx context.Context, key leaderboard.ResultKey, revision *int64) (ResultStatus, error) {
	b, err := s.board(ctx, key.Board)
	if err != nil {
		return ResultStatus{}, err
	}
	season, err := s.season(b, key.Season)
	if err != nil {
		return ResultStatus{}, err
	}
	key.Season = season.ID
	if err := errors.Join(key.User.Validate(), key.Match.Validate()); err != nil {
		return ResultStatus{}, err
	}
	record, err := s.store.Result(ctx, key)
	if err != nil {
		return ResultStatus{}, err
	}
	status := ResultStatus{Season: season.ID, Result: record.Result}
	switch have := record.Result; {
	case have != nil && (revision == nil || *revision == have.Revision):
		status.Revision, status.Status = have.Revision, leaderboard.Applied
		if have.Retracted {
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
