package pipeline

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// lap is the content of a result. It follows from the result's key and the seed alone.
type lap struct {
	points int64
	at     time.Time
	mode   string
}

func lapOf(seed uint64, user, id string, revision int) lap {
	h := fnv.New64()
	fmt.Fprint(h, user, "/", id, "/", revision)
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	return lap{r.Int64N(30) - 5, time.Date(2025, time.Month(11+r.IntN(3)), 1+r.IntN(28), r.IntN(24), 0, 0, 0, time.UTC), []string{"ranked", "casual"}[r.IntN(2)]}
}

// linkedRules are the rules of linked boards, and how a recount finds a lap's season and
// joins the scores of two laps.
var linkedRules = []struct {
	rules  map[string]any
	match  string // the mode of the laps that count; empty means all
	season func(time.Time) string
	join   func(x, y int64) int64
	lower  bool
}{
	{map[string]any{"policy": "BEST", "season": rule{"schedule": "NONE"}}, "", always, func(x, y int64) int64 { return max(x, y) }, false},
	{map[string]any{"policy": "BEST", "order": "LOWER_FIRST", "season": rule{"schedule": "YEARLY"}}, "", layout("2006"), func(x, y int64) int64 { return min(x, y) }, true},
	{map[string]any{"policy": "SUM", "season": rule{"schedule": "MONTHLY"}}, "", layout("200601"), plus, false},
	{map[string]any{"policy": "SUM", "season": rule{"schedule": "NONE"}}, "ranked", always, plus, false},
	{map[string]any{"policy": "SUM", "season": rule{"schedule": "MONTHLY"}}, "casual", layout("200601"), plus, false},
}

type rule = map[string]any

func always(time.Time) string { return "all" }
func plus(x, y int64) int64   { return x + y }
func layout(form string) func(time.Time) string {
	return func(t time.Time) string { return t.Format(form) }
}

// While a source with five linked boards is fed through Kafka, two consumers are killed in
// turn and return. Afterwards all boards equal a recount.
func TestLinkedBoardsWhileConsumersAreKilled(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	source := api.Board(t, "laps", rule{"policy": "SUM", "season": rule{"schedule": "NONE"}, "attributes": []string{"mode"}})
	var linked []string
	for i, l := range linkedRules {
		from := rule{"board_id": source}
		if l.match != "" {
			from["match"] = rule{"mode": l.match}
		}
		l.rules["source"] = from
		linked = append(linked, api.Board(t, fmt.Sprint("laps-", i), l.rules))
	}
	var consumers []*deployment.Node
	// Consumers that start after the boards exist know all links.
	for _, id := range []string{"a", "b"} { // a static member keeps its partitions over a restart
		consumers = append(consumers, d.Serve(t, "--roles=consumer", "--kafka-batch=20", "--kafka-session-timeout=6s", "--kafka-instance-id="+id))
	}
	s := newStream(t, d)
	n := seed.New(t)
	random := rand.New(rand.NewPCG(n, 0))
	const users, matches, sent = 10, 5, 100
	newest := map[[2]string]int{} // the highest revision by user and match
	results := make([]result, sent)
	for i := range results {
		user, id, revision := fmt.Sprint("u", random.IntN(users)), fmt.Sprint("m", random.IntN(matches)), random.IntN(3)
		l := lapOf(n, user, id, revision)
		results[i] = result{user, id, rule{"user_id": user, "match_id": id, "revision": revision, "points": l.points, "achieved_at": l.at, "attributes": rule{"mode": l.mode}}}
		newest[[2]string{user, id}] = max(newest[[2]string{user, id}], revision)
	}
	done := make(chan error, 1)
	go func() { done <- s.send(t.Context(), source, results) }()
	for i, c := range consumers {
		s.reach(t, sent*(i+1)/2)
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
	for i, board := range linked {
		want := map[string]map[string]int64{} // scores by season and user
		for key, revision := range newest {
			l := lapOf(n, key[0], key[1], revision)
			if m := linkedRules[i].match; m != "" && m != l.mode {
				continue
			}
			season := linkedRules[i].season(l.at)
			if want[season] == nil {
				want[season] = map[string]int64{}
			}
			score, ok := want[season][key[0]]
			if want[season][key[0]] = l.points; ok {
				want[season][key[0]] = linkedRules[i].join(score, l.points)
			}
		}
		for season, scores := range want {
			if diff := cmp.Diff(rankedLines(scores, linkedRules[i].lower), ladderLines(t, api, board, season)); diff != "" {
				t.Errorf("seed %d: season %s of %s (-recount +board):\n%s", n, season, board, diff)
			}
		}
	}
}

// rankedLines returns a line for each user with score and competition rank, sorted.
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

// ladderLines returns the lines of a board's season as rankedLines does.
func ladderLines(t *testing.T, api *deployment.Node, board, season string) []string {
	t.Helper()
	var page struct {
		Data struct {
			Leaderboard []struct {
				User  string `json:"user_id"`
				Score int64
				Rank  int64
			}
		}
	}
	if status, err := api.Call(t.Context(), http.MethodGet, "/v1/boards/"+board+"/scores?limit=1000&season="+season, nil, &page); err != nil || status != http.StatusOK {
		t.Fatalf("read %s: status %d, %v", board, status, err)
	}
	var lines []string
	for _, e := range page.Data.Leaderboard {
		lines = append(lines, fmt.Sprintf("%s %d rank %d", e.User, e.Score, e.Rank))
	}
	slices.Sort(lines)
	return lines
}
