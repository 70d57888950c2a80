package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

const (
	historyUsers   = 4
	historyMatches = 3
	historyPace    = 150 * time.Millisecond
)

// histories records concurrent calls that submit, correct, retract and read results of a few users.
// Each user's history must be linearizable: each call has its effect at one moment between its start
// and its end.
type histories struct {
	t     *testing.T
	board string
	start time.Time

	ending chan struct{}
	done   sync.WaitGroup

	mu         sync.Mutex
	random     *rand.Rand
	revisions  [historyUsers][historyMatches]int64 // the highest of each match
	operations [historyUsers][]porcupine.Operation
	retries    int // submits without a final answer: see submit
	degraded   int // reads without ranks
	calls      int
}

// change is the input of an operation that writes a revision of a result.
type change struct {
	match     int
	revision  int64 // from 1
	points    int64
	retracted bool
}

// look is the input of an operation that reads a user's score. An answer to a submit has a score
// too. This score must include the submitted revision, or a later one.
type look struct {
	match    int
	revision int64 // 0 if the score need not include any revision
}

// sight is the output of an operation that reads a user's score.
type sight struct {
	score int64
	found bool
}

// points is the state of a user: the newest revision of each match.
type points [historyMatches]change

func (p points) sight() (s sight) {
	for _, c := range p {
		if c.revision > 0 && !c.retracted {
			s.found = true
			s.score += c.points
		}
	}
	return s
}

// historyModel specifies a user's score on a board with the policy SUM. With it, Porcupine checks
// linearizability.
var historyModel = porcupine.Model{
	Init: func() any { return points{} },
	Step: func(state, input, output any) (bool, any) {
		p := state.(points)
		switch in := input.(type) {
		case change:
			if in.revision > p[in.match].revision {
				p[in.match] = in
			}
			return true, p
		case look:
			included := in.revision == 0 || p[in.match].revision >= in.revision
			return included && p.sight() == output.(sight), p
		}
		return false, p
	},
}

// recordHistories creates a board and starts clients, which run until [histories.check].
func recordHistories(t *testing.T, seed uint64, n *deployment.Node, apis ...*deployment.Client) *histories {
	t.Helper()
	h := &histories{
		t: t, start: time.Now(), ending: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 2)),
		board: n.Board(t, "histories", object{"policy": "SUM", "order": "HIGHER_FIRST", "season": object{"schedule": "NONE"}}),
	}
	for user := range historyUsers {
		for i := range 3 {
			api := *apis[(user+i)%len(apis)] // a copy, because a restart of the node writes to its client
			h.done.Go(func() { h.run(&api, user, i) })
		}
	}
	return h
}

func (h *histories) run(api *deployment.Client, user, client int) {
	tick := time.NewTicker(historyPace)
	defer tick.Stop()
	for {
		select {
		case <-h.ending:
			return
		case <-h.t.Context().Done():
			return
		case <-tick.C:
		}
		if client == 2 {
			h.read(api, user, client)
		} else {
			h.write(api, user, client, tick)
		}
	}
}

func userName(user int) string { return fmt.Sprintf("user-%d", user) }

// write sends the next revision of a match until the answer is final. These calls are one
// operation, because a result that arrives several times counts once.
func (h *histories) write(api *deployment.Client, user, client int, tick *time.Ticker) {
	h.mu.Lock()
	c := change{match: h.random.IntN(historyMatches), points: 1 + h.random.Int64N(1000), retracted: h.random.IntN(4) == 0}
	h.revisions[user][c.match]++
	c.revision = h.revisions[user][c.match]
	h.mu.Unlock()
	begun := h.now()
	for {
		score, final := h.submit(api, user, c)
		ended := h.now()
		if final {
			h.record(user, client, c, begun, nil, ended)
			if score != nil { // with another client id, because one client's operations must not overlap
				h.record(user, 10+client, look{c.match, c.revision}, begun, sight{*score, true}, ended)
			}
			return
		}
		select {
		case <-tick.C:
		case <-h.t.Context().Done():
			return
		}
	}
}

// A final answer says that the service has c or a later revision.
func (h *histories) submit(api *deployment.Client, user int, c change) (score *int64, final bool) {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	path, match := "/v1/boards/"+h.board, fmt.Sprintf("match-%d", c.match)
	body := object{"user_id": userName(user), "match_id": match, "revision": c.revision, "points": c.points, "achieved_at": epoch.Format(time.RFC3339)}
	if c.retracted {
		path += "/results/" + userName(user) + "/" + match + ":retract"
		body = object{"revision": c.revision, "season": "all"}
	} else {
		path += "/scores"
	}
	var o struct {
		Status   string `json:"status"`
		NewScore *int64 `json:"new_score"`
	}
	status, err := api.Call(ctx, http.MethodPost, path, body, &o)
	final = err == nil && status == http.StatusOK && (o.Status == "APPLIED" || o.Status == "DUPLICATE" || o.Status == "SUPERSEDED")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if !final {
		h.retries++
	}
	return o.NewScore, final
}

func (h *histories) read(api *deployment.Client, user, client int) {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	var answer struct {
		Data struct {
			Score    int64 `json:"score"`
			Degraded bool  `json:"degraded"`
		} `json:"data"`
	}
	begun := h.now()
	status, err := api.Call(ctx, http.MethodGet, "/v1/boards/"+h.board+"/scores/"+userName(user)+"?season=all", nil, &answer)
	ended := h.now()
	h.mu.Lock()
	h.calls++
	if answer.Data.Degraded {
		h.degraded++
	}
	h.mu.Unlock()
	if err == nil && (status == http.StatusOK || status == http.StatusNotFound) {
		h.record(user, client, look{}, begun, sight{answer.Data.Score, status == http.StatusOK}, ended)
	}
}

func (h *histories) now() int64 { return int64(time.Since(h.start)) }

func (h *histories) record(user, client int, input any, begun int64, output any, ended int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations[user] = append(h.operations[user], porcupine.Operation{ClientId: client, Input: input, Call: begun, Output: output, Return: ended})
}

const historyTimeout = 2 * time.Minute

func (h *histories) check(t *testing.T) {
	t.Helper()
	close(h.ending)
	h.done.Wait()
	total := 0
	for user, operations := range h.operations {
		total += len(operations)
		if len(operations) == 0 {
			t.Errorf("no operation of %s was recorded", userName(user))
		}
		if result, info := porcupine.CheckOperationsVerbose(historyModel, operations, historyTimeout); result != porcupine.Ok {
			t.Errorf("the history of %s on board %s is not linearizable (%v):\n%s", userName(user), h.board, result, unordered(operations, info))
		}
	}
	t.Logf("histories: checked %d operations of %d users; %d calls, %d of them without a final answer, %d reads without ranks",
		total, historyUsers, h.calls, h.retries, h.degraded)
}

// unordered describes the operations around the first operation that Porcupine could not order: it
// is missing from the longest order that Porcupine found.
func unordered(operations []porcupine.Operation, info porcupine.LinearizationInfo) string {
	placed := map[int]bool{}
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(placed) {
			clear(placed)
			for _, i := range order {
				placed[i] = true
			}
		}
	}
	first := -1
	for i, o := range operations {
		if !placed[i] && (first < 0 || o.Return < operations[first].Return) {
			first = i
		}
	}
	if first < 0 {
		return "Porcupine found an order of all operations"
	}
	near := int64(2 * time.Second)
	var lines []string
	sorted := slices.Clone(operations)
	slices.SortFunc(sorted, func(x, y porcupine.Operation) int { return int(x.Call - y.Call) })
	for _, o := range sorted {
		if o.Return > operations[first].Call-near && o.Call < operations[first].Return+near {
			mark := " "
			if o == operations[first] {
				mark = ">"
			}
			lines = append(lines, fmt.Sprintf("%s client %2d, %v to %v: %+v %+v", mark, o.ClientId,
				time.Duration(o.Call).Round(time.Millisecond), time.Duration(o.Return).Round(time.Millisecond), o.Input, o.Output))
		}
	}
	return strings.Join(lines, "\n")
}

func (h *histories) waitForMore(n int) {
	h.t.Helper()
	count := func() (total int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, operations := range h.operations {
			total += len(operations)
		}
		return total
	}
	want := count() + n
	deployment.Eventually(h.t, func(context.Context) error {
		if got := count(); got < want {
			return fmt.Errorf("%d operations are recorded, want %d", got, want)
		}
		return nil
	})
}
