package official

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// IMO compares a sum board of the International Mathematical Olympiads of 1959 to 2009 with the
// official ranks. Each year is a season. From 1963 on, contestants whose marks are known have one
// result per problem. All other contestants have one result: the total.
func IMO(t *testing.T, d Deployment) {
	type contestant struct {
		total, rank   int64
		followsTotals bool // the totals alone determine the official ranks of the year
	}
	years := map[int]map[string]contestant{}
	var results []Result
	byYear := map[int][]Result{}
	for _, r := range readDataset(t, "imo_1959_2009.csv.gz") {
		year := int(r.integer(t, "year"))
		if years[year] == nil {
			years[year] = map[string]contestant{}
		}
		years[year][r["user_id"]] = contestant{r.integer(t, "total"), r.integer(t, "official_rank"), r["year_exact"] == "1"}
		columns := []string{"total"}
		if year >= 1963 && r["p1"] != "" {
			columns = []string{"p1", "p2", "p3", "p4", "p5", "p6"}
		}
		for i, column := range columns {
			result := Result{
				User: r["user_id"], Match: column, Points: new(r.integer(t, column)),
				AchievedAt: time.Date(year, 7, 10, 9+i, 0, 0, 0, time.UTC),
			}
			results = append(results, result)
			byYear[year] = append(byYear[year], result)
		}
	}

	c := d.client()
	b := c.createBoard(t, board{
		ID: "imo", Title: "International Mathematical Olympiad", Order: "HIGHER_FIRST", Policy: "SUM", Unit: "points",
		Season: yearly(1959, 2009),
	})
	began := time.Now()
	if err := d.Feeder(t.Context(), b, results); err != nil {
		t.Fatal(err)
	}
	t.Logf("submitted %d results in %v", len(results), time.Since(began).Round(time.Millisecond))

	rows, matchingRows, matchingYears, rowsOfMatchingYears := 0, 0, 0, 0
	for year, contestants := range years {
		want := ladder(recountSums(byYear[year]), higherFirst)
		var byCompetition map[string]entry // the entries by the loop's last method
		for _, m := range []string{"ordinal", "dense", "competition"} {
			byCompetition = readRecounted(t, c, query{board: b, season: strconv.Itoa(year), method: m}, want)
		}
		matching := 0
		for user, official := range contestants {
			e := byCompetition[user]
			switch {
			case e.Rank == nil || e.Score != official.total:
				t.Errorf("%d: entry of %q is %s, want score %d and a rank", year, user, e.line(), official.total)
			case *e.Rank == official.rank:
				matching++
			case official.followsTotals:
				t.Errorf("%d: entry is %s, want the official rank %d", year, e.line(), official.rank)
			}
		}
		rows += len(contestants)
		matchingRows += matching
		if matching == len(contestants) {
			matchingYears++
			rowsOfMatchingYears += matching
		}
	}
	got := fmt.Sprintf("%d years (%d rows); %d rows have the official rank; %d years (%d rows) match completely", len(years), rows, matchingRows, matchingYears, rowsOfMatchingYears)
	t.Log(got)
	if want := "50 years (12905 rows); 12663 rows have the official rank; 37 years (9090 rows) match completely"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}
