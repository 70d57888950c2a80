package leaderboard

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for machines without a time zone database
)

// Weekday is the first day of a week; the zero value is Monday.
type Weekday int8

// The days of a week.
const (
	Monday Weekday = iota
	Tuesday
	Wednesday
	Thursday
	Friday
	Saturday
	Sunday
)

var weekdayNames = []string{"MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"}

func (d Weekday) String() string { return enumString(weekdayNames, int(d)) }

// MarshalText writes the name that the API uses, such as SUNDAY.
func (d Weekday) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Weekday) UnmarshalText(text []byte) error {
	return parseEnum("season.week_start", weekdayNames, text, d)
}

// TimeOfDay is what a clock shows, in minutes after midnight, 0 to 1439.
type TimeOfDay int16

const timeOfDayLayout = "15:04"

func (t TimeOfDay) duration() time.Duration { return time.Duration(t) * time.Minute }

func (t TimeOfDay) String() string { return time.Time{}.Add(t.duration()).Format(timeOfDayLayout) }

// MarshalText writes the form HH:MM.
func (t TimeOfDay) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (t *TimeOfDay) UnmarshalText(text []byte) error {
	at, err := time.Parse(timeOfDayLayout, string(text))
	if parsed := TimeOfDay(at.Hour()*60 + at.Minute()); err == nil && parsed.String() == string(text) {
		*t = parsed
		return nil
	}
	return fieldErrorf("season.day_start", "%.64q must be a time of day as HH:MM, such as 04:00", text)
}

// MonthDay is a day that every year has: the number of days after January 1 in a year without
// February 29, 0 to 364.
type MonthDay int16

const commonYear = 2025 // has no February 29

// in returns the day's midnight in a year.
func (d MonthDay) in(year int) time.Time {
	day := time.Date(commonYear, time.January, 1+int(d), 0, 0, 0, 0, time.UTC)
	return time.Date(year, day.Month(), day.Day(), 0, 0, 0, 0, time.UTC)
}

func (d MonthDay) String() string { return d.in(commonYear).Format("01-02") }

// MarshalText writes the form MM-DD.
func (d MonthDay) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *MonthDay) UnmarshalText(text []byte) error {
	day, err := time.Parse("2006-01-02", fmt.Sprintf("%d-%s", commonYear, text))
	if err != nil {
		return fieldErrorf("season.year_start", "%.64q must be a day of every year as MM-DD, such as 04-01", text)
	}
	*d = MonthDay(day.YearDay() - 1)
	return nil
}

// calendar is a schedule of seasons that follow one another. In its methods, a reading is what a
// clock shows in no particular time zone, represented by the time in UTC at which a clock in UTC
// shows it. The parameter first is the reading at which a season begins; of a rolling window, the
// reading at which its last day begins.
type calendar struct {
	kind      ScheduleKind
	dayStart  time.Duration
	weekStart Weekday
	yearStart MonthDay
	every     time.Duration
	from      time.Time // a reading
	loc       *time.Location
}

// first returns the reading at which the season of a reading begins.
func (c *calendar) first(reading time.Time) time.Time {
	switch c.kind {
	case Hourly:
		return reading.Truncate(time.Hour)
	case Every:
		passed := reading.Unix() - c.from.Unix()
		return time.Unix(reading.Unix()-passed%int64(c.every/time.Second), 0).UTC()
	}
	reading = reading.Add(-c.dayStart)
	day := time.Date(reading.Year(), reading.Month(), reading.Day(), 0, 0, 0, 0, time.UTC)
	return c.firstDay(day).Add(c.dayStart)
}

func (c *calendar) firstDay(day time.Time) time.Time {
	switch c.kind {
	case Yearly:
		first := c.yearStart.in(day.Year())
		if first.After(day) {
			first = c.yearStart.in(day.Year() - 1)
		}
		return first
	case Quarterly:
		return time.Date(day.Year(), day.Month()-(day.Month()-1)%3, 1, 0, 0, 0, 0, time.UTC)
	case Monthly:
		return day.AddDate(0, 0, 1-day.Day())
	case Weekly:
		return day.AddDate(0, 0, -((int(day.Weekday()) + 6 - int(c.weekStart) + 7) % 7))
	default:
		return day
	}
}

func (c *calendar) next(first time.Time) time.Time {
	switch c.kind {
	case Yearly:
		return first.AddDate(1, 0, 0)
	case Quarterly:
		return first.AddDate(0, 3, 0)
	case Monthly:
		return first.AddDate(0, 1, 0)
	case Weekly:
		return first.AddDate(0, 0, 7)
	case Hourly:
		return first.Add(time.Hour)
	case Every:
		return first.Add(c.every)
	default:
		return first.AddDate(0, 0, 1)
	}
}

func (c *calendar) season(first time.Time) Season {
	return Season{c.id(first), firstInstant(first, c.loc), firstInstant(c.next(first), c.loc)}
}

// year returns the year in the season's id. The year of an ISO 8601 week is the year of its Thursday.
func (c *calendar) year(first time.Time) int {
	if c.kind == Weekly {
		return c.thursday(first).Year()
	}
	return first.Year()
}

func (c *calendar) thursday(first time.Time) time.Time {
	return first.AddDate(0, 0, (int(Thursday)-int(c.weekStart)+7)%7)
}

// ids has the form of the season ids of a kind, and the layout of package time for the ids' readings.
var ids = map[ScheduleKind]struct{ form, layout string }{
	Hourly:    {"an hour as YYYYMMDDHH", "2006010215"},
	Daily:     {"a day as YYYYMMDD", dayLayout},
	Weekly:    {form: "an ISO week as YYYYWnn"},
	Monthly:   {"a month as YYYYMM", "200601"},
	Quarterly: {form: "a quarter as YYYYQn"},
	Yearly:    {"a year as YYYY", "2006"},
	Rolling:   {"the last day of a window as YYYYMMDD", dayLayout},
	Every:     {"the start of a season as YYYYMMDDTHHMM", "20060102T1504"},
}

const dayLayout = "20060102"

func (c *calendar) id(first time.Time) SeasonID {
	switch c.kind {
	case Weekly:
		year, week := c.thursday(first).ISOWeek()
		return SeasonID(fmt.Sprintf("%04dW%02d", year, week))
	case Quarterly:
		return SeasonID(fmt.Sprintf("%04dQ%d", first.Year(), (first.Month()+2)/3))
	default:
		return SeasonID(first.Format(ids[c.kind].layout))
	}
}

// parse returns false if no season in the years 1 to 9999 has the id.
func (c *calendar) parse(id SeasonID) (first time.Time, ok bool) {
	switch c.kind {
	case None, Explicit:
		return first, false
	case Weekly, Quarterly:
		separator, largest := "W", 53
		if c.kind == Quarterly {
			separator, largest = "Q", 4
		}
		before, after, _ := strings.Cut(string(id), separator)
		year, _ := strconv.Atoi(before)
		n, _ := strconv.Atoi(after)
		if year > 9999 || n > largest { // avoid dates that overflow
			return first, false
		}
		if first = time.Date(year, time.Month(3*n-2), 1, 0, 0, 0, 0, time.UTC); c.kind == Weekly {
			// The fourth of January is always in the ISO week 1. The next line finds the week's Thursday.
			day := time.Date(year, time.January, 4+7*(n-1), 0, 0, 0, 0, time.UTC)
			first = day.AddDate(0, 0, 3-(int(day.Weekday())+6)%7)
		}
	default:
		first, _ = time.Parse(ids[c.kind].layout, string(id))
		if c.kind == Yearly {
			first = c.yearStart.in(first.Year())
		}
	}
	first = c.first(first.Add(c.dayStart))
	// Reject other spellings of an id, such as 2026W5 for 2026W05.
	return first, !first.Before(c.from) && c.year(first) >= 1 && c.id(first) == id
}

// maxOffset is greater than every offset from UTC that a time zone has had.
const maxOffset = 25 * time.Hour

// firstInstant returns the first instant, in UTC, at which a clock in loc shows the
// given reading or a later one. It examines one period of constant offset after another, until
// a period contains the reading or begins after it. firstInstant does not use
// [time.Date], because the result for a skipped or repeated reading is unspecified.
func firstInstant(reading time.Time, loc *time.Location) time.Time {
	start := reading.Add(-maxOffset).In(loc)
	for {
		_, offset := start.Zone()
		at := reading.Add(-time.Duration(offset) * time.Second)
		if at.Before(start) {
			at = start // the clocks jumped past the reading when this period started
		}
		_, end := start.ZoneBounds()
		if !end.IsZero() && !end.After(start) {
			// After the last change in the zone's data, ZoneBounds gives every year 365
			// days. In leap years, the last period therefore lacks December 31, in UTC.
			end = start.Truncate(24 * time.Hour).Add(24 * time.Hour)
		}
		if end.IsZero() || at.Before(end) {
			return at.UTC()
		}
		start = end
	}
}

// readingOf returns what a clock in loc shows at t.
func readingOf(t time.Time, loc *time.Location) time.Time {
	_, offset := t.In(loc).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

var locations sync.Map // string to *time.Location

// location rejects the machine's local zone ("Local", "localtime"), and zones with leap
// seconds ("right/…"), which some machines lack.
func location(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if loc, ok := locations.Load(name); ok {
		return loc.(*time.Location), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "localtime" || strings.HasPrefix(name, "right/") {
		return nil, fieldErrorf("season.time_zone", "%.64q is not in the IANA time zone database; use a name such as Europe/Berlin", name)
	}
	locations.Store(name, loc)
	return loc, nil
}
