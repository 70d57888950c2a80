package pipeline

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

type lap struct {
	points int64
	at     time.Time
	mode   string
}

// lapOf returns the same lap for the same arguments.
func lapOf(seed uint64, user, id string, revision int) lap {
	h := fnv.New64()
	fmt.Fprint(h, user, "/", id, "/", revision)
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	at := lapsBegin.AddDate(0, r.IntN(3), r.IntN(28)).Add(time.Duration(r.IntN(24)) * time.Hour)
	return lap{r.Int64N(30) - 5, at, []string{"ranked", "casual"}[r.IntN(2)]}
}

// The January after lapsBegin ended at least a month ago. Laps have times from November to January,
// so they are in two years.
var lapsBegin = time.Date(time.Now().UTC().AddDate(0, -2, 0).Year()-1, time.November, 1, 0, 0, 0, 0, time.UTC)

var linkedSettings = []struct {
	settings map[string]any
	match    string                   // the mode of the laps that count; empty means all
	seasons  func(time.Time) []string // the seasons that contain a time
	join     func(x, y int64) int64   // combines the scores of two laps
	lower    bool                     // lower scores rank first
}{
	{map[string]any{"policy": "BEST", "season": object{"schedule": "NONE"}}, "", layout("all"), func(x, y int64) int64 { return max(x, y) }, false},
	{map[string]any{"policy": "BEST", "order": "LOWER_FIRST", "season": object{"schedule": "YEARLY"}}, "", layout("2006"), func(x, y int64) int64 { return min(x, y) }, true},
	{map[string]any{"policy": "SUM", "season": object{"schedule": "MONTHLY"}}, "", layout("200601"), plus, false},
	{map[string]any{"policy": "SUM", "season": object{"schedule": "NONE"}}, "ranked", layout("all"), plus, false},
	{map[string]any{"policy": "SUM", "season": object{"schedule": "ROLLING", "days": lapDays}, "retention": "43200000s"}, "casual", threeDays, plus, false},
}

type object = map[string]any

// lapDays is the length of a rolling window. The rolling board's retention, 500 days, includes all
// laps.
const lapDays = 3

func plus(x, y int64) int64 { return x + y }

// layout returns a function that formats a time as the id of its season.
func layout(form string) func(time.Time) []string {
	return func(t time.Time) []string { return []string{t.Format(form)} }
}

// The id of a window is its last day.
func threeDays(t time.Time) (ends []string) {
	for i := range lapDays {
		ends = append(ends, t.AddDate(0, 0, i).Format("20060102"))
	}
	return ends
}

// After the kills, every season equals a recount.
func TestLinkedBoardsWhileConsumersAreKilled(t *testing.T) {
	needs.Slow(t, "pipeline")
	for _, c := range []struct{ results, kills int }{{200, 2}, {2500, 8}} {
		t.Run(fmt.Sprint(c.results, " results"), func(t *testing.T) { checkLinkedBoardsWhileConsumersAreKilled(t, c.results, c.kills) })
	}
}

func checkLinkedBoardsWhileConsumersAreKilled(t *testing.T, sent, kills int) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	source := api.Board(t, "laps", object{"policy": "SUM", "season": object{"schedule": "NONE"}, "attributes": []string{"mode"}})
	var linked []string
	for i, l := range linkedSettings {
		sourceSettings := object{"board_id": source}
		if l.match != "" {
			sourceSettings["match"] = object{"mode": l.match}
		}
		settings := maps.Clone(l.settings)
		settings["source"] = sourceSettings
		linked = append(linked, api.Board(t, fmt.Sprint("laps-", i), settings))
	}
	var consumers []*deployment.Node
	// The consumers start after the boards exist, so they know all links.
	for _, id := range []string{"a", "b"} { // a static member keeps its partitions over a restart
		consumers = append(consumers, d.Serve(t, "--roles=consumer", "--kafka-batch=50", "--kafka-session-timeout=6s", "--kafka-instance-id="+id))
	}
	s := newStream(t, d)
	n := seed.New(t)
	results, newest := randomLaps(n, sent)
	done := make(chan error, 1)
	go func() { done <- s.send(t.Context(), source, results) }()
	for i := range kills {
		s.waitForUpdates(t, sent*(i+1)/(kills+1))
		c := consumers[i%len(consumers)]
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("sent %d results and killed %d consumers", sent, kills)
	compare := func(board, match string, seasons func(time.Time) []string, join func(x, y int64) int64, lower bool) {
		t.Helper()
		waitFilled(t, api.Client, board)
		want, got := recountLaps(newest, match, seasons, join, lower), map[string][]string{}
		for _, season := range seasonsWithEntries(t, api.Client, board) {
			got[season] = ladderLines(t, api.Client, board, season)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: seasons of %s (-recount +board):\n%s", n, board, diff)
		}
	}
	compare(source, "", layout("all"), plus, false)
	for i, board := range linked {
		l := &linkedSettings[i]
		compare(board, l.match, l.seasons, l.join, l.lower)
	}
}

// The map has the lap of the highest revision, by user and match.
func randomLaps(n uint64, sent int) ([]result, map[[2]string]lap) {
	random := rand.New(rand.NewPCG(n, 0))
	const users, matches = 20, 20
	results, newest, counts := make([]result, sent), map[[2]string]int{}, map[[2]string]lap{}
	for i := range results {
		user, id, revision := fmt.Sprint("u", random.IntN(users)), fmt.Sprint("m", random.IntN(matches)), random.IntN(3)
		l := lapOf(n, user, id, revision)
		results[i] = result{user, id, object{"user_id": user, "match_id": id, "revision": revision, "points": l.points, "achieved_at": l.at, "attributes": object{"mode": l.mode}}}
		key := [2]string{user, id}
		if previous, ok := newest[key]; !ok || revision > previous {
			newest[key], counts[key] = revision, l
		}
	}
	return results, counts
}

func recountLaps(laps map[[2]string]lap, match string, seasons func(time.Time) []string, join func(x, y int64) int64, lower bool) map[string][]string {
	scores := map[string]map[string]int64{} // by season and user
	for key, l := range laps {
		if match != "" && match != l.mode {
			continue
		}
		for _, season := range seasons(l.at) {
			if scores[season] == nil {
				scores[season] = map[string]int64{}
			}
			score, ok := scores[season][key[0]]
			if scores[season][key[0]] = l.points; ok {
				scores[season][key[0]] = join(score, l.points)
			}
		}
	}
	lines := map[string][]string{}
	for season := range scores {
		lines[season] = rankedLines(scores[season], lower)
	}
	return lines
}

func rankedLines(scores map[string]int64, lower bool) []string {
	var lines []string
	for user, score := range scores {
		rank := 1
		for _, other := range scores {
			if lower && other < score || !lower && other > score {
				rank++
			}
		}
		lines = append(lines, fmt.Sprintf("%s %d rank %d", user, score, rank))
	}
	slices.Sort(lines)
	return lines
}

func waitFilled(t *testing.T, api *deployment.Client, board string) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) error {
		var answer struct{ Filling bool }
		status, err := api.Call(ctx, http.MethodGet, "/v1/boards/"+board, nil, &answer)
		if err == nil && (status != http.StatusOK || answer.Filling) {
			err = fmt.Errorf("board %s: status %d, filling %t", board, status, answer.Filling)
		}
		return err
	})
}

func seasonsWithEntries(t *testing.T, api *deployment.Client, board string) (ids []string) {
	t.Helper()
	var answer struct {
		Data struct {
			Seasons []struct {
				ID       string
				Entrants *int
			}
		}
	}
	if status, err := api.Call(t.Context(), http.MethodGet, "/v1/boards/"+board+"/seasons?limit=1000", nil, &answer); err != nil || status != http.StatusOK {
		t.Fatalf("seasons of %s: status %d, %v", board, status, err)
	}
	for _, s := range answer.Data.Seasons {
		if s.Entrants == nil {
			t.Fatalf("season %s of %s has no number of entrants", s.ID, board)
		}
		if *s.Entrants > 0 {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

type ladderAnswer struct {
	Leaderboard []struct {
		User  string `json:"user_id"`
		Score int64
		Rank  int64
	}
}

func (a *ladderAnswer) lines() (lines []string) {
	for _, e := range a.Leaderboard {
		lines = append(lines, fmt.Sprintf("%s %d rank %d", e.User, e.Score, e.Rank))
	}
	slices.Sort(lines)
	return lines
}

func ladderLines(t *testing.T, api *deployment.Client, board, season string) []string {
	t.Helper()
	var page struct{ Data ladderAnswer }
	if status, err := api.Call(t.Context(), http.MethodGet, "/v1/boards/"+board+"/scores?limit=1000&season="+season, nil, &page); err != nil || status != http.StatusOK {
		t.Fatalf("read %s: status %d, %v", board, status, err)
	}
	return page.Data.lines()
}
