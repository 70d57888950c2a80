package official

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

type match struct {
	id                   string
	at                   time.Time // the day, plus the id in seconds to keep the order of the file
	home, away           string
	homeGoals, awayGoals int64
}

func readFootball(t *testing.T) []match {
	var all []match
	for _, r := range readBundled(t, "football.csv.gz") {
		all = append(all, match{
			id: r["match_id"], at: r.day(t, "date").Add(time.Duration(r.integer(t, "match_id")) * time.Second),
			home: r["home"], away: r["away"], homeGoals: r.integer(t, "home_goals"), awayGoals: r.integer(t, "away_goals"),
		})
	}
	return all
}

func footballResults(matches []match, win, draw int64) []Result {
	results := make([]Result, 0, 2*len(matches))
	for _, m := range matches {
		home, away := draw, draw
		switch {
		case m.homeGoals > m.awayGoals:
			home, away = win, 0
		case m.homeGoals < m.awayGoals:
			home, away = 0, win
		}
		results = append(results,
			Result{User: m.home, Match: m.id, Points: new(home), AchievedAt: m.at},
			Result{User: m.away, Match: m.id, Points: new(away), AchievedAt: m.at})
	}
	return results
}

type seasons map[string]map[string][]entry

func (c *client) dump(ctx context.Context, b string, years []string) (seasons, error) {
	byYear := make([]map[string][]entry, len(years))
	err := forEach(ctx, len(years), func(ctx context.Context, i int) error {
		byYear[i] = map[string][]entry{}
		for _, m := range methods {
			entries, err := c.list(ctx, query{board: b, season: years[i], method: m})
			if err != nil {
				return err
			}
			byYear[i][m] = entries
		}
		return nil
	})
	all := seasons{}
	for i, year := range years {
		all[year] = byYear[i]
	}
	return all, err
}

func difference(before, after seasons) string {
	same := maps.EqualFunc(before, after, func(x, y map[string][]entry) bool {
		return maps.EqualFunc(x, y, func(x, y []entry) bool { return slices.EqualFunc(x, y, sameEntry) })
	})
	if same {
		return "" // much faster than a cmp.Diff of equal dumps
	}
	return fmt.Sprintf("(-before +after):\n%.2000s", cmp.Diff(before, after))
}

func sameEntry(x, y entry) bool {
	return x.User == y.User && x.Score == y.Score && x.Rank != nil && y.Rank != nil && *x.Rank == *y.Rank &&
		x.AchievedAt.Equal(y.AchievedAt) && slices.Equal(x.TieBreakers, y.TieBreakers)
}

const firstYear, lastYear = 1872, 2019

// Football checks two boards of football internationals from 1872 to 2019, with one season per
// year. One board counts points, 3 for a win and 1 for a draw. The other board counts wins. The
// boards must agree with a recount, and must not change if results are repeated, shuffled, or
// retracted and added again.
func Football(t *testing.T, d Deployment) {
	matches := readFootball(t)
	s := seed.New(t)
	for _, f := range []struct {
		name      string
		win, draw int64
	}{{"points", 3, 1}, {"wins", 1, 0}} {
		t.Run(f.name, func(t *testing.T) {
			checkFootball(t, d, f.name, matches, footballResults(matches, f.win, f.draw), s)
		})
	}
}

func checkFootball(t *testing.T, d Deployment, name string, matches []match, results []Result, seed uint64) {
	c := d.client()
	settings := board{
		ID: "football-" + name, Title: "Football " + name, Order: "HIGHER_FIRST", Policy: "SUM", Unit: name,
		Season: yearly(firstYear, lastYear),
	}
	b := c.createBoard(t, settings)
	byYear := map[string][]Result{}
	for _, r := range results {
		year := strconv.Itoa(r.AchievedAt.Year())
		byYear[year] = append(byYear[year], r)
	}
	years := slices.Sorted(maps.Keys(byYear))
	if len(years) != lastYear-firstYear+1 {
		t.Fatalf("%d years, want %d", len(years), lastYear-firstYear+1)
	}
	dump := func(b string) seasons {
		t.Helper()
		all, err := c.dump(t.Context(), b, years)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	submit := func(step string, feeder Feeder, b string, results []Result) {
		t.Helper()
		began := time.Now()
		if err := feeder(t.Context(), b, results); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: submitted %d results in %v", step, len(results), time.Since(began).Round(time.Millisecond))
	}

	submit("in order", d.Feeder, b, results)
	first := dump(b)
	checkYears(t, first, byYear)
	checkFootballFacts(t, name, first, matches)
	checkYearByUser(t, c, b, "2019", byYear["2019"])

	checkUnchanged := func(step string, b string) {
		t.Helper()
		if diff := difference(first, dump(b)); diff != "" {
			t.Errorf("%s: the ladders are not the ladders of the first submit %s", step, diff)
		}
	}
	submit("a second time", d.Feeder, b, results)
	checkUnchanged("submitting all results again", b)
	submit("a third time, shuffled", Shuffled(d.Feeder, len(results), seed), b, results)
	checkUnchanged("submitting all results again in random order", b)

	settings.ID += "-shuffled"
	other := c.createBoard(t, settings)
	submit("to a new board, shuffled, with a fifth twice", Duplicated(Shuffled(d.Feeder, len(results), seed), 0.2, seed), other, results)
	checkUnchanged("submitting the results to a new board in random order", other)

	// 1916, in a war, has few matches. 1974 lists a match twice. 2019 has the most matches.
	retracted := []string{"1872", "1916", "1974", "2019", strconv.Itoa(firstYear + newRand(seed).IntN(lastYear-firstYear+1))}
	slices.Sort(retracted)
	checkRetraction(t, d, c, b, slices.Compact(retracted), byYear, first, dump)
}

func checkYears(t *testing.T, got seasons, byYear map[string][]Result) {
	t.Helper()
	rows, level := 0, 0
	for year, results := range byYear {
		want := ladder(recountSums(results), higherFirst)
		for _, m := range methods {
			if err := compareLadder(want, got[year][m], m); err != nil {
				t.Errorf("%s by %s: %v", year, m, err)
			}
		}
		rows += len(want)
		for _, s := range want {
			if s.tied > 1 {
				level++
			}
		}
	}
	t.Logf("compared %d years with %d rows, %d of them tied with another row", len(byYear), rows, level)
}

func checkFootballFacts(t *testing.T, name string, got seasons, matches []match) {
	t.Helper()
	for year, byMethod := range got {
		sum, want := int64(0), int64(0)
		for _, e := range byMethod["competition"] {
			sum += e.Score
		}
		for _, m := range matches {
			switch decisive := m.homeGoals != m.awayGoals; {
			case strconv.Itoa(m.at.Year()) != year:
			case name == "points" && decisive:
				want += 3
			case name == "points":
				want += 2
			case decisive:
				want++
			}
		}
		if sum != want {
			t.Errorf("%s: the total of %s is %d, want %d", year, name, sum, want)
		}
	}
	if name != "points" {
		return
	}
	last := got["2019"]["competition"]
	if len(last) != 255 {
		t.Fatalf("2019: %d teams, want 255", len(last))
	}
	for i, want := range []struct {
		team        string
		score, rank int64
	}{{"Japan", 48, 1}, {"Mexico", 46, 2}, {"Qatar", 44, 3}, {"Algeria", 40, 4}, {"South Korea", 40, 4}} {
		position := slices.IndexFunc(last[:5], func(e entry) bool { return e.User == want.team })
		if position < 0 || last[position].Score != want.score || *last[position].Rank != want.rank || i < 3 && position != i {
			t.Errorf("2019: %s is at position %d of %v, want score %d and rank %d", want.team, position+1, last[:5], want.score, want.rank)
		}
	}
}

func checkYearByUser(t *testing.T, c *client, b, year string, results []Result) {
	t.Helper()
	want := ladder(recountSums(results), higherFirst)
	err := forEach(t.Context(), len(want)*len(methods), func(ctx context.Context, i int) error {
		s := &want[i/len(methods)]
		return c.checkUser(ctx, query{board: b, season: year, method: methods[i%len(methods)]}, s, int64(len(want)))
	})
	if err != nil {
		t.Error(err)
	}
}

func checkRetraction(t *testing.T, d Deployment, c *client, b string, years []string, byYear map[string][]Result, first seasons, dump func(string) seasons) {
	var results []Result
	want := maps.Clone(first)
	for _, year := range years {
		results = append(results, byYear[year]...)
		want[year] = map[string][]entry{}
		for _, m := range methods {
			want[year][m] = nil
		}
	}
	began := time.Now()
	err := forEach(t.Context(), len(results), func(ctx context.Context, i int) error {
		return c.retract(ctx, b, &results[i])
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("retracted the %d results of %v in %v", len(results), years, time.Since(began).Round(time.Millisecond))
	if diff := difference(want, dump(b)); diff != "" {
		t.Errorf("the retractions did not empty the years %v, or changed other years %s", years, diff)
	}
	err = forEach(t.Context(), len(results), func(ctx context.Context, i int) error {
		r := &results[i]
		q := query{board: b, season: strconv.Itoa(r.AchievedAt.Year())}
		_, err := c.user(ctx, q, r.User, 0)
		var missing *statusError
		switch {
		case err == nil:
			return fmt.Errorf("%v: user %q has an entry but no result", q, r.User)
		case !errors.As(err, &missing) || missing.code != http.StatusNotFound:
			return fmt.Errorf("%v: reading user %q, who has no result: want status 404: %w", q, r.User, err)
		}
		var answer struct{ Status string }
		if err := c.call(ctx, http.MethodGet, q.path("results", escape(r.User), escape(r.Match)), q.values(), nil, &answer); err != nil {
			return err
		}
		if answer.Status != "RETRACTED" {
			return fmt.Errorf("%v: match %s of %q has status %s, want RETRACTED", q, r.Match, r.User, answer.Status)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	corrections := slices.Clone(results)
	for i := range corrections {
		corrections[i].Revision = 2 // the result had revision 0, its retraction 1
	}
	if err := d.Feeder(t.Context(), b, corrections); err != nil {
		t.Fatal(err)
	}
	if diff := difference(first, dump(b)); diff != "" {
		t.Errorf("submitting the results as revision 2 did not restore the board %s", diff)
	}
	// The results have revision 0. Revision 2 stands, so revision 0 must change nothing.
	if err := d.Feeder(t.Context(), b, results); err != nil {
		t.Fatal(err)
	}
	if diff := difference(first, dump(b)); diff != "" {
		t.Errorf("submitting revision 0 again changed the board, want no change %s", diff)
	}
}

// retract returns once reads see the retraction.
func (c *client) retract(ctx context.Context, b string, r *Result) error {
	season := strconv.Itoa(r.AchievedAt.Year())
	var o outcome
	path := query{board: b}.path("results", escape(r.User), escape(r.Match)) + ":retract"
	if err := c.call(ctx, http.MethodPost, path, nil, map[string]any{"season": season}, &o); err != nil {
		return err
	}
	if o.Status == "ACCEPTED" {
		return c.waitResult(ctx, b, season, r.User, r.Match, r.Revision+1)
	}
	if !o.Success || o.Status != "APPLIED" {
		return fmt.Errorf("board %s: retract %s of %q: outcome %+v, want APPLIED", b, r.Match, r.User, o)
	}
	return nil
}
