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
	// reserveFor is how long a correction reserves its revision. It is longer than the
	// time in which a submitted result is usually applied.
	reserveFor = 30 * time.Second
	// firstReservePoll and lastReservePoll bound the time between two attempts to reserve a
	// revision, before jitter.
	firstReservePoll, lastReservePoll = 20 * time.Millisecond, 500 * time.Millisecond
	// correctionTries bounds how often a correction starts again because of other changes
	// of the same result.
	correctionTries = 100
	// maxSearched bounds the number of seasons in which one call looks for a match.
	maxSearched = 32
)

// Correction is a change of some fields of a stored match result. Nil fields stay.
type Correction struct {
	Score       *leaderboard.Score
	TieBreakers []int64
	AchievedAt  *time.Time
	// Attributes are the attributes to set. An empty value removes an attribute.
	Attributes map[string]string
	Metadata   *string // in canonical form
	// Revision is the revision that must stand now, or nil for any.
	Revision *int64
	// Amends lets a closed season accept the correction.
	Amends bool
}

// RevisionError means that another revision stands than the one that a [Correction] names.
type RevisionError struct {
	Given   int64
	Current leaderboard.MatchResult // the result that stands
}

func (e *RevisionError) Error() string {
	return fmt.Sprintf("revision %d of the result counts, not %d; read it and correct it again", e.Current.Revision, e.Given)
}

// Correct changes a stored result of a board: it submits the changed whole as the next
// revision. It reserves that revision first, so two corrections at a time do not undo each
// other. It returns the corrected result too. The season in key must not be empty.
//
// Errors: [leaderboard.ErrResultNotFound] if no result of the match stands; a
// [leaderboard.FieldError], also if the board is linked; a [RevisionError];
// [leaderboard.ErrUnavailable] if another correction of the result does not end.
func (s *Submitter) Correct(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, c Correction) (leaderboard.MatchResult, Receipt, error) {
	if err := b.CheckDirect(); err != nil {
		return leaderboard.MatchResult{}, Receipt{}, err
	}
	if err := s.checkNewAttributes(ctx, b, c.Attributes); err != nil {
		return leaderboard.MatchResult{}, Receipt{}, err
	}
	holder, poll := rand.Text(), backoff.NewExponentialBackOff()
	poll.InitialInterval, poll.MaxInterval = firstReservePoll, lastReservePoll
	for range correctionTries {
		r, err := s.corrected(ctx, b, key, &c)
		if err != nil {
			return r, Receipt{}, err
		}
		now := s.now()
		ok, err := s.store.Reserve(ctx, leaderboard.Reservation{Key: key, Revision: r.Revision, Holder: holder, At: now, Until: now.Add(reserveFor)})
		if err != nil {
			return r, Receipt{}, err
		}
		if !ok {
			if err := wait(ctx, poll.NextBackOff()); err != nil {
				return r, Receipt{}, fmt.Errorf("ranking: another correction of match %q is in progress: %w: %w", key.Match, leaderboard.ErrUnavailable, err)
			}
			continue
		}
		// Before this call had the reservation, the result may have changed again.
		again, err := s.corrected(ctx, b, key, &c)
		if err != nil || again.Revision != r.Revision {
			if err == nil {
				continue
			}
			return r, Receipt{}, err
		}
		receipt, err := s.submitOne(ctx, b, again)
		if err == nil && receipt.Status == leaderboard.Conflict && !receipt.Stands || receipt.Status == leaderboard.Superseded {
			continue // a game server has submitted this revision, or a higher one, meanwhile
		}
		return again, receipt, err
	}
	return leaderboard.MatchResult{}, Receipt{}, fmt.Errorf("ranking: match %q was changed during each of %d attempts to correct it: %w", key.Match, correctionTries, leaderboard.ErrUnavailable)
}

// checkNewAttributes checks the attributes that a correction sets. Those that the stored
// result has are not checked.
func (s *Submitter) checkNewAttributes(ctx context.Context, b *leaderboard.Board, attributes map[string]string) error {
	set := maps.Clone(attributes)
	maps.DeleteFunc(set, func(_, value string) bool { return value == "" })
	b, linked, err := s.declaring(ctx, b, []leaderboard.MatchResult{{Attributes: set}})
	if err != nil {
		return err
	}
	return b.CheckAttributes(set, linked)
}

// submitOne passes one complete result to the process that applies it.
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

// corrected returns the stored result with the changes of c and its next revision.
func (s *Submitter) corrected(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey, c *Correction) (leaderboard.MatchResult, error) {
	record, err := s.store.Result(ctx, key)
	if err != nil {
		return leaderboard.MatchResult{}, err
	}
	if record.Result == nil || record.Result.Retracted {
		return leaderboard.MatchResult{}, fmt.Errorf("ranking: match %q has no result that counts: %w", key.Match, leaderboard.ErrResultNotFound)
	}
	r := *record.Result
	if c.Revision != nil && *c.Revision != r.Revision {
		return leaderboard.MatchResult{}, &RevisionError{*c.Revision, r}
	}
	for _, f := range record.Refusals { // the store would refuse an equal result of the same revision again
		r.Revision = max(r.Revision, f.Revision)
	}
	r.Revision++
	// The result keeps Assigned, which shows whether a result without a time is its retry.
	r.Amends, r.ReceivedAt = c.Amends, leaderboard.Truncate(s.now())
	c.change(&r)
	season, err := b.Season.At(r.AchievedAt)
	if err == nil && season.ID != key.Season || errors.Is(err, leaderboard.ErrSeasonNotFound) {
		return r, &leaderboard.FieldError{Field: "achieved_at", Problem: fmt.Sprintf(
			"must be in the season of the result, %s; to move the result, retract it and submit it again", key.Season)}
	}
	if err != nil {
		return r, err
	}
	return r, b.Check(&r, s.now())
}

// change applies c to r.
func (c *Correction) change(r *leaderboard.MatchResult) {
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
	if len(c.Attributes) > 0 {
		r.Attributes = maps.Clone(r.Attributes)
		if r.Attributes == nil {
			r.Attributes = map[string]string{}
		}
		maps.Copy(r.Attributes, c.Attributes)
		maps.DeleteFunc(r.Attributes, func(_, value string) bool { return value == "" })
	}
}

// ResultSeason returns the season of a match result that a caller wants to change. It
// reports whether the season accepts results from administrators only, because it is closed
// or sealed. If the season in key is empty, ResultSeason finds it as seasonOfMatch
// does. Errors: a [leaderboard.FieldError] if the board is linked.
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

// newestSeasons returns the newest maxSearched of keys, which are seasons of b. It keeps
// their order if there are no more.
func newestSeasons(b *leaderboard.Board, keys []leaderboard.SeasonKey) []leaderboard.SeasonKey {
	if len(keys) <= maxSearched {
		return keys
	}
	slices.SortStableFunc(keys, func(x, y leaderboard.SeasonKey) int { return compareSeasons(b, y.Season, x.Season) })
	return keys[:maxSearched]
}

// seasonOfMatch returns the season of a board in which a match of a user has a result. If
// several seasons have one, it prefers a result that counts to a retraction, and both to a
// rejected result. It searches the newest maxSearched seasons of the user. Errors:
// [leaderboard.ErrResultNotFound]; a [leaderboard.FieldError] if several seasons are left,
// or if the match is in none of the newest seasons and the user has more.
func (r *Reader) seasonOfMatch(ctx context.Context, b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID) (leaderboard.SeasonID, error) {
	if err := errors.Join(user.Validate(), match.Validate()); err != nil {
		return "", err
	}
	keys, err := r.store.UserSeasons(ctx, user)
	if err != nil {
		return "", err
	}
	keys = slices.DeleteFunc(keys, func(k leaderboard.SeasonKey) bool { return k.Board != b.ID })
	all := len(keys)
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
	var found []leaderboard.SeasonID
	for kind := counting; kind > none && len(found) == 0; kind-- {
		for i, key := range keys {
			if kinds[i] == kind {
				found = append(found, key.Season)
			}
		}
	}
	switch len(found) {
	case 0:
		if all > len(keys) {
			return "", &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("is required, because the match is in none of the user's newest %d seasons", len(keys))}
		}
		return "", fmt.Errorf("ranking: match %q of the user is in no season of board %q: %w", match, b.ID, leaderboard.ErrResultNotFound)
	case 1:
		return found[0], nil
	}
	const named = 10
	return "", &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf("is required, because the match has results in %d seasons: %q", len(found), found[:min(len(found), named)])}
}
