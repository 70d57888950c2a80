package leaderboard

import (
	"math"
	"slices"
	"time"
)

// MaxEarlyEnds is the largest number of early ends of a board.
const MaxEarlyEnds = 1000

// EndEarly adds an early end to s, or replaces the season's early end. e.At must be after
// the season's start and before its present end. Errors: [ErrSeasonNotFound]; a
// [FieldError] if e.At is not in this range, if s is rolling, or if s would have more than
// [MaxEarlyEnds] early ends.
func (s *Schedule) EndEarly(e EarlyEnd) error {
	season, err := s.ByID(e.ID)
	if err != nil {
		return err
	}
	if s.Kind == Rolling {
		return fieldErrorf("season", "%q is a window of a ROLLING schedule, which cannot be ended", e.ID)
	}
	e.At, e.DecidedAt = Truncate(e.At), Truncate(e.DecidedAt)
	i, found := s.findEnd(e.ID)
	switch {
	case found && !e.At.Before(season.End):
		return fieldErrorf("at", "must be before %s, because season %q was ended then", season.End.Format(time.RFC3339Nano), e.ID)
	case !season.Contains(e.At) || e.At.Equal(season.Start):
		return fieldErrorf("at", "must be after the start of season %q, %s, and before its end, %s",
			e.ID, season.Start.Format(time.RFC3339), season.End.Format(time.RFC3339))
	case !found && len(s.Ends) >= MaxEarlyEnds:
		return fieldErrorf("season", "the board already has %d early ends, and more are not allowed", MaxEarlyEnds)
	}
	s.Ends = slices.Clone(s.Ends)
	if found {
		s.Ends[i] = e
	} else {
		s.Ends = slices.Insert(s.Ends, i, e)
	}
	return nil
}

func (s *Schedule) checkEnds(proposal *Schedule) error {
	for _, e := range s.Ends {
		if end, ok := proposal.EarlyEnd(e.ID); !ok || end.At.After(e.At) {
			return fieldErrorf("season", "the early end of season %q cannot be removed or moved to a later time", e.ID)
		}
	}
	return nil
}

// EndedEarly reports whether the event time of r is at or after the early end of r's season
// on b. For a retraction, it returns false.
func (b *Board) EndedEarly(r *MatchResult) bool {
	e, ok := b.Season.EarlyEnd(r.Season)
	return ok && !r.Retracted && !r.AchievedAt.Before(e.At)
}

// ClosesAt returns the time from which s accepts no more results. The grace counts from the
// latest of these times: the end of s, the creation of the board, and the decision to end s
// early. The zero time means that s never closes.
func (b *Board) ClosesAt(s Season) time.Time {
	if s.End.IsZero() {
		return time.Time{}
	}
	end := s.End
	if b.CreatedAt.After(end) {
		end = b.CreatedAt
	}
	if early, ok := b.Season.EarlyEnd(s.ID); ok && early.DecidedAt.After(end) {
		end = early.DecidedAt
	}
	if b.Season.Grace > time.Duration(math.MaxInt64)-time.Hour {
		return time.Time{}
	}
	return end.Add(b.Season.Grace)
}

// Closed reports whether s accepts no more results at the time now.
func (b *Board) Closed(s Season, now time.Time) bool {
	closes := b.ClosesAt(s)
	return !closes.IsZero() && !now.Before(closes)
}
