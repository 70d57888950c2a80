package leaderboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

var _ = needs.PackageWithoutRace("the rules start no goroutines")

func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seed.New(t), 0))
}

func utc(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC()
}

func window(t *testing.T, id SeasonID, start, end string) Season {
	t.Helper()
	return Season{id, utc(t, start), utc(t, end)}
}

// oddZones include zones with skipped or repeated midnights and days, changes by half an
// hour, and offsets that are not whole minutes.
var oddZones = []string{
	"", "UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow",
	"America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Havana",
	"America/Asuncion", "America/Santiago", "America/Scoresbysund", "America/Nuuk", "America/Juneau", "America/Caracas",
	"America/Punta_Arenas", "Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "Africa/Juba", "Asia/Beirut",
	"Asia/Gaza", "Asia/Amman", "Asia/Damascus", "Asia/Tehran", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Manila",
	"Asia/Pyongyang", "Australia/Lord_Howe", "Australia/Sydney", "Pacific/Apia", "Pacific/Fakaofo",
	"Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Chatham", "Pacific/Guam", "Antarctica/Troll", "Asia/Tokyo",
}

var calendarKinds = []ScheduleKind{Hourly, Daily, Weekly, Monthly, Quarterly, Yearly}

// randomSchedule returns a valid schedule of a kind, with random settings.
func randomSchedule(rng *rand.Rand, kind ScheduleKind, zone string) Schedule {
	s := Schedule{Kind: kind, TimeZone: zone}
	if kind != Hourly && kind != Every && rng.IntN(2) == 0 {
		s.DayStart = TimeOfDay(rng.IntN(24 * 60))
	}
	switch kind {
	case Weekly:
		s.WeekStart = Weekday(rng.IntN(7))
	case Yearly:
		s.YearStart = MonthDay(rng.IntN(365))
	case Rolling:
		s.Days = MinDays + rng.IntN(MaxDays-MinDays+1)
	case Every:
		s.Every = []time.Duration{time.Minute, 45 * time.Minute, 5 * time.Hour, 336 * time.Hour, MaxEvery}[rng.IntN(5)]
		loc, _ := location(zone)
		s.From = firstInstant(time.Date(1+rng.IntN(1800), 1, 2, rng.IntN(24), rng.IntN(60), 0, 0, time.UTC), loc)
	}
	return s
}

func TestSeasonAt(t *testing.T) {
	for _, tt := range []struct {
		name, zone string
		kind       ScheduleKind
		at         string
		id         SeasonID
		start, end string
	}{
		{"a month in UTC", "", Monthly, "2026-11-20T10:00:00Z", "202611", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"the last nanosecond of a month", "", Monthly, "2026-11-30T23:59:59.999999999Z", "202611", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"the first instant of a month", "", Monthly, "2026-12-01T00:00:00Z", "202612", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"a day", "", Daily, "2026-11-20T10:00:00Z", "20261120", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{"a leap day", "", Daily, "2024-02-29T10:00:00Z", "20240229", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"a week", "", Weekly, "2026-11-20T10:00:00Z", "2026W47", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"a Sunday ends its week", "", Weekly, "2026-11-22T23:59:59Z", "2026W47", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"a week that belongs to the previous year", "", Weekly, "2027-01-03T00:00:00Z", "2026W53", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{"a week that belongs to the next year", "", Weekly, "2024-12-30T00:00:00Z", "2025W01", "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z"},
		{"a year in UTC", "", Yearly, "2026-11-20T10:00:00Z", "2026", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"the last day of a leap year", "", Yearly, "2024-12-31T23:59:59Z", "2024", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"},
		{"a year begins with the zone's midnight", "Asia/Tokyo", Yearly, "2025-12-31T15:00:00Z", "2026", "2025-12-31T15:00:00Z", "2026-12-31T15:00:00Z"},
		{"the last year", "", Yearly, "9999-12-31T00:00:00Z", "9999", "9999-01-01T00:00:00Z", "+"},
		{"a month begins with the zone's midnight", "Asia/Tokyo", Monthly, "2026-10-31T15:00:00Z", "202611", "2026-10-31T15:00:00Z", "2026-11-30T15:00:00Z"},
		{"a month with a change to summer time", "Europe/Berlin", Monthly, "2026-03-31T21:59:59Z", "202603", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{"a short day", "Europe/Berlin", Daily, "2026-03-29T10:00:00Z", "20260329", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"a long day", "Europe/Berlin", Daily, "2026-10-25T10:00:00Z", "20261025", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"a skipped midnight, Brazil", "America/Sao_Paulo", Daily, "2018-11-04T03:00:00Z", "20181104", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"a skipped midnight, Lebanon", "Asia/Beirut", Daily, "2021-03-27T22:00:00Z", "20210328", "2021-03-27T22:00:00Z", "2021-03-28T21:00:00Z"},
		{"a skipped midnight, Cuba", "America/Havana", Daily, "2024-03-10T05:00:00Z", "20240310", "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z"},
		{"a skipped midnight, Egypt", "Africa/Cairo", Daily, "2024-04-25T22:00:00Z", "20240426", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"},
		// The clock showed 23:59:59, then 23:00:00 again. The new day began one hour later.
		{"a repeated hour before midnight, Brazil", "America/Sao_Paulo", Daily, "2018-02-18T02:30:00Z", "20180217", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"a repeated hour before midnight, Egypt", "Africa/Cairo", Daily, "2024-10-31T21:30:00Z", "20241031", "2024-10-30T21:00:00Z", "2024-10-31T22:00:00Z"},
		// The clock showed 00:59:59, then 00:00 again.
		{"a repeated midnight, Cuba", "America/Havana", Daily, "2024-11-03T05:00:00Z", "20241103", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"},
		// The clock showed 00:00:59, then 23:01:00.
		{"a midnight, one minute before clocks go back to the previous day", "America/St_Johns", Daily, "2010-11-07T02:30:00Z", "20101107", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"the repeated last hour of the previous day", "America/St_Johns", Daily, "2010-11-07T03:15:00Z", "20101107", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		// In Samoa, Saturday, December 31 followed Thursday, December 29.
		{"the day before a skipped day", "Pacific/Apia", Daily, "2011-12-30T09:59:59Z", "20111229", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"the day after a skipped day", "Pacific/Apia", Daily, "2011-12-30T10:00:00Z", "20111231", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"a week of six days", "Pacific/Apia", Weekly, "2011-12-30T10:00:00Z", "2011W52", "2011-12-26T10:00:00Z", "2012-01-01T10:00:00Z"},
		// Kwajalein's clocks went back 23 hours at a midnight in 1969.
		{"a repeated day", "Pacific/Kwajalein", Daily, "1969-10-01T11:59:59Z", "19690930", "1969-09-29T13:00:00Z", "1969-10-01T12:00:00Z"},
		{"the last day of a leap year far ahead", "Europe/Berlin", Daily, "2040-12-31T12:00:00Z", "20401231", "2040-12-30T23:00:00Z", "2040-12-31T23:00:00Z"},
		{"an hour", "", Hourly, "2026-11-20T10:59:59.9Z", "2026112010", "2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z"},
		{"an hour of a zone with half hours", "Asia/Kolkata", Hourly, "2026-11-20T10:30:00Z", "2026112016", "2026-11-20T10:30:00Z", "2026-11-20T11:30:00Z"},
		{"the hour after a skipped one", "Europe/Berlin", Hourly, "2026-03-29T01:00:00Z", "2026032903", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		{"an hour that clocks show twice", "Europe/Berlin", Hourly, "2026-10-25T01:30:00Z", "2026102502", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{"a quarter", "", Quarterly, "2026-12-31T23:59:59Z", "2026Q4", "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"a quarter begins with the zone's midnight", "America/New_York", Quarterly, "2026-04-01T04:00:00Z", "2026Q2", "2026-04-01T04:00:00Z", "2026-07-01T04:00:00Z"},
		{"the last hour", "", Hourly, "9999-12-31T22:00:00Z", "9999123122", "9999-12-31T22:00:00Z", "9999-12-31T23:00:00Z"},
		{"the first day of the year 1", "", Daily, "0001-01-01T00:00:00Z", "00010101", "0001-01-01T00:00:00Z", "0001-01-02T00:00:00Z"},
		{"the last week of the year 9999", "", Weekly, "9999-12-31T00:00:00Z", "9999W52", "9999-12-27T00:00:00Z", "+"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Schedule{Kind: tt.kind, TimeZone: tt.zone}
			want := Season{ID: tt.id, Start: utc(t, tt.start)}
			if tt.end == "+" { // the year 10000, which RFC 3339 cannot represent
				day := map[ScheduleKind]int{Weekly: 3, Yearly: 1}[tt.kind]
				want.End = time.Date(10_000, time.January, day, 0, 0, 0, 0, time.UTC)
			} else {
				want.End = utc(t, tt.end)
			}
			got, err := s.At(utc(t, tt.at))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("At(%s) (-want +got):\n%s", tt.at, diff)
			}
			if byID, err := s.ByID(tt.id); err != nil || byID != got {
				t.Errorf("ByID(%q) = %v, %v, want %v", tt.id, byID, err, got)
			}
		})
	}
}

func TestSeasonStarts(t *testing.T) {
	decode := func(settings string) (s Schedule) {
		t.Helper()
		if err := json.Unmarshal([]byte(settings), &s); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tt := range []struct {
		name, settings, at string
		id                 SeasonID
		start, end         string
	}{
		{"before the day's start", `{"schedule":"DAILY","day_start":"04:00"}`, "2026-11-20T03:59:59Z", "20261119", "2026-11-19T04:00:00Z", "2026-11-20T04:00:00Z"},
		{"the day's start", `{"schedule":"DAILY","day_start":"04:00"}`, "2026-11-20T04:00:00Z", "20261120", "2026-11-20T04:00:00Z", "2026-11-21T04:00:00Z"},
		{"a skipped start", `{"schedule":"DAILY","day_start":"02:30","time_zone":"Europe/Berlin"}`, "2026-03-29T12:00:00Z", "20260329", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"a start shown twice", `{"schedule":"DAILY","day_start":"02:30","time_zone":"Europe/Berlin"}`, "2026-10-25T01:00:00Z", "20261025", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"a week from Sunday", `{"schedule":"WEEKLY","week_start":"SUNDAY"}`, "2026-11-22T00:00:00Z", "2026W48", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"a week from Thursday, which may begin in the year before its id", `{"schedule":"WEEKLY","week_start":"FRIDAY","day_start":"18:00"}`, "2026-01-01T00:00:00Z", "2026W01", "2025-12-26T18:00:00Z", "2026-01-02T18:00:00Z"},
		{"the week of the launch day of many games", `{"schedule":"WEEKLY","week_start":"TUESDAY","day_start":"17:00"}`, "2026-11-24T16:59:59Z", "2026W47", "2026-11-17T17:00:00Z", "2026-11-24T17:00:00Z"},
		{"a month whose days begin at six", `{"schedule":"MONTHLY","day_start":"06:00"}`, "2026-11-01T05:00:00Z", "202610", "2026-10-01T06:00:00Z", "2026-11-01T06:00:00Z"},
		{"a fiscal year", `{"schedule":"YEARLY","year_start":"04-01"}`, "2026-03-31T23:59:59Z", "2025", "2025-04-01T00:00:00Z", "2026-04-01T00:00:00Z"},
		{"a year from September 1, at noon", `{"schedule":"YEARLY","year_start":"09-01","day_start":"12:00","time_zone":"Asia/Tokyo"}`, "2026-09-01T03:00:00Z", "2026", "2026-09-01T03:00:00Z", "2027-09-01T03:00:00Z"},
		{"two weeks across a change to winter time", `{"schedule":"EVERY","every":1209600000000000,"from":"2026-10-19T02:00:00Z","time_zone":"Europe/Berlin"}`, "2026-11-02T02:59:59Z", "20261019T0400", "2026-10-19T02:00:00Z", "2026-11-02T03:00:00Z"},
		{"the next two weeks", `{"schedule":"EVERY","every":1209600000000000,"from":"2026-10-19T02:00:00Z","time_zone":"Europe/Berlin"}`, "2026-11-02T03:00:00Z", "20261102T0400", "2026-11-02T03:00:00Z", "2026-11-16T03:00:00Z"},
		{"a rolling window", `{"schedule":"ROLLING","days":7,"day_start":"04:00"}`, "2026-11-21T03:00:00Z", "20261120", "2026-11-14T04:00:00Z", "2026-11-21T04:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := decode(tt.settings)
			want := Season{tt.id, utc(t, tt.start), utc(t, tt.end)}
			got, err := s.At(utc(t, tt.at))
			if err != nil || got != want {
				t.Errorf("At(%s) = %v, %v, want %v", tt.at, got, err, want)
			}
			if byID, err := s.ByID(tt.id); err != nil || byID != got {
				t.Errorf("ByID(%q) = %v, %v, want %v", tt.id, byID, err, got)
			}
			encoded, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if again := decode(string(encoded)); !cmp.Equal(s, again) {
				t.Errorf("%s reads as %+v, want %+v", encoded, again, s)
			}
		})
	}
	every := decode(`{"schedule":"EVERY","every":3600000000000,"from":"2026-11-20T04:30:00Z"}`)
	if got, err := every.At(utc(t, "2026-11-20T04:29:59Z")); !errors.Is(err, ErrSeasonNotFound) || !strings.Contains(err.Error(), "2026-11-20T04:30:00Z") {
		t.Errorf("At before the first season = %v, %v, want ErrSeasonNotFound with its start", got, err)
	}
	for _, id := range []SeasonID{"20261120T0330", "20261120T0500", "20261120T430", "20261120", "20261120T2530", "202611200430"} {
		if got, err := every.ByID(id); !errors.Is(err, ErrSeasonNotFound) {
			t.Errorf("ByID(%q) = %v, %v, want ErrSeasonNotFound", id, got, err)
		}
	}
	if got, ok := every.After(utc(t, "2020-01-01T00:00:00Z")); !ok || got.ID != "20261120T0430" {
		t.Errorf("After(2020) = %v, %v, want the first season", got, ok)
	}
	for _, settings := range []string{
		`{"day_start":"24:00"}`, `{"day_start":"4:00"}`, `{"day_start":"04:00:00"}`, `{"day_start":""}`, `{"day_start":240}`,
		`{"year_start":"02-29"}`, `{"year_start":"4-1"}`, `{"year_start":"13-01"}`, `{"year_start":"2026-04-01"}`, `{"week_start":"sunday"}`, `{"week_start":"SUN"}`,
	} {
		if err := json.Unmarshal([]byte(settings), &Schedule{}); err == nil {
			t.Errorf("%s is accepted, want an error", settings)
		}
	}
}

func TestSeasonAtAcceptsAnyLocation(t *testing.T) {
	at := time.Date(2026, 11, 30, 23, 30, 0, 0, time.FixedZone("", -3600)) // December in UTC
	got, err := Schedule{Kind: Monthly}.At(at)
	if err != nil || got.ID != "202612" || got.Start.Location() != time.UTC {
		t.Errorf("At(%v) = %v, %v, want 202612 in UTC", at, got, err)
	}
}

func TestSeasonAll(t *testing.T) {
	s := Schedule{}
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(math.MaxInt64/2, 0), time.Unix(math.MinInt64/2, 0)} {
		got, err := s.At(at)
		if err != nil || got != (Season{ID: SeasonAll}) || !got.Contains(at) {
			t.Errorf("At(%v) = %v, %v, want season %q, which contains every time", at, got, err, SeasonAll)
		}
	}
	if got, err := s.ByID(SeasonAll); err != nil || got != (Season{ID: SeasonAll}) {
		t.Errorf("ByID(%q) = %v, %v, want the season without bounds", SeasonAll, got, err)
	}
	if got, ok := s.Previous(Season{ID: SeasonAll}); ok {
		t.Errorf("Previous(all) = %v, want none", got)
	}
}

func TestSeasonAtOutsideYears(t *testing.T) {
	for _, kind := range calendarKinds {
		for _, zone := range []string{"", "America/New_York", "Asia/Tokyo", "Europe/Berlin"} {
			s := Schedule{Kind: kind, TimeZone: zone}
			for _, at := range []time.Time{
				time.Date(0, 12, 30, 0, 0, 0, 0, time.UTC), time.Date(10_000, 1, 3, 20, 0, 0, 0, time.UTC),
				time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10_001, 1, 1, 0, 0, 0, 0, time.UTC),
				time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0),
			} {
				if got, err := s.At(at); !errors.Is(err, ErrSeasonNotFound) {
					t.Errorf("%v in %q: At(%v) = %v, %v, want ErrSeasonNotFound", kind, zone, at.Unix(), got, err)
				}
			}
		}
	}
}

func TestSeasonByIDRejects(t *testing.T) {
	ids := map[ScheduleKind][]SeasonID{
		None:      {"", "ALL", "202611"},
		Daily:     {"", "all", "202611", "2026W47", "20260230", "20250229", "20261301", "20260100", "2026112", "202611201", " 0261120", "00000101", "2026-11-20", "+0261120", "-0011120", "٢٠٢٦١١٢٠"},
		Hourly:    {"", "all", "20261120", "2026112024", "202611209", "2026112010 ", "00000101 1", "20260230 10"},
		Quarterly: {"", "all", "2026", "2026Q0", "2026Q5", "2026Q01", "2026q1", "0000Q1", "Q1", "2026Q", "+026Q1", "99999Q1", "2026Q-1", "2026Q1Q1"},
		Weekly:    {"", "all", "202647", "2025W53", "2026W00", "2026W54", "2026W99", "2026W5", "2026W047", "0000W01", "2026w47", "W47", "2026W", "+026W47", "2026W+1", "-001W01", "99999W01", "99999999999999999999W01", "2026W-1", "2026W47W47", "-99999999999999999999W-99999999999999999999"},
		Yearly:    {"", "all", "0000", "226", "20261", "202611", "2026W47", "+026", "-001", " 026", "２０２６"},
		Monthly:   {"", "all", "202613", "202600", "20261", "2026011", "000001", "2026W47", "20261120", "2026-1", "+02611", "２０２６１１"},
	}
	for kind, list := range ids {
		for _, id := range list {
			if got, err := (Schedule{Kind: kind}).ByID(id); !errors.Is(err, ErrSeasonNotFound) {
				t.Errorf("%v: ByID(%q) = %v, %v, want ErrSeasonNotFound", kind, id, got, err)
			}
		}
	}
	if _, err := (Schedule{Kind: Monthly}).ByID("202613"); !strings.Contains(fmt.Sprint(err), "YYYYMM") {
		t.Errorf("ByID(202613) = %v, want the expected form in the error", err)
	}
	if got, err := (Schedule{Kind: Daily, TimeZone: "Pacific/Apia"}).ByID("20111230"); !errors.Is(err, ErrSeasonNotFound) {
		t.Errorf("ByID of a skipped day = %v, %v, want ErrSeasonNotFound", got, err)
	}
}

func TestSeasonWindows(t *testing.T) {
	spring := window(t, "spring", "2026-03-01T00:00:00Z", "2026-06-01T00:00:00Z")
	cup := window(t, "cup", "2026-06-01T00:00:00Z", "2026-06-20T12:00:00Z")
	fall := window(t, "fall", "2026-09-01T00:00:00Z", "2026-12-01T00:00:00Z")
	berlin, err := location("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := Schedule{Kind: Explicit, Windows: []Season{spring, {cup.ID, cup.Start.In(berlin), cup.End.In(berlin)}, fall}}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]Season{
		"2026-03-01T00:00:00Z":           spring,
		"2026-05-31T23:59:59.999999999Z": spring,
		"2026-06-01T00:00:00Z":           cup,
		"2026-06-20T11:59:59Z":           cup,
		"2026-09-01T00:00:00Z":           fall,
		"2026-11-30T23:59:59Z":           fall,
	} {
		if got, err := s.At(utc(t, at)); err != nil || got != want {
			t.Errorf("At(%s) = %v, %v, want %v", at, got, err, want)
		}
	}
	for _, at := range []string{"2026-02-28T23:59:59Z", "2026-06-20T12:00:00Z", "2026-08-31T23:59:59Z", "2026-12-01T00:00:00Z"} {
		if got, err := s.At(utc(t, at)); !errors.Is(err, ErrSeasonNotFound) {
			t.Errorf("At(%s) = %v, %v, want ErrSeasonNotFound", at, got, err)
		}
	}
	for i, want := range []Season{spring, cup, fall} {
		if got, err := s.ByID(want.ID); err != nil || got != want {
			t.Errorf("ByID(%q) = %v, %v, want %v", want.ID, got, err, want)
		}
		previous, ok := s.Previous(want)
		if ok != (i > 0) || ok && previous != []Season{spring, cup}[i-1] {
			t.Errorf("Previous(%q) = %v, %v, want the window before it, or false for the first window", want.ID, previous, ok)
		}
	}
	if got, err := s.ByID("summer"); !errors.Is(err, ErrSeasonNotFound) {
		t.Errorf("ByID(summer) = %v, %v, want ErrSeasonNotFound", got, err)
	}
	if got, ok := s.Previous(Season{ID: "summer"}); ok {
		t.Errorf("Previous(summer) = %v, want none", got)
	}
}

func TestNoSeasonOutsideTheYears1To9999(t *testing.T) {
	for _, tt := range []struct {
		kind        ScheduleKind
		first, last SeasonID
	}{{Daily, "00010101", "99991231"}, {Weekly, "0001W01", "9999W52"}, {Monthly, "000101", "999912"}, {Quarterly, "0001Q1", "9999Q4"}, {Hourly, "0001010100", "9999123123"}, {Yearly, "0001", "9999"}} {
		s := Schedule{Kind: tt.kind}
		if got, ok := s.Previous(Season{ID: tt.first}); ok {
			t.Errorf("Previous(%q) = %v, want none", tt.first, got)
		}
		last, err := s.ByID(tt.last)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.At(last.End); !errors.Is(err, ErrSeasonNotFound) {
			t.Errorf("At(the end of %q) = %v, %v, want ErrSeasonNotFound", tt.last, got, err)
		}
		if got, ok := s.Previous(Season{ID: "202613"}); ok {
			t.Errorf("Previous of an unknown season = %v, want none", got)
		}
	}
}

func TestSeasonInvariants(t *testing.T) {
	rng := newRand(t)
	start, end := time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC).Unix(), time.Date(9999, 12, 20, 0, 0, 0, 0, time.UTC).Unix()
	recentStart, recentEnd := time.Date(1840, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, zone := range oddZones {
		for _, kind := range append([]ScheduleKind{Rolling, Every}, calendarKinds...) {
			var s Schedule
			for i := range 200 {
				if i%20 == 0 {
					if s = randomSchedule(rng, kind, zone); s.Validate() != nil {
						t.Fatalf("%+v: %v", s, s.Validate())
					}
				}
				at := time.Unix(recentStart+rng.Int64N(recentEnd-recentStart), rng.Int64N(1e9))
				if i%4 == 0 && kind != Every {
					at = time.Unix(start+400*86400+rng.Int64N(end-start-800*86400), rng.Int64N(1e9))
				}
				season, err := s.At(at)
				if err != nil {
					t.Fatalf("%v in %q: At(%v): %v", kind, zone, at, err)
				}
				if !season.Contains(at) {
					t.Fatalf("%v in %q: At(%v) = %v, want a season that contains this time", kind, zone, at, season)
				}
				for _, edge := range []time.Time{s.Begins(season), season.End.Add(-1)} {
					if got, err := s.At(edge); err != nil || got != season {
						t.Fatalf("%v in %q: At(%v) = %v, %v, want %v", kind, zone, edge, got, err, season)
					}
				}
				if got, err := s.ByID(season.ID); err != nil || got != season {
					t.Fatalf("%v in %q: ByID(%q) = %v, %v, want %v", kind, zone, season.ID, got, err, season)
				}
				next, err := s.At(season.End)
				if err != nil || !s.Begins(next).Equal(season.End) || next.ID <= season.ID || !next.Start.Before(next.End) {
					t.Fatalf("%v in %q: the season at the end of %v is %v, %v, want the next season", kind, zone, season, next, err)
				}
				if back, ok := s.Previous(next); !ok || back != season {
					t.Fatalf("%v in %q: Previous(%v) = %v, %v, want %v", kind, zone, next, back, ok, season)
				}
			}
		}
	}
}

func TestRollingWindows(t *testing.T) {
	for _, tt := range []struct {
		name, zone string
		days       int
		at         string
		id         SeasonID
		start, end string
		previous   SeasonID
	}{
		{"seven days", "", 7, "2026-11-21T10:00:00Z", "20261121", "2026-11-15T00:00:00Z", "2026-11-22T00:00:00Z", "20261120"},
		{"two days across a year", "", 2, "2027-01-01T00:00:00Z", "20270101", "2026-12-31T00:00:00Z", "2027-01-02T00:00:00Z", "20261231"},
		{"31 days with a leap day", "", 31, "2024-03-01T23:59:59Z", "20240301", "2024-01-31T00:00:00Z", "2024-03-02T00:00:00Z", "20240229"},
		{"the end of summer time", "America/New_York", 3, "2026-11-02T12:00:00Z", "20261102", "2026-10-31T04:00:00Z", "2026-11-03T05:00:00Z", "20261101"},
		{"a skipped day", "Pacific/Apia", 3, "2011-12-30T10:00:00Z", "20111231", "2011-12-29T10:00:00Z", "2011-12-31T10:00:00Z", "20111229"},
		{"the first days of the year 1", "", 7, "0001-01-03T00:00:00Z", "00010103", "0001-01-01T00:00:00Z", "0001-01-04T00:00:00Z", "00010102"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Schedule{Kind: Rolling, Days: tt.days, TimeZone: tt.zone}
			want := Season{tt.id, utc(t, tt.start), utc(t, tt.end)}
			if got, err := s.At(utc(t, tt.at)); err != nil || got != want {
				t.Errorf("At(%s) = %v, %v, want %v", tt.at, got, err, want)
			}
			if got, err := s.ByID(tt.id); err != nil || got != want {
				t.Errorf("ByID(%s) = %v, %v, want %v", tt.id, got, err, want)
			}
			if got, ok := s.Previous(want); !ok || got.ID != tt.previous {
				t.Errorf("Previous(%v) = %v, %v, want %s", want, got, ok, tt.previous)
			}
			if got := s.Begins(want); got.After(utc(t, tt.at)) || want.End.Sub(got) > 25*time.Hour {
				t.Errorf("Begins(%v) = %v, want the start of the window's last day", want, got)
			}
		})
	}
	for _, id := range []SeasonID{"20111230", "202611", "2026", "all"} {
		if got, err := (Schedule{Kind: Rolling, Days: 7, TimeZone: "Pacific/Apia"}).ByID(id); !errors.Is(err, ErrSeasonNotFound) {
			t.Errorf("ByID(%s) = %v, %v, want ErrSeasonNotFound", id, got, err)
		}
	}
}

// Around some changes of offset, the test reads a zone's clock every ten minutes, and every
// minute at some hours. The season at a reading must be the latest one that the clock has
// shown so far. The ids of seasons that a reading shows are computed by package time alone.
func TestSeasonAgainstTheClock(t *testing.T) {
	ticks, rng := 0, newRand(t)
	from := time.Date(1800, 1, 1, 4, 30, 0, 0, time.UTC)
	const step = 90 * 60
	for _, zone := range oddZones {
		loc, err := location(zone)
		if err != nil {
			t.Fatal(err)
		}
		schedules := []struct {
			s       Schedule
			showsID func(reading time.Time) string
		}{
			{Schedule{Kind: Daily}, func(r time.Time) string { return r.Format("20060102") }},
			{Schedule{Kind: Daily, DayStart: 90}, func(r time.Time) string { return r.Add(-90 * time.Minute).Format("20060102") }},
			{Schedule{Kind: Hourly}, func(r time.Time) string { return r.Format("2006010215") }},
			{Schedule{Kind: Every, Every: step * time.Second, From: firstInstant(from, loc)}, func(r time.Time) string {
				passed := r.Unix() - from.Unix()
				return time.Unix(from.Unix()+passed/step*step, 0).UTC().Format("20060102T1504")
			}},
			{Schedule{Kind: Weekly, WeekStart: Sunday, DayStart: 23 * 60}, func(r time.Time) string {
				r = r.Add(-23 * time.Hour)
				for r.Weekday() != time.Sunday {
					r = r.AddDate(0, 0, -1)
				}
				year, week := r.AddDate(0, 0, 4).ISOWeek()
				return fmt.Sprintf("%04dW%02d", year, week)
			}},
			{Schedule{Kind: Quarterly}, func(r time.Time) string { return fmt.Sprintf("%dQ%d", r.Year(), (int(r.Month())-1)/3+1) }},
		}
		for _, at := range transitions(loc) {
			if rng.IntN(4) > 0 {
				continue
			}
			c := schedules[rng.IntN(len(schedules))]
			s, latest, season := c.s, "", Season{}
			s.TimeZone = zone
			for tick := at.Add(-50 * time.Hour); tick.Before(at.Add(25 * time.Hour)); ticks++ {
				local := tick.In(loc)
				latest = max(latest, c.showsID(time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)))
				// Before the first reading, the clock may have shown a later season. So the test does
				// not check the first 25 hours.
				if !tick.Before(at.Add(-25 * time.Hour)) {
					if season.ID == "" || !season.Contains(tick) {
						if season, err = s.At(tick); err != nil {
							t.Fatalf("%+v: At(%v): %v", s, tick, err)
						}
					}
					if string(season.ID) != latest {
						t.Fatalf("%+v: at %v the season is %v, want the latest season shown, %s", s, tick, season, latest)
					}
				}
				if hour := local.Hour(); hour >= 23 || hour <= 3 {
					tick = tick.Add(time.Minute)
				} else {
					tick = tick.Add(10 * time.Minute)
				}
			}
		}
	}
	if ticks < 200_000 {
		t.Errorf("the clocks were read %d times, want at least 200,000 times", ticks)
	}
}

// transitions returns, for each change of loc's offset from 1840 to 2045, an instant at
// most one day after the change.
func transitions(loc *time.Location) []time.Time {
	var list []time.Time
	offset := func(at time.Time) time.Duration { // from UTC
		l := at.In(loc)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC).Sub(at)
	}
	at := time.Date(1840, 1, 1, 0, 0, 0, 0, time.UTC)
	for previous := offset(at); at.Year() < 2045; {
		at = at.Add(24 * time.Hour)
		if current := offset(at); current != previous {
			list, previous = append(list, at), current
		}
	}
	return list
}

func TestScheduleValidate(t *testing.T) {
	a := window(t, "a", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
	b := window(t, "b", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
	for _, tt := range []struct {
		name   string
		s      Schedule
		fields []string // in order
	}{
		{"no schedule", Schedule{}, nil},
		{"monthly with a zone and grace", Schedule{Kind: Monthly, TimeZone: "America/Sao_Paulo", Grace: time.Hour}, nil},
		{"weeks from Sunday at 04:00", Schedule{Kind: Weekly, WeekStart: Sunday, DayStart: 240}, nil},
		{"fiscal years", Schedule{Kind: Yearly, YearStart: 90}, nil},
		{"two weeks", Schedule{Kind: Every, Every: 336 * time.Hour, From: utc(t, "2026-01-05T03:00:00Z"), TimeZone: "Europe/Berlin"}, nil},
		{"a length without a start", Schedule{Kind: Every, Every: time.Hour}, []string{"season.from"}},
		{"a start without a length", Schedule{Kind: Every, From: a.Start}, []string{"season.every"}},
		{"a length of seconds", Schedule{Kind: Every, Every: 90 * time.Second, From: a.Start}, []string{"season.every"}},
		{"a negative length", Schedule{Kind: Every, Every: -time.Hour, From: a.Start}, []string{"season.every"}},
		{"a length above the largest", Schedule{Kind: Every, Every: MaxEvery + time.Minute, From: a.Start}, []string{"season.every"}},
		{"a start with seconds", Schedule{Kind: Every, Every: time.Hour, From: a.Start.Add(time.Second)}, []string{"season.from"}},
		{"a start at the second time of the day", Schedule{Kind: Every, Every: time.Hour, From: utc(t, "2026-10-25T01:30:00Z"), TimeZone: "Europe/Berlin"}, []string{"season.from"}},
		{"a start after the year 9999", Schedule{Kind: Every, Every: time.Hour, From: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, []string{"season.from"}},
		{"starts that the schedule does not use", Schedule{Kind: Hourly, DayStart: 1, WeekStart: Sunday, YearStart: 1, Every: time.Hour, From: a.Start},
			[]string{"season.day_start", "season.week_start", "season.year_start", "season.every", "season.from"}},
		{"a day of 24:00", Schedule{Kind: Daily, DayStart: 24 * 60}, []string{"season.day_start"}},
		{"an eighth day of the week", Schedule{Kind: Weekly, WeekStart: 7}, []string{"season.week_start"}},
		{"adjacent windows", Schedule{Kind: Explicit, Windows: []Season{a, b}}, nil},
		{"an unknown kind", Schedule{Kind: 10}, []string{"season.schedule"}},
		{"an unknown zone", Schedule{Kind: Daily, TimeZone: "Europe/Atlantis"}, []string{"season.time_zone"}},
		{"the machine's zone", Schedule{Kind: Daily, TimeZone: "Local"}, []string{"season.time_zone"}},
		{"the machine's zone by the name of its file", Schedule{Kind: Daily, TimeZone: "localtime"}, []string{"season.time_zone"}},
		{"a zone that counts leap seconds", Schedule{Kind: Daily, TimeZone: "right/Europe/Berlin"}, []string{"season.time_zone"}},
		{"a path in place of a zone", Schedule{Kind: Daily, TimeZone: "../../etc/passwd"}, []string{"season.time_zone"}},
		{"negative grace", Schedule{Kind: Daily, Grace: -1}, []string{"season.grace"}},
		{"windows on a monthly schedule", Schedule{Kind: Monthly, Windows: []Season{a}}, []string{"season.windows"}},
		{"windows of two days", Schedule{Kind: Rolling, Days: 2}, nil},
		{"windows of 31 days", Schedule{Kind: Rolling, Days: 31}, nil},
		{"a rolling schedule without days", Schedule{Kind: Rolling}, []string{"season.days"}},
		{"windows of one day", Schedule{Kind: Rolling, Days: 1}, []string{"season.days"}},
		{"windows of 32 days", Schedule{Kind: Rolling, Days: 32}, []string{"season.days"}},
		{"windows of -7 days", Schedule{Kind: Rolling, Days: -7}, []string{"season.days"}},
		{"days on a daily schedule", Schedule{Kind: Daily, Days: 7}, []string{"season.days"}},
		{"days on an explicit schedule", Schedule{Kind: Explicit, Days: 7, Windows: []Season{a}}, []string{"season.days"}},
		{"an explicit schedule without windows", Schedule{Kind: Explicit}, []string{"season.windows"}},
		{"overlapping windows", Schedule{Kind: Explicit, Windows: []Season{a, {"b", b.Start.Add(-1), b.End}}}, []string{"season.windows[1].start"}},
		{"windows out of order", Schedule{Kind: Explicit, Windows: []Season{b, a}}, []string{"season.windows[1].start"}},
		{"two windows with one id", Schedule{Kind: Explicit, Windows: []Season{a, {"a", b.Start, b.End}}}, []string{"season.windows[1].id"}},
		{"a window without an id", Schedule{Kind: Explicit, Windows: []Season{{"", a.Start, a.End}}}, []string{"season.windows[0].id"}},
		{"an id that is too long", Schedule{Kind: Explicit, Windows: []Season{{SeasonID(strings.Repeat("x", 65)), a.Start, a.End}}}, []string{"season.windows[0].id"}},
		{"an id with a control character", Schedule{Kind: Explicit, Windows: []Season{{"a\n", a.Start, a.End}}}, []string{"season.windows[0].id"}},
		{"the id of the season without bounds", Schedule{Kind: Explicit, Windows: []Season{{SeasonAll, a.Start, a.End}}}, []string{"season.windows[0].id"}},
		{"an empty window", Schedule{Kind: Explicit, Windows: []Season{{"a", a.Start, a.Start}}}, []string{"season.windows[0].end"}},
		{"a window without bounds", Schedule{Kind: Explicit, Windows: []Season{{ID: "a"}}}, []string{"season.windows[0].end"}},
		{"all faults at once", Schedule{Kind: -1, TimeZone: "X", Grace: -1, Windows: []Season{{ID: "a"}}}, []string{"season.schedule", "season.time_zone", "season.grace", "season.windows", "season.windows[0].end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.s.Validate()
			var fields []string
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, e := range joined.Unwrap() {
					var fault *FieldError
					if !errors.As(e, &fault) {
						t.Fatalf("%v is not a FieldError", e)
					}
					fields = append(fields, fault.Field)
				}
			}
			if diff := cmp.Diff(tt.fields, fields); diff != "" {
				t.Errorf("invalid fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScheduleOfUnknownZone(t *testing.T) {
	s := Schedule{Kind: Monthly, TimeZone: "Europe/Atlantis"}
	var fault *FieldError
	if _, err := s.At(time.Unix(0, 0)); !errors.As(err, &fault) {
		t.Errorf("At: %v, want a FieldError", err)
	}
	if _, err := s.ByID("202611"); !errors.As(err, &fault) {
		t.Errorf("ByID: %v, want a FieldError", err)
	}
}

func TestScheduleJSON(t *testing.T) {
	want := Schedule{Kind: Explicit, TimeZone: "Asia/Tokyo", Grace: time.Hour, Windows: []Season{window(t, "cup", "2026-06-01T00:00:00Z", "2026-06-20T12:00:00Z")}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Schedule
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after encoding and decoding as JSON (-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`{"schedule":"HOUR"}`), &got); !errors.Is(err, ErrInvalid) {
		t.Errorf("schedule HOUR: %v, want ErrInvalid", err)
	}
}

func FuzzSeasonByID(f *testing.F) {
	for _, id := range []string{"all", "202611", "20261120", "2026W47", "202613", "2025W53", "2026", "0000"} {
		for kind := range scheduleNames {
			f.Add(id, byte(kind), byte(kind))
		}
	}
	f.Fuzz(func(t *testing.T, id string, kind, zone byte) {
		s := Schedule{Kind: []ScheduleKind{None, Daily, Weekly, Monthly, Yearly}[kind%5], TimeZone: oddZones[int(zone)%len(oddZones)]}
		season, err := s.ByID(SeasonID(id))
		if err != nil {
			if !errors.Is(err, ErrSeasonNotFound) {
				t.Fatalf("ByID(%q): %v, want ErrSeasonNotFound", id, err)
			}
			return
		}
		if season.ID != SeasonID(id) || SeasonID(id).validate("season") != nil {
			t.Fatalf("ByID(%q) = %v, want a season with this valid id", id, season)
		}
		if at, err := s.At(season.Start); err != nil || at != season {
			t.Fatalf("At(%v) = %v, %v, want %v", season.Start, at, err, season)
		}
	})
}

func BenchmarkSeasonAt(b *testing.B) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for _, s := range []Schedule{{Kind: None}, {Kind: Daily}, {Kind: Weekly}, {Kind: Monthly}, {Kind: Monthly, TimeZone: "America/New_York"}, {Kind: Yearly}} {
		b.Run(fmt.Sprintf("%v/%s", s.Kind, s.TimeZone), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.At(at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestNewWindowsMustNotHaveTheWordsOfRequests(t *testing.T) {
	for id, ok := range map[SeasonID]bool{
		"latest": false, "LATEST": false, "Current": false, "all": false, "next": true, "latest-1": true, "2026": true, "cup": true, "all stars": true,
	} {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		b := Board{ID: "b", Season: Schedule{Kind: Explicit, Windows: []Season{{id, start, start.AddDate(1, 0, 0)}}}}
		if err := b.ValidateNew(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "season.windows[0].id") {
			t.Errorf("ValidateNew() with the window %q = %v; want an error: %v", id, err, !ok)
		}
		old := b
		if amended, err := old.Amend(b); id != SeasonAll && (err != nil || len(amended.Season.Windows) != 1) {
			t.Errorf("Amend() of a board with the stored window %q = %v, want no error", id, err)
		}
	}
}
