package official

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

// Specification checks three routes: submitting points, the top ten, and a user with neighbors. It
// also checks the largest requests, and that concurrent writers read their own writes. The default
// board must have no entries in its current season.
func Specification(t *testing.T, d Deployment) {
	c := d.client()
	t.Run("default board", func(t *testing.T) { checkExamples(t, c, "/v1") })
	t.Run("any board", func(t *testing.T) {
		b := c.createBoard(t, board{ID: "examples", Order: "HIGHER_FIRST", Policy: "SUM", Season: schedule{Schedule: "MONTHLY"}})
		checkExamples(t, c, boardPath(b))
	})
	t.Run("largest requests", func(t *testing.T) { checkLargest(t, c) })
	t.Run("read your writes", func(t *testing.T) { checkReadYourWrites(t, c) })
}

// The service accepts a batch and a lookup of 5,000 elements with the longest ids, and rejects
// 5,001.
func checkLargest(t *testing.T, c *client) {
	const limit = 5000
	b := c.createBoard(t, board{ID: "largest", Order: "HIGHER_FIRST", Policy: "SUM", Season: schedule{Schedule: "NONE"}})
	var results []Result
	var users []string
	for i := range limit + 1 {
		users = append(users, fmt.Sprintf("%0128d", i))
		results = append(results, Result{User: users[i%(limit/10)], Match: users[i], Points: new(int64(i)), AchievedAt: time.Unix(int64(i), 0).UTC()})
	}
	outcomes, err := c.submit(t.Context(), b, results[:limit])
	if err == nil {
		err = c.waitApplied(t.Context(), b, results[:limit], outcomes)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.lookup(t.Context(), query{board: b}, users[:limit])
	if err != nil {
		t.Fatal(err)
	}
	want := ladder(recountSums(results[:limit]), higherFirst)
	if err := compareLadder(want, p.Entries, "competition"); err != nil {
		t.Error(err)
	}

	_, batchErr := c.submit(t.Context(), b, results)
	_, lookupErr := c.lookup(t.Context(), query{board: b}, users)
	for request, err := range map[string]error{"batch": batchErr, "lookup": lookupErr} {
		var status *statusError
		if !errors.As(err, &status) || status.code != http.StatusBadRequest {
			t.Errorf("%s of %d: error %v, want status 400", request, limit+1, err)
		}
	}
	if entries, err := c.list(t.Context(), query{board: b}); err != nil {
		t.Error(err)
	} else if err := compareLadder(want, entries, "competition"); err != nil {
		t.Errorf("after a rejected batch: %v", err)
	}
}

// Some ids have special characters.
var examples = []struct {
	user   string
	points int64
}{
	{"alice", 70}, {"bob", 50}, {"carol", 100}, {"dave", 70}, {"erin", 0}, {"frank", 90}, {"grace/1", 90}, {"heidi:x", 60},
	{"ivan%2F", 70}, {"judy", 40}, {"Käthe", 30}, {"mallory", 20}, {"nadia olsen", 10}, {"oscar?a=b", 5}, {"peggy", 80},
}

func checkExamples(t *testing.T, c *client, prefix string) {
	waitForMonth(t)
	ctx := t.Context()
	userPrefix := rand.Text()[:8] + "-"
	t.Cleanup(func() {
		for _, e := range examples {
			if _, err := c.send(context.WithoutCancel(ctx), http.MethodPost, "/v1/users/"+escape(userPrefix+e.user)+":erase", nil, struct{}{}); err != nil {
				t.Error(err)
			}
		}
	})
	var empty page
	if err := c.callData(ctx, http.MethodGet, prefix+"/scores", nil, nil, &empty); err != nil {
		t.Fatal(err)
	}
	if empty.Total != 0 || empty.Count != 0 {
		t.Fatalf("%s has %d entries in season %s; the examples need an empty board", prefix, empty.Total, empty.Season)
	}

	var want []standing
	var last time.Time
	submit := func(user, match string, points int64) {
		t.Helper()
		body := map[string]any{"user_id": userPrefix + user, "points": points, "match_id": match}
		out, err := c.send(ctx, http.MethodPost, prefix+"/scores", nil, body)
		if err != nil {
			t.Fatal(err)
		}
		checkIntegers(t, out, "new_score", "rank")
		var got struct {
			outcome
			AchievedAt time.Time `json:"achieved_at"`
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(want, func(s standing) bool { return s.user == userPrefix+user })
		switch {
		case got.Status != "APPLIED":
		case i < 0:
			want = append(want, standing{user: userPrefix + user, score: points, at: got.AchievedAt})
		default:
			want[i].score += points
			if points != 0 {
				want[i].at = got.AchievedAt
			}
		}
		want = ladder(want, higherFirst)
		i = slices.IndexFunc(want, func(s standing) bool { return s.user == userPrefix+user })
		if i < 0 || !got.Success || got.Score == nil || *got.Score != want[i].score || got.Rank == nil || *got.Rank != want[i].rank["competition"] {
			t.Fatalf("submit of %d points for %s: answer %s, want it to match the board %+v", points, user, out, want)
		}
		if got.Status == "APPLIED" {
			if !got.AchievedAt.After(last) {
				t.Errorf("submit for %s: achieved_at is %v, want later than the last submit's %v", user, got.AchievedAt, last)
			}
			last = got.AchievedAt
		}
	}
	for i, e := range examples {
		submit(e.user, fmt.Sprintf("match-%d", i), e.points)
	}
	before := slices.Clone(want)
	for i, e := range examples { // a retry counts once
		submit(e.user, fmt.Sprintf("match-%d", i), e.points)
	}
	for i := range before {
		if before[i].user != want[i].user || before[i].score != want[i].score {
			t.Fatalf("retries changed %+v to %+v", before, want)
		}
	}
	submit("alice", "another/match:1", 25) // a second match adds up

	out, err := c.send(ctx, http.MethodGet, prefix+"/scores", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkIntegers(t, out, "score", "rank", "count", "total")
	checkKeys(t, out, "status", "data")
	var top struct {
		Status string
		Data   page
	}
	if err := json.Unmarshal(out, &top); err != nil {
		t.Fatal(err)
	}
	if top.Status != "success" || top.Data.Count != 10 || top.Data.Total != int64(len(want)) {
		t.Errorf("the top ten have status %q, count %d and total %d, want success, 10 and %d", top.Status, top.Data.Count, top.Data.Total, len(want))
	}
	if err := compareLadder(want[:10], top.Data.Entries, "competition"); err != nil {
		t.Errorf("top ten: %v", err)
	}

	// Each user has four neighbors above and below, clipped at the ends.
	for i, s := range want {
		out, err := c.send(ctx, http.MethodGet, prefix+"/scores/"+escape(s.user), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkIntegers(t, out, "score", "rank")
		checkKeys(t, out, "status", "data")
		var answer struct{ Data userPage }
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatal(err)
		}
		if err := compareNeighbors(query{}, want, i, 4, &answer.Data); err != nil {
			t.Error(err)
		}
	}

	// An unknown user and malformed requests are errors.
	for _, tt := range []struct {
		method, path string
		body         any
		code         int
	}{
		{http.MethodGet, "/scores/" + userPrefix + "nobody", nil, http.StatusNotFound},
		{http.MethodGet, "/scores?sort=desc", nil, http.StatusBadRequest},
		{http.MethodPost, "/scores", map[string]any{"user_id": userPrefix + "bob", "points": 1, "match": "m"}, http.StatusBadRequest},
		{http.MethodPost, "/scores", map[string]any{"user_id": userPrefix + "bob", "score": 1, "match_id": "m"}, http.StatusBadRequest},
		{http.MethodPost, "/scores", map[string]any{"points": 1, "match_id": "m"}, http.StatusBadRequest},
	} {
		_, err := c.send(ctx, tt.method, prefix+tt.path, nil, tt.body)
		var status *statusError
		if !errors.As(err, &status) || status.code != tt.code {
			t.Errorf("%s %s %v: error %v, want status %d", tt.method, prefix+tt.path, tt.body, err, tt.code)
		}
	}
}

// A season is a month. If the current month ends within seconds, waitForMonth waits for the next
// month.
func waitForMonth(t *testing.T) {
	now := time.Now().UTC()
	next := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 1, 0, time.UTC)
	if next.Sub(now) > 20*time.Second {
		return
	}
	select {
	case <-time.After(time.Until(next)):
	case <-t.Context().Done():
	}
}

func checkKeys(t *testing.T, body []byte, names ...string) {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("the answer has the fields %q, want %q", got, names)
	}
}

// Each of the names must occur, and all their values must be JSON integers.
func checkIntegers(t *testing.T, body []byte, names ...string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var answer any
	if err := d.Decode(&answer); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("want one JSON value: %s", body)
	}
	found := map[string]bool{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, element := range v {
				walk(element)
			}
		case map[string]any:
			for name, value := range v {
				if slices.Contains(names, name) {
					found[name] = true
					if n, ok := value.(json.Number); !ok || strings.ContainsAny(n.String(), ".eE") {
						t.Errorf("%s is %v, want an integer, in %s", name, value, body)
					}
				}
				walk(value)
			}
		}
	}
	walk(answer)
	for _, name := range names {
		if !found[name] {
			t.Errorf("the answer lacks %s: %s", name, body)
		}
	}
}

const (
	writers        = 16
	usersPerWriter = 4
	writesEach     = 100
)

// Each writer has its own users, and knows their sums exactly. It knows the sum of every other user
// within two bounds. The lower bound is the sum of the submits acknowledged before the read began. The
// upper bound is the sum of the submits that started before the read ended.
func checkReadYourWrites(t *testing.T, c *client) {
	s := seed.New(t)
	b := c.createBoard(t, board{ID: "read-your-writes", Order: "HIGHER_FIRST", Policy: "SUM", Season: schedule{Schedule: "NONE"}})
	q := query{board: b}
	var acked, started [writers * usersPerWriter]atomic.Int64
	name := func(user int) string { return fmt.Sprintf("user-%02d", user) }
	count := func(sums *[writers * usersPerWriter]atomic.Int64, user int, limit int64) int64 {
		n := int64(0)
		for i := range sums {
			if i != user && sums[i].Load() > limit {
				n++
			}
		}
		return n
	}
	err := forEach(t.Context(), writers, func(ctx context.Context, w int) error {
		random := newRand(s + uint64(w))
		type submit struct {
			user   int
			result Result
		}
		var sent []submit
		for i := range writesEach {
			user := w*usersPerWriter + random.IntN(usersPerWriter)
			r := Result{User: name(user), Match: fmt.Sprintf("%d-%d", w, i), Points: new(1 + random.Int64N(20))}
			sum := acked[user].Load()
			if len(sent) > 0 && random.IntN(5) == 0 {
				retry := sent[random.IntN(len(sent))]
				user, r = retry.user, retry.result
				sum = acked[user].Load()
			} else {
				sent = append(sent, submit{user, r})
				sum += *r.Points
			}
			started[user].Store(sum)
			lowest := 1 + count(&acked, user, sum)
			outcomes, err := c.submit(ctx, b, []Result{r})
			if err != nil {
				return err
			}
			if outcomes[0].Status == "ACCEPTED" {
				return fmt.Errorf("a submit was accepted but not applied in time: %+v", outcomes[0])
			}
			acked[user].Store(sum)
			highest := 1 + count(&started, user, sum)
			if o := outcomes[0]; !o.Success || o.Score == nil || *o.Score != sum || o.Rank == nil || *o.Rank < lowest || *o.Rank > highest {
				return fmt.Errorf("submit of %+v: score %s and rank %s, want score %d and rank %d to %d", r, show(o.Score), show(o.Rank), sum, lowest, highest)
			}

			lowest = 1 + count(&acked, user, sum)
			p, err := c.user(ctx, q, r.User, 0)
			if err != nil {
				return err
			}
			highest = 1 + count(&started, user, sum)
			if p.Score != sum || p.Rank == nil || *p.Rank < lowest || *p.Rank > highest {
				return fmt.Errorf("after a submit of %+v: entry of %s is %s, want score %d and rank %d to %d", r, r.User, p.entry.line(), sum, lowest, highest)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	entries, err := c.list(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var want []standing
	for user := range acked {
		if sum := acked[user].Load(); sum > 0 {
			position := slices.IndexFunc(entries, func(e entry) bool { return e.User == name(user) })
			if position < 0 {
				t.Fatalf("%s is missing from the board, want an entry", name(user))
			}
			want = append(want, standing{user: name(user), score: sum, at: entries[position].AchievedAt})
		}
	}
	if err := compareLadder(ladder(want, higherFirst), entries, "competition"); err != nil {
		t.Error(err)
	}
}
