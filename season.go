package leaderboard

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // so that a static binary knows every zone
)

// ErrSeasonNotFound: a board has no season at that time, or none of that id.
var ErrSeasonNotFound = errors.New("season not found")

// SeasonID names a season within its board: 1 to 64 bytes of printable UTF-8.
// It follows from the board's schedule:
//
//	None      all       [SeasonAll]
//	Daily     20261120  year, month, day
//	Weekly    2026W47   ISO 8601 week
//	Monthly   202611    year, month
//	Explicit            the window's own id
//
// Years are 1 to 9999. No schedule but Explicit has a meaning for other ids.
type SeasonID string

// SeasonAll is the one season of a board without a schedule.
const SeasonAll SeasonID = "all"

const maxSeasonIDBytes = 64

// Validate returns a [FieldError] if id breaks the limits of season ids. It
// does not say that any board has such a season: see [Schedule.ByID].
func (id SeasonID) Validate() error { return id.validate("season") }

func (id SeasonID) validate(field string) error {
	if id == "" || len(id) > maxSeasonIDBytes {
		return fieldErrorf(field, "is %d bytes long, 1 to %d are allowed", len(id), maxSeasonIDBytes)
	}
	return checkPrintable(field, string(id))
}

// Season is a span of time, [Start, End) in UTC, by which a board's results are
// set apart. Start and End are both zero for [SeasonAll], which has no bounds.
type Season struct {
	ID    SeasonID  `json:"id"`
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
}

// Contains says whether t is in s.
func (s Season) Contains(t time.Time) bool {
	if s.Start.IsZero() && s.End.IsZero() {
		return true
	}
	return !t.Before(s.Start) && t.Before(s.End)
}

// ScheduleKind says how time is cut into seasons.
type ScheduleKind int8

const (
	None     ScheduleKind = iota // one season, for good
	Daily                        // from midnight to midnight
	Weekly                       // from Monday to Monday, numbered as in ISO 8601
	Monthly                      // from the first to the first
	Explicit                     // as listed in Schedule.Windows
)

var scheduleNames = []string{"NONE", "DAILY", "WEEKLY", "MONTHLY", "EXPLICIT"}

func (k ScheduleKind) String() string { return enumString(scheduleNames, int(k)) }

// MarshalText writes NONE, DAILY, WEEKLY, MONTHLY or EXPLICIT.
func (k ScheduleKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (k *ScheduleKind) UnmarshalText(text []byte) error {
	return parseEnum("season.schedule", scheduleNames, text, k)
}

// Schedule cuts time into a board's seasons. Seasons never overlap, and those
// of a daily, weekly or monthly schedule follow one another without a gap.
//
// A season begins at the first instant at which the calendar in TimeZone shows
// its first day or a later one, and ends where the next begins. So a midnight
// that clocks skip begins its season when they land, a midnight that they strike
// twice begins it the first time, and a day that a zone left out has no season.
type Schedule struct {
	Kind     ScheduleKind `json:"schedule"`
	TimeZone string       `json:"time_zone,omitempty"` // an IANA name; empty is UTC
	// Grace is how long after its end a season still takes late results.
	Grace time.Duration `json:"grace,omitempty"`
	// Windows are the seasons of an explicit schedule, in order of time. There
	// may be gaps between them.
	Windows []Season `json:"windows,omitempty"`
}

// Validate returns every fault of s, joined, each a [FieldError].
func (s Schedule) Validate() error {
	var errs []error
	if s.Kind < None || s.Kind > Explicit {
		errs = append(errs, fieldErrorf("season.schedule", "is none of %v", scheduleNames))
	}
	if _, err := location(s.TimeZone); err != nil {
		errs = append(errs, err)
	}
	if s.Grace < 0 {
		errs = append(errs, fieldErrorf("season.grace", "%v is negative", s.Grace))
	}
	if s.Kind != Explicit && len(s.Windows) > 0 {
		errs = append(errs, fieldErrorf("season.windows", "are for EXPLICIT schedules only"))
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
			errs = append(errs, fieldErrorf(field+".id", "%q means a season without bounds", SeasonAll))
		}
		if seen[w.ID] {
			errs = append(errs, fieldErrorf(field+".id", "%q is given twice", w.ID))
		}
		seen[w.ID] = true
		if !w.End.After(w.Start) {
			errs = append(errs, fieldErrorf(field+".end", "is not after the window's start"))
		}
		if i > 0 && w.Start.Before(s.Windows[i-1].End) {
			errs = append(errs, fieldErrorf(field+".start", "is before the end of the window above; list windows in order, without overlap"))
		}
	}
	return errors.Join(errs...)
}

// At returns the season that contains t. It returns [ErrSeasonNotFound] if t is
// in none of an explicit schedule's windows or outside the years 1 to 9999, and
// a [FieldError] if the time zone is unknown.
func (s Schedule) At(t time.Time) (Season, error) {
	switch s.Kind {
	case None:
		return Season{ID: SeasonAll}, nil
	case Explicit:
		i := sort.Search(len(s.Windows), func(i int) bool { return s.Windows[i].End.After(t) })
		if i == len(s.Windows) || !s.Windows[i].Contains(t) {
			return Season{}, fmt.Errorf("no window of the board holds %v: %w", t.UTC(), ErrSeasonNotFound)
		}
		return s.Windows[i].inUTC(), nil
	}
	loc, err := location(s.TimeZone)
	if err != nil {
		return Season{}, err
	}
	local := t.In(loc)
	if year := local.Year(); year < 0 || year > 10_000 {
		return Season{}, outsideYears(t)
	}
	first := s.Kind.firstDay(time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC))
	season := s.Kind.season(first, loc)
	// Where clocks went back over midnight, t may show the day before although
	// the new day has been seen: the season goes by the latest day seen.
	for !t.Before(season.End) {
		first = s.Kind.nextDay(first)
		season = s.Kind.season(first, loc)
	}
	if year := s.Kind.year(first); year < 1 || year > 9999 {
		return Season{}, outsideYears(t)
	}
	return season, nil
}

func outsideYears(t time.Time) error {
	return fmt.Errorf("%v is outside the years 1 to 9999: %w", t.UTC(), ErrSeasonNotFound)
}

// ByID returns the season with the id. It returns [ErrSeasonNotFound] if the
// schedule has none, and a [FieldError] if the time zone is unknown.
func (s Schedule) ByID(id SeasonID) (Season, error) {
	switch s.Kind {
	case None:
		if id == SeasonAll {
			return Season{ID: SeasonAll}, nil
		}
		return Season{}, notFound(id, `"all"`)
	case Explicit:
		for _, w := range s.Windows {
			if w.ID == id {
				return w.inUTC(), nil
			}
		}
		return Season{}, notFound(id, "the id of one of the board's windows")
	}
	loc, err := location(s.TimeZone)
	if err != nil {
		return Season{}, err
	}
	first, ok := s.Kind.parse(id)
	if !ok {
		return Season{}, notFound(id, seasonForms[s.Kind])
	}
	season := s.Kind.season(first, loc)
	if !season.Start.Before(season.End) {
		return Season{}, fmt.Errorf("season %q, a day that the calendar of %s left out: %w", id, s.TimeZone, ErrSeasonNotFound)
	}
	return season, nil
}

// Previous returns the season before the given one of s, and false if there is
// none or s has no such season.
func (s Schedule) Previous(of Season) (Season, bool) { return s.neighbor(of.ID, -1) }

// Next returns the season after the given one of s, and false if there is none
// or s has no such season.
func (s Schedule) Next(of Season) (Season, bool) { return s.neighbor(of.ID, +1) }

func (s Schedule) neighbor(id SeasonID, step int) (Season, bool) {
	if s.Kind == Explicit {
		for i, w := range s.Windows {
			if j := i + step; w.ID == id && j >= 0 && j < len(s.Windows) {
				return s.Windows[j].inUTC(), true
			}
		}
		return Season{}, false
	}
	season, err := s.ByID(id)
	if err != nil || s.Kind == None {
		return Season{}, false
	}
	if step > 0 {
		season, err = s.At(season.End)
	} else {
		season, err = s.At(season.Start.Add(-1))
	}
	return season, err == nil
}

func (s Season) inUTC() Season { return Season{s.ID, s.Start.UTC(), s.End.UTC()} }

func notFound(id SeasonID, want string) error {
	return fmt.Errorf("season %.64q, where %s is expected: %w", string(id), want, ErrSeasonNotFound)
}

// A day below is a calendar day without a zone, held as its midnight in UTC.

// firstDay returns the first day of the season that holds the day.
func (k ScheduleKind) firstDay(day time.Time) time.Time {
	switch k {
	case Monthly:
		return day.AddDate(0, 0, 1-day.Day())
	case Weekly:
		return day.AddDate(0, 0, -((int(day.Weekday()) + 6) % 7))
	default:
		return day
	}
}

// nextDay returns the first day of the season after the one that begins with first.
func (k ScheduleKind) nextDay(first time.Time) time.Time {
	switch k {
	case Monthly:
		return first.AddDate(0, 1, 0)
	case Weekly:
		return first.AddDate(0, 0, 7)
	default:
		return first.AddDate(0, 0, 1)
	}
}

func (k ScheduleKind) season(first time.Time, loc *time.Location) Season {
	return Season{k.id(first), dayStart(first, loc), dayStart(k.nextDay(first), loc)}
}

// year returns the year that numbers the season that begins with first.
func (k ScheduleKind) year(first time.Time) int {
	if k == Weekly {
		year, _ := first.ISOWeek()
		return year
	}
	return first.Year()
}

var seasonForms = map[ScheduleKind]string{
	Daily:   "a day as YYYYMMDD",
	Weekly:  "an ISO week as YYYYWnn",
	Monthly: "a month as YYYYMM",
}

// The ids of months and days, as layouts of package time.
const (
	monthLayout = "200601"
	dayLayout   = "20060102"
)

func (k ScheduleKind) id(first time.Time) SeasonID {
	switch k {
	case Monthly:
		return SeasonID(first.Format(monthLayout))
	case Weekly:
		year, week := first.ISOWeek()
		return SeasonID(fmt.Sprintf("%04dW%02d", year, week))
	default:
		return SeasonID(first.Format(dayLayout))
	}
}

// parse returns the first day of the season with the id, and false if there is
// no such season in the years 1 to 9999.
func (k ScheduleKind) parse(id SeasonID) (first time.Time, ok bool) {
	switch k {
	case Monthly:
		first, _ = time.Parse(monthLayout, string(id))
	case Weekly:
		yyyy, ww, _ := strings.Cut(string(id), "W")
		year, _ := strconv.Atoi(yyyy)
		week, _ := strconv.Atoi(ww)
		if year > 9999 || week > 53 { // far out of range, where dates would overflow
			return first, false
		}
		// The fourth of January is always in week 1.
		first = k.firstDay(time.Date(year, time.January, 4+7*(week-1), 0, 0, 0, 0, time.UTC))
	case Daily:
		first, _ = time.Parse(dayLayout, string(id))
	}
	// Each season has one id; whatever else was read as it is not an id.
	return first, k.year(first) >= 1 && k.id(first) == id
}

// maxOffset is more than any zone was ever ahead of UTC, or behind it.
const maxOffset = 25 * time.Hour

// dayStart returns the first instant, in UTC, at which the calendar in loc shows
// day or a later day. It asks of each stretch of constant offset in turn whether
// midnight, or a jump past it, falls in it, because [time.Date] does not promise
// which instant it returns for a midnight that is skipped or struck twice.
func dayStart(day time.Time, loc *time.Location) time.Time {
	from := day.Add(-maxOffset).In(loc)
	for {
		_, offset := from.Zone()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		if midnight.Before(from) {
			midnight = from // the change of offset at from jumped past it
		}
		_, to := from.ZoneBounds()
		if !to.IsZero() && !to.After(from) {
			// Beyond a zone's last listed change, ZoneBounds ends a year's last
			// stretch 365 days after the year began in UTC, which in a leap year
			// is before its last day. The stretch does last until the year ends.
			to = from.Truncate(24 * time.Hour).Add(24 * time.Hour)
		}
		if to.IsZero() || midnight.Before(to) {
			return midnight.UTC()
		}
		from = to
	}
}

// locations holds the zones in use by name: loading one reads a file.
var locations sync.Map // string to *time.Location

// location returns the zone with the IANA name; empty is UTC. It returns a
// [FieldError] for names that are unknown, or that mean another zone or another
// count of seconds on another machine.
func location(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if loc, ok := locations.Load(name); ok {
		return loc.(*time.Location), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "localtime" || strings.HasPrefix(name, "right/") {
		return nil, fieldErrorf("season.time_zone", "%.64q is not a time zone of the IANA database, such as Europe/Berlin", name)
	}
	locations.Store(name, loc)
	return loc, nil
}
