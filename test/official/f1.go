package official

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The countback ranks drivers with equal points by their number of wins, then of second places, and
// so on.
const placesCounted = 24

type f1Round struct {
	season, round string
	results       []Result // in a race, the tie-breaker of the driver's place is 1
	table         []f1Row
}

type f1Row struct {
	driver           string
	position, points int64
}

func readF1(t *testing.T) [][]f1Round {
	var seasons [][]f1Round
	type key struct{ season, round string }
	index := map[key]*f1Round{}
	for _, r := range readBundled(t, "f1_results_2000_2012.csv.gz") {
		k := key{r["season"], r["round"]}
		if index[k] == nil {
			if len(seasons) == 0 || seasons[len(seasons)-1][0].season != k.season {
				seasons = append(seasons, make([]f1Round, 0, 50)) // enough capacity: index holds pointers into the slice
			}
			last := &seasons[len(seasons)-1]
			*last = append(*last, f1Round{season: k.season, round: k.round})
			index[k] = &(*last)[len(*last)-1]
		}
		result := Result{
			User: r["driver_id"], Match: k.season + "-" + k.round + "-" + r["session"], Points: new(r.integer(t, "half_points")),
			TieBreakers: make([]int64, placesCounted),
			AchievedAt:  r.day(t, "date").Add(14*time.Hour + time.Duration(r.integer(t, "seq"))*time.Microsecond),
		}
		if r["session"] == "R" && r["position"] != "" {
			if place := r.integer(t, "position"); place <= placesCounted {
				result.TieBreakers[place-1] = 1
			}
		}
		index[k].results = append(index[k].results, result)
	}
	for _, r := range readBundled(t, "f1_standings_2000_2012.csv.gz") {
		round := index[key{r["season"], r["round"]}]
		round.table = append(round.table, f1Row{r["driver_id"], r.integer(t, "official_position"), r.integer(t, "half_points_total")})
	}
	return seasons
}

type f1Count struct {
	mu                         sync.Mutex
	tables, rows               int
	level                      int // rows with the points of another row of the table
	points, least, block       int // rows of the points board that match the table: F1 names each rule
	countback, countbackTables int // rows and tables with the official positions on the countback board
	submitted                  int
}

// F1 compares two sum boards for each Formula 1 season from 2000 to 2012 with the official drivers'
// table after each round. The tie-breakers of the second board count wins, second places and so on.
func F1(t *testing.T, d Deployment) {
	f1(t, d, readF1(t), &f1Count{tables: 232, rows: 5193, level: 2510, countback: 5175, countbackTables: 216})
}

// LateF1 compares the seasons 2010 to 2012 only.
func LateF1(t *testing.T, d Deployment) {
	f1(t, d, readF1(t)[10:], &f1Count{tables: 58, rows: 1417, level: 587, countback: 1410, countbackTables: 52})
}

// f1 requires that the points in all rows of want are the official points.
func f1(t *testing.T, d Deployment, seasons [][]f1Round, want *f1Count) {
	var count f1Count
	began := time.Now()
	t.Run("seasons", func(t *testing.T) {
		for _, rounds := range seasons {
			t.Run(rounds[0].season, func(t *testing.T) {
				t.Parallel()
				checkSeason(t, d, rounds, &count)
			})
		}
	})
	t.Logf("submitted %d results in %v", count.submitted, time.Since(began).Round(time.Millisecond))
	t.Logf("%d tables with %d rows, %d of them with the points of another row", count.tables, count.rows, count.level)
	t.Logf("rows that match: %d by points, %d by best position, %d by shared positions; with countback, %d rows and %d whole tables match", count.points, count.least, count.block, count.countback, count.countbackTables)
	for _, c := range []struct {
		counted   string
		got, want int
	}{
		{"tables", count.tables, want.tables},
		{"rows", count.rows, want.rows},
		{"rows with the points of another row", count.level, want.level},
		{"rows with the official points", count.points, want.rows},
		{"rows whose rank by points is the best official position of the drivers with these points", count.least, want.rows},
		{"rows whose official position is one of the positions that the drivers with these points share", count.block, want.rows},
		{"rows whose rank with countback is the official position", count.countback, want.countback},
		{"tables in which the rank with countback is the official position in all rows", count.countbackTables, want.countbackTables},
	} {
		if c.got != c.want {
			t.Errorf("%d %s, want %d", c.got, c.counted, c.want)
		}
	}
}

func checkSeason(t *testing.T, d Deployment, rounds []f1Round, count *f1Count) {
	c := d.client()
	b := board{
		ID: "f1-" + rounds[0].season, Title: "F1 " + rounds[0].season, Order: "HIGHER_FIRST", Policy: "SUM",
		Unit: "half points", Season: schedule{Schedule: "NONE"},
	}
	points := c.createBoard(t, b)
	b.ID += "-countback"
	for i := range placesCounted {
		b.TieBreakers = append(b.TieBreakers, tieBreaker{"place_" + strconv.Itoa(i+1), "HIGHER_FIRST"})
	}
	countback := c.createBoard(t, b)

	var submitted, submittedCountback []Result
	for _, round := range rounds {
		plain := slices.Clone(round.results)
		for i := range plain {
			plain[i].TieBreakers = nil
		}
		submitted, submittedCountback = append(submitted, plain...), append(submittedCountback, round.results...)
		if err := d.Feeder(t.Context(), points, plain); err != nil {
			t.Fatal(err)
		}
		if err := d.Feeder(t.Context(), countback, round.results); err != nil {
			t.Fatal(err)
		}
		byPoints := readRecounted(t, c, query{board: points}, ladder(recountSums(submitted), higherFirst))
		byPlaces := readRecounted(t, c, query{board: countback}, ladder(recountSums(submittedCountback), higherFirst))
		if err := checkTable(round, byPoints, byPlaces, count); err != nil {
			t.Errorf("round %s: %v", round.round, err)
		}
	}
	for _, m := range methods { // every method at the end of the season
		readRecounted(t, c, query{board: points, method: m}, ladder(recountSums(submitted), higherFirst))
		readRecounted(t, c, query{board: countback, method: m}, ladder(recountSums(submittedCountback), higherFirst))
	}
	count.mu.Lock()
	defer count.mu.Unlock()
	count.submitted += len(submitted) + len(submittedCountback)
}

func readRecounted(t *testing.T, c *client, q query, want []standing) map[string]entry {
	t.Helper()
	entries, err := c.list(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	method := q.method
	if method == "" {
		method = "competition"
	}
	if err := compareLadder(want, entries, method); err != nil {
		t.Errorf("%v: %v", q, err)
	}
	users := make(map[string]entry, len(entries))
	for _, e := range entries {
		users[e.User] = e
	}
	return users
}

func checkTable(round f1Round, byPoints, byPlaces map[string]entry, count *f1Count) error {
	best, level := map[int64]int64{}, map[int64]int64{} // best position and number of rows by points
	for _, row := range round.table {
		e, ok := byPoints[row.driver]
		if _, hasPlaces := byPlaces[row.driver]; !ok || !hasPlaces {
			return fmt.Errorf("%s is missing from a board", row.driver)
		}
		if place, ok := best[e.Score]; !ok || row.position < place {
			best[e.Score] = row.position
		}
		level[e.Score]++
	}
	count.mu.Lock()
	defer count.mu.Unlock()
	count.tables++
	count.rows += len(round.table)
	countbackRows := 0
	for _, row := range round.table {
		e := byPoints[row.driver]
		if e.Score == row.points && byPlaces[row.driver].Score == row.points {
			count.points++
		}
		if *e.Rank == best[e.Score] {
			count.least++
		}
		if row.position >= *e.Rank && row.position <= *e.Rank+level[e.Score]-1 {
			count.block++
		}
		if level[e.Score] > 1 {
			count.level++
		}
		if *byPlaces[row.driver].Rank == row.position {
			countbackRows++
		}
	}
	count.countback += countbackRows
	if countbackRows == len(round.table) {
		count.countbackTables++
	}
	return nil
}
