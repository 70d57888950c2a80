package official

import (
	"cmp"
	"fmt"
	"strconv"
	"testing"
	"time"
)

// golfStatuses are the statuses of the board by those of the data set. The board lists them in the order CUT, DNF, DSQ.
var golfStatuses = map[string]string{"CUT": "CUT", "WD": "DNF", "DQ": "DSQ"}

// Golf compares a sum board of the Masters tournaments of 1991 to 2008 with the official ranks. Each year is a season, and each
// round is a result. The last result of a player who missed the cut, withdrew or was disqualified has a status, so the player
// is listed without a rank.
func Golf(t *testing.T, d Deployment) {
	type player struct {
		total, rank int64
		status      string // empty with a rank
		rounds      int64
	}
	years := map[int]map[string]player{}
	var results []Result
	ranks := map[int]map[int64]int64{} // the best official rank of each total
	for _, r := range readDataset(t, "golf_masters_1991_2008.csv.gz") {
		year := int(r.integer(t, "year"))
		if years[year] == nil {
			years[year], ranks[year] = map[string]player{}, map[int64]int64{}
		}
		p := player{status: golfStatuses[r["status"]]}
		var own []Result
		for round := 1; round <= 4; round++ {
			if strokes := r[fmt.Sprint("r", round)]; strokes != "" {
				n, err := strconv.ParseInt(strokes, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				p.total += n
				p.rounds++
				own = append(own, Result{User: r["player_id"], Match: fmt.Sprint("round ", round), Points: &n, AchievedAt: time.Date(year, 4, 5+round, 20, 0, 0, 0, time.UTC)})
			}
		}
		if len(own) == 0 { // withdrew before the first round
			own = append(own, Result{User: r["player_id"], Match: "round 1", AchievedAt: time.Date(year, 4, 6, 20, 0, 0, 0, time.UTC)})
		}
		own[len(own)-1].Status = p.status
		if p.status == "" {
			p.rank = r.integer(t, "official_rank")
			if best := ranks[year][p.total]; best == 0 || p.rank < best {
				ranks[year][p.total] = p.rank
			}
		}
		years[year][r["player_id"]] = p
		results = append(results, own...)
	}

	c := d.client()
	b := c.createBoard(t, board{
		ID: "masters", Title: "Masters", Order: "LOWER_FIRST", Policy: "SUM", Unit: "strokes", Season: yearly(1991, 2008),
		Statuses: []string{"CUT", "DNF", "DSQ"}, Ties: "SHARED",
	})
	if err := d.Feeder(t.Context(), b, results); err != nil {
		t.Fatal(err)
	}
	ranked, official, unranked := 0, 0, 0
	for year, players := range years {
		var got page
		q := query{board: b, season: strconv.Itoa(year)}
		values := q.values()
		values.Set("limit", "1000")
		if err := c.callData(t.Context(), "GET", q.path("scores"), values, nil, &got); err != nil {
			t.Fatal(err)
		}
		total, previous := int64(0), ""
		for _, p := range players {
			if p.status == "" {
				total++
			}
		}
		if len(got.Entries) != len(players) || got.Total != total || got.Unranked != int64(len(players))-total {
			t.Fatalf("%d: %d entries, %d of them ranked and %d not, want %d and %d ranked", year, len(got.Entries), got.Total, got.Unranked, len(players), total)
		}
		for i, e := range got.Entries {
			p := players[e.User]
			if e.Score != p.total || e.Status != p.status || (e.Rank == nil) != (p.status != "") {
				t.Fatalf("%d: entry %s with status %q, want %+v", year, e.line(), e.Status, p)
			}
			if p.status != "" {
				unranked++
				if i < int(total) || p.status < previous { // CUT, DNF and DSQ are in the order of the alphabet
					t.Fatalf("%d: %s with status %q is entry %d after %q", year, e.line(), e.Status, i, previous)
				}
				previous = p.status
				continue
			}
			ranked++
			if better := cmp.Compare(*e.Rank, ranks[year][p.total]); better != 0 {
				t.Errorf("%d: entry %s, want the best official rank of this total, %d", year, e.line(), ranks[year][p.total])
			}
			if *e.Rank == p.rank {
				official++
			}
		}
	}
	summary := fmt.Sprintf("%d players with a rank, %d of them with the official one, and %d without", ranked, official, unranked)
	t.Log(summary)
	if want := "915 players with a rank, 913 of them with the official one, and 714 without"; summary != want {
		t.Errorf("%s; want %s", summary, want)
	}
}
