package pipeline

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// Each dry run must list the changes that the same call without dry_run makes. Rankings by division
// and by range of scores must equal a recount.
func TestChangesOverREST(t *testing.T) {
	eachServer(t, func(t *testing.T, api *deployment.Client, cheap bool) {
		c := newChanges(t, api)
		acts := []func(){c.submit, c.submit, c.correct, c.voidMatch, c.voidMatch, c.purge, c.retract, c.ban, c.erase}
		steps := needs.More(t, 1)
		if cheap {
			steps = needs.More(t, 5)
		}
		for range steps {
			for range 8 {
				acts[c.IntN(len(acts))]()
			}
			c.changeDivisions()
			c.check()
			if t.Failed() {
				return
			}
		}
		t.Logf("%d calls; dry runs listed %d entries of the source and %d of the linked board", c.calls, c.listed[c.source], c.listed[c.linked])
		if cheap && min(c.listed[c.source], c.listed[c.linked]) == 0 {
			t.Error("dry runs listed no entry of the source, or none of the linked board, want some of each")
		}
	})
}

// eachServer runs test on a server of each engine. If cheap is true, calls are fast, so that the
// test can make more of them.
func eachServer(t *testing.T, test func(t *testing.T, api *deployment.Client, cheap bool)) {
	t.Run("embedded", func(t *testing.T) {
		program, api := deployment.Program(t), &deployment.Client{}
		cluster.Program(t, cluster.ProgramConfig{
			Name: "leaderboard", Ports: 2,
			Command: func(dir string, addrs []string) *exec.Cmd {
				api.URL = "http://" + addrs[0]
				return exec.Command(program, "serve", "--data", dir, "--http", addrs[0], "--grpc", addrs[1], "--insecure", "--request-timeout=2m")
			},
			Ready: func(ctx context.Context, _ []string) error { return api.Ready(ctx) },
		})
		test(t, api, true)
	})
	t.Run("distributed", func(t *testing.T) {
		d := deployment.New(t, deployment.Options{})
		api := serveAPI(t, d)
		d.Serve(t, "--roles=consumer")
		test(t, api.Client, false)
	})
}

const changeUsers, changeMatches = 6, 8

type storedResult struct {
	revision   int64
	points     int64
	at         time.Time
	attributes map[string]string
	retracted  bool
}

// changes is a source with a linked board, and the expected content of both.
type changes struct {
	*deployment.Client
	*rand.Rand
	t              *testing.T
	source, linked string
	divisions      map[string][]string         // by board
	results        map[[2]string]*storedResult // of the source, by user and match
	void           map[string]bool             // by match
	banned         map[[2]string]bool          // by user and board; "" means every board

	calls  int
	listed map[string]int // the entries that dry runs listed, by board
}

func newChanges(t *testing.T, api *deployment.Client) *changes {
	c := &changes{
		Client: api, Rand: rand.New(rand.NewPCG(seed.New(t), 0)), t: t,
		results: map[[2]string]*storedResult{}, void: map[string]bool{}, banned: map[[2]string]bool{}, listed: map[string]int{},
	}
	c.source = api.Board(t, "changes", object{"policy": "SUM", "season": object{"schedule": "NONE"}, "attributes": []string{"mode", "region"}, "matches": true})
	c.linked = api.Board(t, "changes-linked", object{
		"policy": "BEST", "season": object{"schedule": "MONTHLY"}, "divisions": []string{"region"},
		"source": object{"board_id": c.source, "match": object{"mode": "ranked"}},
	})
	c.divisions = map[string][]string{c.linked: {"region"}}
	return c
}

func (c *changes) call(method, path string, body, answer any) {
	c.t.Helper()
	c.calls++
	if status, err := c.Call(c.t.Context(), method, path, body, answer); err != nil || status/100 != 2 {
		c.t.Fatalf("%s %s %s: status %d, error %v; answer: %s", method, path, show(body), status, err, show(answer))
	}
}

func (c *changes) path(parts ...string) string {
	return "/v1/boards/" + c.source + "/" + strings.Join(parts, "/")
}

// Some bans concern all boards, so the user ids of each run are unique.
func (c *changes) user() string    { return fmt.Sprint(c.source, "-", c.IntN(changeUsers)) }
func (c *changes) matchID() string { return fmt.Sprint("m", c.IntN(changeMatches)) }

func (c *changes) day() time.Time { return time.Date(2026, 9, 20+c.IntN(20), 0, 0, 0, 0, time.UTC) }

func (c *changes) randomAttributes() map[string]string {
	all := map[string]string{"mode": []string{"ranked", "casual", ""}[c.IntN(3)], "region": []string{"eu", "us", ""}[c.IntN(3)]}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

type outcomes struct {
	Outcomes []struct {
		User     string `json:"user_id"`
		Match    string `json:"match_id"`
		Status   string
		Revision int64
	}
}

func (c *changes) checkStatuses(o outcomes, statuses []string) {
	c.t.Helper()
	got := []string{}
	for _, outcome := range o.Outcomes {
		got = append(got, outcome.Status)
	}
	if diff := cmp.Diff(statuses, got); diff != "" {
		c.t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// Some results of the batch have a higher revision than the stored result, and some a lower one.
func (c *changes) submit() {
	var batch []object
	var want []string
	seen := map[[2]string]bool{}
	for range 10 {
		key := [2]string{c.user(), c.matchID()}
		if seen[key] {
			continue
		}
		seen[key] = true
		next := &storedResult{points: c.Int64N(9) - 2, at: c.day().Add(time.Duration(c.IntN(24)) * time.Hour), attributes: c.randomAttributes()}
		previous := c.results[key]
		switch {
		case previous == nil:
		case previous.revision > 0 && c.IntN(4) == 0:
			next.revision = previous.revision - 1
		default:
			next.revision = previous.revision + 1 + c.Int64N(2)
		}
		status := "APPLIED"
		if previous != nil && next.revision < previous.revision {
			status = "SUPERSEDED"
		} else {
			c.results[key] = next
		}
		want = append(want, status)
		batch = append(batch, object{
			"board_id": c.source, "user_id": key[0], "match_id": key[1], "points": next.points, "revision": next.revision, "achieved_at": next.at, "attributes": next.attributes,
		})
	}
	var answer outcomes
	c.call(http.MethodPost, "/v1/results:batch", object{"results": batch}, &answer)
	c.checkStatuses(answer, want)
}

// randomKey returns the key of a random result that is not retracted.
func (c *changes) randomKey() ([2]string, bool) {
	var keys [][2]string
	for key, h := range c.results {
		if !h.retracted {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return [2]string{}, false
	}
	slices.SortFunc(keys, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	return keys[c.IntN(len(keys))], true
}

func (c *changes) correct() {
	key, ok := c.randomKey()
	if !ok {
		return
	}
	h := *c.results[key]
	h.attributes = maps.Clone(h.attributes)
	body := object{}
	if c.IntN(2) == 0 {
		h.points = c.Int64N(9) - 2
		body["points"] = h.points
	}
	if c.IntN(2) == 0 {
		h.at = c.day()
		body["achieved_at"] = h.at
	}
	if c.IntN(2) == 0 || len(body) == 0 {
		name, value := []string{"mode", "region"}[c.IntN(2)], []string{"ranked", "us", ""}[c.IntN(3)]
		body["attributes"] = object{name: value}
		if h.attributes[name] = value; value == "" {
			delete(h.attributes, name)
		}
	}
	var answer struct{ Revision int64 }
	c.call(http.MethodPatch, c.path("results", key[0], key[1]), body, &answer)
	if answer.Revision <= h.revision {
		c.t.Errorf("correction of %v: revision %d, want more than %d", key, answer.Revision, h.revision)
	}
	h.revision = answer.Revision
	c.results[key] = &h
}

func (c *changes) voidMatch() {
	id, void := c.matchID(), c.IntN(3) > 0
	if !slices.ContainsFunc(slices.Collect(maps.Keys(c.results)), func(key [2]string) bool { return key[1] == id }) {
		return
	}
	verb := map[bool]string{true: "void", false: "restore"}[void]
	c.preview(c.path("matches", id)+":"+verb, object{"reason": "test"}, func() { c.void[id] = void }, &struct{}{})
}

func (c *changes) retract() {
	var keys [][2]string
	for range 1 + c.IntN(3) {
		if key, ok := c.randomKey(); ok && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return
	}
	var body []object
	var want []string
	for _, key := range keys {
		body, want = append(body, object{"user_id": key[0], "match_id": key[1]}), append(want, "APPLIED")
	}
	var answer outcomes
	c.preview(c.path("results")+":retract", object{"results": body}, func() {
		for _, key := range keys {
			c.undo(key)
		}
	}, &answer)
	c.checkStatuses(answer, want)
	c.setRevisions(answer)
}

func (c *changes) purge() {
	user, from := c.user(), c.day()
	to := from.AddDate(0, 0, c.IntN(5))
	var keys [][2]string
	for key, h := range c.results {
		if key[0] == user && !h.retracted && !h.at.Before(from) && h.at.Before(to) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return
	}
	var answer outcomes
	c.preview(c.path("results", user)+":purge", object{"from": from, "to": to}, func() {
		for _, key := range keys {
			c.undo(key)
		}
	}, &answer)
	c.checkStatuses(answer, slices.Repeat([]string{"APPLIED"}, len(keys)))
	c.setRevisions(answer)
}

func (c *changes) ban() {
	user, board, banned := c.user(), []string{"", c.source, c.linked}[c.IntN(3)], c.IntN(2) == 0
	body := object{"reason": "test"}
	if board != "" {
		body["board"] = board
	}
	c.call(http.MethodPost, "/v1/users/"+user+map[bool]string{true: ":ban", false: ":unban"}[banned], body, nil)
	c.banned[[2]string{user, board}] = banned
}

// A ban on the source also hides the user on the linked board.
func (c *changes) isBanned(user, board string) bool {
	return c.banned[[2]string{user, ""}] || c.banned[[2]string{user, c.source}] || c.banned[[2]string{user, board}]
}

func (c *changes) erase() {
	if c.IntN(3) > 0 {
		return
	}
	user := c.user()
	c.call(http.MethodPost, "/v1/users/"+user+":erase", object{}, nil)
	maps.DeleteFunc(c.results, func(key [2]string, _ *storedResult) bool { return key[0] == user })
	maps.DeleteFunc(c.banned, func(key [2]string, _ bool) bool { return key[0] == user })
}

func (c *changes) undo(key [2]string) {
	c.results[key] = &storedResult{revision: c.results[key].revision + 1, retracted: true}
}

// An erasure does not free the revisions that earlier calls reserved. A later retraction skips
// these, so its revision may be higher than in the recount.
func (c *changes) setRevisions(o outcomes) {
	c.t.Helper()
	for _, one := range o.Outcomes {
		h := c.results[[2]string{one.User, one.Match}]
		if one.Revision < h.revision {
			c.t.Errorf("retraction of %s of %s: revision %d, want at least %d", one.Match, one.User, one.Revision, h.revision)
		}
		h.revision = one.Revision
	}
}

// Without an entry, the score is nil and the rank is 0. The rank of a banned user is 0.
type effect struct {
	Board       string
	Season      string
	User        string `json:"user_id"`
	ScoreBefore *int64 `json:"score_before"`
	ScoreAfter  *int64 `json:"score_after"`
	RankBefore  int    `json:"rank_before"`
	RankAfter   int    `json:"rank_after"`
}

// preview makes a dry run of a call, and then the call. The function change applies the call to
// c.results and c.void. The dry run must list the entries that appear, disappear or change their
// score in the recount. It may also list entries of which only the event time changes.
func (c *changes) preview(path string, body object, change func(), answer any) {
	c.t.Helper()
	var dry struct {
		Effect struct {
			Entries []effect
			Count   int `json:"changed_count"`
		}
	}
	body["dry_run"] = true
	c.call(http.MethodPost, path, body, &dry)
	before := c.entries()
	change()
	after := c.entries()
	got, want := map[entryPlace]effect{}, map[entryPlace]effect{}
	for _, e := range dry.Effect.Entries {
		c.listed[e.Board]++
		got[entryPlace{e.Board, e.Season, e.User}] = e
	}
	for p := range union(before, after) {
		e := effect{Board: p.board, Season: p.season, User: p.user, RankBefore: before[p].rank, RankAfter: after[p].rank}
		if s, ok := before[p]; ok {
			e.ScoreBefore = &s.score
		}
		if s, ok := after[p]; ok {
			e.ScoreAfter = &s.score
		}
		_, listed := got[p]
		_, existed := before[p]
		_, exists := after[p]
		if listed || !existed || !exists || before[p].score != after[p].score {
			want[p] = e
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(dry.Effect.Entries) != dry.Effect.Count {
		c.t.Errorf("dry run of %s %s: changed_count %d, entries (-recount +answer):\n%s", path, show(body), dry.Effect.Count, diff)
	}
	delete(body, "dry_run")
	c.call(http.MethodPost, path, body, answer)
}

type entryPlace struct{ board, season, user string }

// recounted is an entry of the recount. A division has the form attribute:value. The overall
// ranking is the division "".
type recounted struct {
	score     int64
	rank      int // competition, overall; 0 if the user is banned
	divisions map[string]bool
}

func union(x, y map[entryPlace]recounted) map[entryPlace]bool {
	all := map[entryPlace]bool{}
	for p := range x {
		all[p] = true
	}
	for p := range y {
		all[p] = true
	}
	return all
}

func (c *changes) entries() map[entryPlace]recounted {
	all := map[entryPlace]recounted{}
	decided := map[entryPlace]map[string]latest{} // by attribute, the value of the latest result with it
	for key, h := range c.results {
		if h.retracted || c.void[key[1]] {
			continue
		}
		places := []entryPlace{{c.source, "all", key[0]}}
		if h.attributes["mode"] == "ranked" {
			places = append(places, entryPlace{c.linked, h.at.Format("200601"), key[0]})
		}
		for _, p := range places {
			e, ok := all[p]
			switch {
			case !ok:
				e.score = h.points
				decided[p] = map[string]latest{}
			case p.board == c.source:
				e.score += h.points
			default:
				e.score = max(e.score, h.points)
			}
			all[p] = e
			for name, value := range h.attributes {
				if l, ok := decided[p][name]; !ok || h.at.After(l.at) || h.at.Equal(l.at) && key[1] > l.match {
					decided[p][name] = latest{value, key[1], h.at}
				}
			}
		}
	}
	for p, e := range all {
		if c.isBanned(p.user, p.board) {
			continue
		}
		e.rank, e.divisions = 1, map[string]bool{"": true}
		for other, o := range all {
			if other.board == p.board && other.season == p.season && o.score > e.score && !c.isBanned(other.user, p.board) {
				e.rank++
			}
		}
		for _, d := range c.divisions[p.board] {
			var values []string
			for _, name := range strings.Split(d, "+") {
				values = append(values, decided[p][name].value)
			}
			if !slices.Contains(values, "") {
				e.divisions[d+":"+strings.Join(values, "+")] = true
			}
		}
		all[p] = e
	}
	return all
}

// latest is the value of an attribute, and the result that it comes from.
type latest struct {
	value, match string
	at           time.Time
}

// changeDivisions does not wait for the fill: c.check waits.
func (c *changes) changeDivisions() {
	board := []string{c.source, c.linked}[c.IntN(2)]
	var divisions []string
	for _, d := range []string{"region", "mode", "mode+region"} {
		if c.IntN(2) == 0 {
			divisions = append(divisions, d)
		}
	}
	if slices.Equal(divisions, c.divisions[board]) {
		divisions = append(slices.DeleteFunc(divisions, func(d string) bool { return d == "mode+region" }), "region+mode")
	}
	c.call(http.MethodPatch, "/v1/boards/"+board, object{"divisions": slices.Concat([]string{}, divisions)}, nil)
	c.divisions[board] = divisions
}

func (c *changes) check() {
	c.t.Helper()
	rankings := map[[3]string]map[string]int64{} // scores by board, season and division, then by user
	for p, e := range c.entries() {
		for d := range e.divisions {
			key := [3]string{p.board, p.season, d}
			if rankings[key] == nil {
				rankings[key] = map[string]int64{}
			}
			rankings[key][p.user] = e.score
		}
	}
	for _, board := range []string{c.source, c.linked} {
		waitFilled(c.t, c.Client, board)
		var want []string
		for key := range rankings {
			if key[0] == board && key[2] == "" {
				want = append(want, key[1])
			}
		}
		slices.Sort(want)
		got := seasonsWithEntries(c.t, c.Client, board)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			c.t.Errorf("seasons of %s with entries: %q, want %q", board, got, want)
		}
		for _, season := range []string{"all", "202609", "202610"} {
			if (season == "all") != (board == c.source) {
				continue
			}
			for _, d := range c.allDivisions(board) {
				c.checkRanking(board, season, d, rankings[[3]string{board, season, d}])
			}
		}
	}
}

func (c *changes) allDivisions(board string) []string {
	all := []string{""}
	values := map[string][]string{"mode": {"ranked", "casual"}, "region": {"eu", "us"}}
	for _, d := range c.divisions[board] {
		found := []string{d + ":"}
		for i, name := range strings.Split(d, "+") {
			var longer []string
			for _, f := range found {
				for _, v := range values[name] {
					longer = append(longer, f+strings.Repeat("+", min(i, 1))+v)
				}
			}
			found = longer
		}
		all = append(all, found...)
	}
	return all
}

func (c *changes) checkRanking(board, season, division string, scores map[string]int64) {
	c.t.Helper()
	low := c.Int64N(12) - 4
	high := low + c.Int64N(8)
	for _, ranged := range []bool{false, true} {
		query := url.Values{"season": {season}, "limit": {"100"}}
		if division != "" {
			query.Set("division", division)
		}
		inRange := map[string]bool{}
		for user, score := range scores {
			inRange[user] = !ranged || low <= score && score <= high
		}
		if ranged {
			query.Set("min_score", fmt.Sprint(low))
			query.Set("max_score", fmt.Sprint(high))
		}
		want := slices.DeleteFunc(rankedLines(scores, false), func(line string) bool {
			user, _, _ := strings.Cut(line, " ")
			return !inRange[user]
		})
		var page struct {
			Data struct {
				ladderAnswer
				InRange *int `json:"in_range"`
				Total   int
				Filling bool
			}
		}
		c.call(http.MethodGet, "/v1/boards/"+board+"/scores?"+query.Encode(), nil, &page)
		if diff := cmp.Diff(want, page.Data.lines(), cmpopts.EquateEmpty()); diff != "" || page.Data.Filling || page.Data.Total != len(scores) {
			c.t.Errorf("%s?%s: total %d, want %d; filling %t; lines (-recount +answer):\n%s", board, query.Encode(), page.Data.Total, len(scores), page.Data.Filling, diff)
		}
		if n := page.Data.InRange; ranged && (n == nil || *n != len(want)) {
			c.t.Errorf("%s?%s: in_range %s, want %d", board, query.Encode(), show(n), len(want))
		}
	}
}
