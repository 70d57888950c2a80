package leaderboard

import (
	"errors"
	"time"
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
	Hourly
	Quarterly
	Every // seasons of the length Schedule.Every, from Schedule.From on
)

var scheduleNames = []string{"NONE", "DAILY", "WEEKLY", "MONTHLY", "EXPLICIT", "YEARLY", "ROLLING", "HOURLY", "QUARTERLY", "EVERY"}

func (k ScheduleKind) String() string { return enumString(scheduleNames, int(k)) }

// MarshalText writes the name that the API uses, such as MONTHLY.
func (k ScheduleKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (k *ScheduleKind) UnmarshalText(text []byte) error {
	return parseEnum("season.schedule", scheduleNames, text, k)
}

func (s Season) inUTC() Season { return Season{s.ID, s.Start.UTC(), s.End.UTC()} }
