package leaderboard

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for machines without a time zone database
)

// ErrSeasonNotFound means that a board has no season at a time or with an id.
var ErrSeasonNotFound = errors.New("season not found")

// SeasonAll is the only season of a board with the schedule [None].
const SeasonAll SeasonID = "all"

// SeasonLatest is the id with which a read selects the newest season with entries.
const SeasonLatest SeasonID = "latest"

// seasonWords are the words for seasons in requests. New windows must not have these ids.
var seasonWords = []string{string(SeasonAll), string(SeasonLatest), "current"}

// Season is [Start, End) in UTC. In [SeasonAll], Start is zero, and End is zero
// unless the season ended early.
type Season struct {
	ID    SeasonID  `json:"id"`
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
}

// Contains reports whether t is in s.
func (s Season) Contains(t time.Time) bool {
	if s.Start.IsZero() && s.End.IsZero() {
		return true
	}
	return !t.Before(s.Start) && t.Before(s.End)
}

// ScheduleKind is a way to divide time into seasons.
type ScheduleKind int8

// The kinds of schedules.
const (
	None ScheduleKind = iota // one season without a scheduled end
	Daily
	Weekly // numbered as in ISO 8601
	Monthly
	Explicit // the seasons listed in Schedule.Windows
	Yearly
	Rolling // a season for each day: this day and the days before it, Schedule.Days in all
)

var scheduleNames = []string{"NONE", "DAILY", "WEEKLY", "MONTHLY", "EXPLICIT", "YEARLY", "ROLLING"}

func (k ScheduleKind) String() string { return enumString(scheduleNames, int(k)) }

// MarshalText writes the name that the API uses, such as MONTHLY.
func (k ScheduleKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (k *ScheduleKind) UnmarshalText(text []byte) error {
	return parseEnum("season.schedule", scheduleNames, text, k)
}

func (s Season) inUTC() Season { return Season{s.ID, s.Start.UTC(), s.End.UTC()} }

// In the functions below, a day is a calendar day in no particular time zone, represented
// by its midnight in UTC. The parameter first is a season's first day, but a rolling
// window's last day.

func (k ScheduleKind) firstDay(day time.Time) time.Time {
	switch k {
	case Yearly:
		return day.AddDate(0, 0, 1-day.YearDay())
	case Monthly:
		return day.AddDate(0, 0, 1-day.Day())
	case Weekly:
		return day.AddDate(0, 0, -((int(day.Weekday()) + 6) % 7))
	default:
		return day
	}
}

func (k ScheduleKind) nextFirstDay(first time.Time) time.Time {
	switch k {
	case Yearly:
		return first.AddDate(1, 0, 0)
	case Monthly:
		return first.AddDate(0, 1, 0)
	case Weekly:
		return first.AddDate(0, 0, 7)
	default:
		return first.AddDate(0, 0, 1)
	}
}

func (k ScheduleKind) season(first time.Time, loc *time.Location) Season {
	return Season{k.id(first), dayStart(first, loc), dayStart(k.nextFirstDay(first), loc)}
}

// The year of an ISO 8601 week may differ from the year of its first day.
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
	Yearly:  "a year as YYYY",
	Rolling: "the last day of a window as YYYYMMDD",
}

const (
	yearLayout  = "2006"
	monthLayout = "200601"
	dayLayout   = "20060102"
)

func (k ScheduleKind) id(first time.Time) SeasonID {
	switch k {
	case Yearly:
		return SeasonID(first.Format(yearLayout))
	case Monthly:
		return SeasonID(first.Format(monthLayout))
	case Weekly:
		year, week := first.ISOWeek()
		return SeasonID(fmt.Sprintf("%04dW%02d", year, week))
	default:
		return SeasonID(first.Format(dayLayout))
	}
}

// parse returns false if no season in the years 1 to 9999 has the id.
func (k ScheduleKind) parse(id SeasonID) (first time.Time, ok bool) {
	switch k {
	case Yearly:
		first, _ = time.Parse(yearLayout, string(id))
	case Monthly:
		first, _ = time.Parse(monthLayout, string(id))
	case Weekly:
		yyyy, ww, _ := strings.Cut(string(id), "W")
		year, _ := strconv.Atoi(yyyy)
		week, _ := strconv.Atoi(ww)
		if year > 9999 || week > 53 { // avoid dates that overflow
			return first, false
		}
		// The fourth of January is always in week 1.
		first = k.firstDay(time.Date(year, time.January, 4+7*(week-1), 0, 0, 0, 0, time.UTC))
	case Daily, Rolling:
		first, _ = time.Parse(dayLayout, string(id))
	}
	// Reject other spellings of an id, such as 2026W5 for 2026W05.
	return first, k.year(first) >= 1 && k.id(first) == id
}

// maxOffset is greater than every offset from UTC that a time zone has had.
const maxOffset = 25 * time.Hour

// dayStart returns the first instant, in UTC, at which the calendar in loc shows the
// given day or a later day. It examines one period of constant offset after another, until
// a period contains the day's midnight or begins after it. dayStart does not use
// [time.Date], because the result for a skipped or repeated midnight is unspecified.
func dayStart(day time.Time, loc *time.Location) time.Time {
	start := day.Add(-maxOffset).In(loc)
	for {
		_, offset := start.Zone()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		if midnight.Before(start) {
			midnight = start // the clocks jumped past midnight when this period started
		}
		_, end := start.ZoneBounds()
		if !end.IsZero() && !end.After(start) {
			// After the last change in the zone's data, ZoneBounds gives every year 365
			// days. In leap years, the last period therefore lacks December 31, in UTC.
			end = start.Truncate(24 * time.Hour).Add(24 * time.Hour)
		}
		if end.IsZero() || midnight.Before(end) {
			return midnight.UTC()
		}
		start = end
	}
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
