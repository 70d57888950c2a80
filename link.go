package leaderboard

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// MaxLinks is the largest number of boards linked to one source.
const MaxLinks = 16

func (s *Source) matches(r *MatchResult) bool {
	for name, value := range s.Match {
		if stored, ok := r.Attributes[name]; !ok || stored != value {
			return false
		}
	}
	return true
}

func (b *Board) validateSource() []error {
	s := b.Source
	if s == nil && b.Season.Kind == Rolling {
		return []error{fieldErrorf("source", "is required on a board with a ROLLING schedule")}
	}
	if s == nil {
		return nil
	}
	var errs []error
	if err := checkID("source.board_id", string(s.Board)); err != nil {
		errs = append(errs, err)
	}
	if s.Board == b.ID {
		errs = append(errs, fieldErrorf("source.board_id", "a board cannot be its own source"))
	}
	if len(s.Match) > MaxAttributes {
		errs = append(errs, fieldErrorf("source.match", "%d attributes given, at most %d are allowed", len(s.Match), MaxAttributes))
	}
	for _, name := range namesOf(s.Match) {
		errs = append(errs, checkName("source.match", name), checkID("source.match."+name, s.Match[name]))
	}
	if b.Matches {
		errs = append(errs, fieldErrorf("matches", "is not allowed on a linked board, which follows the matches of its source"))
	}
	for field, given := range map[string]bool{"min_score": b.MinScore != nil, "max_score": b.MaxScore != nil, "floor": b.Floor != nil} {
		if given {
			errs = append(errs, fieldErrorf(field, "is not allowed on a linked board; the source decides which results are accepted"))
		}
	}
	return errs
}

// LinkTo sets b.Source.TieBreakers. It returns a [FieldError] if source is linked itself,
// or lacks a tie-breaker of b.
func (b *Board) LinkTo(source *Board) error {
	if source.Source != nil {
		return &FieldError{
			Field: "source.board_id", Problem: fmt.Sprintf("board %q is linked itself; link to its source instead", source.ID), Boards: []BoardID{source.Source.Board},
		}
	}
	b.Source = &Source{Board: b.Source.Board, Match: b.Source.Match}
	for i, tie := range b.TieBreakers {
		index := slices.IndexFunc(source.TieBreakers, func(t TieBreaker) bool { return t.Name == tie.Name })
		if index < 0 {
			return fieldErrorf(fmt.Sprintf("tie_breakers[%d].name", i), "the source %q has no tie-breaker %q", source.ID, tie.Name)
		}
		b.Source.TieBreakers = append(b.Source.TieBreakers, index)
	}
	return nil
}

// ResultTieBreakers returns the tie-breakers of r, a result of b, in b's order.
func (b *Board) ResultTieBreakers(r *MatchResult) []int64 {
	if b.Source == nil || len(r.TieBreakers) == 0 {
		return r.TieBreakers
	}
	ties := make([]int64, 0, len(b.Source.TieBreakers))
	for _, i := range b.Source.TieBreakers {
		ties = append(ties, valueAt(r.TieBreakers, i))
	}
	return ties
}

// CheckDirect returns a [FieldError] if b is linked.
func (b *Board) CheckDirect() error {
	if b.Source == nil {
		return nil
	}
	return &FieldError{Field: "board_id", Problem: fmt.Sprintf("board %q is linked; submit to its source instead", b.ID), Boards: []BoardID{b.Source.Board}}
}

// Counts reports whether b counts r in r's season. A retraction, a result of a void
// match, and a result at or after the early end of its season do not count. On a linked
// board, a result that does not match [Source].Match, whose event time is outside the
// season, or whose Finish b does not have, does not count either.
func (b *Board) Counts(r *MatchResult) bool { return b.countsUnlessEnded(r) && !b.EndedEarly(r) }

// takes reports whether the linked board b counts r in some season.
func (b *Board) takes(r *MatchResult) bool { return b.Source.matches(r) && b.accepts(r.Finish) }

func (b *Board) countsUnlessEnded(r *MatchResult) bool {
	if r.Retracted || r.IsVoid() {
		return false
	}
	if b.Source == nil {
		return true
	}
	season, err := b.Season.scheduledByID(r.Season)
	return err == nil && b.takes(r) && season.Contains(r.AchievedAt)
}

// LinkedSeasons returns the seasons of the linked board b that count r, ordered by their
// ends. It ignores whether r's match is void. r is a result of b or of its source. On a
// rolling board, the seasons are the open windows that contain r's event time.
func (b *Board) LinkedSeasons(r *MatchResult) []SeasonID {
	if r.Retracted || b.Source == nil || !b.takes(r) {
		return nil
	}
	season, err := b.Season.At(r.AchievedAt)
	if err != nil {
		return nil
	}
	if b.Season.Kind != Rolling {
		if !season.Contains(r.AchievedAt) {
			return nil // the season ended early
		}
		return []SeasonID{season.ID}
	}
	var windows []SeasonID
	for err == nil && season.ID <= b.Rolling.Opened && season.Contains(r.AchievedAt) {
		if season.ID >= b.Rolling.First {
			windows = append(windows, season.ID)
		}
		season, err = b.Season.At(season.End)
	}
	return windows
}

// OpenWindows sets the open windows of the new rolling board b. It does not open windows
// whose retention ended before b.CreatedAt.
func (b *Board) OpenWindows() error {
	last, err := b.Season.At(b.CreatedAt.Add(MaxAhead))
	b.Rolling = RollingWindows{Opened: last.ID}
	// If the first window would be before the year 1, At fails and First stays empty.
	if first, err := b.Season.At(b.CreatedAt.Add(-b.Retention - b.Season.Grace)); err == nil {
		b.Rolling.First = first.ID
	}
	return err
}

// NeedsWindow returns the last window of the rolling board b that the service opens before
// it copies r, a result of the source, to b. The last day of this window contains the later
// of r.AchievedAt and r.ReceivedAt. If r is a retraction or does not match, the id is "".
func (b *Board) NeedsWindow(r *MatchResult) SeasonID {
	if r.Retracted || !b.takes(r) {
		return ""
	}
	achievedWindow, err1 := b.Season.At(r.AchievedAt)
	receivedWindow, err2 := b.Season.At(r.ReceivedAt)
	if err1 != nil || err2 != nil {
		return ""
	}
	return max(achievedWindow.ID, receivedWindow.ID)
}

// FillingSeason reports whether, at the time now, the season of the linked board b may lack
// results of the source.
func (b *Board) FillingSeason(season SeasonID, now time.Time) bool {
	if b.Season.Kind != Rolling || b.Filling() {
		return b.Filling()
	}
	last := b.Rolling.Opened
	if current, err := b.Season.At(now); err == nil {
		last = max(last, current.ID) // the current window may not be open yet
	}
	return season > b.Rolling.Filled && season <= last
}

// FromSource returns the copy of r, a result of source, for a season of the linked board b.
// The copy must replace older revisions, even if the copy does not count in the season.
// Otherwise different revisions might stand on the two boards.
//
// If the source has seasons, the match id of the copy begins with the source's season,
// because different seasons may have equal match ids. The copy has the content of r,
// because [Board.Merge] compares contents.
//
// If the source accepted r after the season of r had closed, FromSource sets Amends, so
// that a closed season of b accepts the copy.
func (b *Board) FromSource(source *Board, r *MatchResult, season SeasonID) MatchResult {
	out := *r
	sourceSeason, err := source.Season.ByID(r.Season)
	out.Amends = err == nil && source.Closed(sourceSeason, r.ReceivedAt)
	out.ResultKey = ResultKey{SeasonKey: SeasonKey{b.ID, season}, User: r.User, Match: source.linkedMatch(r.Season, r.Match)}
	return out
}

// ToSource is the inverse of [Board.FromSource]. r is a result of the linked board b.
func (b *Board) ToSource(source *Board, r *MatchResult) (MatchResult, error) {
	season, match := string(SeasonAll), string(r.Match)
	if source.Season.Kind != None {
		escaped, sourceMatch, ok := strings.Cut(match, "/")
		sourceSeason, err := url.PathUnescape(escaped)
		if !ok || err != nil {
			return MatchResult{}, fmt.Errorf("leaderboard: match %q of linked board %q does not begin with a season of its source", match, b.ID)
		}
		season, match = sourceSeason, sourceMatch
	}
	out := *r
	out.ResultKey = ResultKey{SeasonKey: SeasonKey{source.ID, SeasonID(season)}, User: r.User, Match: MatchID(match)}
	return out, nil
}

// linkedMatch returns different ids for different matches, because an escaped season has no
// slash.
func (b *Board) linkedMatch(season SeasonID, match MatchID) MatchID {
	if b.Season.Kind == None {
		return match
	}
	return MatchID(url.PathEscape(string(season))) + "/" + match
}
