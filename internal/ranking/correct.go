package ranking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/open-leaderboard/leaderboard"
)

const (
	reservationTime                        = 30 * time.Second
	minReserveInterval, maxReserveInterval = 20 * time.Millisecond, 500 * time.Millisecond
	correctionTries                        = 100
	maxSearchedSeasons                     = 32
)

// Correction is a change of a stored match result. A nil field changes nothing.
type Correction struct {
	Score       *leaderboard.Score
	TieBreakers []int64
	AchievedAt  *time.Time
	// Attributes are the attributes to set. An empty value removes an attribute.
	Attributes map[string]string
	Metadata   *string // in the form of [leaderboard.CanonicalMetadata]
	Reset      *bool
	Finish     *leaderboard.Finish
	// Revision is the revision that must stand now, or nil for any.
	Revision *int64
	// Amends lets a closed season accept the correction.
	Amends bool
}

// RevisionError means that another revision than [Correction].Revision stands.
type RevisionError struct {
	Given   int64
	Current leaderboard.MatchResult // the result that stands
}

func (e *RevisionError) Error() string {
	return fmt.Sprintf("revision %d of the result counts, not %d; read it and correct it again", e.Current.Revision, e.Given)
}

// Correct submits a stored result, with the changes of c, as the next revision. Correct first
// reserves this revision, so that concurrent corrections do not undo each other. It also
// returns the corrected result. The season in key must not be empty.
//
// Errors: [leaderboard.ErrResultNotFound] if no result of the match stands; a
// [leaderboard.FieldError], for example if the board is linked; a [RevisionError];
// [leaderboard.ErrUnavailable] if other changes of the result do not end in time.
func (s *Submitter) Correct(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, c Correction) (leaderboard.MatchResult, Receipt, error) {
	if err := b.CheckDirect(); err != nil {
		return leaderboard.MatchResult{}, Receipt{}, err
	}
	if err := s.checkNewAttributes(ctx, b, c.Attributes); err != nil {
		return leaderboard.MatchResult{}, Receipt{}, err
	}
	holder, poll := rand.Text(), backoff.NewExponentialBackOff()
	poll.InitialInterval, poll.MaxInterval = minReserveInterval, maxReserveInterval
	for range correctionTries {
		_, r, err := s.correctedResult(ctx, b, key, &c)
		if err != nil {
			return r, Receipt{}, err
		}
		now := s.now()
		reserved, err := s.store.Reserve(ctx, leaderboard.Reservation{Key: key, Revision: r.Revision, Holder: holder, At: now, Until: now.Add(reservationTime)})
		if err != nil {
			return r, Receipt{}, err
		}
		if !reserved {
			if err := wait(ctx, poll.NextBackOff()); err != nil {
				return r, Receipt{}, fmt.Errorf("ranking: another correction or retraction of match %q is in progress: %w: %w", key.Match, leaderboard.ErrUnavailable, err)
			}
			continue
		}
		// The result may have changed before this call got the reservation.
		record, latest, err := s.correctedResult(ctx, b, key, &c)
		if err != nil || latest.Revision != r.Revision {
			if err == nil {
				continue
			}
			return r, Receipt{}, err
		}
		receipt, err := s.submitOne(ctx, b, latest)
		if err == nil && receipt.Status == leaderboard.Conflict && !receipt.Stands || receipt.Status == leaderboard.Superseded {
			continue // a game server has submitted this revision, or a higher one
		}
		receipt.Replaced = record.Result
		return latest, receipt, err
	}
	return leaderboard.MatchResult{}, Receipt{}, fmt.Errorf("ranking: match %q was changed during each of %d attempts to correct it: %w", key.Match, correctionTries, leaderboard.ErrUnavailable)
}

// PreviewCorrection returns the corrected result and what Correct would change, and changes
// nothing. Errors: those of Correct.
func (s *Submitter) PreviewCorrection(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, c Correction) (leaderboard.MatchResult, RetractionPreview, error) {
	if err := errors.Join(b.CheckDirect(), s.checkNewAttributes(ctx, b, c.Attributes)); err != nil {
		return leaderboard.MatchResult{}, RetractionPreview{}, err
	}
	_, r, err := s.correctedResult(ctx, b, key, &c)
	if err != nil {
		return r, RetractionPreview{}, err
	}
	receipts, effects, err := s.PreviewRetractions(ctx, b, planOfOne(&r))
	if err != nil {
		return r, RetractionPreview{}, err
	}
	receipts[0].AchievedAt = r.AchievedAt
	return r, RetractionPreview{receipts[0], effects}, nil
}

func (s *Submitter) checkNewAttributes(ctx context.Context, b *leaderboard.Board, attributes map[string]string) error {
	set := maps.Clone(attributes)
	maps.DeleteFunc(set, func(_, value string) bool { return value == "" })
	b, linked, err := s.declaringBoards(ctx, b, []leaderboard.MatchResult{{Attributes: set}})
	if err != nil {
		return err
	}
	return b.CheckAttributes(set, linked)
}

func (s *Submitter) submitOne(ctx context.Context, b *leaderboard.Board, r leaderboard.MatchResult) (Receipt, error) {
	receipts := []Receipt{{AchievedAt: r.AchievedAt}}
	err := s.deliver(ctx, b, []leaderboard.MatchResult{r}, []int{0}, receipts, s.results.Submit)
	if err == nil {
		err = receipts[0].Err
	}
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// CheckCorrection returns the errors of Correct, and changes nothing. If the board would reject the
// correction, CheckCorrection returns the reason.
func (s *Submitter) CheckCorrection(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, c Correction) (leaderboard.Reason, error) {
	if err := b.CheckDirect(); err != nil {
		return "", err
	}
	if err := s.checkNewAttributes(ctx, b, c.Attributes); err != nil {
		return "", err
	}
	record, r, err := s.correctedResult(ctx, b, key, &c)
	if err != nil {
		return "", err
	}
	known := leaderboard.Known{Result: record.Result, Refusals: record.Refusals}
	if b.AddsUp() { // only the reasons of sums depend on other results
		if known.Tally, err = b.Count(s.store.Results(ctx, key.SeasonKey, key.User)); err != nil {
			return "", err
		}
	}
	d := b.Merge(known, r)
	return d.Reason, nil
}

// correctedResult also returns the stored record, whose result stands.
func (s *Submitter) correctedResult(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, c *Correction) (leaderboard.Record, leaderboard.MatchResult, error) {
	record, err := s.store.Result(ctx, key)
	if err != nil {
		return record, leaderboard.MatchResult{}, err
	}
	if record.Result == nil || record.Result.Retracted {
		return record, leaderboard.MatchResult{}, fmt.Errorf("ranking: match %q has no result that counts: %w", key.Match, leaderboard.ErrResultNotFound)
	}
	r := *record.Result
	if c.Revision != nil && *c.Revision != r.Revision {
		return record, leaderboard.MatchResult{}, &RevisionError{*c.Revision, r}
	}
	if err := s.addRecent(ctx, b, key, &record); err != nil {
		return record, r, err
	}
	// If r had the revision and content of a refused result, the store would refuse r again.
	for _, f := range record.Refusals {
		r.Revision = max(r.Revision, f.Revision)
	}
	r.Revision++
	// Assigned (the service chose the original AchievedAt) stays as stored, even if c sets
	// AchievedAt. completeRetry needs it to recognize a retry of the original submit.
	r.Amends, r.ReceivedAt = c.Amends, leaderboard.Truncate(s.now())
	c.applyTo(&r)
	season, err := b.Season.At(r.AchievedAt)
	if err == nil && season.ID != key.Season || errors.Is(err, leaderboard.ErrSeasonNotFound) {
		return record, r, &leaderboard.FieldError{Field: "achieved_at", Problem: fmt.Sprintf(
			"must be in the season of the result, %s; to move the result, retract it and submit it again", key.Season)}
	}
	if err != nil {
		return record, r, err
	}
	return record, r, b.Check(&r, s.now())
}

func (c *Correction) applyTo(r *leaderboard.MatchResult) {
	if c.Score != nil {
		r.Score = *c.Score
	}
	if len(c.TieBreakers) > 0 {
		r.TieBreakers = c.TieBreakers
	}
	if c.AchievedAt != nil {
		r.AchievedAt = leaderboard.Truncate(*c.AchievedAt)
	}
	if c.Metadata != nil {
		r.Metadata = *c.Metadata
	}
	if c.Reset != nil {
		r.Reset = *c.Reset
	}
	if c.Finish != nil {
		r.Finish = *c.Finish
	}
	if len(c.Attributes) > 0 {
		r.Attributes = maps.Clone(r.Attributes)
		if r.Attributes == nil {
			r.Attributes = map[string]string{}
		}
		maps.Copy(r.Attributes, c.Attributes)
		maps.DeleteFunc(r.Attributes, func(_, value string) bool { return value == "" })
	}
}

// ResultSeason returns the season of a match result, and reports whether only administrators
// can change its results. If the season in key is empty, ResultSeason searches for the match.
// Errors: a [leaderboard.FieldError] if the board is linked.
func (r *Reader) ResultSeason(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey) (_ leaderboard.SeasonID, closed bool, err error) {
	if err := b.CheckDirect(); err != nil {
		return "", false, err
	}
	if key.Season == "" {
		if key.Season, err = r.seasonOfMatch(ctx, b, key.User, key.Match); err != nil {
			return "", false, err
		}
	}
	season, err := r.season(ctx, b, key.Season)
	if err != nil {
		return "", false, err
	}
	closed, err = r.isClosed(ctx, b, season)
	return season.ID, closed, err
}

func newestSeasons(b *leaderboard.Board, keys []leaderboard.SeasonKey) []leaderboard.SeasonKey {
	if len(keys) <= maxSearchedSeasons {
		return keys
	}
	slices.SortStableFunc(keys, func(x, y leaderboard.SeasonKey) int { return compareSeasons(b, y.Season, x.Season) })
	return keys[:maxSearchedSeasons]
}

func (r *Reader) seasonsOfRefusals(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID) ([]leaderboard.SeasonID, error) {
	recent, err := r.store.RecentRefusals(ctx, b, leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID}, User: user, Match: match})
	var seasons []leaderboard.SeasonID
	for _, f := range recent {
		if !slices.Contains(seasons, f.Season) {
			seasons = append(seasons, f.Season)
		}
	}
	return seasons, err
}

// seasonOfMatch prefers a result that is not retracted, then a retraction, then a refused
// result. It searches the newest maxSearchedSeasons seasons of the user. Errors:
// [leaderboard.ErrResultNotFound]; a [leaderboard.FieldError] if several seasons have a result
// of the preferred kind, or if no result was found and the user has older seasons.
func (r *Reader) seasonOfMatch(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID) (leaderboard.SeasonID, error) {
	if err := errors.Join(user.Validate(), match.Validate()); err != nil {
		return "", err
	}
	keys, err := r.store.UserSeasons(ctx, user)
	if err != nil {
		return "", err
	}
	keys = slices.DeleteFunc(keys, func(k leaderboard.SeasonKey) bool { return k.Board != b.ID })
	total := len(keys)
	keys = newestSeasons(b, keys)
	const none, refused, retracted, counting = 0, 1, 2, 3
	kinds := make([]int, len(keys))
	err = eachRead(ctx, len(keys), func(ctx context.Context, i int) error {
		record, err := r.store.Result(ctx, leaderboard.ResultKey{SeasonKey: keys[i], User: user, Match: match})
		switch {
		case errors.Is(err, leaderboard.ErrResultNotFound):
			return nil
		case err != nil:
			return err
		case record.Result == nil:
			kinds[i] = refused
		case record.Result.Retracted:
			kinds[i] = retracted
		default:
			kinds[i] = counting
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	var seasons []leaderboard.SeasonID
	for kind := counting; kind > none && len(seasons) == 0; kind-- {
		for i, key := range keys {
			if kinds[i] == kind {
				seasons = append(seasons, key.Season)
			}
		}
	}
	if len(seasons) == 0 {
		if seasons, err = r.seasonsOfRefusals(ctx, b, user, match); err != nil {
			return "", err
		}
	}
	switch len(seasons) {
	case 0:
		if total > len(keys) {
			return "", &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("is required, because the match is in none of the user's newest %d seasons", len(keys))}
		}
		return "", fmt.Errorf("ranking: match %q of the user is in no season of board %q: %w", match, b.ID, leaderboard.ErrResultNotFound)
	case 1:
		return seasons[0], nil
	}
	const maxNamed = 10
	return "", &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("is required, because the match has results in %d seasons: %q", len(seasons), seasons[:min(len(seasons), maxNamed)])}
}
