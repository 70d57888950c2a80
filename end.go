package leaderboard

import (
	"slices"
	"strings"
	"time"
)

// MaxEarlyEnds is the largest number of early ends of a board.
const MaxEarlyEnds = 1000

// EarlyEnd is the end of a season that an administrator ended before its scheduled end.
type EarlyEnd struct {
	ID SeasonID  `json:"id"`
	At time.Time `json:"at"` // replaces the scheduled end
	// DecidedAt is when the administrator ended the season, and is not before At. The
	// season's grace does not begin earlier: see [Board.ClosesAt].
	DecidedAt time.Time `json:"decided_at"`
}

// EarlyEnd returns the early end of a season, if it has one.
func (s *Schedule) EarlyEnd(id SeasonID) (EarlyEnd, bool) {
	i, ok := s.findEnd(id)
	if !ok {
		return EarlyEnd{}, false
	}
	return s.Ends[i], true
}

func (s *Schedule) findEnd(id SeasonID) (int, bool) {
	return slices.BinarySearchFunc(s.Ends, id, func(e EarlyEnd, id SeasonID) int { return strings.Compare(string(e.ID), string(id)) })
}

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

func (s *Schedule) withEarlyEnd(season Season) Season {
	if e, ok := s.EarlyEnd(season.ID); ok {
		season.End = e.At
	}
	return season
}

func (s *Schedule) checkEnds(proposal *Schedule) error {
	for _, e := range s.Ends {
		if end, ok := proposal.EarlyEnd(e.ID); !ok || end.At.After(e.At) {
			return fieldErrorf("season", "the early end of season %q cannot be removed or moved to a later time", e.ID)
		}
	}
	return nil
}

// After returns the first season that begins at t or later. It returns false if no such
// season is in the years 1 to 9999. s must not be rolling.
func (s *Schedule) After(t time.Time) (Season, bool) {
	if s.Kind == Explicit {
		for _, w := range s.Windows {
			if !w.Start.Before(t) {
				return s.withEarlyEnd(w.inUTC()), true
			}
		}
		return Season{}, false
	}
	season, err := s.scheduledAt(t)
	if err == nil && !season.End.IsZero() && !season.Start.Equal(t) {
		season, err = s.scheduledAt(season.End)
	}
	return s.withEarlyEnd(season), err == nil && !season.End.IsZero()
}

// EndedEarly reports whether the event time of r is at or after the early end of r's season
// on b. For a retraction, it returns false.
func (b *Board) EndedEarly(r *MatchResult) bool {
	e, ok := b.Season.EarlyEnd(r.Season)
	return ok && !r.Retracted && !r.AchievedAt.Before(e.At)
}
