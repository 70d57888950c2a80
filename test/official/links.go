package official

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

const rollingDays = 28

type linkedTable struct {
	board
	seasons func(time.Time) []string // the seasons that a time belongs to
	counted func(*Result) bool       // reports whether the board counts a result
	recount func([]Result) []standing
}

func oneSeason(format string) func(time.Time) []string {
	return func(at time.Time) []string { return []string{at.Format(format)} }
}

func week(at time.Time) []string {
	year, n := at.ISOWeek()
	return []string{fmt.Sprintf("%dW%02d", year, n)}
}

// In rollingZone, days have 23 to 25 hours.
const rollingZone = "America/New_York"

// windows returns a function that lists the windows that contain a time. A window's id is its last
// day. So the ids are the day of the time in zone and the next rollingDays-1 days, without days
// before first.
func windows(zone *time.Location, first string) func(time.Time) []string {
	return func(at time.Time) (ids []string) {
		year, month, day := at.In(zone).Date()
		for i := range rollingDays {
			if id := time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC).Format("20060102"); id >= first {
				ids = append(ids, id)
			}
		}
		return ids
	}
}

// The rolling board's retention decides its first window: the window whose last day is the day
// before rollingFrom.
func linkedTables(t *testing.T, rollingFrom time.Time) []linkedTable {
	zone, err := time.LoadLocation(rollingZone)
	if err != nil {
		t.Fatal(err)
	}
	const grace = 24 * time.Hour // the default
	year, month, day := rollingFrom.Date()
	first := time.Date(year, month, day-1, 12, 0, 0, 0, zone)
	rolling := windows(zone, first.Format("20060102"))
	retention := fmt.Sprintf("%.0fs", (time.Since(first) - grace).Seconds())
	always := func(*Result) bool { return true }
	won := func(r *Result) bool { return r.Attributes["result"] == "win" }
	tables := []linkedTable{
		{board{ID: "all-time", Policy: "SUM", Season: schedule{Schedule: "NONE"}}, oneSeason("all"), always, recountSums},
		{board{ID: "yearly", Policy: "SUM", Season: schedule{Schedule: "YEARLY"}}, oneSeason("2006"), always, recountSums},
		{board{ID: "monthly", Policy: "SUM", Season: schedule{Schedule: "MONTHLY"}}, oneSeason("200601"), always, recountSums},
		{board{ID: "weekly", Policy: "SUM", Season: schedule{Schedule: "WEEKLY"}}, week, always, recountSums},
		{board{ID: "rolling", Policy: "SUM", Season: schedule{Schedule: "ROLLING", TimeZone: rollingZone, Days: rollingDays}, Retention: retention}, rolling, always, recountSums},
		{board{ID: "wins", Policy: "SUM", Season: schedule{Schedule: "YEARLY"}, Source: &source{Match: map[string]string{"result": "win"}}}, oneSeason("2006"), won, recountSums},
		{board{ID: "best", Policy: "BEST", Season: schedule{Schedule: "MONTHLY"}}, oneSeason("200601"), always, recountBestGoals},
	}
	for i := range tables {
		b := &tables[i].board
		b.Order, b.TieBreakers = "HIGHER_FIRST", goalDifference
		if b.Source == nil {
			b.Source = &source{}
		}
	}
	return tables
}

var goalDifference = []tieBreaker{{"goal_difference", "HIGHER_FIRST"}}

// recountBestGoals recounts a board of each user's best result, by points and then by goal
// difference.
func recountBestGoals(results []Result) []standing {
	users := map[string]standing{}
	for i := range results {
		r := &results[i]
		s := standing{user: r.User, score: *r.Points, ties: r.TieBreakers, at: r.AchievedAt}
		if best, ok := users[r.User]; !ok || cmp.Or(higherFirst(&s, &best), s.at.Compare(best.at)) < 0 {
			users[r.User] = s
		}
	}
	return slices.Collect(maps.Values(users))
}

func matchResults(matches []match) []Result {
	results := footballResults(matches, 3, 1)
	for i := range results {
		r, m := &results[i], &matches[i/2]
		goals := m.homeGoals - m.awayGoals
		if i%2 == 1 {
			goals = -goals
		}
		r.TieBreakers = []int64{goals}
		r.Attributes = map[string]string{"result": map[int64]string{0: "loss", 1: "draw", 3: "win"}[*r.Points]}
	}
	return results
}

// linkedRun is a source with its linked boards and its results.
type linkedRun struct {
	*client
	t       *testing.T
	source  string
	boards  []string // the ids of the linked boards, in the order of tables
	tables  []linkedTable
	all     [][]string // the seasons of each table
	matches []string
	results []Result
	void    map[string]bool // by match
}

// LinkedFootball submits the football internationals of a period to a source with linked boards. It
// compares every season with a recount after each of these steps:
//   - It submits all results once.
//   - It submits all results again in random order, a quarter of them twice.
//   - It voids voidCount random matches.
//   - It submits the results of void matches again, and restores half of these matches.
func LinkedFootball(t *testing.T, d Deployment, p Period, voidCount int) {
	s := seed.New(t)
	r := newLinkedRun(t, d, p)
	r.link()
	r.waitAllFilled() // the fills must end before the first result, so that they copy no result
	r.feed("once", d.Feeder, r.results)
	r.check("fed once")
	r.feed("again, shuffled, a quarter twice", shuffledAndDuplicated(d, r.results, s), r.results)
	r.check("fed again")
	r.voidMatches(newRand(s), voidCount, d.Feeder)
}

// LinkedFootballShuffled submits the football internationals of a period in random order, and some
// results twice. It creates the linked boards after half of the submits, and compares the same
// seasons as [LinkedFootball].
func LinkedFootballShuffled(t *testing.T, d Deployment, p Period) {
	s := seed.New(t)
	r := newLinkedRun(t, d, p)
	newRand(s).Shuffle(len(r.results), func(i, j int) { r.results[i], r.results[j] = r.results[j], r.results[i] })
	half, feeder := len(r.results)/2, shuffledAndDuplicated(d, r.results, s)
	r.feed("the first half", feeder, r.results[:half])
	r.link()
	r.feed("the second half", feeder, r.results[half:])
	r.check("fed in random order, linked after half of the results")
}

func shuffledAndDuplicated(d Deployment, results []Result, seed uint64) Feeder {
	return Duplicated(Shuffled(d.Feeder, len(results), seed), 0.25, seed)
}

// Period selects the football internationals from Start until the day before End.
type Period struct {
	Start, End time.Time // days in UTC
	// RollingFrom is the day after the rolling board's first window. The default is Start.
	RollingFrom time.Time
}

// Years returns the period of the calendar years from first to last.
func Years(first, last int) Period {
	return Period{Start: time.Date(first, 1, 1, 0, 0, 0, 0, time.UTC), End: time.Date(last+1, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func newLinkedRun(t *testing.T, d Deployment, p Period) *linkedRun {
	if p.RollingFrom.IsZero() {
		p.RollingFrom = p.Start
	}
	var matches []match
	for _, m := range readFootball(t) {
		if !m.at.Before(p.Start) && m.at.Before(p.End) {
			matches = append(matches, m)
		}
	}
	r := &linkedRun{client: d.client(), t: t, tables: linkedTables(t, p.RollingFrom), results: matchResults(matches), void: map[string]bool{}}
	for _, m := range matches {
		r.matches = append(r.matches, m.id)
	}
	r.source = r.createBoard(t, board{
		ID: "linked", Title: "Football", Order: "HIGHER_FIRST", Policy: "SUM", Unit: "points", Season: schedule{Schedule: "NONE"},
		TieBreakers: goalDifference, Attributes: []string{"result"}, Matches: true,
	})
	r.listSeasons(p)
	return r
}

func (r *linkedRun) link() {
	for _, table := range r.tables {
		b := table.board
		b.ID, b.Title = "linked-"+b.ID, "Football, "+b.ID
		b.Source = &source{Board: r.source, Match: b.Source.Match}
		r.boards = append(r.boards, r.createBoard(r.t, b))
	}
}

func (r *linkedRun) waitAllFilled() {
	r.t.Helper()
	for _, b := range r.boards {
		r.waitFilled(r.t, b)
	}
}

func (r *linkedRun) listSeasons(p Period) {
	r.all = make([][]string, len(r.tables))
	noon := p.Start.Add(12 * time.Hour)
	day, end := noon.AddDate(0, 0, -40), p.End.AddDate(0, 0, 40)
	for ; day.Before(end); day = day.AddDate(0, 0, 1) {
		for i := range r.tables {
			r.all[i] = append(r.all[i], r.tables[i].seasons(day)...)
		}
	}
	for i := range r.all {
		slices.Sort(r.all[i])
		r.all[i] = slices.Compact(r.all[i])
	}
}

func (r *linkedRun) feed(step string, feeder Feeder, results []Result) {
	r.t.Helper()
	began := time.Now()
	if err := feeder(r.t.Context(), r.source, results); err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%s: submitted %d results in %v", step, len(results), time.Since(began).Round(time.Millisecond))
}

func (r *linkedRun) check(step string) {
	r.t.Helper()
	began := time.Now()
	r.waitAllFilled()
	filled := time.Since(began)
	count := slices.DeleteFunc(slices.Clone(r.results), func(x Result) bool { return r.void[x.Match] })
	if err := r.checkSeason(r.source, "all", count, recountSums, methods); err != nil {
		r.t.Errorf("%s: source: %v", step, err)
	}
	var sizes []string
	for i := range r.tables {
		nonEmpty, rows := r.checkTable(step, i, count)
		sizes = append(sizes, fmt.Sprintf("%s %d of %d with %d rows", r.tables[i].ID, nonEmpty, len(r.all[i]), rows))
	}
	r.t.Logf("%s: waited %v for fills, and compared the seasons in %v; seasons with entries: %s",
		step, filled.Round(time.Millisecond), (time.Since(began) - filled).Round(time.Millisecond), strings.Join(sizes, ", "))
}

// checkTable returns the number of seasons with entries, and the number of entries in them.
func (r *linkedRun) checkTable(step string, i int, results []Result) (seasons, rows int) {
	r.t.Helper()
	table, b := &r.tables[i], r.boards[i]
	bySeason := map[string][]Result{}
	for _, result := range results {
		if table.counted(&result) {
			for _, season := range table.seasons(result.AchievedAt) {
				bySeason[season] = append(bySeason[season], result)
			}
		}
	}
	want, got := map[string]int{}, map[string]int{}
	for season, results := range bySeason {
		want[season] = len(table.recount(results))
		rows += want[season]
	}
	for page := (url.Values{"limit": {"1000"}}); ; {
		var answer struct {
			Seasons []struct {
				ID       string
				Entrants int
			}
			Next string `json:"next_page_token"`
		}
		if err := r.callData(r.t.Context(), http.MethodGet, boardPath(b)+"/seasons", page, nil, &answer); err != nil {
			r.t.Fatal(err)
		}
		for _, s := range answer.Seasons {
			if s.Entrants > 0 {
				got[s.ID] = s.Entrants
			}
		}
		if answer.Next == "" {
			break
		}
		page.Set("page_token", answer.Next)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s: %s: entries by season (-recount +board):\n%.2000s", step, b, diff)
	}
	err := forEach(r.t.Context(), len(r.all[i]), func(_ context.Context, n int) error {
		season, rankMethods := r.all[i][n], methods
		if len(r.all[i]) > 500 { // one method per season, in turn
			rankMethods = methods[n%len(methods):][:1]
		}
		return r.checkSeason(b, season, bySeason[season], table.recount, rankMethods)
	})
	if err != nil {
		r.t.Errorf("%s: %v", step, err)
	}
	return len(want), rows
}

func (r *linkedRun) checkSeason(b, season string, results []Result, recount func([]Result) []standing, rankMethods []string) error {
	want := ladder(recount(results), higherFirst)
	for _, m := range rankMethods {
		q := query{board: b, season: season, method: m}
		entries, err := r.list(r.t.Context(), q)
		if err == nil {
			err = compareLadder(want, entries, m)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", q, err)
		}
	}
	return nil
}

func (r *linkedRun) voidMatches(random *rand.Rand, n int, feeder Feeder) {
	r.t.Helper()
	ids := slices.Clone(r.matches)
	random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:n]
	r.setVoid(ids, true)
	r.check("after matches are voided")
	voided := slices.DeleteFunc(slices.Clone(r.results), func(x Result) bool { return !r.void[x.Match] })
	r.feed("the results of void matches again", feeder, voided)
	r.setVoid(ids[:n/2], false)
	r.check("after half of the matches are restored")
}

func (r *linkedRun) setVoid(ids []string, void bool) {
	r.t.Helper()
	began := time.Now()
	verb := map[bool]string{true: "void", false: "restore"}[void]
	err := forEach(r.t.Context(), len(ids), func(ctx context.Context, i int) error {
		var answer struct{ Voided bool }
		path := query{board: r.source}.path("matches", escape(ids[i])) + ":" + verb
		err := r.call(ctx, http.MethodPost, path, nil, map[string]string{"reason": "test"}, &answer)
		if err == nil && answer.Voided != void {
			err = fmt.Errorf("%s: voided is %t, want %t", path, answer.Voided, void)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, id := range ids {
		r.void[id] = void
	}
	r.t.Logf("%s: %d matches in %v", verb, len(ids), time.Since(began).Round(time.Millisecond))
}
