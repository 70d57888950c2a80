package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// load is a stream of results and reads. Results go to API nodes and, as a game
// server may, straight into Kafka; each is sent again until it is acknowledged.
type load struct {
	t      *testing.T
	ledger *ledger
	apis   []*deployment.Node

	ending chan struct{} // closed when no more is to be made up
	done   sync.WaitGroup

	mu           sync.Mutex
	calls        []call
	acknowledged int
	accepted     int // of which without having been applied
	wrong        []string
	settled      map[match]int64 // the highest revision that was answered as applied
}

// call is a request that was answered, or was not.
type call struct {
	began time.Time
	took  time.Duration
	write bool
	err   error
}

// pace is how often each of the senders and readers sends.
const pace = 100 * time.Millisecond

// start begins a load. It goes on until [load.stop].
func start(t *testing.T, d *deployment.Deployment, ledger *ledger, apis ...*deployment.Node) *load {
	t.Helper()
	l := &load{t: t, ledger: ledger, apis: apis, ending: make(chan struct{}), settled: map[match]int64{}}
	log := newLog(t, d.Kafka)
	topic := d.TopicPrefix + "match-results"
	for _, api := range apis {
		for range 4 {
			l.send(func(ctx context.Context, r *result) error { return l.submit(ctx, api, r) })
		}
		l.read(func(ctx context.Context) error { return l.readPage(ctx, api) })
		l.read(func(ctx context.Context) error { return l.readResult(ctx, api) })
	}
	for range 2 {
		l.send(func(_ context.Context, r *result) error { return log.send(topic, r) })
	}
	return l
}

// send begins a sender, which gives results to send, each until that succeeds.
func (l *load) send(send func(context.Context, *result) error) {
	l.done.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		ending := false
		for {
			var r *result
			if ending = ending || l.isEnding(); ending {
				if r = l.ledger.rest(); r == nil {
					return
				}
			} else {
				r = l.ledger.next()
			}
			for l.try(true, func(ctx context.Context) error { return send(ctx, r) }) != nil {
				if !l.wait(tick) {
					return
				}
			}
			if !l.wait(tick) {
				return
			}
		}
	})
}

// read begins a reader.
func (l *load) read(read func(context.Context) error) {
	l.done.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for !l.isEnding() && l.wait(tick) {
			_ = l.try(false, read) // an error is on record
		}
	})
}

func (l *load) isEnding() bool {
	select {
	case <-l.ending:
		return true
	default:
		return false
	}
}

// wait waits for a tick, and says whether the test goes on.
func (l *load) wait(tick *time.Ticker) bool {
	select {
	case <-tick.C:
		return true
	case <-l.t.Context().Done():
		return false
	}
}

// try makes a call and puts it on record.
func (l *load) try(write bool, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	c := call{began: time.Now(), write: write}
	c.err = f(ctx)
	c.took = time.Since(c.began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	if write && c.err == nil {
		l.acknowledged++
	}
	return c.err
}

// outcome is the answer to a submit or a retraction.
type outcome struct {
	Status  string `json:"status"`
	Rank    *int64 `json:"rank"`
	Message string `json:"message"` // of an error
}

// submit sends a result over REST.
func (l *load) submit(ctx context.Context, api *deployment.Node, r *result) error {
	path := "/v1/boards/" + r.board.id + "/scores"
	var body any = r.json()
	if r.retracted {
		path = "/v1/boards/" + r.board.id + "/results/" + r.user + "/" + r.id + ":retract"
		body = map[string]any{"revision": r.revision, "season": "all"}
	}
	var o outcome
	status, err := api.Call(ctx, http.MethodPost, path, body, &o)
	if err != nil {
		return err
	}
	if o.Rank != nil && *o.Rank < 1 {
		l.note("submit %v: rank %d", r, *o.Rank)
	}
	switch {
	case status == http.StatusAccepted:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.accepted++
	case status/100 != 2:
		return fmt.Errorf("submit: status %d, %s", status, o.Message)
	case o.Status == "APPLIED" || o.Status == "DUPLICATE" || o.Status == "SUPERSEDED":
		l.applied(r)
	default:
		l.note("submit %v: %+v", r, o)
	}
	return nil
}

// applied notes that a result was answered as one that every read sees.
func (l *load) applied(r *result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if have, ok := l.settled[r.match]; !ok || have < r.revision {
		l.settled[r.match] = r.revision
	}
}

// anyApplied returns a match that was answered as applied, and the revision.
func (l *load) anyApplied() (m match, revision int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, revision := range l.settled { // in random order
		return m, revision, true
	}
	return match{}, 0, false
}

// note puts down an answer that no fault excuses.
func (l *load) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// readPage reads a board and checks that its answer agrees with itself.
func (l *load) readPage(ctx context.Context, api *deployment.Node) error {
	b := l.ledger.boards[time.Now().UnixNano()%int64(len(l.ledger.boards))]
	p, err := readPage(ctx, api, b, "")
	if err != nil {
		return err
	}
	if problem := p.problem(b); problem != "" {
		l.note("board %s: %s: %v", b.id, problem, p)
	}
	return nil
}

// readResult asks for a result that was answered as applied.
func (l *load) readResult(ctx context.Context, api *deployment.Node) error {
	m, revision, ok := l.anyApplied()
	if !ok {
		return nil
	}
	have, err := readResult(ctx, api, m)
	if err == nil && have < revision {
		l.note("%v was applied in revision %d, a read answers %d", m, revision, have)
	}
	return err
}

// problem says what of a page no set of results could be: a user who stands
// twice, as by a row that nobody deleted, a wrong order or a wrong rank.
func (p *page) problem(b *board) string {
	users := map[string]bool{}
	for i, s := range p.Standings {
		switch {
		case users[s.User]:
			return s.User + " stands twice"
		case p.Degraded != (s.Rank == nil):
			return fmt.Sprintf("%v in a page that says degraded %v", s, p.Degraded)
		}
		users[s.User] = true
		rank := int64(i + 1)
		if i > 0 {
			before := p.Standings[i-1]
			if s.Score != before.Score && (s.Score < before.Score) == b.lowerFirst {
				return fmt.Sprintf("%v stands behind %v", s, before)
			}
			if s.Score == before.Score && before.Rank != nil {
				rank = *before.Rank
			}
		}
		if s.Rank != nil && *s.Rank != rank {
			return fmt.Sprintf("%v at rank %d", s, rank)
		}
	}
	return ""
}

// figures are what a load has come to so far.
type figures struct {
	calls, errors, acknowledged, accepted int
	slowest                               time.Duration
}

func (l *load) figures() figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := figures{calls: len(l.calls), acknowledged: l.acknowledged, accepted: l.accepted}
	for _, c := range l.calls {
		if c.err != nil {
			f.errors++
		}
		f.slowest = max(f.slowest, c.took)
	}
	return f
}

func (f figures) String() string {
	return fmt.Sprintf("%d calls, %d errors (%.2f %%), slowest %v; %d results acknowledged, %d of them before they were applied",
		f.calls, f.errors, f.percent(), f.slowest.Round(time.Millisecond), f.acknowledged, f.accepted)
}

func (f figures) percent() float64 { return 100 * float64(f.errors) / float64(max(f.calls, 1)) }

// errors returns some of the errors that calls had.
func (l *load) errors() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, c := range l.calls {
		if c.err != nil && len(errs) < 5 {
			errs = append(errs, c.err)
		}
	}
	return errs
}

// steady is how many calls in a row succeed when a fault is overcome.
const steady = 50

// recovered waits until so many calls in a row, all begun after a moment, have
// succeeded, and returns how long after the moment the first of them began.
func (l *load) recovered(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	var after time.Duration
	eventually(t, func(context.Context) error {
		l.mu.Lock()
		calls := slices.DeleteFunc(slices.Clone(l.calls), func(c call) bool { return c.began.Before(since) })
		l.mu.Unlock()
		slices.SortFunc(calls, func(x, y call) int { return x.began.Compare(y.began) })
		row := 0
		for i, c := range calls {
			if row++; c.err != nil {
				row = 0
			}
			if row == steady {
				after = calls[i-steady+1].began.Sub(since)
				return nil
			}
		}
		return fmt.Errorf("of %d calls no %d in a row succeeded", len(calls), steady)
	})
	return after
}

// more waits until so many more results were acknowledged.
func (l *load) more(t *testing.T, n int) {
	t.Helper()
	until := l.figures().acknowledged + n
	eventually(t, func(context.Context) error {
		if have := l.figures().acknowledged; have < until {
			return fmt.Errorf("%d results were acknowledged, waiting for %d", have, until)
		}
		return nil
	})
}

// stop lets the load end, and returns once every result is acknowledged.
func (l *load) stop() {
	l.t.Helper()
	close(l.ending)
	l.done.Wait()
	for _, w := range l.wrong {
		l.t.Error(w)
	}
	f := l.figures()
	l.t.Logf("%v; %d revisions of %d matches, %d sent twice", f, len(l.ledger.made), len(l.ledger.last), l.ledger.twice)
	for _, err := range l.errors() {
		l.t.Logf("an error: %v", err)
	}
}
