package leaderboard

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// The bounds of [Schedule].Days and [Schedule].Every.
const (
	MinDays  = 2
	MaxDays  = 31
	MinEvery = time.Minute
	MaxEvery = 10 * 366 * 24 * time.Hour
)

// Schedule divides time into a board's seasons. Only rolling seasons overlap. Only explicit
// seasons may have gaps between them. Rolling and explicit seasons are called windows.
//
// Every other season begins at the first instant at which clocks in TimeZone show the season's
// start or a later time. It ends when the next season begins. Therefore:
//   - If clocks skip the start, the season begins when the clocks skip.
//   - If clocks show the start twice, the season begins at the first time.
//   - If clocks skipped a whole season, such as an hour or a day, it does not exist.
type Schedule struct {
	Kind     ScheduleKind `json:"schedule"`
	TimeZone string       `json:"time_zone,omitempty"` // an IANA name; empty is UTC
	// Grace is how long a season accepts results after its end.
	Grace time.Duration `json:"grace,omitempty"`
	// DayStart is when the days of all but hourly schedules begin.
	DayStart TimeOfDay `json:"day_start,omitempty"`
	// WeekStart is the first day of a weekly season. The season has the number of the ISO 8601 week
	// of its Thursday.
	WeekStart Weekday `json:"week_start,omitempty"`
	// YearStart is the first day of a yearly season. The season's id is the year of this day.
	YearStart MonthDay `json:"year_start,omitempty"`
	// Every is the length of a season on the clock, in whole minutes. From is when the first one begins.
	Every time.Duration `json:"every,omitempty"`
	From  time.Time     `json:"from,omitzero"`
	// Days is the length of a rolling window, including days that the time zone skipped.
	Days int `json:"days,omitempty"`
	// Windows are the seasons of an explicit schedule, in order of time.
	Windows []Season `json:"windows,omitempty"`
	// Ends is ordered by season id. Only [Schedule.EndEarly] changes it.
	Ends []EarlyEnd `json:"ends,omitempty"`
}

// EarlyEnd is the end of a season that an administrator ended before its scheduled end.
type EarlyEnd struct {
	ID SeasonID  `json:"id"`
	At time.Time `json:"at"` // replaces the scheduled end
	// DecidedAt is when the administrator ended the season, and is not before At. The
	// season's grace does not begin earlier: see [Board.ClosesAt].
	DecidedAt time.Time `json:"decided_at"`
}

// Validate returns all faults of s, joined by [errors.Join], each a [FieldError].
func (s Schedule) Validate() error {
	var errs []error
	if s.Kind < None || int(s.Kind) >= len(scheduleNames) {
		errs = append(errs, fieldErrorf("season.schedule", "must be one of %s", strings.Join(scheduleNames, ", ")))
	}
	if loc, err := location(s.TimeZone); err != nil {
		errs = append(errs, err)
	} else if s.Kind == Every {
		errs = append(errs, s.validateEvery(loc)...)
	}
	errs = append(errs, s.validateStarts()...)
	if s.Grace < 0 {
		errs = append(errs, fieldErrorf("season.grace", "%v is negative", s.Grace))
	}
	if s.Kind != Rolling && s.Days != 0 {
		errs = append(errs, fieldErrorf("season.days", "is allowed in ROLLING schedules only"))
	}
	if s.Kind == Rolling && (s.Days < MinDays || s.Days > MaxDays) {
		errs = append(errs, fieldErrorf("season.days", "must be %d to %d in a ROLLING schedule, not %d", MinDays, MaxDays, s.Days))
	}
	if s.Kind != Explicit && len(s.Windows) > 0 {
		errs = append(errs, fieldErrorf("season.windows", "are allowed in EXPLICIT schedules only"))
	}
	if s.Kind == Explicit && len(s.Windows) == 0 {
		errs = append(errs, fieldErrorf("season.windows", "are required for an EXPLICIT schedule"))
	}
	seen := make(map[SeasonID]bool, len(s.Windows))
	for i, w := range s.Windows {
		field := fmt.Sprintf("season.windows[%d]", i)
		if err := w.ID.validate(field + ".id"); err != nil {
			errs = append(errs, err)
		}
		if w.ID == SeasonAll {
			errs = append(errs, fieldErrorf(field+".id", "%q is reserved for the season without bounds", SeasonAll))
		}
		if seen[w.ID] {
			errs = append(errs, fieldErrorf(field+".id", "%q is given twice", w.ID))
		}
		seen[w.ID] = true
		if !w.End.After(w.Start) {
			errs = append(errs, fieldErrorf(field+".end", "is not after the window's start"))
		}
		if i > 0 && w.Start.Before(s.Windows[i-1].End) {
			errs = append(errs, fieldErrorf(field+".start", "is before the end of the previous window; list windows in order of time, without overlap"))
		}
	}
	return errors.Join(errs...)
}

// validateStarts refuses settings that the schedule does not use.
func (s *Schedule) validateStarts() []error {
	var errs []error
	only := func(set bool, field string, kinds ...ScheduleKind) {
		if set && !slices.Contains(kinds, s.Kind) {
			errs = append(errs, fieldErrorf(field, "is not allowed in %s schedules; it is for %s", s.Kind, strings.Trim(fmt.Sprint(kinds), "[]")))
		}
	}
	only(s.DayStart != 0, "season.day_start", Daily, Weekly, Monthly, Quarterly, Yearly, Rolling)
	only(s.WeekStart != Monday, "season.week_start", Weekly)
	only(s.YearStart != 0, "season.year_start", Yearly)
	only(s.Every != 0, "season.every", Every)
	only(!s.From.IsZero(), "season.from", Every)
	if s.DayStart < 0 || s.DayStart >= 24*60 {
		errs = append(errs, fieldErrorf("season.day_start", "must be 00:00 to 23:59"))
	}
	if s.YearStart < 0 || s.YearStart > 364 {
		errs = append(errs, fieldErrorf("season.year_start", "must be 01-01 to 12-31"))
	}
	if s.WeekStart < Monday || s.WeekStart > Sunday {
		errs = append(errs, fieldErrorf("season.week_start", "must be one of %s", strings.Join(weekdayNames, ", ")))
	}
	return errs
}

func (s *Schedule) validateEvery(loc *time.Location) []error {
	var errs []error
	if s.Every < MinEvery || s.Every > MaxEvery || s.Every%time.Minute != 0 {
		errs = append(errs, fieldErrorf("season.every", "must be whole minutes from %v to %v in an EVERY schedule, not %v", MinEvery, MaxEvery, s.Every))
	}
	reading := readingOf(s.From, loc)
	switch {
	case s.From.IsZero():
		errs = append(errs, fieldErrorf("season.from", "is required for an EVERY schedule"))
	case reading.Year() < 1 || reading.Year() > 9999 || !reading.Truncate(time.Minute).Equal(reading):
		errs = append(errs, fieldErrorf("season.from", "%v must be a whole minute in the years 1 to 9999", s.From.UTC().Format(time.RFC3339Nano)))
	case !firstInstant(reading, loc).Equal(s.From):
		errs = append(errs, fieldErrorf("season.from", "is the second time at which clocks in %s show %s; the first is %s",
			s.TimeZone, reading.Format("15:04"), firstInstant(reading, loc).Format(time.RFC3339)))
	}
	return errs
}

// validateNew checks the ids of the windows that previous does not have.
func (s Schedule) validateNew(previous Schedule) error {
	var errs []error
	for i, w := range s.Windows {
		sameID := func(o Season) bool { return o.ID == w.ID }
		if w.ID != "" && !slices.ContainsFunc(previous.Windows, sameID) {
			field := fmt.Sprintf("season.windows[%d].id", i)
			errs = append(errs, checkNewText(field, string(w.ID)))
			if slices.ContainsFunc(seasonWords, func(word string) bool { return strings.EqualFold(word, string(w.ID)) }) {
				errs = append(errs, fieldErrorf(field, "must not be %q, which is a word for seasons in requests; choose another id, such as %q", w.ID, w.ID+"-1"))
			}
		}
	}
	return errors.Join(errs...)
}

// At returns the season that contains t; in a rolling schedule, the window whose last day
// contains t. From the early end of a season to its scheduled end, At still returns this
// season. Errors: [ErrSeasonNotFound] if no explicit window contains t, or if t is outside
// the years 1 to 9999; a [FieldError] if the time zone is unknown.
func (s Schedule) At(t time.Time) (Season, error) {
	season, err := s.scheduledAt(t)
	return s.withEarlyEnd(season), err
}

func (s Schedule) scheduledAt(t time.Time) (Season, error) {
	switch s.Kind {
	case None:
		return Season{ID: SeasonAll}, nil
	case Explicit:
		i := sort.Search(len(s.Windows), func(i int) bool { return s.Windows[i].End.After(t) })
		if i == len(s.Windows) || !s.Windows[i].Contains(t) {
			return Season{}, s.outsideWindowsError(t, i)
		}
		return s.Windows[i].inUTC(), nil
	}
	c, err := s.calendar()
	if err != nil {
		return Season{}, err
	}
	if year := t.In(c.loc).Year(); year < 0 || year > 10_000 {
		return Season{}, outsideYearsError(t)
	}
	if s.Kind == Every && t.Before(s.From) {
		return Season{}, fmt.Errorf("no season at %s, the first season begins at %s: %w", t.UTC().Format(time.RFC3339), s.From.UTC().Format(time.RFC3339), ErrSeasonNotFound)
	}
	first := c.first(readingOf(t, c.loc))
	season := c.season(first)
	// If clocks go back across the start of a season, the reading may be in the previous season
	// again. But the new season began when clocks first showed its start, so t belongs to it.
	for !t.Before(season.End) {
		first = c.next(first)
		season = c.season(first)
	}
	if year := c.year(first); year < 1 || year > 9999 {
		return Season{}, outsideYearsError(t)
	}
	return s.widen(season, first, c.loc), nil
}

func (s *Schedule) calendar() (calendar, error) {
	loc, err := location(s.TimeZone)
	c := calendar{kind: s.Kind, dayStart: s.DayStart.duration(), weekStart: s.WeekStart, yearStart: s.YearStart, every: s.Every, loc: loc}
	if err == nil && s.Kind == Every {
		c.from = readingOf(s.From, loc)
	}
	return c, err
}

// If s is rolling, widen moves the start of season back, so that the window has s.Days days
// and ends with day. No window begins before the year 1.
func (s Schedule) widen(season Season, day time.Time, loc *time.Location) Season {
	if s.Kind == Rolling {
		first := day.AddDate(0, 0, 1-s.Days)
		if first.Year() < 1 {
			first = time.Time{}.Add(s.DayStart.duration())
		}
		season.Start = firstInstant(first, loc)
	}
	return season
}

func outsideYearsError(t time.Time) error {
	return fmt.Errorf("%s is outside the years 1 to 9999: %w", t.UTC().Format(time.RFC3339), ErrSeasonNotFound)
}

// following is the index of the first window after t.
func (s Schedule) outsideWindowsError(t time.Time, following int) error {
	var nearest []string
	if following > 0 {
		w := s.Windows[following-1]
		nearest = append(nearest, fmt.Sprintf("the last season was %q, until %s", string(w.ID), w.End.UTC().Format(time.RFC3339)))
	}
	if following < len(s.Windows) {
		w := s.Windows[following]
		nearest = append(nearest, fmt.Sprintf("the next season is %q, from %s", string(w.ID), w.Start.UTC().Format(time.RFC3339)))
	}
	if len(nearest) == 0 {
		nearest = []string{"the board has no windows"}
	}
	return fmt.Errorf("no season at %s, %s: %w", t.UTC().Format(time.RFC3339), strings.Join(nearest, ", "), ErrSeasonNotFound)
}

// ByID returns the season with an id. Errors: [ErrSeasonNotFound]; a [FieldError] if the
// time zone is unknown.
func (s Schedule) ByID(id SeasonID) (Season, error) {
	season, err := s.scheduledByID(id)
	return s.withEarlyEnd(season), err
}

func (s Schedule) scheduledByID(id SeasonID) (Season, error) {
	switch s.Kind {
	case None:
		if id == SeasonAll {
			return Season{ID: SeasonAll}, nil
		}
		return Season{}, notFoundError(id, `"all"`)
	case Explicit:
		for _, w := range s.Windows {
			if w.ID == id {
				return w.inUTC(), nil
			}
		}
		return Season{}, s.noWindowError(id)
	}
	c, err := s.calendar()
	if err != nil {
		return Season{}, err
	}
	first, ok := c.parse(id)
	if !ok {
		return Season{}, notFoundError(id, ids[s.Kind].form)
	}
	season := c.season(first)
	if !season.Start.Before(season.End) {
		return Season{}, fmt.Errorf("season %q does not exist, as clocks in time zone %s skipped it: %w", id, s.TimeZone, ErrSeasonNotFound)
	}
	return s.widen(season, first, c.loc), nil
}

func (s Schedule) noWindowError(id SeasonID) error {
	const count = 2
	ids := make([]SeasonID, len(s.Windows))
	for i, w := range s.Windows {
		ids[i] = w.ID
	}
	slices.Sort(ids)
	position, _ := slices.BinarySearch(ids, id)
	first := max(0, min(position-count/2, len(ids)-count))
	var texts []string
	for _, nearest := range ids[first:min(first+count, len(ids))] {
		texts = append(texts, strconv.Quote(string(nearest)))
	}
	if len(texts) == 1 {
		return notFoundError(id, "the board's only window "+texts[0])
	}
	return notFoundError(id, "a window of the board: the nearest ids are "+strings.Join(texts, " and "))
}

func notFoundError(id SeasonID, want string) error {
	return fmt.Errorf("no season %.64q, want %s: %w", string(id), want, ErrSeasonNotFound)
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

func (s *Schedule) withEarlyEnd(season Season) Season {
	if e, ok := s.EarlyEnd(season.ID); ok {
		season.End = e.At
	}
	return season
}

// Begins returns the start of the season, or in a rolling schedule the start of its last
// day.
func (s Schedule) Begins(season Season) time.Time {
	c, err := s.calendar()
	if s.Kind != Rolling || err != nil {
		return season.Start
	}
	day, ok := c.parse(season.ID)
	if !ok {
		return season.Start
	}
	return firstInstant(day, c.loc)
}

// Previous returns the season before the given one; in a rolling schedule, the window
// that ends a day earlier. It returns false if there is no earlier season, or if s does
// not have the given season.
func (s Schedule) Previous(season Season) (Season, bool) {
	if s.Kind == Explicit {
		for i, w := range s.Windows {
			if w.ID == season.ID && i > 0 {
				return s.withEarlyEnd(s.Windows[i-1].inUTC()), true
			}
		}
		return Season{}, false
	}
	season, err := s.ByID(season.ID)
	if err != nil || s.Kind == None {
		return Season{}, false
	}
	season, err = s.At(s.Begins(season).Add(-1))
	return season, err == nil
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
	if s.Kind == Every && t.Before(s.From) {
		t = s.From
	}
	season, err := s.scheduledAt(t)
	if err == nil && !season.End.IsZero() && !season.Start.Equal(t) {
		season, err = s.scheduledAt(season.End)
	}
	return s.withEarlyEnd(season), err == nil && !season.End.IsZero()
}
